// Captures through import and model: as recorded, and under the other HLT intercept.

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "model/replay.hpp"
#include "svm/user_error.hpp"
#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

using Json = nlohmann::ordered_json;

const std::string capture_file = std::string(SVMSIM_SOURCE_DIR) + "/tests/data/01-idle-hlt-ipi-trace.txt";

/// Lines of a trace file, without prefix, from kvm_apic_ipi to kvm_eoi.
std::vector<std::string> written_lines(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const std::size_t event = line.find(": kvm_");
    if (event == std::string::npos) continue;
    const std::string text = line.substr(event + 2);
    inside = inside || text.rfind("kvm_apic_ipi", 0) == 0;
    if (inside) lines.push_back(text);
    if (text.rfind("kvm_eoi", 0) == 0) break;
  }
  return lines;
}

struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / "svmsim_test_replay.txt").string();
  ~TemporaryFile() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("each capture of the thread replays to its own lines") {
  for (const int capture : {1, 2}) {
    const TemporaryFile out;
    const Json report = Json::parse(replay_json(capture_file, capture, {}, out.path));
    CHECK(report["fidelity"]["counts_equal"] == true);
    CHECK(report["fidelity"]["order_equal"] == true);
    CHECK(report["changed"].is_null());
    CHECK(written_lines(out.path) == capture_lines("01-idle-hlt-ipi-trace.txt", capture));
  }
}

TEST_CASE("the capture without idle HLT becomes the other one under idle HLT") {
  const TemporaryFile out;
  const Json report = Json::parse(replay_json(capture_file, 2, {"kvm.idle_hlt=true"}, out.path));
  CHECK(written_lines(out.path) == capture_lines("01-idle-hlt-ipi-trace.txt", 1));
  CHECK(report["recorded"]["exits"]["hlt"] == 1);
  CHECK(report["changed"]["exits"].contains("hlt") == false);
  CHECK(report["changed"]["exits"]["vintr"]["count"] == 1);
}

TEST_CASE("an imported workload file replays like its trace") {
  const TemporaryFile file;
  (void)import_trace_json({capture_file}, file.path, 2, "{}");
  const Json as_file = Json::parse(replay_json(file.path, 0, {}, ""))["as_recorded"]["exits"];
  CHECK(as_file == Json::parse(replay_json(capture_file, 2, {}, ""))["as_recorded"]["exits"]);
  CHECK(as_file["hlt"]["count"] == 1);
}

TEST_CASE("what the capture with idle HLT hides is said") {
  const Json report = Json::parse(replay_json(capture_file, 1, {"kvm.idle_hlt=false"}, ""));
  bool said = false;
  for (const auto& item : report["undecidable"])
    said = said || item.get<std::string>().find("HLT") != std::string::npos;
  CHECK(said);
}

TEST_CASE("a file of several captures asks for one, and names them") {
  CHECK_THROWS_WITH_AS((void)replay_json(capture_file, 0, {}, ""), doctest::Contains("2 captures"),
                       TraceError);
  CHECK_THROWS_WITH_AS((void)replay_json(capture_file, 3, {}, ""), doctest::Contains("no capture 3"),
                       TraceError);
}

TEST_CASE("excerpts of real recordings replay exactly, in the order of their kernel") {
  for (const char* name : {"kvm-6.1-a2-excerpt.txt", "kvm-6.12-a1-excerpt.txt"}) {
    CAPTURE(name);
    const Json report = Json::parse(
        replay_json(std::string(SVMSIM_SOURCE_DIR) + "/tests/data/" + name, 0, {"host.profile=lab"}, ""));
    CHECK(report["fidelity"]["counts_equal"] == true);
    CHECK(report["fidelity"]["order_equal"] == true);
  }
}

TEST_CASE("the guest of the lab gives the recordings' exits per iteration and their cycle") {
  struct Expected {
    const char* kernel;
    const char* idle_hlt;
    std::vector<std::string> cycle;
  };
  // counts.json of a1 and a2: msr 2000, vintr 1000, hlt 1000 or none, npf 2 within the window; ICR, [hlt,]
  // vintr, EOI.
  for (const Expected& expected : {Expected{"6.1", "false", {"msr", "hlt", "vintr", "msr"}},
                                   Expected{"6.12", "false", {"msr", "hlt", "vintr", "msr"}},
                                   Expected{"6.18", "false", {"msr", "hlt", "vintr", "msr"}},
                                   Expected{"6.18", "true", {"msr", "vintr", "msr"}}}) {
    for (const char* physical : {"false", "true"}) {
      CAPTURE(expected.kernel);
      CAPTURE(physical);
      Simulation simulation(scenario_of(
          "lab_selfipi", {"host.profile=lab", "host.hz=0", std::string("host.kernel=") + expected.kernel,
                          std::string("kvm.idle_hlt=") + expected.idle_hlt,
                          std::string("vm.workload.physical=") + physical}));
      RecordingSink sink;
      simulation.add_sink(sink);
      (void)simulation.run();
      // The measured window: after the exit of OUT 11h, before that of OUT 12h.
      std::vector<std::string> window;
      int mark = 0;
      for (const auto& event : sink.events) {
        if (event.kind == workloads::EventKind::kvm_pio && event.field[1] == 0x11) mark = 1;
        if (event.kind == workloads::EventKind::kvm_exit && mark == 1)
          window.push_back(svm::exit_name_or_hex(event.field[0]));
        if (event.kind == workloads::EventKind::kvm_pio && event.field[1] == 0x12) break;
      }
      REQUIRE(!window.empty());
      CHECK(window.back() == "io");
      window.pop_back();
      std::map<std::string, int> counts;
      for (const std::string& name : window)
        ++counts[name];
      CHECK(counts["msr"] == 2000);
      CHECK(counts["vintr"] == 1000);
      CHECK(counts["hlt"] == (expected.cycle.size() == 4 ? 1000 : 0));
      CHECK(counts["npf"] == 2);
      window.erase(std::remove(window.begin(), window.end(), "npf"), window.end());
      for (std::size_t i = 0; i < window.size(); ++i)
        REQUIRE(window[i] == expected.cycle[i % expected.cycle.size()]);
    }
  }
}

TEST_CASE("the lab recordings replay exactly (reads ../shared/lab)") {
  const std::string lab = std::string(SVMSIM_SOURCE_DIR) + "/../shared/lab/";
  if (!std::filesystem::exists(lab)) {
    MESSAGE("skipped: ../shared/lab is not here");
    return;
  }
  for (const char* name : {"6.1/a1-selfipi-x2apic", "6.1/a2-selfipi-x2apic-physdest",
                           "6.12/a1-selfipi-x2apic", "6.12/a2-selfipi-x2apic-physdest",
                           "6.18-idle-hlt/a1-selfipi-x2apic", "6.18-no-idle-hlt/a1-selfipi-x2apic"}) {
    CAPTURE(name);
    const Json report = Json::parse(replay_json(lab + name + "/trace.txt.gz", 0, {"host.profile=lab"}, ""));
    CHECK(report["fidelity"]["counts_equal"] == true);
    CHECK(report["fidelity"]["order_equal"] == true);
  }
  const Json changed = Json::parse(replay_json(lab + "6.18-no-idle-hlt/a1-selfipi-x2apic/trace.txt.gz", 0,
                                               {"host.profile=lab", "kvm.idle_hlt=true"}, ""))["changed"];
  const Json other = Json::parse(
      replay_json(lab + "6.18-idle-hlt/a1-selfipi-x2apic/trace.txt.gz", 0, {"host.profile=lab"}, ""));
  for (const char* reason : {"msr", "vintr", "io", "npf"})
    CHECK(changed["exits"][reason]["count"] == other["recorded"]["exits"][reason]);
  CHECK(changed["exits"].contains("hlt") == false);
}

}  // namespace svmsim::model::test
