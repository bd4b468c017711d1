#include "model/policy/run_queue.hpp"

#include "model/policy/cfs_queue.hpp"
#include "model/policy/eevdf_queue.hpp"

namespace svmsim::model {

namespace {

constexpr unsigned bits_per_word = 64;

std::unique_ptr<FairQueue> make_fair(FairAlgorithm algorithm, const SchedParameters& parameters) {
  if (algorithm == FairAlgorithm::cfs) return std::make_unique<CfsQueue>(parameters);
  return std::make_unique<EevdfQueue>(parameters);
}

}  // namespace

RunQueue::RunQueue(FairAlgorithm algorithm, const SchedParameters& parameters)
    : fair_(make_fair(algorithm, parameters)) {}

void RunQueue::rt_insert(SchedEntity& entity, bool at_head) {
  RtList& list = rt_[entity.rt_priority];
  entity.left = at_head ? nullptr : list.tail;
  entity.right = at_head ? list.head : nullptr;
  (entity.left != nullptr ? entity.left->right : list.head) = &entity;
  (entity.right != nullptr ? entity.right->left : list.tail) = &entity;
  rt_bits_[entity.rt_priority / bits_per_word] |= std::uint64_t{1} << (entity.rt_priority % bits_per_word);
}

void RunQueue::rt_erase(SchedEntity& entity) {
  RtList& list = rt_[entity.rt_priority];
  (entity.left != nullptr ? entity.left->right : list.head) = entity.right;
  (entity.right != nullptr ? entity.right->left : list.tail) = entity.left;
  entity.left = entity.right = nullptr;
  if (list.head == nullptr)
    rt_bits_[entity.rt_priority / bits_per_word] &=
        ~(std::uint64_t{1} << (entity.rt_priority % bits_per_word));
}

SchedEntity* RunQueue::rt_first() const {
  for (unsigned word = 2; word-- != 0;) {
    if (rt_bits_[word] == 0) continue;
    const auto bit = bits_per_word - 1 - static_cast<unsigned>(__builtin_clzll(rt_bits_[word]));
    return rt_[word * bits_per_word + bit].head;
  }
  return nullptr;
}

// wakeup_preempt: the better class wins; within SCHED_FIFO the greater priority.
void RunQueue::check_preempt(SchedEntity& woken, std::uint64_t now_ns) {
  if (current_ == nullptr || &woken == current_) {
    need_resched_ = true;
    return;
  }
  if (is_rt(woken)) {
    if (!is_rt(*current_) || woken.rt_priority > current_->rt_priority) need_resched_ = true;
    return;
  }
  if (is_rt(*current_) || need_resched_) return;
  if (fair_->wakeup_preempts(woken, now_ns) || fair_->take_resched()) need_resched_ = true;
}

void RunQueue::enqueue(SchedEntity& entity, EnqueueKind kind, std::uint64_t now_ns) {
  if (entity.delayed) {
    fair_->requeue_delayed(entity, now_ns);
  } else {
    if (entity.movable) ++nr_movable_;
    if (is_rt(entity)) {
      entity.on_rq = true;
      ++rt_running_;
      rt_insert(entity, false);
    } else {
      fair_->enqueue(entity, kind, now_ns);
    }
  }
  check_preempt(entity, now_ns);
}

void RunQueue::sleep(SchedEntity& current, std::uint64_t now_ns) {
  if (is_rt(current)) {
    current.on_rq = false;
    --rt_running_;
  } else {
    fair_->dequeue_sleep(current, now_ns);
  }
  if (current.on_rq) return;  // its dequeue is delayed
  if (current.movable) --nr_movable_;
  current_ = nullptr;
}

void RunQueue::remove(SchedEntity& entity, std::uint64_t now_ns) {
  if (is_rt(entity)) {
    if (&entity != current_) rt_erase(entity);
    entity.on_rq = false;
    --rt_running_;
  } else {
    fair_->dequeue(entity, now_ns);
  }
  if (entity.movable) --nr_movable_;
  if (&entity == current_) current_ = nullptr;
}

SchedEntity* RunQueue::pick(std::uint64_t now_ns) {
  need_resched_ = false;
  SchedEntity* const previous = current_;
  const bool previous_rt = previous != nullptr && is_rt(*previous);
  if (previous_rt && previous->on_rq) rt_insert(*previous, true);  // SCHED_FIFO keeps its turn
  if (SchedEntity* first = rt_first()) {
    rt_erase(*first);
    if (previous != nullptr && !previous_rt) fair_->put_prev(now_ns);
    if (first != previous) first->exec_start_ns = now_ns;
    current_ = first;
    return current_;
  }
  unsigned dropped_movable = 0;
  current_ = fair_->pick(now_ns, dropped_movable);
  nr_movable_ -= dropped_movable;
  return current_;
}

void RunQueue::tick(std::uint64_t now_ns) {
  if (current_ == nullptr || is_rt(*current_)) return;
  if (fair_->tick(now_ns)) need_resched_ = true;
}

void RunQueue::yield(std::uint64_t now_ns) {
  if (current_ == nullptr || is_rt(*current_)) return;
  fair_->yield(now_ns);
}

bool RunQueue::boost(SchedEntity& target) {
  if (is_rt(target) || !target.on_rq || target.delayed) return false;
  fair_->set_next_buddy(target);
  return true;
}

}  // namespace svmsim::model
