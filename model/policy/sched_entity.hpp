#pragma once

#include <array>
#include <cstdint>

namespace svmsim::model {

/// Scheduling policies of a host thread (sched(7)).
enum class SchedPolicy : std::uint8_t {
  other,  ///< SCHED_OTHER
  batch,  ///< SCHED_BATCH: like other, but its wake-up preempts nobody
  idle,   ///< SCHED_IDLE: the least weight; everybody else preempts it at wake-up
  fifo,   ///< SCHED_FIFO: runs before every fair thread until it sleeps
};

inline constexpr std::uint32_t nice_0_weight = 1024;
inline constexpr std::uint32_t idle_policy_weight = 3;

/// Load weights of nice -20 to 19 (kernel/sched/core.c, sched_prio_to_weight).
inline constexpr std::array<std::uint32_t, 40> nice_weights{
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906,  3121,  2501,  1991,  1586,  1277,  1024,  820,   655,   526,   423,  335,  272,  215,
    172,   137,   110,   87,    70,    56,    45,    36,    29,    23,    18,   15};

[[nodiscard]] constexpr std::uint32_t weight_of_nice(int nice) noexcept {
  return nice_weights[static_cast<std::size_t>(nice + 20)];
}

/// What the scheduler keeps of one host thread (sched_entity and sched_rt_entity in one). Times in ns of the
/// host's clock, virtual times in ns at weight 1024.
struct SchedEntity {
  // Set by the owner while the thread is not queued.
  SchedPolicy policy = SchedPolicy::other;
  std::uint32_t weight = nice_0_weight;
  std::uint8_t rt_priority = 0;  ///< 1 to 99 with fifo; the greatest runs first
  bool movable = true;           ///< may run on more than one pCPU

  // The run queue's.
  bool on_rq = false;    ///< queued or running, also while its dequeue is delayed
  bool delayed = false;  ///< asleep, and still queued until it is picked (DELAY_DEQUEUE)
  bool ever_placed = false;
  std::int64_t vruntime = 0;
  std::int64_t deadline = 0;
  std::int64_t vlag = 0;  ///< asleep: lag at its dequeue; running: the deadline it was picked with
  std::uint64_t exec_start_ns = 0;
  std::uint64_t sum_exec_ns = 0;
  std::uint64_t prev_sum_exec_ns = 0;  ///< sum_exec_ns when it was picked

  // Links of the queue it is in.
  SchedEntity* left = nullptr;
  SchedEntity* right = nullptr;
  std::uint64_t order = 0;  ///< of insertion; decides between equal keys
  std::uint32_t heap_priority = 0;
  std::int64_t subtree_min_vruntime = 0;
};

}  // namespace svmsim::model
