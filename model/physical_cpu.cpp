#include "model/physical_cpu.hpp"

#include <algorithm>

namespace svmsim::model {

namespace {

bool later(const Arrival& a, const Arrival& b) {
  return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
}

constexpr std::uint64_t cpu_idle_exit = 4294967295U;  // include/trace/events/power.h prints (u32)-1
constexpr std::uint64_t default_prio = 120;           // nice 0

// prev_state of sched_switch: its letters as ASCII, the first lowest.
std::uint64_t switch_state(const HostThread* thread) {
  constexpr std::uint64_t running = 'R';
  constexpr std::uint64_t preempted = 'R' | '+' << 8;
  if (thread == nullptr) return running;  // the idle task
  switch (thread->state) {
    case HostThread::State::blocked:
      return 'S';
    case HostThread::State::ended:
      return 'X';
    default:
      return preempted;
  }
}

}  // namespace

PhysicalCpu::PhysicalCpu(const sc_core::sc_module_name& name, const Settings& settings, const Costs& costs,
                         EventHub& events)
    : sc_core::sc_module(name),
      settings_(settings),
      costs_(costs),
      events_(events),
      rank_(settings.index + 1) {
  arrivals.bind(*this);
  SC_THREAD(main);
}

void PhysicalCpu::main() {
  try {
    need_resched_ = &scheduler->need_resched(settings_.index);
    wait_until(moment(0, rank_));
    run_threads();
    before_wait();
  } catch (...) {
    failure_ = std::current_exception();
    sc_core::sc_stop();
  }
}

void PhysicalCpu::run_threads() {
  while (!at_end()) {
    take_interrupts();
    HostThread* next = scheduler->pick(settings_.index);
    if (next == nullptr) {
      idle();
      continue;
    }
    if (next_tick_ == never_cycles && settings_.tick_period_cycles != 0 && !settings_.bare) {
      next_tick_ = (local_ / settings_.tick_period_cycles + 1) * settings_.tick_period_cycles;
      look_ahead();
    }
    switch_to(*next);
    next->run(*this);
    account(CpuTime::host);
    if (next->state == HostThread::State::running) {
      next->state = HostThread::State::runnable;
      synchronise();
      scheduler->requeue(*next);
    }
  }
}

void PhysicalCpu::switch_to(HostThread& next) {
  account(CpuTime::host);
  if (current_ == &next) {
    if (!next.was_woken) {
      next.state = HostThread::State::running;
      return;
    }
    // It was woken while it was on its way out: out and in again, with nothing in between.
    next.state = HostThread::State::blocked;
    emit_switch(nullptr);
    ++context_switches_;
    current_ = nullptr;
  }
  emit_switch(&next);
  ++context_switches_;
  HostThread* const previous = current_;
  current_ = &next;
  next.cpu_index = settings_.index;
  next.state = HostThread::State::running;  // before time passes: nobody may wake it a second time
  next.was_woken = false;
  if (previous != nullptr) previous->sched_out(*this, previous->state == HostThread::State::runnable);
  charge(costs_.t_sched_in);
  next.sched_in(*this);
}

void PhysicalCpu::idle() {
  if (current_ != nullptr) {
    emit_switch(nullptr);
    ++context_switches_;
    std::exchange(current_, nullptr)->sched_out(*this, false);
  }
  account(CpuTime::idle);
  next_tick_ = never_cycles;  // NO_HZ_IDLE: an idle pCPU has no tick
  emit_idle(1);
  while (next_own() > local_) {
    wait_for_arrival(next_own() == never_cycles ? never : moment(next_own(), rank_));
    local_ = std::max(local_, cycles_of(kernel_now()));
    static_cast<void>(drop_doorbells());  // erratum 1235: rung in vain
    if (at_end()) return;
  }
  last_idle_exit_ = settings_.idle_wake_cycles;
  charge(settings_.idle_wake_cycles);
  emit_idle(cpu_idle_exit);
  account(CpuTime::host);
}

void PhysicalCpu::emit_switch(const HostThread* next) {
  if (!events_.active()) return;
  const auto cpu = static_cast<std::int32_t>(settings_.index);
  const std::int32_t next_tid = next != nullptr ? next->tid : 0;
  if (next != nullptr && next->was_woken) {
    events_.push({local_,
                  workloads::EventKind::sched_wakeup,
                  0,
                  cpu,
                  current_tid(),
                  -1,
                  {static_cast<std::uint64_t>(next_tid), default_prio, settings_.index}});
  }
  events_.push({local_,
                workloads::EventKind::sched_switch,
                0,
                cpu,
                current_tid(),
                -1,
                {static_cast<std::uint64_t>(current_tid()), default_prio, switch_state(current_),
                 static_cast<std::uint64_t>(next_tid), default_prio}});
}

void PhysicalCpu::emit_idle(std::uint64_t state) {
  if (!events_.active()) return;
  events_.push({local_,
                workloads::EventKind::cpu_idle,
                0,
                static_cast<std::int32_t>(settings_.index),
                0,
                -1,
                {state, settings_.index}});
}

std::uint64_t PhysicalCpu::next_own() const noexcept {
  const std::uint64_t arrival = inbox_.empty() ? never_cycles : inbox_.front().time;
  return std::min({arrival, next_tick_, next_timer_});
}

void PhysicalCpu::start_timer(HostTimer& timer, std::uint64_t expires_cycles) {
  timer.cpu_ = this;
  timer.expires_ = expires_cycles;
  const auto later_timer = [](std::uint64_t expires, const HostTimer* other) {
    return expires < other->expires_;
  };
  timers_.insert(std::upper_bound(timers_.begin(), timers_.end(), expires_cycles, later_timer), &timer);
  next_timer_ = timers_.front()->expires_;
  horizon_ = std::min(horizon_, next_timer_);
}

void PhysicalCpu::remove_timer(const HostTimer& timer) {
  timers_.erase(std::find(timers_.begin(), timers_.end(), &timer));
  next_timer_ = timers_.empty() ? never_cycles : timers_.front()->expires_;
}

bool PhysicalCpu::cancel_timer(HostTimer& timer) {
  PhysicalCpu* const where = timer.cpu_;
  // Another pCPU may already have run up to, but not to, our clock plus the least latency.
  if (where != this && timer.expires_ < local_ + settings_.reaction_cycles) return false;
  where->remove_timer(timer);
  timer.cpu_ = nullptr;
  return true;
}

void PhysicalCpu::expire_timer() {
  HostTimer& timer = *timers_.front();
  remove_timer(timer);
  timer.cpu_ = nullptr;
  timer.client_.timer_expired(*this, timer);
}

void PhysicalCpu::post(const Arrival& arrival) {
  if (arrival.kind == ArrivalKind::doorbell) {
    // One latency for all: they come in the order of their sending, but not in that of the senders' clocks.
    doorbells_.insert(std::upper_bound(doorbells_.begin(), doorbells_.end(), arrival.time), arrival.time);
    horizon_ = std::min(horizon_, arrival.time);
    arrival_event_.notify(delay_until(moment(arrival.time, rank_)));
    return;
  }
  inbox_.push_back(arrival);
  std::push_heap(inbox_.begin(), inbox_.end(), later);
  horizon_ = std::min(horizon_, arrival.time);
  arrival_event_.notify(delay_until(moment(arrival.time, rank_)));
}

void PhysicalCpu::after_wait() {
  // A notification that nobody waits for would only make other CPUs look busy; the inbox keeps what it stood
  // for.
  arrival_event_.cancel();
  look_ahead();
}

void PhysicalCpu::look_ahead() {
  others_ = settings_.run_ahead ? earliest_pending() : 0;
  const bool own_rank_first = rank_ <= (others_ & (moment(1, 0) - 1));
  unsynchronised_from_ = cycles_of(others_) + (own_rank_first ? 1 : 0);
  const std::uint64_t reach =
      others_ == never ? never_cycles : cycles_of(others_) + settings_.reaction_cycles;
  horizon_ = std::min({next_for_guest(), reach, settings_.end_cycles});
}

void PhysicalCpu::wait_until(Moment until) {
  before_wait();
  if (until > kernel_now()) sc_core::wait(delay_until(until));
  after_wait();
}

// Those that have arrived; returns how many there were.
std::size_t PhysicalCpu::drop_doorbells() {
  const auto end = std::upper_bound(doorbells_.begin(), doorbells_.end(), local_);
  const auto count = static_cast<std::size_t>(end - doorbells_.begin());
  doorbells_.erase(doorbells_.begin(), end);
  return count;
}

void PhysicalCpu::wait_for_arrival(Moment until) {
  before_wait();
  if (!inbox_.empty()) arrival_event_.notify(delay_until(moment(inbox_.front().time, rank_)));
  if (!doorbells_.empty()) arrival_event_.notify(delay_until(moment(doorbells_.front(), rank_)));
  if (until == never) {
    sc_core::wait(arrival_event_);
  } else if (until > kernel_now()) {
    sc_core::wait(delay_until(until), arrival_event_);
  }
  after_wait();
}

void PhysicalCpu::look_around() {
  const bool arrivals_known = others_ == never || cycles_of(others_) + settings_.reaction_cycles > local_;
  if (!arrivals_known || !settings_.run_ahead) wait_until(moment(local_, rank_));
  interrupt_pending_ = next_own() <= local_;
}

std::uint64_t PhysicalCpu::guest_work_slow(std::uint64_t cycles) {
  while (cycles != 0 && !at_end()) {
    const std::uint64_t own = next_for_guest();
    if (own <= local_) break;
    const std::uint64_t stop = std::min({local_ + cycles, own, settings_.end_cycles});
    const bool nothing_before =
        settings_.run_ahead && (others_ == never || stop < cycles_of(others_) + settings_.reaction_cycles);
    std::uint64_t reached = stop;
    if (!nothing_before) {
      wait_for_arrival(moment(stop, rank_));
      reached = std::min(stop, std::max(local_, cycles_of(kernel_now())));
    }
    cycles -= reached - local_;
    local_ = reached;
  }
  if (!at_end()) look_around();
  return cycles;
}

void PhysicalCpu::guest_halt() {
  while (next_for_guest() > local_ && !at_end()) {
    const std::uint64_t stop = std::min(next_for_guest(), settings_.end_cycles);
    const bool nothing_before = settings_.run_ahead && stop != never_cycles &&
                                (others_ == never || stop < cycles_of(others_) + settings_.reaction_cycles);
    if (nothing_before) {
      local_ = stop;
    } else {
      wait_for_arrival(stop == never_cycles ? never : moment(stop, rank_));
      local_ = std::max(local_, cycles_of(kernel_now()));
    }
  }
  look_around();
}

bool PhysicalCpu::take_interrupts() {
  synchronise();
  interrupt_pending_ = false;
  // To a core in host mode they mean nothing (svm-hardware.md 8.6).
  if (!doorbells_.empty()) {
    charge(drop_doorbells() * settings_.doorbell_stall_cycles);
    synchronise();
  }
  if (next_own() > local_) return false;
  while (next_own() <= local_) {
    if (next_tick_ <= local_) {
      next_tick_ += settings_.tick_period_cycles;
      charge(costs_.t_tick);
      synchronise();
      scheduler->tick(settings_.index);
      continue;
    }
    if (next_timer_ <= local_) {
      expire_timer();
      continue;
    }
    std::pop_heap(inbox_.begin(), inbox_.end(), later);
    inbox_.pop_back();
    if (!settings_.bare) charge(costs_.t_irq_host);
    synchronise();
  }
  after_wait();
  return true;
}

void PhysicalCpu::poll_wait(std::uint64_t deadline_cycles, sc_core::sc_event& event) {
  const std::uint64_t stop = std::min({deadline_cycles, next_own(), settings_.end_cycles});
  if (!inbox_.empty()) arrival_event_.notify(delay_until(moment(inbox_.front().time, rank_)));
  const Moment until = moment(stop, rank_);
  before_wait();
  if (until > kernel_now()) sc_core::wait(delay_until(until), event | arrival_event_);
  local_ = std::max(local_, std::min(stop, cycles_of(kernel_now())));
  after_wait();
}

void PhysicalCpu::spin_wait(std::uint64_t stop_cycles, sc_core::sc_event& event) {
  const std::uint64_t stop = std::min({stop_cycles, next_for_guest(), settings_.end_cycles});
  if (!doorbells_.empty()) arrival_event_.notify(delay_until(moment(doorbells_.front(), rank_)));
  if (!inbox_.empty()) arrival_event_.notify(delay_until(moment(inbox_.front().time, rank_)));
  if (stop == never_cycles) {
    sc_core::wait(event | arrival_event_);
  } else if (moment(stop, rank_) > kernel_now()) {
    sc_core::wait(delay_until(moment(stop, rank_)), event | arrival_event_);
  }
  local_ = std::max(local_, std::min(stop, cycles_of(kernel_now())));
  after_wait();
  interrupt_pending_ = next_own() <= local_;
}

std::array<std::uint64_t, static_cast<std::size_t>(CpuTime::count)> PhysicalCpu::spent(
    std::uint64_t until) const {
  auto result = spent_;
  until = std::min(until, settings_.end_cycles);
  const auto current = static_cast<std::size_t>(use_);
  if (until > accounted_) result[current] += until - accounted_;
  if (accounted_ >= settings_.warmup_cycles) {
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] -= warmup_spent_[i];
  } else {
    result = {};
    if (until > settings_.warmup_cycles) result[current] = until - settings_.warmup_cycles;
  }
  return result;
}

}  // namespace svmsim::model
