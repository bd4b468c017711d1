#include "model/policy/cfs_queue.hpp"

#include <algorithm>

namespace svmsim::model {

namespace {

constexpr unsigned nr_latency = 8;  // sched_nr_latency: latency over minimum granularity

}  // namespace

void CfsQueue::update_min_vruntime() {
  const bool running = current_ != nullptr && current_->on_rq;
  std::int64_t least = running ? current_->vruntime : min_vruntime_;
  if (const SchedEntity* first = queued_.first())
    least = running ? std::min(least, first->vruntime) : first->vruntime;
  min_vruntime_ = std::max(min_vruntime_, least);
}

void CfsQueue::update_current(std::uint64_t now_ns) {
  if (current_ == nullptr || now_ns <= current_->exec_start_ns) return;
  const std::uint64_t delta = now_ns - current_->exec_start_ns;
  current_->exec_start_ns = now_ns;
  current_->sum_exec_ns += delta;
  current_->vruntime += virtual_time(delta, current_->weight);
  update_min_vruntime();
}

std::uint64_t CfsQueue::slice_ns(const SchedEntity& entity) const {
  const unsigned running = nr_running_ + (entity.on_rq ? 0 : 1);
  const std::uint64_t period =
      running > nr_latency ? running * parameters_.min_granularity_ns : parameters_.latency_ns;
  const std::uint64_t weight = total_weight_ + (entity.on_rq ? 0 : entity.weight);
  return std::max(period * entity.weight / weight, parameters_.min_granularity_ns);  // BASE_SLICE
}

void CfsQueue::enqueue(SchedEntity& entity, EnqueueKind kind, std::uint64_t now_ns) {
  update_current(now_ns);
  if (kind == EnqueueKind::migrated) {
    entity.vruntime += min_vruntime_;  // relative since it left its old queue
  } else {
    std::int64_t placed = min_vruntime_;
    if (kind == EnqueueKind::initial) {
      placed += virtual_time(slice_ns(entity), entity.weight);  // START_DEBIT
    } else {
      // GENTLE_FAIR_SLEEPERS; with SCHED_IDLE only a minimum granularity.
      placed -= static_cast<std::int64_t>(entity.policy == SchedPolicy::idle ? parameters_.min_granularity_ns
                                                                             : parameters_.latency_ns / 2);
    }
    entity.vruntime = entity.ever_placed ? std::max(entity.vruntime, placed) : placed;
  }
  entity.ever_placed = true;
  entity.on_rq = true;
  queued_.insert(entity);
  total_weight_ += entity.weight;
  ++nr_running_;
}

void CfsQueue::clear_buddies(const SchedEntity& entity) {
  for (SchedEntity** buddy : {&next_buddy_, &last_buddy_, &skip_buddy_}) {
    if (*buddy == &entity) *buddy = nullptr;
  }
}

void CfsQueue::take_off(SchedEntity& entity, std::uint64_t now_ns) {
  update_current(now_ns);
  clear_buddies(entity);
  if (&entity != current_) queued_.erase(entity);
  entity.on_rq = false;
  total_weight_ -= entity.weight;
  --nr_running_;
}

bool CfsQueue::dequeue_sleep(SchedEntity& entity, std::uint64_t now_ns) {
  take_off(entity, now_ns);
  update_min_vruntime();
  if (&entity == current_) current_ = nullptr;
  return true;
}

void CfsQueue::dequeue(SchedEntity& entity, std::uint64_t now_ns) {
  take_off(entity, now_ns);
  entity.vruntime -= min_vruntime_;
  if (&entity == current_) current_ = nullptr;
  update_min_vruntime();
}

// wakeup_preempt_entity: 1 when it is so far behind that it preempts, 0 within the granularity, -1 ahead.
int CfsQueue::preempts(const SchedEntity& current, const SchedEntity& entity) const {
  const std::int64_t difference = current.vruntime - entity.vruntime;
  if (difference <= 0) return -1;
  return difference > virtual_time(parameters_.wakeup_granularity_ns, entity.weight) ? 1 : 0;
}

// pick_next_entity.
SchedEntity* CfsQueue::pick_next(SchedEntity* current) const {
  SchedEntity* const first = queued_.first();
  SchedEntity* left = first;
  if (left == nullptr || (current != nullptr && current->vruntime < left->vruntime)) left = current;
  if (left == nullptr) return nullptr;
  SchedEntity* next = left;
  if (skip_buddy_ == next) {
    SchedEntity* second = nullptr;
    if (next == current) {
      second = first;
    } else {
      second = queued_.second();
      if (second == nullptr || (current != nullptr && current->vruntime < second->vruntime)) second = current;
    }
    if (second != nullptr && preempts(*second, *left) < 1) next = second;
  }
  if (next_buddy_ != nullptr && preempts(*next_buddy_, *left) < 1) {
    next = next_buddy_;
  } else if (last_buddy_ != nullptr && preempts(*last_buddy_, *left) < 1) {
    next = last_buddy_;
  }
  return next;
}

SchedEntity* CfsQueue::pick(std::uint64_t now_ns, unsigned&) {
  SchedEntity* current = nullptr;
  if (current_ != nullptr && current_->on_rq) {
    update_current(now_ns);
    current = current_;
  }
  SchedEntity* next = pick_next(current);
  resched_ = false;
  if (next != nullptr && next == current_) {
    clear_buddies(*next);
    return next;
  }
  put_prev(now_ns);
  if (next == nullptr) return nullptr;
  clear_buddies(*next);
  queued_.erase(*next);
  current_ = next;
  next->exec_start_ns = now_ns;
  next->prev_sum_exec_ns = next->sum_exec_ns;
  return next;
}

void CfsQueue::put_prev(std::uint64_t now_ns) {
  if (current_ != nullptr && current_->on_rq) {
    update_current(now_ns);
    queued_.insert(*current_);
  }
  current_ = nullptr;
}

// check_preempt_tick: the share of the period is used up, or somebody waits who is far behind.
bool CfsQueue::tick(std::uint64_t now_ns) {
  update_current(now_ns);
  if (current_ == nullptr || nr_running_ <= 1) return false;
  const std::uint64_t ideal = std::min(slice_ns(*current_), parameters_.latency_ns);
  const std::uint64_t ran = current_->sum_exec_ns - current_->prev_sum_exec_ns;
  if (ran > ideal) {
    clear_buddies(*current_);
    return true;
  }
  if (ran < parameters_.min_granularity_ns) return false;
  const std::int64_t behind = current_->vruntime - queued_.first()->vruntime;
  return behind >= 0 && behind > static_cast<std::int64_t>(ideal);
}

bool CfsQueue::wakeup_preempts(SchedEntity& woken, std::uint64_t now_ns) {
  if (current_ == nullptr) return true;
  const bool current_idle = current_->policy == SchedPolicy::idle;
  if (current_idle && woken.policy != SchedPolicy::idle) return true;
  if (woken.policy != SchedPolicy::other) return false;
  update_current(now_ns);
  if (preempts(*current_, woken) != 1) return false;
  if (nr_running_ >= nr_latency && current_->on_rq) last_buddy_ = current_;
  return true;
}

// yield_task_fair: the one that yields is passed over once.
void CfsQueue::yield(std::uint64_t now_ns) {
  if (nr_running_ <= 1 || current_ == nullptr) return;
  clear_buddies(*current_);
  update_current(now_ns);
  skip_buddy_ = current_;
}

void CfsQueue::set_next_buddy(SchedEntity& entity) {
  if (entity.on_rq && &entity != current_) next_buddy_ = &entity;
}

}  // namespace svmsim::model
