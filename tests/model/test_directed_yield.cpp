// Who helps a target that is preempted: PV sched yield of a guest with a task set, and the boost of a target
// in user mode that AVIC has an interrupt for.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

std::uint64_t yields(const RunResult& result) {
  return std::accumulate(
      result.vcpus.begin(), result.vcpus.end(), std::uint64_t{0},
      [](std::uint64_t sum, const VcpuResult& vcpu) { return sum + vcpu.stats.directed_yield_successful; });
}

/// A guest whose caller interrupts the others, which compute in user mode; another VM shares the pCPUs of
/// `load`.
RunResult calls(unsigned vcpus, const std::string& load, const std::vector<std::string>& overrides) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("svmsim-calls-{}.json", ::getpid())).string();
  std::string users;
  std::string pins = "0";
  for (unsigned cpu = 1; cpu < vcpus; ++cpu) {
    users +=
        fmt::format(R"(, "user{0}": {{"loop": -1, "cpus": [{0}], "phases": {{"p": {{"run": 1000}}}}}})", cpu);
    pins += fmt::format(", {}", cpu);
  }
  std::ofstream(path)
      << R"({"tasks": {"caller": {"loop": -1, "cpus": [0], "phases": {"p": {"run": 300, "ipi": "all"}}})"
      << users << "}}";
  const std::string text = fmt::format(
      R"({{"host": {{"profile": "turin", "pcpus": {0}}}, "run": {{"duration": "300ms"}},
           "vm": [{{"vcpus": {0}, "pin": [{1}], "workload": {{"tasks": "{2}"}}}},
                  {{"name": "load", "vcpus": {3}, "pin": [{4}], "workload": {{"kind": "busy"}}}}]}})",
      vcpus, pins, path, std::count(load.begin(), load.end(), ',') + 1, load);
  RunResult result = Simulation(load_scenario(ScenarioSource::from_json(text), overrides)).run();
  std::filesystem::remove(path);
  return result;
}

}  // namespace

TEST_CASE("a task's call to several CPUs yields to a preempted one, if the guest has sched_yield") {
  const std::vector<std::string> common{"kvm.avic=false", "kvm.pause_filter_count=0"};
  std::vector<std::string> with = common;
  with.emplace_back(R"(vm.vm0.pv=["steal_time", "sched_yield"])");
  std::vector<std::string> without = common;
  without.emplace_back(R"(vm.vm0.pv=["steal_time"])");
  const RunResult yielding = calls(3, "0, 0, 1", with);
  CHECK(exits_of(yielding)["hypercall"] > 10);
  CHECK(yields(yielding) > 10);
  CHECK(yields(yielding) <= exits_of(yielding)["hypercall"]);
  const RunResult waiting = calls(3, "0, 0, 1", without);
  CHECK(exits_of(waiting)["hypercall"] == 0);
  CHECK(yields(waiting) == 0);
  // A call to one CPU goes another way, without the look (native_send_call_func_single_ipi).
  CHECK(exits_of(calls(2, "0, 0, 1", with))["hypercall"] == 0);
}

TEST_CASE("a spinning vCPU yields to one that was preempted in user mode if AVIC has its interrupt pending") {
  const std::vector<std::string> common{"kvm.avic=true", "vm.vm0.pv=[]"};
  std::vector<std::string> before = common;
  before.emplace_back("kvm.boosts_interrupt_target=false");
  const RunResult boosted = calls(2, "1", common);
  const RunResult waiting = calls(2, "1", before);
  // The boost ends waits that are the end of the other VM's turn otherwise; its pCPU's share stays a half, so
  // that there are few.
  CHECK(metric(boosted, "vm0.0.caller_rounds") > metric(waiting, "vm0.0.caller_rounds"));
}

}  // namespace svmsim::model::test
