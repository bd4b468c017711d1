// Scheduling and exit events per second of large hosts: mixed guests, eight vCPUs to a pCPU, unpinned; and an
// hour of idle vCPUs.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "model/config/loader.hpp"
#include "model/simulation.hpp"
#include "workloads/workload_source.hpp"

namespace {

using namespace svmsim;
using svm::ActionKind;
using svm::GuestAction;

/// Computes, halts for its neighbour's interrupt, interrupts the one after it; every eighth vCPU only
/// computes.
class MixedSource final : public workloads::WorkloadSource {
 public:
  MixedSource(unsigned vcpu, unsigned vcpus) {
    GuestAction compute;
    compute.cycles = 20000 + 1777U * (vcpu % 16);
    GuestAction ipi;
    ipi.kind = ActionKind::wrmsr;
    ipi.number = 0x830;
    ipi.length = 2;
    ipi.operand[0] = std::uint64_t{(vcpu + 1) % vcpus} << 32 | 0x41;
    GuestAction halt;
    halt.kind = ActionKind::hlt;
    halt.length = 1;
    if (vcpu % 8 == 7) {
      actions_ = {compute, ipi};
    } else {
      actions_ = {compute, ipi, halt};
    }
    std::uint64_t rip = base;
    for (GuestAction& action : actions_) {
      action.rip = rip;
      rip += 4;
    }
  }
  [[nodiscard]] workloads::InitialState initial_state() const override {
    workloads::InitialState state;
    state.rip = base;
    state.interrupts_enabled = true;
    state.apic_svr = 0x1ff;
    return state;
  }
  [[nodiscard]] const GuestAction* current() override {
    return handler_.empty() ? &actions_[next_] : &handler_.back();
  }
  void retire(std::uint64_t, std::uint64_t) override {
    if (handler_.empty()) {
      next_ = (next_ + 1) % actions_.size();
    } else if (handler_.back().kind == ActionKind::iret) {
      handler_.pop_back();
    } else {
      handler_.back().kind = ActionKind::iret;
    }
  }
  void interrupt(std::uint8_t vector, std::uint64_t) override {
    GuestAction eoi;
    eoi.kind = ActionKind::wrmsr;
    eoi.number = 0x80b;
    eoi.length = 2;
    eoi.rip = handler_entry(vector);
    handler_.push_back(eoi);
  }
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t) const override { return base + 0x1000; }
  [[nodiscard]] workloads::Metrics metrics() const override { return {}; }

 private:
  static constexpr std::uint64_t base = 0x400000;
  std::vector<GuestAction> actions_;
  std::vector<GuestAction> handler_;
  std::size_t next_ = 0;
};

/// Halts and is never woken: a tickless guest with nothing to do.
class IdleSource final : public workloads::WorkloadSource {
 public:
  IdleSource() {
    halt_.kind = ActionKind::hlt;
    halt_.length = 1;
  }
  [[nodiscard]] workloads::InitialState initial_state() const override {
    workloads::InitialState state;
    state.interrupts_enabled = true;
    return state;
  }
  [[nodiscard]] const GuestAction* current() override { return &halt_; }
  void retire(std::uint64_t, std::uint64_t) override {}
  void interrupt(std::uint8_t, std::uint64_t) override {}
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t) const override { return 0; }
  [[nodiscard]] workloads::Metrics metrics() const override { return {}; }

 private:
  GuestAction halt_;
};

std::string many_vms(unsigned vcpus, unsigned per_vm) {
  return R"({"vm": [{"workload": {"kind": "cpuid"}, "vcpus": )" + std::to_string(per_vm) + R"(, "count": )" +
         std::to_string(vcpus / per_vm) + "}]}";
}

void mixed(benchmark::State& state) {
  const auto vcpus = static_cast<unsigned>(state.range(0));
  const unsigned pcpus = vcpus / 8;
  // The same number of events whatever the size.
  const std::uint64_t duration_us = 16 * 1024 * 1000 / vcpus;
  const auto scenario = model::load_scenario(
      model::ScenarioSource::from_json(many_vms(vcpus, 16)),
      {"host.pcpus=" + std::to_string(pcpus), "run.duration=" + std::to_string(duration_us) + "us"});
  std::uint64_t events = 0;
  for (auto _ : state) {
    model::Simulation simulation(scenario);
    simulation.set_source_factory([](const model::VmConfig& vm, unsigned, unsigned vcpu) {
      return std::make_unique<MixedSource>(vcpu, vm.vcpus);
    });
    const model::RunResult result = simulation.run();
    for (const auto& vcpu : result.vcpus)
      events += vcpu.stats.exits;
    for (const auto& pcpu : result.pcpus)
      events += pcpu.context_switches;
  }
  state.counters["events"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}

void idle_hour(benchmark::State& state) {
  const auto scenario = model::load_scenario(model::ScenarioSource::from_json(many_vms(1000, 10)),
                                             {"host.pcpus=125", "run.duration=3600s"});
  for (auto _ : state) {
    model::Simulation simulation(scenario);
    simulation.set_source_factory(
        [](const model::VmConfig&, unsigned, unsigned) { return std::make_unique<IdleSource>(); });
    benchmark::DoNotOptimize(simulation.run());
  }
}

BENCHMARK(mixed)->Arg(64)->Arg(256)->Arg(1024)->Arg(4096)->Unit(benchmark::kMillisecond);
BENCHMARK(idle_hour)->Unit(benchmark::kMillisecond);

}  // namespace
