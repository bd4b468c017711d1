#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <systemc>
#include <vector>

#include "model/avic.hpp"
#include "model/config/scenario.hpp"
#include "model/host_timer.hpp"
#include "model/interfaces.hpp"
#include "model/local_apic_unit.hpp"
#include "model/nested.hpp"
#include "model/policy/halt_poll.hpp"
#include "model/stats/exit_stats.hpp"
#include "model/stats/latency_stats.hpp"
#include "model/stats/vcpu_stats.hpp"
#include "svm/guest_cpu.hpp"
#include "workloads/guest/pv_memory.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::model {

struct Vm;
class Hypervisor;
class Vcpu;

/// kvm_vcpu::mode, with respect to kicks (kvm-software.md 1.8).
enum class VcpuMode : std::uint8_t { outside_guest, in_guest, exiting_guest };

/// kvm_vcpu_arch::mp_state. KVM's SIPI_RECEIVED lasts no longer than the call that sets it.
enum class MpState : std::uint8_t { runnable, halted, uninitialized, init_received };

/// Requests that this version makes (kvm-software.md 1.3; arch/x86/include/asm/kvm_host.h).
namespace request {
inline constexpr std::uint64_t unblock = 1U << 2;
inline constexpr std::uint64_t migrate_timer = 1U << 8;
inline constexpr std::uint64_t event = 1U << 14;
inline constexpr std::uint64_t nmi = 1U << 17;
inline constexpr std::uint64_t smi = 1U << 20;
inline constexpr std::uint64_t apicv_update = std::uint64_t{1} << 33;
}  // namespace request

/// NMIs of a vCPU (process_nmi in x86.c, svm.c): queued by others, pending (two at the most), and the window
/// that the IRET of the handler opens. With vNMI the mask and one pending NMI are in int_ctl.
struct NmiState {
  unsigned queued = 0;
  unsigned pending = 0;
  bool injected = false;
  bool masked = false;         ///< up to IRET; without vNMI
  bool awaiting_iret = false;  ///< IRET has exited and has not been executed yet
  bool single_step = false;    ///< EFLAGS.TF is KVM's: the #DB after one instruction opens the window
  std::uint64_t iret_rip = 0;
  std::uint64_t rflags_before = 0;  ///< of the guest, without the single step
};

/// System management mode (enter_smm in smm.c): what RSM returns to. The handler is a bare RSM.
struct SmmState {
  bool pending = false;
  bool active = false;
  bool inside_nmi = false;
  std::uint64_t rip = 0;
  std::uint64_t rflags = 0;
  std::uint32_t int_state = 0;
};

/// The emulated timer's host side (kvm_timer in lapic.h).
class LapicTimer : public HostTimer {
 public:
  LapicTimer(Vcpu& in_vcpu, HostTimerClient& client) : HostTimer(client), vcpu(in_vcpu) {}

  Vcpu& vcpu;
  bool pending = false;  ///< expired; the outer loop of KVM_RUN delivers it
  std::uint64_t expired_tscdeadline = 0;
  std::uint32_t advance_ns = 0;  ///< how much earlier than a deadline the host timer fires
};

/// INIT and SIPI as the local APIC holds them (kvm_lapic::pending_events).
struct StartupState {
  bool init = false;
  bool sipi = false;
  std::uint8_t sipi_vector = 0;

  [[nodiscard]] bool pending() const noexcept { return init || sipi; }
};

/// kvm_vcpu_arch: what belongs to paravirtual features, and the guest memory that they use.
struct PvState {
  std::uint64_t eoi_msr = 0;
  std::uint64_t steal_msr = 0;
  std::uint64_t descheduled_at = 0;  ///< when the thread was preempted, + 1
  std::uint64_t poll_control = 1;
  bool eoi_pending = false;    ///< KVM_APIC_PV_EOI_PENDING: the guest may have left out an EOI
  int highest_isr_cache = -1;  ///< kvm_lapic::highest_isr_cache
  workloads::PvMemory memory;

  [[nodiscard]] bool eoi_enabled() const noexcept { return (eoi_msr & workloads::kvm_msr::enabled) != 0; }
  [[nodiscard]] bool may_poll() const noexcept { return (poll_control & 1U) != 0; }
};

/// Where the vCPU thread continues when the host runs it again.
enum class HaltPhase : std::uint8_t { none, blocked };

/// One halt in progress, from the HLT exit to the next runnable state.
struct Halt {
  HaltPhase phase = HaltPhase::none;
  HaltPollPlan plan;
  HaltPollParameters parameters;
  std::uint64_t poll_end_cycles = 0;
  std::uint64_t start_cycles = 0;
  std::uint64_t woken_cycles = 0;  ///< when the thread was made runnable again
};

/// vm.native: what the pCPU's own kernel needs of the core.
struct NativeCpu {
  bool interrupts_enabled = true;
  bool shadow = false;  ///< of an STI
  bool look = false;    ///< an interrupt may have become deliverable
};

/// A vCPU: its VMCB, guest core, local APIC, KVM's per-vCPU state, and its thread in the host.
/// The hypervisor acts on it; it decides nothing by itself.
class Vcpu : public sc_core::sc_module, public HostThread {
 public:
  Vcpu(const sc_core::sc_module_name& name, Vm& vm, unsigned index, svm::FeatureSet features,
       svm::Knobs knobs, const apic::LocalApicOptions& apic_options,
       std::unique_ptr<workloads::WorkloadSource> source, Hypervisor& hypervisor);

  void run(PhysicalCpu& cpu) override;
  void sched_in(PhysicalCpu& cpu) override;
  void sched_out(PhysicalCpu& cpu, bool preempted) override;

  /// What GuestCpu asks of its surroundings, answered by this vCPU.
  class Environment final : public svm::GuestEnvironment {
   public:
    explicit Environment(Vcpu& vcpu) : vcpu_(vcpu) {}
    std::uint64_t host_tsc() override;
    svm::MsrAccess read_msr(std::uint32_t msr) override;
    svm::MsrAccess write_msr(std::uint32_t msr, std::uint64_t value) override;
    std::uint64_t read_port(std::uint16_t port, unsigned size) override;
    void write_port(std::uint16_t port, unsigned size, std::uint64_t value) override;
    std::array<std::uint32_t, 4> cpuid(std::uint32_t leaf, std::uint32_t subleaf) override;
    bool page_allows(std::uint64_t guest_physical, svm::PageAccess access) override;
    svm::NestedPage nested_page(std::uint64_t guest_physical) override;
    std::uint64_t handler_entry(std::uint8_t vector) override;
    const svm::MsrPermissionMap& msr_permission_map(std::uint64_t physical) override;
    const svm::IoPermissionMap& io_permission_map(std::uint64_t physical) override;
    svm::Vmcb* vmcb_page(std::uint64_t physical) override;
    // vcpu_avic.cpp
    void avic_vmrun(const svm::VmcbControl& control) override;
    void avic_entered() override;
    void avic_vmexit() override;
    int avic_pending() override;
    int avic_acknowledge() override;
    void avic_write_cr8(std::uint8_t cr8) override;
    svm::AvicAccess avic_read_msr(std::uint32_t msr) override;
    svm::AvicAccess avic_write_msr(std::uint32_t msr, std::uint64_t value) override;
    svm::AvicAccess avic_read_page(std::uint32_t offset) override;
    svm::AvicAccess avic_write_page(std::uint32_t offset, std::uint32_t value) override;
    int avic_highest_irr() override;
    std::uint8_t avic_ppr() override;

   private:
    template <typename Access>
    svm::AvicAccess avic_write(std::uint32_t offset, std::uint64_t value, Access&& access);

    Vcpu& vcpu_;
  };

  /// Whether a guest physical page has no memory behind it: that of the local APIC or the I/O APIC, or one of
  /// mmio_pages.
  [[nodiscard]] bool is_mmio(std::uint64_t guest_physical) const noexcept;

  /// Whether the APIC's page is memory for this guest: under AVIC, where its APIC is in xAPIC mode.
  [[nodiscard]] bool has_apic_page() const noexcept;

  /// The emulated APIC; under AVIC with what the hardware has made of it since.
  [[nodiscard]] apic::LocalApic& apic() noexcept {
    if (apicv_active) avic_pull();
    return apic_unit.state();
  }
  [[nodiscard]] const apic::LocalApic& apic() const noexcept { return const_cast<Vcpu*>(this)->apic(); }
  void avic_pull() noexcept;
  /// The emulated APIC takes the backing page over for good: AVIC is not active any more.
  void avic_adopt_page() noexcept;
  /// An edge-triggered interrupt from outside reaches the backing page, and the core if it runs the guest.
  void avic_post(std::uint8_t vector);
  /// What halt polling looks at has changed: the loop sees it at its next turn.
  void notice_while_polling(PhysicalCpu& by);

  // Identity.
  Vm& vm;
  const unsigned index;  ///< also the APIC ID

  // The guest.
  alignas(4096) svm::Vmcb vmcb{};       ///< the one that runs: vmcb01, or vmcb02 while L2 runs
  bool guest_mode = false;              ///< is_guest_mode: L2 runs
  std::unique_ptr<NestedState> nested;  ///< null where the guest is no hypervisor
  /// The VMCB of the guest itself, whatever runs.
  [[nodiscard]] svm::Vmcb& vmcb01() noexcept { return guest_mode ? nested->vmcb01 : vmcb; }
  [[nodiscard]] const svm::Vmcb& vmcb01() const noexcept { return guest_mode ? nested->vmcb01 : vmcb; }
  svm::GuestCpu guest;
  Environment environment;
  LocalApicUnit apic_unit;
  std::unique_ptr<workloads::WorkloadSource> source;
  std::vector<std::uint64_t> absent_pages;  ///< guest physical pages that fault on their first touch
  std::vector<std::uint64_t> mmio_pages;    ///< guest physical pages without memory
  std::vector<std::uint64_t>
      suspended_compute;           ///< what is left of compute actions that interrupts cut, innermost last
  std::uint64_t compute_left = 0;  ///< of the current compute action; 0 = not begun
  std::array<std::uint64_t, 16> passed_through_msrs{};
  std::uint64_t pat = 0x0007040600070406U;

  bool external_causes;   ///< the source may have causes from outside the guest
  bool before_recording;  ///< a replay that has not reached the first recorded event

  NativeCpu native;

  // KVM's state.
  PhysicalCpu* pcpu = nullptr;
  VcpuMode mode = VcpuMode::outside_guest;
  MpState mp_state = MpState::runnable;
  std::uint64_t requests = request::event;  // kvm_vcpu_reset
  bool apicv_active = false;                // kvm_lapic::apicv_active
  std::unique_ptr<AvicVcpu> avic;           // null where AVIC cannot be used at all
  const svm::MsrPermissionMap* msrpm = nullptr;
  bool debug_registers_of_guest =
      false;                          ///< KVM_DEBUGREG_WONT_EXIT: DR accesses do not exit until the next exit
  bool force_immediate_exit = false;  ///< an event has to wait for what is injected now
  struct QueuedInterrupt {
    bool injected = false;
    std::uint8_t vector = 0;
    bool soft = false;
  } interrupt;
  struct QueuedException {
    bool pending = false;
    bool injected = false;
    bool has_error = false;
    std::uint8_t vector = 0;
    std::uint32_t error = 0;
  } exception;
  NmiState nmi;
  SmmState smm;
  StartupState startup;
  LapicTimer timer;
  bool pv_unhalted = false;  ///< KVM_HC_KICK_CPU: the next halt ends at once
  PvState pv;
  DisabledExits disabled_exits;                  ///< hlt_in_guest and its like
  std::optional<DisabledExits> requested_exits;  ///< by user space, not yet in force
  // Directed yield (virt/kvm/kvm_main.c).
  bool ready = false;                  ///< runnable and not running: preempted, or just woken
  bool preempted = false;              ///< it was switched out while runnable
  std::uint64_t preempted_cycles = 0;  ///< when that was
  bool preempted_in_kernel = false;
  bool in_spin_loop = false;
  bool dy_eligible = false;
  bool scheduled_out = false;            ///< it has been switched out and not in again
  bool at_instruction_boundary = false;  ///< the last exit was for a host interrupt
  bool host_state_unloaded = true;       ///< the next entry loads what KVM switches once per stay on a pCPU
  HaltPoller poller;
  Halt halt;
  bool polling = false;
  bool spinning = false;           ///< waits in guest mode for a store of another vCPU
  sc_core::sc_event memory_event;  ///< notified when such a store becomes visible here
  sc_core::sc_event poll_event;    ///< notified when a condition that polling looks at has changed

  // Statistics.
  VcpuStats stats;
  VcpuStats stats_at_warmup;
  bool warm = false;
  ExitStats exits;
  std::uint64_t wake_cause_cycles = 0;  ///< when what ends the halt in progress happened; 0 = unknown
  std::array<std::uint64_t, 256> ipi_sent_cycles{};  ///< by vector, + 1; 0 = not an IPI
  std::uint64_t icr_exits = 0;                       ///< IPIs that were sent by an ICR write that exited
  std::uint64_t hypercall_ipis = 0;                  ///< PV_SEND_IPI hypercalls
  std::uint64_t injected_ipi_sent_cycles = 0;        ///< of the interrupt on its way into the guest, + 1
  std::uint64_t checked_cycles = 0;                  ///< local clock when its progress was last looked at
  std::uint64_t ended_cycles = 0;
  std::string failure;  ///< why the vCPU stopped before its workload ended

 private:
  Hypervisor& hypervisor_;
};

}  // namespace svmsim::model
