// Hypercalls, PV EOI, and the IPIs of a modelled Linux guest: exact exits (kvm-software.md 1.9, 4).

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "model/guest_vms.hpp"
#include "tests/model/exits_text.hpp"
#include "tests/model/model_fixture.hpp"
#include "workloads/guest/pv_memory.hpp"

namespace svmsim::model::test {

namespace {

using svm::ActionKind;
using svm::GuestAction;

GuestAction hypercall(std::uint32_t number, std::array<std::uint64_t, 4> arguments = {},
                      std::uint8_t cpl = 0) {
  GuestAction action;
  action.kind = ActionKind::vmmcall;
  action.length = 3;
  action.number = number;
  action.operand = arguments;
  action.cpl = cpl;
  return action;
}

GuestAction msr(ActionKind kind, std::uint32_t number, std::uint64_t value = 0) {
  GuestAction action;
  action.kind = kind;
  action.length = 2;
  action.number = number;
  action.operand[0] = value;
  return action;
}

/// Runs a list with interrupts off and keeps the results; #GP ends it.
class ResultSource final : public workloads::WorkloadSource {
 public:
  ResultSource(std::vector<GuestAction> actions, std::vector<std::uint64_t>& results)
      : actions_(std::move(actions)), results_(results) {
    std::uint64_t rip = 0x1000;
    for (GuestAction& entry : actions_) {
      entry.rip = rip;
      rip = entry.next_rip();
    }
  }
  workloads::InitialState initial_state() const override {
    workloads::InitialState state;
    state.rip = 0x1000;
    state.apic_svr = 0x1ff;
    return state;
  }
  const GuestAction* current() override { return next_ < actions_.size() ? &actions_[next_] : nullptr; }
  void retire(std::uint64_t, std::uint64_t result) override {
    results_.push_back(result);
    ++next_;
  }
  void interrupt(std::uint8_t vector, std::uint64_t) override {
    results_.push_back(0xbad00 + vector);
    next_ = actions_.size();
  }
  std::uint64_t handler_entry(std::uint8_t) const override { return 0x2000; }
  workloads::Metrics metrics() const override { return {}; }

 private:
  std::vector<GuestAction> actions_;
  std::vector<std::uint64_t>& results_;
  std::size_t next_ = 0;
};

std::vector<std::uint64_t> results_of(const std::vector<GuestAction>& actions,
                                      std::vector<std::string> overrides = {}) {
  std::vector<std::uint64_t> results;
  overrides.insert(overrides.begin(), {"host.hz=0", "host.pcpus=1", "vm.pin=[0]"});
  Simulation simulation(scenario_of("cpuid", overrides));
  simulation.set_source_factory(
      [&](const VmConfig&, unsigned, unsigned) { return std::make_unique<ResultSource>(actions, results); });
  static_cast<void>(simulation.run());
  return results;
}

constexpr std::uint64_t enosys = std::uint64_t{0} - 1000;
constexpr std::uint64_t einval = std::uint64_t{0} - 22;
constexpr std::uint64_t eperm = std::uint64_t{0} - 1;

/// A guest of `cpus` vCPUs, each on a pCPU of its own, without the host's tick.
RunResult benchmark(unsigned cpus, std::vector<std::string> overrides) {
  const std::string pin = [&] {
    std::string list = "vm.pin=[0";
    for (unsigned i = 1; i < cpus; ++i)
      list += fmt::format(",{}", i);
    return list + "]";
  }();
  overrides.insert(overrides.begin(),
                   {"host.hz=0", fmt::format("host.pcpus={}", cpus), fmt::format("vm.vcpus={}", cpus), pin,
                    "vm.workload.target=busy", "vm.workload.iterations=100"});
  Simulation simulation(scenario_of("ipi_benchmark", overrides));
  RunResult result = simulation.run();
  CHECK(result.failure == "");
  return result;
}

}  // namespace

TEST_CASE("KVM_HC_SEND_IPI: accepted targets, or an error") {
  const std::uint32_t send = 10;
  CHECK(results_of({hypercall(send, {1, 0, 0, 0x41})}) == std::vector<std::uint64_t>{1});
  CHECK(results_of({hypercall(send, {2, 0, 0, 0x41})}) == std::vector<std::uint64_t>{0});     // no APIC 1
  CHECK(results_of({hypercall(send, {1, 0, 1000, 0x41})}) == std::vector<std::uint64_t>{0});  // nor 1000
  CHECK(results_of({hypercall(send, {1, 0, 0, 0x841})}) == std::vector<std::uint64_t>{einval});
  CHECK(results_of({hypercall(send, {1, 0, 0, 0x40041})}) == std::vector<std::uint64_t>{einval});
  CHECK(results_of({hypercall(send, {1, 0, 0, 0x41}, 3)}) == std::vector<std::uint64_t>{eperm});
}

TEST_CASE("hypercalls: known, unknown, and those that the CPUID does not show") {
  CHECK(results_of({hypercall(1), hypercall(2), hypercall(99)}) ==
        std::vector<std::uint64_t>{0, enosys, enosys});
  CHECK(results_of({hypercall(5, {0, 0, 0, 0}), hypercall(11, {0, 0, 0, 0})}) ==
        std::vector<std::uint64_t>{0, 0});
  const std::vector<GuestAction> all{hypercall(10, {1, 0, 0, 0x41}), hypercall(5), hypercall(11)};
  // KVM serves what it does not advertise, unless user space asks it not to.
  CHECK(results_of(all, {"vm.pv=[]"}) == std::vector<std::uint64_t>{1, 0, 0});
  CHECK(results_of(all, {"vm.pv=[]", "vm.pv_enforce_cpuid=true"}) ==
        std::vector<std::uint64_t>{enosys, enosys, enosys});
}

TEST_CASE("MSRs of PV features: alignment, reserved bits, what is stored") {
  using workloads::kvm_msr::poll_control;
  using workloads::kvm_msr::pv_eoi_en;
  const auto write = [](std::uint32_t number, std::uint64_t value) {
    return msr(ActionKind::wrmsr, number, value);
  };
  const std::uint64_t gp = 0xbad00 + 13;
  CHECK(results_of({write(pv_eoi_en, 0x1001), msr(ActionKind::rdmsr, pv_eoi_en)}).back() == 0x1001);
  CHECK(results_of({write(pv_eoi_en, 0x1003)}).back() == gp);
  CHECK(results_of({msr(ActionKind::rdmsr, poll_control)}).back() == 1);
  CHECK(results_of({write(poll_control, 0), msr(ActionKind::rdmsr, poll_control)}).back() == 0);
  CHECK(results_of({write(poll_control, 2)}).back() == gp);
  CHECK(results_of({write(pv_eoi_en, 0x1001)}, {"vm.pv=[]", "vm.pv_enforce_cpuid=true"}).back() == gp);
  CHECK(results_of({write(0x4b564d03, 0x3e)}).back() == gp);
}

TEST_CASE("CPUID 40000001h shows vm.pv, and the proposal hides PV_SEND_IPI") {
  GuestAction leaf;
  leaf.kind = ActionKind::cpuid;
  leaf.length = 2;
  leaf.number = 0x40000001;
  CHECK(results_of({leaf}, {R"(vm.pv=["eoi", "send_ipi"])"}).back() == (1U << 6 | 1U << 11));
  CHECK(results_of({leaf}, {"vm.pv=[]"}).back() == 0);
  CHECK((results_of({leaf}).back() & (1U << 11)) != 0);
  KvmConfig kvm;
  kvm.avic = true;
  VmConfig vm;
  vm.apic = "xapic";
  const auto shown = [&] { return (visible_pv(kvm, vm).features & kvm_feature::pv_send_ipi) != 0; };
  CHECK(shown());
  kvm.avic_hides_pv_send_ipi = true;
  CHECK_FALSE(shown());
  vm.apic = "x2apic";  // the 2021 AVIC could not serve it
  CHECK(shown());
  vm.apic = "xapic";
  kvm.avic = false;
  CHECK(shown());
}

TEST_CASE("one target, x2APIC: an ICR write for each IPI, never a hypercall") {
  for (const char* pv : {"vm.pv=[]", R"(vm.pv=["send_ipi"])"}) {
    for (const char* driver : {"physical", "cluster"}) {
      const RunResult result = benchmark(2, {pv, fmt::format("vm.apic_driver={}", driver)});
      CHECK(exits_of_vcpu(result, 0) == Exits{{"msr", 100}});
      CHECK(exits_of_vcpu(result, 1) == Exits{{"interrupt", 100}, {"msr", 100}});
    }
  }
}

TEST_CASE(
    "one target, xAPIC: a hypercall in flat mode with the feature, else three accesses of the APIC page") {
  const auto sender = [](const char* driver, const char* pv) {
    const RunResult result = benchmark(2, {"vm.apic=xapic", fmt::format("vm.apic_driver={}", driver), pv});
    Exits exits = exits_of_vcpu(result, 0);
    if (std::string(driver) == "flat") exits["npf"] -= 2;  // DFR and LDR, while the CPU boots
    if (exits["npf"] == 0) exits.erase("npf");
    return exits;
  };
  CHECK(sender("flat", R"(vm.pv=["send_ipi"])") == Exits{{"hypercall", 100}});
  CHECK(sender("flat", "vm.pv=[]") == Exits{{"npf", 300}});
  CHECK(sender("physical", R"(vm.pv=["send_ipi"])") == Exits{{"npf", 300}});
  CHECK(sender("physical", "vm.pv=[]") == Exits{{"npf", 300}});
}

TEST_CASE("one target under AVIC: no exit of the target, a hypercall only in flat mode") {
  const auto run = [](const char* apic, const char* driver, const char* pv) {
    return benchmark(2, {fmt::format("vm.apic={}", apic), fmt::format("vm.apic_driver={}", driver), pv,
                         "kvm.avic=true", "vm.pit=discard"});
  };
  const auto ipi_exits = [](const RunResult& result, unsigned vcpu) {
    Exits exits = exits_of_vcpu(result, vcpu);
    exits.erase("npf");                        // the first touch of the APIC page
    exits.erase("avic_unaccelerated_access");  // DFR and LDR
    return exits;
  };
  const char* hypercalls = R"(vm.pv=["send_ipi"])";
  for (const auto& [apic, driver] :
       {std::pair{"xapic", "physical"}, {"x2apic", "physical"}, {"x2apic", "cluster"}}) {
    CAPTURE(std::string(driver));
    CHECK(ipi_exits(run(apic, driver, hypercalls), 0) == Exits{});
    CHECK(ipi_exits(run(apic, driver, hypercalls), 1) == Exits{});
  }
  CHECK(ipi_exits(run("xapic", "flat", "vm.pv=[]"), 0) == Exits{});
  CHECK(ipi_exits(run("xapic", "flat", hypercalls), 0) == Exits{{"hypercall", 100}});
  CHECK(ipi_exits(run("xapic", "flat", hypercalls), 1) == Exits{});
}

TEST_CASE("PV EOI halves the exits of an interrupt") {
  const RunResult result = benchmark(2, {R"(vm.pv=["eoi"])"});
  CHECK(exits_of_vcpu(result, 0) == Exits{{"msr", 101}});
  CHECK(exits_of_vcpu(result, 1) == Exits{{"interrupt", 100}, {"msr", 1}});  // the MSR that enables it
}

TEST_CASE("call-function to 79 others: ICR writes, one hypercall, or a shorthand") {
  const std::vector<std::string> common{"vm.workload.test=broadcast", "vm.workload.iterations=10"};
  const auto sender = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    const RunResult result = benchmark(80, more);
    for (unsigned vcpu = 1; vcpu < 80; ++vcpu)
      CHECK(exits_of_vcpu(result, vcpu)["interrupt"] == 10);
    return exits_of_vcpu(result, 0);
  };
  CHECK(sender({"vm.pv=[]", "vm.no_ipi_broadcast=true"}) == Exits{{"msr", 790}});
  CHECK(sender({R"(vm.pv=["send_ipi"])", "vm.no_ipi_broadcast=true"}) == Exits{{"hypercall", 10}});
  CHECK(sender({"vm.pv=[]"}) == Exits{{"msr", 10}});
  CHECK(sender({R"(vm.pv=["send_ipi"])"}) == Exits{{"msr", 10}});
  CHECK(sender({"vm.pv=[]", "vm.no_ipi_broadcast=true", "vm.apic_driver=cluster"}) == Exits{{"msr", 50}});
}

TEST_CASE("the benchmark's call to itself sends no IPI") {
  for (const char* test : {"self", "dry_run"}) {
    const RunResult result = benchmark(2, {"vm.pv=[]", fmt::format("vm.workload.test={}", test)});
    CHECK(exits_of_vcpu(result, 0) == Exits{});
    CHECK(exits_of_vcpu(result, 1) == Exits{});
    CHECK(metric(result, "vm0.0.iterations") == 100);
  }
}

TEST_CASE("a target that halts, polls in the host, or is told by its polling flag") {
  const std::vector<std::string> gap{"vm.pv=[]", "vm.workload.gap_cycles=200000", "vm.workload.target=halt",
                                     "kvm.idle_hlt=false"};
  auto blocked = gap;
  blocked.emplace_back("kvm.halt_poll_ns=0");
  const RunResult sleeping = benchmark(2, blocked);
  CHECK(exits_of_vcpu(sleeping, 0) == Exits{{"msr", 100}});
  CHECK(exits_of_vcpu(sleeping, 1) == Exits{{"hlt", 100}, {"msr", 100}});
  CHECK(sleeping.vcpus[1].stats.halt_wakeup == 100);
  auto polling = gap;
  polling.insert(polling.end(), {"kvm.halt_poll_ns=1000000", "kvm.halt_poll_ns_grow_start=1000000"});
  const RunResult awake = benchmark(2, polling);
  CHECK(exits_of_vcpu(awake, 1) == Exits{{"hlt", 100}, {"msr", 100}});
  CHECK(awake.vcpus[1].stats.halt_successful_poll >= 98);
  CHECK(metric(awake, "vm0.0.latency_p50_ns") < metric(sleeping, "vm0.0.latency_p50_ns"));
  const RunResult flag =
      benchmark(2, {"vm.pv=[]", "vm.workload.target=poll", "vm.workload.polling_needs_no_ipi=true"});
  CHECK(exits_of_vcpu(flag, 0) == Exits{});
  CHECK(exits_of_vcpu(flag, 1)["interrupt"] == 0);
  CHECK(metric(flag, "vm0.0.calls") == 100);
}

TEST_CASE("idle=poll takes a pause exit each time the filter runs out") {
  const RunResult result = benchmark(
      2, {"vm.pv=[]", "vm.workload.target=poll", "vm.workload.iterations=1", "vm.workload.gap_cycles=1000000",
          "host.cost.g_spin_turn=100", "kvm.pause_filter_count_grow=0"});
  // 3001 turns of 100 cycles, and what the exit itself takes.
  CHECK(exits_of_vcpu(result, 1)["pause"] == 3);
  const RunResult slow = benchmark(2, {"vm.pv=[]", "vm.workload.target=poll", "vm.workload.iterations=1",
                                       "vm.workload.gap_cycles=1000000", "host.cost.g_spin_turn=129"});
  CHECK(exits_of_vcpu(slow, 1)["pause"] == 0);  // each gap is longer than the threshold
}

TEST_CASE("send: the sending alone is timed") {
  const RunResult result = benchmark(
      2, {"vm.pv=[]", "vm.workload.test=send", "vm.workload.gap_cycles=20000", "vm.workload.target=poll"});
  CHECK(exits_of_vcpu(result, 0)["msr"] == 100);
  const RunResult round =
      benchmark(2, {"vm.pv=[]", "vm.workload.gap_cycles=20000", "vm.workload.target=poll"});
  CHECK(metric(result, "vm0.0.total_ns") < metric(round, "vm0.0.total_ns"));
}

TEST_CASE("a sender yields to the first target that is preempted while it works") {
  // Both targets share pCPU 1: one of them is always preempted, by the host's tick.
  const auto run = [](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"host.hz=1000", "host.pcpus=2", "vm.vcpus=3", "vm.pin=[0,1,1]", "vm.workload.test=broadcast",
                 "vm.workload.target=busy", "vm.workload.iterations=20", "vm.no_ipi_broadcast=true"});
    Simulation simulation(scenario_of("ipi_benchmark", more));
    RunResult result = simulation.run();
    CHECK(result.failure == "");
    return result;
  };
  const RunResult yields = run({R"(vm.pv=["steal_time", "sched_yield"])"});
  const std::uint64_t hypercalls = exits_of_vcpu(yields, 0)["hypercall"];
  CHECK(hypercalls >= 15);
  CHECK(hypercalls <= 20);
  CHECK(yields.vcpus[0].stats.directed_yield_attempted == hypercalls);
  CHECK(yields.vcpus[0].stats.directed_yield_successful == 0);  // nothing else waits for pCPU 0
  CHECK(yields.vcpus[1].stats.preemption_reported > 5);
  CHECK(exits_of_vcpu(run({R"(vm.pv=["steal_time", "sched_yield"])", "vm.hints_realtime=true"}), 0)
            .count("hypercall") == 0);
  CHECK(exits_of_vcpu(run({R"(vm.pv=["sched_yield"])"}), 0).count("hypercall") == 0);
}

TEST_CASE("an APIC driver that the VM cannot have") {
  const auto problem = [](std::vector<std::string> overrides) {
    try {
      const Simulation simulation(scenario_of("ipi_benchmark", overrides));
    } catch (const UserError& error) {
      return error.problems().front().message;
    }
    return std::string();
  };
  CHECK(problem({"vm.vcpus=2", "vm.apic_driver=flat"}) == "flat needs apic = \"xapic\"");
}

}  // namespace svmsim::model::test
