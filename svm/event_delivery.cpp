#include <utility>

#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

namespace svmsim::svm {

// Order at an instruction boundary (fact sheet 3.10): SMI, INIT, NMI, virtual NMI, INTR, virtual INTR. An
// intercept takes the place of the delivery.
Step GuestCpu::boundary(PhysicalEvents events, GuestEnvironment& environment) {
  if (vmcb_ == nullptr) not_runnable();
  if (events.smi || events.init || events.nmi) {
    const bool was_shut_down = std::exchange(shut_down_, false);
    const Step step = non_maskable_event(events, environment);
    if (step.kind != StepKind::none) return step;
    shut_down_ = was_shut_down;
  }
  if (avic_environment_ != nullptr) note_avic_pending();
  // Table 15-10: without GIF, which the guest's own CLGI may have cleared, all of them are held.
  if (!gif_ || shut_down_) return {};

  using namespace int_ctl;
  if ((int_ctl_ & (v_nmi | v_nmi_mask | v_gif)) == (v_nmi | v_gif) && !shadow_) {
    int_ctl_ = (int_ctl_ & ~v_nmi) | v_nmi_mask;
    return deliver(event_inj::event(event_inj::type_nmi, exception_vector::nmi), 0, rip_, environment);
  }
  if (events.intr) {
    const Step step = physical_interrupt(environment);
    if (step.kind != StepKind::none) return step;
  }
  const Step step = virtual_interrupt(environment);
  if (step.kind == StepKind::none && halted_) end_wait_by_masked_interrupt(events);
  return step;
}

// SMI, INIT and NMI; table 15-10 for GIF = 0.
Step GuestCpu::non_maskable_event(PhysicalEvents events, GuestEnvironment& environment) {
  if (events.smi) {
    const SmiInfo smi = environment.smi_info();
    if (!gif_) {
      if ((smi.info_1 & SmiInfo::external) == 0) environment.acknowledge_smi();  // discarded
    } else if (intercepts(Intercept::smi) || sev_es()) {
      return vmexit(exit_code::smi, smi.info_1, smi.info_2);
    } else {
      // The guest sees of the SMM handler only the time that it took, and of the PAUSE filter a new count.
      environment.acknowledge_smi();
      pause_filter_.reload();
    }
  }
  if (!gif_) return {};
  if (events.init) {
    if (intercepts_event(Intercept::init)) return vmexit(exit_code::init);
    environment.acknowledge_init();
    // 15.28: VM_CR.R_INIT makes INIT an exception whose error code says so.
    if (environment.init_redirected()) return raise(exception_vector::security, true, 1, 0, environment);
    // The processor starts anew: no #VMEXIT, nothing is saved.
    vmcb_ = nullptr;
    end_avic();
    halted_ = false;
    nmi_masked_ = false;
    return {StepKind::reset, 0, 0};
  }
  if (events.nmi && !nmi_masked_) {
    if (intercepts_event(Intercept::nmi)) {
      if (!shadow_ || !knobs_.shadow_delays_intr_exit) return vmexit(exit_code::nmi);
    } else if (!shadow_) {
      nmi_masked_ = true;
      environment.acknowledge_physical_nmi();
      return deliver(event_inj::event(event_inj::type_nmi, exception_vector::nmi), 0, rip_, environment);
    }
  }
  return {};
}

// 15.21.1: with V_INTR_MASKING the guest's RFLAGS.IF says nothing about physical interrupts, the host's at
// VMRUN does.
Step GuestCpu::physical_interrupt(GuestEnvironment& environment) {
  const bool guest_if = (rflags_ & rflags::interrupt) != 0;
  const bool masking = (int_ctl_ & int_ctl::v_intr_masking) != 0;
  const bool enabled = masking ? host_if_ : guest_if;
  if (intercepts_event(Intercept::intr)) {
    const bool fires = enabled || (masking && !knobs_.host_if_clear_masks_intr_exit);
    if (fires && (!shadow_ || !knobs_.shadow_delays_intr_exit)) return vmexit(exit_code::intr);
    return {};
  }
  if (!enabled || shadow_) return {};
  const int vector = environment.acknowledge_physical_interrupt();
  if (vector < 0) return {};
  return deliver(event_inj::event(event_inj::type_intr, static_cast<std::uint8_t>(vector)), 0, rip_,
                 environment);
}

Step GuestCpu::virtual_interrupt(GuestEnvironment& environment) {
  using namespace int_ctl;
  const bool taken =
      (int_ctl_ & (v_irq | v_gif)) == (v_irq | v_gif) && (rflags_ & rflags::interrupt) != 0 && !shadow_;
  if (!taken) return {};
  if (avic_environment_ != nullptr) return avic_interrupt(environment);
  if (!above_tpr(int_ctl_)) return {};
  if (intercepts(Intercept::vintr)) return vmexit(exit_code::vintr);
  // V_IRQ is cleared before the IDT is read (15.21.4), so a fault there finds it 0 and the event in
  // EXITINTINFO.
  int_ctl_ &= ~v_irq;
  const auto vector = static_cast<std::uint8_t>(vmcb_->control.int_vector & 0xffU);
  return deliver(event_inj::event(event_inj::type_intr, vector), 0, rip_, environment);
}

// 15.20: taken whatever masks it, and without a look at the intercepts.
Step GuestCpu::inject(GuestEnvironment& environment) {
  VmcbControl& control = vmcb_->control;
  const std::uint32_t word = control.event_inj;
  const std::uint32_t type = event_inj::type(word);
  std::uint8_t vector = event_inj::vector(word);
  control.event_inj = word & ~event_inj::valid;

  // What returns behind the instruction that raised it takes the address from nRIP: INTn, INT3 and INTO.
  const bool instruction = type == event_inj::type_soft ||
                           (type == event_inj::type_exception && has_nrips_ &&
                            (vector == exception_vector::breakpoint || vector == exception_vector::overflow));
  if (type == event_inj::type_nmi) {
    vector = exception_vector::nmi;
    if ((int_ctl_ & int_ctl::v_nmi_enable) != 0) int_ctl_ |= int_ctl::v_nmi_mask;
  }
  const bool has_error = (word & event_inj::error_valid) != 0;
  return deliver(event_inj::event(type, vector) | (has_error ? event_inj::error_valid : 0U),
                 has_error ? control.event_inj_err : 0U, instruction ? control.next_rip : rip_, environment);
}

}  // namespace svmsim::svm
