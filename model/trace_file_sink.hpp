#pragma once

#include <fstream>
#include <memory>
#include <string>

#include "model/event_sink.hpp"
#include "model/simulation.hpp"
#include "workloads/trace/ftrace_writer.hpp"

namespace svmsim::model {

/// Writes the events of a simulation to a file in ftrace's text format, nanosecond stamps.
class TraceFileSink : public EventSink {
 public:
  /// Throws UserError when the file cannot be written.
  TraceFileSink(const std::string& path, const Simulation& simulation);

  void on_event(const workloads::TraceEvent& event) override { writer_->write(event); }
  /// Flushes; throws UserError when something could not be written.
  void close();

 private:
  std::string path_;
  std::ofstream out_;
  std::unique_ptr<workloads::FtraceWriter> writer_;
};

}  // namespace svmsim::model
