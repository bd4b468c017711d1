// Guest code that reads and writes memory which several vCPUs use: what a store does to vCPUs that wait for
// it in a loop. The memory itself is the workload's; here is its time (design.md section 2).

#include <algorithm>

#include "model/hypervisor.hpp"
#include "model/vm.hpp"

namespace svmsim::model {

// The action's accesses happen at the local clock: everybody else has acted up to it. A store reaches others
// t_line later.
void Hypervisor::retire_shared(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.synchronise();
  const std::vector<unsigned>& reached = vcpu.source->retire_shared(cpu.local());
  const std::uint64_t visible = cpu.local() + std::max<std::uint64_t>(cost_.t_line, 1);
  bool notified = false;
  for (const unsigned index : reached) {
    Vcpu& other = *vcpu.vm.vcpus[index];
    if (!other.spinning) continue;
    other.memory_event.notify(delay_until(other.pcpu->moment_of(visible)));
    notified = true;
  }
  if (notified) cpu.notified_others();
  if (!vcpu.vm.finished && vcpu.source->finished()) finish_vm(vcpu, cpu);
}

// The VM has nothing left to do: vCPUs that sleep end here, the others where they next look.
void Hypervisor::finish_vm(Vcpu& vcpu, PhysicalCpu& cpu) {
  vcpu.vm.finished = true;
  for (Vcpu* other : vcpu.vm.vcpus) {
    if (other == &vcpu || other->state == HostThread::State::ended) continue;
    if (other->state == HostThread::State::blocked) {
      if (other->timer.cpu() != nullptr) cpu.cancel_timer(other->timer);
      other->ended_cycles = cpu.local();
      other->state = HostThread::State::ended;
      note_ended(cpu);
    } else {
      if (other->spinning) {
        other->memory_event.notify(delay_until(other->pcpu->moment_of(cpu.local() + 1)));
        cpu.notified_others();
      }
      kick(*other, cpu);
    }
  }
}

// A loop that looks, and with PAUSE waits a turn, until a look finds what another vCPU has written. Turns
// without an effect are not simulated one by one: they are counted, also in the PAUSE filter.
svm::Step Hypervisor::execute_spin(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action) {
  const bool pauses = (action.flags & svm::action_flags::pauses) != 0;
  const std::uint64_t turn = std::max<std::uint64_t>(action.cycles, 1);
  constexpr std::uint64_t unknown = workloads::WorkloadSource::never_ready;
  if (vcpu.guest.interrupt_shadow()) vcpu.guest.end_shadow();
  const std::uint64_t start = cpu.local();
  const std::uint64_t completing = pauses ? vcpu.guest.pauses_before_exit(start, turn) : unknown;
  const std::uint64_t exit_at = completing == unknown ? never_cycles : start + completing * turn;
  bool found = false;
  for (;;) {
    cpu.synchronise();
    const std::uint64_t ready = vcpu.source->spin_ready();
    // The turn whose look finds it. Another vCPU may store before that, so that an earlier one does.
    const std::uint64_t turns = ready <= start ? 0 : (ready - start + turn - 1) / turn;
    const std::uint64_t look = ready == unknown ? never_cycles : start + turns * turn;
    const std::uint64_t stop = std::min(look, exit_at);
    if (stop <= cpu.local()) {
      found = look <= exit_at && look != never_cycles;  // a turn looks before it pauses
      break;
    }
    vcpu.spinning = true;
    cpu.spin_wait(stop, vcpu.memory_event);
    vcpu.spinning = false;
    if (cpu.interrupt_pending() || cpu.doorbell_due() || cpu.at_end()) break;
  }
  if (pauses) {
    const std::uint64_t done = std::min(completing, (cpu.local() - start + turn - 1) / turn);
    vcpu.guest.complete_pauses(done, start, turn);
  }
  if (found) {
    const svm::Step step = vcpu.guest.execute(action, vcpu.environment);
    if (step.kind == svm::StepKind::retired) retire_shared(vcpu, cpu);
    return step;
  }
  if (cpu.local() < exit_at || cpu.interrupt_pending() || cpu.doorbell_due() || cpu.at_end()) return {};
  svm::GuestAction pause = action;
  pause.kind = svm::ActionKind::pause;
  pause.length = 2;
  return vcpu.guest.execute(pause, vcpu.environment);
}

}  // namespace svmsim::model
