#include "model/policy/eevdf_queue.hpp"

#include <algorithm>

namespace svmsim::model {

EevdfQueue::Wide EevdfQueue::total_weight() const {
  const bool running = current_ != nullptr && current_->on_rq;
  return queued_weight_ + (running ? current_->weight : 0);
}

EevdfQueue::Wide EevdfQueue::total_key() const {
  const bool running = current_ != nullptr && current_->on_rq;
  return queued_key_ + (running ? Wide{current_->vruntime} * current_->weight : 0);
}

// avg_vruntime: rounded down, so that a new entity placed with no lag is eligible.
std::int64_t EevdfQueue::average_vruntime() const {
  const Wide weight = total_weight();
  if (weight == 0) return min_vruntime_;
  Wide key = total_key();
  if (key < 0) key -= weight - 1;
  return static_cast<std::int64_t>(key / weight);
}

bool EevdfQueue::eligible(const SchedEntity& entity) const {
  return total_key() >= Wide{entity.vruntime} * total_weight();
}

void EevdfQueue::insert(SchedEntity& entity) {
  queued_.insert(entity);
  queued_weight_ += entity.weight;
  queued_key_ += Wide{entity.vruntime} * entity.weight;
}

void EevdfQueue::erase(SchedEntity& entity) {
  queued_.erase(entity);
  queued_weight_ -= entity.weight;
  queued_key_ -= Wide{entity.vruntime} * entity.weight;
}

void EevdfQueue::update_min_vruntime() {
  const bool running = current_ != nullptr && current_->on_rq;
  std::int64_t least = running ? current_->vruntime : min_vruntime_;
  if (const SchedEntity* root = queued_.root())
    least = running ? std::min(least, root->subtree_min_vruntime) : root->subtree_min_vruntime;
  min_vruntime_ = std::max(min_vruntime_, least);
}

// update_curr with update_deadline: a slice that is used up asks for a new one and for a look at the others.
void EevdfQueue::update_current(std::uint64_t now_ns) {
  if (current_ == nullptr || now_ns <= current_->exec_start_ns) return;
  const std::uint64_t delta = now_ns - current_->exec_start_ns;
  current_->exec_start_ns = now_ns;
  current_->sum_exec_ns += delta;
  current_->vruntime += virtual_time(delta, current_->weight);
  if (current_->vruntime >= current_->deadline) {
    current_->deadline = current_->vruntime + virtual_time(parameters_.base_slice_ns, current_->weight);
    if (nr_running_ > 1) {
      resched_ = true;
      if (next_buddy_ == current_) next_buddy_ = nullptr;
    }
  }
  update_min_vruntime();
}

// update_entity_lag: what it is owed, at most two slices or a tick of it.
void EevdfQueue::update_lag(SchedEntity& entity) const {
  const std::int64_t limit =
      virtual_time(std::max(2 * parameters_.base_slice_ns, parameters_.tick_ns), entity.weight);
  entity.vlag = std::clamp(average_vruntime() - entity.vruntime, -limit, limit);
}

// place_entity. Adding an entity with lag l moves V by l * w / (W + w): what is wanted after it joins is
// therefore scaled up before.
void EevdfQueue::place(SchedEntity& entity, EnqueueKind kind) {
  std::int64_t slice = virtual_time(parameters_.base_slice_ns, entity.weight);
  Wide lag = 0;
  if (nr_running_ != 0 && entity.vlag != 0) {
    const Wide weight = total_weight();
    lag = Wide{entity.vlag} * (weight + entity.weight);
    lag /= weight == 0 ? 1 : weight;
  }
  entity.vruntime = average_vruntime() - static_cast<std::int64_t>(lag);
  if (kind == EnqueueKind::initial) slice /= 2;
  entity.deadline = entity.vruntime + slice;
}

void EevdfQueue::enqueue(SchedEntity& entity, EnqueueKind kind, std::uint64_t now_ns) {
  update_current(now_ns);
  // PLACE_REL_DEADLINE: a migrated entity keeps what was left of its slice; dequeue() stored it.
  const std::int64_t relative_deadline = entity.deadline;
  place(entity, kind);
  if (kind == EnqueueKind::migrated) entity.deadline = entity.vruntime + relative_deadline;
  entity.on_rq = true;
  insert(entity);
  ++nr_running_;
}

void EevdfQueue::finish_dequeue(SchedEntity& entity) {
  update_lag(entity);
  if (next_buddy_ == &entity) next_buddy_ = nullptr;
  if (entity.delayed) {
    entity.delayed = false;
    if (entity.vlag > 0) entity.vlag = 0;  // DELAY_ZERO
  }
  if (&entity != current_) erase(entity);
  entity.on_rq = false;
  --nr_running_;
  update_min_vruntime();
  if (&entity == current_) current_ = nullptr;
}

bool EevdfQueue::dequeue_sleep(SchedEntity& entity, std::uint64_t now_ns) {
  update_current(now_ns);
  if (!eligible(entity)) {
    entity.delayed = true;
    if (next_buddy_ == &entity) next_buddy_ = nullptr;
    return false;
  }
  finish_dequeue(entity);
  return true;
}

void EevdfQueue::dequeue(SchedEntity& entity, std::uint64_t now_ns) {
  update_current(now_ns);
  finish_dequeue(entity);
  entity.deadline -= entity.vruntime;
}

// requeue_delayed_entity: it competes again; lag that it gained while asleep is dropped. The kernel does not
// bring the running entity's virtual time up to date before: V is that of its last update, and the wake-up
// preemption that follows sees it move. Recording d4 shows the preemptions that this makes.
void EevdfQueue::requeue_delayed(SchedEntity& entity, std::uint64_t) {
  update_lag(entity);
  if (entity.vlag > 0) {
    entity.vlag = 0;
    --nr_running_;
    if (&entity != current_) erase(entity);
    entity.on_rq = false;
    place(entity, EnqueueKind::wakeup);
    entity.on_rq = true;
    if (&entity != current_) insert(entity);
    ++nr_running_;
  }
  entity.delayed = false;
}

// pick_eevdf: of the eligible entities the one with the earliest deadline. Along the path of earliest
// deadlines a subtree without an eligible entity is known by its least vruntime.
SchedEntity* EevdfQueue::pick_eevdf() const {
  SchedEntity* current = current_ != nullptr && current_->on_rq ? current_ : nullptr;
  if (nr_running_ == 1) return current != nullptr ? current : queued_.first();
  if (current != nullptr && !eligible(*current)) current = nullptr;
  if (current != nullptr && current->vlag == current->deadline) return current;  // RUN_TO_PARITY
  const Wide key = total_key();
  const Wide weight = total_weight();
  const auto reaches = [&](std::int64_t vruntime) { return key >= Wide{vruntime} * weight; };
  SchedEntity* best = nullptr;
  for (SchedEntity* node = queued_.root(); node != nullptr;) {
    if (node->left != nullptr && reaches(node->left->subtree_min_vruntime)) {
      node = node->left;
      continue;
    }
    if (reaches(node->vruntime)) {
      best = node;
      break;
    }
    node = node->right;
  }
  if (best == nullptr || (current != nullptr && current->deadline < best->deadline)) best = current;
  return best;
}

SchedEntity* EevdfQueue::pick(std::uint64_t now_ns, unsigned& dropped_movable) {
  if (current_ != nullptr && current_->on_rq) update_current(now_ns);
  SchedEntity* next = nullptr;
  while (nr_running_ != 0) {
    next = next_buddy_ != nullptr && eligible(*next_buddy_) ? next_buddy_ : pick_eevdf();
    if (!next->delayed) break;
    finish_dequeue(*next);
    if (next->movable) ++dropped_movable;
    next = nullptr;
  }
  resched_ = false;
  if (next != nullptr && next == current_) return next;
  put_prev(now_ns);
  if (next == nullptr) return nullptr;
  if (next_buddy_ == next) next_buddy_ = nullptr;
  erase(*next);
  current_ = next;
  next->vlag = next->deadline;
  next->exec_start_ns = now_ns;
  next->prev_sum_exec_ns = next->sum_exec_ns;
  return next;
}

void EevdfQueue::put_prev(std::uint64_t now_ns) {
  if (current_ != nullptr && current_->on_rq) {
    update_current(now_ns);
    insert(*current_);
  }
  current_ = nullptr;
}

bool EevdfQueue::tick(std::uint64_t now_ns) {
  update_current(now_ns);
  return take_resched();
}

bool EevdfQueue::wakeup_preempts(SchedEntity& woken, std::uint64_t now_ns) {
  if (current_ == nullptr) return true;
  const bool current_idle = current_->policy == SchedPolicy::idle;
  if (current_idle != (woken.policy == SchedPolicy::idle)) {
    if (current_idle) current_->vlag = current_->deadline + 1;  // its slice protects it from no such thread
    return current_idle;
  }
  if (woken.policy != SchedPolicy::other) return false;
  update_current(now_ns);
  return pick_eevdf() == &woken;
}

// yield_task_fair: what is left of the slice is forfeited ("Forfeit vruntime on yield", 2025 and stable
// kernels since; recording g2 shows it), if there is a right to it; the new deadline also ends the protection
// of the slice.
void EevdfQueue::yield(std::uint64_t now_ns) {
  if (nr_running_ <= 1 || current_ == nullptr) return;
  if (next_buddy_ == current_) next_buddy_ = nullptr;
  update_current(now_ns);
  if (!eligible(*current_)) return;
  current_->vruntime = current_->deadline;
  current_->deadline += virtual_time(parameters_.base_slice_ns, current_->weight);
  update_min_vruntime();
}

void EevdfQueue::set_next_buddy(SchedEntity& entity) {
  if (entity.on_rq && &entity != current_) next_buddy_ = &entity;
}

SchedEntity* EevdfQueue::pullable() const {
  SchedEntity* last = queued_.last();
  return last != nullptr && !last->delayed ? last : nullptr;
}

}  // namespace svmsim::model
