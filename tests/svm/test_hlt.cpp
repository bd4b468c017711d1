#include <vector>

#include <doctest/doctest.h>

#include "svm/idle_hlt.hpp"
#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

Knobs with_pending(IdleHltPending pending) {
  Knobs knobs;
  knobs.idle_hlt_pending = pending;
  return knobs;
}

constexpr std::array all_knobs{IdleHltPending::raw, IdleHltPending::priority, IdleHltPending::deliverable};

/// A guest with the idle-HLT intercept.
struct IdleGuest : Guest {
  explicit IdleGuest(IdleHltPending pending = IdleHltPending::priority, FeatureSet features = all_but_avic())
      : Guest(features, with_pending(pending)) {
    length = 1;
    intercept(Intercept::idle_hlt).intercept(Intercept::nmi);
  }
};

/// Whether HLT at once after VMRUN exits with A6h; the alternative is that it halts.
bool idle_exit(Guest& guest) {
  guest.enter();
  const Step step = guest.execute(ActionKind::hlt);
  if (step.kind == StepKind::halted) {
    CHECK(guest.cpu.halted());
    return false;
  }
  REQUIRE(step.kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::idle_hlt);
  return true;
}

}  // namespace

TEST_CASE("CPL > 0 raises #GP(0) before any HLT intercept") {
  for (const bool intercept : {false, true}) {
    Guest guest;
    guest.intercept(Intercept::hlt, intercept).intercept(Intercept::idle_hlt, intercept);
    guest.intercept(Intercept::exception_13);
    guest.cpl = 3;
    guest.enter();
    CHECK(guest.execute(ActionKind::hlt).kind == StepKind::vmexit);
    CHECK(guest.exit_code() == exit_code::exception(13));
    CHECK(guest.vmcb.control.exit_info_1 == 0);
    CHECK(guest.exit_rip() == guest_rip);
  }
}

TEST_CASE("the HLT intercept exits 78h with rIP at HLT and nRIP behind it, pending interrupt or not") {
  for (const bool pending : {false, true}) {
    for (const bool idle : {false, true}) {
      Guest guest;
      guest.length = 1;
      guest.intercept(Intercept::hlt).intercept(Intercept::idle_hlt, idle);
      if (pending) guest.v_irq(0x41);
      guest.enter();
      CHECK(guest.execute(ActionKind::hlt).kind == StepKind::vmexit);
      CHECK(guest.exit_code() == exit_code::hlt);
      CHECK(guest.exit_rip() == guest_rip);
      CHECK(guest.vmcb.control.next_rip == guest_rip + 1);
      CHECK_FALSE(guest.cpu.halted());
    }
  }
}

TEST_CASE("the idle-HLT intercept exits A6h if nothing is pending") {
  IdleGuest guest;
  CHECK(idle_exit(guest));
  CHECK(guest.exit_rip() == guest_rip);
  CHECK(guest.vmcb.control.next_rip == guest_rip + 1);
}

TEST_CASE("the idle-HLT intercept lets HLT run if V_IRQ, V_NMI or the backing page has something") {
  IdleGuest irq;
  irq.v_irq(0x41);
  CHECK_FALSE(idle_exit(irq));
  CHECK(irq.cpu.rip() == guest_rip + 1);

  IdleGuest nmi;
  nmi.control_bits(int_ctl::v_nmi_enable | int_ctl::v_nmi);
  CHECK_FALSE(idle_exit(nmi));

  IdleGuest avic(IdleHltPending::priority, all_but_avic().with(Feature::avic));
  avic.control_bits(int_ctl::avic_enable);
  avic.environment.highest_irr = 0x41;
  CHECK_FALSE(idle_exit(avic));
  IdleGuest empty(IdleHltPending::priority, all_but_avic().with(Feature::avic));
  empty.control_bits(int_ctl::avic_enable);
  CHECK(idle_exit(empty));
}

TEST_CASE("V_NMI counts only with V_NMI_ENABLE; V_IRQ does not count under AVIC") {
  for (const IdleHltPending pending : all_knobs) {
    IdleGuest nmi(pending);
    nmi.control_bits(int_ctl::v_nmi);
    CHECK(idle_exit(nmi));

    IdleGuest avic(pending, all_but_avic().with(Feature::avic));
    avic.control_bits(int_ctl::avic_enable).v_irq(0x41).interrupts_enabled();
    CHECK(idle_exit(avic));
  }
}

TEST_CASE("the pending decision itself looks at V_NMI_ENABLE") {
  for (const IdleHltPending pending : all_knobs) {
    const Knobs knobs = with_pending(pending);
    CHECK_FALSE(virtual_interrupt_pending({int_ctl::v_nmi, 0, -1, 0}, knobs));
    CHECK(virtual_interrupt_pending({int_ctl::v_nmi | int_ctl::v_nmi_enable, 0, -1, 0}, knobs));
  }
}

TEST_CASE("without the CPUID feature the idle-HLT bit does nothing") {
  IdleGuest guest(IdleHltPending::priority, all_but_avic().without(Feature::idle_hlt));
  CHECK_FALSE(idle_exit(guest));
}

TEST_CASE("neither intercept: HLT halts in the guest, rIP behind it") {
  Guest guest;
  guest.length = 1;
  guest.enter();
  CHECK(guest.execute(ActionKind::hlt).kind == StepKind::halted);
  CHECK(guest.cpu.halted());
  CHECK(guest.cpu.rip() == guest_rip + 1);
}

TEST_CASE("STI; HLT with something pending never exits, whatever the knob: the shadow does not mask") {
  for (const IdleHltPending pending : all_knobs) {
    IdleGuest guest(pending);
    guest.v_irq(0x41);
    guest.enter();
    guest.step(ActionKind::sti);
    CHECK(guest.step(ActionKind::hlt).kind == StepKind::halted);
    CHECK_FALSE(guest.cpu.interrupt_shadow());
    const Step step = guest.boundary();
    CHECK(step.kind == StepKind::delivered);
    CHECK(step.vector == 0x41);
    CHECK_FALSE(guest.cpu.halted());
    guest.length = 2;
    guest.execute(ActionKind::iret);
    CHECK(guest.cpu.rip() == guest_rip + 2);  // behind HLT
  }
}

TEST_CASE("STI; HLT with the VINTR window armed: no HLT exit, then exit 64h behind HLT") {
  IdleGuest guest;
  guest.v_irq(0).intercept(Intercept::vintr);
  guest.enter();
  guest.step(ActionKind::sti);
  CHECK(guest.step(ActionKind::hlt).kind == StepKind::halted);
  CHECK(guest.boundary().kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::vintr);
  CHECK(guest.exit_rip() == guest_rip + 2);
  CHECK_FALSE(guest.saved_shadow());
  CHECK(guest.saved(int_ctl::v_irq));
  CHECK_FALSE(guest.cpu.halted());
}

TEST_CASE("with the HLT intercept the same program exits 78h inside the shadow, V_IRQ still set") {
  Guest guest;
  guest.length = 1;
  guest.v_irq(0).intercept(Intercept::vintr).intercept(Intercept::hlt);
  guest.enter();
  guest.step(ActionKind::sti);
  CHECK(guest.step(ActionKind::hlt).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::hlt);
  CHECK(guest.exit_rip() == guest_rip + 1);
  CHECK(guest.saved_shadow());
  CHECK(guest.saved(int_ctl::v_irq));
}

TEST_CASE("CLI; HLT with a pending V_IRQ: only `deliverable` exits, the others halt and stay halted") {
  for (const IdleHltPending pending : all_knobs) {
    IdleGuest guest(pending);
    guest.v_irq(0x41).interrupts_enabled();
    guest.enter();
    guest.execute(ActionKind::cli);
    const Step step = guest.step(ActionKind::hlt);
    if (pending == IdleHltPending::deliverable) {
      CHECK(step.kind == StepKind::vmexit);
      CHECK(guest.exit_code() == exit_code::idle_hlt);
    } else {
      CHECK(step.kind == StepKind::halted);
      CHECK(guest.boundary().kind == StepKind::none);
      CHECK(guest.cpu.halted());
    }
  }
}

TEST_CASE("a V_IRQ that V_TPR masks counts for `raw` alone") {
  for (const IdleHltPending pending : all_knobs) {
    IdleGuest guest(pending);
    guest.v_irq(0x41, 4).control_bits(int_ctl::with_v_tpr(0, 4)).interrupts_enabled();
    CHECK(idle_exit(guest) == (pending != IdleHltPending::raw));
  }
}

TEST_CASE("VGIF = 0 makes `deliverable` alone exit") {
  for (const IdleHltPending pending : all_knobs) {
    IdleGuest irq(pending);
    irq.v_irq(0x41).control_bits(int_ctl::v_gif_enable).interrupts_enabled();
    CHECK(idle_exit(irq) == (pending == IdleHltPending::deliverable));

    IdleGuest nmi(pending);
    nmi.control_bits(int_ctl::v_gif_enable | int_ctl::v_nmi_enable | int_ctl::v_nmi).interrupts_enabled();
    CHECK(idle_exit(nmi) == (pending == IdleHltPending::deliverable));
  }
}

TEST_CASE("a V_NMI that V_NMI_MASK masks counts for `raw` alone") {
  for (const IdleHltPending pending : all_knobs) {
    IdleGuest guest(pending);
    guest.control_bits(int_ctl::v_nmi_enable | int_ctl::v_nmi | int_ctl::v_nmi_mask);
    CHECK(idle_exit(guest) == (pending != IdleHltPending::raw));
  }
}

TEST_CASE("AVIC: an IRR class that PPR masks counts for `raw` alone, and a knob takes the IRR out") {
  const FeatureSet features = all_but_avic().with(Feature::avic);
  for (const IdleHltPending pending : all_knobs) {
    IdleGuest guest(pending, features);
    guest.control_bits(int_ctl::avic_enable).interrupts_enabled();
    guest.environment.highest_irr = 0x41;
    guest.environment.ppr = 0x40;
    CHECK(idle_exit(guest) == (pending != IdleHltPending::raw));

    IdleGuest above(pending, features);
    above.control_bits(int_ctl::avic_enable).interrupts_enabled();
    above.environment.highest_irr = 0x41;
    above.environment.ppr = 0x3f;
    CHECK_FALSE(idle_exit(above));

    Knobs knobs = with_pending(pending);
    knobs.idle_hlt_counts_avic_irr = false;
    Guest off(features, knobs);
    off.intercept(Intercept::idle_hlt).control_bits(int_ctl::avic_enable).interrupts_enabled();
    off.environment.highest_irr = 0xf1;
    CHECK(idle_exit(off));
  }
}

// Over every combination of inputs: the settings form a chain (what `deliverable` calls pending, `priority`
// does, and what `priority` calls pending, `raw` does), and they differ only where something masks a pending
// event.
TEST_CASE("the three settings differ exactly where a pending event is masked") {
  std::size_t raw_only = 0;
  std::size_t not_deliverable = 0;
  for (unsigned bits = 0; bits < 1024; ++bits) {
    const auto on = [bits](unsigned n) { return ((bits >> n) & 1U) != 0; };
    const bool irq = on(0), above = on(1), ignore = on(2), interrupt_flag = on(3), gif_enable = on(4),
               gif = on(5), nmi = on(6), nmi_mask = on(7), avic = on(8), irr = on(9);
    IdleHltInputs inputs;
    inputs.int_ctl = int_ctl::v_nmi_enable | (irq ? int_ctl::v_irq : 0U) |
                     (ignore ? int_ctl::v_ign_tpr : 0U) | (gif_enable ? int_ctl::v_gif_enable : 0U) |
                     (gif ? int_ctl::v_gif : 0U) | (nmi ? int_ctl::v_nmi : 0U) |
                     (nmi_mask ? int_ctl::v_nmi_mask : 0U) | (avic ? int_ctl::avic_enable : 0U);
    inputs.int_ctl = int_ctl::with_v_tpr(int_ctl::with_v_intr_prio(inputs.int_ctl, 8), above ? 7 : 8);
    inputs.rflags = interrupt_flag ? rflags::interrupt : 0;
    inputs.avic_highest_irr = irr ? 0x80 : -1;
    inputs.avic_ppr = above ? 0x7f : 0x80;

    const bool pending_interrupt = avic ? irr : irq;
    const bool interrupt_masked = avic ? !above : !above && !ignore;
    const bool global = !gif_enable || gif;
    const bool raw = pending_interrupt || nmi;
    const bool priority = (pending_interrupt && !interrupt_masked) || (nmi && !nmi_mask);
    const bool deliverable =
        global && ((pending_interrupt && !interrupt_masked && interrupt_flag) || (nmi && !nmi_mask));
    CAPTURE(bits);
    CHECK(virtual_interrupt_pending(inputs, with_pending(IdleHltPending::raw)) == raw);
    CHECK(virtual_interrupt_pending(inputs, with_pending(IdleHltPending::priority)) == priority);
    CHECK(virtual_interrupt_pending(inputs, with_pending(IdleHltPending::deliverable)) == deliverable);
    if (raw != priority) {
      CHECK(((pending_interrupt && interrupt_masked) || (nmi && nmi_mask)));
      ++raw_only;
    }
    if (priority != deliverable) {
      CHECK((!global || !interrupt_flag));
      ++not_deliverable;
    }
  }
  CHECK(raw_only > 0);
  CHECK(not_deliverable > 0);
}

TEST_CASE("what wakes a CPU that is halted in guest mode") {
  const auto halted = [](Guest& guest) {
    guest.length = 1;
    guest.enter();
    REQUIRE(guest.execute(ActionKind::hlt).kind == StepKind::halted);
    CHECK(guest.boundary().kind == StepKind::none);
  };

  SUBCASE("an intercepted physical INTR exits behind HLT, and VMRUN does not resume the halt") {
    Guest guest;
    guest.intercept(Intercept::intr).control_bits(int_ctl::v_intr_masking);
    halted(guest);
    guest.events.intr = true;
    CHECK(guest.boundary().kind == StepKind::vmexit);
    CHECK(guest.exit_code() == exit_code::intr);
    CHECK(guest.exit_rip() == guest_rip + 1);
    guest.events.intr = false;
    guest.enter();
    CHECK_FALSE(guest.cpu.halted());
    CHECK(guest.step(ActionKind::nop).kind == StepKind::retired);
  }
  SUBCASE("an intercepted physical NMI, likewise") {
    Guest guest;
    guest.intercept(Intercept::nmi);
    halted(guest);
    guest.events.nmi = true;
    CHECK(guest.boundary().kind == StepKind::vmexit);
    CHECK(guest.exit_code() == exit_code::nmi);
    CHECK(guest.exit_rip() == guest_rip + 1);
  }
  SUBCASE("SMI and INIT by their intercepts") {
    Guest guest;
    guest.intercept(Intercept::init);
    halted(guest);
    guest.events.init = true;
    CHECK(guest.boundary().kind == StepKind::vmexit);
    CHECK(guest.exit_code() == exit_code::init);
  }
  SUBCASE("a masked physical INTR does not wake") {
    Guest guest;
    guest.host_if = false;
    guest.intercept(Intercept::intr).control_bits(int_ctl::v_intr_masking);
    halted(guest);
    guest.events.intr = true;
    CHECK(guest.boundary().kind == StepKind::none);
    CHECK(guest.cpu.halted());
  }
  SUBCASE("a physical INTR that the guest itself takes") {
    Guest guest;
    guest.interrupts_enabled();
    guest.environment.physical_vector = 0x33;
    halted(guest);
    guest.events.intr = true;
    CHECK(guest.boundary().vector == 0x33);
    CHECK_FALSE(guest.cpu.halted());
  }
  SUBCASE("a virtual INTR or NMI that is deliverable at once") {
    Guest guest;
    guest.length = 1;
    guest.v_irq(0x41).interrupts_enabled();
    guest.enter();
    guest.execute(ActionKind::hlt);
    CHECK(guest.boundary().vector == 0x41);
    CHECK_FALSE(guest.cpu.halted());
  }
  SUBCASE("a virtual INTR does not wake while IF = 0, a virtual NMI does") {
    Guest guest;
    guest.length = 1;
    guest.v_irq(0x41);
    guest.enter();
    guest.execute(ActionKind::hlt);
    CHECK(guest.boundary().kind == StepKind::none);
    CHECK(guest.cpu.halted());

    Guest nmi;
    nmi.intercept(Intercept::nmi).control_bits(int_ctl::v_nmi_enable | int_ctl::v_nmi);
    nmi.enter();
    nmi.execute(ActionKind::hlt);
    CHECK(nmi.boundary().vector == 2);
  }
}

TEST_CASE("CLI; self-IPI; STI; HLT a thousand times: no HLT exit with idle HLT, a thousand without") {
  for (const bool idle : {false, true}) {
    Guest guest;
    guest.length = 1;
    guest.intercept(idle ? Intercept::idle_hlt : Intercept::hlt);
    unsigned hlt_exits = 0;
    unsigned handled = 0;
    guest.enter();
    for (int round = 0; round < 1000; ++round) {
      guest.step(ActionKind::cli);
      guest.execute(ActionKind::vmmcall);  // stands for the ICR write: the hypervisor sets V_IRQ
      guest.v_irq(0x41);
      guest.vmcb.save.rip += 1;
      guest.enter();
      guest.step(ActionKind::sti);
      Step step = guest.step(ActionKind::hlt);
      if (step.kind == StepKind::vmexit) {
        if (guest.exit_code() == exit_code::hlt || guest.exit_code() == exit_code::idle_hlt) ++hlt_exits;
        guest.vmcb.save.rip = guest.vmcb.control.next_rip;
        guest.vmcb.control.int_state = 0;  // KVM clears the shadow when it skips an instruction
        guest.enter();
      }
      step = guest.boundary();
      REQUIRE(step.kind == StepKind::delivered);
      ++handled;
      guest.execute(ActionKind::iret);
    }
    CHECK(handled == 1000);
    CHECK(hlt_exits == (idle ? 0U : 1000U));
  }
}
