// Rules of KVM's loop that the founding experiment does not meet, one guest of a few actions each.

#include <doctest/doctest.h>

#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

using svm::ActionKind;
using svm::GuestAction;
using workloads::EventKind;

GuestAction action(ActionKind kind, std::uint32_t number = 0, std::uint64_t value = 0) {
  GuestAction result;
  result.kind = kind;
  result.length = 2;
  result.number = number;
  result.operand[0] = value;
  return result;
}

/// Runs a list once; a handler is EOI and IRET.
class ListSource final : public workloads::WorkloadSource {
 public:
  explicit ListSource(std::vector<GuestAction> actions) : actions_(std::move(actions)) {
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
  const GuestAction* current() override {
    if (handler_ != 0) return &handler_actions_[handler_ - 1];
    return next_ < actions_.size() ? &actions_[next_] : nullptr;
  }
  void retire(std::uint64_t, std::uint64_t) override {
    if (handler_ == 0) {
      ++next_;
    } else {
      handler_ = handler_ == 1 ? 2 : 0;
    }
  }
  void interrupt(std::uint8_t, std::uint64_t) override { handler_ = 1; }
  std::uint64_t handler_entry(std::uint8_t) const override { return 0x2000; }
  workloads::Metrics metrics() const override { return {}; }

 private:
  std::vector<GuestAction> actions_;
  std::size_t next_ = 0;
  unsigned handler_ = 0;
  std::vector<GuestAction> handler_actions_{action(ActionKind::wrmsr, 0x80b), action(ActionKind::iret)};
};

struct Run {
  RunResult result;
  std::vector<std::string> lines;
};

Run run(const std::vector<GuestAction>& actions, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), "host.hz=0");
  const Scenario scenario = scenario_of("cpuid", overrides);
  Simulation simulation(scenario);
  simulation.set_source_factory(
      [&actions](const VmConfig&, unsigned, unsigned) { return std::make_unique<ListSource>(actions); });
  RecordingSink sink;
  simulation.add_sink(sink);
  Run run{simulation.run(), {}};
  for (const auto& event : sink.events)
    run.lines.push_back(line_of(event, scenario.host.kernel));
  return run;
}

std::ptrdiff_t position(const Run& run, const std::string& start) {
  for (std::size_t i = 0; i < run.lines.size(); ++i) {
    if (run.lines[i].rfind(start, 0) == 0) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

constexpr std::uint64_t self = 0x44041;

}  // namespace

TEST_CASE("a TPR write asks for an injection only when it frees a vector") {
  const auto harmless = run({action(ActionKind::wrmsr, 0x808, 0x10), action(ActionKind::wrmsr, 0x808, 0x00)});
  const auto none = run({action(ActionKind::wrmsr, 0x277, 0x0007040600070406)});
  CHECK(harmless.result.vcpus[0].stats.req_event == none.result.vcpus[0].stats.req_event);
  const auto freeing = run({action(ActionKind::wrmsr, 0x808, 0xf0), action(ActionKind::wrmsr, 0x830, self),
                            action(ActionKind::wrmsr, 0x808, 0x00)});
  CHECK(freeing.result.vcpus[0].stats.req_event > harmless.result.vcpus[0].stats.req_event);
}

TEST_CASE("an EOI with nothing in service asks for nothing") {
  const auto eoi = run({action(ActionKind::wrmsr, 0x80b, 0)});
  const auto pat = run({action(ActionKind::wrmsr, 0x277, 0x0007040600070406)});
  CHECK(eoi.result.vcpus[0].stats.req_event == pat.result.vcpus[0].stats.req_event);
}

TEST_CASE("SELF_IPI is traced before its effect, the ICR after it") {
  const auto self_ipi = run({action(ActionKind::wrmsr, 0x83f, 0x41)});
  CHECK(position(self_ipi, "kvm_apic: apic_write") < position(self_ipi, "kvm_apic_ipi"));
  const auto icr = run({action(ActionKind::wrmsr, 0x830, self)});
  CHECK(position(icr, "kvm_apic: apic_write") > position(icr, "kvm_apic_ipi"));
}

TEST_CASE("mainline delivers first in its fastpath alone") {
  const auto fast = run({action(ActionKind::wrmsr, 0x830, self)}, {"host.kernel=6.18", "kvm.avic=false"});
  CHECK(position(fast, "kvm_apic_accept_irq") < position(fast, "kvm_apic_ipi"));
  const auto slow = run({action(ActionKind::wrmsr, 0x830, 0x80041)},
                        {"host.kernel=6.18", "kvm.avic=false"});  // all including self
  CHECK(position(slow, "kvm_apic_accept_irq") > position(slow, "kvm_apic_ipi"));
}

TEST_CASE("reading the ICR has no APIC event") {
  const auto icr = run({action(ActionKind::rdmsr, 0x830)});
  CHECK(position(icr, "kvm_apic: apic_read") == -1);
  const auto id = run({action(ActionKind::rdmsr, 0x802)});
  CHECK(position(id, "kvm_apic: apic_read APIC_ID") >= 0);
}

TEST_CASE("an EFER write with reserved bits faults, and takes nothing with it") {
  const auto bad = run({action(ActionKind::wrmsr, 0xc0000080, 0x10000)}, {"run.duration=100us"});
  CHECK(position(bad, "kvm_inj_exception: #GP (0x0)") > 0);
  CHECK(position(bad, "kvm_msr: msr_write c0000080 = 0x10000 (#GP)") > 0);
}

TEST_CASE("without NRIPS the hypervisor still finds the next instruction") {
  const auto plain =
      run({action(ActionKind::cpuid), action(ActionKind::cpuid)}, {R"(host.features=["-nrips"])"});
  CHECK(position(plain, "kvm_entry: vcpu 0, rip 0x1002") > 0);
  CHECK(position(plain, "kvm_entry: vcpu 0, rip 0x1004") > 0);
}

TEST_CASE("a guest that takes no time is stopped") {
  class Stuck final : public workloads::WorkloadSource {
   public:
    workloads::InitialState initial_state() const override { return {}; }
    const GuestAction* current() override { return &action_; }
    void retire(std::uint64_t, std::uint64_t) override {}
    void interrupt(std::uint8_t, std::uint64_t) override {}
    std::uint64_t handler_entry(std::uint8_t) const override { return 0; }
    workloads::Metrics metrics() const override { return {}; }

   private:
    GuestAction action_ = action(ActionKind::compute);
  };
  Simulation simulation(scenario_of("cpuid", {"host.hz=0", "run.duration=1ms"}));
  simulation.set_source_factory(
      [](const VmConfig&, unsigned, unsigned) { return std::make_unique<Stuck>(); });
  CHECK(simulation.run().failure.find("no progress") != std::string::npos);
}

}  // namespace svmsim::model::test
