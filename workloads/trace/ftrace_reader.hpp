#pragma once

#include <istream>
#include <string>
#include <vector>

#include "workloads/trace/capture.hpp"
#include "workloads/trace/trace_reader.hpp"

namespace svmsim::workloads {

/// Reads a whole recording into memory: every format of open_trace(). Events that svmsim does not model are
/// kept in order, as text.
///
/// A line whose event is known but whose text cannot be read becomes a Problem of its capture, and reading
/// goes on. Throws TraceError when not a single line is an event, or when the file cannot be read at all.
[[nodiscard]] TraceFile read_trace(std::istream& in, const std::string& source,
                                   const ReadOptions& options = {});

/// The same for a file.
[[nodiscard]] TraceFile read_trace_file(const std::string& path, const ReadOptions& options = {});
/// The same for several files (open_traces()).
[[nodiscard]] TraceFile read_trace_files(const std::vector<std::string>& paths,
                                         const ReadOptions& options = {});

}  // namespace svmsim::workloads
