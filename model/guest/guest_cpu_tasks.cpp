// The running task of a guest CPU: its steps, sleeping, and the switch to the next.

#include <algorithm>
#include <utility>

#include "model/guest/guest_cpu_source.hpp"
#include "model/guest/guest_text.hpp"

namespace svmsim::model {

using svm::ActionKind;
using workloads::TaskPhase;
using workloads::TaskStep;
using workloads::TaskStepKind;
namespace flags = svm::action_flags;

// The CPU is up: the tasks that begin on it.
void GuestCpuSource::start(std::uint64_t tsc) {
  if (watchdog_cycles_ != 0) watchdog_next_ = tsc + watchdog_cycles_;
  shared().online = true;
  for (const auto& task : kernel_->tasks()) {
    if (task->cpu != cpu_ || task->on_rq || task->began != 0) continue;  // one that came here in its sleep
    if (task->spec->delay_ns == 0) {
      shared().queue.enqueue(*task, EnqueueKind::initial, kernel_->to_ns(tsc));
    } else {
      task->asleep = true;
      arm(*task, tsc + kernel_->to_cycles(task->spec->delay_ns));
    }
  }
  schedule(tsc);
}

// __schedule.
void GuestCpuSource::schedule(std::uint64_t tsc) {
  GuestCpuShared& mine = shared();
  GuestTask* previous = mine.current;
  auto* next = static_cast<GuestTask*>(mine.queue.pick(kernel_->to_ns(tsc)));
  mine.current = next;
  restart_code();
  if (next == nullptr) return enter_idle();
  if (mine.polling || previous == nullptr) {
    mine.polling = false;
    mine.told_at = GuestCpuShared::never;
    polled_once_ = false;
  }
  restart_tick(tsc);
  if (next != previous) {
    code_.compute(std::max<std::uint64_t>(costs().schedule, 1), guest_text::schedule + 0x100);
  }
  if (next->woken_at != 0) {
    const std::uint64_t latency = tsc - (next->woken_at - 1);
    next->wake_latency += latency;
    next->wake_latency_max = std::max(next->wake_latency_max, latency);
    next->woken_at = 0;
  }
  if (next->began == 0) next->began = std::max<std::uint64_t>(tsc, 1);
  continue_task();
}

// User code of the task, if it has some to do, and its next system call.
void GuestCpuSource::continue_task() {
  if (const std::uint64_t left = shared().current->compute_left; left != 0) {
    code_.compute(left, guest_text::user, 0, Meaning::task_run);
    code_.items.back().action.cpl = 3;
  }
  system_call();
}

void GuestCpuSource::system_call() {
  code_.compute(std::max<std::uint64_t>(costs().syscall, 1), guest_text::syscall, flags::shared,
                Meaning::task_step);
}

void GuestCpuSource::task_step(std::uint64_t tsc) {
  if (shared().queue.need_resched()) return schedule(tsc);
  restart_code();
  GuestTask& task = *shared().current;
  const TaskStep* step = take_step(task, tsc);
  if (step != nullptr) return begin_step(*step, tsc);
  // do_exit.
  kernel_->end_task(task);
  stopped_ = kernel_->ended();
  shared().queue.remove(task, kernel_->to_ns(tsc));
  schedule(tsc);
}

// The next step of the task, which then stands behind it; nullptr when it has done all its rounds.
const TaskStep* GuestCpuSource::take_step(GuestTask& task, std::uint64_t tsc) {
  const workloads::TaskSpec& spec = *task.spec;
  const std::uint64_t duration = kernel_->set().duration_ns;
  if (duration != 0 && kernel_->to_ns(tsc) >= duration) return nullptr;
  for (;;) {
    const TaskPhase& phase = spec.phases[task.phase];
    if (task.step < phase.steps.size()) return &phase.steps[task.step++];
    task.step = 0;
    ++task.phase_round;
    const bool again = !phase.steps.empty() && (phase.loop == 0 || task.phase_round < phase.loop);
    if (again) continue;
    task.phase_round = 0;
    if (++task.phase < spec.phases.size()) continue;
    task.phase = 0;
    ++task.rounds;
    task.ended_at = tsc;
    if (spec.loop != 0 && task.rounds == spec.loop) return nullptr;
  }
}

void GuestCpuSource::begin_step(const TaskStep& step, std::uint64_t tsc) {
  GuestTask& task = *shared().current;
  const std::uint64_t cycles = kernel_->to_cycles(step.ns);
  switch (step.kind) {
    case TaskStepKind::run:
      task.compute_left = cycles;
      return continue_task();
    case TaskStepKind::sleep:
      return sleep_until(tsc + cycles, tsc);
    case TaskStepKind::timer:
      if (!std::exchange(task.holds_timer, true)) task.timer_next = tsc;
      task.timer_next += cycles;
      if (task.timer_next > tsc) return sleep_until(task.timer_next, tsc);
      break;  // late: no sleep
    case TaskStepKind::suspend:
      if (!std::exchange(task.resumed, false)) {
        task.suspended = true;
        return block(tsc);
      }
      break;
    case TaskStepKind::resume:
      for (const auto& other : kernel_->tasks()) {
        if (other->spec_index != step.object || other->ended) continue;
        if (std::exchange(other->suspended, false)) {
          wake(*other, tsc, code_);
        } else {
          other->resumed = true;
        }
      }
      break;
    case TaskStepKind::barrier: {
      bool waits = false;
      for (GuestTask* other : kernel_->barrier(step.object, task, waits))
        wake(*other, tsc, code_);
      if (waits) return block(tsc);
      break;
    }
    case TaskStepKind::lock:
      if (!kernel_->lock(step.object, task)) return block(tsc);
      break;
    case TaskStepKind::unlock:
      if (GuestTask* next = kernel_->unlock(step.object)) wake(*next, tsc, code_);
      break;
    case TaskStepKind::yield:
      shared().queue.yield(kernel_->to_ns(tsc));
      break;
    case TaskStepKind::io:
      return submit(step.object);
    case TaskStepKind::ipi:
      return call_function(step, tsc);
  }
  system_call();
}

void GuestCpuSource::sleep_until(std::uint64_t soft, std::uint64_t tsc) {
  arm(*shared().current, soft);
  block(tsc);
}

void GuestCpuSource::block(std::uint64_t tsc) {
  GuestTask& task = *shared().current;
  task.asleep = true;
  const bool first = next_timer() != never && next_timer() < std::min(programmed_, tick_next_);
  shared().queue.sleep(task, kernel_->to_ns(tsc));
  schedule(tsc);
  // hrtimer_start programs the hardware when the new timer is the first.
  if (first) {
    Code head;
    program_timer(tsc, head);
    code_.items.insert(code_.items.begin(), head.items.begin(), head.items.end());
  }
}

// smp_call_function_many_cond and its way for one target, which alone looks at the polling flag.
void GuestCpuSource::call_function(const TaskStep& step, std::uint64_t tsc) {
  call_.outstanding = 0;
  const auto for_each_target = [&](auto&& action) {
    if (step.cpus.empty()) {
      for (unsigned cpu = 0; cpu < kernel_->cpus(); ++cpu) {
        if (cpu != cpu_) action(cpu);
      }
    } else {
      for (const unsigned cpu : step.cpus) {
        if (cpu != cpu_) action(cpu);
      }
    }
  };
  for_each_target([&](unsigned) { ++call_.outstanding; });
  if (call_.outstanding == 0) return system_call();
  call_.caller = cpu_;
  const unsigned targets = call_.outstanding;
  call_mask_.clear();
  for_each_target([&](unsigned target) {
    GuestCpuShared& other = kernel_->cpu(target);
    const bool empty = other.call_queue.empty();
    other.call_queue.push_back(&call_);
    if (!empty) return;  // its IPI is on the way
    if (targets == 1 && other.polling) {
      tell_polling(target, tsc);
    } else {
      call_mask_.push_back(target);
    }
  });
  const workloads::GuestCosts& platform = config().platform.costs;
  code_.compute(platform.call + targets * platform.call_target + 1, guest_text::call);
  if (targets == 1 && !call_mask_.empty()) {
    driver_.send_call_function_single(call_mask_.front(), actions_);
  } else if (!call_mask_.empty()) {
    driver_.send_call_function(cpu_, call_mask_, actions_);
  }
  append_actions(code_);
  if (targets > 1 && !call_mask_.empty() && config().platform.pv_sched_yield)
    code_.compute(1, guest_text::call + 0x20, flags::shared, Meaning::call_yield);
  code_.compute(std::max<std::uint64_t>(platform.spin_turn, 1), guest_text::call + 0x40,
                flags::spin | flags::pauses, Meaning::call_wait);
}

// The hypercall names the first target that is preempted while it has something to run.
void GuestCpuSource::yield_to_preempted() {
  for (const unsigned target : call_mask_) {
    const GuestCpuShared& other = kernel_->cpu(target);
    if (!other.pv->preempted || (other.current == nullptr && other.queue.nr_running() == 0)) continue;
    driver_.sched_yield(target, actions_);
    code_.items.insert(code_.items.begin() + static_cast<std::ptrdiff_t>(next_) + 1,
                       {actions_.front(), Meaning::none});
    actions_.clear();
    break;
  }
  advance();
}

// A request, and the notification of the device (virtqueue_kick).
void GuestCpuSource::submit(unsigned device) {
  kernel_->device_queue(device).waiting.push_back(shared().current);
  shared().current->completed = false;
  svm::GuestAction notify;
  notify.kind = ActionKind::out;
  notify.rip = guest_text::device;
  notify.length = 1;
  notify.number = kernel_->device(device).notify_port;
  notify.size = 2;
  code_.add(notify);
  code_.compute(std::max<std::uint64_t>(costs().syscall, 1), guest_text::device + 0x40, flags::shared,
                Meaning::io_wait);
}

}  // namespace svmsim::model
