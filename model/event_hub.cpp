#include "model/event_hub.hpp"

#include <algorithm>

namespace svmsim::model {

EventHub::EventHub(unsigned cpus, const std::vector<workloads::EventKind>& recorded) : pending_(cpus) {
  for (const workloads::EventKind kind : recorded)
    recorded_ |= std::uint64_t{1} << static_cast<unsigned>(kind);
  traced_ = recorded_;
}

void EventHub::flush(std::uint64_t until_cycles) {
  merged_.clear();
  for (auto& queue : pending_) {
    const auto end = std::find_if(queue.begin(), queue.end(), [&](const workloads::TraceEvent& event) {
      return event.time >= until_cycles;
    });
    merged_.insert(merged_.end(), queue.begin(), end);
    queue.erase(queue.begin(), end);
  }
  // Queues were appended in rank order and each is sorted, so a stable sort by time alone keeps (rank,
  // sequence).
  std::stable_sort(merged_.begin(), merged_.end(),
                   [](const auto& a, const auto& b) { return a.time < b.time; });
  for (const workloads::TraceEvent& event : merged_) {
    for (EventSink* sink : sinks_)
      sink->on_event(event);
  }
  count_ = 0;
  for (const auto& queue : pending_)
    count_ += queue.size();
}

}  // namespace svmsim::model
