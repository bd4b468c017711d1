// HLT, halt polling, blocking and waking (arch/x86/kvm/x86.c, virt/kvm/kvm_main.c; kvm-software.md 1.6, 1.7,
// 2).

#include <algorithm>

#include "model/hypervisor.hpp"
#include "model/units.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

using workloads::EventKind;
using workloads::KernelGeneration;

std::uint64_t Hypervisor::to_ns(std::uint64_t cycles) const {
  return cycles_to_ns(cycles, host_.tsc_hz);
}

// kvm_vcpu_has_events. A vCPU that waits for INIT or SIPI has no others.
bool Hypervisor::has_wake_event(Vcpu& vcpu) {
  if (vcpu.startup.pending() && !vcpu.smm.active) return true;
  if (vcpu.mp_state == MpState::uninitialized || vcpu.mp_state == MpState::init_received) return false;
  if (vcpu.pv_unhalted || vcpu.exception.pending) return true;
  if ((vcpu.requests & (request::nmi | request::smi)) != 0) return true;
  if (vcpu.smm.pending || (vcpu.nmi.pending != 0 && nmi_allowed(vcpu))) return true;
  return interrupt_allowed(vcpu) && has_interrupt(vcpu);
}

// kvm_vcpu_check_block: an expired timer ends the wait and becomes an interrupt in the outer loop.
bool Hypervisor::check_block(Vcpu& vcpu) {
  return has_wake_event(vcpu) || vcpu.timer.pending || (vcpu.requests & request::unblock) != 0 ||
         vcpu.vm.finished;
}

// The end of vcpu_block. A vCPU that is not runnable yet stays in its state; the outer loop comes back.
void Hypervisor::leave_block(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.synchronise();
  if (!has_wake_event(vcpu)) return;
  accept_events(vcpu, cpu);
  if (vcpu.mp_state == MpState::halted) vcpu.mp_state = MpState::runnable;
  vcpu.pv_unhalted = false;
}

// kvm_emulate_halt. Returns whether the vCPU is still runnable: since 6.12 it stays so when a wake event is
// pending already; 6.1 halts it always and lets vcpu_block find out. Without an APIC in the kernel the halt
// is user space's, which here calls KVM_RUN again at once.
bool Hypervisor::emulate_halt(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_hlt);
  skip_instruction(vcpu, cpu, 0);
  ++vcpu.stats.halt_exits;
  if (vcpu.vm.halts_in_user_space) {
    constexpr std::uint64_t kvm_exit_hlt = 5;
    user_exit(vcpu, cpu, kvm_exit_hlt, false);
    return true;
  }
  cpu.synchronise();
  if (at_least(KernelGeneration::v6_12) && has_wake_event(vcpu)) {
    vcpu.pv_unhalted = false;
    return true;
  }
  vcpu.mp_state = MpState::halted;
  return false;
}

// vcpu_block: false when the thread sleeps now and the pCPU has to run something else.
bool Hypervisor::vcpu_block(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_vcpu_block);
  cpu.synchronise();
  if (has_wake_event(vcpu)) {
    leave_block(vcpu, cpu);
    return true;
  }
  vcpu.halt = {};
  vcpu.halt.start_cycles = cpu.local();
  vcpu.halt.parameters = {vcpu.vm.halt_poll_ns.value_or(kvm_.halt_poll_ns), kvm_.halt_poll_ns_grow,
                          kvm_.halt_poll_ns_grow_start, kvm_.halt_poll_ns_shrink};
  // Without a halt there is no polling: a vCPU that waits for SIPI blocks at once (kvm_vcpu_block).
  if (vcpu.mp_state == MpState::halted)
    vcpu.halt.plan = vcpu.poller.begin(to_ns(cpu.local()), vcpu.halt.parameters, vcpu.pv.may_poll());
  vcpu.halt.poll_end_cycles = cpu.local();
  if (vcpu.halt.plan.poll && poll(vcpu, cpu)) {
    finish_halt(vcpu, cpu, false);
    return true;
  }
  if (cpu.at_end()) return true;
  // kvm_vcpu_block: from here on senders find that the vCPU does not run; the last look, then schedule().
  if (vcpu.apicv_active) avic_vcpu_put(vcpu, cpu);
  cpu.synchronise();
  if (check_block(vcpu)) {
    if (vcpu.apicv_active) avic_vcpu_load(vcpu, cpu);
    finish_halt(vcpu, cpu, false);
    return true;
  }
  vcpu.halt.phase = HaltPhase::blocked;
  sleep(vcpu, cpu);
  return false;
}

// schedule() of a thread that waits.
void Hypervisor::sleep(Vcpu& vcpu, PhysicalCpu& cpu) {
  vcpu.state = HostThread::State::blocked;
  scheduler->sleep(vcpu, cpu.local() + cost_.t_sched_out);
  cpu.charge(cost_.t_sched_out);
}

// The poll loop of kvm_vcpu_halt: it looks every poll_step; true when a wake event ended it.
bool Hypervisor::poll(Vcpu& vcpu, PhysicalCpu& cpu) {
  const std::uint64_t step = std::max<std::uint64_t>(cost_.poll_step, 1);
  const std::uint64_t start = vcpu.halt.start_cycles;
  const std::uint64_t stop =
      start + ns_to_cycles(vcpu.halt.plan.stop_ns - vcpu.halt.plan.start_ns, host_.tsc_hz);
  cpu.account(CpuTime::poll);
  vcpu.polling = true;
  scheduler->watch(cpu, &vcpu.poll_event);
  bool woken = false;
  const auto can_poll = [&] {  // kvm_vcpu_can_poll
    return cpu.local() < stop && scheduler->single_task_running(cpu.index()) && !cpu.need_resched();
  };
  for (bool first = true;; first = false) {
    // The loop sees a change at its next turn, not in between.
    const std::uint64_t elapsed = cpu.local() - start;
    if (elapsed % step != 0) cpu.charge(step - elapsed % step);
    cpu.synchronise();
    woken = check_block(vcpu);
    vcpu.halt.poll_end_cycles = cpu.local();
    if (woken || cpu.at_end()) break;
    if (first) {  // a turn goes by before the loop asks whether it may go on
      cpu.charge(step);
      cpu.synchronise();
      vcpu.halt.poll_end_cycles = cpu.local();
      if (!can_poll()) break;
      continue;
    }
    if (!can_poll()) break;
    cpu.poll_wait(stop, vcpu.poll_event);
    cpu.take_interrupts();
  }
  vcpu.polling = false;
  scheduler->watch(cpu, nullptr);
  cpu.account(CpuTime::host);
  vcpu.exits.add_polling(vcpu.halt.poll_end_cycles - start);
  return woken;
}

// The thread runs again after schedule(): kvm_vcpu_block's loop looks once more.
bool Hypervisor::resume_block(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.synchronise();
  if (!check_block(vcpu)) {
    sleep(vcpu, cpu);
    return false;
  }
  vcpu.halt.phase = HaltPhase::none;
  if (vcpu.apicv_active) avic_vcpu_load(vcpu, cpu);
  const std::uint64_t woken = std::max(vcpu.halt.woken_cycles, vcpu.halt.poll_end_cycles);
  const std::uint64_t waiting = cpu.local() - woken;
  const std::uint64_t cstate = std::min(waiting, cpu.take_idle_exit_cycles());
  vcpu.exits.add_blocked(woken - vcpu.halt.poll_end_cycles);
  vcpu.exits.add_cstate(cstate);
  vcpu.exits.add_runqueue(waiting - cstate);
  finish_halt(vcpu, cpu, true);
  return true;
}

// The end of kvm_vcpu_halt: statistics, the window's adaptation, the wake-up event.
void Hypervisor::finish_halt(Vcpu& vcpu, PhysicalCpu& cpu, bool waited) {
  if (vcpu.mp_state != MpState::halted) return leave_block(vcpu, cpu);
  const Halt& halt = vcpu.halt;
  const HaltPollResult result{to_ns(halt.poll_end_cycles), to_ns(cpu.local()), waited};
  const HaltPollOutcome outcome = vcpu.poller.finish(halt.plan, result, halt.parameters, vcpu.pv.may_poll());
  VcpuStats& stats = vcpu.stats;
  if (outcome.attempted) {
    ++stats.halt_attempted_poll;
    if (outcome.successful) {
      ++stats.halt_successful_poll;
      stats.halt_poll_success_ns += outcome.poll_success_ns;
      stats.halt_poll_success_hist.add(outcome.poll_success_ns);
    } else {
      stats.halt_poll_fail_ns += outcome.poll_fail_ns;
      stats.halt_poll_fail_hist.add(outcome.poll_fail_ns);
    }
  }
  if (outcome.waited) {
    stats.halt_wait_ns += outcome.wait_ns;
    stats.halt_wait_hist.add(outcome.wait_ns);
  }
  if (outcome.window_event) {
    trace(cpu, vcpu, EventKind::kvm_halt_poll_ns, outcome.window_grow, outcome.window_new_ns,
          outcome.window_old_ns);
  }
  trace(cpu, vcpu, EventKind::kvm_vcpu_wakeup, outcome.halt_ns, outcome.waited, 1);
  leave_block(vcpu, cpu);
}

}  // namespace svmsim::model
