#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

/// A program of one file for the time of a test.
class ProgramFile {
 public:
  explicit ProgramFile(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / "svmsim_test_program.toml").string()) {
    std::ofstream(path_) << "name = \"test\"\ndoc = \"test\"\n" << text;
  }
  ProgramFile(const ProgramFile&) = delete;
  ProgramFile& operator=(const ProgramFile&) = delete;
  ~ProgramFile() { std::filesystem::remove(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Run {
  RunResult result;
  std::vector<workloads::TraceEvent> events;

  /// "hlt 1, msr 2": by name.
  [[nodiscard]] std::string exits_of_vcpu(unsigned vcpu) const {
    std::map<std::string, std::uint64_t> counted;
    for (const auto& row : result.vcpus[vcpu].exits)
      counted[exit_row_name(row.code)] = row.counter.count;
    std::string text;
    for (const auto& [name, count] : counted)
      text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
    return text;
  }
  /// Texts of the events of one kind.
  [[nodiscard]] std::vector<std::string> lines(workloads::EventKind kind) const {
    std::vector<std::string> lines;
    for (const auto& event : events)
      if (event.kind == kind) lines.push_back(line_of(event, workloads::KernelGeneration::v6_12));
    return lines;
  }
};

inline Run run_scenario(const Scenario& scenario) {
  Simulation simulation(scenario);
  RecordingSink sink;
  simulation.add_sink(sink);
  Run run;
  run.result = simulation.run();
  run.events = std::move(sink.events);
  return run;
}

/// Runs a program (its text without name and doc) on as many pCPUs as vCPUs, without a host tick.
inline Run run(const std::string& text, unsigned vcpus, std::vector<std::string> overrides = {}) {
  const ProgramFile file(text);
  overrides.push_back("host.pcpus=" + std::to_string(vcpus));
  overrides.push_back("vm.vcpus=" + std::to_string(vcpus));
  overrides.emplace_back("host.hz=0");
  return run_scenario(scenario_of(file.path(), std::move(overrides)));
}

}  // namespace svmsim::model::test
