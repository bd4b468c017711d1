// HLT that blocks or polls, and who wakes it.

#include <doctest/doctest.h>

#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

Scenario ping_pong(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"host.pcpus=2", "vm.vcpus=2", "vm.pin=[0, 1]", "host.hz=0"});
  return scenario_of("ping_pong", overrides);
}

std::uint64_t idle_of(const PcpuResult& pcpu) {
  std::uint64_t sum = 0;
  for (const auto& [state, cycles] : pcpu.idle_cycles)
    sum += cycles;
  return sum;
}

}  // namespace

TEST_CASE("without polling every halt blocks and is woken once") {
  const RunResult result = Simulation(ping_pong({"kvm.halt_poll_ns=0", "host.cost.t_sched_out=100"})).run();
  CHECK(result.failure.empty());
  for (const VcpuResult& vcpu : result.vcpus) {
    CHECK(vcpu.stats.halt_exits > 0);
    CHECK(vcpu.stats.halt_attempted_poll == 0);
    CHECK(vcpu.stats.halt_wakeup > 0);
    CHECK(vcpu.stats.halt_wakeup <= vcpu.stats.halt_exits);
    CHECK(vcpu.stats.halt_wait_ns > 0);
  }
  for (const PcpuResult& pcpu : result.pcpus)
    CHECK(idle_of(pcpu) > 0);
}

TEST_CASE("short waits make the window grow until polling succeeds") {
  const RunResult result = Simulation(ping_pong({"kvm.halt_poll_ns=200000"})).run();
  for (const VcpuResult& vcpu : result.vcpus) {
    CHECK(vcpu.stats.halt_successful_poll > 0);
    CHECK(vcpu.stats.halt_successful_poll <= vcpu.stats.halt_attempted_poll);
  }
  CHECK(result.pcpus[0].poll_cycles + result.pcpus[1].poll_cycles > 0);
  const RunResult blocked = Simulation(ping_pong({"kvm.halt_poll_ns=0"})).run();
  CHECK(result.wakeup_latency.mean() < blocked.wakeup_latency.mean());
}

TEST_CASE("the parts of an exit's time add up and stay within it") {
  const RunResult result = Simulation(ping_pong({"kvm.halt_poll_ns=10000"})).run();
  for (const auto& row : total_exits(result)) {
    const ExitCounter& counter = row.counter;
    CHECK(counter.polling + counter.blocked + counter.runqueue + counter.cstate <= counter.time);
    if (row.code != 0x78 && row.code != 0xa6) CHECK(counter.polling + counter.blocked == 0);
  }
}

TEST_CASE("the time of a pCPU is all accounted for") {
  for (const char* poll : {"kvm.halt_poll_ns=0", "kvm.halt_poll_ns=200000"}) {
    const RunResult result = Simulation(ping_pong({poll, "run.duration=3ms"})).run();
    for (const PcpuResult& pcpu : result.pcpus) {
      CHECK(pcpu.guest_cycles + pcpu.host_cycles + pcpu.poll_cycles + idle_of(pcpu) == result.sim_cycles);
    }
  }
}

TEST_CASE("the warm-up counts for nothing") {
  const RunResult whole = Simulation(ping_pong({"run.duration=3ms", "vm.workload.rounds=1000000"})).run();
  const RunResult measured =
      Simulation(ping_pong({"run.duration=3ms", "run.warmup=1ms", "vm.workload.rounds=1000000"})).run();
  CHECK(measured.sim_cycles * 3 == whole.sim_cycles * 2);
  for (const PcpuResult& pcpu : measured.pcpus) {
    CHECK(pcpu.guest_cycles + pcpu.host_cycles + pcpu.poll_cycles + idle_of(pcpu) == measured.sim_cycles);
  }
  const double share =
      static_cast<double>(measured.vcpus[0].stats.exits) / static_cast<double>(whole.vcpus[0].stats.exits);
  CHECK(share > 0.6);
  CHECK(share < 0.75);
  // A guest that ended during the warm-up has nothing to show.
  const RunResult ended =
      Simulation(ping_pong({"run.duration=60ms", "run.warmup=50ms", "vm.workload.rounds=10"})).run();
  CHECK(ended.vcpus[0].stats.exits == 0);
  CHECK(total_exits(ended).empty());
}

TEST_CASE("two vCPUs share a pCPU in turns") {
  const RunResult result = Simulation(scenario_of("ping_pong", {"vm.vcpus=2", "vm.pin=[0, 0]"})).run();
  CHECK(result.failure.empty());
  CHECK(result.pcpus[0].context_switches > 100);
}

TEST_CASE("a guest that halts for ever is reported, not waited for") {
  class Sleeper final : public workloads::WorkloadSource {
   public:
    workloads::InitialState initial_state() const override { return {}; }
    const svm::GuestAction* current() override { return &action_; }
    void retire(std::uint64_t, std::uint64_t) override {}
    void interrupt(std::uint8_t, std::uint64_t) override {}
    std::uint64_t handler_entry(std::uint8_t) const override { return 0; }
    workloads::Metrics metrics() const override { return {}; }

   private:
    svm::GuestAction action_{svm::ActionKind::hlt, 1, 0, 0, 0, 0, 0, {}};
  };
  Simulation simulation(scenario_of("cpuid", {"host.hz=0"}));
  simulation.set_source_factory(
      [](const VmConfig&, unsigned, unsigned) { return std::make_unique<Sleeper>(); });
  CHECK(simulation.run().failure.find("halted") != std::string::npos);
}

}  // namespace svmsim::model::test
