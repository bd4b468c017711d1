// Simulated exits per second of the founding experiment, whole machine: SystemC, run loop, LAPIC, GuestCpu,
// harness.

#include <string>

#include <benchmark/benchmark.h>

#include "model/config/loader.hpp"
#include "model/simulation.hpp"

namespace {

using svmsim::model::load_scenario;
using svmsim::model::RunResult;
using svmsim::model::ScenarioSource;
using svmsim::model::Simulation;

constexpr char scenario_text[] =
    R"({"host": {"kernel": "6.1"}, "vm": [{"workload": {"kind": "idle_hlt_test"}}]})";

std::uint64_t count_exits(const RunResult& result) {
  std::uint64_t exits = 0;
  for (const auto& vcpu : result.vcpus)
    exits += vcpu.stats.exits;
  return exits;
}

void idle_hlt_test(benchmark::State& state, const std::string& idle_hlt) {
  const auto scenario =
      load_scenario(ScenarioSource::from_json(scenario_text, "."), {"kvm.idle_hlt=" + idle_hlt});
  std::uint64_t exits = 0;
  for (auto _ : state) {
    Simulation simulation(scenario);
    exits += count_exits(simulation.run());
  }
  state.counters["exits"] = benchmark::Counter(static_cast<double>(exits), benchmark::Counter::kIsRate);
}

BENCHMARK_CAPTURE(idle_hlt_test, hlt, std::string("false"))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(idle_hlt_test, idle_hlt, std::string("true"))->Unit(benchmark::kMillisecond);

}  // namespace
