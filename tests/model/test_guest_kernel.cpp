// Task sets under the modelled guest kernel: exits that follow by hand from what the guest does
// (kvm-software.md 3, 11).

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>
#include <unistd.h>

#include "model/stats/run_result.hpp"
#include "tests/model/model_fixture.hpp"

using namespace svmsim;
using namespace svmsim::model;
using namespace svmsim::model::test;

namespace {

/// A task set in a file that goes when the test does.
class TaskFile {
 public:
  explicit TaskFile(const std::string& tasks) {
    static int number = 0;
    path_ =
        std::filesystem::temp_directory_path() / fmt::format("svmsim-tasks-{}-{}.json", ::getpid(), ++number);
    std::ofstream(path_) << tasks;
  }
  TaskFile(const TaskFile&) = delete;
  TaskFile& operator=(const TaskFile&) = delete;
  ~TaskFile() { std::filesystem::remove(path_); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

RunResult run(const std::string& tasks, unsigned vcpus, std::vector<std::string> overrides = {},
              std::vector<workloads::TraceEvent>* events = nullptr) {
  std::string pins;
  for (unsigned i = 0; i < vcpus; ++i)
    pins += fmt::format("{}{}", i == 0 ? "" : ", ", i);
  const std::string text = fmt::format(
      R"({{"host": {{"profile": "zen2", "pcpus": {0}, "kernel": "6.12", "hz": 0}}, "vm": [{{"vcpus": {0}, "pin": [{1}],
          "workload": {{"tasks": "{2}"}}}}]}})",
      vcpus, pins, tasks);
  Simulation simulation(load_scenario(ScenarioSource::from_json(text), overrides));
  RecordingSink sink;
  if (events != nullptr) simulation.add_sink(sink);
  RunResult result = simulation.run();
  if (events != nullptr) *events = sink.events;
  return result;
}

double task_metric(const RunResult& result, const std::string& name) {
  for (const auto& [key, value] : result.metrics) {
    if (key == name || key == "vm0.0." + name) return value;
  }
  FAIL("no metric " << name);
  return 0;
}

/// The first line in which two texts differ; "" when none does.
std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a);
  std::istringstream right(b);
  for (std::string x, y; std::getline(left, x) && std::getline(right, y);) {
    if (x != y) return x + " against " + y;
  }
  return a == b ? "" : "one is longer";
}

std::uint64_t sent_ipis(const std::vector<workloads::TraceEvent>& events, std::uint64_t vector) {
  std::uint64_t count = 0;
  for (const auto& event : events) {
    if (event.kind == workloads::EventKind::kvm_apic_ipi && (event.field[0] & 0xff) == vector) ++count;
  }
  return count;
}

std::uint64_t stat(const RunResult& result, std::uint64_t VcpuStats::*field) {
  std::uint64_t sum = 0;
  for (const VcpuResult& vcpu : result.vcpus)
    sum += vcpu.stats.*field;
  return sum;
}

const char* const wake_other = R"({"tasks": {
  "sleeper": {"cpus": 1, "loop": 200, "phases": {"p": {"suspend": "", "run": 5}}},
  "waker": {"cpus": 0, "loop": 200, "phases": {"p": {"run": 50, "resume": "sleeper", "sleep": 500}}}}})";

}  // namespace

TEST_CASE("request and response: one notification, one halt, the tick stopped and started, one interrupt") {
  const auto result = run("pingpong", 1, {"kvm.halt_poll_ns=0", "vm.pv=[]"});
  const auto exits = exits_of(result);
  CHECK(result.failure.empty());
  CHECK(task_metric(result, "client_rounds") == 20000);
  CHECK(exits.at("io") == 20000);
  // A tick that comes just before the halt may end it.
  CHECK(exits.at("hlt") >= 20000);
  CHECK(exits.at("hlt") <= 20002);
  // Two timer writes and the EOI of the device; the ticks while it is busy have theirs.
  CHECK(exits.at("msr") >= 60000);
  CHECK(exits.at("msr") < 60500);
  SUBCASE("with PV EOI the EOI of most interrupts costs no exit") {
    const auto pv = run("pingpong", 1, {"kvm.halt_poll_ns=0", "vm.pv=[\"eoi\"]"});
    CHECK(exits_of(pv).at("msr") >= 40000);
    CHECK(exits_of(pv).at("msr") < 40500);
  }
}

TEST_CASE("a guest that polls does not halt, and does not stop its tick") {
  const auto result = run("pingpong", 1, {"vm.idle=\"poll\""});
  const auto exits = exits_of(result);
  CHECK(exits.count("hlt") == 0);
  CHECK(exits.at("io") == 20000);
  CHECK(exits.at("interrupt") >= 20000);  // each completion ends guest mode
  CHECK(exits.at("msr") < 1000);
}

TEST_CASE("the founding ping-pong: the host itself, guest polling, host polling, none") {
  const double native = task_metric(run("pingpong", 1, {"vm.native=true"}), "client_round_mean_ns");
  const double none = task_metric(run("pingpong", 1, {"kvm.halt_poll_ns=0"}), "client_round_mean_ns");
  const double host = task_metric(run("pingpong", 1, {"kvm.halt_poll_ns=300000"}), "client_round_mean_ns");
  const double guest = task_metric(
      run("pingpong", 1, {"kvm.halt_poll_ns=0", "vm.idle=\"cpuidle_kvm\"", "vm.guest_halt_poll_ns=300000"}),
      "client_round_mean_ns");
  CHECK(native < guest);
  CHECK(guest < host);
  CHECK(host < none);
  // Published: 1.40 to 2.07 (measurements.md 1.2).
  CHECK((guest - native) / (host - native) > 0.68 - 0.15);
  CHECK((guest - native) / (host - native) < 0.68 + 0.15);
}

TEST_CASE("a native task set makes no exits, and needs pCPUs of its own") {
  std::vector<workloads::TraceEvent> events;
  const auto result = run("transactions", 4, {"vm.native=true"}, &events);
  for (const auto& event : events)
    CHECK(workloads::event_name(event.kind).substr(0, 4) != "kvm_");
  CHECK(result.failure.empty());
  CHECK(exits_of(result).empty());
  CHECK(task_metric(result, "worker_rounds") == 3200);
  CHECK_THROWS_AS(run("pingpong", 1, {"vm.native=true", "vm.pin=[]"}), UserError);
}

TEST_CASE("haltpoll turns host polling off where KVM offers POLL_CONTROL") {
  const auto with = run("transactions", 4, {"vm.idle=\"haltpoll\"", "vm.pv=[\"poll_control\"]"});
  CHECK(stat(with, &VcpuStats::halt_attempted_poll) == 0);
  CHECK(stat(with, &VcpuStats::halt_exits) > 100);
  const auto without = run("transactions", 4, {"vm.idle=\"haltpoll\"", "vm.pv=[]"});
  CHECK(stat(without, &VcpuStats::halt_attempted_poll) > 100);
}

TEST_CASE("a wake-up on another CPU: one reschedule IPI to a halted one, none to a polling one") {
  const TaskFile file(wake_other);
  std::vector<workloads::TraceEvent> events;
  const auto halting = run(file.path(), 2, {}, &events);
  CHECK(task_metric(halting, "sleeper_rounds") == 200);
  CHECK(sent_ipis(events, 0xfd) == 200);
  const auto polling = run(file.path(), 2, {"vm.idle=\"poll\""}, &events);
  CHECK(task_metric(polling, "sleeper_rounds") == 200);
  CHECK(sent_ipis(events, 0xfd) == 0);
}

TEST_CASE("a poll that will end by itself sees a wake-up from another CPU before that") {
  const TaskFile file(wake_other);
  for (const char* idle : {"cpuidle_kvm", "haltpoll"}) {
    for (const char* native : {"true", "false"}) {
      CAPTURE(idle);
      CAPTURE(native);
      std::vector<workloads::TraceEvent> events;
      const auto result = run(file.path(), 2,
                              {fmt::format("vm.idle=\"{}\"", idle), fmt::format("vm.native={}", native),
                               "vm.guest_halt_poll_ns=2000000", "vm.guest_halt_poll_grow_start=2000000"},
                              &events);
      CHECK(task_metric(result, "sleeper_rounds") == 200);
      // The window is four times as long as the gap between two wake-ups.
      CHECK(task_metric(result, "sleeper_wake_mean_ns") < 10'000);
      // The waker's CPU polls, too: its timer was programmed before.
      CHECK(task_metric(result, "waker_round_mean_ns") < 650'000);
      CHECK(sent_ipis(events, 0xfd) <= 1);  // haltpoll's first idle halts
    }
  }
}

TEST_CASE("a call of all other CPUs: one shorthand, or one IPI each, and the caller waits for all") {
  const TaskFile file(
      R"({"tasks": {"caller": {"cpus": 0, "loop": 100, "phases": {"p": {"run": 20, "ipi": "all"}}},
    "hog": {"instance": 3, "cpus": [1, 2, 3], "loop": 400, "phases": {"p": {"run": 40}}}}})");
  std::vector<workloads::TraceEvent> events;
  const auto shorthand = run(file.path(), 4, {"vm.pv=[]"}, &events);
  CHECK(task_metric(shorthand, "caller_rounds") == 100);
  CHECK(sent_ipis(events, 0xfc) == 100);
  run(file.path(), 4, {"vm.pv=[]", "vm.no_ipi_broadcast=true"}, &events);
  CHECK(sent_ipis(events, 0xfc) == 300);
  const auto pv = run(file.path(), 4, {"vm.pv=[\"send_ipi\"]", "vm.no_ipi_broadcast=true"}, &events);
  CHECK(sent_ipis(events, 0xfc) == 0);
  CHECK(exits_of(pv).at("hypercall") == 100);
}

TEST_CASE("two hogs on one CPU share it, and a nice value weighs") {
  const TaskFile equal(R"({"global": {"duration": 1}, "tasks": {
    "a": {"phases": {"p": {"run": 100}}}, "b": {"phases": {"p": {"run": 100}}}}})");
  const auto fair = run(equal.path(), 1);
  CHECK(task_metric(fair, "a_rounds") / task_metric(fair, "b_rounds") == doctest::Approx(1.0).epsilon(0.02));
  CHECK(task_metric(fair, "a_computed_ns") + task_metric(fair, "b_computed_ns") > 0.9e9);
  const TaskFile nice(R"({"global": {"duration": 1}, "tasks": {
    "a": {"priority": 0, "phases": {"p": {"run": 100}}}, "b": {"priority": 5, "phases": {"p": {"run": 100}}}}})");
  const auto weighed = run(nice.path(), 1);
  CHECK(task_metric(weighed, "a_rounds") / task_metric(weighed, "b_rounds") ==
        doctest::Approx(1024.0 / 335.0).epsilon(0.05));
}

TEST_CASE("a sleep ends within its slack; a periodic timer keeps its beat") {
  const TaskFile sleeps(R"({"tasks": {"a": {"loop": 100, "phases": {"p": {"sleep": 100}}}}})");
  const double exact = task_metric(run(sleeps.path(), 1, {"vm.timer_slack_ns=0"}), "a_round_mean_ns");
  const double slack = task_metric(run(sleeps.path(), 1, {"vm.timer_slack_ns=50000"}), "a_round_mean_ns");
  CHECK(exact > 100'000);
  CHECK(exact < 125'000);
  CHECK(slack - exact == doctest::Approx(50'000).epsilon(0.1));
  const TaskFile beats(
      R"({"tasks": {"a": {"loop": 100, "phases": {"p": {"run": 30, "timer": {"period": 1000}}}}}})");
  CHECK(task_metric(run(beats.path(), 1), "a_round_mean_ns") == doctest::Approx(1'000'000).epsilon(0.01));
}

TEST_CASE("mutexes and barriers: nobody is lost") {
  const TaskFile file(R"({"tasks": {
    "w": {"instance": 6, "loop": 50, "phases": {"p": {"run": 7, "lock": "m", "run1": 3, "unlock": "m", "barrier": "b"}}}}})");
  const auto result = run(file.path(), 3);
  CHECK(result.failure.empty());
  CHECK(task_metric(result, "w_rounds") == 300);
}

TEST_CASE("an idle guest wakes for its watchdog alone") {
  const auto result = run("idle", 2, {"run.duration=\"40s\""});
  // 40 s: a sleep of a second on one CPU, and a watchdog every four on both.
  const auto exits = exits_of(result);
  CHECK(exits.at("hlt") >= 39 + 2 * 9);
  CHECK(exits.at("hlt") <= 41 + 2 * 11);
  const auto quiet = run("idle", 2, {"run.duration=\"40s\"", "vm.watchdog_thresh=0"});
  CHECK(exits_of(quiet).at("hlt") <= 42);
}

TEST_CASE("why the host is busy: answers of devices are no timers of the guest") {
  const std::vector<std::string> blocking{"kvm.halt_poll_ns=0", "run.duration=\"20ms\""};
  const TaskFile naps(R"({"tasks": {"a": {"phases": {"p": {"sleep": 10}}}}})");
  CHECK(run(naps.path(), 1, {"vm.timer_slack_ns=0", "kvm.halt_poll_ns=0", "run.duration=\"20ms\""})
            .busy_reason.rfind("timer storm", 0) == 0);
  const TaskFile answers(
      R"({"devices": {"d": {"latency": 40}}, "tasks": {"a": {"phases": {"p": {"io": "d"}}}}})");
  CHECK(run(answers.path(), 1, blocking).busy_reason.rfind("halt storm", 0) == 0);
  CHECK(run(answers.path(), 1, {"run.duration=\"20ms\""}).busy_reason.rfind("polling saturation", 0) == 0);
}

TEST_CASE("a vCPU that comes up late gets no task before") {
  // Four vCPUs on one pCPU: the last boots many wake-ups after the first.
  const auto result = run("transactions", 4, {"vm.pin=[0,0,0,0]", "run.duration=\"40ms\""});
  CHECK(result.failure.empty());
  CHECK(task_metric(result, "worker_rounds") > 20);
}

TEST_CASE("devices draw from the seed") {
  const auto one = run("pingpong", 1, {"run.seed=1"});
  const auto same = run("pingpong", 1, {"run.seed=1"});
  const auto other = run("pingpong", 1, {"run.seed=2"});
  CHECK(one.sim_cycles == same.sim_cycles);
  CHECK(one.sim_cycles != other.sim_cycles);
}

TEST_CASE("task sets: running ahead changes nothing") {
  const auto same = [](const std::string& tasks, unsigned vcpus, std::vector<std::string> overrides) {
    std::vector<workloads::TraceEvent> ahead;
    std::vector<workloads::TraceEvent> behind;
    const auto text = [](RunResult result) {
      result.wall_time_s = 0;
      result.scenario_json.clear();
      return to_json(result);
    };
    const std::string first = text(run(tasks, vcpus, overrides, &ahead));
    overrides.emplace_back("run.run_ahead=false");
    REQUIRE(first_difference(first, text(run(tasks, vcpus, overrides, &behind))) == "");
    REQUIRE(ahead.size() == behind.size());
    for (std::size_t i = 0; i < ahead.size(); ++i) {
      CAPTURE(i);
      REQUIRE(same_event(ahead[i], behind[i]));
    }
  };
  for (const char* idle : {"hlt", "haltpoll", "cpuidle_kvm", "poll"}) {
    CAPTURE(idle);
    same("transactions", 4, {fmt::format("vm.idle=\"{}\"", idle), "run.duration=\"20ms\"", "host.hz=250"});
  }
  same("transactions", 4, {"vm.native=true", "run.duration=20ms"});
  rc::check("random task sets", [&same] {
    const auto number = [](unsigned low, unsigned high) { return *rc::gen::inRange(low, high); };
    const unsigned vcpus = number(1, 5);
    std::string tasks;
    for (unsigned t = 0; t < number(1, 4) + 1; ++t) {
      std::string steps;
      for (unsigned s = 0; s < number(1, 5); ++s) {
        const std::string key = fmt::format("{}", 10 * t + s);
        switch (number(0, 7)) {
          case 0:
            steps += fmt::format(R"("run{}": {}, )", key, number(1, 300));
            break;
          case 1:
            steps += fmt::format(R"("sleep{}": {}, )", key, number(0, 300));
            break;
          case 2:
            steps += fmt::format(R"("io{}": "d", )", key);
            break;
          case 3:
            steps += fmt::format(R"("ipi{}": "all", )", key);
            break;
          case 4:
            steps += fmt::format(R"("lock{0}": "m", "run{0}9": 9, "unlock{0}": "m", )", key);
            break;
          case 5:
            steps += fmt::format(R"("resume{}": "t0", )", key);
            break;
          default:
            steps += fmt::format(R"("yield{}": "", )", key);
            break;
        }
      }
      tasks += fmt::format(R"({}"t{}": {{"instance": {}, "phases": {{"p": {{{}"sleep": {}}}}}}})",
                           t == 0 ? "" : ", ", t, number(1, 3), steps, number(1, 200));
    }
    const TaskFile file(
        fmt::format(R"({{"devices": {{"d": {{"latency": 20, "jitter": 15}}}}, "tasks": {{{}}}}})", tasks));
    const char* idle = *rc::gen::element("hlt", "haltpoll", "cpuidle_kvm", "poll");
    const char* native = *rc::gen::element("vm.native=true", "vm.native=false");
    std::vector<std::string> overrides{fmt::format("vm.idle=\"{}\"", idle), "run.duration=\"3ms\"",
                                       "host.hz=1000", "vm.guest_halt_poll_ns=60000"};
    // On pCPUs of its own, or where the host's scheduler puts the vCPUs, beside threads of its own.
    if (number(0, 2) == 0) {
      overrides.emplace_back(native);
    } else {
      overrides.emplace_back("vm.pin=[]");
      overrides.push_back(fmt::format("host.pcpus={}", number(1, vcpus + 1)));
      overrides.emplace_back(R"(host.task=[{name="t", count=2, phases=[{run="40us", sleep="90us"}]}])");
    }
    same(file.path(), vcpus, overrides);
  });
}
