#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "model/config/loader.hpp"
#include "model/event_sink.hpp"
#include "model/simulation.hpp"
#include "svm/exit_code.hpp"
#include "workloads/trace/ftrace_writer.hpp"

namespace svmsim::model::test {

/// Keeps every event of a run.
class RecordingSink final : public EventSink {
 public:
  void on_event(const workloads::TraceEvent& event) override { events.push_back(event); }
  std::vector<workloads::TraceEvent> events;
};

/// A scenario of one VM that runs `kind`, with "--set" overrides.
inline Scenario scenario_of(const std::string& kind, std::vector<std::string> overrides = {}) {
  const std::string text = R"({"vm": [{"workload": {"kind": ")" + kind + R"("}}]})";
  return load_scenario(ScenarioSource::from_json(text), overrides);
}

/// kvm_exit counts by name, from a run's statistics.
inline std::map<std::string, std::uint64_t> exits_of(const RunResult& result) {
  std::map<std::string, std::uint64_t> exits;
  for (const auto& row : total_exits(result))
    exits[exit_row_name(row.code)] = row.counter.count;
  return exits;
}

inline double metric(const RunResult& result, const std::string& name) {
  for (const auto& [key, value] : result.metrics) {
    if (key == name) return value;
  }
  return -1.0;
}

/// "kvm_exit: vcpu 0 reason ...": the line of an event without its prefix.
inline std::string line_of(const workloads::TraceEvent& event, workloads::KernelGeneration kernel) {
  return std::string(workloads::event_name(event.kind)) + ": " + workloads::event_text(event, kernel);
}

/// Lines of the n-th capture (from 1) of a fixture, without time stamps, from its first event to its last.
inline std::vector<std::string> capture_lines(const std::string& file, int capture) {
  std::ifstream in(std::string(SVMSIM_SOURCE_DIR) + "/tests/data/" + file);
  std::vector<std::string> lines;
  int current = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("# capture", 0) == 0) ++current;
    if (line.empty() || line[0] == '#' || current != capture) continue;
    lines.push_back(line.substr(line.find(": ") + 2));
  }
  return lines;
}

inline bool same_event(const workloads::TraceEvent& a, const workloads::TraceEvent& b) {
  return a.time == b.time && a.kind == b.kind && a.cpu == b.cpu && a.tid == b.tid && a.vcpu == b.vcpu &&
         a.field == b.field;
}

}  // namespace svmsim::model::test
