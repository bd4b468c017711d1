#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "model/policy/fair_queue.hpp"

namespace svmsim::model {

/// The run queue of one pCPU (kernel/sched/core.c, rt.c): SCHED_FIFO threads by priority, then the fair
/// class; the running thread; need_resched. Each call says when it happens; times never decrease.
///
/// The running thread stays on the queue until pick() replaces it. Left out: deadline and stop classes, RT
/// throttling, priority inheritance.
class RunQueue {
 public:
  RunQueue(FairAlgorithm algorithm, const SchedParameters& parameters);

  /// Puts a thread that became runnable on the queue, and asks for a reschedule when it preempts.
  void enqueue(SchedEntity& entity, EnqueueKind kind, std::uint64_t now_ns);
  /// The running thread sleeps; pick() follows, and the thread may wake before.
  void sleep(SchedEntity& current, std::uint64_t now_ns);
  /// Takes a thread off that ends, or that another pCPU pulls.
  void remove(SchedEntity& entity, std::uint64_t now_ns);
  /// schedule(): who runs next; nullptr = idle.
  SchedEntity* pick(std::uint64_t now_ns);
  void tick(std::uint64_t now_ns);
  /// yield_to on the queue of the one that yields.
  void yield(std::uint64_t now_ns);
  /// yield_to on the queue of the target; false when it cannot help.
  bool boost(SchedEntity& target);
  /// A fair thread that waits here and that another pCPU may pull; nullptr when there is none.
  [[nodiscard]] SchedEntity* pullable() const { return fair_->pullable(); }

  [[nodiscard]] SchedEntity* current() const noexcept { return current_; }
  [[nodiscard]] unsigned nr_running() const noexcept { return fair_->nr_running() + rt_running_; }
  /// Of these, the ones that may run elsewhere.
  [[nodiscard]] unsigned nr_movable() const noexcept { return nr_movable_; }
  /// What virtual run times of sleeping threads are relative to, for one that wakes on another pCPU.
  [[nodiscard]] std::int64_t base_vruntime() const { return fair_->base_vruntime(); }
  [[nodiscard]] const bool& need_resched() const noexcept { return need_resched_; }
  void set_need_resched() noexcept { need_resched_ = true; }

 private:
  static constexpr unsigned rt_priorities = 100;
  struct RtList {
    SchedEntity* head = nullptr;
    SchedEntity* tail = nullptr;
  };

  [[nodiscard]] static bool is_rt(const SchedEntity& entity) noexcept {
    return entity.policy == SchedPolicy::fifo;
  }
  void rt_insert(SchedEntity& entity, bool at_head);
  void rt_erase(SchedEntity& entity);
  [[nodiscard]] SchedEntity* rt_first() const;
  void check_preempt(SchedEntity& woken, std::uint64_t now_ns);

  std::unique_ptr<FairQueue> fair_;
  std::array<RtList, rt_priorities> rt_{};
  std::array<std::uint64_t, 2> rt_bits_{};  // priorities with a queued thread
  unsigned nr_movable_ = 0;
  unsigned rt_running_ = 0;  // queued and running
  SchedEntity* current_ = nullptr;
  bool need_resched_ = false;
};

}  // namespace svmsim::model
