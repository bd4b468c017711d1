// Timers of a guest CPU: hrtimers of its tasks, the tick, and how both program the local APIC's timer
// (kernel/time/hrtimer.c, tick-sched.c, arch/x86/kernel/apic/apic.c; kvm-software.md 11.2).

#include <algorithm>

#include "model/guest/guest_cpu_source.hpp"
#include "model/guest/guest_text.hpp"

namespace svmsim::model {

using svm::ActionKind;
using svm::GuestAction;

namespace {

constexpr std::uint32_t msr_tsc_deadline = 0x6e0;
constexpr std::uint32_t lvtt = 0x320;
constexpr std::uint32_t tmict = 0x380;
constexpr std::uint64_t lvtt_tsc_deadline = 2U << 17;
constexpr std::uint64_t lvt_masked = 1U << 16;
constexpr std::uint64_t local_timer_vector = 0xec;
constexpr std::uint64_t apic_divisor = 16;  // ns of the 1 GHz bus clock for each count

}  // namespace

void GuestCpuSource::arm(GuestTask& task, std::uint64_t soft) {
  const std::uint64_t slack =
      task.policy == SchedPolicy::fifo ? 0 : kernel_->to_cycles(config().os.timer_slack_ns);
  timers_.push({soft, soft + slack, timer_sequence_++, &task});
}

// hrtimer_interrupt: what is due runs, also within its slack; then the next one is programmed.
void GuestCpuSource::timer_interrupt(std::uint64_t tsc) {
  programmed_ = never;
  while (!timers_.empty() && timers_.top().soft <= tsc) {
    GuestTask& task = *timers_.top().task;
    timers_.pop();
    wake(task, tsc, handler_);
  }
  if (watchdog_next_ <= tsc)
    watchdog_next_ += ((tsc - watchdog_next_) / watchdog_cycles_ + 1) * watchdog_cycles_;
  if (tick_next_ <= tsc) {
    if (shared().current != nullptr) shared().queue.tick(kernel_->to_ns(tsc));
    tick_next_ += ((tsc - tick_next_) / tick_cycles_ + 1) * tick_cycles_;
  }
  program_timer(tsc, handler_);
}

void GuestCpuSource::program_timer(std::uint64_t tsc, Code& code) {
  const std::uint64_t next = std::min(next_timer(), tick_next_);
  if (next == programmed_) return;
  if (next == never) return;  // what is armed fires for nothing, or stop_tick shuts it down
  if (timer_shut_down_) {
    timer_shut_down_ = false;
    apic_write(lvtt, local_timer_vector | (config().tsc_deadline ? lvtt_tsc_deadline : 0), guest_text::timer,
               code);
  }
  write_timer(next, tsc, code);
}

// lapic_next_deadline, lapic_next_event.
void GuestCpuSource::write_timer(std::uint64_t expires, std::uint64_t tsc, Code& code) {
  programmed_ = expires;
  if (!config().tsc_deadline) {
    const std::uint64_t ns = expires > tsc ? kernel_->to_ns(expires - tsc) : 0;
    return apic_write(tmict, std::max<std::uint64_t>(ns / apic_divisor, 1), guest_text::timer + 0x20, code);
  }
  GuestAction action;
  action.kind = ActionKind::wrmsr;
  action.rip = guest_text::timer + 0x40;
  action.length = 2;
  action.number = msr_tsc_deadline;
  action.operand[0] = expires;
  code.add(action);
}

// tick_nohz_idle_stop_tick: the tick goes unless something is due within its period.
void GuestCpuSource::stop_tick(std::uint64_t tsc) {
  const std::uint64_t next = next_timer();
  if (tick_next_ == never && next == programmed_) return;
  if (tick_next_ != never) {
    if (next != never && next <= tsc + tick_cycles_) return program_timer(tsc, code_);
    tick_next_ = never;
  }
  if (next != never) return program_timer(tsc, code_);
  if (timer_shut_down_) return;
  // lapic_timer_shutdown: nothing will ever be due.
  timer_shut_down_ = true;
  programmed_ = never;
  apic_write(lvtt, local_timer_vector | lvt_masked | (config().tsc_deadline ? lvtt_tsc_deadline : 0),
             guest_text::timer + 0x60, code_);
  if (config().tsc_deadline) {
    write_timer(0, tsc, code_);
    programmed_ = never;
  } else {
    apic_write(tmict, 0, guest_text::timer + 0x80, code_);
  }
}

// tick_nohz_idle_exit.
void GuestCpuSource::restart_tick(std::uint64_t tsc) {
  if (tick_next_ != never) return;
  tick_next_ = (tsc / tick_cycles_ + 1) * tick_cycles_;
  program_timer(tsc, code_);
}

}  // namespace svmsim::model
