#pragma once

#include <string>
#include <vector>

#include "workloads/trace/trace_reader.hpp"

namespace svmsim::workloads {

/// trace-cmd's binary files, through libtracecmd and libtraceevent: the fields of events that svmsim knows
/// are taken raw by name, and no plugin is loaded, so that a kernel's new exit codes arrive as numbers and
/// never as a plugin's words. Several files, and the buffer instances of each, are merged by time into one
/// capture. Event texts of other events are the print formats that the recorded kernel brought along.
///
/// The libraries were not written for damaged files (they read behind the end of what a forged length says),
/// so they run in a child process that hands back plain data: whatever happens there, the parent reads an end
/// of data and says so. Leaves out: guest and host files joined by their time synchronisation.
class TraceDatReader final : public TraceReader {
 public:
  TraceDatReader(std::vector<std::string> paths, ReadOptions options)
      : paths_(std::move(paths)), options_(std::move(options)) {}
  void read(TraceSink& sink) override;

 private:
  std::vector<std::string> paths_;
  ReadOptions options_;
};

}  // namespace svmsim::workloads
