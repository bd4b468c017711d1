#include "workloads/trace/trace_writer.hpp"

#include <array>

#include "workloads/trace/ftrace_writer.hpp"
#include "workloads/trace/perf_script_writer.hpp"
#include "workloads/trace/trace_dat_writer.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::array<std::string_view, 3> format_names{"ftrace", "perf", "dat"};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

std::string_view trace_format_name(TraceFormat format) {
  return format_names[static_cast<std::size_t>(format)];
}

std::optional<TraceFormat> trace_format_of_name(std::string_view name) {
  for (std::size_t i = 0; i < format_names.size(); ++i) {
    if (format_names[i] == name) return static_cast<TraceFormat>(i);
  }
  return std::nullopt;
}

TraceFormat trace_format_of_path(std::string_view path) {
  if (ends_with(path, ".perf")) return TraceFormat::perf_script;
  if (ends_with(path, ".dat")) return TraceFormat::trace_dat;
  return TraceFormat::ftrace;
}

std::unique_ptr<TraceWriter> make_trace_writer(TraceFormat format, std::ostream& out,
                                               const TraceWriterOptions& options) {
  switch (format) {
    case TraceFormat::perf_script:
      return std::make_unique<PerfScriptWriter>(out, options);
    case TraceFormat::trace_dat:
      return std::make_unique<TraceDatWriter>(out, options);
    case TraceFormat::ftrace:
      break;
  }
  return std::make_unique<FtraceWriter>(out, options.kernel, options.tsc_hz, options.fraction_digits);
}

}  // namespace svmsim::workloads
