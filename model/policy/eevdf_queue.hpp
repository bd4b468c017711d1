#pragma once

#include "model/policy/fair_queue.hpp"
#include "model/policy/fair_tree.hpp"

namespace svmsim::model {

/// EEVDF as Linux 6.12 has it (kernel/sched/fair.c): the weighted average V of the virtual run times, lag,
/// eligibility, virtual deadlines, RUN_TO_PARITY, PLACE_LAG, PLACE_DEADLINE_INITIAL, DELAY_DEQUEUE with
/// DELAY_ZERO. Sums are exact (128 bits), so that no re-basing on a minimum is needed.
///
/// Left out: custom slices and with them PREEMPT_SHORT, task groups, bandwidth control, load tracking.
class EevdfQueue final : public FairQueue {
 public:
  explicit EevdfQueue(const SchedParameters& parameters) : parameters_(parameters) {}

  void enqueue(SchedEntity& entity, EnqueueKind kind, std::uint64_t now_ns) override;
  bool dequeue_sleep(SchedEntity& entity, std::uint64_t now_ns) override;
  void dequeue(SchedEntity& entity, std::uint64_t now_ns) override;
  void requeue_delayed(SchedEntity& entity, std::uint64_t now_ns) override;
  SchedEntity* pick(std::uint64_t now_ns, unsigned& dropped) override;
  void put_prev(std::uint64_t now_ns) override;
  bool tick(std::uint64_t now_ns) override;
  bool wakeup_preempts(SchedEntity& woken, std::uint64_t now_ns) override;
  void yield(std::uint64_t now_ns) override;
  void set_next_buddy(SchedEntity& entity) override;
  [[nodiscard]] SchedEntity* pullable() const override;

  /// V: the virtual time at which an entity has had exactly its share.
  [[nodiscard]] std::int64_t average_vruntime() const;
  /// Lag of at least 0: it has had no more than its share.
  [[nodiscard]] bool eligible(const SchedEntity& entity) const;

 private:
  __extension__ using Wide = __int128;

  [[nodiscard]] SchedEntity* pick_eevdf() const;
  void update_current(std::uint64_t now_ns);
  void update_min_vruntime();
  void place(SchedEntity& entity, EnqueueKind kind);
  void update_lag(SchedEntity& entity) const;
  void finish_dequeue(SchedEntity& entity);
  void insert(SchedEntity& entity);
  void erase(SchedEntity& entity);
  [[nodiscard]] Wide total_weight() const;
  [[nodiscard]] Wide total_key() const;

  SchedParameters parameters_;
  FairTree queued_{&SchedEntity::deadline};
  Wide queued_weight_ = 0;
  Wide queued_key_ = 0;  // sum of weight * vruntime
  std::int64_t min_vruntime_ = 0;
  SchedEntity* next_buddy_ = nullptr;
};

}  // namespace svmsim::model
