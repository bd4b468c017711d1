// vCPU threads under the host's scheduler: pinning, placement, preemption, host tasks, idle states, disabled
// exits, and where the time of halts goes.

#include <algorithm>
#include <numeric>

#include <doctest/doctest.h>

#include "model/stats/busy_reason.hpp"
#include "tests/model/model_fixture.hpp"
#include "tests/model/random_source.hpp"

namespace svmsim::model::test {

namespace {

using svm::ActionKind;
using svm::GuestAction;

/// A guest that repeats a list of actions for ever.
class LoopSource final : public workloads::WorkloadSource {
 public:
  explicit LoopSource(std::vector<GuestAction> actions, bool interrupts = true)
      : actions_(std::move(actions)), interrupts_(interrupts) {
    std::uint64_t rip = 0x400000;
    for (GuestAction& action : actions_) {
      action.rip = rip;
      if (action.length == 0) action.length = 2;
      rip += action.length;
    }
  }
  [[nodiscard]] workloads::InitialState initial_state() const override {
    workloads::InitialState state;
    state.rip = 0x400000;
    state.interrupts_enabled = interrupts_;
    state.apic_svr = 0x1ff;
    return state;
  }
  [[nodiscard]] const GuestAction* current() override {
    return handlers_.empty() ? &actions_[next_] : &handlers_.back();
  }
  void retire(std::uint64_t, std::uint64_t) override {
    ++retired_;
    if (handlers_.empty()) {
      next_ = (next_ + 1) % actions_.size();
    } else if (handlers_.back().kind == ActionKind::iret) {
      handlers_.pop_back();
    } else {
      handlers_.back().kind = ActionKind::iret;
    }
  }
  void interrupt(std::uint8_t vector, std::uint64_t) override {
    GuestAction eoi;
    eoi.kind = ActionKind::wrmsr;
    eoi.length = 2;
    eoi.number = 0x80b;
    eoi.rip = handler_entry(vector);
    handlers_.push_back(eoi);
  }
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t vector) const override {
    return 0x800000U + vector * 16U;
  }
  [[nodiscard]] workloads::Metrics metrics() const override {
    return {{"retired", static_cast<double>(retired_)}};
  }

 private:
  std::vector<GuestAction> actions_;
  bool interrupts_;
  std::size_t next_ = 0;
  std::uint64_t retired_ = 0;
  std::vector<GuestAction> handlers_;
};

GuestAction compute(std::uint64_t cycles) {
  GuestAction action;
  action.cycles = cycles;
  return action;
}

GuestAction of(ActionKind kind) {
  GuestAction action;
  action.kind = kind;
  return action;
}

GuestAction ipi(unsigned target, unsigned vector = 0x41) {
  GuestAction action = of(ActionKind::wrmsr);
  action.number = 0x830;
  action.operand[0] = std::uint64_t{target} << 32 | vector;
  return action;
}

struct Run {
  RunResult result;
  std::vector<workloads::TraceEvent> events;
};

Run run(const Scenario& scenario, const SourceFactory& factory) {
  Simulation simulation(scenario);
  simulation.set_source_factory(factory);
  RecordingSink sink;
  simulation.add_sink(sink);
  Run run;
  run.result = simulation.run();
  run.events = std::move(sink.events);
  return run;
}

SourceFactory busy_guests(std::uint64_t cycles = 100000) {
  return [cycles](const VmConfig&, unsigned, unsigned) {
    return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(cycles)});
  };
}

Scenario scenario(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), "kvm.idle_hlt=false");  // so that halts are hlt exits
  return scenario_of("cpuid", std::move(overrides));
}

std::uint64_t guest_cycles(const RunResult& result) {
  return std::accumulate(result.pcpus.begin(), result.pcpus.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const PcpuResult& pcpu) { return sum + pcpu.guest_cycles; });
}

double share_of(const RunResult& result, unsigned vcpu, const std::vector<workloads::TraceEvent>&) {
  return metric(result, result.vcpus[vcpu].vm + "." + std::to_string(result.vcpus[vcpu].vcpu) + ".retired");
}

}  // namespace

TEST_CASE("two busy vCPUs on one pCPU share it evenly, and by nice where it differs") {
  for (const char* sched : {"cfs", "eevdf"}) {
    CAPTURE(std::string(sched));
    const std::string choice = std::string("host.sched=") + sched;
    const Run even = run(scenario({choice, "vm.vcpus=2", "vm.pin=[0, 0]", "run.duration=2s"}), busy_guests());
    CHECK(share_of(even.result, 0, even.events) / share_of(even.result, 1, even.events) ==
          doctest::Approx(1.0).epsilon(0.03));
    const std::string two = R"({"vm": [{"workload": {"kind": "cpuid"}, "pin": [0]},
                                       {"workload": {"kind": "cpuid"}, "pin": [0], "nice": 5}]})";
    const Run nice =
        run(load_scenario(ScenarioSource::from_json(two), {choice, "run.duration=4s"}), busy_guests());
    CHECK(share_of(nice.result, 0, nice.events) / share_of(nice.result, 1, nice.events) ==
          doctest::Approx(1024.0 / 335).epsilon(0.06));
  }
}

TEST_CASE("unpinned vCPUs spread over idle pCPUs; pinned ones do not move") {
  const Run free =
      run(scenario({"vm.vcpus=4", "host.pcpus=4", "vm.affinity=[0, 1, 2, 3]", "run.duration=50ms"}),
          busy_guests());
  for (const PcpuResult& pcpu : free.result.pcpus)
    CHECK(pcpu.guest_cycles * 10 > free.result.sim_cycles * 9);
  const Run pinned = run(scenario({"vm.vcpus=4", "host.pcpus=4", "vm.pin=[1, 1, 1, 1]", "run.duration=50ms"}),
                         busy_guests());
  CHECK(pinned.result.migrations == 0);
  CHECK(pinned.result.pcpus[0].guest_cycles == 0);
  CHECK(guest_cycles(pinned.result) <= pinned.result.sim_cycles);
}

TEST_CASE("a pCPU that would go idle pulls a waiting thread, unless balancing is off") {
  // Five hogs on four pCPUs whose first threads end: vCPU 4 waits behind vCPU 0.
  const std::string two = R"({"vm": [{"workload": {"kind": "cpuid"}, "vcpus": 5}]})";
  const auto factory = [](const VmConfig&, unsigned,
                          unsigned vcpu) -> std::unique_ptr<workloads::WorkloadSource> {
    if (vcpu == 0 || vcpu == 4)
      return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(100000)});
    return std::make_unique<RandomSource>(7, 0, 1, 30);  // soon over
  };
  for (const bool balance : {true, false}) {
    const Run result = run(load_scenario(ScenarioSource::from_json(two),
                                         {"host.pcpus=4", "run.duration=100ms",
                                          std::string("host.balance=") + (balance ? "true" : "false")}),
                           factory);
    CAPTURE(balance);
    CHECK((result.result.migrations != 0) == balance);
    const double busy =
        static_cast<double>(guest_cycles(result.result)) / static_cast<double>(result.result.sim_cycles);
    CHECK(busy == doctest::Approx(balance ? 1.95 : 0.99).epsilon(0.05));
  }
}

TEST_CASE("SCHED_FIFO keeps its pCPU, SCHED_IDLE gets next to nothing") {
  const std::string two = R"({"vm": [{"workload": {"kind": "cpuid"}, "pin": [0]},
                                     {"workload": {"kind": "cpuid"}, "pin": [0], "sched": "%s"}]})";
  const auto ratio = [&](const std::string& sched) {
    std::string text = two;
    text.replace(text.find("%s"), 2, sched);
    const Run r = run(load_scenario(ScenarioSource::from_json(text), {"run.duration=2s"}), busy_guests());
    return share_of(r.result, 1, r.events) / std::max(1.0, share_of(r.result, 0, r.events));
  };
  CHECK(ratio("fifo") > 1000);
  CHECK(ratio("idle") < 0.02);
  CHECK(ratio("batch") == doctest::Approx(1.0).epsilon(0.05));
}

TEST_CASE("a host task takes its share and waits for its turn; a sleeping one wakes on time") {
  const std::string text = R"({"host": {"task": [
      {"name": "hog", "cpus": [0], "phases": [{"run": "5ms"}]},
      {"name": "timer", "cpus": [1], "phases": [{"run": "100us", "period": "1ms"}]}]},
      "vm": [{"workload": {"kind": "cpuid"}, "pin": [0]}]})";
  const Run r =
      run(load_scenario(ScenarioSource::from_json(text), {"host.pcpus=2", "run.duration=1s"}), busy_guests());
  REQUIRE(r.result.tasks.size() == 2);
  const auto seconds = [&](std::uint64_t cycles) {
    return static_cast<double>(cycles) / static_cast<double>(r.result.tsc_hz);
  };
  CHECK(seconds(r.result.tasks[0].run_cycles) == doctest::Approx(0.5).epsilon(0.05));
  CHECK(r.result.tasks[1].loops >= 999);
  CHECK(r.result.tasks[1].loops <= 1001);
  CHECK(seconds(r.result.tasks[1].run_cycles) == doctest::Approx(0.1).epsilon(0.01));
  CHECK(r.result.tasks[1].wakeup_latency.count() >= 998);
  // Idle wake-up: interrupt, C-state, scheduler: microseconds, not milliseconds.
  CHECK(seconds(r.result.tasks[1].wakeup_latency.percentile(500)) < 100e-6);
  CHECK(seconds(r.result.pcpus[1].task_cycles) == doctest::Approx(0.1).epsilon(0.02));
}

TEST_CASE("the waiting of a preempted vCPU is run-queue wait, not handling") {
  const std::string text = R"({"host": {"task": [{"name": "hog", "cpus": [0], "phases": [{"run": "5ms"}]}]},
      "vm": [{"workload": {"kind": "cpuid"}, "pin": [0]}]})";
  const Run r = run(load_scenario(ScenarioSource::from_json(text), {"run.duration=1s"}), busy_guests());
  const auto rows = total_exits(r.result);
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [](const ExitStats::Row& x) { return exit_row_name(x.code) == "interrupt"; });
  REQUIRE(row != rows.end());
  const double half_second = 0.5 * static_cast<double>(r.result.tsc_hz);
  CHECK(static_cast<double>(row->counter.runqueue) == doctest::Approx(half_second).epsilon(0.05));
  CHECK(row->counter.handling() * 20 < row->counter.runqueue);
  std::uint64_t reported = 0;
  for (const auto& vcpu : r.result.vcpus)
    reported += vcpu.stats.preemption_reported;
  CHECK(reported > 100);
}

TEST_CASE("the split of a halt adds up, part by part") {
  // vCPU 0 wakes vCPU 1 every 300 us; each part is known from the costs.
  const Scenario s = scenario({"vm.vcpus=2", "host.pcpus=2", "vm.pin=[0, 1]", "run.duration=100ms",
                               "host.hz=0", "kvm.halt_poll_ns=0", "host.idle_governor=none"});
  const auto factory = [](const VmConfig&, unsigned, unsigned vcpu) {
    if (vcpu == 0) return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(810000), ipi(1)});
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::hlt)});
  };
  const Run r = run(s, factory);
  const ExitCounter halts = halt_split(r.result.vcpus[1].exits);
  REQUIRE(halts.count > 300);
  const Costs& cost = s.host.cost;
  const double count = static_cast<double>(halts.count);
  CHECK(halts.polling == 0);
  CHECK(halts.time == halts.handling() + halts.polling + halts.blocked + halts.runqueue + halts.cstate);
  const std::uint64_t wake = s.host.cstates.front().wake_ns * s.host.tsc_hz / 1000000000;
  CHECK(static_cast<double>(halts.cstate) / count ==
        doctest::Approx(static_cast<double>(wake)).epsilon(0.001));
  // From the waker's decision: its own work, the IPI, the interrupt, the switch.
  const double wait = cost.t_wakeup + cost.t_ipi_hw + cost.t_irq_host + cost.t_sched_in;
  CHECK(static_cast<double>(halts.runqueue) / count == doctest::Approx(wait).epsilon(0.1));
  // What is blocked is the period less all the rest.
  CHECK(halts.blocked > halts.time * 9 / 10);
  const ExitCounter total = halt_split(total_exits(r.result));
  CHECK(total.time == halts.time);
}

TEST_CASE("polling takes the place of blocking in the split, and is the pCPU's poll time") {
  const Scenario s =
      scenario({"vm.vcpus=2", "host.pcpus=2", "vm.pin=[0, 1]", "run.duration=100ms", "host.hz=0"});
  const auto factory = [](const VmConfig&, unsigned, unsigned vcpu) {
    if (vcpu == 0) return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(270000), ipi(1)});
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::hlt)});
  };
  const Run r = run(s, factory);
  const ExitCounter halts = halt_split(r.result.vcpus[1].exits);
  CHECK(halts.polling > halts.time * 8 / 10);
  CHECK(static_cast<double>(r.result.pcpus[1].poll_cycles) ==
        doctest::Approx(static_cast<double>(halts.polling)).epsilon(0.01));
  CHECK(r.result.busy_reason.empty());  // vCPU 0 works
}

TEST_CASE("one line says why the host is busy while guests are idle") {
  // One vCPU wakes eight others at a time, which poll most of it.
  GuestAction all = of(ActionKind::wrmsr);
  all.number = 0x830;
  all.operand[0] = 0xc0041;  // all but self
  const auto wake_all = [&](const VmConfig&, unsigned, unsigned vcpu) {
    if (vcpu == 0) return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(270000), all});
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::hlt)});
  };
  const Run polling =
      run(scenario({"vm.vcpus=9", "host.pcpus=9", "vm.pin=[0, 1, 2, 3, 4, 5, 6, 7, 8]", "run.duration=50ms"}),
          wake_all);
  CAPTURE(polling.result.busy_reason);
  CHECK(polling.result.busy_reason.rfind("polling saturation", 0) == 0);
  // Ping-pong with next to no work of the guests.
  const auto factory = [](const VmConfig&, unsigned, unsigned vcpu) {
    std::vector<GuestAction> actions{ipi(1 - vcpu), of(ActionKind::hlt)};
    if (vcpu == 1) std::swap(actions[0], actions[1]);
    return std::make_unique<LoopSource>(std::move(actions));
  };
  const std::vector<std::string> common{"vm.vcpus=2", "host.pcpus=2", "vm.pin=[0, 1]", "run.duration=100ms"};
  auto without = common;
  without.emplace_back("kvm.halt_poll_ns=0");
  const Run storm = run(scenario(without), factory);
  CHECK(storm.result.busy_reason.rfind("halt storm", 0) == 0);
  const Run working = run(scenario({"run.duration=10ms"}), busy_guests());
  CHECK(working.result.busy_reason == "");
}

TEST_CASE("idle states: short idles take C1, long ones C2; the wake-up costs what the state really takes") {
  const auto factory = [](std::uint64_t gap) {
    return [gap](const VmConfig&, unsigned, unsigned vcpu) {
      if (vcpu == 0) return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(gap), ipi(1)});
      return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::hlt)});
    };
  };
  const std::vector<std::string> common{"vm.vcpus=2", "host.pcpus=2", "vm.pin=[0, 1]", "run.duration=400ms",
                                        "kvm.halt_poll_ns=0"};
  const auto idle_share = [](const RunResult& result, const std::string& name) {
    double all = 0;
    double of_name = 0;
    for (const auto& [state, cycles] : result.pcpus[1].idle_cycles) {
      all += static_cast<double>(cycles);
      if (state == name) of_name = static_cast<double>(cycles);
    }
    return of_name / all;
  };
  for (const char* governor : {"menu", "teo"}) {
    CAPTURE(std::string(governor));
    auto overrides = common;
    overrides.push_back(std::string("host.idle_governor=") + governor);
    const Run soon = run(scenario(overrides), factory(270000));  // 100 us
    CHECK(idle_share(soon.result, "C1") > 0.8);
    const Run late = run(scenario(overrides), factory(27000000));  // 10 ms
    CHECK(idle_share(late.result, "C2") > 0.6);
    CHECK(late.result.wakeup_latency.percentile(500) > soon.result.wakeup_latency.percentile(500) + 100000);
  }
}

TEST_CASE("HLT exits disabled: the guest halts without an exit, and its pCPU counts as busy") {
  const auto factory = [](const VmConfig&, unsigned, unsigned vcpu) {
    if (vcpu == 0) return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(270000), ipi(1)});
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::hlt)});
  };
  const std::vector<std::string> common{"vm.vcpus=2", "host.pcpus=2", "vm.pin=[0, 1]", "run.duration=100ms"};
  auto off = common;
  off.emplace_back(R"(vm.disable_exits=["hlt"])");
  const Run with = run(scenario(common), factory);
  const Run without = run(scenario(off), factory);
  CHECK(exits_of(with.result)["hlt"] > 900);
  CHECK(exits_of(without.result)["hlt"] == 0);
  CHECK(without.result.vcpus[1].stats.halt_exits == 0);
  CHECK(without.result.vcpus[1].stats.halt_attempted_poll == 0);
  // A kick per IPI, and the ticks that a running thread has.
  const double interrupts = static_cast<double>(exits_of(without.result)["interrupt"]);
  CHECK(interrupts > 900);
  CHECK(without.result.pcpus[1].guest_cycles * 10 > without.result.sim_cycles * 9);
}

TEST_CASE("HLT exits disabled: every host interrupt ends the guest's halt") {
  const auto factory = [](const VmConfig&, unsigned, unsigned) {
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::hlt)});
  };
  const Run r = run(scenario({"run.duration=1s", R"(vm.disable_exits=["hlt"])", "host.hz=250"}), factory);
  // 250 ticks, each of them an exit and the end of one HLT.
  CHECK(exits_of(r.result)["interrupt"] == 249);
  CHECK(metric(r.result, "retired") == 250);
}

TEST_CASE("HLT exits of one vCPU: disabled and taken again at run time") {
  const auto factory = [](const VmConfig&, unsigned, unsigned vcpu) {
    if (vcpu == 0)
      return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(270000), ipi(1), ipi(2)});
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::hlt)});
  };
  const std::string text = R"({"vm": [{"workload": {"kind": "cpuid"}, "vcpus": 3, "pin": [0, 1, 2],
      "disable_exits": [{"vcpu": 1, "exits": ["hlt"], "at": "20ms"},
                        {"vcpu": 1, "exits": ["hlt"], "at": "80ms", "enable": false}]}]})";
  const Run r = run(load_scenario(ScenarioSource::from_json(text),
                                  {"kvm.idle_hlt=false", "host.pcpus=3", "run.duration=100ms"}),
                    factory);
  const auto& one = r.result.vcpus[1].stats;
  const auto& two = r.result.vcpus[2].stats;
  CHECK(static_cast<double>(one.halt_exits) / static_cast<double>(two.halt_exits) ==
        doctest::Approx(0.4).epsilon(0.05));
  CHECK(one.signal_exits == 2);
  CHECK(two.signal_exits == 0);
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  for (const auto& event : r.events) {
    if (event.kind != workloads::EventKind::kvm_exit || event.vcpu != 1 ||
        event.field[0] != svm::exit_code::hlt)
      continue;
    const std::uint64_t ms = event.time * 1000 / r.result.tsc_hz;
    if (ms >= 21 && ms < 80) ++first;
    if (ms >= 81) ++last;
  }
  CHECK(first == 0);
  CHECK(last > 150);
}

TEST_CASE("VM-wide disabled exits after vCPU creation: without effect up to 6.12, refused since") {
  const auto factory = [](const VmConfig&, unsigned, unsigned vcpu) {
    if (vcpu == 0) return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(270000), ipi(1)});
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::hlt)});
  };
  const std::string text = R"({"vm": [{"workload": {"kind": "cpuid"}, "vcpus": 2, "pin": [0, 1],
      "disable_exits": [{"exits": ["hlt"], "at": "20ms"}]}]})";
  const Run r = run(load_scenario(ScenarioSource::from_json(text),
                                  {"kvm.idle_hlt=false", "host.pcpus=2", "run.duration=50ms"}),
                    factory);
  CHECK(exits_of(r.result)["hlt"] > 450);
  CHECK_THROWS_WITH_AS(
      (void)load_scenario(ScenarioSource::from_json(text), {"host.kernel=6.18", "host.pcpus=2"}),
      doctest::Contains("EINVAL"), UserError);
}

TEST_CASE("KVM_CAP_HALT_POLL replaces the module parameter, for its VM alone") {
  const auto factory = [](const VmConfig&, unsigned, unsigned vcpu) {
    if (vcpu == 0) return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(270000), ipi(1)});
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::hlt)});
  };
  const std::string text = R"({"vm": [
      {"workload": {"kind": "cpuid"}, "vcpus": 2, "pin": [0, 1], "halt_poll_ns": 0},
      {"workload": {"kind": "cpuid"}, "vcpus": 2, "pin": [2, 3]}]})";
  const Run r =
      run(load_scenario(ScenarioSource::from_json(text), {"host.pcpus=4", "run.duration=50ms"}), factory);
  CHECK(r.result.vcpus[1].stats.halt_attempted_poll == 0);
  CHECK(r.result.vcpus[3].stats.halt_attempted_poll > 400);
  CHECK(r.result.vcpus[3].stats.halt_successful_poll + 10 > r.result.vcpus[3].stats.halt_attempted_poll);
}

TEST_CASE("MSR_KVM_POLL_CONTROL: bit 0 forbids host polling, any other bit is #GP") {
  GuestAction off = of(ActionKind::wrmsr);
  off.number = 0x4b564d05;
  const auto factory = [off](const VmConfig&, unsigned, unsigned vcpu) {
    if (vcpu == 0) return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(270000), ipi(1)});
    return std::make_unique<LoopSource>(std::vector<GuestAction>{off, of(ActionKind::hlt)});
  };
  const Run r = run(scenario({"vm.vcpus=2", "host.pcpus=2", "vm.pin=[0, 1]", "run.duration=50ms"}), factory);
  CHECK(r.result.vcpus[1].stats.halt_attempted_poll == 0);
  CHECK(r.result.vcpus[1].stats.halt_wakeup > 400);
}

TEST_CASE("a second runnable thread ends halt polling at once") {
  const std::string text =
      R"({"host": {"task": [{"name": "other", "cpus": [1], "phases": [{"run": "60us", "period": "200us"}]}]},
      "vm": [{"workload": {"kind": "cpuid"}, "vcpus": 2, "pin": [0, 1]}]})";
  const auto factory = [](const VmConfig&, unsigned, unsigned vcpu) {
    if (vcpu == 0)
      return std::make_unique<LoopSource>(std::vector<GuestAction>{compute(486000), ipi(1)});  // 180 us
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::hlt)});
  };
  const Run r =
      run(load_scenario(ScenarioSource::from_json(text), {"host.pcpus=2", "run.duration=200ms"}), factory);
  const VcpuStats& stats = r.result.vcpus[1].stats;
  CHECK(stats.halt_attempted_poll > 500);
  CHECK(stats.halt_successful_poll * 2 < stats.halt_attempted_poll);
  // The task gets the pCPU within microseconds although a vCPU polls there for up to 200.
  CHECK(r.result.tasks[0].wakeup_latency.percentile(900) * 1000000 / r.result.tsc_hz < 40);
}

TEST_CASE("a busy SMT sibling slows a thread to smt_factor, an idle one does not") {
  const auto rate = [](const std::vector<std::string>& more) {
    std::vector<std::string> overrides{"run.duration=100ms", "host.pcpus=4", "host.threads_per_core=2",
                                       "host.smt_factor=60", "host.hz=0"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    const Run r = run(scenario(overrides), busy_guests());
    return r.result.vcpus.size() == 1 ? metric(r.result, "retired") : share_of(r.result, 0, r.events);
  };
  const double alone = rate({"vm.pin=[0]"});
  CHECK(rate({"vm.vcpus=2", "vm.pin=[0, 2]"}) == doctest::Approx(alone).epsilon(0.001));
  CHECK(rate({"vm.vcpus=2", "vm.pin=[0, 1]"}) == doctest::Approx(0.6 * alone).epsilon(0.001));
  CHECK(rate({"vm.vcpus=2", "vm.pin=[0, 1]", "host.smt_factor=100"}) ==
        doctest::Approx(alone).epsilon(0.001));
}

TEST_CASE("nohz_full: a single thread runs without ticks, two have them") {
  const auto ticks = [](const std::vector<std::string>& more) {
    std::vector<std::string> overrides{"run.duration=1s", "host.pcpus=2"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    Run r = run(scenario(overrides), busy_guests());
    return exits_of(r.result)["interrupt"];
  };
  CHECK(ticks({"vm.pin=[1]"}) == 249);
  CHECK(ticks({"vm.pin=[1]", "host.nohz_full=[1]"}) == 0);
  CHECK(ticks({"vm.vcpus=2", "vm.pin=[1, 1]", "host.nohz_full=[1]"}) > 200);
}

TEST_CASE("PLE: without growth one pause exit per 3001 PAUSEs, by default windows that double") {
  const auto spinner = [](const VmConfig&, unsigned, unsigned) {
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::pause)});
  };
  const std::vector<std::string> common{"run.duration=2ms", "host.hz=0", "vm.pin=[0]"};
  const auto windows = [&](const std::vector<std::string>& more) {
    auto overrides = common;
    overrides.insert(overrides.end(), more.begin(), more.end());
    const Run r = run(scenario(overrides), spinner);
    std::vector<std::uint64_t> result;
    for (const auto& event : r.events) {
      if (event.kind == workloads::EventKind::kvm_ple_window_update) result.push_back(event.field[0]);
    }
    const double pauses = metric(r.result, "retired");
    return std::make_pair(result, std::make_pair(exits_of(r.result)["pause"], pauses));
  };
  const auto grown = windows({"run.duration=20ms"});
  REQUIRE(grown.first.size() >= 5);
  CHECK(std::vector<std::uint64_t>(grown.first.begin(), grown.first.begin() + 5) ==
        std::vector<std::uint64_t>{6000, 12000, 24000, 48000, 65535});
  const auto fixed = windows({"kvm.pause_filter_count_grow=0"});
  CHECK(fixed.first.empty());
  // The first PAUSE after VMRUN reloads the counter and does not count (svm-hardware.md 5).
  CHECK(fixed.second.first == static_cast<std::uint64_t>(fixed.second.second) / 3002);
  const auto none = windows({R"(vm.disable_exits=["pause"])"});
  CHECK(none.second.first == 0);
}

TEST_CASE(
    "directed yield: a spinner hands its pCPU to the preempted partner, every second time it spins itself") {
  const auto spinner = [](const VmConfig&, unsigned, unsigned) {
    return std::make_unique<LoopSource>(std::vector<GuestAction>{of(ActionKind::pause)});
  };
  const Run r = run(scenario({"run.duration=50ms", "vm.vcpus=2", "vm.pin=[0, 0]", "host.hz=250"}), spinner);
  const auto exits = exits_of(r.result);
  std::uint64_t switches = 0;
  for (const auto& pcpu : r.result.pcpus)
    switches += pcpu.context_switches;
  // Both spin: an exit that toggles the other's eligibility, one that yields.
  const double per_switch = static_cast<double>(exits.at("pause")) / static_cast<double>(switches);
  CHECK(per_switch == doctest::Approx(2.0).epsilon(0.15));
  CHECK(r.result.vcpus[0].stats.preemption_other > 10);
  // With PAUSE exits disabled only the tick changes threads.
  const Run off = run(scenario({"run.duration=50ms", "vm.vcpus=2", "vm.pin=[0, 0]", "host.hz=250",
                                R"(vm.disable_exits=["pause"])"}),
                      spinner);
  CHECK(exits_of(off.result)["pause"] == 0);
  CHECK(off.result.pcpus[0].context_switches < switches / 2);
}

}  // namespace svmsim::model::test
