#pragma once

#include <cstdint>
#include <vector>

#include "workloads/trace/trace_sink.hpp"
#include "workloads/trace/vcpu_threads.hpp"

namespace svmsim::workloads {

/// What the host's scheduler did to the thread of a vCPU, from sched_switch, sched_waking and sched_wakeup.
/// Times are in the unit of the recording's stamps.
struct SchedSums {
  std::uint64_t preempted = 0;  ///< switched out although runnable
  std::uint64_t blocked = 0;    ///< switched out to sleep
  std::uint64_t run_time = 0;
  std::uint64_t queue_time = 0;  ///< runnable, waiting for a CPU
  std::uint64_t block_time = 0;  ///< asleep, up to the wake-up
};

/// Follows the threads that VcpuThreads knows as vCPUs.
class SchedTracker {
 public:
  explicit SchedTracker(const VcpuThreads& threads) : threads_(threads) {}

  void event(const ReadEvent& read);
  /// The recording has sched_switch at all.
  [[nodiscard]] bool seen() const noexcept { return seen_; }
  /// Of a stream of VcpuThreads.
  [[nodiscard]] SchedSums sums(std::size_t stream) const;

 private:
  enum class State : std::uint8_t { unknown, running, queued, blocked };
  struct Vcpu {
    State state = State::unknown;
    std::uint64_t since = 0;
    SchedSums sums;
  };

  void move(std::size_t stream, State to, std::uint64_t now);

  const VcpuThreads& threads_;
  std::vector<Vcpu> vcpus_;
  bool seen_ = false;
};

}  // namespace svmsim::workloads
