// Every row of section 9 of the hardware fact sheet, by a guest hypervisor that is a script: what L1 and L2
// do, and what L1 finds in its VMCB.

#include <algorithm>
#include <functional>
#include <memory>

#include <doctest/doctest.h>

#include "model/guest/flat_guest.hpp"
#include "svm/action_table.hpp"
#include "svm/exit_code.hpp"
#include "tests/model/nested_fixture.hpp"

namespace svmsim::model::test {

namespace {

using svm::ActionKind;
using svm::GuestAction;
using svm::Intercept;
using workloads::EventKind;

constexpr std::uint64_t vmcb_address = 0x5000;

GuestAction action(ActionKind kind, std::uint8_t length = 3) {
  GuestAction result;
  result.kind = kind;
  result.length = length;
  return result;
}
GuestAction wrmsr(std::uint32_t msr, std::uint64_t value = 0) {
  GuestAction result = action(ActionKind::wrmsr, 2);
  result.number = msr;
  result.operand[0] = value;
  return result;
}
GuestAction compute(std::uint64_t cycles) {
  GuestAction result = action(ActionKind::compute, 16);
  result.cycles = cycles;
  return result;
}
GuestAction write_cr8(std::uint64_t value) {
  GuestAction result = action(ActionKind::mov_to_cr8, 4);
  result.operand[0] = value;
  return result;
}
GuestAction svm_instruction(ActionKind kind, std::uint64_t address = vmcb_address) {
  GuestAction result = action(kind);
  result.operand[1] = address;
  return result;
}

/// What L1 finds at each #VMEXIT.
struct Seen {
  svm::VmcbControl control;
  std::uint64_t rip;
};

struct Script {
  std::function<void(svm::Vmcb&)> set_up = [](svm::Vmcb&) {};
  std::vector<GuestAction> l1{svm_instruction(ActionKind::vmrun)};
  std::vector<GuestAction> l2;
  std::function<void(svm::MsrPermissionMap&, svm::IoPermissionMap&)> maps = [](auto&, auto&) {};
  bool skips = true;  ///< L1 steps over the instruction of L2 that has exited
  bool l2_interrupts = false;
};

/// What a run of a script has shown; outlives the source.
struct Report {
  std::vector<Seen> exits;
  svm::Vmcb vmcb;
  std::size_t l1_done = 0;
  std::size_t l2_done = 0;
  std::vector<std::uint64_t> l2_results;
  std::vector<std::uint8_t> l1_interrupts;
  std::vector<std::uint8_t> l2_interrupts;
};

class ScriptedHypervisor final : public workloads::WorkloadSource, public workloads::NestedGuest {
 public:
  ScriptedHypervisor(Script script, std::shared_ptr<Report> report)
      : script_(std::move(script)), report_(std::move(report)) {
    msrpm_.fill(true);
    iopm_.fill(true);
    script_.maps(msrpm_, iopm_);
    svm::VmcbControl& control = report_->vmcb.control;
    workloads::InitialState initial;
    initial.rip = 0x1000;
    initial.interrupts_enabled = script_.l2_interrupts;
    set_flat_guest(report_->vmcb.save, initial);
    for (const Intercept each : {Intercept::vmrun, Intercept::vmmcall, Intercept::intr, Intercept::nmi})
      set_intercept(control, each, true);
    control.asid = 1;
    control.int_ctl = svm::int_ctl::v_intr_masking;
    control.nested_ctl = svm::nested_ctl::np_enable;
    control.nested_cr3 = 0x7000;
    script_.set_up(report_->vmcb);
    number(script_.l1, 0x400000);
    number(script_.l2, 0x1000);
    GuestAction eoi = wrmsr(0x80b);
    eoi.rip = 0x700000;
    GuestAction iret = action(ActionKind::iret, 2);
    iret.rip = 0x700002;
    handler_ = {eoi, iret};
  }

  [[nodiscard]] workloads::InitialState initial_state() const override {
    workloads::InitialState initial;
    initial.rip = 0x400000;
    initial.interrupts_enabled = true;
    initial.apic_svr = 0x1ff;
    return initial;
  }
  [[nodiscard]] const GuestAction* current() override {
    if (in_l2_) return l2_handler_ ? &handler_[1] : at(script_.l2, report_->l2_done);
    if (handling_ < handler_.size()) return &handler_[handling_];
    return at(script_.l1, report_->l1_done);
  }
  void retire(std::uint64_t, std::uint64_t result) override {
    if (in_l2_) {
      if (l2_handler_) {
        l2_handler_ = false;
        return;
      }
      report_->l2_results.push_back(result);
      ++report_->l2_done;
    } else if (handling_ < handler_.size()) {
      ++handling_;
    } else {
      ++report_->l1_done;
    }
  }
  void interrupt(std::uint8_t vector, std::uint64_t) override {
    (in_l2_ ? report_->l2_interrupts : report_->l1_interrupts).push_back(vector);
    // A fault would come again: the script goes on behind it.
    const bool fault = vector < 32 && vector != svm::exception_vector::nmi;
    if (fault) ++(in_l2_ ? report_->l2_done : report_->l1_done);
    if (in_l2_) {
      l2_handler_ = true;
    } else {
      handling_ = fault ? 1 : 0;
    }
  }
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t) const override {
    return handler_[in_l2_ ? 1 : 0].rip;
  }
  [[nodiscard]] workloads::Metrics metrics() const override { return {}; }
  [[nodiscard]] workloads::NestedGuest* nested_guest() override { return this; }

  [[nodiscard]] svm::Vmcb* vmcb_page(std::uint64_t address) override {
    return address == vmcb_address ? &report_->vmcb : nullptr;
  }
  [[nodiscard]] const svm::MsrPermissionMap& msr_permission_map(std::uint64_t) const override {
    return msrpm_;
  }
  [[nodiscard]] const svm::IoPermissionMap& io_permission_map(std::uint64_t) const override { return iopm_; }
  [[nodiscard]] bool maps(std::uint64_t) const override { return true; }
  [[nodiscard]] std::vector<std::uint64_t> untouched_pages() const override { return {}; }
  void vmrun() override { in_l2_ = true; }
  void vmexit() override {
    in_l2_ = false;
    svm::Vmcb& vmcb = report_->vmcb;
    report_->exits.push_back({vmcb.control, vmcb.save.rip});
    const bool instruction = vmcb.control.next_rip != 0;
    if (!script_.skips || !instruction) return;
    vmcb.save.rip = vmcb.control.next_rip;
    vmcb.control.int_state = 0;
    ++report_->l2_done;
  }

 private:
  static void number(std::vector<GuestAction>& actions, std::uint64_t rip) {
    for (GuestAction& each : actions) {
      each.rip = rip;
      rip += each.length;
    }
  }
  static const GuestAction* at(const std::vector<GuestAction>& actions, std::size_t index) {
    return index < actions.size() ? &actions[index] : nullptr;
  }

  Script script_;
  std::shared_ptr<Report> report_;
  svm::MsrPermissionMap msrpm_;
  svm::IoPermissionMap iopm_;
  std::vector<GuestAction> handler_;
  std::size_t handling_ = 2;
  bool l2_handler_ = false;
  bool in_l2_ = false;
};

struct Outcome {
  std::shared_ptr<Report> report = std::make_shared<Report>();
  Run run;

  [[nodiscard]] std::vector<std::string> seen() const {
    std::vector<std::string> names;
    for (const Seen& each : report->exits)
      names.push_back(svm::exit_name_or_hex(each.control.exit_code));
    return names;
  }
  [[nodiscard]] std::uint64_t from(const char* level, const char* exit) const {
    const auto exits = nested_exits(run.result);
    const auto found = exits.find(std::string(level) + " " + exit);
    return found == exits.end() ? 0 : found->second;
  }
};

Outcome play(Script script, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), {"kvm.nested=true", "host.hz=0"});
  Outcome outcome;
  Simulation simulation(scenario_of("busy", std::move(overrides)));
  RecordingSink sink;
  simulation.add_sink(sink);
  simulation.set_source_factory([&](const VmConfig&, unsigned, unsigned) {
    return std::make_unique<ScriptedHypervisor>(script, outcome.report);
  });
  outcome.run.result = simulation.run();
  outcome.run.events = std::move(sink.events);
  return outcome;
}

using Names = std::vector<std::string>;
const GuestAction vmmcall = action(ActionKind::vmmcall);
const GuestAction vmrun = svm_instruction(ActionKind::vmrun);

void intercept(svm::Vmcb& vmcb, Intercept which) {
  set_intercept(vmcb.control, which, true);
}

}  // namespace

TEST_CASE("section 9: an exit from L2 is L1's if vmcb12 has the intercept, else L0's") {
  struct Row {
    const char* exit;
    Intercept intercept;
    GuestAction action;
    bool l0_intercepts;
  };
  GuestAction cpuid = action(ActionKind::cpuid, 2);
  const std::vector<Row> rows{
      {"cpuid", Intercept::cpuid, cpuid, true},
      {"hlt", Intercept::hlt, action(ActionKind::hlt, 1), true},
      {"wbinvd", Intercept::wbinvd, action(ActionKind::wbinvd, 2), true},
      {"rdtsc", Intercept::rdtsc, action(ActionKind::rdtsc, 2), false},
      {"pushf", Intercept::pushf, action(ActionKind::pushf, 1), false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.exit);
    Script script;
    script.l1 = {vmrun, vmrun};
    script.l2 = {row.action, vmmcall};
    if (std::string(row.exit) == "hlt") script.l2[0] = action(ActionKind::nop, 1);
    const Outcome without = play(script, {R"(host.features=["-idle_hlt"])"});
    if (std::string(row.exit) != "hlt") {
      CHECK(without.seen() == Names{"hypercall"});
      CHECK(without.from("l2", row.exit) == (row.l0_intercepts ? 1U : 0U));
    }
    script.l2[0] = row.action;
    script.set_up = [&](svm::Vmcb& vmcb) { intercept(vmcb, row.intercept); };
    const Outcome with = play(script, {R"(host.features=["-idle_hlt"])"});
    CHECK(with.seen() == Names{row.exit, "hypercall"});
    CHECK(with.from("l2", row.exit) == 1);
  }
}

TEST_CASE("section 9: VMMCALL of L2 is L1's alone") {
  Script script;
  script.set_up = [](svm::Vmcb& vmcb) { set_intercept(vmcb.control, Intercept::vmmcall, false); };
  script.l2 = {vmmcall, vmmcall};
  // L0's intercept is not merged: without L1's the instruction is #UD.
  const Outcome outcome = play(script);
  CHECK(outcome.from("l2", "hypercall") == 0);
}

TEST_CASE("section 9: with V_INTR_MASKING L0 does not intercept L2's CR8 writes") {
  Script script;
  script.l2 = {write_cr8(5), vmmcall};
  const Outcome outcome = play(script);
  CHECK(outcome.from("l2", "write_cr8") == 0);
  REQUIRE(outcome.seen() == Names{"hypercall"});
  CHECK(svm::int_ctl::v_tpr(outcome.report->exits[0].control.int_ctl) == 5);  // written back
}

TEST_CASE("section 9: PAUSE exits only if L1 wants it, by L1's filter") {
  Script script;
  script.l2 = {action(ActionKind::pause, 2), action(ActionKind::pause, 2), action(ActionKind::pause, 2),
               vmmcall};
  script.set_up = [](svm::Vmcb& vmcb) { vmcb.control.pause_filter_count = 1; };
  CHECK(play(script).from("l2", "pause") == 0);
  script.l1 = {vmrun, vmrun};
  script.set_up = [](svm::Vmcb& vmcb) {
    intercept(vmcb, Intercept::pause);
    vmcb.control.pause_filter_count = 1;
  };
  CHECK(play(script).seen() == Names{"pause", "hypercall"});
  // Without the feature the fields count as 0: every PAUSE exits.
  script.l1 = {vmrun, vmrun, vmrun, vmrun};
  CHECK(play(script, {R"(host.features=["-pause_filter", "-pause_filter_threshold"])"}).seen() ==
        Names{"pause", "pause", "pause", "hypercall"});
}

TEST_CASE("section 9: VMLOAD and VMSAVE of L2 exit unless L1 has virtualized them") {
  Script script;
  script.l2 = {svm_instruction(ActionKind::vmload, 0x9000), vmmcall};
  CHECK(play(script).from("l2", "vmload") == 1);
  script.set_up = [](svm::Vmcb& vmcb) { vmcb.control.virt_ext = svm::virt_ext::vls; };
  CHECK(play(script).from("l2", "vmload") == 0);
  CHECK(play(script, {R"(host.features=["-vls"])"}).from("l2", "vmload") == 1);
}

TEST_CASE("section 9: HLT and IDLE_HLT merge by OR") {
  Script script;
  script.l2 = {action(ActionKind::hlt, 1), vmmcall};
  script.set_up = [](svm::Vmcb& vmcb) { intercept(vmcb, Intercept::hlt); };
  script.l1 = {vmrun, vmrun};
  // L0 uses idle HLT, and L1's HLT intercept wins.
  CHECK(play(script, {R"(host.features=["+idle_hlt"])"}).seen() == Names{"hlt", "hypercall"});
  // L1 sets nothing: L0's idle HLT applies to L2, and L0 handles it.
  script.set_up = [](svm::Vmcb&) {};
  const Outcome l0 = play(script, {R"(host.features=["+idle_hlt"])"});
  CHECK(l0.from("l2", "idle-halt") == 1);
  CHECK(l0.from("seen", "idle-halt") == 0);
  // L1's own IDLE_HLT where it is offered.
  script.set_up = [](svm::Vmcb& vmcb) { intercept(vmcb, Intercept::idle_hlt); };
  CHECK(play(script, idle_hlt_mode("expose")).seen() == Names{"idle-halt", "hypercall"});
  const Outcome emulated = play(script, idle_hlt_mode("emulate"));
  CHECK(emulated.seen() == Names{"idle-halt", "hypercall"});
  CHECK(emulated.from("l2", "hlt") == 1);
}

TEST_CASE("emulated idle HLT looks at V_IRQ, its priority, and V_NMI") {
  using namespace svm::int_ctl;
  struct Row {
    const char* what;
    std::uint32_t int_ctl;
    bool exits;
  };
  const std::vector<Row> rows{
      {"nothing", 0, true},
      {"V_IRQ above V_TPR", with_v_intr_prio(v_irq, 5), false},
      {"V_IRQ not above V_TPR", with_v_tpr(with_v_intr_prio(v_irq, 5), 5), true},
      {"V_IRQ with V_IGN_TPR", with_v_tpr(with_v_intr_prio(v_irq | v_ign_tpr, 5), 5), false},
      {"V_NMI", v_nmi_enable | v_nmi, false},
      {"V_NMI, masked", v_nmi_enable | v_nmi | v_nmi_mask, true},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    Script script;
    script.l2_interrupts = true;
    script.l1 = {vmrun, vmrun};
    script.l2 = {action(ActionKind::hlt, 1), vmmcall};
    // The interrupt shadow keeps the event from being taken before the HLT.
    script.set_up = [&](svm::Vmcb& vmcb) {
      intercept(vmcb, Intercept::idle_hlt);
      vmcb.control.int_ctl |= row.int_ctl;
      vmcb.control.int_vector = 0x55;
      vmcb.control.int_state = svm::int_state::interrupt_shadow;
    };
    const Outcome outcome = play(script, idle_hlt_mode("emulate"));
    CHECK(outcome.seen() == (row.exits ? Names{"idle-halt", "hypercall"} : Names{"hypercall"}));
    CHECK(outcome.run.result.vcpus[0].stats.nested_idle_hlt == (row.exits ? 0U : 1U));
  }
}

TEST_CASE("section 9: the MSR bitmap is the OR of both; without MSR_PROT L0's alone") {
  constexpr std::uint32_t star = 0xc0000081;  // L0 passes it through
  constexpr std::uint32_t pat = 0x277;        // L0 intercepts it
  for (const std::uint32_t msr : {star, pat}) {
    CAPTURE(msr);
    Script script;
    script.l1 = {vmrun, vmrun};
    script.l2 = {wrmsr(msr), vmmcall};
    script.set_up = [](svm::Vmcb& vmcb) { intercept(vmcb, Intercept::msr); };
    CHECK(play(script).seen() == Names{"msr", "hypercall"});
    script.maps = [&](svm::MsrPermissionMap& map, auto&) { map.set(msr, false, false); };
    const Outcome passes = play(script);
    CHECK(passes.seen() == Names{"hypercall"});
    CHECK(passes.from("l2", "msr") == (msr == pat ? 1U : 0U));
    script.maps = [](auto&, auto&) {};
    script.set_up = [](svm::Vmcb&) {};
    const Outcome unprotected = play(script);
    CHECK(unprotected.seen() == Names{"hypercall"});
    CHECK(unprotected.from("l2", "msr") == (msr == pat ? 1U : 0U));
  }
}

TEST_CASE("section 9: I/O exits by L0's map, and L1's is looked up behind the exit") {
  GuestAction out = action(ActionKind::out, 2);
  out.number = 0x80;
  out.size = 1;
  Script script;
  script.l1 = {vmrun, vmrun};
  script.l2 = {out, vmmcall};
  script.set_up = [](svm::Vmcb& vmcb) { intercept(vmcb, Intercept::ioio); };
  CHECK(play(script).seen() == Names{"io", "hypercall"});
  script.maps = [](auto&, svm::IoPermissionMap& map) { map.set(0x80, false); };
  const Outcome l0 = play(script);
  CHECK(l0.seen() == Names{"hypercall"});
  CHECK(l0.from("l2", "io") == 1);
}

TEST_CASE("section 9: V_IRQ of vmcb12 is L2's interrupt, and what the CPU has left of it is written back") {
  using namespace svm::int_ctl;
  Script script;
  script.l1 = {vmrun, vmrun};
  script.l2 = {vmmcall, action(ActionKind::sti, 1), action(ActionKind::nop, 1), vmmcall};
  script.set_up = [](svm::Vmcb& vmcb) {
    vmcb.control.int_ctl |= with_v_intr_prio(v_irq, 0x5);
    vmcb.control.int_vector = 0x51;
  };
  const Outcome outcome = play(script);
  REQUIRE(outcome.seen() == Names{"hypercall", "hypercall"});
  CHECK((outcome.report->exits[0].control.int_ctl & v_irq) != 0);
  CHECK((outcome.report->exits[1].control.int_ctl & v_irq) == 0);
  CHECK(outcome.report->l2_interrupts == std::vector<std::uint8_t>{0x51});
}

TEST_CASE("section 9: VGIF of L2, where L1 uses it") {
  using namespace svm::int_ctl;
  Script script;
  script.l2 = {action(ActionKind::clgi), vmmcall};
  script.set_up = [](svm::Vmcb& vmcb) { vmcb.control.int_ctl |= v_gif_enable | v_gif; };
  const Outcome outcome = play(script);
  REQUIRE(outcome.seen() == Names{"hypercall"});
  CHECK((outcome.report->exits[0].control.int_ctl & v_gif) == 0);
}

TEST_CASE("section 9: L2's TSC is that of the host with both offsets") {
  constexpr std::uint64_t offset = 1'000'000'000'000;
  Script script;
  script.l2 = {action(ActionKind::rdtsc, 2), vmmcall};
  const Outcome plain = play(script);
  script.set_up = [](svm::Vmcb& vmcb) { vmcb.control.tsc_offset = offset; };
  const Outcome shifted = play(script);
  CHECK(shifted.report->l2_results.at(0) == plain.report->l2_results.at(0) + offset);
}

TEST_CASE("section 9: an interrupt for L1 ends L2 by L1's saved IF, whatever L2's is") {
  Script script;
  GuestAction self_ipi = wrmsr(0x830, 0x40041);
  script.l2 = {compute(1000), vmmcall};
  // GIF is clear, so that the interrupt waits for the VMRUN that sets it.
  script.l1 = {action(ActionKind::clgi), self_ipi, vmrun, action(ActionKind::stgi), vmrun};
  script.skips = false;
  const Outcome outcome = play(script);
  REQUIRE(outcome.seen() == Names{"interrupt", "hypercall"});
  CHECK(outcome.report->exits[0].rip == 0x1000);  // before any instruction of L2
  CHECK(outcome.report->l1_interrupts == std::vector<std::uint8_t>{0x41});
  CHECK(outcome.run.lines(EventKind::kvm_nested_intr_vmexit).size() == 1);
  // With L1's IF clear it waits until L1 sets it.
  script.l1 = {
      action(ActionKind::cli, 1), self_ipi, vmrun, action(ActionKind::stgi), action(ActionKind::sti, 1),
      action(ActionKind::nop, 1)};
  const Outcome later = play(script);
  CHECK(later.seen() == Names{"hypercall"});
  CHECK(later.report->l1_interrupts == std::vector<std::uint8_t>{0x41});
}

TEST_CASE("section 9: AVIC is off on the vCPU while L2 runs") {
  Script script;
  script.l1 = {compute(100), vmrun, wrmsr(0x80b)};
  script.l2 = {compute(100), vmmcall};
  const Outcome outcome = play(script, {"kvm.avic=true"});
  CHECK(outcome.seen() == Names{"hypercall"});
  CHECK(outcome.from("l1", "msr") == 0);  // AVIC is back for L1's EOI
  script.set_up = [](svm::Vmcb& vmcb) { intercept(vmcb, Intercept::msr); };
  script.l1 = {vmrun, vmrun};
  script.l2 = {wrmsr(0x80b), vmmcall};
  CHECK(play(script, {"kvm.avic=true"}).seen() == Names{"msr", "hypercall"});
}

TEST_CASE("section 9: a bad vmcb12 gives VMEXIT_INVALID to L1") {
  struct Row {
    const char* what;
    std::function<void(svm::Vmcb&)> spoil;
  };
  const std::vector<Row> rows{
      {"ASID 0", [](svm::Vmcb& vmcb) { vmcb.control.asid = 0; }},
      {"no VMRUN intercept", [](svm::Vmcb& vmcb) { set_intercept(vmcb.control, Intercept::vmrun, false); }},
      {"CR0.NW without CD", [](svm::Vmcb& vmcb) { vmcb.save.cr0 |= svm::cr0::nw; }},
      {"EFER.SVME", [](svm::Vmcb& vmcb) { vmcb.save.efer &= ~svm::efer::svme; }},
      {"DR6 high half", [](svm::Vmcb& vmcb) { vmcb.save.dr6 |= 1ULL << 32; }},
      {"reserved event type",
       [](svm::Vmcb& vmcb) { vmcb.control.event_inj = svm::event_inj::event(1, 0x20); }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    Script script;
    script.set_up = row.spoil;
    script.l2 = {vmmcall};
    script.l1 = {vmrun, action(ActionKind::nop, 1)};
    const Outcome outcome = play(script);
    CHECK(outcome.run.result.failure.empty());
    CHECK(outcome.report->vmcb.control.exit_code == svm::exit_code::invalid);
    CHECK(outcome.report->l1_done == 2);
    CHECK(outcome.report->l2_done == 0);
    CHECK(outcome.from("seen", "invalid_guest_state") == 1);
  }
}

TEST_CASE("section 9: STGI, CLGI, VMLOAD and VMSAVE of L1 exit without vgif and vls alone") {
  Script script;
  script.l1 = {action(ActionKind::clgi), svm_instruction(ActionKind::vmload),
               svm_instruction(ActionKind::vmsave), action(ActionKind::stgi)};
  for (const bool helped : {true, false}) {
    CAPTURE(helped);
    const Outcome outcome =
        play(script, {helped ? R"(host.features=["+vls"])" : R"(host.features=["-vls", "-vgif", "-vnmi"])"});
    for (const char* exit : {"clgi", "vmload", "vmsave", "stgi"})
      CHECK(outcome.from("l1", exit) == (helped ? 0U : 1U));
    CHECK(outcome.report->l1_done == 4);
  }
}

TEST_CASE("section 9: an illegal address in rAX exits instead of #GP, where the CPU says so") {
  Script script;
  script.l1 = {svm_instruction(ActionKind::vmrun, vmcb_address + 1), action(ActionKind::nop, 1)};
  CHECK(play(script, {R"(host.features=["+nested_virt_vmcb_addr_chk"])"}).from("l1", "vmrun") == 1);
  CHECK(play(script, {R"(host.features=["-nested_virt_vmcb_addr_chk"])"}).from("l1", "vmrun") == 0);
}

TEST_CASE("EXITINTINFO crosses the levels: an injection that an exit cuts short is L1's again") {
  Script script;
  script.set_up = [](svm::Vmcb& vmcb) {
    vmcb.control.event_inj = svm::event_inj::event(svm::event_inj::type_intr, 0x60);
  };
  script.l1 = {vmrun};
  script.l2 = {vmmcall};
  const Outcome outcome = play(script);
  REQUIRE(outcome.seen() == Names{"hypercall"});
  CHECK(outcome.report->l2_interrupts == std::vector<std::uint8_t>{0x60});
  CHECK((outcome.report->exits[0].control.event_inj & svm::event_inj::valid) == 0);
}

TEST_CASE("nested trace points in the kernel's form") {
  Script script;
  script.l2 = {vmmcall};
  const Outcome outcome = play(script);
  CHECK(outcome.run.lines(EventKind::kvm_nested_vmenter).at(0) ==
        "kvm_nested_vmenter: rip: 0x0000000000400003 vmcb: 0x0000000000005000 nested_rip: 0x0000000000001000 "
        "int_ctl: 0x01000000 event_inj: 0x00000000 nested_npt=y nested_cr3: 0x0000000000007000");
  CHECK(outcome.run.lines(EventKind::kvm_nested_vmexit).at(0) ==
        "kvm_nested_vmexit: vcpu 0 reason hypercall rip 0x1000 info1 0x0000000000000000 info2 "
        "0x0000000000000000 intr_info 0x00000000 error_code 0x00000000");
  CHECK(outcome.run.lines(EventKind::kvm_nested_vmexit_inject).at(0) ==
        "kvm_nested_vmexit_inject: reason: hypercall ext_inf1: 0x0000000000000000 ext_inf2: "
        "0x0000000000000000 ext_int: 0x00000000 ext_int_err: 0x00000000");
}

}  // namespace svmsim::model::test
