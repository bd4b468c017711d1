#pragma once

#include "model/policy/fair_queue.hpp"
#include "model/policy/fair_tree.hpp"

namespace svmsim::model {

/// CFS as Linux 6.1 has it (kernel/sched/fair.c): the least virtual run time first, a period shared by
/// weight, sleepers placed half a latency back, wake-up preemption beyond a granularity, next, last and skip
/// buddies.
///
/// Left out: task groups, bandwidth control, load tracking, SCHED_IDLE's minimum granularity.
class CfsQueue final : public FairQueue {
 public:
  explicit CfsQueue(const SchedParameters& parameters) : parameters_(parameters) {}

  void enqueue(SchedEntity& entity, EnqueueKind kind, std::uint64_t now_ns) override;
  bool dequeue_sleep(SchedEntity& entity, std::uint64_t now_ns) override;
  void dequeue(SchedEntity& entity, std::uint64_t now_ns) override;
  void requeue_delayed(SchedEntity&, std::uint64_t) override {}  // nothing is ever delayed
  SchedEntity* pick(std::uint64_t now_ns, unsigned& dropped) override;
  void put_prev(std::uint64_t now_ns) override;
  bool tick(std::uint64_t now_ns) override;
  bool wakeup_preempts(SchedEntity& woken, std::uint64_t now_ns) override;
  void yield(std::uint64_t now_ns) override;
  void set_next_buddy(SchedEntity& entity) override;
  [[nodiscard]] SchedEntity* pullable() const override { return queued_.last(); }

  [[nodiscard]] std::int64_t base_vruntime() const override { return min_vruntime_; }
  /// sched_slice: wall time that an entity of the queue gets in one period.
  [[nodiscard]] std::uint64_t slice_ns(const SchedEntity& entity) const;

 private:
  void update_current(std::uint64_t now_ns);
  void update_min_vruntime();
  void take_off(SchedEntity& entity, std::uint64_t now_ns);
  void clear_buddies(const SchedEntity& entity);
  [[nodiscard]] int preempts(const SchedEntity& current, const SchedEntity& entity) const;
  [[nodiscard]] SchedEntity* pick_next(SchedEntity* current) const;

  SchedParameters parameters_;
  FairTree queued_{&SchedEntity::vruntime};
  std::uint64_t total_weight_ = 0;  // of queued and running entities
  std::int64_t min_vruntime_ = 0;
  SchedEntity* next_buddy_ = nullptr;
  SchedEntity* last_buddy_ = nullptr;
  SchedEntity* skip_buddy_ = nullptr;
};

}  // namespace svmsim::model
