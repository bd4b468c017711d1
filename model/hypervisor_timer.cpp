// The timer of the emulated local APIC (arch/x86/kvm/lapic.c; kvm-software.md 8): a host timer on the pCPU of
// the vCPU, since SVM has no preemption timer.

#include <algorithm>
#include <cstdlib>

#include "apic/apic_registers.hpp"
#include "model/hypervisor.hpp"
#include "model/units.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

using workloads::EventKind;

namespace {

constexpr std::uint32_t advance_initial_ns = 1000;  // LAPIC_TIMER_ADVANCE_NS_INIT
constexpr std::uint32_t advance_most_ns = 5000;     // LAPIC_TIMER_ADVANCE_NS_MAX
constexpr std::int64_t adjust_least_cycles = 100;   // LAPIC_TIMER_ADVANCE_ADJUST_MIN
constexpr std::int64_t adjust_most_cycles = 10000;  // LAPIC_TIMER_ADVANCE_ADJUST_MAX
constexpr std::uint64_t adjust_step = 8;            // LAPIC_TIMER_ADVANCE_ADJUST_STEP

}  // namespace

// kvm_create_lapic.
void Hypervisor::create_timer(Vcpu& vcpu) {
  vcpu.timer.advance_ns = kvm_.lapic_timer_advance ? advance_initial_ns : 0;
}

// start_apic_timer with start_sw_timer: what the write of a count or deadline that came before it asks for. 0
// only cancels.
void Hypervisor::restart_apic_timer(Vcpu& vcpu, PhysicalCpu& cpu) {
  cancel_apic_timer(vcpu, cpu);
  arm_apic_timer(vcpu, cpu);
}

// restart_apic_timer of the kernel, after a change of the divider: an expiry that is pending stays so.
void Hypervisor::restart_after_divider(Vcpu& vcpu, PhysicalCpu& cpu) {
  cancel_hrtimer(vcpu, cpu);
  const apic::ApicTimer& timer = vcpu.apic().timer();
  if (vcpu.timer.pending && timer.mode() != apic::TimerMode::periodic) return;
  // It ran out before the write, and its host timer had no time to fire.
  if (!timer.armed() && timer.ran_out()) return start_sw_timer(vcpu, cpu);
  arm_apic_timer(vcpu, cpu);
}

void Hypervisor::arm_apic_timer(Vcpu& vcpu, PhysicalCpu& cpu) {
  // A replay has its timer's interrupts from the recording.
  if (vcpu.external_causes) return;
  const bool armed = vcpu.apic().timer().armed();
  if (!armed && vcpu.apic().timer().mode() != apic::TimerMode::tsc_deadline) return;
  if (armed) {
    const std::uint64_t now = guest_tsc(vcpu, cpu);
    const bool ahead = vcpu.apic().next_timer_expiry(now) > now;  // else no host timer is armed
    if (!vcpu.vm.native && ahead) cpu.charge(cost_.t_timer_arm);
    cpu.synchronise();
    start_sw_timer(vcpu, cpu);
  }
  if (!vcpu.vm.native) trace(cpu, vcpu, EventKind::kvm_hv_timer_state, 0);
}

// start_sw_tscdeadline, start_sw_period: a deadline fires early by the advance; one that lies no further away
// fires at once.
void Hypervisor::start_sw_timer(Vcpu& vcpu, PhysicalCpu& cpu) {
  apic::LocalApic& apic = vcpu.apic();
  const std::uint64_t now = guest_tsc(vcpu, cpu);
  const std::uint64_t expiry = apic.next_timer_expiry(now);
  if (expiry == apic::ApicTimer::never) return;
  const bool deadline = apic.timer().mode() == apic::TimerMode::tsc_deadline;
  const std::uint64_t early = deadline ? ns_to_cycles(vcpu.timer.advance_ns, host_.tsc_hz) : 0;
  if (expiry > now && expiry - now > early) {
    return start_hrtimer(vcpu, cpu, cpu.local() + (expiry - now) - early);
  }
  apic_timer_expired(vcpu, cpu, false);
  if (apic.timer().mode() == apic::TimerMode::periodic) start_sw_timer(vcpu, cpu);
}

// kvm_can_post_timer_interrupt: an expiry may be delivered to a vCPU in guest mode from another pCPU.
bool Hypervisor::can_post_timer_interrupt(const Vcpu& vcpu) const {
  return kvm_.pi_inject_timer && vcpu.apicv_active && (vcpu.disabled_exits.hlt || vcpu.disabled_exits.mwait);
}

// hrtimer_start. get_nohz_timer_target takes it from a pCPU in nohz_full to one that serves interrupts.
void Hypervisor::start_hrtimer(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t expires_cycles) {
  // It runs already: cancelled too late.
  if (vcpu.timer.cpu() != nullptr) return;
  const auto& isolated = host_.nohz_full;
  const bool moves = timer_cpu_ != nullptr && timer_cpu_ != &cpu && can_post_timer_interrupt(vcpu) &&
                     std::find(isolated.begin(), isolated.end(), cpu.index()) != isolated.end();
  if (!moves) return cpu.start_timer(vcpu.timer, expires_cycles);
  cpu.synchronise();
  timer_cpu_->start_timer_for(cpu, vcpu.timer, expires_cycles);
  cpu.notified_others();
}

// hrtimer_cancel: waits for a callback that is about to run, or runs, on another pCPU.
void Hypervisor::cancel_hrtimer(Vcpu& vcpu, PhysicalCpu& cpu) {
  while (vcpu.timer.cpu() != nullptr && !cpu.cancel_timer(vcpu.timer) && !cpu.at_end()) {
    cpu.charge(cpu.costs().poll_step + 1);
    cpu.synchronise();
  }
}

// cancel_apic_timer. What is pending is lost with it.
void Hypervisor::cancel_apic_timer(Vcpu& vcpu, PhysicalCpu& cpu) {
  cancel_hrtimer(vcpu, cpu);
  vcpu.timer.pending = false;
}

// apic_timer_fn.
void Hypervisor::timer_expired(PhysicalCpu& cpu, HostTimer& timer) {
  Vcpu& vcpu = static_cast<LapicTimer&>(timer).vcpu;
  if (vcpu.state == HostThread::State::ended) return;
  if (!vcpu.vm.native) cpu.charge(cost_.t_timer_irq);
  cpu.synchronise();
  apic_timer_expired(vcpu, cpu, true);
  if (vcpu.apic().timer().mode() == apic::TimerMode::periodic) start_sw_timer(vcpu, cpu);
}

// apic_timer_expired. An expiry while another one is pending is lost.
void Hypervisor::apic_timer_expired(Vcpu& vcpu, PhysicalCpu& cpu, bool from_timer) {
  apic::LocalApic& apic = vcpu.apic();
  const std::uint64_t deadline = apic.take_timer(guest_tsc(vcpu, cpu));
  if (vcpu.timer.pending) return;
  if (deadline != 0) vcpu.timer.expired_tscdeadline = deadline;
  if (!from_timer && vcpu.apicv_active) return inject_timer_irqs(vcpu, cpu, &vcpu);
  // kvm_use_posted_timer_interrupt
  if (vcpu.mode == VcpuMode::in_guest && can_post_timer_interrupt(vcpu)) {
    if (vcpu.timer.expired_tscdeadline != 0 && vcpu.timer.advance_ns != 0)
      wait_for_deadline(vcpu, cpu, nullptr);
    return inject_timer_irqs(vcpu, cpu, nullptr);
  }
  vcpu.timer.pending = true;
  vcpu.requests |= request::unblock;
  if (from_timer) kick(vcpu, cpu);
}

// kvm_inject_apic_timer_irqs: kvm_apic_local_deliver of LVTT. `context`: the vCPU in whose context it
// happens.
void Hypervisor::inject_timer_irqs(Vcpu& vcpu, PhysicalCpu& cpu, const Vcpu* context) {
  vcpu.timer.pending = false;
  const std::uint32_t entry = vcpu.apic().lvt_timer();
  if (!vcpu.apic().hardware_enabled() || (entry & apic::LocalApic::lvt_masked) != 0) return;
  apic::IcrCommand message;
  message.vector = static_cast<std::uint8_t>(entry);
  message.assert = true;
  accept_irq(vcpu, cpu, context, message);
}

// kvm_migrate_timers, at the entry after the vCPU came to another pCPU. A timer that is about to expire where
// it is stays there, and so does one that may be posted.
void Hypervisor::migrate_timer(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (can_post_timer_interrupt(vcpu)) return;
  if (vcpu.timer.cpu() == nullptr || vcpu.timer.cpu() == &cpu) return;
  cpu.synchronise();
  const std::uint64_t expires = vcpu.timer.expires_cycles();
  if (cpu.cancel_timer(vcpu.timer)) cpu.start_timer(vcpu.timer, expires);
}

// kvm_wait_lapic_expire, between CLGI and VMRUN: an interrupt that is on its way in early waits for its
// deadline, and the advance learns from the difference.
void Hypervisor::wait_lapic_expire(Vcpu& vcpu, PhysicalCpu& cpu) {
  const apic::LocalApic& apic = vcpu.apic();
  const auto vector = static_cast<std::uint8_t>(apic.lvt_timer());
  // Under AVIC the hardware has not taken it yet.
  const bool on_its_way = (vcpu.apicv_active ? apic.irr() : apic.isr()).test(vector);
  if (vcpu.timer.advance_ns == 0 || !apic.hardware_enabled() || !on_its_way) return;
  wait_for_deadline(vcpu, cpu, &vcpu);
}

// __kvm_wait_lapic_expire, on the pCPU of the vCPU or where its timer has expired.
void Hypervisor::wait_for_deadline(Vcpu& vcpu, PhysicalCpu& cpu, const Vcpu* context) {
  const std::uint64_t deadline = vcpu.timer.expired_tscdeadline;
  vcpu.timer.expired_tscdeadline = 0;
  const auto delta = static_cast<std::int64_t>(guest_tsc(vcpu, cpu) - deadline);
  if (context != nullptr) {
    trace(cpu, vcpu, EventKind::kvm_wait_lapic_expire, delta);
  } else if (events_.traced(EventKind::kvm_wait_lapic_expire)) {
    record(cpu, cpu.current_tid(), static_cast<std::int32_t>(vcpu.index), EventKind::kvm_wait_lapic_expire,
           {static_cast<std::uint64_t>(delta)});
  }
  adjust_timer_advance(vcpu, delta);
  const std::uint64_t now = guest_tsc(vcpu, cpu);
  if (now < deadline) cpu.charge(deadline - now);
}

// adjust_lapic_timer_advance.
void Hypervisor::adjust_timer_advance(Vcpu& vcpu, std::int64_t delta_cycles) const {
  const std::int64_t size = std::abs(delta_cycles);
  if (size > adjust_most_cycles || size < adjust_least_cycles) return;
  const auto ns = cycles_to_ns(static_cast<std::uint64_t>(size), host_.tsc_hz) / adjust_step;
  std::uint64_t advance = vcpu.timer.advance_ns;
  // The kernel's unsigned difference wraps below 0 and ends above the limit, too.
  advance = delta_cycles < 0 ? (ns > advance ? advance_most_ns + 1 : advance - ns) : advance + ns;
  vcpu.timer.advance_ns =
      advance > advance_most_ns ? advance_initial_ns : static_cast<std::uint32_t>(advance);
}

// MSR 6E0h; false = #GP.
bool Hypervisor::write_tsc_deadline(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t value) {
  cpu.synchronise();
  const apic::RegisterWrite write = vcpu.apic().write_tsc_deadline(value, guest_tsc(vcpu, cpu));
  if (write.effect == apic::WriteEffect::general_protection) return false;
  if (write.changed != 0) restart_apic_timer(vcpu, cpu);
  return true;
}

}  // namespace svmsim::model
