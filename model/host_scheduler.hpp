#pragma once

#include <cstdint>
#include <deque>
#include <systemc>
#include <vector>

#include "model/interfaces.hpp"

namespace svmsim::model {

/// Host scheduler of pinned threads: one first-in-first-out queue per pCPU, and round robin at the tick when
/// more than one thread is runnable. Stands for CFS and EEVDF where one thread is runnable per pCPU; leaves
/// out weights, vruntime, wake-up preemption and migration (kvm-software.md 10), which implement the same
/// interface later.
class HostScheduler : public sc_core::sc_module, public HostSchedulerInterface {
 public:
  HostScheduler(const sc_core::sc_module_name& name, unsigned pcpus, std::uint64_t wakeup_cycles);

  sc_core::sc_export<HostSchedulerInterface> entry{"entry"};
  sc_core::sc_port<InterruptFabricInterface> fabric{"fabric"};

  void wake(HostThread& thread, PhysicalCpu* waker, std::uint64_t now) override;
  [[nodiscard]] HostThread* pick(unsigned cpu) override;
  void requeue(HostThread& thread) override;
  void tick(unsigned cpu) override;
  [[nodiscard]] bool yield_to(HostThread& yielder, HostThread& target, PhysicalCpu& cpu) override;
  [[nodiscard]] const bool& need_resched(unsigned cpu) const override { return queues_[cpu].need_resched; }
  [[nodiscard]] bool single_task_running(unsigned cpu) const override { return queues_[cpu].waiting.empty(); }

 private:
  struct RunQueue {
    std::deque<HostThread*> waiting;
    bool need_resched = false;
    bool busy = false;
  };

  std::vector<RunQueue> queues_;
  std::uint64_t wakeup_cycles_;
};

}  // namespace svmsim::model
