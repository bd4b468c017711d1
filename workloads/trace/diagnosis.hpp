#pragma once

#include <string>
#include <vector>

#include "workloads/trace/import.hpp"
#include "workloads/trace/trace_reader.hpp"

namespace svmsim::workloads {

/// What `svmsim diagnose` judges by: for each capture of the files (open_traces()) the import report and the
/// facts of DiagnosisFacts, as JSON: {"source", "captures": [{"report": to_json(ImportReport), "facts":
/// {...}}]}. `capture` 0 = all; `isa` ("svm", "vmx", "") of bare exit numbers. In constant memory. Throws
/// TraceError when a file cannot be read or there is no such capture.
[[nodiscard]] std::string diagnosis_json(const std::vector<std::string>& paths, int capture = 0,
                                         const std::string& isa = "", const ReadOptions& reading = {});

}  // namespace svmsim::workloads
