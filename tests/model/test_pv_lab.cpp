// The lab's recordings of PV IPIs and PV EOI: their guests' exits per iteration and per reason. Exits that
// the recording host caused (interrupt, npf) are set apart.

#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/model/exits_text.hpp"
#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

using svm::ActionKind;
using svm::GuestAction;

/// The recording i1: vCPU 0 sends by hypercall and spins for the acknowledgement, vCPU 1 halts for it; its
/// handler counts, acknowledges by memory and writes EOI (guest.c, case 28).
struct Shared {
  std::uint64_t acknowledged = 0;
  std::uint64_t acknowledged_at = 0;
};

class PvIpiSource final : public workloads::WorkloadSource {
 public:
  PvIpiSource(std::shared_ptr<Shared> shared, unsigned vcpu, std::uint64_t rounds)
      : shared_(std::move(shared)), vcpu_(vcpu), rounds_(rounds) {}

  workloads::InitialState initial_state() const override {
    workloads::InitialState state;
    state.rip = 0x1000;
    state.apic_svr = 0x1ff;
    return state;
  }
  const GuestAction* current() override {
    if (in_handler_ != 0) return make(handler());
    if (vcpu_ == 0 ? sent_ == rounds_ && phase_ == 0 : handled_ >= rounds_ && phase_ == 0) return nullptr;
    return make(vcpu_ == 0 ? sender() : target());
  }
  void retire(std::uint64_t, std::uint64_t) override { step(); }
  const std::vector<unsigned>& retire_shared(std::uint64_t tsc) override {
    static const std::vector<unsigned> nobody;
    static const std::vector<unsigned> sender{0};
    const bool acknowledges = in_handler_ != 0;
    if (acknowledges) {
      ++handled_;
      shared_->acknowledged = handled_;
      shared_->acknowledged_at = tsc + 1;
    }
    step();
    return acknowledges ? sender : nobody;
  }
  std::uint64_t spin_ready() const override {
    return shared_->acknowledged >= sent_ ? shared_->acknowledged_at : never_ready;
  }
  void interrupt(std::uint8_t, std::uint64_t) override { in_handler_ = 1; }
  std::uint64_t handler_entry(std::uint8_t) const override { return 0x2000; }
  workloads::Metrics metrics() const override { return {}; }

 private:
  GuestAction sender() const {
    GuestAction action;
    if (phase_ == 0) {
      action.kind = ActionKind::vmmcall;
      action.length = 3;
      action.number = 10;
      action.operand = {1, 0, 1, 0x42};
    } else {
      action.cycles = 4;
      action.flags = svm::action_flags::spin;
    }
    return action;
  }
  GuestAction target() const {
    GuestAction action;
    constexpr ActionKind loop[] = {ActionKind::cli, ActionKind::sti, ActionKind::hlt, ActionKind::cli};
    action.kind = loop[phase_];
    action.length = 1;
    action.cycles = 1;
    return action;
  }
  GuestAction handler() const {
    GuestAction action;
    switch (in_handler_) {
      case 1:
        action.cycles = 25;
        action.flags = svm::action_flags::shared;
        break;
      case 2:
        action.kind = ActionKind::wrmsr;
        action.length = 2;
        action.number = 0x80b;
        break;
      default:
        action.kind = ActionKind::iret;
        action.length = 2;
        break;
    }
    return action;
  }
  const GuestAction* make(GuestAction action) {
    action.rip = (in_handler_ != 0 ? 0x2000U : 0x1000U) + 16U * (in_handler_ != 0 ? in_handler_ : phase_);
    action_ = action;
    return &action_;
  }
  void step() {
    if (in_handler_ != 0) {
      in_handler_ = in_handler_ == 3 ? 0 : in_handler_ + 1;
    } else if (vcpu_ == 0) {
      if (phase_ == 0) ++sent_;
      phase_ = 1 - phase_;
    } else {
      // The loop looks at its counter behind each CLI.
      phase_ = phase_ == 3 ? (handled_ >= rounds_ ? 0 : 1) : phase_ + 1;
    }
  }

  std::shared_ptr<Shared> shared_;
  unsigned vcpu_;
  std::uint64_t rounds_;
  unsigned phase_ = 0;
  unsigned in_handler_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t handled_ = 0;
  GuestAction action_;
};

const std::vector<std::string> lab{"host.profile=lab", "host.hz=0", "kvm.idle_hlt=false"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), lab.begin(), lab.end());
  return more;
}

/// `folder`: of the recording.
RunResult pv_ipi(const std::string& folder) {
  const std::string idle_hlt = folder == "6.18-idle-hlt" ? "true" : "false";
  Simulation simulation(
      scenario_of("ping_pong", with({"host.kernel=" + folder.substr(0, folder.find('-')), "host.pcpus=2",
                                     "vm.vcpus=2", "vm.pin=[0,1]", "kvm.idle_hlt=" + idle_hlt})));
  const auto shared = std::make_shared<Shared>();
  simulation.set_source_factory([&](const VmConfig&, unsigned, unsigned vcpu) {
    return std::make_unique<PvIpiSource>(shared, vcpu, 1000);
  });
  RunResult result = simulation.run();
  CHECK(result.failure == "");
  return result;
}

/// "exits" of a recording's window, host's own exits left out.
Exits recorded(const std::string& recording, unsigned vcpu) {
  std::ifstream file(std::string(SVMSIM_SOURCE_DIR) + "/../shared/lab/" + recording + "/counts.json");
  if (!file) return {};
  const auto json = nlohmann::json::parse(file);
  Exits exits;
  for (const auto& [name, count] : json["trace_window"][fmt::format("vcpu{}", vcpu)]["exits"].items()) {
    if (name != "interrupt" && name != "npf") exits[name] = count.get<std::uint64_t>();
  }
  return exits;
}

/// Whether each reason that matters occurs as often as recorded, within 2 % of the iterations.
bool close(Exits simulated, const Exits& recorded, std::uint64_t iterations) {
  for (const char* left_out : {"interrupt", "npf", "io"})
    simulated.erase(left_out);
  for (const auto& [name, count] : recorded) {
    const std::uint64_t mine = simulated[name];
    const std::uint64_t distance = mine > count ? mine - count : count - mine;
    if (distance * 50 > iterations) return false;
  }
  for (const auto& [name, count] : simulated) {
    if (recorded.count(name) == 0 && count * 50 > iterations) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("lab j2: a self-IPI with PV EOI is three exits, and the handler's first page fault costs an EOI") {
  for (const char* kernel : {"6.12", "6.18"}) {
    const bool idle_hlt = std::string(kernel) == "6.18";
    Simulation simulation(
        scenario_of("lab_selfipi", with({std::string("host.kernel=") + kernel, "vm.workload.pv_eoi=true",
                                         idle_hlt ? "kvm.idle_hlt=true" : "kvm.idle_hlt=false"})));
    RecordingSink sink;
    simulation.add_sink(sink);
    const RunResult result = simulation.run();
    Exits exits = exits_of(result);
    // 1000 ICR writes, 1 EOI, and 5 writes of the set-up.
    CHECK(exits["msr"] == 1000 + 1 + 5);
    CHECK(exits["hlt"] == (idle_hlt ? 0 : 1000));
    CHECK(exits["vintr"] == 1000);
    CHECK(exits["npf"] == 2);
    std::size_t pv_eois = 0;
    for (const auto& event : sink.events)
      pv_eois += event.kind == workloads::EventKind::kvm_pv_eoi ? 1U : 0U;
    CHECK(pv_eois == 999);
  }
  const Exits recording = recorded("6.12/j2-selfipi-pveoi", 0);
  if (recording.empty()) {
    MESSAGE("skipped: ../shared/lab is not here");
    return;
  }
  // One more EOI than ours: a host interrupt came while the flag was set.
  CHECK(recording == Exits{{"msr", 1002}, {"hlt", 1000}, {"vintr", 1000}});
  CHECK(recorded("6.18-idle-hlt/j2-selfipi-pveoi", 0) == Exits{{"msr", 1002}, {"vintr", 1000}});
}

TEST_CASE("lab j2: kvm_eoi and kvm_pv_eoi lead the exit after the guest's EOI") {
  Simulation simulation(
      scenario_of("lab_selfipi", with({"vm.workload.pv_eoi=true", "vm.workload.iterations=4"})));
  RecordingSink sink;
  simulation.add_sink(sink);
  static_cast<void>(simulation.run());
  bool found = false;
  for (std::size_t i = 2; i < sink.events.size(); ++i) {
    if (sink.events[i].kind != workloads::EventKind::kvm_pv_eoi) continue;
    found = true;
    CHECK(sink.events[i - 1].kind == workloads::EventKind::kvm_eoi);
    CHECK(sink.events[i - 2].kind == workloads::EventKind::kvm_exit);
    CHECK(sink.events[i].field[1] == 0x41);
  }
  CHECK(found);
}

TEST_CASE("lab j4: ping-pong with PV EOI is an ICR write and a HLT") {
  const RunResult result =
      Simulation(scenario_of("ping_pong", with({"host.pcpus=2", "vm.vcpus=2", "vm.pin=[0,1]",
                                                "vm.workload.rounds=500", "vm.workload.pv_eoi=true"})))
          .run();
  CHECK(result.failure == "");
  for (unsigned vcpu = 0; vcpu < 2; ++vcpu) {
    Exits exits = exits_of_vcpu(result, vcpu);
    exits["msr"] -= 2;  // SVR, and the MSR of PV EOI
    CHECK(close(exits, {{"msr", 500}, {"hlt", 500}}, 500));
    const Exits recording = recorded("6.12/j4-pingpong-pveoi", vcpu);
    if (!recording.empty()) CHECK(close(exits, recording, 500));
  }
}

TEST_CASE("lab i1: a hypercall for each IPI; the target takes a window and an EOI") {
  for (const char* folder : {"6.12", "6.18-idle-hlt"}) {
    CAPTURE(std::string(folder));
    const RunResult result = pv_ipi(folder);
    const Exits sender = exits_of_vcpu(result, 0);
    CHECK(sender == Exits{{"hypercall", 1000}});
    CHECK(result.vcpus[0].stats.hypercalls == 1000);
    const Exits target = exits_of_vcpu(result, 1);
    CHECK(close(target, {{"vintr", 1000}, {"msr", 1000}}, 1000));
    const Exits recording = recorded(std::string(folder) + "/i1-pvipi-1-target", 1);
    if (!recording.empty()) CHECK(close(target, recording, 1000));
  }
}

}  // namespace svmsim::model::test
