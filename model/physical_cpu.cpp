#include "model/physical_cpu.hpp"

#include <algorithm>

#include "model/units.hpp"

namespace svmsim::model {

namespace {

bool later(const Arrival& a, const Arrival& b) {
  return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
}

constexpr std::uint64_t cpu_idle_exit = 4294967295U;  // include/trace/events/power.h prints (u32)-1
constexpr std::uint64_t idle_prio = 120;              // of swapper, as traces print it

std::vector<IdleState> declared(const std::vector<HostIdleState>& states) {
  std::vector<IdleState> result;
  for (const HostIdleState& state : states)
    result.push_back(state.declared);
  return result;
}

std::uint64_t priority_of(const HostThread* thread) {
  return thread == nullptr ? idle_prio : thread->trace_priority();
}

// prev_state of sched_switch: its letters as ASCII, the first lowest.
std::uint64_t switch_state(const HostThread* thread) {
  constexpr std::uint64_t running = 'R';
  if (thread == nullptr) return running;  // the idle task
  switch (thread->state) {
    case HostThread::State::blocked:
      return 'S';
    case HostThread::State::ended:
      return 'X';
    default:
      return running;  // KVM's loop and the return to user space call schedule() themselves: no "R+"
  }
}

}  // namespace

PhysicalCpu::PhysicalCpu(const sc_core::sc_module_name& name, const Settings& settings, const Costs& costs,
                         EventHub& events)
    : sc_core::sc_module(name),
      settings_(settings),
      costs_(costs),
      events_(events),
      rank_(settings.index + 1),
      governor_(make_idle_governor(settings.idle_governor, declared(settings.idle_states),
                                   cycles_to_ns(settings.tick_period_cycles, settings.tsc_hz))) {
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
    HostThread* next = scheduler->pick(settings_.index, local_);
    if (next == nullptr) {
      idle();
      continue;
    }
    start_tick();
    if (!told_busy_) tell_sibling(ArrivalKind::sibling_busy);
    told_busy_ = true;
    switch_to(*next);
    next->run(*this);
    account(CpuTime::host);
    if (next->state == HostThread::State::running) {
      next->state = HostThread::State::runnable;
    } else if (next->state == HostThread::State::ended) {
      synchronise();
      scheduler->end(*next, local_);
    }
  }
}

// tick_nohz_idle_restart_tick, and tick_nohz_full_update_tick.
void PhysicalCpu::start_tick() {
  if (settings_.tick_period_cycles == 0 || settings_.bare) return;
  if (settings_.nohz_full && scheduler->single_task_running(settings_.index)) {
    next_tick_ = never_cycles;
    return;
  }
  if (next_tick_ != never_cycles) return;
  next_tick_ = (local_ / settings_.tick_period_cycles + 1) * settings_.tick_period_cycles;
  look_ahead();
}

void PhysicalCpu::leave(HostThread& thread) {
  thread.on_cpu = false;
  thread.sched_out(*this, thread.state == HostThread::State::runnable);
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
    leave(next);
  }
  emit_switch(&next);
  ++context_switches_;
  HostThread* const previous = current_;
  current_ = &next;
  next.on_cpu = true;
  next.state = HostThread::State::running;  // before time passes: nobody may wake it a second time
  next.was_woken = false;
  if (previous != nullptr) {
    last_idle_exit_ = 0;  // it was not this pCPU's idle state that kept `next` waiting
    leave(*previous);
  }
  charge(costs_.t_sched_in);
  next.sched_in(*this);
}

// cpuidle_idle_call: what the governor takes, and whether the tick goes on.
IdleChoice PhysicalCpu::choose_idle_state() {
  IdleRequest request;
  const auto until = [&](std::uint64_t cycles) {
    if (cycles == never_cycles) return ~std::uint64_t{0};
    return cycles <= local_ ? 0 : cycles_to_ns(cycles - local_, settings_.tsc_hz);
  };
  request.now_ns = cycles_to_ns(local_, settings_.tsc_hz);
  request.next_timer_ns = until(timers_.next_expiry());
  request.next_tick_ns = until(next_tick_);
  request.tick_stopped = next_tick_ == never_cycles;
  return governor_->select(request);
}

void PhysicalCpu::idle() {
  if (current_ != nullptr) {
    emit_switch(nullptr);
    ++context_switches_;
    leave(*std::exchange(current_, nullptr));
  }
  const IdleChoice choice = choose_idle_state();
  const bool has_states = !settings_.idle_states.empty();
  account(static_cast<std::size_t>(CpuTime::idle) + choice.state);
  if (choice.stop_tick || run_over()) next_tick_ = never_cycles;  // NO_HZ_IDLE
  // Without a cpuidle driver the trace point shows 1 (default_idle_call).
  emit_idle(settings_.idle_governor == IdleGovernorKind::none ? 1 : choice.state);
  const std::uint64_t began = local_;
  if (told_busy_) tell_sibling(ArrivalKind::sibling_idle);
  told_busy_ = false;
  take_sibling_changes();
  while (next_own() > local_) {
    wait_for_arrival(next_own() == never_cycles ? never : moment(next_own(), rank_));
    local_ = std::max(local_, cycles_of(kernel_now()));
    static_cast<void>(drop_doorbells());  // erratum 1235: rung in vain
    if (at_end()) return;
    take_sibling_changes();
    if (run_over()) next_tick_ = never_cycles;
  }
  const bool by_tick = next_tick_ <= local_;
  last_idle_exit_ = has_states ? settings_.idle_states[choice.state].wake_cycles : 0;
  charge(last_idle_exit_);
  emit_idle(cpu_idle_exit);
  account(CpuTime::host);
  governor_->reflect(cycles_to_ns(local_ - began, settings_.tsc_hz), by_tick);
}

void PhysicalCpu::emit_switch(const HostThread* next) {
  if (!events_.active()) return;
  const auto cpu = static_cast<std::int32_t>(settings_.index);
  const std::int32_t next_tid = next != nullptr ? next->tid : 0;
  if (next != nullptr && next->was_woken && !next->wakeup_traced) {
    events_.push({local_,
                  workloads::EventKind::sched_wakeup,
                  0,
                  cpu,
                  current_tid(),
                  -1,
                  {static_cast<std::uint64_t>(next_tid), next->trace_priority(), settings_.index}});
  }
  events_.push({local_,
                workloads::EventKind::sched_switch,
                0,
                cpu,
                current_tid(),
                -1,
                {static_cast<std::uint64_t>(current_tid()), priority_of(current_), switch_state(current_),
                 static_cast<std::uint64_t>(next_tid), priority_of(next)}});
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
  return std::min({arrival, next_tick_, timers_.next_expiry()});
}

void PhysicalCpu::start_timer(HostTimer& timer, std::uint64_t expires_cycles) {
  timer.cpu_ = this;
  timers_.insert(timer, expires_cycles);
  horizon_ = std::min(horizon_, expires_cycles);
}

void PhysicalCpu::start_timer_for(const PhysicalCpu& by, HostTimer& timer, std::uint64_t expires_cycles) {
  start_timer(timer, std::max(expires_cycles, by.local_ + settings_.reaction_cycles));
  arrival_event_.notify(delay_until(moment(timer.expires_, rank_)));
}

bool PhysicalCpu::cancel_timer(HostTimer& timer) {
  PhysicalCpu* const where = timer.cpu_;
  // Another pCPU may already have run up to, but not to, our clock plus the least latency.
  if (where != this && timer.expires_ < local_ + settings_.reaction_cycles) return false;
  where->timers_.erase(timer);
  timer.cpu_ = nullptr;
  return true;
}

void PhysicalCpu::expire_timer() {
  HostTimer& timer = *timers_.first();
  timers_.erase(timer);
  timer.cpu_ = nullptr;
  if (local_ >= settings_.warmup_cycles) ++timer_interrupts_;
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
  horizon_ = slowed_ ? 0 : std::min({next_for_guest(), reach, settings_.end_cycles});
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
  take_sibling_changes();
  interrupt_pending_ = next_own() <= local_;
}

// News of the SMT sibling comes as arrivals that interrupt nothing.
void PhysicalCpu::take_sibling_changes() {
  while (!inbox_.empty() && inbox_.front().time <= local_ && inbox_.front().kind != ArrivalKind::reschedule) {
    slowed_ = inbox_.front().kind == ArrivalKind::sibling_busy;
    std::pop_heap(inbox_.begin(), inbox_.end(), later);
    inbox_.pop_back();
    look_ahead();
  }
}

void PhysicalCpu::tell_sibling(ArrivalKind kind) {
  if (settings_.sibling == CpuSet::none) return;
  fabric->send(settings_.sibling, kind, local_);
  notified_others();
}

// With a busy sibling a cycle of work takes 100 / smt_factor cycles.
std::uint64_t PhysicalCpu::guest_work_slow(std::uint64_t cycles) {
  constexpr std::uint64_t percent = 100;
  bool changed = false;  // the sibling's news end one piece of work and begin the next
  do {
    const bool before = slowed_;
    if (slowed_) {
      const std::uint64_t left = spend((cycles * percent + settings_.smt_factor - 1) / settings_.smt_factor);
      cycles = left == 0 ? 0 : std::max<std::uint64_t>(left * settings_.smt_factor / percent, 1);
    } else {
      cycles = spend(cycles);
    }
    changed = slowed_ != before;
  } while (changed && cycles != 0 && !interrupt_pending_ && !at_end());
  return cycles;
}

// Lets so much time pass, up to the first arrival, timer or tick. Returns what is left.
std::uint64_t PhysicalCpu::spend(std::uint64_t cycles) {
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
      scheduler->tick(settings_.index, local_);
      continue;
    }
    if (timers_.next_expiry() <= local_) {
      expire_timer();
      synchronise();  // it may have charged for what it did, and others may have acted meanwhile
      continue;
    }
    take_sibling_changes();
    if (inbox_.empty() || inbox_.front().time > local_) continue;
    std::pop_heap(inbox_.begin(), inbox_.end(), later);
    inbox_.pop_back();
    if (!settings_.bare) charge(costs_.t_irq_host);
    synchronise();
  }
  if (settings_.nohz_full && current_ != nullptr) start_tick();
  after_wait();
  return true;
}

std::uint64_t PhysicalCpu::host_work(std::uint64_t cycles) {
  while (cycles != 0 && !at_end()) {
    cycles = guest_work(cycles);
    if (at_end()) break;
    take_interrupts();
    if (need_resched()) break;
  }
  return cycles;
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
  take_sibling_changes();
  interrupt_pending_ = next_own() <= local_;
}

PhysicalCpu::Spent PhysicalCpu::spent(std::uint64_t until) const {
  auto result = spent_;
  until = std::min(until, settings_.end_cycles);
  if (until > accounted_) result[use_] += until - accounted_;
  if (accounted_ >= settings_.warmup_cycles) {
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] -= warmup_spent_[i];
  } else {
    result = {};
    if (until > settings_.warmup_cycles) result[use_] = until - settings_.warmup_cycles;
  }
  return result;
}

}  // namespace svmsim::model
