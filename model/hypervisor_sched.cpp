// What the host's scheduler and the PAUSE filter do to a vCPU: preempt notifiers, pause-loop exits with
// directed yield, disabled exits (virt/kvm/kvm_main.c, arch/x86/kvm/x86.c, svm/svm.c; kvm-software.md 5, 7).

#include "model/hypervisor.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

using svm::Intercept;
using workloads::EventKind;

// kvm_sched_in with svm_vcpu_load.
void Hypervisor::kvm_sched_in(Vcpu& vcpu, PhysicalCpu& cpu) {
  vcpu.ready = false;
  if (vcpu.preempted) vcpu.exits.add_runqueue(cpu.local() - vcpu.preempted_cycles);
  vcpu.preempted = false;
  vcpu.host_state_unloaded = true;
  if (!vcpu.scheduled_out) return;
  vcpu.scheduled_out = false;
  if (!vcpu.disabled_exits.pause)
    set_ple_window(vcpu, cpu, shrunk_ple_window(vcpu.vmcb.control.pause_filter_count, kvm_.ple));
}

// kvm_sched_out with kvm_steal_time_set_preempted.
void Hypervisor::kvm_sched_out(Vcpu& vcpu, PhysicalCpu& cpu, bool preempted) {
  vcpu.scheduled_out = true;
  if (!preempted) return;
  vcpu.preempted = true;
  vcpu.preempted_cycles = cpu.local();
  vcpu.ready = true;
  vcpu.preempted_in_kernel = vcpu.vmcb.save.cpl == 0;
  steal_time_set_preempted(vcpu, cpu);
}

// grow_ple_window, shrink_ple_window: the event tells changes only.
void Hypervisor::set_ple_window(Vcpu& vcpu, PhysicalCpu& cpu, std::uint16_t window) {
  svm::VmcbControl& control = vcpu.vmcb.control;
  const std::uint16_t old = control.pause_filter_count;
  if (window == old) return;
  control.pause_filter_count = window;
  control.clean &= ~svm::clean::intercepts;
  trace(cpu, vcpu, EventKind::kvm_ple_window_update, window, old);
}

// pause_interception.
void Hypervisor::handle_pause(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_insn);
  const bool in_kernel = vcpu.vmcb.save.cpl == 0;
  skip_instruction(vcpu, cpu, 0);
  if (!vcpu.disabled_exits.pause)
    set_ple_window(vcpu, cpu, grown_ple_window(vcpu.vmcb.control.pause_filter_count, kvm_.ple));
  kvm_vcpu_on_spin(vcpu, cpu, in_kernel);
}

// kvm_vcpu_eligible_for_directed_yield: one that spins itself is passed over every other time.
bool Hypervisor::eligible_for_directed_yield(Vcpu& vcpu) {
  const bool eligible = !vcpu.in_spin_loop || vcpu.dy_eligible;
  if (vcpu.in_spin_loop) vcpu.dy_eligible = !vcpu.dy_eligible;
  return eligible;
}

// Round robin from the vCPU that was boosted last, at most three failures. After a successful yield the
// thread is switched out inside this function: in_spin_loop stays set until it runs again (vcpu_run).
void Hypervisor::kvm_vcpu_on_spin(Vcpu& me, PhysicalCpu& cpu, bool yield_to_kernel_mode) {
  cpu.synchronise();
  Vm& vm = me.vm;
  me.in_spin_loop = true;
  const std::size_t count = vm.vcpus.size();
  int attempts = 3;
  for (std::size_t step = 1; step <= count; ++step) {
    const std::size_t index = (vm.last_boosted_vcpu + step) % count;
    Vcpu& vcpu = *vm.vcpus[index];
    if (!vcpu.ready || &vcpu == &me) continue;
    // kvm_arch_dy_has_pending_interrupt: what an IPI waits for may be the interrupt of one in user mode.
    const bool boosted = kvm_.boosts_interrupt_target && vcpu.apicv_active && has_interrupt(vcpu);
    if (vcpu.preempted && yield_to_kernel_mode && !vcpu.preempted_in_kernel && !boosted) continue;
    if (!eligible_for_directed_yield(vcpu)) continue;
    const int yielded = scheduler->yield_to(cpu, vcpu);
    if (yielded > 0) {
      vm.last_boosted_vcpu = index;
      return;
    }
    if (yielded < 0 && --attempts == 0) break;
  }
  me.in_spin_loop = false;
  me.dy_eligible = false;
}

// What init_vmcb does with kvm_hlt_in_guest and its like; with the per-vCPU proposal also later.
void Hypervisor::set_disabled_exits(Vcpu& vcpu, DisabledExits exits) {
  svm::VmcbControl& control = vcpu.vmcb.control;
  const auto& features = host_.features;
  const bool has_filter = features.has(svm::Feature::pause_filter) && kvm_.ple.count != 0;
  if (!has_filter) exits.pause = true;  // without the filter KVM intercepts no PAUSE
  vcpu.disabled_exits = exits;
  // Idle HLT replaces the HLT intercept wherever the CPU has it (6.6); kvm.idle_hlt is the series applied or
  // not.
  const bool idle_hlt = kvm_.idle_hlt && features.has(svm::Feature::idle_hlt);
  set_intercept(control, idle_hlt ? Intercept::idle_hlt : Intercept::hlt, !exits.hlt);
  set_intercept(control, Intercept::pause, !exits.pause);
  set_intercept(control, Intercept::monitor, !exits.mwait);
  set_intercept(control, Intercept::mwait, !exits.mwait);
  const bool has_threshold = features.has(svm::Feature::pause_filter_threshold);
  control.pause_filter_count = exits.pause ? 0 : static_cast<std::uint16_t>(kvm_.ple.count);
  control.pause_filter_thresh =
      exits.pause || !has_threshold ? 0 : static_cast<std::uint16_t>(kvm_.ple.thresh);
  control.clean &= ~svm::clean::intercepts;
}

// A signal sends the vCPU thread to user space, which then calls KVM_ENABLE_CAP.
void Hypervisor::request_disabled_exits(Vcpu& vcpu, PhysicalCpu& cpu, DisabledExits exits) {
  cpu.synchronise();
  vcpu.requested_exits = exits;
  vcpu.requests |= request::unblock;
  kick(vcpu, cpu);
}

void Hypervisor::take_requested_exits(Vcpu& vcpu, PhysicalCpu& cpu) {
  constexpr std::uint64_t kvm_exit_intr = 10;
  ++vcpu.stats.signal_exits;
  user_exit(vcpu, cpu, kvm_exit_intr, false);
  set_disabled_exits(vcpu, *vcpu.requested_exits);
  vcpu.requested_exits.reset();
}

}  // namespace svmsim::model
