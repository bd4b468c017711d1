#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "apic/destination.hpp"

namespace svmsim::model {

/// Why KVM does not use AVIC for a VM: enum kvm_apicv_inhibit (arch/x86/include/asm/kvm_host.h), by bit
/// number.
enum class ApicvInhibitReason : std::uint8_t {
  disabled,             ///< by the module parameter, or the CPU has no AVIC
  hyperv,               ///< AutoEOI of a Hyper-V SynIC in use
  absent,               ///< no in-kernel interrupt controller yet
  blockirq,             ///< KVM_GUESTDBG_BLOCKIRQ
  physical_id_aliased,  ///< two APICs answer to one physical ID
  apic_id_modified,     ///< an xAPIC ID is not the vCPU's
  apic_base_modified,   ///< the APIC page is not at FEE0_0000h
  nested,               ///< a second-level guest runs
  irqwin,               ///< an interrupt window is wanted, for an ExtINT
  pit_reinj,            ///< the in-kernel PIT re-injects lost ticks
  sev,                  ///< the guest's memory is encrypted
  logical_id_aliased,   ///< logical IDs are not one to one, or the APICs are in different modes
  physical_id_too_big,  ///< a vCPU's ID does not fit in the physical ID table
  x2apic,               ///< the rule of 2021: the guest may use x2APIC
  count,
};

/// The kernel's name in lower case ("pit_reinj").
[[nodiscard]] std::string_view inhibit_name(ApicvInhibitReason reason);
[[nodiscard]] std::optional<ApicvInhibitReason> inhibit_of(std::string_view name);

/// kvm_arch::apicv_inhibit_reasons of one VM, with what the results say of it.
class ApicvInhibits {
 public:
  static constexpr std::size_t reasons = static_cast<std::size_t>(ApicvInhibitReason::count);

  /// Statistics count from `warmup_cycles` on.
  explicit ApicvInhibits(std::uint64_t warmup_cycles = 0) : warmup_cycles_(warmup_cycles) {}

  /// Sets or clears a reason. True when AVIC was usable before and is not now, or the other way round: every
  /// vCPU has to change over then.
  bool set(ApicvInhibitReason reason, bool on, std::uint64_t now_cycles);

  [[nodiscard]] std::uint64_t bitmap() const noexcept { return bitmap_; }
  [[nodiscard]] bool any() const noexcept { return bitmap_ != 0; }
  [[nodiscard]] bool has(ApicvInhibitReason reason) const noexcept {
    return ((bitmap_ >> static_cast<unsigned>(reason)) & 1U) != 0;
  }

  struct Row {
    ApicvInhibitReason reason;
    std::uint64_t count = 0;  ///< how often it was set; one that holds when the warm-up ends counts once
    std::uint64_t time_cycles = 0;  ///< how long it held
  };
  /// The reasons that held at any time after the warm-up and before `end_cycles`, in the order of their bits.
  [[nodiscard]] std::vector<Row> rows(std::uint64_t end_cycles) const;

 private:
  struct Record {
    std::uint64_t count = 0;
    std::uint64_t time = 0;
    std::uint64_t since = 0;
  };
  std::uint64_t warmup_cycles_;
  std::uint64_t bitmap_ = 0;
  std::array<Record, reasons> records_{};
};

/// One APIC as kvm_recalculate_apic_map sees it.
struct ApicMapEntry {
  apic::ApicAddress address;
  bool software_enabled = false;
};

struct ApicMapProblems {
  bool physical_id_aliased = false;
  bool apic_id_modified = false;
  bool logical_id_aliased = false;
};

/// What keeps AVIC from addressing the APICs of a VM as the guest means it: kvm_recalculate_apic_map
/// (arch/x86/kvm/lapic.c), without KVM_X2APIC_API_USE_32BIT_IDS. Disabled APICs do not count.
[[nodiscard]] ApicMapProblems apic_map_problems(const std::vector<ApicMapEntry>& apics);

}  // namespace svmsim::model
