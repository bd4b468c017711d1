#include "model/hypervisor.hpp"

#include <utility>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "svm/user_error.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

using svm::StepKind;
using workloads::EventKind;
using workloads::KernelGeneration;

namespace {

apic::AvicProcessor avic_processor(const HostConfig& host) {
  apic::AvicProcessor processor;
  processor.x2avic = host.features.has(svm::Feature::x2avic);
  processor.ext_lvt_accelerated = host.features.has(svm::Feature::ext_lvt_avic_access_chg);
  return processor;
}

}  // namespace

Hypervisor::Hypervisor(const sc_core::sc_module_name& name, const HostConfig& host, const KvmConfig& kvm,
                       EventHub& events)
    : sc_core::sc_module(name),
      host_(host),
      kvm_(kvm),
      cost_(host.cost),
      kernel_(host.kernel),
      events_(events),
      t_world_entry_(host.cost.t_world * host.cost.t_world_entry_pct / 100),
      t_world_exit_(host.cost.t_world - t_world_entry_),
      // What a fastpath spares is the way out of KVM's inner loop and the way back: half of it each.
      t_loop_before_(host.cost.t_loop > host.cost.t_fastpath_loop
                         ? (host.cost.t_loop - host.cost.t_fastpath_loop) / 2
                         : 0),
      avic_registers_(avic_processor(host), host.knobs) {}

// vcpu_run (arch/x86/kvm/x86.c).
void Hypervisor::vcpu_run(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (vcpu.vm.native) return run_native(vcpu, cpu);
  if (vcpu.pcpu != &cpu) {
    vcpu.pcpu = &cpu;
    vcpu.requests |= request::migrate_timer;
  }
  if (vcpu.in_spin_loop) {  // the end of kvm_vcpu_on_spin
    vcpu.in_spin_loop = false;
    vcpu.dy_eligible = false;
  }
  if (vcpu.pv.descheduled_at != 0) record_steal_time(vcpu, cpu);
  bool woken = vcpu.halt.phase == HaltPhase::blocked;  // the thread goes on behind its schedule()
  if (woken && !resume_block(vcpu, cpu)) return;
  while (!cpu.at_end()) {
    vcpu.at_instruction_boundary = false;
    if (warmup_cycles_ != 0 && cpu.local() >= warmup_cycles_) end_warmup(vcpu);
    if (std::exchange(woken, false)) {
      // vcpu_block returns.
    } else if (vcpu.mp_state == MpState::runnable) {
      enter_guest(vcpu, cpu);
      if (vcpu.state == HostThread::State::ended) return;
    } else if (!vcpu_block(vcpu, cpu)) {
      return;
    }
    vcpu.requests &= ~request::unblock;
    cpu.synchronise();
    if (vcpu.timer.pending) {
      inject_timer_irqs(vcpu, cpu, &vcpu);
      cpu.synchronise();
    }
    if (vcpu.vm.finished) return end_vcpu(vcpu, cpu);
    if (vcpu.requested_exits) take_requested_exits(vcpu, cpu);
    if (cpu.need_resched()) return;
  }
}

void Hypervisor::end_warmup(Vcpu& vcpu) {
  if (vcpu.warm) return;
  vcpu.warm = true;
  vcpu.stats_at_warmup = vcpu.stats;
  vcpu.exits.reset();
  if (vcpu.nested != nullptr) vcpu.nested->stats.reset();
  vcpu.icr_exits = 0;
  vcpu.hypercall_ipis = 0;
}

// vcpu_enter_guest.
void Hypervisor::enter_guest(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.synchronise();
  if (vcpu.external_causes) take_external_interrupts(vcpu);
  constexpr std::uint64_t rare = request::migrate_timer | request::smi | request::nmi;
  if ((vcpu.requests & rare) != 0) service_requests(vcpu, cpu);
  if ((vcpu.requests & request::apicv_update) != 0) vcpu_update_apicv(vcpu, cpu);
  if ((vcpu.requests & request::event) != 0) {
    vcpu.requests &= ~request::event;
    ++vcpu.stats.req_event;
    if (vcpu.startup.pending()) {
      accept_events(vcpu, cpu);
      if (vcpu.mp_state == MpState::init_received) return;
    }
    check_and_inject_events(vcpu, cpu);
    cpu.synchronise();
    update_cr8_intercept(vcpu);
    if (vcpu.pv.eoi_enabled()) sync_pv_eoi_to_guest(vcpu);
  }
  cpu.synchronise();
  vcpu.mode = VcpuMode::in_guest;
  if (vcpu.requests != 0 || cpu.need_resched()) {
    // The lost-kick guard: a request that came since must not wait for the next exit.
    vcpu.mode = VcpuMode::outside_guest;
    vcpu.force_immediate_exit = false;
    cancel_injection(vcpu);
    if (vcpu.pv.eoi_pending) sync_pv_eoi_from_guest(vcpu, cpu);
    return;
  }
  if (vcpu.force_immediate_exit) vcpu.requests |= request::event;
  if (vcpu.host_state_unloaded) {  // svm_prepare_switch_to_guest, once per stay on the pCPU
    vcpu.host_state_unloaded = false;
    ++vcpu.stats.host_state_reload;
  }
  Fastpath fastpath = Fastpath::none;
  std::uint64_t loop_cycles = cost_.t_fastpath_loop;
  for (;;) {
    svm_vcpu_run(vcpu, cpu);
    if (vcpu.state == HostThread::State::ended) {
      vcpu.mode = VcpuMode::outside_guest;
      return;
    }
    fastpath = exit_fastpath(vcpu, cpu);
    if (fastpath != Fastpath::reenter) break;
    cpu.charge(cost_.t_fastpath_loop);
    cpu.synchronise();
    if (vcpu.requests != 0 || vcpu.mode == VcpuMode::exiting_guest || cpu.need_resched()) {
      fastpath = Fastpath::handled;
      loop_cycles = 0;
      break;
    }
    ++vcpu.stats.exits;
  }
  cpu.synchronise();
  vcpu.mode = VcpuMode::outside_guest;
  ++vcpu.stats.exits;
  vcpu.at_instruction_boundary = vcpu.vmcb.control.exit_code == svm::exit_code::intr;
  if (vcpu.debug_registers_of_guest) take_debug_registers(vcpu);
  // Host interrupts are on from here: what ended guest mode is serviced before the exit is handled.
  cpu.take_interrupts();
  if (kernel_ == KernelGeneration::v6_1) trace_exit(vcpu, cpu);
  if (vcpu.pv.eoi_pending) sync_pv_eoi_from_guest(vcpu, cpu);
  if (fastpath == Fastpath::none) {
    cpu.charge(t_loop_before_);
    handle_exit(vcpu, cpu);
    loop_cycles = cost_.t_loop - t_loop_before_;
  }
  cpu.charge(loop_cycles);
  if (--exits_to_heartbeat_ == 0) {
    exits_to_heartbeat_ = heartbeat_exits;
    if (heartbeat_) heartbeat_(cpu.local());
  }
  if (events_.full()) events_.flush(cpu.event_watermark());
}

// svm_vcpu_run (arch/x86/kvm/svm/svm.c).
void Hypervisor::svm_vcpu_run(Vcpu& vcpu, PhysicalCpu& cpu) {
  trace_entry(vcpu, cpu);
  if (vcpu.nmi.single_step && (vcpu.vmcb.control.event_inj & svm::event_inj::valid) != 0) {
    // The flags that the delivery pushes must be the guest's: exit behind it, and try again.
    disable_nmi_single_step(vcpu);
    vcpu.force_immediate_exit = true;
    vcpu.requests |= request::event;
  }
  // sync_lapic_to_cr8: not for L2 under V_INTR_MASKING, whose V_TPR is L1's affair.
  const bool own_tpr = !vcpu.guest_mode || !nested_svm_virtualize_tpr(vcpu);
  if (own_tpr)
    vcpu.vmcb.control.int_ctl = svm::int_ctl::with_v_tpr(vcpu.vmcb.control.int_ctl, vcpu.apic().cr8());
  if (vcpu.timer.expired_tscdeadline != 0) wait_lapic_expire(vcpu, cpu);
  cpu.charge(t_world_entry_);
  cpu.account(CpuTime::guest);
  run_guest(vcpu, cpu);
  cpu.account(CpuTime::host);
  if (vcpu.state == HostThread::State::ended) return;
  cpu.charge(t_world_exit_);
  const std::uint8_t v_tpr = svm::int_ctl::v_tpr(vcpu.vmcb.control.int_ctl);
  if (own_tpr && v_tpr != vcpu.apic().cr8()) set_tpr(vcpu, cpu, static_cast<std::uint8_t>(v_tpr << 4));
  if (kernel_ != KernelGeneration::v6_1) trace_exit(vcpu, cpu);
  if (vcpu.nested != nullptr) note_nested_exit(vcpu);
  complete_interrupts(vcpu);
}

void Hypervisor::record(PhysicalCpu& cpu, std::int32_t tid, std::int32_t vcpu, EventKind kind,
                        const std::array<std::uint64_t, 8>& fields) {
  if (events_.active()) {
    events_.push({cpu.local(), kind, 0, static_cast<std::int32_t>(cpu.index()), tid, vcpu, fields});
  }
  if (events_.recorded(kind)) cpu.charge(cost_.t_trace);
}

void Hypervisor::trace_entry(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (vcpu.before_recording) return;
  const svm::VmcbControl& control = vcpu.vmcb.control;
  vcpu.exits.entry(cpu.local());
  if (vcpu.wake_cause_cycles != 0) {
    if (counts(vcpu)) vcpu.vm.wakeup_latency.record(cpu.local() - (vcpu.wake_cause_cycles - 1));
    vcpu.wake_cause_cycles = 0;
  }
  const bool injects = (control.event_inj & svm::event_inj::valid) != 0;
  trace(cpu, vcpu, EventKind::kvm_entry, vcpu.vmcb.save.rip,
        injects ? control.event_inj | std::uint64_t{control.event_inj_err} << 32 : 0,
        vcpu.force_immediate_exit);
}

void Hypervisor::trace_exit(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (vcpu.before_recording) {
    vcpu.before_recording = false;
    return;
  }
  const svm::VmcbControl& control = vcpu.vmcb.control;
  if (events_.active()) cpu.synchronise();  // the event shows the requests
  vcpu.exits.exit(control.exit_code, cpu.local());
  trace(cpu, vcpu, EventKind::kvm_exit, control.exit_code, vcpu.vmcb.save.rip, control.exit_info_1,
        control.exit_info_2, control.exit_int_info | std::uint64_t{control.exit_int_info_err} << 32,
        vcpu.requests);
}

void Hypervisor::note_delivered(Vcpu& vcpu, PhysicalCpu& cpu, std::uint8_t vector) {
  vcpu.suspended_compute.push_back(vcpu.compute_left);
  vcpu.compute_left = 0;
  cpu.guest_charge(cost_.t_irq_deliver);
  if (vcpu.injected_ipi_sent_cycles != 0) {
    if (counts(vcpu)) vcpu.vm.ipi_latency.record(cpu.local() - (vcpu.injected_ipi_sent_cycles - 1));
    vcpu.injected_ipi_sent_cycles = 0;
  }
  vcpu.source->interrupt(vector, cpu.local());
}

// A device or timer of the recording: its interrupt reaches the local APIC as if another context had
// delivered it.
void Hypervisor::take_external_interrupts(Vcpu& vcpu) {
  while (const auto vector = vcpu.source->take_external_interrupt()) {
    if (vcpu.apicv_active) {
      vcpu.avic_post(*vector);
      continue;
    }
    vcpu.apic().accept(*vector, false);
    vcpu.requests |= request::event;
  }
}

// In guest mode a recorded cause ends it: a host interrupt by itself, a virtual interrupt by the kick that
// follows it.
bool Hypervisor::external_cause(Vcpu& vcpu) {
  const bool host = vcpu.source->take_host_interrupt();
  const std::uint64_t before = vcpu.requests;
  take_external_interrupts(vcpu);
  return host || vcpu.requests != before;
}

void Hypervisor::end_vcpu(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.synchronise();
  cancel_apic_timer(vcpu, cpu);
  vcpu.ended_cycles = cpu.local();
  note_ended(cpu);
  vcpu.state = HostThread::State::ended;
}

void Hypervisor::note_ended(PhysicalCpu& cpu) {
  if (--live_vcpus_ != 0 || !on_all_ended_) return;
  on_all_ended_(cpu.local());
  cpu.notified_others();
}

// Guest mode, from VMRUN to #VMEXIT or the end of the workload or the run.
void Hypervisor::run_guest(Vcpu& vcpu, PhysicalCpu& cpu) {
  svm::GuestCpu& guest = vcpu.guest;
  workloads::WorkloadSource& source = *vcpu.source;
  svm::Step step = guest.vmrun(vcpu.vmcb, true, vcpu.environment);
  if (step.kind == StepKind::delivered) note_delivered(vcpu, cpu, step.vector);
  GuestStay stay;
  // A reschedule IPI to the own pCPU, sent with interrupts off, ends guest mode right after the injection.
  stay.self_ipi = std::exchange(vcpu.force_immediate_exit, false);
  const bool external_causes = vcpu.external_causes;
  if (vcpu.smm.active || vcpu.nmi.single_step) {
    if (step.kind == StepKind::entered) {
      step = vcpu.smm.active ? run_smm_handler(vcpu, cpu, stay) : run_single_step(vcpu, cpu, stay);
      if (stay.ended) return;
    }
  }
  while (step.kind != StepKind::vmexit) {
    // One test for all that is rare: nothing is due before the horizon, and nothing else asks for a look.
    if (cpu.something_due() || guest.event_possible() || guest.halted() || stay.self_ipi || external_causes) {
      step = guest_boundary(vcpu, cpu, stay);
      if (stay.ended) return;
      if (step.kind != StepKind::none) continue;
    }
    if (--actions_to_check_ == 0 && !makes_progress(vcpu, cpu)) return;
    const svm::GuestAction* action = source.current();
    if (action == nullptr) {
      cpu.synchronise();
      if (cpu.interrupt_pending()) continue;
      end_vcpu(vcpu, cpu);
      return;
    }
    if (action->kind == svm::ActionKind::compute) {
      step = execute_compute(vcpu, cpu, *action);
      continue;
    }
    const svm::ActionKind kind = action->kind;
    const std::uint64_t cycles = action->cycles;
    step = guest.execute(*action, vcpu.environment);
    switch (step.kind) {
      case StepKind::retired:
        cpu.guest_charge(cycles + (kind == svm::ActionKind::iret ? cost_.t_iret : cost_.t_insn));
        source.retire(cpu.local(), step.result);
        if (kind == svm::ActionKind::iret) resume_suspended(vcpu);
        break;
      case StepKind::halted:
        cpu.guest_charge(cycles + cost_.t_insn);
        source.retire(cpu.local(), 0);
        stay.halt_began = cpu.local();
        break;
      case StepKind::delivered:  // a fault: the action has not completed
        note_delivered(vcpu, cpu, step.vector);
        break;
      default:
        break;
    }
  }
}

// Events at an instruction boundary of the guest, and a halt that goes on. Returns what happened: none when
// the guest may execute its next action.
// `keeps_rip`: it stands in a handler that is not part of the workload.
svm::Step Hypervisor::guest_boundary(Vcpu& vcpu, PhysicalCpu& cpu, GuestStay& stay, bool keeps_rip) {
  svm::GuestCpu& guest = vcpu.guest;
  const bool physical = cpu.interrupt_pending();
  if (cpu.take_doorbell()) avic_take_doorbell(vcpu, cpu);
  if (cpu.at_end()) {
    end_vcpu(vcpu, cpu);
    stay.ended = true;
    return {};
  }
  const bool recorded = vcpu.external_causes && external_cause(vcpu);
  svm::PhysicalEvents events;
  events.intr = std::exchange(stay.self_ipi, false) || physical || recorded;
  if (events.intr || guest.event_possible()) {
    const bool was_halted = guest.halted();
    if (!was_halted && !keeps_rip) {
      if (const svm::GuestAction* next = vcpu.source->current()) {
        guest.set_rip(next->rip);
        guest.set_cpl(next->cpl);
      }
    }
    const svm::Step step = guest.boundary(events, vcpu.environment);
    if (step.kind != StepKind::none && was_halted) {
      cpu.guest_charge(cpu.local() == stay.halt_began ? cost_.t_halt_abort : cost_.t_halt_wake);
    }
    if (step.kind == StepKind::delivered) note_delivered(vcpu, cpu, step.vector);
    if (step.kind != StepKind::none) return step;
  }
  if (!guest.halted()) return {};
  cpu.guest_halt();
  return {StepKind::halted, 0, 0};  // whatever ended the wait is looked at anew
}

// A guest may run for ever without an exit, and one that takes no time never reaches the end of the run.
bool Hypervisor::makes_progress(Vcpu& vcpu, PhysicalCpu& cpu) {
  actions_to_check_ = actions_between_checks;
  if (heartbeat_) heartbeat_(cpu.local());
  if (vcpu.checked_cycles == cpu.local() && cpu.local() != 0) {
    vcpu.failure = fmt::format("the guest makes no progress: {} actions at rip {:#x} took no time",
                               actions_between_checks, vcpu.guest.rip());
    end_vcpu(vcpu, cpu);
    return false;
  }
  vcpu.checked_cycles = cpu.local();
  return true;
}

void Hypervisor::resume_suspended(Vcpu& vcpu) {
  if (vcpu.suspended_compute.empty()) return;
  vcpu.compute_left = vcpu.source->resume_compute(vcpu.suspended_compute.back());
  vcpu.suspended_compute.pop_back();
}

// A compute action stands for many instructions: an interrupt may come at any of its cycles.
svm::Step Hypervisor::execute_compute(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action) {
  if ((action.flags & svm::action_flags::spin) != 0) return execute_spin(vcpu, cpu, action);
  if (vcpu.compute_left == 0) vcpu.compute_left = action.cycles;
  if (vcpu.guest.interrupt_shadow() && vcpu.compute_left > 1) {
    // Its first instruction ends the shadow of an STI before it; what waits for that comes then, not after
    // the rest.
    vcpu.guest.end_shadow();
    vcpu.compute_left -= 1;
    cpu.guest_charge(1);
    return {};
  }
  vcpu.compute_left = cpu.guest_work(vcpu.compute_left);
  if (vcpu.compute_left != 0) return {};
  const svm::Step step = vcpu.guest.execute(action, vcpu.environment);
  if (step.kind != StepKind::retired) return step;
  if (action.flags == 0) {
    vcpu.source->retire(cpu.local(), 0);
  } else {
    retire_shared(vcpu, cpu);
  }
  return step;
}

}  // namespace svmsim::model
