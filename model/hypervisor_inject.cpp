// Events into the guest: kvm_check_and_inject_events and what SVM adds (kvm-software.md 1.5).

#include <utility>

#include "model/hypervisor.hpp"
#include "model/vm.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

using svm::Intercept;
using workloads::EventKind;

namespace {

std::uint32_t injection(std::uint32_t type, std::uint8_t vector) {
  return svm::event_inj::event(type, vector);
}

}  // namespace

// svm_interrupt_blocked: GIF is always set when KVM asks about a guest that is no hypervisor.
bool Hypervisor::interrupt_allowed(const Vcpu& vcpu) {
  if (vcpu.nested != nullptr) return nested_interrupt_allowed(vcpu);
  return (vcpu.vmcb.save.rflags & svm::rflags::interrupt) != 0 &&
         (vcpu.vmcb.control.int_state & svm::int_state::interrupt_shadow) == 0;
}

bool Hypervisor::has_ext_int(const Vcpu& vcpu) {
  return vcpu.vm.pic_vector >= 0 && vcpu.apic().passes_ext_int();
}

// kvm_cpu_has_injectable_intr: under AVIC the hardware delivers what the local APIC has.
bool Hypervisor::has_injectable_intr(Vcpu& vcpu) {
  return (!vcpu.apicv_active && vcpu.apic().deliverable() >= 0) || has_ext_int(vcpu);
}

bool Hypervisor::has_interrupt(Vcpu& vcpu) {
  return vcpu.apic().deliverable() >= 0 || has_ext_int(vcpu);
}

void Hypervisor::check_and_inject_events(Vcpu& vcpu, PhysicalCpu& cpu) {
  const bool nested_busy = vcpu.guest_mode && !svm_check_nested_events(vcpu, cpu);
  // What an exit cut short comes first, and only one of it.
  bool can_inject = true;
  if (vcpu.exception.injected) {
    svm_inject_exception(vcpu, cpu, true);
    can_inject = false;
  } else if (!vcpu.exception.pending && vcpu.nmi.injected) {
    svm_inject_nmi(vcpu, cpu);
    can_inject = false;
  } else if (!vcpu.exception.pending && vcpu.interrupt.injected) {
    svm_inject_irq(vcpu, cpu, true);
    can_inject = false;
  }
  if (nested_busy) {
    vcpu.force_immediate_exit = true;
    return;
  }
  if (vcpu.exception.pending && can_inject) {
    vcpu.exception.pending = false;
    vcpu.exception.injected = true;
    svm_inject_exception(vcpu, cpu, false);
    can_inject = false;
  }
  if ((vcpu.smm.pending || vcpu.nmi.pending != 0) && !inject_smi_and_nmi(vcpu, cpu, can_inject)) {
    vcpu.force_immediate_exit = true;
    return;
  }
  cpu.synchronise();
  if (!has_injectable_intr(vcpu)) return;
  if (!can_inject) {
    // -EBUSY: exit again as soon as the present event is injected, and look then.
    vcpu.force_immediate_exit = true;
    return;
  }
  if (interrupt_allowed(vcpu)) {
    cpu.charge(cost_.h_inject);
    cpu.synchronise();
    // kvm_cpu_get_interrupt: the legacy controller first.
    const bool external = has_ext_int(vcpu);
    const std::uint8_t vector = external ? static_cast<std::uint8_t>(std::exchange(vcpu.vm.pic_vector, -1))
                                         : vcpu.apic().acknowledge();
    vcpu.interrupt = {true, vector, false};
    if (!external) vcpu.pv.highest_isr_cache = vcpu.apic().highest_isr();
    vcpu.injected_ipi_sent_cycles = std::exchange(vcpu.ipi_sent_cycles[vcpu.interrupt.vector], 0);
    svm_inject_irq(vcpu, cpu, false);
    cpu.synchronise();
    if (!has_injectable_intr(vcpu)) return;
  }
  enable_irq_window(vcpu, cpu);
}

// svm_inject_irq.
void Hypervisor::svm_inject_irq(Vcpu& vcpu, PhysicalCpu& cpu, bool reinjected) {
  const std::uint32_t type = vcpu.interrupt.soft ? svm::event_inj::type_soft : svm::event_inj::type_intr;
  trace(cpu, vcpu, EventKind::kvm_inj_virq, vcpu.interrupt.vector, vcpu.interrupt.soft, reinjected);
  ++vcpu.stats.irq_injections;
  if (vcpu.avic != nullptr && !reinjected) avic_irq_injected(vcpu, cpu);
  vcpu.vmcb.control.event_inj = injection(type, vcpu.interrupt.vector);
  vcpu.vmcb.control.event_inj_err = 0;
}

// svm_inject_exception.
void Hypervisor::svm_inject_exception(Vcpu& vcpu, PhysicalCpu& cpu, bool reinjected) {
  trace(cpu, vcpu, EventKind::kvm_inj_exception, vcpu.exception.vector, vcpu.exception.has_error,
        vcpu.exception.error, reinjected);
  vcpu.vmcb.control.event_inj = injection(svm::event_inj::type_exception, vcpu.exception.vector) |
                                (vcpu.exception.has_error ? svm::event_inj::error_valid : 0);
  vcpu.vmcb.control.event_inj_err = vcpu.exception.error;
}

void Hypervisor::queue_exception(Vcpu& vcpu, std::uint8_t vector, bool has_error, std::uint32_t error) {
  vcpu.exception = {true, false, has_error, vector, error};
  vcpu.requests |= request::event;
}

// svm_cancel_injection: EVENTINJ goes back as if the exit had reported it, and is queued again.
void Hypervisor::cancel_injection(Vcpu& vcpu) {
  svm::VmcbControl& control = vcpu.vmcb.control;
  control.exit_int_info = control.event_inj;
  control.exit_int_info_err = control.event_inj_err;
  control.event_inj = 0;
  complete_interrupts(vcpu);
}

// svm_complete_interrupts.
void Hypervisor::complete_interrupts(Vcpu& vcpu) {
  if (vcpu.nmi.awaiting_iret) complete_iret(vcpu);
  vcpu.exception.injected = false;
  vcpu.nmi.injected = false;
  vcpu.interrupt.injected = false;
  const std::uint32_t info = vcpu.vmcb.control.exit_int_info;
  if ((info & svm::event_inj::valid) == 0) return;
  vcpu.requests |= request::event;
  const std::uint8_t vector = svm::event_inj::vector(info);
  switch (svm::event_inj::type(info)) {
    case svm::event_inj::type_intr:
      vcpu.interrupt = {true, vector, false};
      break;
    case svm::event_inj::type_soft:
      vcpu.interrupt = {true, vector, true};
      break;
    case svm::event_inj::type_nmi:
      vcpu.nmi.injected = true;
      break;
    case svm::event_inj::type_exception:
      vcpu.exception = {false, true, (info & svm::event_inj::error_valid) != 0, vector,
                        vcpu.vmcb.control.exit_int_info_err};
      break;
    default:
      break;
  }
}

// svm_enable_irq_window, svm_set_vintr: a dummy V_IRQ of the highest priority whose intercept opens the
// window.
void Hypervisor::enable_irq_window(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_irq_window);
  if (vcpu.avic != nullptr) avic_request_irq_window(vcpu, cpu);
  if (vcpu.nested != nullptr) {
    // Without vGIF the window of a clear GIF is the STGI exit; and while L2 runs, an IF of L1 that was clear
    // at its VMRUN leaves the intercept off.
    if (!host_.features.has(svm::Feature::vgif) && !gif_set(vcpu)) return;
    svm_set_intercept(vcpu, Intercept::vintr, true);
    if (!intercepted(vcpu.vmcb.control, Intercept::vintr)) return;
  }
  svm::VmcbControl& control = vcpu.vmcb.control;
  set_intercept(control, Intercept::vintr, true);
  control.int_vector = 0;
  control.int_ctl = svm::int_ctl::with_v_intr_prio(control.int_ctl, 0xf) | svm::int_ctl::v_irq;
  control.clean &= ~(svm::clean::intr | svm::clean::intercepts);
}

// update_cr8_intercept: a CR8 write exits only while it could unmask something.
void Hypervisor::update_cr8_intercept(Vcpu& vcpu) {
  if (vcpu.apicv_active || (vcpu.guest_mode && nested_svm_virtualize_tpr(vcpu))) return;
  const int highest = vcpu.apic().highest_irr();
  const bool intercept = highest >= 0 && vcpu.apic().cr8() >= (highest >> 4);
  if (vcpu.guest_mode) return svm_set_intercept(vcpu, Intercept::write_cr8, intercept);
  set_intercept(vcpu.vmcb.control, Intercept::write_cr8, intercept);
}

}  // namespace svmsim::model
