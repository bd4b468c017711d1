#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

namespace svmsim::svm {

// Order at an instruction boundary (fact sheet 3.10): SMI, INIT, NMI, virtual NMI, INTR, virtual INTR. An
// intercept takes the place of the delivery.
Step GuestCpu::boundary(PhysicalEvents events, GuestEnvironment& environment) {
  if (vmcb_ == nullptr) not_runnable();
  constexpr std::uint64_t smi_external = 1;
  if (events.smi && intercepts(Intercept::smi)) return vmexit(exit_code::smi, smi_external);
  if (events.init && intercepts(Intercept::init)) return vmexit(exit_code::init);
  if (events.nmi && !nmi_masked_) {
    if (intercepts(Intercept::nmi)) {
      if (!shadow_ || !knobs_.shadow_delays_intr_exit) return vmexit(exit_code::nmi);
    } else if (!shadow_) {
      nmi_masked_ = true;
      environment.acknowledge_physical_nmi();
      return deliver(event_inj::event(event_inj::type_nmi, exception_vector::nmi), 0, rip_, environment);
    }
  }

  using namespace int_ctl;
  if ((int_ctl_ & (v_nmi | v_nmi_mask | v_gif)) == (v_nmi | v_gif) && !shadow_) {
    int_ctl_ = (int_ctl_ & ~v_nmi) | v_nmi_mask;
    return deliver(event_inj::event(event_inj::type_nmi, exception_vector::nmi), 0, rip_, environment);
  }
  if (events.intr) {
    const Step step = physical_interrupt(environment);
    if (step.kind != StepKind::none) return step;
  }
  return virtual_interrupt(environment);
}

// 15.21.1: with V_INTR_MASKING the guest's RFLAGS.IF says nothing about physical interrupts, the host's at
// VMRUN does.
Step GuestCpu::physical_interrupt(GuestEnvironment& environment) {
  const bool guest_if = (rflags_ & rflags::interrupt) != 0;
  const bool masking = (int_ctl_ & int_ctl::v_intr_masking) != 0;
  const bool enabled = masking ? host_if_ : guest_if;
  if (intercepts(Intercept::intr)) {
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
  const bool taken = (int_ctl_ & (v_irq | v_gif)) == (v_irq | v_gif) && (rflags_ & rflags::interrupt) != 0 &&
                     !shadow_ && above_tpr(int_ctl_);
  if (!taken) return {};
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

Step GuestCpu::deliver(std::uint32_t event, std::uint32_t error_code, std::uint64_t return_rip,
                       GuestEnvironment& environment) {
  const VmcbSave& save = vmcb_->save;
  const std::uint8_t vector = event_inj::vector(event);
  const bool protected_mode = (save.cr0 & cr0::pe) != 0;
  const unsigned gate_bytes = (save.efer & efer::lma) != 0 ? 16 : (protected_mode ? 8 : 4);

  std::uint64_t missing = save.idtr.base + std::uint64_t{gate_bytes} * vector;
  bool readable = descriptor_readable(missing, idt_page_, environment);
  if (readable && protected_mode) {
    missing = save.gdtr.base + (save.cs.selector & ~std::uint64_t{7});
    readable = descriptor_readable(missing, gdt_page_, environment);
  }
  if (!readable) {
    // The NMI will be delivered again, so it is not in service (15.21.10).
    if (event_inj::type(event) == event_inj::type_nmi) {
      int_ctl_ &= ~int_ctl::v_nmi_mask;
      nmi_masked_ = false;
    }
    delivering_ = event;
    delivering_error_ = error_code;
    return vmexit(exit_code::npf, npf_info::final_translation | npf_info::user, missing);
  }

  // A guest that never returns from its handlers abandons its oldest frames; so does its stack in time.
  if (frames_.size() == max_frames) frames_.erase(frames_.begin());
  frames_.push_back({return_rip, rflags_, cpl_});
  rflags_ &=
      ~(rflags::interrupt | rflags::trap | rflags::nested_task | rflags::resume | rflags::virtual_8086);
  cpl_ = 0;
  shadow_ = false;
  halted_ = false;
  rip_ = environment.handler_entry(vector);
  return {StepKind::delivered, vector, 0};
}

bool GuestCpu::descriptor_readable(std::uint64_t address, std::uint64_t& known_page,
                                   GuestEnvironment& environment) {
  const std::uint64_t page = address >> 12;
  if (page == known_page) return true;
  if (!environment.page_allows(address, PageAccess::read)) return false;
  known_page = page;
  return true;
}

Step GuestCpu::fault(std::uint8_t vector, GuestEnvironment& environment) {
  if (intercepts(exception_intercept(vector))) return vmexit(exit_code::exception(vector));
  return deliver(event_inj::event(event_inj::type_exception, vector), 0, rip_, environment);
}

// #GP(0). EXITINFO1 of its exit is the error code, 0.
Step GuestCpu::general_protection(GuestEnvironment& environment) {
  constexpr std::uint8_t vector = exception_vector::general_protection;
  if (intercepts(exception_intercept(vector))) return vmexit(exit_code::exception(vector));
  return deliver(event_inj::event(event_inj::type_exception, vector) | event_inj::error_valid, 0, rip_,
                 environment);
}

}  // namespace svmsim::svm
