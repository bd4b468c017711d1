#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "workloads/trace/ftrace_reader.hpp"
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

/// `other_run`: the file is of another run of the same guest, which met other host interrupts.
void check_window(const std::string& path, const nlohmann::json& window, bool other_run = false) {
  CAPTURE(path);
  const ImportReport report = import_report_of_files({path}, barrier_window());
  CHECK(report.problem_count == 0);
  CHECK_FALSE(report.refused.has_value());
  CHECK_FALSE(report.no_workload.has_value());
  CHECK(report.isa == "svm");
  REQUIRE(report.vcpus.size() == window.size());
  for (const ImportReport::Vcpu& vcpu : report.vcpus) {
    CAPTURE(vcpu.vcpu);
    CHECK(vcpu.vm == "vm0");
    const nlohmann::json& counted = window.at("vcpu" + std::to_string(vcpu.vcpu));
    Counts expected = counted.at("exits").get<Counts>();
    Counts exits = vcpu.exits;
    if (other_run) {
      expected.erase("interrupt");
      exits.erase("interrupt");
    }
    CHECK(exits == expected);
  }
}

/// What a report must go on saying, without what would make a golden file long.
std::string golden(const ImportReport& report) {
  auto json = nlohmann::ordered_json::parse(to_json(report));
  json.erase("source");
  for (auto& note : json["notes"]) {
    // The directory is the tester's.
    const std::string text = note.get<std::string>();
    note = text.substr(text.rfind("/captures/") + 10);
  }
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
      const bool other_run =
          folder.filename() == "a1-selfipi-x2apic" && folder.parent_path().filename() == "6.12";
      check_window((folder / "trace.dat.gz").string(), counts["trace_window"], other_run);
    }
  }
  CHECK(texts == 71);
  CHECK(windows == 70);
  CHECK(binaries == 6);
}

TEST_CASE("trace recordings: trace.dat holds what trace-cmd prints of it" *
          doctest::skip(!std::filesystem::exists(shared("lab")) ||
                        std::system("command -v trace-cmd >/dev/null") != 0)) {
  const std::string printed =
      (std::filesystem::temp_directory_path() / ("svmsim-" + std::to_string(std::random_device{}()) + ".txt"))
          .string();
  for (const std::filesystem::path& folder : lab_folders()) {
    const std::string packed = (folder / "trace.dat.gz").string();
    if (!std::filesystem::exists(packed)) continue;
    CAPTURE(packed);
    const std::string command = "gzip -dc '" + packed + "' >" + printed +
                                ".dat && trace-cmd report -N -t -i " + printed + ".dat >" + printed +
                                " 2>/dev/null";
    REQUIRE(std::system(command.c_str()) == 0);
    const ImportReport text = import_report_of_files({printed});
    const ImportReport binary = import_report_of_files({packed});
    CHECK(binary.format == "trace.dat");
    CHECK(binary.lines + 1 == text.lines);  // "cpus=2"
    CHECK(binary.events == text.events);
    CHECK(binary.exits == text.exits);
    CHECK(binary.causes == text.causes);
    CHECK(binary.wakeups == text.wakeups);
    CHECK(binary.polling == text.polling);
    // Whether kvm_apicv_inhibit_changed prints names, which tells 6.1 here, stands in the text alone.
    if (folder.parent_path().filename() != "6.1") CHECK(binary.kernel == text.kernel);
    REQUIRE(binary.durations.has_value());
    for (const auto& [name, one] : *binary.durations) {
      CAPTURE(name);
      CHECK(one.samples == text.durations->at(name).samples);
      CHECK(one.total_ns == text.durations->at(name).total_ns);
    }
  }
  std::filesystem::remove(printed);
  std::filesystem::remove(printed + ".dat");
}

TEST_CASE("trace recordings: causes of the recordings whose guests say what they do" *
          doctest::skip(!std::filesystem::exists(shared("lab")))) {
  const auto causes = [](const std::string& folder) {
    return import_report_of_files({(shared("lab") / folder / "trace.txt.gz").string()}, barrier_window());
  };
  for (const char* folder :
       {"6.1/a1-selfipi-x2apic", "6.12/a1-selfipi-x2apic", "6.18-idle-hlt/a1-selfipi-x2apic"}) {
    CHECK(causes(folder).causes == Counts{{"self_ipi", 1000}});
  }
  const ImportReport ping = causes("6.12/d1-pingpong-halt-x2apic");
  CHECK(ping.causes == Counts{{"ipi", 2000}});
  CHECK(ping.wakeups.at("ipi") == 1995);
  CHECK(ping.coverage.at("injections_explained") == 2000);
  const ImportReport timer = causes("6.12/c-tscdl-100us-hp0");
  CHECK(timer.causes == Counts{{"lapic_timer", 500}});
  CHECK(timer.wakeups == Counts{{"lapic_timer", 500}});
  CHECK(timer.polling.at("blocked") == 500);
  const ImportReport periodic = causes("6.12/c-periodic-500us-halt-hp200k");
  CHECK(periodic.causes.size() == 1);
  CHECK(periodic.causes.count("lapic_timer") == 1);
  CHECK(causes("6.12/i1-pvipi-1-target").causes.count("unknown") == 0);
}

TEST_CASE("trace captures: every public capture imports as its golden report says") {
  const std::filesystem::path data = std::filesystem::path{SVMSIM_SOURCE_DIR} / "tests" / "data" / "trace";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(data / "captures"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  CHECK(files.size() == 28);
  for (const std::filesystem::path& file : files) {
    CAPTURE(file.string());
    const std::filesystem::path expected = data / "golden" / (file.stem().string() + ".json");
    const std::string report = golden(import_report_of_files({file.string()}));
    // SVMSIM_WRITE_GOLDEN=1 writes them anew; look at the difference before it is committed.
    if (std::getenv("SVMSIM_WRITE_GOLDEN") != nullptr) std::ofstream(expected) << report;
    std::ifstream in(expected);
    std::stringstream text;
    text << in.rdbuf();
    CHECK(report == text.str());
  }
}

TEST_CASE("trace.dat: an excerpt holds what its text holds") {
  const std::string base = std::string{SVMSIM_SOURCE_DIR} + "/tests/data/trace/kvm-6.12-d1";
  const TraceFile binary = read_trace_file(base + ".dat.gz");
  const TraceFile text = read_trace_file(base + ".txt.gz");
  REQUIRE(binary.captures.size() == 1);
  const Capture& one = binary.captures[0];
  const Capture& other = text.captures[0];
  CHECK(one.format == "trace.dat");
  CHECK(one.time_base == TimeBase::nanoseconds);
  REQUIRE(one.events.size() == other.events.size());
  for (std::size_t i = 0; i < one.events.size(); ++i) {
    CAPTURE(i);
    const TraceEvent& a = one.events[i];
    const TraceEvent& b = other.events[i];
    CHECK(a.kind == b.kind);
    CHECK(a.time == b.time);
    CHECK(a.cpu == b.cpu);
    CHECK(a.tid == b.tid);
    CHECK(a.vcpu == b.vcpu);
    CHECK(a.absent == b.absent);
    if (a.kind != EventKind::other) CHECK(a.field == b.field);
    CHECK(one.name_of(a) == other.name_of(b));
    CHECK(one.other_text_of(a) == other.other_text_of(b));
    if (a.tid > 0) CHECK(one.threads.comm(a.tid) == other.threads.comm(b.tid));
  }
  CHECK(import_report_of_files({base + ".dat.gz"}).causes ==
        import_report_of_files({base + ".txt.gz"}).causes);
}
