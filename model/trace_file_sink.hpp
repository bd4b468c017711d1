#pragma once

#include <fstream>
#include <memory>
#include <string>

#include "model/event_sink.hpp"
#include "model/simulation.hpp"
#include "workloads/trace/trace_writer.hpp"

namespace svmsim::model {

/// Writes the events of a simulation to a file, in the words of host.kernel, nanosecond stamps. The file
/// appears under its name when it is complete; a device or pipe is written directly.
class TraceFileSink : public EventSink {
 public:
  /// `format` is a name of workloads::trace_format_name(); empty = by the suffix of the path. Throws
  /// UserError when the file cannot be written or there is no such format.
  TraceFileSink(const std::string& path, const Simulation& simulation, const std::string& format = "");

  void on_event(const workloads::TraceEvent& event) override { writer_->write(event); }
  /// Flushes; throws UserError when something could not be written.
  void close();
  /// Without close() nothing is left behind.
  ~TraceFileSink() override;

 private:
  std::string path_;
  std::string written_path_;  ///< what is being written: a neighbour that close() renames, or the path itself
  std::ofstream out_;
  std::unique_ptr<workloads::TraceWriter> writer_;
};

}  // namespace svmsim::model
