#include "model/host_scheduler.hpp"

#include <algorithm>

#include "model/physical_cpu.hpp"

namespace svmsim::model {

HostScheduler::HostScheduler(const sc_core::sc_module_name& name, unsigned pcpus, std::uint64_t wakeup_cycles)
    : sc_core::sc_module(name), queues_(pcpus), wakeup_cycles_(wakeup_cycles) {
  entry.bind(*this);
}

void HostScheduler::wake(HostThread& thread, PhysicalCpu* waker, std::uint64_t now) {
  thread.state = HostThread::State::runnable;
  thread.was_woken = true;
  RunQueue& queue = queues_[thread.cpu_index];
  queue.waiting.push_back(&thread);
  if (waker == nullptr) return;  // before time starts: every pCPU looks at its queue by itself
  if (waker->events().active()) {
    const auto kind = workloads::EventKind::sched_waking;
    waker->events().push({now,
                          kind,
                          0,
                          static_cast<std::int32_t>(waker->index()),
                          waker->current_tid(),
                          -1,
                          {static_cast<std::uint64_t>(thread.tid), 120, thread.cpu_index}});
  }
  // Decided now, while the waker is synchronised: the charge lets other CPUs act.
  const bool must_kick = !queue.busy && waker->index() != thread.cpu_index;
  waker->charge(wakeup_cycles_);
  if (must_kick) {
    fabric->send(thread.cpu_index, ArrivalKind::reschedule, waker->local());
    waker->notified_others();
  }
}

HostThread* HostScheduler::pick(unsigned cpu) {
  RunQueue& queue = queues_[cpu];
  queue.need_resched = false;
  queue.busy = !queue.waiting.empty();
  if (queue.waiting.empty()) return nullptr;
  HostThread* next = queue.waiting.front();
  queue.waiting.pop_front();
  return next;
}

void HostScheduler::requeue(HostThread& thread) {
  queues_[thread.cpu_index].waiting.push_back(&thread);
}

// The target goes to the head of its queue, and who yields leaves its pCPU where the target waits there.
bool HostScheduler::yield_to(HostThread& yielder, HostThread& target, PhysicalCpu&) {
  RunQueue& queue = queues_[target.cpu_index];
  const auto found = std::find(queue.waiting.begin(), queue.waiting.end(), &target);
  if (found == queue.waiting.end()) return false;
  queue.waiting.erase(found);
  queue.waiting.push_front(&target);
  queues_[yielder.cpu_index].need_resched = true;
  return true;
}

void HostScheduler::tick(unsigned cpu) {
  RunQueue& queue = queues_[cpu];
  if (queue.busy && !queue.waiting.empty()) queue.need_resched = true;
}

}  // namespace svmsim::model
