#pragma once

#include <cstdint>
#include <memory>
#include <systemc>
#include <vector>

#include "model/interfaces.hpp"
#include "model/policy/run_queue.hpp"
#include "model/policy/wake_placement.hpp"

namespace svmsim::model {

/// The host's scheduler: one RunQueue per pCPU, wake-up placement across them, balancing
/// (kernel/sched/core.c, fair.c; kvm-software.md 10). It keeps who is idle and who has threads to give as
/// sets, so that nothing it does grows with the number of threads or pCPUs beyond a logarithm and a few words
/// of a bit set.
///
/// Balancing pulls one thread at a time: when a pCPU would go idle, and at the tick of a busy one from a
/// queue that is longer by two. Left out: load tracking, task groups, cache-hot tests, NUMA; a wake-up on
/// another cache domain is queued at once rather than by the target's interrupt handler.
class HostScheduler : public sc_core::sc_module, public HostSchedulerInterface {
 public:
  struct Settings {
    CpuTopology topology;
    FairAlgorithm algorithm = FairAlgorithm::eevdf;
    SchedParameters parameters;
    std::uint64_t tsc_hz = 1000000000;
    std::uint64_t wakeup_cycles = 0;  ///< cost of try_to_wake_up for the waker
    bool balance = true;
    std::vector<unsigned> nohz_full;
  };

  HostScheduler(const sc_core::sc_module_name& name, const Settings& settings);

  sc_core::sc_export<HostSchedulerInterface> entry{"entry"};
  sc_core::sc_port<InterruptFabricInterface> fabric{"fabric"};

  void wake(HostThread& thread, PhysicalCpu* waker, std::uint64_t now) override;
  void sleep(HostThread& thread, std::uint64_t until) override;
  void end(HostThread& thread, std::uint64_t now) override;
  [[nodiscard]] HostThread* pick(unsigned cpu, std::uint64_t now) override;
  void tick(unsigned cpu, std::uint64_t now) override;
  [[nodiscard]] const bool& need_resched(unsigned cpu) const override {
    return cpus_[cpu].queue->need_resched();
  }
  [[nodiscard]] bool single_task_running(unsigned cpu) const override {
    return cpus_[cpu].queue->nr_running() == 1;
  }
  [[nodiscard]] int yield_to(PhysicalCpu& cpu, HostThread& target) override;
  void watch(PhysicalCpu& cpu, sc_core::sc_event* event) override;

  /// Threads that were moved to another pCPU, by wake-ups and by balancing.
  [[nodiscard]] std::uint64_t migrations() const noexcept { return migrations_; }

 private:
  struct Cpu {
    std::unique_ptr<RunQueue> queue;
    PhysicalCpu* watcher = nullptr;
    sc_core::sc_event* watch_event = nullptr;
    std::uint64_t next_balance = 0;
  };

  [[nodiscard]] std::uint64_t to_ns(std::uint64_t cycles) const;
  [[nodiscard]] unsigned place(HostThread& thread, unsigned waker) const;
  void move(HostThread& thread, unsigned to);
  /// Puts a runnable thread on the queue of its pCPU. True when that pCPU, which is not `by`, has to be
  /// kicked.
  [[nodiscard]] bool activate(HostThread& thread, EnqueueKind kind, unsigned by, std::uint64_t now);
  void note(unsigned cpu);
  void set_idle(unsigned cpu, bool idle);
  /// Pulls a thread from the queue of another pCPU whose length is at least `shortest`.
  [[nodiscard]] bool pull(unsigned to, unsigned shortest, std::uint64_t now);
  void trace_wakeup(const HostThread& thread, PhysicalCpu& waker, std::uint64_t now) const;

  Settings settings_;
  std::vector<Cpu> cpus_;
  CpuSet idle_;
  CpuSet idle_cores_;
  CpuSet overloaded_;  // pCPUs with a thread to give
  CpuSet nohz_full_;
  std::uint64_t balance_interval_;
  std::uint64_t migrations_ = 0;
};

}  // namespace svmsim::model
