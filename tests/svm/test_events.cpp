#include <vector>

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

TEST_CASE("V_IRQ waits for IF and is taken after STI and its shadow") {
  Guest guest;
  guest.control_bits(int_ctl::v_intr_masking).v_irq(0xf1);
  guest.enter();
  CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
  CHECK_FALSE(guest.cpu.event_possible());
  CHECK(guest.step(ActionKind::sti).kind == StepKind::retired);
  CHECK(guest.cpu.interrupt_shadow());
  CHECK(guest.cpu.event_possible());
  CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
  const Step step = guest.step(ActionKind::vmmcall);
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 0xf1);
  CHECK_FALSE(guest.cpu.event_possible());
  guest.execute(ActionKind::iret);
  CHECK(guest.cpu.rip() == guest_rip + 6);
  CHECK(guest.step(ActionKind::vmmcall).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::vmmcall);
  CHECK_FALSE(guest.saved(int_ctl::v_irq));
}

TEST_CASE("the VINTR intercept exits before the handler runs, with V_IRQ still set") {
  Guest guest;
  guest.control_bits(int_ctl::v_intr_masking).v_irq(0xf1).intercept(Intercept::vintr);
  guest.enter();
  guest.step(ActionKind::sti);
  guest.step(ActionKind::nop);
  CHECK(guest.step(ActionKind::nop).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::vintr);
  CHECK(guest.exit_rip() == guest_rip + 4);
  CHECK(guest.vmcb.control.next_rip == 0);
  CHECK(guest.saved(int_ctl::v_irq));
  CHECK(guest.cpu.frames() == 0);

  guest.intercept(Intercept::vintr, false);
  guest.enter();
  CHECK(guest.step(ActionKind::nop).kind == StepKind::delivered);
}

TEST_CASE("a V_IRQ that V_TPR blocks is not taken and gives no VINTR exit") {
  for (const bool vintr : {false, true}) {
    Guest guest;
    guest.control_bits(int_ctl::v_intr_masking | int_ctl::with_v_tpr(0, 0xa))
        .v_irq(0xf1, 8)
        .interrupts_enabled();
    guest.intercept(Intercept::vintr, vintr);
    guest.enter();
    CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
    // Lowering CR8 to the same class is not enough, one below it is.
    guest.step(ActionKind::mov_to_cr8, 0, 8);
    CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
    guest.step(ActionKind::mov_to_cr8, 0, 7);
    CHECK(guest.step(ActionKind::nop).kind == (vintr ? StepKind::vmexit : StepKind::delivered));
  }
}

TEST_CASE("V_IGN_TPR takes V_TPR out of the comparison") {
  Guest guest;
  guest.control_bits(int_ctl::v_ign_tpr | int_ctl::with_v_tpr(0, 0xf)).v_irq(0xf1, 0).interrupts_enabled();
  guest.enter();
  CHECK(guest.boundary().kind == StepKind::delivered);
}

TEST_CASE("INTERRUPT_SHADOW at VMRUN lets exactly one instruction run first") {
  Guest guest;
  guest.control_bits(int_ctl::v_intr_masking).v_irq(0xf1).interrupts_enabled();
  guest.vmcb.control.int_state = int_state::interrupt_shadow;
  guest.enter();
  CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
  CHECK(guest.step(ActionKind::nop).kind == StepKind::delivered);
  guest.execute(ActionKind::iret);
  CHECK(guest.cpu.rip() == guest_rip + 2);
  guest.step(ActionKind::vmmcall);
  CHECK_FALSE(guest.saved_shadow());
  CHECK_FALSE(guest.saved(int_ctl::v_irq));
}

TEST_CASE("only an STI that sets IF has a shadow, and an exit saves it") {
  Guest guest;
  guest.enter();
  guest.execute(ActionKind::sti);
  CHECK(guest.cpu.interrupt_shadow());
  guest.execute(ActionKind::vmmcall);
  CHECK(guest.saved_shadow());
  CHECK((guest.vmcb.save.rflags & rflags::interrupt) != 0);

  // The shadow comes back with VMRUN; a second STI has none.
  guest.enter();
  CHECK(guest.cpu.interrupt_shadow());
  guest.execute(ActionKind::sti);
  CHECK_FALSE(guest.cpu.interrupt_shadow());
  guest.execute(ActionKind::vmmcall);
  CHECK_FALSE(guest.saved_shadow());
}

TEST_CASE("CLI under the shadow ends it with IF clear: STI; CLI opens no window") {
  Guest guest;
  guest.v_irq(0xf1);
  guest.enter();
  guest.step(ActionKind::sti);
  CHECK(guest.step(ActionKind::cli).kind == StepKind::retired);
  CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
}

TEST_CASE("VGIF masks virtual interrupts and virtual NMIs where it is enabled") {
  for (const bool enabled : {false, true}) {
    for (const bool set : {false, true}) {
      Guest irq;
      irq.v_irq(0xf1).interrupts_enabled();
      irq.control_bits((enabled ? int_ctl::v_gif_enable : 0U) | (set ? int_ctl::v_gif : 0U));
      irq.enter();
      CHECK((irq.boundary().kind == StepKind::delivered) == (!enabled || set));
      irq.execute(ActionKind::vmmcall);
      CHECK(irq.saved(int_ctl::v_gif) == set);

      Guest nmi;
      nmi.intercept(Intercept::nmi).control_bits(int_ctl::v_nmi_enable | int_ctl::v_nmi);
      nmi.control_bits((enabled ? int_ctl::v_gif_enable : 0U) | (set ? int_ctl::v_gif : 0U));
      nmi.enter();
      CHECK((nmi.boundary().kind == StepKind::delivered) == (!enabled || set));
    }
  }
  // Without the feature both bits are reserved.
  Guest old(all_but_avic().without(Feature::vgif));
  old.v_irq(0xf1).interrupts_enabled().control_bits(int_ctl::v_gif_enable);
  old.enter();
  CHECK(old.boundary().kind == StepKind::delivered);
}

TEST_CASE("a virtual NMI runs its handler once, whatever IF says, and IRET unmasks the next") {
  Guest guest;
  guest.intercept(Intercept::nmi).control_bits(int_ctl::v_nmi_enable | int_ctl::v_nmi);
  guest.enter();
  CHECK(guest.cpu.event_possible());
  const Step step = guest.step(ActionKind::nop);
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 2);
  CHECK_FALSE(guest.cpu.event_possible());
  guest.execute(ActionKind::vmmcall);
  CHECK_FALSE(guest.saved(int_ctl::v_nmi));
  CHECK(guest.saved(int_ctl::v_nmi_mask));

  // A second one waits for the end of the first.
  guest.control_bits(int_ctl::v_nmi);
  guest.enter();
  CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
  CHECK(guest.step(ActionKind::iret).kind == StepKind::retired);
  CHECK(guest.cpu.rip() == guest_rip);
  CHECK(guest.step(ActionKind::nop).kind == StepKind::delivered);
  guest.execute(ActionKind::iret);
  guest.execute(ActionKind::vmmcall);
  CHECK_FALSE(guest.saved(int_ctl::v_nmi_mask));
}

TEST_CASE("a virtual NMI waits for the end of the shadow") {
  Guest guest;
  guest.intercept(Intercept::nmi).control_bits(int_ctl::v_nmi_enable | int_ctl::v_nmi);
  guest.vmcb.control.int_state = int_state::interrupt_shadow;
  guest.enter();
  CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
  CHECK(guest.step(ActionKind::nop).kind == StepKind::delivered);
}

TEST_CASE("V_NMI says nothing without V_NMI_ENABLE, and the exit leaves it alone") {
  Guest guest;
  guest.control_bits(int_ctl::v_nmi);
  guest.enter();
  CHECK_FALSE(guest.cpu.event_possible());
  CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
  guest.execute(ActionKind::vmmcall);
  CHECK(guest.saved(int_ctl::v_nmi));
}

TEST_CASE(
    "an NPF during delivery: V_IRQ is already 0, V_NMI_MASK is saved as 0, rIP is the interrupted "
    "instruction") {
  Guest irq;
  irq.v_irq(0x41).interrupts_enabled();
  irq.environment.missing_pages.insert(idt_base >> 12);
  irq.enter();
  CHECK(irq.boundary().kind == StepKind::vmexit);
  CHECK(irq.exit_code() == exit_code::npf);
  CHECK(irq.vmcb.control.exit_int_info == 0x8000'0041);
  CHECK_FALSE(irq.saved(int_ctl::v_irq));
  CHECK(irq.exit_rip() == guest_rip);

  Guest nmi;
  nmi.intercept(Intercept::nmi).control_bits(int_ctl::v_nmi_enable | int_ctl::v_nmi);
  nmi.environment.missing_pages.insert(gdt_base >> 12);
  nmi.enter();
  CHECK(nmi.boundary().kind == StepKind::vmexit);
  CHECK(nmi.exit_code() == exit_code::npf);
  CHECK(nmi.vmcb.control.exit_int_info == 0x8000'0202);
  CHECK_FALSE(nmi.saved(int_ctl::v_nmi));
  CHECK_FALSE(nmi.saved(int_ctl::v_nmi_mask));
}

TEST_CASE("what enables a physical INTR") {
  struct Case {
    bool masking, host_if, guest_if, knob, exits;
  };
  const std::vector<Case> cases{
      {false, true, true, true, true},    {false, false, true, true, true},
      {false, true, false, true, false},  {true, true, false, true, true},
      {true, true, true, true, true},     {true, false, true, true, false},
      {true, false, false, true, false},  {true, false, false, false, true},
      {true, false, true, false, true},   {true, true, false, false, true},
      {false, true, false, false, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.masking);
    CAPTURE(c.host_if);
    CAPTURE(c.guest_if);
    CAPTURE(c.knob);
    Knobs knobs;
    knobs.host_if_clear_masks_intr_exit = c.knob;
    Guest guest(all_but_avic(), knobs);
    guest.host_if = c.host_if;
    guest.intercept(Intercept::intr).interrupts_enabled(c.guest_if);
    if (c.masking) guest.control_bits(int_ctl::v_intr_masking);
    guest.events.intr = true;
    guest.enter();
    const Step step = guest.boundary();
    CHECK((step.kind == StepKind::vmexit) == c.exits);
    if (c.exits) {
      CHECK(guest.exit_code() == exit_code::intr);
      CHECK(guest.vmcb.control.next_rip == 0);
      CHECK(guest.exit_rip() == guest_rip);
    }
  }
}

TEST_CASE(
    "STI opens the way for a pending physical INTR, and the exit ignores the shadow unless the knob says "
    "otherwise") {
  for (const bool delayed : {false, true}) {
    Knobs knobs;
    knobs.shadow_delays_intr_exit = delayed;
    Guest guest(all_but_avic(), knobs);
    guest.intercept(Intercept::intr);
    guest.events.intr = true;
    guest.enter();
    CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
    guest.step(ActionKind::sti);
    const Step step = guest.step(ActionKind::nop);
    CHECK(step.kind == (delayed ? StepKind::retired : StepKind::vmexit));
    if (delayed) CHECK(guest.step(ActionKind::nop).kind == StepKind::vmexit);
    CHECK(guest.exit_code() == exit_code::intr);
    CHECK(guest.saved_shadow() == !delayed);
    CHECK((guest.vmcb.save.rflags & rflags::interrupt) != 0);
  }
}

TEST_CASE("the shadow knob holds for physical NMIs too") {
  for (const bool delayed : {false, true}) {
    Knobs knobs;
    knobs.shadow_delays_intr_exit = delayed;
    Guest guest(all_but_avic(), knobs);
    guest.intercept(Intercept::nmi);
    guest.vmcb.control.int_state = int_state::interrupt_shadow;
    guest.events.nmi = true;
    guest.enter();
    CHECK(guest.boundary().kind == (delayed ? StepKind::none : StepKind::vmexit));
  }
}

TEST_CASE("a physical interrupt without the intercept is acknowledged and delivered to the guest") {
  Guest guest;
  guest.events.intr = true;
  guest.environment.physical_vector = 0x52;
  guest.interrupts_enabled();
  guest.vmcb.control.int_state = int_state::interrupt_shadow;
  guest.enter();
  CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);  // the shadow delays a delivery
  const Step step = guest.step(ActionKind::nop);
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 0x52);

  Guest none;
  none.events.intr = true;
  none.interrupts_enabled();
  none.enter();
  CHECK(none.boundary().kind == StepKind::none);
}

TEST_CASE("a physical NMI without the intercept reaches the guest's handler, and the next waits for IRET") {
  Guest guest;
  guest.events.nmi = true;
  guest.enter();
  CHECK(guest.boundary().vector == 2);
  CHECK(guest.environment.physical_nmis_taken == 1);
  CHECK(guest.boundary().kind == StepKind::none);
  guest.execute(ActionKind::iret);
  CHECK(guest.boundary().kind == StepKind::delivered);
  CHECK(guest.environment.physical_nmis_taken == 2);
}

TEST_CASE(
    "a physical NMI for the guest waits for the end of the shadow, and comes again if its delivery exits") {
  Guest guest;
  guest.vmcb.control.int_state = int_state::interrupt_shadow;
  guest.environment.missing_pages.insert(gdt_base >> 12);
  guest.events.nmi = true;
  guest.enter();
  CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
  CHECK(guest.step(ActionKind::nop).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::npf);
  CHECK(guest.vmcb.control.exit_int_info == 0x8000'0202);
  guest.environment.missing_pages.clear();
  guest.enter();
  CHECK(guest.boundary().kind == StepKind::delivered);
}

TEST_CASE("the order of events at a boundary: SMI, INIT, NMI, V_NMI, INTR, V_IRQ") {
  Guest guest;
  for (const Intercept intercept :
       {Intercept::smi, Intercept::init, Intercept::nmi, Intercept::intr, Intercept::vintr}) {
    guest.intercept(intercept);
  }
  guest.v_irq(0x41).interrupts_enabled().control_bits(int_ctl::v_nmi_enable | int_ctl::v_nmi);
  guest.events = {true, true, true, true};
  const auto next = [&guest] {
    guest.enter();
    const Step step = guest.boundary();
    if (step.kind == StepKind::delivered) {
      guest.execute(ActionKind::vmmcall);
      return std::uint64_t{2};
    }
    return guest.exit_code();
  };
  CHECK(next() == exit_code::smi);
  CHECK(guest.vmcb.control.exit_info_1 == 1);  // external
  guest.events.smi = false;
  CHECK(next() == exit_code::init);
  guest.events.init = false;
  CHECK(next() == exit_code::nmi);
  guest.events.nmi = false;
  CHECK(next() == 2);
  guest.interrupts_enabled();  // the handler runs with IF = 0
  CHECK(next() == exit_code::intr);
  guest.events.intr = false;
  CHECK(next() == exit_code::vintr);
  guest.vmcb.control.int_ctl &= ~int_ctl::v_irq;
  guest.enter();
  CHECK(guest.boundary().kind == StepKind::none);
}

TEST_CASE("an SMI without its intercept passes unseen and starts the PAUSE count anew") {
  Guest guest;
  guest.intercept(Intercept::pause);
  guest.vmcb.control.pause_filter_count = 2;
  guest.events.smi = true;
  guest.environment.smi_pending = true;
  guest.enter();
  guest.execute(ActionKind::pause);
  guest.execute(ActionKind::pause);
  CHECK(guest.boundary().kind == StepKind::none);
  CHECK_FALSE(guest.environment.smi_pending);
  CHECK(guest.execute(ActionKind::pause).kind == StepKind::retired);
  CHECK(guest.execute(ActionKind::pause).kind == StepKind::retired);
  CHECK(guest.execute(ActionKind::pause).kind == StepKind::vmexit);
}

TEST_CASE("an SMI exit says where the SMI comes from") {
  Guest guest;
  guest.intercept(Intercept::smi);
  guest.environment.smi = {0x1f0'0002'0000'0000, guest_rip};
  guest.events.smi = true;
  guest.enter();
  CHECK(guest.boundary().kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::smi);
  CHECK(guest.vmcb.control.exit_info_1 == 0x1f0'0002'0000'0000);
  CHECK(guest.vmcb.control.exit_info_2 == guest_rip);
}

TEST_CASE("an INIT without its intercept ends guest mode and saves nothing") {
  Guest guest;
  guest.events.init = true;
  guest.environment.init_pending = true;
  guest.enter();
  guest.execute(ActionKind::nop);
  CHECK(guest.boundary().kind == StepKind::reset);
  CHECK_FALSE(guest.cpu.in_guest_mode());
  CHECK_FALSE(guest.environment.init_pending);
  CHECK(guest.exit_rip() == guest_rip);
  CHECK(guest.cpu.gif());
}

TEST_CASE("VM_CR.R_INIT makes an INIT without its intercept #SX(1)") {
  for (const bool intercepted : {false, true}) {
    Guest guest;
    guest.intercept(Intercept::exception_30, intercepted);
    guest.environment.r_init = true;
    guest.events.init = true;
    guest.enter();
    const Step step = guest.boundary();
    CHECK(step.kind == (intercepted ? StepKind::vmexit : StepKind::delivered));
    if (intercepted) {
      CHECK(guest.exit_code() == 0x5e);
      CHECK(guest.vmcb.control.exit_info_1 == 1);
    } else {
      CHECK(step.vector == 30);
      CHECK(step.result == 1);
    }
  }
  Guest both;
  both.intercept(Intercept::init).environment.r_init = true;
  both.events.init = true;
  both.enter();
  both.boundary();
  CHECK(both.exit_code() == exit_code::init);  // the intercept comes first
}

TEST_CASE("with AVIC enabled V_IRQ is ignored and the exit leaves it as it was") {
  Guest guest(all_but_avic().with(Feature::avic));
  guest.v_irq(0x41).interrupts_enabled().intercept(Intercept::vintr).control_bits(int_ctl::avic_enable);
  guest.enter();
  CHECK_FALSE(guest.cpu.event_possible());
  CHECK(guest.boundary().kind == StepKind::none);
  guest.execute(ActionKind::vmmcall);
  CHECK(guest.saved(int_ctl::v_irq));
}

TEST_CASE("event_possible() is never false when boundary() would take a virtual event") {
  for (std::uint32_t bits = 0; bits < 256; ++bits) {
    Guest guest;
    guest.intercept(Intercept::nmi);
    const auto on = [bits](unsigned n) { return ((bits >> n) & 1U) != 0; };
    if (on(0)) guest.v_irq(0x41, on(1) ? 0xf : 0);
    guest.interrupts_enabled(on(2));
    guest.control_bits((on(3) ? int_ctl::v_gif_enable : 0U) | (on(4) ? int_ctl::v_gif : 0U));
    guest.control_bits((on(5) ? int_ctl::v_nmi_enable : 0U) | (on(6) ? int_ctl::v_nmi : 0U));
    guest.control_bits(on(7) ? int_ctl::v_nmi_mask : 0U);
    guest.enter();
    const bool possible = guest.cpu.event_possible();
    if (guest.boundary().kind != StepKind::none) CHECK(possible);
  }
}

TEST_CASE("frames nest, and IRET without a frame falls through") {
  Guest guest;
  guest.vmcb.control.event_inj = event_inj::event(event_inj::type_intr, 0x30);
  guest.vmcb.save.rflags |= rflags::interrupt;
  guest.v_irq(0x41);
  guest.enter();
  CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);  // IF is 0 in the handler
  guest.step(ActionKind::sti);
  guest.step(ActionKind::nop);
  CHECK(guest.step(ActionKind::nop).vector == 0x41);
  CHECK(guest.cpu.frames() == 2);
  guest.execute(ActionKind::iret);
  CHECK(guest.cpu.rip() == FakeEnvironment::handler(0x30) + 6);
  CHECK((guest.cpu.rflags() & rflags::interrupt) != 0);
  guest.execute(ActionKind::iret);
  CHECK(guest.cpu.rip() == guest_rip);
  CHECK(guest.cpu.frames() == 0);
  CHECK(guest.execute(ActionKind::iret).kind == StepKind::retired);
  CHECK(guest.cpu.rip() == guest_rip + 2);
}

TEST_CASE("handlers that never return do not grow the frame list without end") {
  Guest guest;
  guest.enter();
  for (int n = 0; n < 5000; ++n) {
    guest.execute(ActionKind::vmmcall);
    guest.vmcb.control.event_inj = event_inj::event(event_inj::type_intr, 0x30);
    guest.enter();
  }
  CHECK(guest.cpu.frames() == 1024);
}

TEST_CASE("the privilege level of the interrupted code comes back with IRET and is saved by an exit") {
  Guest guest;
  guest.v_irq(0x41).interrupts_enabled();
  guest.vmcb.save.cpl = 3;
  guest.enter();
  guest.cpl = 3;
  CHECK(guest.cpu.cpl() == 3);
  guest.execute(ActionKind::nop);
  CHECK(guest.boundary().kind == StepKind::delivered);
  CHECK(guest.cpu.cpl() == 0);
  guest.cpl = 0;
  guest.execute(ActionKind::iret);
  CHECK(guest.cpu.cpl() == 3);
  guest.cpl = 3;
  guest.execute(ActionKind::vmmcall);
  CHECK(guest.vmcb.save.cpl == 3);
}

TEST_CASE("VMRUN sets GIF every time, #VMEXIT clears it") {
  Guest guest;
  for (int round = 0; round < 2; ++round) {
    guest.enter();
    CHECK(guest.cpu.gif());
    guest.execute(ActionKind::vmmcall);
    CHECK_FALSE(guest.cpu.gif());
  }
}

TEST_CASE("VMRUN forces CPL 0 in real mode and CPL 3 in virtual-8086 mode") {
  Guest real;
  real.vmcb.save.efer = efer::svme;
  real.vmcb.save.cr0 = 0;
  real.vmcb.save.cpl = 3;
  real.enter();
  CHECK(real.cpu.cpl() == 0);

  Guest v86;
  v86.vmcb.save.efer = efer::svme;
  v86.vmcb.save.rflags |= rflags::virtual_8086;
  v86.enter();
  CHECK(v86.cpu.cpl() == 3);
}
