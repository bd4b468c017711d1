// Returns to user space: what they cost, and HLT where the APIC is not in the kernel.

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

std::uint64_t cycles_of(const Scenario& scenario) {
  Simulation simulation(scenario);
  return static_cast<std::uint64_t>(metric(simulation.run(), "cycles_per_iteration"));
}

}  // namespace

TEST_CASE("an I/O exit to user space takes t_user_exit more than one in the kernel") {
  const std::vector<std::string> common{"vm.workload.iterations=64", "host.hz=0",
                                        "host.cost.t_user_exit=5000", "host.cost.t_device=4000"};
  const std::uint64_t user = cycles_of(scenario_of("inl_from_qemu", common));
  const std::uint64_t kernel = cycles_of(scenario_of("inl_from_kernel", common));
  CHECK(user - kernel == 5000);
}

TEST_CASE("with the APIC in user space each HLT is an exit to user space, which comes back at once") {
  for (const char* kernel : {"6.1", "6.12", "6.18"}) {
    CAPTURE(std::string(kernel));
    const std::vector<std::string> common{std::string("host.kernel=") + kernel, "kvm.idle_hlt=false",
                                          "vm.workload.rounds=10", "host.hz=0"};
    std::vector<std::string> in_user = common;
    in_user.emplace_back("vm.irqchip=user");
    Simulation simulation(scenario_of("svm_idle_hlt_test", in_user));
    RecordingSink sink;
    simulation.add_sink(sink);
    const RunResult result = simulation.run();
    CHECK(result.failure.empty());
    const auto exits = std::count_if(sink.events.begin(), sink.events.end(), [](const auto& event) {
      return event.kind == workloads::EventKind::kvm_userspace_exit && event.field[0] == 5;  // KVM_EXIT_HLT
    });
    CHECK(exits == 10);
    CHECK(result.vcpus[0].stats.halt_exits == 10);
    // Nothing of a device in it, and no shortcut of the kernel.
    const Costs& cost = scenario_of("svm_idle_hlt_test", in_user).host.cost;
    const auto rows = total_exits(result);
    const auto hlt = std::find_if(rows.begin(), rows.end(),
                                  [](const ExitStats::Row& row) { return exit_row_name(row.code) == "hlt"; });
    REQUIRE(hlt != rows.end());
    const std::uint64_t least = cost.t_loop + cost.h_hlt + cost.t_user_exit - cost.t_device;
    CHECK(hlt->counter.time / hlt->counter.count >= least);
    CHECK(hlt->counter.time / hlt->counter.count < least + cost.t_device);
    const RunResult in_kernel = Simulation(scenario_of("svm_idle_hlt_test", common)).run();
    CHECK(in_kernel.sim_cycles < result.sim_cycles);
  }
}

TEST_CASE("host.guest_hlt_depth: a halt in guest mode ends as slowly as the idle state that it reaches") {
  const auto wake = [](std::vector<std::string> overrides) {
    return scenario_of("cpuid", std::move(overrides)).host.cost.t_halt_wake;
  };
  CHECK(wake({"host.profile=zen2"}) == 2250);
  CHECK(wake({"host.profile=zen2", "host.guest_hlt_depth=C2"}) == 21 * 2250);
  CHECK_THROWS_AS(scenario_of("cpuid", {"host.guest_hlt_depth=C9"}), UserError);
}

TEST_CASE("vm.native is a key: a task set on the pCPUs themselves makes no exits") {
  const std::string text =
      R"({"vm": [{"native": true, "pin": [0], "workload": {"tasks": "pingpong"}}], "run": {"duration": "5ms"}})";
  const RunResult result = Simulation(load_scenario(ScenarioSource::from_json(text), {})).run();
  CHECK(total_exits(result).empty());
  CHECK(metric(result, "client_rounds") > 100);
}

}  // namespace svmsim::model::test
