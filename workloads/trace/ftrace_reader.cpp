#include "workloads/trace/ftrace_reader.hpp"

#include "workloads/trace/capture_collector.hpp"

namespace svmsim::workloads {

TraceFile read_trace(std::istream& in, const std::string& source, const ReadOptions& options) {
  CaptureCollector collector(source, options);
  make_text_reader(in, source, options)->read(collector);
  return collector.take();
}

TraceFile read_trace_file(const std::string& path, const ReadOptions& options) {
  return read_trace_files({path}, options);
}

TraceFile read_trace_files(const std::vector<std::string>& paths, const ReadOptions& options) {
  CaptureCollector collector(paths.empty() ? std::string{} : paths.front(), options);
  open_traces(paths, options)->read(collector);
  return collector.take();
}

}  // namespace svmsim::workloads
