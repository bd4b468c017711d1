// vm.native: the task set on the pCPUs themselves. The kernel that elsewhere is the guest's owns the pCPU:
// its local APIC is the physical one, HLT is the pCPU's idle state, and nothing exits. It is what a
// virtualized run is compared with; KVM and the host's kernel have no part in it, so it makes no KVM events.

#include <algorithm>

#include "apic/apic_registers.hpp"
#include "model/hypervisor.hpp"
#include "model/vm.hpp"
#include "svm/user_error.hpp"

namespace svmsim::model {

using svm::ActionKind;
namespace flags = svm::action_flags;

namespace {

constexpr std::uint32_t msr_tsc_deadline = 0x6e0;

}  // namespace

void Hypervisor::run_native(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.account(CpuTime::guest);
  while (!cpu.at_end()) {
    if (warmup_cycles_ != 0 && cpu.local() >= warmup_cycles_) end_warmup(vcpu);
    if (vcpu.vm.finished) break;
    if (native_interrupt(vcpu, cpu)) continue;
    if (--actions_to_check_ == 0 && !makes_progress(vcpu, cpu)) return;
    const svm::GuestAction* action = vcpu.source->current();
    if (action == nullptr) break;
    execute_native(vcpu, cpu, *action);
  }
  end_vcpu(vcpu, cpu);
}

// What the pCPU does between two instructions: hrtimers of the model and IPIs become bits of the IRR, and the
// highest is taken if IF and the PPR let it.
bool Hypervisor::native_interrupt(Vcpu& vcpu, PhysicalCpu& cpu) {
  NativeCpu& native = vcpu.native;
  const bool shadow = std::exchange(native.shadow, false);
  // something_due() alone only says how far this pCPU has run ahead.
  if (cpu.something_due() && cpu.take_interrupts()) native.look = true;
  if (vcpu.timer.pending) inject_timer_irqs(vcpu, cpu, &vcpu);
  if (!native.look || !native.interrupts_enabled || shadow) return false;
  cpu.synchronise();
  native.look = false;
  if (vcpu.apic().deliverable() < 0) return false;
  const std::uint8_t vector = vcpu.apic().acknowledge();
  native.interrupts_enabled = false;
  native.look = true;
  vcpu.injected_ipi_sent_cycles = std::exchange(vcpu.ipi_sent_cycles[vector], 0);
  note_delivered(vcpu, cpu, vector);
  return true;
}

void Hypervisor::execute_native(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action) {
  NativeCpu& native = vcpu.native;
  const auto retire = [&](std::uint64_t cycles) {
    cpu.guest_charge(action.cycles + cycles);
    vcpu.source->retire(cpu.local(), 0);
  };
  switch (action.kind) {
    case ActionKind::compute:
      return native_compute(vcpu, cpu, action);
    case ActionKind::cli:
      native.interrupts_enabled = false;
      return retire(cost_.t_insn);
    case ActionKind::sti:
      native.interrupts_enabled = true;
      native.shadow = true;
      native.look = true;
      return retire(cost_.t_insn);
    case ActionKind::iret:
      native.interrupts_enabled = true;
      native.look = true;
      retire(cost_.t_iret);
      return resume_suspended(vcpu);
    case ActionKind::hlt:
      return native_halt(vcpu, cpu);
    case ActionKind::wrmsr:
      native_wrmsr(vcpu, cpu, action);
      return retire(cost_.t_apic_native);
    case ActionKind::out: {
      cpu.guest_charge(cost_.t_apic_native);
      cpu.synchronise();
      if (GuestDeviceUnit* device = guest_device(vcpu.vm, action.number)) device->notify(vcpu, cpu);
      return retire(0);
    }
    default:
      return retire(cost_.t_insn);
  }
}

void Hypervisor::native_wrmsr(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action) {
  cpu.synchronise();
  vcpu.native.look = true;
  if (action.number == msr_tsc_deadline) {
    static_cast<void>(write_tsc_deadline(vcpu, cpu, action.operand[0]));
    return;
  }
  if (!apic::is_x2apic_msr(action.number)) return;
  const apic::RegisterWrite write =
      vcpu.apic().write_msr(action.number, action.operand[0], guest_tsc(vcpu, cpu));
  if (write.effect == apic::WriteEffect::ipi) irq_delivery_to_apic(vcpu.vm, cpu, &vcpu, write.command);
  if (write.changed != 0) apic_changed(vcpu, cpu, write.changed, apic::x2apic_offset(action.number));
}

// HLT: the pCPU's idle state, until an interrupt is there. With IF = 0 the kernel never halts.
void Hypervisor::native_halt(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.synchronise();
  const auto wakes = [&] { return vcpu.timer.pending || vcpu.apic().deliverable() >= 0 || vcpu.vm.finished; };
  if (!wakes()) {
    cpu.account(static_cast<std::size_t>(CpuTime::idle) + cpu.shallow_idle_state());
    while (!wakes() && !cpu.at_end()) {
      cpu.guest_halt();
      cpu.take_interrupts();
      cpu.synchronise();
    }
    cpu.guest_charge(cpu.idle_wake_cycles());
    cpu.account(CpuTime::guest);
  }
  vcpu.native.look = true;
  cpu.guest_charge(cost_.t_insn);
  vcpu.source->retire(cpu.local(), 0);
}

void Hypervisor::native_compute(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action) {
  if ((action.flags & flags::spin) != 0) return native_spin(vcpu, cpu, action);
  if (vcpu.compute_left == 0) vcpu.compute_left = action.cycles;
  vcpu.compute_left = cpu.guest_work(vcpu.compute_left);
  if (vcpu.compute_left != 0) return;
  if (action.flags == 0) {
    vcpu.source->retire(cpu.local(), 0);
  } else {
    retire_shared(vcpu, cpu);
  }
}

void Hypervisor::native_spin(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action) {
  const std::uint64_t turn = std::max<std::uint64_t>(action.cycles, 1);
  const std::uint64_t start = cpu.local();
  for (;;) {
    cpu.synchronise();
    if (vcpu.vm.finished) return;
    const std::uint64_t ready = vcpu.source->spin_ready();
    const std::uint64_t turns = ready <= start ? 0 : (ready - start + turn - 1) / turn;
    const std::uint64_t look =
        ready == workloads::WorkloadSource::never_ready ? never_cycles : start + turns * turn;
    if (look > cpu.local()) {
      vcpu.spinning = true;
      cpu.spin_wait(look, vcpu.memory_event);
      vcpu.spinning = false;
      if (cpu.interrupt_pending() || cpu.at_end()) return;
      continue;
    }
    return retire_shared(vcpu, cpu);
  }
}

}  // namespace svmsim::model
