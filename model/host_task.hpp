#pragma once

#include <cstdint>
#include <systemc>
#include <vector>

#include "model/config/scenario.hpp"
#include "model/host_timer.hpp"
#include "model/interfaces.hpp"
#include "model/stats/latency_stats.hpp"

namespace svmsim::model {

/// A thread of the host beside the vCPUs: runs and sleeps in phases, as rt-app's do, over and over. Its work
/// is user space: interrupts and the scheduler may cut it anywhere.
class HostTask : public sc_core::sc_module, public HostThread, private HostTimerClient {
 public:
  struct Phase {
    std::uint64_t run_cycles = 0;
    std::uint64_t sleep_cycles = 0;
    std::uint64_t period_cycles =
        0;  ///< rt-app's timer: sleep up to the next multiple, instead of sleep_cycles
  };

  HostTask(const sc_core::sc_module_name& name, std::vector<Phase> phases, std::uint64_t loops,
           std::uint64_t warmup_cycles);

  sc_core::sc_port<HostSchedulerInterface> scheduler{"scheduler"};

  void run(PhysicalCpu& cpu) override;
  void sched_in(PhysicalCpu& cpu) override;

  /// From the end of a sleep to the first instruction, one value per wake-up.
  [[nodiscard]] const LatencyStats& wakeup_latency() const noexcept { return wakeup_latency_; }
  [[nodiscard]] std::uint64_t run_cycles() const noexcept { return ran_; }
  [[nodiscard]] std::uint64_t loops_done() const noexcept { return loops_done_; }

 private:
  void timer_expired(PhysicalCpu& cpu, HostTimer& timer) override;
  /// The end of a phase's run: goes to sleep, or on. False when the thread does not run any more.
  [[nodiscard]] bool finish_phase(PhysicalCpu& cpu);
  [[nodiscard]] bool warm(std::uint64_t cycles) const noexcept { return cycles >= warmup_cycles_; }

  std::vector<Phase> phases_;
  std::uint64_t loops_;  // 0 = for ever
  std::uint64_t warmup_cycles_;
  HostTimer timer_{*this};
  std::size_t phase_ = 0;
  std::uint64_t left_ = 0;  // of the phase's run
  bool begun_ = false;
  std::uint64_t next_period_ = 0;
  std::uint64_t slept_until_ = 0;  // + 1; 0 = it did not sleep
  LatencyStats wakeup_latency_;
  std::uint64_t ran_ = 0;
  std::uint64_t loops_done_ = 0;
};

}  // namespace svmsim::model
