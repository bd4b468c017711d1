#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "workloads/trace/import.hpp"
#include "workloads/trace/line_source.hpp"

// Every recording and every capture that the project was given, where they are.

using namespace svmsim;
using namespace svmsim::workloads;

namespace {

std::filesystem::path shared(const char* name) {
  return std::filesystem::path{SVMSIM_SOURCE_DIR} / ".." / "shared" / name;
}

ImportOptions barrier_window() {
  ImportOptions options;
  options.window_from = EventPattern::parse("kvm_pio:at 0x11");
  options.window_to = EventPattern::parse("kvm_pio:at 0x12");
  return options;
}

std::vector<std::filesystem::path> lab_folders() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(shared("lab"))) {
    if (entry.path().filename() == "counts.json") folders.push_back(entry.path().parent_path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

void check_window(const std::string& path, const nlohmann::json& window) {
  CAPTURE(path);
  const ImportReport report = import_report({path}, barrier_window());
  CHECK(report.problem_count == 0);
  CHECK_FALSE(report.refused.has_value());
  CHECK_FALSE(report.no_workload.has_value());
  CHECK(report.isa == "svm");
  REQUIRE(report.vcpus.size() == window.size());
  Counts events;
  for (const ImportReport::Vcpu& vcpu : report.vcpus) {
    CAPTURE(vcpu.vcpu);
    CHECK(vcpu.vm == "vm0");
    const nlohmann::json& counted = window.at("vcpu" + std::to_string(vcpu.vcpu));
    CHECK(vcpu.exits == counted.at("exits").get<Counts>());
  }
}

/// What a report must go on saying, without what would make a golden file long.
std::string golden(const ImportReport& report) {
  auto json = nlohmann::ordered_json::parse(to_json(report));
  json.erase("source");
  return json.dump(1) + "\n";
}

}  // namespace

TEST_CASE("trace recordings: exits inside the window, per vCPU, of all recordings and both formats" *
          doctest::skip(!std::filesystem::exists(shared("lab")))) {
  std::size_t texts = 0;
  std::size_t binaries = 0;
  std::size_t windows = 0;
  for (const std::filesystem::path& folder : lab_folders()) {
    CAPTURE(folder.string());
    const nlohmann::json counts = read_json(folder / "counts.json");
    ++texts;
    if (!counts.contains("trace_window")) continue;
    ++windows;
    check_window((folder / "trace.txt.gz").string(), counts["trace_window"]);
    if (std::filesystem::exists(folder / "trace.dat.gz")) {
      ++binaries;
      check_window((folder / "trace.dat.gz").string(), counts["trace_window"]);
    }
  }
  CHECK(texts == 71);
  CHECK(windows == 70);
  CHECK(binaries == 6);
}

TEST_CASE("trace recordings: trace.dat and its text hold the same events" *
          doctest::skip(!std::filesystem::exists(shared("lab")))) {
  for (const std::filesystem::path& folder : lab_folders()) {
    if (!std::filesystem::exists(folder / "trace.dat.gz")) continue;
    CAPTURE(folder.string());
    const ImportReport text = import_report({(folder / "trace.txt.gz").string()});
    const ImportReport binary = import_report({(folder / "trace.dat.gz").string()});
    CHECK(binary.format == "trace.dat");
    CHECK(binary.events == text.events);
    CHECK(binary.exits == text.exits);
    CHECK(binary.causes == text.causes);
    CHECK(binary.wakeups == text.wakeups);
    CHECK(binary.polling == text.polling);
    CHECK(binary.kernel == text.kernel);
    REQUIRE(binary.durations.has_value());
    for (const auto& [name, one] : *binary.durations) {
      CAPTURE(name);
      CHECK(one.samples == text.durations->at(name).samples);
      CHECK(one.total_ns == text.durations->at(name).total_ns);
    }
  }
}

TEST_CASE("trace recordings: causes of the recordings whose guests say what they do" *
          doctest::skip(!std::filesystem::exists(shared("lab")))) {
  const auto causes = [](const std::string& folder) {
    return import_report({(shared("lab") / folder / "trace.txt.gz").string()}, barrier_window());
  };
  for (const char* folder :
       {"6.1/a1-selfipi-x2apic", "6.12/a1-selfipi-x2apic", "6.18-idle-hlt/a1-selfipi-x2apic"}) {
    CHECK(causes(folder).causes == Counts{{"self_ipi", 1000}});
  }
  const ImportReport ping = causes("6.12/d1-pingpong-halt-x2apic");
  CHECK(ping.causes ==
        Counts{{"ipi", 2001}});  // one of vCPU 1's was injected once more behind the window's rim
  CHECK(ping.wakeups.at("ipi") == 1995);
  CHECK(ping.coverage.at("injections_explained") == 2001);
  const ImportReport timer = causes("6.12/c-tscdl-100us-hp0");
  CHECK(timer.causes == Counts{{"lapic_timer", 500}});
  CHECK(timer.wakeups == Counts{{"lapic_timer", 500}});
  CHECK(timer.polling.at("blocked") == 500);
  const ImportReport periodic = causes("6.12/c-periodic-500us-halt-hp200k");
  CHECK(periodic.causes.size() == 1);
  CHECK(periodic.causes.count("lapic_timer") == 1);
  CHECK(causes("6.12/i1-pvipi-1-target").causes.count("unknown") == 0);
}

TEST_CASE("trace captures: every public capture imports as its golden report says" *
          doctest::skip(!std::filesystem::exists(shared("traces")))) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(shared("traces")))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  CHECK(files.size() == 28);
  for (const std::filesystem::path& file : files) {
    CAPTURE(file.string());
    const std::filesystem::path expected = std::filesystem::path{SVMSIM_SOURCE_DIR} / "tests" / "data" /
                                           "trace" / "golden" / (file.stem().string() + ".json");
    const std::string report = golden(import_report({file.string()}));
    // SVMSIM_WRITE_GOLDEN=1 writes them anew; look at the difference before it is committed.
    if (std::getenv("SVMSIM_WRITE_GOLDEN") != nullptr) std::ofstream(expected) << report;
    std::ifstream in(expected);
    std::stringstream text;
    text << in.rdbuf();
    CHECK(report == text.str());
  }
}
