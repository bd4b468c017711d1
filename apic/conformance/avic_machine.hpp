#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apic/avic/avic_core.hpp"
#include "apic/avic/posted_interrupt.hpp"
#include "apic/avic/stale_is_running.hpp"
#include "apic/conformance/avic_guest.hpp"
#include "apic/conformance/script.hpp"
#include "apic/local_apic_types.hpp"
#include "svm/intercept.hpp"
#include "svm/knobs.hpp"
#include "svm/vmcb.hpp"

namespace svmsim::apic::conformance {

struct AvicVcpuSetup {
  bool valid = true;
  bool running = true;   ///< IsRunning
  bool in_guest = true;  ///< its core runs it
  bool halted = false;
  std::uint32_t host_apic_id = 0;      ///< of that core
  std::optional<std::uint64_t> page;   ///< pointer to the backing page, where it is not its own
  std::optional<std::uint64_t> entry;  ///< of the physical APIC ID table, as it stands in memory
  std::vector<std::uint64_t> irr, isr, tmr;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> registers;  ///< of the backing page, by offset
  std::optional<std::uint8_t> v_tpr;                               ///< in the VMCB; absent: that of the page
};

struct AvicSetup {
  bool x2avic = false;
  AvicKnobs knobs;
  svm::Knobs core_knobs;
  AvicProcessor processor;
  std::vector<AvicVcpuSetup> vcpus;
  std::optional<std::uint32_t> max_index;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> logical;  ///< entries as they stand in memory
  std::uint64_t stale_window_cycles = 0;
  std::vector<svm::Intercept> intercepts;
  bool interrupts_enabled = true;  ///< RFLAGS.IF of the guest
};

/// One VM with AVIC for the cases [[avic]]: tables and backing pages in memory, a core for each vCPU, the
/// hypervisor's writes to them, and an IOMMU that posts interrupts. vCPU n has the APIC ID n and, where a
/// case says nothing else, runs in guest mode on the core with the host APIC ID 100h + n.
class AvicMachine {
 public:
  static constexpr std::string_view unit_key = "vcpu";
  static constexpr std::string_view units_key = "vcpus";
  [[nodiscard]] static const std::vector<Verb<AvicMachine>>& verbs();
  [[nodiscard]] static const std::vector<Field<AvicMachine>>& fields();

  /// A backing page pointer that leads nowhere.
  static constexpr std::uint64_t illegal_page = 0x10'0000;

  struct Vcpu {
    AvicCore core;
    std::uint32_t host_apic_id = 0;
    std::uint8_t v_tpr = 0;
    bool halted = false;
    std::unique_ptr<AvicGuest> guest;  ///< of a case that lets a whole guest run
  };

  /// What the last event led to.
  struct Outcome {
    std::string impossible = "none";  ///< why the event cannot happen: the case makes no sense
    bool fault = false;               ///< #GP(0)
    std::optional<std::uint64_t> exit;
    std::uint64_t exit_info_1 = 0;
    std::uint64_t exit_info_2 = 0;
    bool rip_after = false;
    bool nrip_is_next = false;
    std::optional<std::uint64_t> value;    ///< read
    int v_tpr = -1;                        ///< new V_TPR
    std::vector<std::uint64_t> requested;  ///< vCPUs whose IRR bit was set, in order
    std::vector<std::uint64_t> merged;     ///< those of them whose bit was set already
    std::vector<std::uint64_t> doorbells;  ///< host APIC IDs, in order
    std::vector<std::string> sequence;     ///< both, as they happened
    std::string effect = "none";           ///< of a doorbell, a VMRUN or a posted interrupt
    std::vector<std::string> rung;         ///< what the doorbells of an IPI did, in order
    bool tpr_mismatch = false;
    int taken = -1;                        ///< vector
    std::vector<std::uint64_t> delivered;  ///< vectors, by a whole guest
  };

  explicit AvicMachine(const AvicSetup& setup);
  AvicMachine(const AvicMachine&) = delete;
  AvicMachine& operator=(const AvicMachine&) = delete;

  [[nodiscard]] std::size_t units() const noexcept { return vcpus_.size(); }
  [[nodiscard]] const Vcpu& vcpu(std::size_t index) const { return vcpus_[index]; }
  [[nodiscard]] const BackingPage& page(std::size_t index) const { return memory_.backing_pages[index]; }
  [[nodiscard]] PhysicalIdEntry entry(std::size_t index) const;
  [[nodiscard]] const Outcome& outcome() const noexcept { return outcome_; }
  [[nodiscard]] const Irte& irte() const noexcept { return irte_; }
  [[nodiscard]] const GaLog& ga_log() const noexcept { return ga_log_; }

  void begin_event() { outcome_ = {}; }

  // For the guest's own core.
  [[nodiscard]] AvicCore& core_of(std::size_t index) { return vcpus_[index].core; }
  [[nodiscard]] AvicMemory& memory() noexcept { return memory_; }
  /// Performs an access, and then rings the cores that it names.
  template <typename Access>
  svm::AvicAccess while_ringing(Access&& access) {
    const std::size_t before = outcome_.doorbells.size();
    const svm::AvicAccess result = access();
    const std::vector<std::uint64_t> all = outcome_.doorbells;
    for (std::size_t i = before; i < all.size(); ++i)
      ring(static_cast<std::uint32_t>(all[i]));
    return result;
  }
  [[nodiscard]] std::string outcome_text() const;

  // Of the guest.
  void write_register(std::size_t index, std::uint32_t offset, std::uint64_t value);
  void read_register(std::size_t index, std::uint32_t offset);
  void write_msr(std::size_t index, std::uint32_t msr, std::uint64_t value);
  void read_msr(std::size_t index, std::uint32_t msr);
  void store(std::size_t index, std::uint32_t offset, std::uint32_t value);
  void load(std::size_t index, std::uint32_t offset);
  void send(std::size_t index, const IcrCommand& command);
  void set_cr8(std::size_t index, std::uint8_t value);
  void acknowledge(std::size_t index);
  void hlt(std::size_t index);
  // avic_guest.cpp
  void run_guest(std::size_t index, const svm::conformance::CaseRun& run);

  // Of the hypervisor and its core.
  void vmrun(std::size_t index, std::optional<std::uint8_t> v_tpr, bool avic);
  void entered(std::size_t index) { vcpus_[index].core.entered(); }
  void vmexit(std::size_t index) { vcpus_[index].core.vmexit(); }
  void doorbell(std::size_t index);
  void ring_by_msr(std::uint64_t value);
  void request(std::size_t index, std::uint8_t vector, bool level);  ///< a plain write to the page
  void withdraw(std::size_t index, std::uint8_t vector);
  void poke(std::size_t index, std::uint32_t offset, std::uint32_t value);
  void set_entry(std::size_t index, std::uint64_t raw) { entry_at(index).raw = raw; }
  void load_vcpu(std::size_t index, std::optional<std::uint32_t> host_apic_id);
  void put_vcpu(std::size_t index);
  void wait(std::uint64_t cycles) { now_ += cycles; }

  // Of the IOMMU.
  void make_irte(std::size_t index, std::uint8_t vector, std::uint32_t tag);
  void set_irte(const Irte& irte) { irte_ = irte; }
  void irte_running(std::uint32_t host_apic_id) { irte_.set_running(host_apic_id); }
  void irte_stopped(bool ga_log_intr) { irte_.clear_running(ga_log_intr); }
  void post(std::uint16_t device_id);
  void take_log_entry();
  void restart_log() { ga_log_.restart(); }

 private:
  friend struct AvicSink;

  [[nodiscard]] AvicGuest& guest_of(std::size_t index);
  void set_avic_fields(std::size_t index, svm::VmcbControl& control) const;
  [[nodiscard]] PhysicalIdEntry& entry_at(std::size_t index);
  /// Whether the guest can act; says so in the outcome otherwise.
  bool guest_acts(std::size_t index);
  void ended(std::size_t index, const AvicResult& result);
  void ring(std::uint32_t host_apic_id);

  AvicSetup setup_;
  AvicRegisters registers_;
  AvicMemory memory_;
  StaleIsRunning stale_;
  std::deque<Vcpu> vcpus_;
  Irte irte_;
  GaLog ga_log_;
  std::uint64_t now_ = 0;
  Outcome outcome_;
};

/// Reads the keys of a case that describe the VM.
[[nodiscard]] AvicSetup read_avic_setup(NodeTable& table);
/// Words of an outcome: of doorbells, VMRUNs and posted interrupts.
[[nodiscard]] const Choices& avic_effect_choices();

}  // namespace svmsim::apic::conformance
