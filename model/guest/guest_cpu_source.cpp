#include "model/guest/guest_cpu_source.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "apic/apic_registers.hpp"
#include "model/guest/guest_text.hpp"

// Boot, interrupts and waking of a guest CPU.

namespace svmsim::model {

using svm::ActionKind;
using svm::GuestAction;
namespace flags = svm::action_flags;
namespace guest_vector = workloads::guest_vector;

namespace {

constexpr std::uint64_t pv_eoi_address = 0x1f000;  // of CPU 0; 64 bytes for each
constexpr std::uint64_t steal_address = 0x30000;   // likewise
constexpr std::uint64_t apic_page = 0xfee00000;
constexpr std::uint32_t lvtt = 0x320;
constexpr std::uint32_t tdcr = 0x3e0;
constexpr std::uint64_t lvtt_tsc_deadline = 2U << 17;
constexpr std::uint64_t divide_by_16 = 3;
constexpr std::uint32_t first_x2apic_msr = 0x800;
constexpr std::uint8_t local_timer_vector = 0xec;
constexpr std::uint8_t first_device_vector = 0x22;

}  // namespace

GuestCpuSource::GuestCpuSource(std::shared_ptr<GuestKernel> kernel, unsigned cpu)
    : kernel_(std::move(kernel)),
      cpu_(cpu),
      driver_(kernel_->config().platform.apic),
      tick_cycles_(kernel_->to_cycles(1'000'000'000 / kernel_->config().os.hz)),
      watchdog_cycles_(kernel_->to_cycles(kernel_->config().os.watchdog_thresh * std::uint64_t{400'000'000})),
      haltpoll_(kernel_->config().os.haltpoll) {
  boot();
}

workloads::InitialState GuestCpuSource::initial_state() const {
  workloads::InitialState state;
  state.rip = guest_text::boot;
  state.interrupts_enabled = true;
  state.apic_svr = 0x1ff;
  return state;
}

void GuestCpuSource::apic_write(std::uint32_t offset, std::uint64_t value, std::uint64_t rip, Code& code) {
  GuestAction action;
  action.rip = rip;
  action.operand[0] = value;
  if (workloads::is_x2apic(driver_.config().kind)) {
    action.kind = ActionKind::wrmsr;
    action.length = 2;
    action.number = first_x2apic_msr + (offset >> 4);
  } else {
    action.kind = ActionKind::memory_write;
    action.length = 6;
    action.size = 4;
    action.operand[1] = apic_page + offset;
  }
  code.add(action);
}

void GuestCpuSource::boot() {
  driver_.init_apic_ldr(cpu_, actions_);
  append_actions(code_);
  const auto msr = [&](std::uint32_t number, std::uint64_t value) {
    GuestAction action;
    action.kind = ActionKind::wrmsr;
    action.length = 2;
    action.rip = guest_text::boot + 0x40;
    action.number = number;
    action.operand[0] = value;
    code_.add(action);
  };
  if (config().platform.pv_eoi) {
    msr(workloads::kvm_msr::pv_eoi_en, (pv_eoi_address + 64 * cpu_) | workloads::kvm_msr::enabled);
  }
  // kvm_register_steal_time; what it says serves sched_yield alone here.
  if (config().platform.pv_sched_yield)
    msr(workloads::kvm_msr::steal_time, (steal_address + 64 * cpu_) | workloads::kvm_msr::enabled);
  // haltpoll_cpu_online: the guest polls instead of the host.
  if (config().os.idle == GuestIdle::haltpoll && config().poll_control)
    msr(workloads::kvm_msr::poll_control, 0);
  if (!config().tsc_deadline) apic_write(tdcr, divide_by_16, guest_text::boot + 0x80, code_);
  apic_write(lvtt, local_timer_vector | (config().tsc_deadline ? lvtt_tsc_deadline : 0),
             guest_text::boot + 0x90, code_);
  code_.compute(1, guest_text::boot + 0xa0, flags::shared, Meaning::start);
}

const GuestAction* GuestCpuSource::current() {
  if (in_handler_) return &handler_.items[handler_next_].action;
  return stopped_ ? nullptr : &code_.items[next_].action;
}

void GuestCpuSource::retire(std::uint64_t, std::uint64_t) {
  switch (item_now().meaning) {
    case Meaning::call_wait:
    case Meaning::idle_poll:
      return;  // a turn, or an exit in it: the look decides
    case Meaning::task_run: {
      GuestTask& task = *shared().current;
      task.computed += item_now().action.cycles;
      task.compute_left = 0;
      break;
    }
    case Meaning::pv_eoi:
      if (std::exchange(pv_->eoi, false)) ++handler_next_;  // no EOI needed
      break;
    default:
      break;
  }
  advance();
}

const std::vector<unsigned>& GuestCpuSource::retire_shared(std::uint64_t tsc) {
  reached_.clear();
  switch (item_now().meaning) {
    case Meaning::start:
      start(tsc);
      break;
    case Meaning::task_step:
    case Meaning::call_wait:
      task_step(tsc);
      break;
    case Meaning::preempt:
      schedule(tsc);
      break;
    case Meaning::call_yield:
      yield_to_preempted();
      break;
    case Meaning::io_wait:
      if (std::exchange(shared().current->completed, false)) {
        task_step(tsc);
      } else {
        block(tsc);
      }
      break;
    case Meaning::idle_look:
      idle_look(tsc);
      break;
    case Meaning::idle_last:
      idle_last(tsc);
      break;
    case Meaning::idle_woken:
      idle_woken(tsc);
      break;
    case Meaning::idle_poll:
      idle_polled(tsc);
      break;
    default:
      handle(tsc);
      break;
  }
  return reached_;
}

std::uint64_t GuestCpuSource::spin_ready() const {
  switch (item_now().meaning) {
    case Meaning::call_wait:
      return call_.outstanding == 0 ? call_.completed_at : never;
    case Meaning::idle_poll:
      return std::min(kernel_->cpu(cpu_).told_at, poll_end_);
    default:
      return 0;
  }
}

// The code of a handler up to its work; what the work finds to do, and IRET, come behind it.
void GuestCpuSource::interrupt(std::uint8_t vector, std::uint64_t) {
  in_handler_ = true;
  handler_.items.clear();
  handler_next_ = 0;
  handler_vector_ = vector;
  add_eoi();
  Meaning meaning = Meaning::reschedule;
  std::uint64_t cycles = costs().irq;
  switch (vector) {
    case local_timer_vector:
      meaning = Meaning::timer;
      cycles += costs().timer;
      break;
    case guest_vector::reschedule:
      break;
    case guest_vector::call_function:
    case guest_vector::call_function_single:
      meaning = Meaning::call;
      cycles = config().platform.costs.handler;
      break;
    default:
      if (vector < first_device_vector ||
          std::size_t{vector} >= first_device_vector + kernel_->devices_.size()) {
        failure_ = fmt::format("vector {:#x} was delivered to guest CPU {}, which has no handler for it",
                               vector, cpu_);
        break;
      }
      meaning = Meaning::device;
      break;
  }
  handler_.compute(std::max<std::uint64_t>(cycles, 1), handler_entry(vector) + 0x20, flags::shared, meaning);
}

void GuestCpuSource::add_eoi() {
  if (config().platform.pv_eoi) {
    GuestAction test;
    test.kind = ActionKind::memory_write;
    test.size = 1;
    test.length = 8;
    test.rip = handler_entry(handler_vector_);
    test.operand[1] = pv_eoi_address + 64 * cpu_;
    handler_.add(test, Meaning::pv_eoi);
  }
  handler_.add(driver_.eoi());
}

// The work of a handler.
void GuestCpuSource::handle(std::uint64_t tsc) {
  switch (item_now().meaning) {
    case Meaning::timer:
      timer_interrupt(tsc);
      break;
    case Meaning::call:
      run_call_queue(tsc);
      break;
    case Meaning::device: {
      const unsigned index = handler_vector_ - first_device_vector;
      GuestDeviceQueue& queue = kernel_->device_queue(index);
      while (queue.taken < kernel_->device(index).completed && !queue.waiting.empty()) {
        GuestTask* task = queue.waiting.front();
        queue.waiting.pop_front();
        ++queue.taken;
        if (task->asleep) {
          wake(*task, tsc, handler_);
        } else {
          task->completed = true;
        }
      }
      break;
    }
    default:
      break;
  }
  // irq_exit looks whether the task must go.
  preempt_ = shared().queue.need_resched();
  if (preempt_ && shared().polling) shared().told_at = std::min(shared().told_at, tsc);
  handler_.instruction(ActionKind::iret, handler_entry(handler_vector_) + 0xf0, 2);
  advance();
}

// preempt_schedule_irq and exit_to_user_mode: behind the handler a user task can be left, kernel code not.
std::uint64_t GuestCpuSource::resume_compute(std::uint64_t left_cycles) {
  const bool preempt = std::exchange(preempt_, false);
  if (!preempt || item_now().meaning != Meaning::task_run) return left_cycles;
  GuestTask& task = *shared().current;
  const std::uint64_t whole = item_now().action.cycles;
  task.compute_left = left_cycles == 0 ? whole : left_cycles;
  task.computed += whole - task.compute_left;
  restart_code();
  code_.compute(1, guest_text::schedule, flags::shared, Meaning::preempt);
  return 0;
}

std::uint64_t GuestCpuSource::handler_entry(std::uint8_t vector) const {
  return guest_text::handler + 0x100ULL * vector;
}

void GuestCpuSource::append_actions(Code& code) {
  code.append(actions_);
  actions_.clear();
}

// try_to_wake_up.
void GuestCpuSource::wake(GuestTask& task, std::uint64_t tsc, Code& code) {
  if (!task.asleep) return;
  task.asleep = false;
  task.woken_at = tsc + 1;
  ++task.wakeups;
  // Still queued (its dequeue was delayed): it stays where it is.
  const unsigned target = task.on_rq ? task.cpu : kernel_->select_cpu(task, cpu_);
  task.cpu = target;
  RunQueue& queue = kernel_->cpu(target).queue;
  const bool asked_before = queue.need_resched();
  queue.enqueue(task, EnqueueKind::wakeup, kernel_->to_ns(tsc));
  code.compute(std::max<std::uint64_t>(costs().wake, 1), guest_text::schedule + 0x80);
  if (target != cpu_ && queue.need_resched() && !asked_before) resched_remote(target, tsc, code);
}

// resched_curr: a polling idle task sees the flag, everybody else needs the IPI.
void GuestCpuSource::resched_remote(unsigned cpu, std::uint64_t tsc, Code& code) {
  if (kernel_->cpu(cpu).polling) return tell_polling(cpu, tsc);
  driver_.send_reschedule(cpu, actions_);
  append_actions(code);
}

void GuestCpuSource::tell_polling(unsigned cpu, std::uint64_t tsc) {
  GuestCpuShared& other = kernel_->cpu(cpu);
  other.told_at = std::min(other.told_at, tsc + config().platform.costs.line);
  reached_.push_back(cpu);
}

void GuestCpuSource::run_call_queue(std::uint64_t tsc) {
  for (GuestCall* call : shared().call_queue) {
    if (--call->outstanding != 0) continue;
    call->completed_at = tsc + config().platform.costs.line;
    reached_.push_back(call->caller);
  }
  shared().call_queue.clear();
}

workloads::Metrics GuestCpuSource::metrics() const {
  workloads::Metrics result;
  if (cpu_ != 0) return result;
  const auto& specs = kernel_->set().tasks;
  for (unsigned index = 0; index < specs.size(); ++index) {
    std::uint64_t rounds = 0;
    std::uint64_t wakeups = 0;
    std::uint64_t latency = 0;
    std::uint64_t longest = 0;
    std::uint64_t computed = 0;
    double round_cycles = 0;
    std::uint64_t timed = 0;
    for (const auto& task : kernel_->tasks()) {
      if (task->spec_index != index) continue;
      rounds += task->rounds;
      wakeups += task->wakeups;
      latency += task->wake_latency;
      longest = std::max(longest, task->wake_latency_max);
      computed += task->computed;
      if (task->rounds != 0) {
        round_cycles += static_cast<double>(task->ended_at - task->began);
        timed += task->rounds;
      }
    }
    const std::string& name = specs[index].name;
    const auto to_ns = [&](double cycles) {
      return cycles * 1e9 / static_cast<double>(kernel_->config().platform.tsc_hz);
    };
    result.emplace_back(name + "_rounds", static_cast<double>(rounds));
    result.emplace_back(name + "_computed_ns", static_cast<double>(kernel_->to_ns(computed)));
    if (timed != 0)
      result.emplace_back(name + "_round_mean_ns", to_ns(round_cycles / static_cast<double>(timed)));
    result.emplace_back(name + "_wakeups", static_cast<double>(wakeups));
    if (wakeups != 0) {
      result.emplace_back(name + "_wake_mean_ns",
                          to_ns(static_cast<double>(latency) / static_cast<double>(wakeups)));
      result.emplace_back(name + "_wake_max_ns", to_ns(static_cast<double>(longest)));
    }
  }
  return result;
}

}  // namespace svmsim::model
