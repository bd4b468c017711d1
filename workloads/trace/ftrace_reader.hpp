#pragma once

#include <cstddef>
#include <istream>
#include <string>

#include "workloads/trace/capture.hpp"

namespace svmsim::workloads {

struct ReadOptions {
  std::size_t max_line_bytes = std::size_t{1} << 16;  ///< longer lines are reported and left out
  std::size_t max_problems = 100;                     ///< kept per capture; all are counted
  unsigned max_expansion = 400;                       ///< unpacked bytes per packed byte of a compressed file
};

/// Reads ftrace text: the tracefs files, `trace-cmd report` with and without latency column, the default of
/// `perf script`, and lines that a reporter stripped of comm, pid and CPU (or of their time as well). Lines
/// may carry mail quoting, and
/// `# capture: TITLE` starts another capture. Events that svmsim does not model are kept in order, as text.
///
/// A line whose event is known but whose text cannot be read becomes a Problem of its capture, and reading
/// goes on. Throws TraceError when not a single line is an event, or when the file cannot be read at all.
[[nodiscard]] TraceFile read_trace(std::istream& in, const std::string& source,
                                   const ReadOptions& options = {});

/// The same for a file, which may be packed with gzip.
[[nodiscard]] TraceFile read_trace_file(const std::string& path, const ReadOptions& options = {});

}  // namespace svmsim::workloads
