#pragma once

#include <fstream>
#include <memory>
#include <string>

#include "model/event_sink.hpp"
#include "model/simulation.hpp"
#include "workloads/trace/ftrace_writer.hpp"

namespace svmsim::model {

/// Writes the events of a simulation to a file in ftrace's text format, nanosecond stamps. The file appears
/// under its name when it is complete; a device or pipe is written directly.
class TraceFileSink : public EventSink {
 public:
  /// Throws UserError when the file cannot be written.
  TraceFileSink(const std::string& path, const Simulation& simulation);

  void on_event(const workloads::TraceEvent& event) override { writer_->write(event); }
  /// Flushes; throws UserError when something could not be written.
  void close();
  /// Without close() nothing is left behind.
  ~TraceFileSink() override;

 private:
  std::string path_;
  std::string written_path_;  ///< what is being written: a neighbour that close() renames, or the path itself
  std::ofstream out_;
  std::unique_ptr<workloads::FtraceWriter> writer_;
};

}  // namespace svmsim::model
