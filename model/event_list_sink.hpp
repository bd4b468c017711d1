#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/event_sink.hpp"
#include "model/units.hpp"
#include "svm/user_error.hpp"

namespace svmsim::model {

/// Keeps the events of a simulation as columns, for readers in the same process. Time is in ns.
class EventListSink : public EventSink {
 public:
  /// Throws UserError from on_event() when more than `most` events come.
  EventListSink(std::uint64_t tsc_hz, std::size_t most) : tsc_hz_(tsc_hz), most_(most) {}

  void on_event(const workloads::TraceEvent& event) override {
    if (time_ns.size() >= most_) {
      throw UserError(Problem{"", 0, "run.duration",
                              "more than " + std::to_string(most_) + " events: make the run shorter", ""});
    }
    time_ns.push_back(cycles_to_ns(event.time, tsc_hz_));
    kind.push_back(static_cast<std::uint8_t>(event.kind));
    cpu.push_back(event.cpu);
    tid.push_back(event.tid);
    vcpu.push_back(event.vcpu);
    fields.push_back(event.field);
  }

  std::vector<std::uint64_t> time_ns;
  std::vector<std::uint8_t> kind;
  std::vector<std::int32_t> cpu;
  std::vector<std::int32_t> tid;
  std::vector<std::int32_t> vcpu;
  std::vector<std::array<std::uint64_t, 8>> fields;

 private:
  std::uint64_t tsc_hz_;
  std::size_t most_;
};

}  // namespace svmsim::model
