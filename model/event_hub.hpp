#pragma once

#include <cstdint>
#include <vector>

#include "model/event_sink.hpp"
#include "model/time.hpp"

namespace svmsim::model {

/// Collects the events of all pCPUs and hands them to the sinks in (time, rank, sequence) order, although
/// CPUs run ahead of each other. Costs one test per trace point while no sink is attached.
class EventHub {
 public:
  EventHub(unsigned cpus, const std::vector<workloads::EventKind>& recorded);

  void add_sink(EventSink& sink) {
    sinks_.push_back(&sink);
    traced_ = ~std::uint64_t{0};
  }

  /// Whether events have to be built at all.
  [[nodiscard]] bool active() const noexcept { return !sinks_.empty(); }
  /// Whether a trace point of this kind has anything to do: the one test on the hot path.
  [[nodiscard]] bool traced(workloads::EventKind kind) const noexcept {
    return ((traced_ >> static_cast<unsigned>(kind)) & 1U) != 0;
  }
  /// Whether recording this kind costs t_trace (host.tracepoints).
  [[nodiscard]] bool recorded(workloads::EventKind kind) const noexcept {
    return ((recorded_ >> static_cast<unsigned>(kind)) & 1U) != 0;
  }

  /// `event.cpu` orders events of equal time; each CPU pushes in its own time order.
  void push(const workloads::TraceEvent& event) {
    pending_[static_cast<std::size_t>(event.cpu)].push_back(event);
    ++count_;
  }
  [[nodiscard]] bool full() const noexcept { return count_ >= flush_threshold; }

  /// Delivers everything before `until`: no CPU may push an earlier event afterwards.
  void flush(std::uint64_t until_cycles);
  void flush_all() { flush(never); }

 private:
  static constexpr std::size_t flush_threshold = 4096;

  std::vector<EventSink*> sinks_;
  std::uint64_t recorded_ = 0;                               // bit per kind
  std::uint64_t traced_ = 0;                                 // bit per kind: recorded, or somebody listens
  std::vector<std::vector<workloads::TraceEvent>> pending_;  // by CPU
  std::size_t count_ = 0;
  std::vector<workloads::TraceEvent> merged_;
};

}  // namespace svmsim::model
