#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "svm/features.hpp"
#include "svm/guest_action.hpp"
#include "svm/guest_environment.hpp"
#include "svm/instruction_rules.hpp"
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
/// Order of use: vmrun(), then boundary() before each execute(), until one of them returns vmexit (or reset).
///
/// The state that VMLOAD and VMSAVE move (FS, GS, TR, LDTR and the system call MSRs) is taken to be that of
/// the VMCB, as if the hypervisor executed VMLOAD before VMRUN and VMSAVE after #VMEXIT.
///
/// An SEV-ES guest's registers are taken to be in the state save area of the VMCB that runs, not in its VMSA.
///
/// Under AVIC the APIC's state is in the backing page, which the environment has: GuestCpu asks it what is
/// recognized, and makes of its answers what the guest sees: deliveries, results, #GP, exits 401h and 402h.
///
/// Left out: Secure AVIC delivers nothing here; the SMM handler; the host state that VMRUN saves and #VMEXIT
/// loads; the guest's own page tables (linear addresses are guest physical ones); the TSS I/O bitmap; real
/// memory: a memory action only asks whether the nested page tables allow it, a gate of the IDT what
/// GuestEnvironment says of it. Intercepts, exit fields and permission map pointers are read from the VMCB in
/// place, without the cache that the clean bits describe.
class GuestCpu {
 public:
  explicit GuestCpu(FeatureSet features, Knobs knobs = {}, ProcessorLimits limits = {});

  /// VMRUN (15.5.1): loads the VMCB, checks it (svm/vmrun_checks.hpp), sets GIF, injects EVENTINJ.
  /// Returns entered, delivered, vmexit (INVALID, or an exit during the delivery of the injected event) or
  /// shutdown. What VMRUN checks before it reads the VMCB is svm_instruction_exception(). `environment` must
  /// live until #VMEXIT.
  /// `host_if` is RFLAGS.IF of the host at VMRUN; with V_INTR_MASKING it gates physical INTR. The VMCB must
  /// stay where it is until #VMEXIT. TLB_CONTROL other than 0, or another ASID than last time, forgets which
  /// descriptor table pages event delivery has found mapped.
  Step vmrun(Vmcb& vmcb, bool host_if, GuestEnvironment& environment);

  /// Instruction boundary: takes the highest-priority pending event (3.10). none, delivered or vmexit.
  /// Ends a halt when it returns delivered or vmexit; that of an MWAIT that takes masked interrupts also
  /// with none. May be skipped while !event_possible() and nothing
  /// physical is pending.
  Step boundary(PhysicalEvents events, GuestEnvironment& environment);

  /// One action at action.rip: retired, halted, delivered (a fault) or vmexit. An exiting fault-like
  /// instruction changes nothing. Precondition: in guest mode, not halted.
  Step execute(const GuestAction& action, GuestEnvironment& environment);

  /// AVIC: a doorbell has reached this core and the environment has evaluated the backing page, or for
  /// another reason avic_pending() is another one. Nothing happens outside of guest mode, or without AVIC.
  void avic_evaluated() noexcept {
    if (avic_environment_ != nullptr) note_avic_pending();
  }
  /// Whether the guest that runs has AVIC.
  [[nodiscard]] bool avic_enabled() const noexcept { return avic_environment_ != nullptr; }

  /// Of PAUSEs at `first`, `first` + `gap`, ... (host TSC) with nothing in between: how many complete before
  /// one exits, PauseFilter::never; and as if `number` of them had completed.
  [[nodiscard]] std::uint64_t pauses_before_exit(std::uint64_t first, std::uint64_t gap) const noexcept {
    if (!intercepts(Intercept::pause)) return PauseFilter::never;
    return pause_filter_.completing(first, gap, knobs_.pause_gap_at_threshold_reloads);
  }
  void complete_pauses(std::uint64_t number, std::uint64_t first, std::uint64_t gap) noexcept {
    if (!intercepts(Intercept::pause)) return;
    pause_filter_.complete(number, first, gap, knobs_.pause_gap_at_threshold_reloads);
  }

  /// Whether a virtual interrupt or NMI could be taken now or after a shadow. Physical events are known to
  /// the driver, who calls boundary() when this or PhysicalEvents::any() is true.
  [[nodiscard]] bool event_possible() const noexcept {
    using namespace int_ctl;
    const bool interrupt = (int_ctl_ & v_irq) != 0 && (rflags_ & rflags::interrupt) != 0;
    return interrupt || (int_ctl_ & (v_nmi | v_nmi_mask)) == v_nmi;
  }

  /// The guest has jumped since its last action: where it stands now, for events at the next boundary.
  void set_rip(std::uint64_t rip) noexcept { rip_ = rip; }
  /// The privilege level there; a compute action may be interrupted before it has been executed.
  void set_cpl(std::uint8_t cpl) noexcept { cpl_ = cpl & 3U; }
  /// Ends the interrupt shadow inside a compute action, which stands for many instructions: its first one
  /// ends it.
  void end_shadow() noexcept { shadow_ = false; }

  [[nodiscard]] bool in_guest_mode() const noexcept { return vmcb_ != nullptr; }
  /// Halted by HLT, MWAIT or an x87 error, or shut down: the guest executes nothing until an event.
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
  /// A store of somebody else: ends the guest's MWAIT, or disarms its monitor, if the address lies in the
  /// monitored line. True when the guest was waiting and goes on.
  bool monitor_written(std::uint64_t address) noexcept;
  [[nodiscard]] bool monitor_armed() const noexcept { return monitor_armed_; }
  /// XCR0, which is not in the VMCB.
  [[nodiscard]] std::uint64_t xcr0() const noexcept { return xcr0_; }
  /// DR0 to DR3, which are not in the VMCB: guest and host share them.
  [[nodiscard]] std::uint64_t debug_register(unsigned number) const noexcept {
    return breakpoint_[number & 3U];
  }
  void set_debug_register(unsigned number, std::uint64_t address) noexcept {
    breakpoint_[number & 3U] = address;
  }
  /// Depth of handlers that have not returned.
  [[nodiscard]] std::size_t frames() const noexcept { return frames_.size(); }

 private:
  struct Frame {
    std::uint64_t rip;
    std::uint64_t rflags;
    std::uint8_t cpl;
  };

  // vmrun.cpp
  [[nodiscard]] std::uint64_t load_surroundings(const Vmcb& vmcb, GuestEnvironment& environment);
  [[nodiscard]] Step failed_vmrun(Vmcb& vmcb, std::uint64_t code) noexcept;
  /// What happens when an intercept fires: #VMEXIT, or #VC in an SEV-ES guest (then delivered or shutdown).
  Step vmexit(std::uint64_t code, std::uint64_t info_1 = 0, std::uint64_t info_2 = 0,
              std::uint64_t next_rip = 0);

  // sev_es.cpp
  Step encrypted_exit(std::uint64_t code, std::uint64_t info_1, std::uint64_t info_2, std::uint64_t next_rip);
  [[nodiscard]] Step communicate(std::uint64_t code);

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
  [[nodiscard]] Step shutdown();
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
  /// #VMEXIT of an intercepted instruction; vmexit() makes it #VC in an SEV-ES guest.
  Step instruction_exit(std::uint64_t code, const GuestAction& action, std::uint64_t info_1 = 0,
                        std::uint64_t info_2 = 0) {
    return vmexit(code, info_1, info_2, action.next_rip());
  }
  Step intercepted_exit(Intercept intercept, const GuestAction& action) {
    return instruction_exit(exit_code_of(intercept), action);
  }
  [[nodiscard]] Step invalid_opcode(GuestEnvironment& environment) {
    return fault(exception_vector::invalid_opcode, environment);
  }
  [[nodiscard]] bool sev_es() const noexcept { return sev_es_environment_ != nullptr; }
  /// With Secure AVIC, INTR, NMI, INIT and #MC are the host's whatever the intercepts say (15.36.21).
  [[nodiscard]] bool secure_avic() const noexcept {
    return sev_es() && limits_.secure_avic && (sev_features_ & sev_features::secure_avic) != 0;
  }
  [[nodiscard]] bool intercepts(Intercept intercept) const noexcept {
    return svm::intercepted(vmcb_->control, intercept);
  }
  [[nodiscard]] bool intercepts_event(Intercept intercept) const noexcept {
    return intercepts(intercept) || secure_avic();
  }
  [[nodiscard]] bool intercepts_exception(std::uint8_t vector) const noexcept {
    // #VC must reach the guest (15.35.5).
    if (vector == exception_vector::vmm_communication && sev_es()) return false;
    return intercepts(exception_intercept(vector)) ||
           (vector == exception_vector::machine_check && secure_avic());
  }
  [[nodiscard]] bool has_intercepted(Intercept intercept, Feature feature) const noexcept {
    return intercepts(intercept) && features_.has(feature);
  }
  [[nodiscard]] bool protected_mode() const noexcept {
    return (vmcb_->save.cr0 & cr0::pe) != 0 && (rflags_ & rflags::virtual_8086) == 0;
  }
  [[nodiscard]] bool mode_64() const noexcept {
    return (vmcb_->save.efer & efer::lma) != 0 && (vmcb_->save.cs.attrib & segment_attrib::long_mode) != 0;
  }
  /// A general register as a source operand: 32 bits outside of 64-bit mode.
  [[nodiscard]] std::uint64_t register_operand(const GuestAction& action) const noexcept {
    return mode_64() ? action.operand[0] : action.operand[0] & 0xffff'ffffU;
  }
  [[nodiscard]] std::uint64_t iopl() const noexcept {
    return (rflags_ & rflags::iopl_mask) >> rflags::iopl_shift;
  }
  [[nodiscard]] bool virtual_gif_enabled() const noexcept { return (int_ctl_ & int_ctl::v_gif_enable) != 0; }
  [[nodiscard]] std::uint64_t guest_tsc(GuestEnvironment& environment) const;
  void forget_pages() noexcept {
    idt_page_ = no_page;
    gdt_page_ = no_page;
  }

  // execute_memory.cpp
  /// Whether the nested page tables allow the access: always without nested paging.
  [[nodiscard]] bool nested_allows(std::uint64_t address, PageAccess access,
                                   GuestEnvironment& environment) const {
    if ((vmcb_->control.nested_ctl & nested_ctl::np_enable) == 0) return true;
    if (access == PageAccess::fetch && gmet_applies()) return gmet_allows(address, environment);
    return environment.page_allows(address, access);
  }
  [[nodiscard]] bool gmet_applies() const noexcept {
    return cpl_ != 3 && (vmcb_->control.nested_ctl & nested_ctl::gmet_enable) != 0 &&
           features_.has(Feature::gmet);
  }
  [[nodiscard]] static bool gmet_allows(std::uint64_t address, GuestEnvironment& environment);
  /// NPF of an access that nested_allows() has refused.
  [[nodiscard]] Step nested_page_fault(std::uint64_t address, PageAccess access,
                                       GuestEnvironment& environment);
  /// Nothing, or the NPF.
  [[nodiscard]] Step touch(std::uint64_t address, PageAccess access, GuestEnvironment& environment) {
    if (nested_allows(address, access, environment)) return {};
    return nested_page_fault(address, access, environment);
  }
  Step execute_bus_lock(const GuestAction& action, GuestEnvironment& environment);

  // execute_avic.cpp
  [[nodiscard]] Step execute_avic_msr(const GuestAction& action, bool write, GuestEnvironment& environment);
  [[nodiscard]] Step execute_avic_page(const GuestAction& action, bool write, GuestEnvironment& environment);
  [[nodiscard]] Step complete_avic_access(const AvicAccess& access, const GuestAction& action,
                                          GuestEnvironment& environment);
  [[nodiscard]] Step avic_interrupt(GuestEnvironment& environment);
  void note_avic_pending() noexcept {
    int_ctl_ =
        avic_environment_->avic_pending() >= 0 ? int_ctl_ | int_ctl::v_irq : int_ctl_ & ~int_ctl::v_irq;
  }
  void end_avic() noexcept {
    if (avic_environment_ == nullptr) return;
    avic_environment_->avic_vmexit();
    avic_environment_ = nullptr;
  }
  [[nodiscard]] bool x2avic() const noexcept {
    return avic_environment_ != nullptr && (int_ctl_ & int_ctl::x2avic_enable) != 0;
  }

  // execute_by_rule.cpp: instructions that svm/instruction_rules.hpp decides
  Step execute_by_rule(const GuestAction& action, GuestEnvironment& environment);
  [[nodiscard]] int failed_check(std::uint32_t checks, const InstructionRule& rule,
                                 const GuestAction& action) const noexcept;
  [[nodiscard]] bool legal_operand(const GuestAction& action) const noexcept;
  [[nodiscard]] Step perform(const GuestAction& action, GuestEnvironment& environment);

  // execute_control_registers.cpp, execute_debug_registers.cpp
  Step execute_mov_from_cr(const GuestAction& action, GuestEnvironment& environment);
  Step execute_mov_to_cr(const GuestAction& action, GuestEnvironment& environment);
  Step execute_clts(const GuestAction& action, GuestEnvironment& environment);
  Step execute_lmsw(const GuestAction& action, GuestEnvironment& environment);
  Step execute_smsw(const GuestAction& action, GuestEnvironment& environment);
  [[nodiscard]] bool cr_write_legal(unsigned number, std::uint64_t value) const noexcept;
  [[nodiscard]] Step write_cr(unsigned number, std::uint64_t value, const GuestAction& action);
  [[nodiscard]] std::uint64_t cr_exit_info(const GuestAction& action) const noexcept;
  Step execute_dr(const GuestAction& action, bool write, GuestEnvironment& environment);
  [[nodiscard]] Step instruction_breakpoint(GuestEnvironment& environment);

  // execute_descriptor_tables.cpp, execute_monitor.cpp, execute_svm.cpp
  Step perform_descriptor_table(const GuestAction& action, GuestEnvironment& environment);
  Step execute_mwait(const GuestAction& action, GuestEnvironment& environment);
  [[nodiscard]] bool waiting() const noexcept { return halted_ && mwait_ && !shut_down_; }
  void end_wait_by_masked_interrupt(PhysicalEvents events) noexcept;
  Step execute_vmrun(const GuestAction& action, GuestEnvironment& environment);
  Step execute_vmload_vmsave(const GuestAction& action, GuestEnvironment& environment);
  Step execute_vmgexit(const GuestAction& action, GuestEnvironment& environment);
  Step perform_invlpgb(const GuestAction& action, GuestEnvironment& environment);
  Step perform_skinit(const GuestAction& action);
  Step set_gif(const GuestAction& action, bool value);

  // execute_interrupts.cpp
  Step perform_popf(const GuestAction& action);
  Step execute_interrupt(const GuestAction& action, GuestEnvironment& environment);
  Step execute_raise(const GuestAction& action, GuestEnvironment& environment);
  Step execute_task_switch(const GuestAction& action, GuestEnvironment& environment);
  Step execute_ferr(GuestEnvironment& environment);

  // execute_msr.cpp, execute_io.cpp
  Step write_efer(const GuestAction& action, GuestEnvironment& environment);
  Step execute_string_io(const GuestAction& action, GuestEnvironment& environment);

  Step execute_cli_sti(const GuestAction& action, GuestEnvironment& environment);
  Step execute_hlt(const GuestAction& action, GuestEnvironment& environment);
  Step execute_pause(const GuestAction& action, GuestEnvironment& environment);
  Step execute_cpuid(const GuestAction& action, GuestEnvironment& environment);
  Step execute_rdtsc(const GuestAction& action, GuestEnvironment& environment);
  Step execute_msr(const GuestAction& action, bool write, GuestEnvironment& environment);
  Step execute_io(const GuestAction& action, bool write, GuestEnvironment& environment);
  Step execute_cr8(const GuestAction& action, bool write, GuestEnvironment& environment);
  Step execute_memory(const GuestAction& action, PageAccess access, GuestEnvironment& environment);
  Step execute_iret(const GuestAction& action);

  static constexpr std::uint64_t no_page = ~std::uint64_t{0};
  static constexpr std::size_t max_frames = 1024;

  Vmcb* vmcb_ = nullptr;
  std::uint64_t rip_ = 0;
  std::uint64_t rflags_ = 0;
  /// int_ctl as the core holds it: bits without a feature or an enable bit are 0, and VGIF is 1 where it is
  /// not in use, so that the hot tests need no enable bits. Under AVIC, which ignores the VMCB's V_IRQ, the
  /// bit says that an interrupt of the backing page is recognized: event_possible() asks for nothing more.
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
  bool monitor_armed_ = false;
  bool mwait_ = false;               ///< the halt is that of MWAIT
  bool mwait_takes_masked_ = false;  ///< MWAIT with ECX[0]: masked interrupts end it too
  std::uint64_t monitor_line_ = 0;   ///< address of the monitored line
  std::uint64_t xcr0_ = 1;
  std::array<std::uint64_t, 4> breakpoint_{};  ///< DR0 to DR3, which are not in the VMCB
  bool has_nrips_ = false;
  bool needs_surroundings_ = false;                    ///< for legal_inputs_
  GuestEnvironment* sev_es_environment_ = nullptr;     ///< of the SEV-ES guest that runs
  std::uint64_t sev_features_ = 0;                     ///< of its VMSA
  GuestEnvironment* avic_environment_ = nullptr;       ///< of a guest that runs with AVIC
  VmrunInputs legal_inputs_ = VmrunInputs::of_none();  ///< of the last VMRUN whose state was legal
  PauseFilter pause_filter_;
  std::vector<Frame> frames_;
  FeatureSet features_;
  Knobs knobs_;
  ProcessorLimits limits_;
};

}  // namespace svmsim::svm
