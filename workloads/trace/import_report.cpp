#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/trace/import.hpp"

namespace svmsim::workloads {

namespace {

using Json = nlohmann::ordered_json;

Json counts_json(const Counts& counts) {
  Json json = Json::object();
  for (const auto& [name, count] : counts)
    json[name] = count;
  return json;
}

void append_counts(std::string& text, const char* title, const Counts& counts) {
  if (counts.empty()) return;
  fmt::format_to(std::back_inserter(text), "{}:\n", title);
  for (const auto& [name, count] : counts)
    fmt::format_to(std::back_inserter(text), "  {:>10}  {}\n", count, name);
}

}  // namespace

std::string to_json(const ImportReport& report) {
  Json json;
  json["source"] = printable(report.source, 4096);
  json["format"] = report.format;
  json["isa"] = report.isa;
  json["lines"] = report.lines;
  json["lost_events"] = report.lost_events;
  json["events"] = counts_json(report.events);
  json["exits"] = counts_json(report.exits);
  json["vcpus"] = Json::array();
  for (const ImportReport::Vcpu& vcpu : report.vcpus) {
    json["vcpus"].push_back(Json{{"vm", vcpu.vm}, {"vcpu", vcpu.vcpu}, {"exits", counts_json(vcpu.exits)}});
  }
  json["unknown"] = counts_json(report.unknown);
  json["causes"] = counts_json(report.causes);
  json["refused"] = report.refused ? Json(*report.refused) : Json(nullptr);
  json["captures"] = Json::array();
  for (const ImportReport::CaptureSummary& capture : report.captures) {
    json["captures"].push_back(Json{{"title", capture.title},
                                    {"first_line", capture.first_line},
                                    {"lines", capture.lines},
                                    {"events", capture.events},
                                    {"exits", capture.exits}});
  }
  json["problems"] = Json::array();
  for (const Problem& problem : report.problems)
    json["problems"].push_back(printable(problem.text(), 4096));
  json["problem_count"] = report.problem_count;
  json["undecidable"] = counts_json(report.undecidable);
  json["dropped"] = counts_json(report.dropped);
  json["kernel"] = Json{{"generation", kernel_name(report.kernel)},
                        {"certain", report.kernel_certain},
                        {"evidence", report.kernel_evidence}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string to_text(const ImportReport& report) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{}: {}, {} lines, exit reasons of {}\n", report.source, report.format, report.lines,
                 report.isa);
  fmt::format_to(out, "kernel {} ({}): {}\n", kernel_name(report.kernel),
                 report.kernel_certain ? "certain" : "assumed", report.kernel_evidence);
  if (report.refused) fmt::format_to(out, "refused: {}\n", *report.refused);
  if (report.captures.size() > 1) {
    for (std::size_t i = 0; i < report.captures.size(); ++i) {
      const ImportReport::CaptureSummary& capture = report.captures[i];
      fmt::format_to(out, "capture {} from line {}: {} events, {} exits: {}\n", i + 1, capture.first_line,
                     capture.events, capture.exits, capture.title);
    }
  }
  append_counts(text, "events", report.events);
  append_counts(text, "exits", report.exits);
  for (const ImportReport::Vcpu& vcpu : report.vcpus) {
    append_counts(text, fmt::format("exits of {} vCPU {}", vcpu.vm, vcpu.vcpu).c_str(), vcpu.exits);
  }
  append_counts(text, "causes of injected interrupts", report.causes);
  append_counts(text, "unknown (kept in order, not interpreted)", report.unknown);
  append_counts(text, "left out", report.dropped);
  append_counts(text, "undecidable, since the recording does not show it", report.undecidable);
  if (report.lost_events != 0) fmt::format_to(out, "events lost by the recorder: {}\n", report.lost_events);
  if (report.problem_count != 0) fmt::format_to(out, "unreadable lines: {}\n", report.problem_count);
  for (const Problem& problem : report.problems)
    fmt::format_to(out, "  {}\n", problem.text());
  return text;
}

}  // namespace svmsim::workloads
