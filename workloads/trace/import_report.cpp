#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/trace/import.hpp"
#include "workloads/trace/workload_words.hpp"

namespace svmsim::workloads {

namespace {

using Json = nlohmann::ordered_json;

Json counts_json(const Counts& counts) {
  Json json = Json::object();
  for (const auto& [name, count] : counts)
    json[name] = count;
  return json;
}

Json durations_json(const ImportReport& report) {
  if (!report.durations) return nullptr;
  Json json = Json::object();
  for (const auto& [name, one] : *report.durations) {
    json[name] = Json{
        {"samples", one.samples}, {"total_ns", one.total_ns}, {"min_ns", one.min_ns}, {"max_ns", one.max_ns}};
  }
  return json;
}

std::string_view content_name(TableContent content) {
  switch (content) {
    case TableContent::exits:
      return "exits";
    case TableContent::events:
      return "events";
    case TableContent::statistics:
      return "statistics";
    case TableContent::other:
      break;
  }
  return "other";
}

Json table_json(const StatTable& table) {
  Json json{{"format", table.format},
            {"layout", table.layout},
            {"content", content_name(table.content)},
            {"first_line", table.first_line}};
  if (table.total_count) json["total_count"] = *table.total_count;
  if (table.total_time_ns) json["total_time_ns"] = *table.total_time_ns;
  json["rows"] = Json::array();
  for (const StatRow& row : table.rows) {
    Json one{{"line", row.line}, {"name", row.name}};
    const auto put = [&one](const char* name, const auto& value) {
      if (value) one[name] = *value;
    };
    if (!row.parent.empty()) one["parent"] = row.parent;
    if (row.vcpu >= 0) one["vcpu"] = row.vcpu;
    if (row.tid >= 0) one["tid"] = row.tid;
    put("count", row.count);
    put("share_percent", row.share);
    put("time_ns", row.time_ns);
    put("min_ns", row.min_ns);
    put("max_ns", row.max_ns);
    put("mean_ns", row.mean_ns);
    put("rate_per_s", row.rate);
    json["rows"].push_back(std::move(one));
  }
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
    Json one{{"vm", vcpu.vm}, {"vcpu", vcpu.vcpu}, {"exits", counts_json(vcpu.exits)}, {"sched", nullptr}};
    // Without sched events nothing is known, which is not the same as nothing happened.
    if (report.sched_known) {
      one["sched"] = Json{{"preempted", vcpu.sched.preempted},
                          {"blocked", vcpu.sched.blocked},
                          {"run_ns", vcpu.sched.run_time},
                          {"queue_ns", vcpu.sched.queue_time},
                          {"block_ns", vcpu.sched.block_time}};
    }
    json["vcpus"].push_back(std::move(one));
  }
  json["unknown"] = counts_json(report.unknown);
  json["causes"] = counts_json(report.causes);
  json["refused"] = report.refused ? Json(*report.refused) : Json(nullptr);
  json["no_workload"] = report.no_workload ? Json(*report.no_workload) : Json(nullptr);
  json["isa_evidence"] = report.isa_evidence;
  json["time_base"] = time_base_word(report.time_base);
  json["wakeups"] = counts_json(report.wakeups);
  json["coverage"] = counts_json(report.coverage);
  json["polling"] = counts_json(report.polling);
  json["durations"] = durations_json(report);
  json["unpaired"] = Json{{"exits_before_first_entry", report.unpaired.before_first_entry},
                          {"exits_overwritten", report.unpaired.overwritten},
                          {"entries_alone", report.unpaired.entry_alone},
                          {"exits_open", report.unpaired.open}};
  json["vms"] = report.vm_evidence.empty() ? Json(nullptr) : Json(report.vm_evidence);
  json["tables"] = Json::array();
  for (const StatTable& table : report.tables)
    json["tables"].push_back(table_json(table));
  json["notes"] = Json::array();
  for (const std::string& note : report.notes)
    json["notes"].push_back(printable(note, 4096));
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
  if (!report.refused && report.no_workload)
    fmt::format_to(out, "nothing to replay: {}\n", *report.no_workload);
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
  append_counts(text, "causes of wake-ups", report.wakeups);
  append_counts(text, "polling", report.polling);
  append_counts(text, "coverage", report.coverage);
  append_counts(text, "unknown (kept in order, not interpreted)", report.unknown);
  append_counts(text, "left out", report.dropped);
  append_counts(text, "undecidable, since the recording does not show it", report.undecidable);
  if (report.lost_events != 0) fmt::format_to(out, "events lost by the recorder: {}\n", report.lost_events);
  if (report.problem_count != 0) fmt::format_to(out, "unreadable lines: {}\n", report.problem_count);
  for (const Problem& problem : report.problems)
    fmt::format_to(out, "  {}\n", problem.text());
  for (const std::string& note : report.notes)
    fmt::format_to(out, "note: {}\n", note);
  return text;
}

}  // namespace svmsim::workloads
