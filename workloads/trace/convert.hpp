#pragma once

#include <string>
#include <vector>

namespace svmsim::workloads {

/// Writes a recording again, in another format of trace_writer.hpp, event by event and in constant memory.
/// Text keeps the words of the recording; trace.dat gets the records of the kernel generation that the
/// recording is of, and texts where nobody here knows an event's fields. `format` empty = by the suffix of
/// `output`; `capture` 0 = the only one. Tables are left out. Throws TraceError: a file cannot be read or
/// written, the format is unknown, or there are several captures and none is chosen.
void convert_trace(const std::vector<std::string>& paths, const std::string& output,
                   const std::string& format = "", int capture = 0);

}  // namespace svmsim::workloads
