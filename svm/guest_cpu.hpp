#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "svm/features.hpp"
#include "svm/guest_action.hpp"
#include "svm/guest_environment.hpp"
#include "svm/intercept.hpp"
#include "svm/knobs.hpp"
#include "svm/pause_filter.hpp"
#include "svm/processor_limits.hpp"
#include "svm/vmcb.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmrun_checks.hpp"

namespace svmsim::svm {

enum class StepKind : std::uint8_t {
  none,       ///< boundary(): nothing happened
  entered,    ///< vmrun(): guest mode, no event was injected
  retired,    ///< execute(): the action has completed; rIP is the next one
  halted,     ///< execute(): HLT completed and the CPU is halted in guest mode
  delivered,  ///< an interrupt, NMI or exception `vector` was delivered; rIP is its handler
  vmexit,     ///< #VMEXIT: state and exit fields are in the VMCB, GIF is 0
  shutdown,   ///< the guest is in the shutdown state, which the VMCB does not intercept; see shut_down()
  reset,      ///< boundary(): the guest took an INIT that the VMCB does not intercept; guest mode has ended
};

struct Step {
  StepKind kind = StepKind::none;
  std::uint8_t vector = 0;  ///< of a delivered event
  /// Of a retired action: TSC, MSR, CR8, port value, or EBX:EAX of CPUID. Of a delivered event: its error
  /// code.
  std::uint64_t result = 0;
};

/// The untimed guest-mode core: VMRUN, guest actions under a VMCB, #VMEXIT. APM vol. 2, chapter 15.
/// It holds what a core holds while a guest runs (the loaded VMCB state, the interrupt shadow, whether it is
/// halted) and stands in for the guest's stack: delivery pushes rIP and RFLAGS on an internal list of frames,
/// IRET pops it. Because of that list there is one GuestCpu per vCPU. It does not know time: whoever drives
/// it charges cycles and says which physical events are pending.
///
/// Order of use: vmrun(), then boundary() before each execute(), until one of them returns vmexit.
///
/// Left out: AVIC delivers nothing here (only the idle-HLT intercept looks at the backing page); SMM, INIT
/// and the un-intercepted shutdown; the guest's own page tables (linear addresses are guest physical ones);
/// the TSS I/O bitmap; real memory: a memory action only asks whether the nested page tables allow it.
/// Intercepts, exit fields and permission map pointers are read from the VMCB in place, without the cache
/// that the clean bits describe.
class GuestCpu {
 public:
  explicit GuestCpu(FeatureSet features, Knobs knobs = {}, ProcessorLimits limits = {});

  /// VMRUN (15.5.1): loads the VMCB, checks it (svm/vmrun_checks.hpp), sets GIF, injects EVENTINJ.
  /// Returns entered, delivered, or vmexit (INVALID, or an exit during the delivery of the injected event).
  /// `host_if` is RFLAGS.IF of the host at VMRUN; with V_INTR_MASKING it gates physical INTR. The VMCB must
  /// stay where it is until #VMEXIT. TLB_CONTROL other than 0, or another ASID than last time, forgets which
  /// descriptor table pages event delivery has found mapped.
  Step vmrun(Vmcb& vmcb, bool host_if, GuestEnvironment& environment);

  /// Instruction boundary: takes the highest-priority pending event (3.10). none, delivered or vmexit.
  /// Ends a halt when it returns delivered or vmexit. May be skipped while !event_possible() and nothing
  /// physical is pending.
  Step boundary(PhysicalEvents events, GuestEnvironment& environment);

  /// One action at action.rip: retired, halted, delivered (a fault) or vmexit. An exiting fault-like
  /// instruction changes nothing. Precondition: in guest mode, not halted.
  Step execute(const GuestAction& action, GuestEnvironment& environment);

  /// Whether a virtual interrupt or NMI could be taken now or after a shadow. Physical events are known to
  /// the driver, who calls boundary() when this or PhysicalEvents::any() is true.
  [[nodiscard]] bool event_possible() const noexcept {
    using namespace int_ctl;
    const bool interrupt = (int_ctl_ & v_irq) != 0 && (rflags_ & rflags::interrupt) != 0;
    return interrupt || (int_ctl_ & (v_nmi | v_nmi_mask)) == v_nmi;
  }

  /// The guest has jumped since its last action: where it stands now, for events at the next boundary.
  void set_rip(std::uint64_t rip) noexcept { rip_ = rip; }
  /// Ends the interrupt shadow inside a compute action, which stands for many instructions: its first one
  /// ends it.
  void end_shadow() noexcept { shadow_ = false; }

  [[nodiscard]] bool in_guest_mode() const noexcept { return vmcb_ != nullptr; }
  /// Halted by HLT, or shut down: the guest executes nothing until an event.
  [[nodiscard]] bool halted() const noexcept { return halted_; }
  /// In the shutdown state, after a fault in the delivery of #DF (15.14.3): halted, and only SMI, INIT and
  /// NMI count.
  [[nodiscard]] bool shut_down() const noexcept { return shut_down_; }
  [[nodiscard]] bool gif() const noexcept { return gif_; }
  [[nodiscard]] std::uint64_t rip() const noexcept { return rip_; }
  [[nodiscard]] std::uint64_t rflags() const noexcept { return rflags_; }
  [[nodiscard]] bool interrupt_shadow() const noexcept { return shadow_; }
  [[nodiscard]] std::uint8_t v_tpr() const noexcept { return int_ctl::v_tpr(int_ctl_); }
  /// Privilege level of the last action, or of the handler that was entered since.
  [[nodiscard]] std::uint8_t cpl() const noexcept { return cpl_; }
  [[nodiscard]] const FeatureSet& features() const noexcept { return features_; }
  [[nodiscard]] const Knobs& knobs() const noexcept { return knobs_; }
  [[nodiscard]] const ProcessorLimits& limits() const noexcept { return limits_; }
  /// Depth of handlers that have not returned.
  [[nodiscard]] std::size_t frames() const noexcept { return frames_.size(); }

 private:
  struct Frame {
    std::uint64_t rip;
    std::uint64_t rflags;
    std::uint8_t cpl;
  };

  // vmrun.cpp
  [[nodiscard]] Step invalid_exit(Vmcb& vmcb) noexcept;
  Step vmexit(std::uint64_t code, std::uint64_t info_1 = 0, std::uint64_t info_2 = 0,
              std::uint64_t next_rip = 0) noexcept;

  // event_delivery.cpp
  [[nodiscard]] Step inject(GuestEnvironment& environment);
  [[nodiscard]] Step deliver(std::uint32_t event, std::uint32_t error_code, std::uint64_t return_rip,
                             GuestEnvironment& environment);
  [[nodiscard]] Step non_maskable_event(PhysicalEvents events, GuestEnvironment& environment);
  [[nodiscard]] Step physical_interrupt(GuestEnvironment& environment);
  [[nodiscard]] Step virtual_interrupt(GuestEnvironment& environment);

  // exception.cpp
  /// An exception at rip_, wholly: intercept (EXITINFO1 = error code, EXITINFO2 = address of a #PF),
  /// delivery, what goes wrong in it. `fault_address`: CR2 of a #PF, or the bits that a #DB sets in DR6.
  /// `next_rip`: nRIP of the exit, only for #BR. Returns delivered, vmexit, shutdown, or none for a #DB that
  /// GIF = 0 discards.
  [[nodiscard]] Step raise(std::uint8_t vector, bool has_error, std::uint32_t error_code,
                           std::uint64_t fault_address, GuestEnvironment& environment,
                           std::uint64_t next_rip = 0);
  /// #BP of INT3 and #OF of INTO: exception intercepts with nRIP, a gate that the CPL may use, return behind
  /// it.
  [[nodiscard]] Step raise_software(std::uint8_t vector, std::uint64_t next_rip,
                                    GuestEnvironment& environment);
  /// INTn that no INTn intercept caught.
  [[nodiscard]] Step software_interrupt(std::uint8_t vector, std::uint64_t next_rip,
                                        GuestEnvironment& environment);
  [[nodiscard]] Step fault(std::uint8_t vector, GuestEnvironment& environment);
  [[nodiscard]] Step general_protection(GuestEnvironment& environment);  ///< #GP(0)
  [[nodiscard]] Step exception_in_delivery(std::uint32_t event, std::uint32_t event_error,
                                           std::uint8_t vector, std::uint32_t error_code,
                                           GuestEnvironment& environment);
  [[nodiscard]] Step shutdown() noexcept;
  void interrupt_delivery(std::uint32_t event, std::uint32_t error_code) noexcept;
  [[nodiscard]] static std::uint32_t gate_error_code(std::uint32_t event) noexcept;
  [[nodiscard]] bool descriptor_readable(std::uint64_t address, std::uint64_t& known_page,
                                         GuestEnvironment& environment);

  // execute.cpp and its siblings, one per subject
  [[noreturn]] void not_runnable() const;
  Step retire(const GuestAction& action, std::uint64_t result = 0) noexcept {
    rip_ = action.next_rip();
    shadow_ = false;
    rflags_ &= ~rflags::resume;
    return {StepKind::retired, 0, result};
  }
  Step intercepted_exit(Intercept intercept, const GuestAction& action) noexcept {
    return vmexit(exit_code_of(intercept), 0, 0, action.next_rip());
  }
  [[nodiscard]] bool sev_es() const noexcept {
    return limits_.sev && (vmcb_->control.nested_ctl & nested_ctl::sev_es_enable) != 0;
  }
  [[nodiscard]] bool intercepts(Intercept intercept) const noexcept {
    return svm::intercepted(vmcb_->control, intercept);
  }
  Step execute_cli_sti(const GuestAction& action, GuestEnvironment& environment);
  Step execute_hlt(const GuestAction& action, GuestEnvironment& environment);
  Step execute_pause(const GuestAction& action, GuestEnvironment& environment);
  Step execute_cpuid(const GuestAction& action, GuestEnvironment& environment);
  Step execute_rdtsc(const GuestAction& action, GuestEnvironment& environment);
  Step execute_msr(const GuestAction& action, bool write, GuestEnvironment& environment);
  Step execute_io(const GuestAction& action, bool write, GuestEnvironment& environment);
  Step execute_cr8(const GuestAction& action, bool write, GuestEnvironment& environment);
  Step execute_memory(const GuestAction& action, bool write, GuestEnvironment& environment);
  Step execute_iret(const GuestAction& action);

  static constexpr std::uint64_t no_page = ~std::uint64_t{0};
  static constexpr std::size_t max_frames = 1024;

  Vmcb* vmcb_ = nullptr;
  std::uint64_t rip_ = 0;
  std::uint64_t rflags_ = 0;
  /// int_ctl as the core holds it: bits without a feature or an enable bit are 0, V_IRQ is 0 under AVIC, and
  /// VGIF is 1 where it is not in use, so that the hot tests need no enable bits.
  std::uint32_t int_ctl_ = 0;
  std::uint32_t supported_int_ctl_ = 0;
  std::uint32_t saved_int_ctl_ = 0;  ///< bits that #VMEXIT writes back
  std::uint32_t delivering_ = 0;     ///< event on its way through the IDT, in EXITINTINFO's format
  std::uint32_t delivering_error_ = 0;
  std::uint32_t asid_ = 0;
  std::uint64_t idt_page_ = no_page;
  std::uint64_t gdt_page_ = no_page;
  std::uint8_t cpl_ = 0;
  bool shadow_ = false;
  bool halted_ = false;
  bool shut_down_ = false;
  bool gif_ = true;
  bool host_if_ = false;
  bool nmi_masked_ = false;  ///< the guest took a physical NMI and has not executed IRET
  bool has_nrips_ = false;
  VmrunInputs legal_inputs_ = VmrunInputs::of_none();  ///< of the last VMRUN whose state was legal
  PauseFilter pause_filter_;
  std::vector<Frame> frames_;
  FeatureSet features_;
  Knobs knobs_;
  ProcessorLimits limits_;
};

}  // namespace svmsim::svm
