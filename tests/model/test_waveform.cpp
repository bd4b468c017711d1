// Waveforms: what they show is the run that the statistics tell of, and they change nothing in it.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <doctest/doctest.h>

#include "svm/user_error.hpp"
#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

namespace fs = std::filesystem;

/// A directory of its own for a test, removed behind it.
class Directory {
 public:
  Directory() {
    std::string name = (fs::temp_directory_path() / "svmsim-waveform-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() { fs::remove_all(path_); }

  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), {}));
  }

 private:
  fs::path path_;
};

Scenario two_cpus(unsigned rounds = 20) {
  return scenario_of("ping_pong",
                     {"host.pcpus=2", "vm.vcpus=2", "vm.workload.rounds=" + std::to_string(rounds)});
}

struct Run {
  std::vector<workloads::TraceEvent> events;
  std::string json;
};

Run run(const Scenario& scenario, const std::string& waveform) {
  Simulation simulation(scenario);
  RecordingSink sink;
  simulation.add_sink(sink);
  simulation.set_waveform(waveform);
  RunResult result = simulation.run();
  result.wall_time_s = 0.0;
  return {std::move(sink.events), to_json(result)};
}

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a waveform changes no event and no statistic") {
  const Directory directory;
  const Run plain = run(two_cpus(), "");
  const Run traced = run(two_cpus(), directory.file("a.vcd"));
  CHECK(plain.json == traced.json);
  REQUIRE(plain.events.size() == traced.events.size());
  for (std::size_t i = 0; i < plain.events.size(); ++i)
    CHECK(same_event(plain.events[i], traced.events[i]));
}

TEST_CASE("a waveform has picoseconds in order, no date, and its legend") {
  const Directory directory;
  const Scenario scenario = two_cpus();
  const Run traced = run(scenario, directory.file("a.vcd"));
  CHECK(directory.files() == 1);
  const std::string text = text_of(directory.file("a.vcd"));
  CHECK(text.find("$date") == std::string::npos);
  CHECK(text.find("1 ps") != std::string::npos);
  CHECK(text.find("kvm_vcpu::mode") != std::string::npos);
  std::istringstream lines(text);
  std::int64_t last = -1;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '#') continue;
    const std::int64_t time = std::stoll(line.substr(1));
    CHECK(time > last);
    last = time;
  }
  const double end_ps = static_cast<double>(traced.events.back().time) * 1e12 / 2.7e9;
  CHECK(static_cast<double>(last) == doctest::Approx(end_ps).epsilon(0.01));
  run(scenario, directory.file("b.vcd"));
  CHECK(text_of(directory.file("b.vcd")) == text);
}

TEST_CASE("a waveform that cannot be written is the user's error and leaves nothing") {
  const Directory directory;
  CHECK_THROWS_AS(run(two_cpus(), directory.file("no/such/directory.vcd")), UserError);
  CHECK_THROWS_AS(run(two_cpus(), "/dev/null"), UserError);
  Simulation simulation(two_cpus(1'000'000));
  simulation.set_waveform(directory.file("stopped.vcd"));
  simulation.set_progress([](std::uint64_t, double) { throw std::runtime_error("enough"); });
  CHECK_THROWS(static_cast<void>(simulation.run()));
  CHECK(directory.files() == 0);
}

}  // namespace svmsim::model::test
