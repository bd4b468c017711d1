#include "workloads/trace/sched_tracker.hpp"

#include <algorithm>

namespace svmsim::workloads {

void SchedTracker::move(std::size_t stream, State to, std::uint64_t now) {
  if (stream == VcpuThreads::none) return;
  if (stream >= vcpus_.size()) vcpus_.resize(stream + 1);
  Vcpu& vcpu = vcpus_[stream];
  if (vcpu.state == to) return;
  const std::uint64_t time = now >= vcpu.since ? now - vcpu.since : 0;
  if (vcpu.state == State::running) vcpu.sums.run_time += time;
  if (vcpu.state == State::queued) vcpu.sums.queue_time += time;
  if (vcpu.state == State::blocked) vcpu.sums.block_time += time;
  vcpu.state = to;
  vcpu.since = now;
}

void SchedTracker::event(const ReadEvent& read) {
  const TraceEvent& event = read.event;
  if (event.kind == EventKind::sched_switch) {
    seen_ = true;
    const std::size_t out = threads_.stream_of_thread(static_cast<std::int32_t>(event.field[0]));
    if (out != VcpuThreads::none) {
      const bool runnable = (event.field[2] & 0xffU) == 'R';
      move(out, runnable ? State::queued : State::blocked, event.time);
      SchedSums& sums = vcpus_[out].sums;
      ++(runnable ? sums.preempted : sums.blocked);
    }
    move(threads_.stream_of_thread(static_cast<std::int32_t>(event.field[3])), State::running, event.time);
  } else if (event.kind == EventKind::sched_waking || event.kind == EventKind::sched_wakeup) {
    const std::size_t woken = threads_.stream_of_thread(static_cast<std::int32_t>(event.field[0]));
    // sched_wakeup follows sched_waking, and neither changes a thread that runs.
    if (woken < vcpus_.size() && vcpus_[woken].state == State::blocked)
      move(woken, State::queued, event.time);
  }
}

SchedSums SchedTracker::sums(std::size_t stream) const {
  return stream < vcpus_.size() ? vcpus_[stream].sums : SchedSums{};
}

}  // namespace svmsim::workloads
