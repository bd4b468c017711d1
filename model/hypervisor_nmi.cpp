// NMI with its window, SMI, INIT and SIPI (arch/x86/kvm/x86.c, svm/svm.c, smm.c, lapic.c;
// kvm-software.md 1.3, 1.5).

#include <algorithm>
#include <utility>

#include "model/hypervisor.hpp"
#include "svm/exit_code.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

using svm::Intercept;

namespace {

constexpr std::uint64_t smm_entry = 0x38000;  // SMBASE 30000h + 8000h
constexpr std::uint64_t debug_single_step = 1U << 14;

// L2's virtual NMI is L1's.
bool vnmi_enabled(const Vcpu& vcpu) {
  return !vcpu.guest_mode && (vcpu.vmcb.control.int_ctl & svm::int_ctl::v_nmi_enable) != 0;
}

bool in_shadow(const Vcpu& vcpu) {
  return (vcpu.vmcb.control.int_state & svm::int_state::interrupt_shadow) != 0;
}

// The SMM handler as the guest executes it.
const svm::GuestAction& smm_handler() {
  static const svm::GuestAction rsm = [] {
    svm::GuestAction action;
    action.kind = svm::ActionKind::rsm;
    action.length = 2;
    action.rip = smm_entry;
    return action;
  }();
  return rsm;
}

}  // namespace

// svm_get_nmi_mask.
bool Hypervisor::nmi_masked(const Vcpu& vcpu) {
  if (vnmi_enabled(vcpu)) return (vcpu.vmcb.control.int_ctl & svm::int_ctl::v_nmi_mask) != 0;
  return vcpu.nmi.masked;
}

// svm_set_nmi_mask.
void Hypervisor::set_nmi_mask(Vcpu& vcpu, bool masked) {
  svm::VmcbControl& control = vcpu.vmcb.control;
  if (vnmi_enabled(vcpu)) {
    control.int_ctl =
        masked ? control.int_ctl | svm::int_ctl::v_nmi_mask : control.int_ctl & ~svm::int_ctl::v_nmi_mask;
    return;
  }
  vcpu.nmi.masked = masked;
  set_intercept(control, Intercept::iret, masked);
  control.clean &= ~svm::clean::intercepts;
}

// svm_nmi_allowed; GIF is always set when KVM asks about a guest that is no hypervisor.
bool Hypervisor::nmi_allowed(const Vcpu& vcpu) {
  if (vcpu.nested != nullptr && !gif_set(vcpu)) return false;
  return !nmi_masked(vcpu) && !in_shadow(vcpu);
}

// vcpu_enter_guest: the requests that only turn into REQ_EVENT, in the kernel's order.
void Hypervisor::service_requests(Vcpu& vcpu, PhysicalCpu& cpu) {
  if ((vcpu.requests & request::migrate_timer) != 0) {
    vcpu.requests &= ~request::migrate_timer;
    migrate_timer(vcpu, cpu);
  }
  if ((vcpu.requests & request::smi) != 0) {
    vcpu.requests &= ~request::smi;
    vcpu.smm.pending = true;
    vcpu.requests |= request::event;
  }
  if ((vcpu.requests & request::nmi) != 0) {
    vcpu.requests &= ~request::nmi;
    process_nmi(vcpu);
  }
}

// One NMI in service and one behind it, or two that wait; virtual NMI takes one of them.
void Hypervisor::process_nmi(Vcpu& vcpu) {
  svm::VmcbControl& control = vcpu.vmcb.control;
  unsigned limit = nmi_masked(vcpu) || vcpu.nmi.injected ? 1U : 2U;
  const bool virtual_pending = vnmi_enabled(vcpu) && (control.int_ctl & svm::int_ctl::v_nmi) != 0;
  if (virtual_pending) --limit;
  vcpu.nmi.pending = std::min(vcpu.nmi.pending + std::exchange(vcpu.nmi.queued, 0U), limit);
  if (vcpu.nmi.pending != 0 && vnmi_enabled(vcpu) && !virtual_pending) {
    control.int_ctl |= svm::int_ctl::v_nmi;
    control.clean &= ~svm::clean::intr;
    ++vcpu.stats.nmi_injections;
    --vcpu.nmi.pending;
  }
  if (vcpu.nmi.pending != 0) vcpu.requests |= request::event;
}

// The SMI and NMI part of kvm_check_and_inject_events. False: -EBUSY, nothing more in this round.
bool Hypervisor::inject_smi_and_nmi(Vcpu& vcpu, PhysicalCpu& cpu, bool& can_inject) {
  if (vcpu.smm.pending && !vcpu.smm.active) {
    if (!can_inject) return false;
    vcpu.smm.pending = false;
    enter_smm(vcpu, cpu);
    can_inject = false;
  }
  if (vcpu.nmi.pending == 0) return true;
  if (!can_inject) return false;
  if (nmi_allowed(vcpu)) {
    --vcpu.nmi.pending;
    vcpu.nmi.injected = true;
    svm_inject_nmi(vcpu, cpu);
    can_inject = false;
  }
  if (vcpu.nmi.pending != 0) enable_nmi_window(vcpu);
  return true;
}

void Hypervisor::svm_inject_nmi(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_insn);
  vcpu.vmcb.control.event_inj = svm::event_inj::event(svm::event_inj::type_nmi, svm::exception_vector::nmi);
  vcpu.vmcb.control.event_inj_err = 0;
  if (!vnmi_enabled(vcpu)) set_nmi_mask(vcpu, true);
  ++vcpu.stats.nmi_injections;
}

// svm_enable_nmi_window. While the handler runs, the IRET intercept is the window; what else stands in the
// way (IRET itself, a shadow, another event) is passed by one single step.
void Hypervisor::enable_nmi_window(Vcpu& vcpu) {
  if (nmi_masked(vcpu) && !vcpu.nmi.awaiting_iret) return;
  vcpu.nmi.rflags_before = vcpu.vmcb.save.rflags;
  vcpu.nmi.single_step = true;
  vcpu.vmcb.save.rflags |= svm::rflags::trap | svm::rflags::resume;
}

// disable_nmi_singlestep.
void Hypervisor::disable_nmi_single_step(Vcpu& vcpu) {
  vcpu.nmi.single_step = false;
  constexpr std::uint64_t ours = svm::rflags::trap | svm::rflags::resume;
  vcpu.vmcb.save.rflags &= ~(ours & ~vcpu.nmi.rflags_before);
}

// iret_interception: the IRET has not been executed yet, and executes without an exit now.
void Hypervisor::handle_iret(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_insn);
  ++vcpu.stats.nmi_window_exits;
  vcpu.nmi.awaiting_iret = true;
  vcpu.nmi.iret_rip = vcpu.vmcb.save.rip;
  set_intercept(vcpu.vmcb.control, Intercept::iret, false);
  vcpu.vmcb.control.clean &= ~svm::clean::intercepts;
  vcpu.requests |= request::event;
}

// svm_complete_interrupts: another rIP than that of the IRET means that it was executed.
void Hypervisor::complete_iret(Vcpu& vcpu) {
  if (vcpu.vmcb.save.rip == vcpu.nmi.iret_rip) return;
  vcpu.nmi.awaiting_iret = false;
  vcpu.nmi.masked = false;
  vcpu.requests |= request::event;
}

// The #DB of the single step: db_interception.
void Hypervisor::handle_single_step(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_insn);
  disable_nmi_single_step(vcpu);
  vcpu.requests |= request::event;
}

// One instruction of the guest with EFLAGS.TF set, and the trap behind it.
svm::Step Hypervisor::run_single_step(Vcpu& vcpu, PhysicalCpu& cpu, GuestStay& stay) {
  svm::GuestCpu& guest = vcpu.guest;
  svm::Step step = guest_boundary(vcpu, cpu, stay);
  if (stay.ended || step.kind != svm::StepKind::none) return step;
  const svm::GuestAction* action = vcpu.source->current();
  if (action == nullptr) return step;
  if (action->kind == svm::ActionKind::compute && action->cycles > 1) {
    if (vcpu.compute_left == 0) vcpu.compute_left = action->cycles;
    guest.end_shadow();
    cpu.guest_charge(1);
    if (--vcpu.compute_left == 0) vcpu.source->retire(cpu.local(), 0);
  } else {
    const bool iret = action->kind == svm::ActionKind::iret;
    step = guest.execute(*action, vcpu.environment);
    if (step.kind != svm::StepKind::retired) {
      if (step.kind == svm::StepKind::delivered) note_delivered(vcpu, cpu, step.vector);
      return step;
    }
    cpu.guest_charge(action->cycles + (iret ? cost_.t_iret : cost_.t_insn));
    vcpu.source->retire(cpu.local(), step.result);
    if (iret) resume_suspended(vcpu);
  }
  svm::GuestAction trap;
  trap.kind = svm::ActionKind::raise;
  trap.number = svm::exception_vector::debug;
  trap.operand[1] = debug_single_step;
  trap.rip = guest.rip();
  return guest.execute(trap, vcpu.environment);
}

// enter_smm: the state goes aside, interrupts and NMIs are off, and the handler begins.
void Hypervisor::enter_smm(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_emulate);
  svm::Vmcb& vmcb = vcpu.vmcb;
  vcpu.smm.active = true;
  vcpu.smm.inside_nmi = nmi_masked(vcpu);
  vcpu.smm.rip = vmcb.save.rip;
  vcpu.smm.rflags = vmcb.save.rflags;
  vcpu.smm.int_state = vmcb.control.int_state;
  if (!vcpu.smm.inside_nmi) set_nmi_mask(vcpu, true);
  vmcb.save.rip = smm_entry;
  vmcb.save.rflags = svm::rflags::always_one;
  vmcb.control.int_state &= ~svm::int_state::interrupt_shadow;
}

svm::Step Hypervisor::run_smm_handler(Vcpu& vcpu, PhysicalCpu& cpu, GuestStay& stay) {
  vcpu.guest.set_rip(smm_entry);
  const svm::Step step = guest_boundary(vcpu, cpu, stay, true);
  if (stay.ended || step.kind != svm::StepKind::none) return step;
  return vcpu.guest.execute(smm_handler(), vcpu.environment);
}

// em_rsm: back to where the SMI came, and a look at what was held meanwhile.
void Hypervisor::leave_smm(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_emulate);
  vcpu.smm.active = false;
  vcpu.vmcb.save.rip = vcpu.smm.rip;
  vcpu.vmcb.save.rflags = vcpu.smm.rflags;
  vcpu.vmcb.control.int_state = vcpu.smm.int_state;
  if (!vcpu.smm.inside_nmi) set_nmi_mask(vcpu, false);
  vcpu.requests |= request::event;
}

// kvm_apic_accept_events. SMM holds an INIT and drops a SIPI.
void Hypervisor::accept_events(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (!vcpu.startup.pending()) return;
  if (vcpu.smm.active) {
    vcpu.startup.sipi = false;
    return;
  }
  if (std::exchange(vcpu.startup.init, false)) {
    vcpu_reset_by_init(vcpu, cpu);
    vcpu.mp_state = vcpu.index == 0 ? MpState::runnable : MpState::init_received;
  }
  if (std::exchange(vcpu.startup.sipi, false) && vcpu.mp_state == MpState::init_received) {
    start_program(vcpu);
    vcpu.mp_state = MpState::runnable;
  }
}

// kvm_vcpu_reset(init_event = true): what the vCPU held is gone, the VMCB is made anew, the APIC keeps ID,
// mode and base. The guest's program begins again where the start-up code would hand over to it.
void Hypervisor::vcpu_reset_by_init(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_emulate);
  cpu.synchronise();
  cancel_apic_timer(vcpu, cpu);
  vcpu.apic().init();
  vcpu.vm.apics.update(vcpu.index, vcpu.apic().address());
  vcpu.nmi = {};
  vcpu.smm = {};
  vcpu.interrupt = {};
  vcpu.exception = {};
  vcpu.debug_registers_of_guest = false;
  vcpu.force_immediate_exit = false;
  vcpu.ipi_sent_cycles = {};
  vcpu.guest = svm::GuestCpu(host_.features, host_.knobs);
  vcpu.suspended_compute.clear();
  vcpu.compute_left = 0;
  vcpu.vmcb = svm::Vmcb{};
  init_vmcb(vcpu);
  vcpu.source->restart();
  start_program(vcpu);
  vcpu.requests |= request::event;
  if (vcpu.avic != nullptr) avic_reset_vcpu(vcpu, cpu);
}

}  // namespace svmsim::model
