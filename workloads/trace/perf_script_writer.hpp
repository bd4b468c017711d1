#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include "workloads/trace/trace_writer.hpp"

namespace svmsim::workloads {

/// Writes events as `perf script` prints them: `COMM TID [CPU] SEC.NSEC: SYSTEM:EVENT: text`, comm and the
/// event's name right-aligned. perf knows the events of its session beforehand and takes the width of the
/// longest name; here it is that of the longest name KVM has. Without `--ns` perf prints microseconds.
class PerfScriptWriter final : public TraceWriter {
 public:
  PerfScriptWriter(std::ostream& out, const TraceWriterOptions& options);
  ~PerfScriptWriter() override;

  void write(const TraceEvent& event) override;
  void write_other(const TraceEvent& event, std::string_view name, std::string_view text) override;
  void finish() override;

 private:
  void append_prefix(const TraceEvent& event, std::string_view name);

  std::ostream& out_;
  TraceWriterOptions options_;
  std::string buffer_;
};

}  // namespace svmsim::workloads
