// The idle loop of a guest CPU (kernel/sched/idle.c, drivers/cpuidle/governors/haltpoll.c and poll_state.c;
// kvm-software.md 3, 11.1).

#include <algorithm>

#include "model/guest/guest_cpu_source.hpp"
#include "model/guest/guest_text.hpp"

namespace svmsim::model {

using svm::ActionKind;
namespace flags = svm::action_flags;

namespace {

constexpr std::uint64_t poll_idle_relax_count = 200;  // PAUSEs between two looks at the clock (poll_state.c)

}  // namespace

bool GuestCpuSource::has_work() {
  return shared().queue.nr_running() != 0 || !shared().call_queue.empty();
}

// do_idle: the polling flag is set while the loop looks.
void GuestCpuSource::enter_idle() {
  shared().polling = true;
  code_.compute(std::max<std::uint64_t>(costs().idle, 1), guest_text::idle, flags::shared,
                Meaning::idle_look);
}

void GuestCpuSource::idle_look(std::uint64_t tsc) {
  GuestCpuShared& mine = shared();
  mine.told_at = GuestCpuShared::never;
  restart_code();
  run_call_queue(tsc);  // flush_smp_call_function_queue
  if (mine.queue.nr_running() != 0) return schedule(tsc);
  switch (config().os.idle) {
    case GuestIdle::hlt:
      return go_to_halt(tsc);
    case GuestIdle::poll:
      return start_polling(never, 1, tsc);
    case GuestIdle::haltpoll:
      if (haltpoll_.select() == HaltpollGovernor::State::halt) return go_to_halt(tsc);
      return start_polling(kernel_->to_cycles(haltpoll_.limit_ns()), poll_idle_relax_count, tsc);
    case GuestIdle::cpuidle_kvm:
      if (polled_once_ || config().os.haltpoll.max_ns == 0) return go_to_halt(tsc);
      polled_once_ = true;
      return start_polling(kernel_->to_cycles(config().os.haltpoll.max_ns), 1, tsc);
  }
}

// poll_idle: PAUSE until need_resched, or until a look at the clock finds the limit exceeded.
void GuestCpuSource::start_polling(std::uint64_t limit_cycles, std::uint64_t granularity_turns,
                                   std::uint64_t tsc) {
  const std::uint64_t turn = std::max<std::uint64_t>(config().platform.costs.spin_turn, 1);
  poll_end_ = never;
  if (limit_cycles != never) {
    const std::uint64_t look = turn * granularity_turns;
    poll_end_ = tsc + (limit_cycles / look + 1) * look;
  }
  code_.compute(turn, guest_text::idle + 0x100, flags::spin | flags::pauses, Meaning::idle_poll);
}

void GuestCpuSource::idle_polled(std::uint64_t tsc) {
  haltpoll_.polled(!has_work() && tsc >= poll_end_);
  poll_end_ = never;
  idle_look(tsc);
}

// Interrupts are off from here to the HLT, so that nothing is missed between the last look and it.
void GuestCpuSource::go_to_halt(std::uint64_t tsc) {
  code_.instruction(ActionKind::cli, guest_text::idle + 0x200, 1);
  stop_tick(tsc);
  code_.compute(std::max<std::uint64_t>(costs().idle, 1), guest_text::idle + 0x210, flags::shared,
                Meaning::idle_last);
}

// current_clr_polling_and_test, and default_idle.
void GuestCpuSource::idle_last(std::uint64_t tsc) {
  shared().polling = false;
  restart_code();
  code_.instruction(ActionKind::sti, guest_text::idle + 0x220, 1);
  if (has_work()) {
    code_.compute(1, guest_text::idle + 0x222, flags::shared, Meaning::idle_woken);
    halted_at_ = tsc;
    return;
  }
  code_.instruction(ActionKind::hlt, guest_text::idle + 0x221, 1);
  code_.compute(std::max<std::uint64_t>(costs().idle_exit, 1), guest_text::idle + 0x222, flags::shared,
                Meaning::idle_woken);
  halted_at_ = tsc;
}

void GuestCpuSource::idle_woken(std::uint64_t tsc) {
  shared().polling = true;
  polled_once_ = false;
  haltpoll_.halted(kernel_->to_ns(tsc - halted_at_));
  idle_look(tsc);
}

}  // namespace svmsim::model
