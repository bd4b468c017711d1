#include "workloads/trace/import.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "workloads/trace/capture_tally.hpp"
#include "workloads/trace/interrupt_causes.hpp"
#include "workloads/trace/text_scanner.hpp"
#include "workloads/trace/vcpu_importer.hpp"

namespace svmsim::workloads {

namespace {

void add_counts(Counts& sum, const Counts& more) {
  for (const auto& [name, count] : more)
    sum[name] += count;
}

/// The report on a capture in memory: the same counting that a reader feeds.
ImportReport report_of(const Capture& capture, const ImportOptions& options) {
  bool window_missed = false;
  CaptureTally tally(options, capture.title, capture.first_line, capture);
  for (std::size_t i = 0; i < capture.events.size(); ++i)
    tally.event(read_event_of(capture, i));
  ImportReport report = tally.finish(capture.source, capture.format, capture.line_count, window_missed);
  report.lost_events = capture.lost_events;
  report.problems = capture.problems;
  report.problem_count = capture.problem_count;
  for (const auto& [text, count] : capture.unknown) {
    if (text.rfind("line: ", 0) == 0) report.unknown[text] = count;
  }
  return report;
}

/// Leaves only what lies between `from` and `to`.
void cut_range(const Capture& capture, const ImportOptions& options, std::vector<VcpuStream>& streams) {
  const auto before = [&](std::uint32_t index, const CutPoint& point) {
    if (point.by_line) return capture.lines[index] < point.line;
    return capture.events[index].time < (capture.has_time() ? point.time_ns : point.counter);
  };
  for (VcpuStream& stream : streams) {
    stream.events.erase(std::remove_if(stream.events.begin(), stream.events.end(),
                                       [&](std::uint32_t index) {
                                         return (options.from && before(index, *options.from)) ||
                                                (options.to && !before(index, *options.to));
                                       }),
                        stream.events.end());
  }
}

void cut_streams(const Capture& capture, KernelGeneration kernel, const ImportOptions& options,
                 std::vector<VcpuStream>& streams) {
  std::vector<VcpuStream> inside;
  for (VcpuStream& stream : streams) {
    if (cut_window(capture, kernel, *options.window_from, *options.window_to, stream))
      inside.push_back(stream);
  }
  if (inside.empty()) {
    throw UserError(
        Problem{capture.source, capture.first_line, "window",
                fmt::format("no vCPU has an event {}:{} followed by {}:{}", options.window_from->event,
                            options.window_from->text, options.window_to->event, options.window_to->text),
                ""});
  }
  streams = std::move(inside);
}

}  // namespace

ImportResult import_capture(const Capture& capture, const ImportOptions& options) {
  ImportResult result;
  std::vector<VcpuStream> streams = split_streams(capture);
  const bool windowed = options.window_from && options.window_to;
  const KernelGeneration kernel = options.kernel.value_or(infer_generation(capture).kernel);
  if (options.from || options.to) cut_range(capture, options, streams);
  if (windowed) cut_streams(capture, kernel, options, streams);
  ImportReport& report = result.report;
  report = report_of(capture, options);

  ReplayWorkload& workload = result.workload;
  workload.source = capture.source;
  workload.title = capture.title;
  workload.kernel = report.kernel;
  if (report.exits.count("idle-halt") != 0) {
    workload.idle_hlt = true;
  } else if (report.exits.count("hlt") != 0) {
    workload.idle_hlt = false;
  }
  workload.tsc_hz = options.tsc_hz;
  workload.time_base = capture.time_base;
  const bool any =
      std::any_of(streams.begin(), streams.end(), [](const VcpuStream& one) { return !one.events.empty(); });
  if (!any && !report.no_workload) report.no_workload = "what is left holds no event of a vCPU";
  if (report.no_workload) return result;

  const InterruptCauses causes(capture);
  VcpuImporter::Options importer_options;
  importer_options.tsc_hz = options.tsc_hz;
  importer_options.world_switch_cycles = options.world_switch_cycles;
  importer_options.hlt_exits_somewhere =
      std::any_of(capture.events.begin(), capture.events.end(), [](const TraceEvent& event) {
        return event.kind == EventKind::kvm_exit && event.field[0] == svm::exit_code::hlt;
      });
  for (const VcpuStream& stream : streams) {
    VcpuImporter importer(capture, stream, causes, importer_options);
    workload.vcpus.push_back(importer.import());
    add_counts(report.undecidable, importer.undecidable());
    add_counts(report.dropped, importer.dropped());
  }
  return result;
}

CutPoint CutPoint::parse(std::string_view text, const std::string& option) {
  CutPoint point;
  TextScanner scan(text);
  if (scan.literal("line:")) {
    point.by_line = true;
    if (scan.decimal(point.line) && scan.at_end()) return point;
  } else if (scan.decimal(point.counter)) {
    constexpr std::uint64_t giga = 1'000'000'000;
    std::uint64_t fraction = 0;
    std::size_t digits = 0;
    bool good = scan.at_end();
    if (!good && scan.literal(".")) {
      const std::size_t start = scan.position();
      good = scan.decimal(fraction) && scan.at_end();
      digits = scan.position() - start;
    }
    if (good && digits <= 9) {
      for (; digits < 9; ++digits)
        fraction *= 10;
      const std::uint64_t whole = std::min(point.counter, UINT64_MAX / giga - 1);
      point.time_ns = whole * giga + fraction;
      return point;
    }
  }
  throw UserError(
      Problem{"", 0, option,
              fmt::format("\"{}\" is neither a time in seconds as the recording prints it nor line:N",
                          printable(text)),
              "line:100"});
}

ImportReport import_report(const TraceFile& file, const ImportOptions& options) {
  std::vector<ImportReport> reports;
  for (const Capture& capture : file.captures)
    reports.push_back(import_capture(capture, options).report);
  return merge_reports(std::move(reports), file.source, file.line_count);
}

}  // namespace svmsim::workloads
