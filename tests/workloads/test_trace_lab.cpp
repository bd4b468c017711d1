#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/workloads/test_trace_machine.hpp"
#include "workloads/trace/ftrace_reader.hpp"
#include "workloads/trace/import.hpp"
#include "workloads/trace/line_source.hpp"

using namespace svmsim;
using namespace svmsim::workloads;

namespace {

struct Recording {
  std::string folder;
  KernelGeneration kernel;
  bool idle_hlt;
};

const std::vector<Recording> recordings{
    {"6.1/a1-selfipi-x2apic", KernelGeneration::v6_1, false},
    {"6.1/a2-selfipi-x2apic-physdest", KernelGeneration::v6_1, false},
    {"6.12/a1-selfipi-x2apic", KernelGeneration::v6_12, false},
    {"6.12/a2-selfipi-x2apic-physdest", KernelGeneration::v6_12, false},
    {"6.18-idle-hlt/a1-selfipi-x2apic", KernelGeneration::v6_18, true},
    {"6.18-no-idle-hlt/a1-selfipi-x2apic", KernelGeneration::v6_18, false},
};

std::filesystem::path lab() {
  return std::filesystem::path{SVMSIM_SOURCE_DIR} / ".." / "shared" / "lab";
}

bool lab_is_here() {
  return std::filesystem::exists(lab() / recordings.front().folder / "trace.txt.gz");
}

ImportOptions barrier_window() {
  ImportOptions options;
  options.window_from = EventPattern::parse("kvm_pio:at 0x11");
  options.window_to = EventPattern::parse("kvm_pio:at 0x12");
  return options;
}

Counts counted_inside(const std::string& folder) {
  std::ifstream in(lab() / folder / "counts.json");
  const auto json = nlohmann::json::parse(in);
  return json["trace_window"]["vcpu0"]["exits"].get<Counts>();
}

/// Counts exit reasons without the parser: the text between " reason " and " rip 0x" of every kvm_exit line.
Counts counted_lines(const std::string& path) {
  Counts counts;
  UnpackingFile file(path, 400);
  for (std::string line; std::getline(file.stream(), line);) {
    const std::size_t begin =
        line.find(": kvm_exit: ") == std::string::npos ? std::string::npos : line.find(" reason ");
    if (begin == std::string::npos) continue;
    ++counts[line.substr(begin + 8, line.find(" rip 0x") - begin - 8)];
  }
  return counts;
}

Counts replay_counts(const ReplayWorkload& workload, bool idle_hlt) {
  ReplaySource source(workload, 0);
  TinyMachine machine(source, idle_hlt);
  machine.run();
  CHECK_FALSE(machine.stuck);
  CHECK(machine.rip_errors.empty());
  return machine.counts;
}

}  // namespace

TEST_CASE("trace lab: recordings import whole and in the window, and replay to their own counts" *
          doctest::skip(!lab_is_here())) {
  for (const Recording& recording : recordings) {
    CAPTURE(recording.folder);
    const std::string path = (lab() / recording.folder / "trace.txt.gz").string();
    const TraceFile file = read_trace_file(path);
    REQUIRE(file.captures.size() == 1);
    CHECK(file.captures[0].problem_count == 0);
    CHECK(file.captures[0].unrecognised_lines == 0);

    const ImportResult whole = import_capture(file.captures[0]);
    CHECK(whole.report.kernel == recording.kernel);
    CHECK(whole.report.kernel_certain);
    CHECK(whole.report.exits == counted_lines(path));
    CHECK(whole.report.vcpus.at(0).exits == whole.report.exits);
    CHECK(whole.report.causes == Counts{{"self_ipi", 1000}});
    CHECK(replay_counts(whole.workload, recording.idle_hlt) == whole.report.exits);

    const Counts inside = counted_inside(recording.folder);
    const ImportResult window = import_capture(file.captures[0], barrier_window());
    CHECK(window.report.exits == inside);
    CHECK(window.report.vcpus.at(0).exits == inside);
    CHECK(replay_counts(window.workload, recording.idle_hlt) == inside);
  }
}

TEST_CASE("trace lab: 6.18 without idle HLT replayed with it gives the exits of the recording with it" *
          doctest::skip(!lab_is_here())) {
  const auto counts = [](const std::string& folder, bool idle_hlt) {
    const TraceFile file = read_trace_file((lab() / folder / "trace.txt.gz").string());
    Counts result = replay_counts(import_capture(file.captures.at(0), barrier_window()).workload, idle_hlt);
    result.erase("interrupt");  // the host's, not the guest's
    return result;
  };
  Counts with = counted_inside("6.18-idle-hlt/a1-selfipi-x2apic");
  with.erase("interrupt");
  CHECK(counts("6.18-no-idle-hlt/a1-selfipi-x2apic", true) == with);
  CHECK(with.count("hlt") == 0);
}

TEST_CASE("trace lab: every recording reads without an unreadable line" * doctest::skip(!lab_is_here())) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(lab())) {
    if (entry.path().filename() != "trace.txt.gz") continue;
    CAPTURE(entry.path().string());
    const TraceFile file = read_trace_file(entry.path().string());
    CHECK(file.captures.at(0).problem_count == 0);
    const ImportReport report = import_capture(file.captures[0]).report;
    CHECK_FALSE(report.refused.has_value());
    CHECK(report.exits == counted_lines(entry.path().string()));
    ++files;
  }
  CHECK(files == 71);
}
