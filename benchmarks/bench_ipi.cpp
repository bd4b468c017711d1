// Simulated exits and interrupt deliveries per second with many vCPUs: a broadcast to 255 others, and 64
// vCPUs that interrupt each other all the time.

#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "model/config/loader.hpp"
#include "model/simulation.hpp"

namespace {

using svmsim::model::load_scenario;
using svmsim::model::RunResult;
using svmsim::model::ScenarioSource;
using svmsim::model::Simulation;

struct Work {
  std::uint64_t exits = 0;
  std::uint64_t deliveries = 0;
};

void count(const RunResult& result, Work& work) {
  for (const auto& vcpu : result.vcpus) {
    work.exits += vcpu.stats.exits;
    work.deliveries += vcpu.stats.irq_injections;
  }
}

/// `messages`: what one run sends to single APICs, each accepted there, be it new or merged with one that
/// waits.
void run(benchmark::State& state, unsigned vcpus, std::uint64_t messages, const std::string& workload,
         const std::vector<std::string>& overrides) {
  std::string pin = "0";
  for (unsigned i = 1; i < vcpus; ++i)
    pin += fmt::format(", {}", i);
  const std::string text = fmt::format(
      R"({{"host": {{"pcpus": {0}, "hz": 0}}, "vm": [{{"vcpus": {0}, "pin": [{1}], "pv": ["send_ipi"],
                      "no_ipi_broadcast": true, "workload": {2}}}]}})",
      vcpus, pin, workload);
  const auto scenario = load_scenario(ScenarioSource::from_json(text, "."), overrides);
  Work work;
  for (auto _ : state) {
    Simulation simulation(scenario);
    count(simulation.run(), work);
  }
  const auto rate = [](std::uint64_t number) {
    return benchmark::Counter(static_cast<double>(number), benchmark::Counter::kIsRate);
  };
  state.counters["exits"] = rate(work.exits);
  state.counters["deliveries"] = rate(work.deliveries);
  state.counters["messages"] = rate(messages * static_cast<std::uint64_t>(state.iterations()));
}

constexpr char broadcast[] =
    R"({"kind": "ipi_benchmark", "test": "broadcast", "target": "busy", "iterations": 2000})";

void broadcast_255_icr(benchmark::State& state) {
  run(state, 256, 2000 * 255, broadcast, {"vm.pv=[]"});
}
BENCHMARK(broadcast_255_icr)->Unit(benchmark::kMillisecond);

void broadcast_255_pv(benchmark::State& state) {
  run(state, 256, 2000 * 255, broadcast, {});
}
BENCHMARK(broadcast_255_pv)->Unit(benchmark::kMillisecond);

void storm_64(benchmark::State& state) {
  run(state, 64, 2000 * 64 * 63, R"({"kind": "ipi_storm", "rounds": 2000})", {});
}
BENCHMARK(storm_64)->Unit(benchmark::kMillisecond);

}  // namespace
