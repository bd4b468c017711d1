// The guests of the lab recordings g2, g4, g5 (spinning on one pCPU) and d4 (ping-pong on one pCPU): what the
// host's scheduler makes of them.

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

using svm::ActionKind;
using svm::GuestAction;

/// `case 6` of the lab's guest: vCPU 0 works and sets the flag, vCPU 1 answers, each spins for the other.
/// Both run on one pCPU, so that the flag needs no order beyond that of the threads.
class SpinSource final : public workloads::WorkloadSource {
 public:
  struct Shared {
    std::uint64_t flag = 0;
  };

  SpinSource(std::shared_ptr<Shared> shared, unsigned vcpu, std::uint64_t rounds, bool pauses)
      : shared_(std::move(shared)), vcpu_(vcpu), rounds_(rounds), pauses_(pauses) {
    next();
  }

  [[nodiscard]] workloads::InitialState initial_state() const override {
    workloads::InitialState state;
    state.rip = 0x100000;
    return state;
  }
  [[nodiscard]] const GuestAction* current() override { return done_ ? nullptr : &action_; }
  void retire(std::uint64_t, std::uint64_t) override {
    if (working_) {
      working_ = false;
      shared_->flag = 2 * round_ + 1;
      awaited_ = 2 * round_ + 2;
    }
    if (shared_->flag < awaited_) return spin();
    if (vcpu_ == 1) shared_->flag = 2 * round_ + 2;
    ++round_;
    next();
  }
  void interrupt(std::uint8_t, std::uint64_t) override {}
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t) const override { return 0; }
  [[nodiscard]] workloads::Metrics metrics() const override {
    return {{"rounds", static_cast<double>(round_)}};
  }

 private:
  void next() {
    done_ = round_ == rounds_;
    if (done_) return;
    if (vcpu_ == 0) {
      working_ = true;
      action_ = {};
      action_.rip = 0x100100;
      action_.cycles = 12000;  // delay(2000), six instructions a turn
      return;
    }
    awaited_ = 2 * round_ + 1;
    if (shared_->flag >= awaited_) {  // found at once: one turn of the loop without PAUSE
      action_ = {};
      action_.rip = 0x100200;
      action_.cycles = 4;
      return;
    }
    spin();
  }
  void spin() {
    action_ = {};
    action_.rip = 0x1001a0;
    action_.length = 2;
    if (pauses_) {
      action_.kind = ActionKind::pause;
      action_.cycles = 38;  // recorded: 3001 turns in 116.7 us
    } else {
      action_.cycles = 40;  // ten turns of four instructions
    }
  }

  std::shared_ptr<Shared> shared_;
  unsigned vcpu_;
  std::uint64_t rounds_;
  bool pauses_;
  std::uint64_t round_ = 0;
  std::uint64_t awaited_ = 0;
  bool working_ = false;
  bool done_ = false;
  GuestAction action_;
};

RunResult run_spin(std::uint64_t rounds, bool pauses, std::vector<std::string> overrides) {
  std::vector<std::string> all{"host.profile=lab", "host.pcpus=2", "vm.vcpus=2", "vm.pin=[0, 0]"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  Simulation simulation(scenario_of("cpuid", all));
  const auto shared = std::make_shared<SpinSource::Shared>();
  simulation.set_source_factory([=](const VmConfig&, unsigned, unsigned vcpu) {
    return std::make_unique<SpinSource>(shared, vcpu, rounds, pauses);
  });
  return simulation.run();
}

std::uint64_t exits(const RunResult& result, unsigned vcpu, const std::string& name) {
  for (const auto& row : result.vcpus[vcpu].exits) {
    if (exit_row_name(row.code) == name) return row.counter.count;
  }
  return 0;
}

/// Within 5 %, and at least within one of a count.
void check_near(std::uint64_t value, std::uint64_t recorded) {
  CAPTURE(value);
  CAPTURE(recorded);
  const double difference = std::fabs(static_cast<double>(value) - static_cast<double>(recorded));
  CHECK(difference <= std::max(1.0, 0.05 * static_cast<double>(recorded)));
}

}  // namespace

TEST_CASE("recording g2: two pause exits per turn, the second one yields (6.12)") {
  const RunResult result = run_spin(40, true, {"host.kernel=6.12"});
  check_near(exits(result, 0, "pause"), 82);
  check_near(exits(result, 1, "pause"), 83);
  check_near(result.vcpus[0].stats.preemption_other, 40);
  check_near(result.vcpus[1].stats.preemption_other, 39);
  CHECK(exits(result, 0, "interrupt") <= 5);
}

TEST_CASE("recordings g4 and g5: without pause exits the tick alone changes threads") {
  // 6.12: a tick of 4 ms ends a slice of 1.4 ms; 6.1: every second tick does, with slices of 6 ms.
  for (const bool pauses : {true, false}) {
    CAPTURE(pauses);
    const RunResult eevdf = run_spin(20, pauses, {"host.kernel=6.12", R"(vm.disable_exits=["pause"])"});
    check_near(exits(eevdf, 0, "interrupt"), 20);
    check_near(exits(eevdf, 1, "interrupt"), 20);
    check_near(eevdf.vcpus[0].stats.preemption_reported, 20);
    CHECK(exits(eevdf, 0, "pause") == 0);
  }
  // Recorded 39 and 38: the window opened within a turn of two ticks.
  const RunResult cfs = run_spin(20, true, {"host.kernel=6.1", R"(vm.disable_exits=["pause"])"});
  CHECK(exits(cfs, 0, "interrupt") >= 38);
  CHECK(exits(cfs, 0, "interrupt") <= 40);
  CHECK(exits(cfs, 1, "interrupt") >= 37);
  CHECK(exits(cfs, 1, "interrupt") <= 40);
  check_near(cfs.vcpus[0].stats.preemption_reported, 20);
}

TEST_CASE("recording d4: ping-pong of two halting vCPUs on one pCPU") {
  const auto run_d4 = [](const std::string& kernel) {
    Simulation simulation(
        scenario_of("ping_pong", {"host.profile=lab", "host.pcpus=2", "vm.vcpus=2", "vm.pin=[0, 0]",
                                  "vm.workload.rounds=500", "kvm.idle_hlt=false", "host.kernel=" + kernel}));
    return simulation.run();
  };
  // Recorded without tracing: msr 1000, hlt 500, vintr 230 and 220, attempted polls 269 and 279. A wake-up
  // preempts when the waker has run longer than the sleeper; both run about as long, so which side it is
  // hangs on nanoseconds, and how often does not.
  const RunResult eevdf = run_d4("6.12");
  std::uint64_t windows = 0;
  std::uint64_t polls = 0;
  const std::uint64_t recorded_exits[] = {1730, 1720};
  for (const unsigned vcpu : {0U, 1U}) {
    CAPTURE(vcpu);
    const VcpuStats& stats = eevdf.vcpus[vcpu].stats;
    CHECK(exits(eevdf, vcpu, "hlt") == 500);
    check_near(exits(eevdf, vcpu, "msr"), 1000);
    check_near(stats.exits, recorded_exits[vcpu]);
    CHECK(stats.halt_successful_poll == 0);  // the partner is always runnable, or its dequeue is delayed
    CHECK(stats.irq_window_exits == stats.preemption_other);
    windows += stats.irq_window_exits;
    polls += stats.halt_attempted_poll;
  }
  CHECK(static_cast<double>(windows) == doctest::Approx(450).epsilon(0.15));
  CHECK(static_cast<double>(polls) == doctest::Approx(548).epsilon(0.15));
  // 6.1: "vintr 500/0 per vCPU" (the README of the lab).
  const RunResult cfs = run_d4("6.1");
  CHECK(exits(cfs, 0, "vintr") == 500);
  CHECK(exits(cfs, 1, "vintr") == 0);
}

}  // namespace svmsim::model::test
