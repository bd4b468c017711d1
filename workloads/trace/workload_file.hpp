#pragma once

#include <istream>
#include <ostream>
#include <string>

#include "workloads/trace/replay_workload.hpp"

namespace svmsim::workloads {

/// Writes a workload as text, one line per action (docs/workload-format.md).
void write_workload(std::ostream& out, const ReplayWorkload& workload);

/// Reads what write_workload() or a person wrote. Throws TraceError with every line that cannot be read.
[[nodiscard]] ReplayWorkload read_workload(std::istream& in, const std::string& source);

/// The same for files. A packed one is unpacked; one is packed when its name ends in .gz or .zst. Throw
/// TraceError when the file cannot be opened or written.
void write_workload_file(const std::string& path, const ReplayWorkload& workload);
[[nodiscard]] ReplayWorkload read_workload_file(const std::string& path);

/// Whether a file begins like a workload, so that a command can take both traces and workloads.
[[nodiscard]] bool is_workload_file(const std::string& path);

}  // namespace svmsim::workloads
