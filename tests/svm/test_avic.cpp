// What GuestCpu makes of AVIC's answers: deliveries, results, #GP, exits 401h and 402h (fact sheet 8.2
// to 8.5, 8.8). AVIC itself is apic/avic's; here it is a script.

#include <vector>

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

namespace svmsim::svm::test {

namespace {

FeatureSet with_avic() {
  return all_but_avic().with(Feature::avic).with(Feature::x2avic);
}

/// Answers as told, and notes what it was asked.
class Script final : public TableEnvironment {
 public:
  struct Asked {
    std::uint32_t where = 0;  ///< MSR, or offset in the page
    bool write = false;
    std::uint64_t value = 0;
  };
  AvicAccess answer;
  std::vector<Asked> asked;
  int pending_after = -2;  ///< what is recognized after the access; -2: no change
  int entries = 0;
  int entered = 0;
  int exits = 0;
  std::vector<std::uint8_t> cr8;

  void avic_vmrun(const VmcbControl&) override { ++entries; }
  void avic_entered() override { ++entered; }
  void avic_vmexit() override { ++exits; }
  void avic_write_cr8(std::uint8_t value) override {
    cr8.push_back(value);
    if (pending_after != -2) highest_irr = pending_after;
  }
  AvicAccess avic_read_msr(std::uint32_t msr) override { return note({msr, false, 0}); }
  AvicAccess avic_write_msr(std::uint32_t msr, std::uint64_t value) override {
    return note({msr, true, value});
  }
  AvicAccess avic_read_page(std::uint32_t offset) override { return note({offset, false, 0}); }
  AvicAccess avic_write_page(std::uint32_t offset, std::uint32_t value) override {
    return note({offset, true, value});
  }

 private:
  AvicAccess note(Asked question) {
    asked.push_back(question);
    if (pending_after != -2) highest_irr = pending_after;
    return answer;
  }
};

struct AvicGuest {
  Vmcb vmcb = long_mode_vmcb();
  Script avic;
  GuestCpu cpu;

  explicit AvicGuest(bool x2avic, bool interrupts = true, FeatureSet features = with_avic(), Knobs knobs = {})
      : cpu(features, knobs) {
    VmcbControl& control = vmcb.control;
    control.int_ctl = int_ctl::avic_enable | (x2avic ? int_ctl::x2avic_enable : 0U) | int_ctl::v_intr_masking;
    control.avic_vapic_bar = 0xfee0'0000;
    control.avic_physical_id = 0x7000 | 0xfe;
    if (interrupts) vmcb.save.rflags |= rflags::interrupt;
  }
  Step enter() { return cpu.vmrun(vmcb, true, avic); }
  Step boundary() { return cpu.boundary({}, avic); }
  Step run(GuestAction action) {
    action.rip = cpu.rip();
    return cpu.execute(action, avic);
  }
  Step wrmsr(std::uint32_t msr, std::uint64_t value) { return run(make(ActionKind::wrmsr, msr, value)); }
  Step rdmsr(std::uint32_t msr) { return run(make(ActionKind::rdmsr, msr)); }
  [[nodiscard]] std::uint64_t exit_code() const { return vmcb.control.exit_code; }
};

AvicAccess exits(AvicOutcome outcome, std::uint64_t info_1, std::uint64_t info_2) {
  AvicAccess access;
  access.outcome = outcome;
  access.exit_info_1 = info_1;
  access.exit_info_2 = info_2;
  return access;
}

}  // namespace

TEST_CASE("AVIC: an interrupt of the backing page is delivered when IF, VGIF and shadow allow it") {
  for (const bool interrupts : {false, true}) {
    for (const bool shadow : {false, true}) {
      for (const bool v_gif : {false, true}) {
        CAPTURE(interrupts);
        CAPTURE(shadow);
        CAPTURE(v_gif);
        AvicGuest guest(true, interrupts);
        guest.vmcb.control.int_ctl |= int_ctl::v_gif_enable | (v_gif ? int_ctl::v_gif : 0U);
        guest.vmcb.control.int_state = shadow ? int_state::interrupt_shadow : 0U;
        guest.avic.highest_irr = 0x51;
        REQUIRE(guest.enter().kind == StepKind::entered);
        const Step step = guest.boundary();
        CHECK((step.kind == StepKind::delivered) == (interrupts && !shadow && v_gif));
        if (step.kind == StepKind::delivered) {
          CHECK(step.vector == 0x51);
          CHECK(guest.cpu.rip() == Script::default_handler(0x51));
          CHECK(guest.avic.highest_irr == -1);
          CHECK_FALSE(guest.cpu.event_possible());
        } else {
          // Recognized, and taken as soon as the guest lets it.
          CHECK(guest.avic.highest_irr == 0x51);
          CHECK(guest.cpu.event_possible() == interrupts);
        }
      }
    }
  }
}

TEST_CASE("AVIC: V_IRQ, its priority and the VINTR intercept are out of use, and V_IRQ is not written back") {
  AvicGuest guest(true);
  set_intercept(guest.vmcb.control, Intercept::vintr, true);
  guest.vmcb.control.int_ctl |= int_ctl::v_irq | int_ctl::v_intr_prio_mask;
  guest.vmcb.control.int_vector = 0x31;
  REQUIRE(guest.enter().kind == StepKind::entered);
  CHECK_FALSE(guest.cpu.event_possible());
  CHECK(guest.boundary().kind == StepKind::none);
  // V_TPR says nothing about what the page has recognized by its PPR.
  guest.vmcb.control.int_ctl |= 0xf;
  guest.avic.highest_irr = 0x22;
  guest.cpu.avic_evaluated();
  const Step step = guest.boundary();
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 0x22);
  guest.run(make(ActionKind::vmmcall));
  CHECK((guest.vmcb.control.int_ctl & int_ctl::v_irq) != 0);
  CHECK(guest.avic.exits == 1);
}

TEST_CASE("AVIC: the environment hears of VMRUN, the complete entry and the exit; without AVIC of nothing") {
  for (const bool enabled : {true, false}) {
    AvicGuest guest(true);
    if (!enabled) guest.vmcb.control.int_ctl &= ~(int_ctl::avic_enable | int_ctl::x2avic_enable);
    guest.avic.highest_irr = 0x51;
    REQUIRE(guest.enter().kind == StepKind::entered);
    CHECK(guest.cpu.avic_enabled() == enabled);
    CHECK(guest.avic.entries == enabled);
    CHECK(guest.avic.entered == enabled);
    CHECK(guest.avic.exits == 0);
    CHECK((guest.boundary().kind == StepKind::delivered) == enabled);
    guest.run(make(ActionKind::vmmcall));
    CHECK(guest.avic.exits == enabled);
    CHECK_FALSE(guest.cpu.avic_enabled());
  }
  // A processor without the feature ignores the bits.
  AvicGuest old(true, true, all_but_avic());
  old.vmcb.control.int_ctl &= ~int_ctl::x2avic_enable;
  old.avic.highest_irr = 0x51;
  REQUIRE(old.enter().kind == StepKind::entered);
  CHECK(old.boundary().kind == StepKind::none);
  CHECK(old.avic.entries == 0);
}

TEST_CASE("AVIC: EVENTINJ is delivered first, the backing page's interrupt at the next boundary") {
  AvicGuest guest(true);
  guest.vmcb.control.event_inj = event_inj::event(event_inj::type_intr, 0x31);
  guest.avic.highest_irr = 0x51;
  Step step = guest.enter();
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 0x31);
  CHECK(guest.avic.highest_irr == 0x51);
  // The handler runs with IF = 0.
  CHECK(guest.boundary().kind == StepKind::none);
  guest.run(make(ActionKind::iret));
  step = guest.boundary();
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 0x51);
}

TEST_CASE("AVIC: what software withdraws before it is taken is not delivered") {
  AvicGuest guest(true);
  guest.avic.highest_irr = 0x51;
  REQUIRE(guest.enter().kind == StepKind::entered);
  CHECK(guest.cpu.event_possible());
  guest.avic.highest_irr = -1;
  CHECK(guest.boundary().kind == StepKind::none);
  CHECK_FALSE(guest.cpu.event_possible());
}

TEST_CASE(
    "x2AVIC: MSRs 800h-8FFh that the map lets through go to AVIC, all others and intercepted ones do not") {
  AvicGuest guest(true);
  set_intercept(guest.vmcb.control, Intercept::msr, true);
  guest.avic.msr_map.set(0x832, false, true);
  guest.avic.answer.value = 0x77;
  REQUIRE(guest.enter().kind == StepKind::entered);
  CHECK(guest.rdmsr(0x80a).result == 0x77);
  CHECK(guest.wrmsr(0x830, 0x5'0000'0041).kind == StepKind::retired);
  CHECK(guest.rdmsr(0x8ff).kind == StepKind::retired);
  REQUIRE(guest.avic.asked.size() == 3);
  CHECK(guest.avic.asked[1].where == 0x830);
  CHECK(guest.avic.asked[1].write);
  CHECK(guest.avic.asked[1].value == 0x5'0000'0041);
  CHECK(guest.wrmsr(0x174, 5).kind == StepKind::retired);
  CHECK(guest.avic.msrs[0x174] == 5);
  CHECK(guest.avic.asked.size() == 3);
  CHECK(guest.wrmsr(0x832, 0xec).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::msr);
  CHECK(guest.avic.asked.size() == 3);
}

TEST_CASE(
    "xAVIC: x2APIC MSRs are no business of AVIC, the page at APIC_BAR is, if the nested tables allow it") {
  AvicGuest guest(false);
  REQUIRE(guest.enter().kind == StepKind::entered);
  CHECK(guest.wrmsr(0x80b, 0).kind == StepKind::retired);
  CHECK(guest.avic.asked.empty());
  guest.avic.answer.value = 0x14;
  GuestAction read = make(ActionKind::memory_read, 0, 0, 0xfee0'0030);
  CHECK(guest.run(read).result == 0x14);
  CHECK(guest.run(make(ActionKind::memory_write, 0, 0x41, 0xfee0'0300)).kind == StepKind::retired);
  REQUIRE(guest.avic.asked.size() == 2);
  CHECK(guest.avic.asked[0].where == 0x30);
  CHECK_FALSE(guest.avic.asked[0].write);
  CHECK(guest.avic.asked[1].where == 0x300);
  CHECK(guest.avic.asked[1].value == 0x41);
  // Other pages, and fetches of this one.
  CHECK(guest.run(make(ActionKind::memory_read, 0, 0, 0xfee0'1000)).kind == StepKind::retired);
  CHECK(guest.run(make(ActionKind::instruction_fetch, 0, 0, 0xfee0'0000)).kind == StepKind::retired);
  CHECK(guest.avic.asked.size() == 2);
  guest.avic.page(0xfee0'0000).present = false;
  CHECK(guest.run(read).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::npf);
  CHECK(guest.avic.asked.size() == 2);

  AvicGuest x2(true);
  REQUIRE(x2.enter().kind == StepKind::entered);
  CHECK(x2.run(read).kind == StepKind::retired);
  CHECK(x2.avic.asked.empty());
}

TEST_CASE("AVIC: a trap exits behind the instruction, a fault before it, and nRIP is the knob's") {
  struct Row {
    AvicOutcome outcome;
    std::uint64_t code;
    bool after;
  };
  for (const Row row : {Row{AvicOutcome::noaccel_fault, exit_code::avic_noaccel, false},
                        Row{AvicOutcome::noaccel_trap, exit_code::avic_noaccel, true},
                        Row{AvicOutcome::incomplete_ipi, exit_code::avic_incomplete_ipi, true}}) {
    for (const bool nrip : {false, true}) {
      AvicGuest guest(true);
      guest.vmcb.control.int_state = int_state::interrupt_shadow;
      guest.avic.answer = exits(row.outcome, 0x1'0000'00b0, 0x31);
      guest.avic.answer.nrip_is_next = nrip;
      REQUIRE(guest.enter().kind == StepKind::entered);
      const std::uint64_t at = guest.cpu.rip();
      CHECK(guest.wrmsr(0x80b, 0).kind == StepKind::vmexit);
      CHECK(guest.exit_code() == row.code);
      CHECK(guest.vmcb.control.exit_info_1 == 0x1'0000'00b0);
      CHECK(guest.vmcb.control.exit_info_2 == 0x31);
      CHECK(guest.vmcb.save.rip == at + (row.after ? 2 : 0));
      CHECK((guest.vmcb.control.int_state == 0) == row.after);
      CHECK(guest.vmcb.control.next_rip == (nrip ? at + 2 : 0));
      CHECK(guest.avic.exits == 1);
    }
  }
}

TEST_CASE("x2AVIC: a refused access is #GP(0) in the guest, at the instruction") {
  AvicGuest guest(true);
  guest.avic.answer.outcome = AvicOutcome::general_protection;
  REQUIRE(guest.enter().kind == StepKind::entered);
  const Step step = guest.wrmsr(0x80a, 1);
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 13);
  CHECK(step.result == 0);
  guest.run(make(ActionKind::iret));
  CHECK(guest.cpu.rip() == guest_rip);
  // CPL is checked before (8.3).
  GuestAction user = make(ActionKind::wrmsr, 0x80b, 0);
  user.cpl = 3;
  CHECK(guest.run(user).vector == 13);
  CHECK(guest.avic.asked.size() == 1);
}

TEST_CASE("AVIC: CR8 is V_TPR and the backing page's TPR, whatever V_INTR_MASKING says") {
  for (const bool masking : {false, true}) {
    AvicGuest guest(false);
    if (!masking) guest.vmcb.control.int_ctl &= ~int_ctl::v_intr_masking;
    guest.vmcb.control.int_ctl |= 9;
    REQUIRE(guest.enter().kind == StepKind::entered);
    CHECK(guest.run(make(ActionKind::mov_from_cr8)).result == 9);
    // Lowering it lets through what was held back.
    guest.avic.pending_after = 0x51;
    CHECK(guest.run(make(ActionKind::mov_to_cr8, 0, 4)).kind == StepKind::retired);
    CHECK(guest.avic.cr8 == std::vector<std::uint8_t>{4});
    CHECK(guest.cpu.v_tpr() == 4);
    CHECK(guest.avic.msrs.count(0x808) == (masking ? 0 : 1));
    CHECK(guest.boundary().vector == 0x51);
  }
}

TEST_CASE(
    "AVIC: a TPR write through the APIC changes V_TPR, and every access may change what is recognized") {
  AvicGuest guest(true);
  guest.avic.answer.v_tpr = 6;
  guest.avic.pending_after = 0x71;
  REQUIRE(guest.enter().kind == StepKind::entered);
  CHECK(guest.wrmsr(0x808, 0x65).kind == StepKind::retired);
  CHECK(guest.cpu.v_tpr() == 6);
  CHECK(guest.boundary().vector == 0x71);
  guest.run(make(ActionKind::vmmcall));
  CHECK(int_ctl::v_tpr(guest.vmcb.control.int_ctl) == 6);
}

TEST_CASE("AVIC: HLT exits with its intercept, with idle HLT only when nothing is deliverable") {
  for (const bool pending : {false, true}) {
    for (const Intercept intercept : {Intercept::hlt, Intercept::idle_hlt}) {
      AvicGuest guest(true, false);
      set_intercept(guest.vmcb.control, intercept, true);
      if (pending) guest.avic.highest_irr = 0x51;
      guest.avic.ppr = 0x40;
      REQUIRE(guest.enter().kind == StepKind::entered);
      CHECK(guest.run(make(ActionKind::sti)).kind == StepKind::retired);
      CHECK(guest.boundary().kind == StepKind::none);  // the shadow
      const Step step = guest.run(make(ActionKind::hlt));
      if (intercept == Intercept::idle_hlt && pending) {
        CHECK(step.kind == StepKind::halted);
        CHECK(guest.boundary().vector == 0x51);
        CHECK_FALSE(guest.cpu.halted());
      } else {
        CHECK(step.kind == StepKind::vmexit);
        CHECK(guest.exit_code() == (intercept == Intercept::hlt ? exit_code::hlt : exit_code::idle_hlt));
      }
    }
  }
}

TEST_CASE("AVIC: a guest halted without an intercept wakes when a doorbell has been evaluated") {
  AvicGuest guest(true);
  REQUIRE(guest.enter().kind == StepKind::entered);
  CHECK(guest.run(make(ActionKind::hlt)).kind == StepKind::halted);
  CHECK(guest.boundary().kind == StepKind::none);
  guest.avic.highest_irr = 0x41;
  CHECK_FALSE(guest.cpu.event_possible());  // a write of memory alone is no evaluation (8.5)
  guest.cpu.avic_evaluated();
  CHECK(guest.cpu.event_possible());
  CHECK(guest.boundary().vector == 0x41);
  CHECK_FALSE(guest.cpu.halted());
}

TEST_CASE("AVIC: an interrupt whose delivery exits is in EXITINTINFO") {
  AvicGuest guest(true);
  guest.avic.highest_irr = 0x51;
  guest.avic.page(idt_base).present = false;
  REQUIRE(guest.enter().kind == StepKind::entered);
  CHECK(guest.boundary().kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::npf);
  CHECK(guest.vmcb.control.exit_int_info == (event_inj::event(event_inj::type_intr, 0x51)));
  CHECK(guest.avic.highest_irr == -1);
}

}  // namespace svmsim::svm::test
