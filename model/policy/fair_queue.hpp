#pragma once

#include <cstdint>

#include "model/policy/sched_entity.hpp"

namespace svmsim::model {

/// The scheduler's tunables (kernel/sched/fair.c), already scaled by the number of CPUs. Times in ns.
struct SchedParameters {
  std::uint64_t tick_ns = 4000000;  ///< bounds lag; 1/HZ
  // EEVDF.
  std::uint64_t base_slice_ns = 700000;
  // CFS.
  std::uint64_t latency_ns = 6000000;
  std::uint64_t min_granularity_ns = 750000;
  std::uint64_t wakeup_granularity_ns = 1000000;

  /// sched_update_scaling: the default SCHED_TUNABLESCALING_LOG multiplies by 1 + log2(min(CPUs, 8)).
  [[nodiscard]] static constexpr std::uint64_t factor(unsigned cpus) noexcept {
    std::uint64_t result = 1;
    for (unsigned n = cpus < 8 ? cpus : 8; n > 1; n >>= 1)
      ++result;
    return result;
  }
};

enum class FairAlgorithm : std::uint8_t {
  cfs,    ///< up to 6.5
  eevdf,  ///< since 6.6
};

/// Why an entity comes to a queue.
enum class EnqueueKind : std::uint8_t { initial, wakeup, migrated };

/// delta * 1024 / weight: wall time to virtual time.
[[nodiscard]] constexpr std::int64_t virtual_time(std::uint64_t delta_ns, std::uint32_t weight) noexcept {
  if (weight == nice_0_weight) return static_cast<std::int64_t>(delta_ns);
  return static_cast<std::int64_t>(delta_ns * nice_0_weight / weight);
}

/// The fair class of one pCPU: queued entities and the running one. Each call says when it happens; times
/// never decrease. A class of its own per algorithm: EevdfQueue, CfsQueue.
class FairQueue {
 public:
  FairQueue() = default;
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;
  virtual ~FairQueue() = default;

  virtual void enqueue(SchedEntity& entity, EnqueueKind kind, std::uint64_t now_ns) = 0;
  /// Takes an entity off because it sleeps. False when its dequeue is delayed: it stays queued.
  virtual bool dequeue_sleep(SchedEntity& entity, std::uint64_t now_ns) = 0;
  /// Takes a runnable entity off because it ends or goes to another queue.
  virtual void dequeue(SchedEntity& entity, std::uint64_t now_ns) = 0;
  /// Wakes an entity whose dequeue was delayed.
  virtual void requeue_delayed(SchedEntity& entity, std::uint64_t now_ns) = 0;
  /// schedule(): the entity to run next, which becomes the running one; nullptr when there is none. The one
  /// that ran goes back among the queued if it is runnable. `dropped_movable` counts the movable ones
  /// among delayed entities that were taken off meanwhile.
  virtual SchedEntity* pick(std::uint64_t now_ns, unsigned& dropped_movable) = 0;
  /// Another class runs now: the running entity goes back among the queued.
  virtual void put_prev(std::uint64_t now_ns) = 0;
  /// The tick; true = the running entity should be replaced.
  virtual bool tick(std::uint64_t now_ns) = 0;
  /// Whether the entity that just woke preempts the running one.
  virtual bool wakeup_preempts(SchedEntity& woken, std::uint64_t now_ns) = 0;
  /// sched_yield by the running entity.
  virtual void yield(std::uint64_t now_ns) = 0;
  /// Marks a queued entity to be picked next if that is fair (yield_to).
  virtual void set_next_buddy(SchedEntity& entity) = 0;
  /// A runnable entity that is not running, for another pCPU to pull; nullptr when there is none.
  [[nodiscard]] virtual SchedEntity* pullable() const = 0;

  /// CFS: the least virtual run time, to which others are relative. EEVDF keeps lag instead.
  [[nodiscard]] virtual std::int64_t base_vruntime() const { return 0; }

  [[nodiscard]] SchedEntity* current() const noexcept { return current_; }
  /// Queued and running entities, with those whose dequeue is delayed.
  [[nodiscard]] unsigned nr_running() const noexcept { return nr_running_; }
  /// True once after the running entity's slice ended outside the tick.
  [[nodiscard]] bool take_resched() noexcept {
    const bool result = resched_;
    resched_ = false;
    return result;
  }

 protected:
  SchedEntity* current_ = nullptr;
  unsigned nr_running_ = 0;
  bool resched_ = false;
};

}  // namespace svmsim::model
