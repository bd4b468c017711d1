#pragma once

#include "workloads/trace/event.hpp"

namespace svmsim::model {

/// Receives the events of a simulation, merged by (time, rank, sequence). Time is in TSC cycles.
/// A machine without sinks does not build events at all.
class EventSink {
 public:
  EventSink() = default;
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  virtual ~EventSink() = default;

  virtual void on_event(const workloads::TraceEvent& event) = 0;
};

}  // namespace svmsim::model
