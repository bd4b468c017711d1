#include "workloads/trace/import.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "workloads/trace/interrupt_causes.hpp"
#include "workloads/trace/vcpu_importer.hpp"

namespace svmsim::workloads {

namespace {

void add_counts(Counts& sum, const Counts& more) {
  for (const auto& [name, count] : more)
    sum[name] += count;
}

/// VMX prints its reasons in capitals ("EPT_VIOLATION"), SVM does not.
bool looks_like_vmx(const std::string& reason) {
  return std::all_of(reason.begin(), reason.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ' ';
  });
}

std::string isa_of(const Capture& capture, bool has_exits) {
  if (!has_exits) return "unknown";
  if (capture.foreign_exits.empty()) return "svm";
  return std::any_of(capture.foreign_exits.begin(), capture.foreign_exits.end(), looks_like_vmx) ? "vmx"
                                                                                                 : "unknown";
}

void count_event(const Capture& capture, const TraceEvent& event, ImportReport& report) {
  ++report.events[std::string{capture.name_of(event)}];
  if (event.kind == EventKind::kvm_exit) ++report.exits[capture.exit_name(event.field[0])];
}

void count_all(const Capture& capture, const std::vector<VcpuStream>& streams, bool windowed,
               ImportReport& report) {
  if (!windowed) {
    for (const TraceEvent& event : capture.events)
      count_event(capture, event, report);
  }
  for (const VcpuStream& stream : streams) {
    ImportReport::Vcpu& vcpu = report.vcpus.emplace_back();
    vcpu.vm = fmt::format("vm{}", stream.vm);
    vcpu.vcpu = stream.vcpu;
    for (const std::uint32_t index : stream.events) {
      const TraceEvent& event = capture.events[index];
      if (windowed) count_event(capture, event, report);
      if (event.kind == EventKind::kvm_exit) ++vcpu.exits[capture.exit_name(event.field[0])];
    }
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

std::optional<std::string> refusal(const Capture& capture, const ImportReport& report,
                                   const std::vector<VcpuStream>& streams) {
  if (report.isa == "vmx") {
    return fmt::format("the exit reasons are those of VMX (\"{}\"), not of SVM",
                       capture.foreign_exits.front());
  }
  if (streams.empty()) return "there is no kvm_entry or kvm_exit that says which vCPU it belongs to";
  const bool any =
      std::any_of(streams.begin(), streams.end(), [](const VcpuStream& s) { return !s.events.empty(); });
  if (!any) return "the window holds no event";
  return std::nullopt;
}

}  // namespace

ImportResult import_capture(const Capture& capture, const ImportOptions& options) {
  ImportResult result;
  ImportReport& report = result.report;
  report.source = capture.source;
  report.format = capture.format;
  report.lines = capture.line_count;
  report.lost_events = capture.lost_events;
  report.unknown = capture.unknown;
  report.problems = capture.problems;
  report.problem_count = capture.problem_count;

  std::vector<VcpuStream> streams = split_streams(capture);
  const GenerationGuess guess = infer_generation(capture, streams);
  report.kernel = options.kernel.value_or(guess.kernel);
  report.kernel_certain = options.kernel.has_value() || guess.certain;
  report.kernel_evidence = options.kernel ? "given by the user" : guess.evidence;
  const bool windowed = options.window_from && options.window_to;
  if (windowed) cut_streams(capture, report.kernel, options, streams);
  count_all(capture, streams, windowed, report);
  report.isa = isa_of(capture, !report.exits.empty());
  report.captures.push_back({capture.title, capture.first_line, capture.line_count, 0, 0});
  for (const auto& [name, count] : report.events)
    report.captures.back().events += count;
  for (const auto& [name, count] : report.exits)
    report.captures.back().exits += count;

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
  report.refused = refusal(capture, report, streams);
  if (report.refused) return result;

  const InterruptCauses causes(capture, streams);
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
    add_counts(report.causes, importer.causes());
  }
  return result;
}

ImportReport import_report(const TraceFile& file, const ImportOptions& options) {
  ImportReport total;
  std::vector<std::string> refusals;
  for (const Capture& capture : file.captures) {
    ImportReport one = import_capture(capture, options).report;
    if (total.captures.empty()) {
      total = std::move(one);
      if (total.refused) refusals.push_back(*total.refused);
      continue;
    }
    if (one.refused) refusals.push_back(*one.refused);
    if (total.format != one.format) total.format = "mixed";
    if (total.isa != one.isa) total.isa = "mixed";
    total.lost_events += one.lost_events;
    add_counts(total.events, one.events);
    add_counts(total.exits, one.exits);
    add_counts(total.unknown, one.unknown);
    add_counts(total.causes, one.causes);
    add_counts(total.undecidable, one.undecidable);
    add_counts(total.dropped, one.dropped);
    total.vcpus.insert(total.vcpus.end(), one.vcpus.begin(), one.vcpus.end());
    total.captures.insert(total.captures.end(), one.captures.begin(), one.captures.end());
    total.problems.insert(total.problems.end(), one.problems.begin(), one.problems.end());
    total.problem_count += one.problem_count;
    total.kernel_certain = total.kernel_certain && one.kernel_certain && total.kernel == one.kernel;
  }
  // The file is refused when nothing in it can be replayed.
  total.refused = refusals.size() == file.captures.size() && !refusals.empty()
                      ? std::optional<std::string>{refusals.front()}
                      : std::nullopt;
  total.source = file.source;
  total.lines = file.line_count;
  return total;
}

}  // namespace svmsim::workloads
