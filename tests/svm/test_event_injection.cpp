#include <vector>

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

Guest& inject(Guest& guest, std::uint32_t word, std::uint32_t error = 0) {
  guest.vmcb.control.event_inj = word;
  guest.vmcb.control.event_inj_err = error;
  return guest;
}

}  // namespace

TEST_CASE("an injected interrupt is taken before the first guest instruction, whatever masks it") {
  Guest guest;
  inject(guest, event_inj::event(event_inj::type_intr, 0x41));
  guest.interrupts_enabled(false);
  guest.control_bits(int_ctl::v_gif_enable | int_ctl::with_v_tpr(0, 0xf));  // VGIF = 0, V_TPR = 15
  guest.vmcb.control.int_state = int_state::interrupt_shadow;
  const Step step = guest.enter();
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 0x41);
  CHECK(guest.cpu.rip() == FakeEnvironment::handler(0x41));
  CHECK_FALSE(guest.cpu.interrupt_shadow());
  CHECK(guest.cpu.frames() == 1);

  CHECK(guest.execute(ActionKind::iret).kind == StepKind::retired);
  CHECK(guest.cpu.rip() == guest_rip);
  guest.execute(ActionKind::vmmcall);
  CHECK(guest.exit_code() == exit_code::vmmcall);
  CHECK((guest.vmcb.control.event_inj & event_inj::valid) == 0);
  CHECK(guest.vmcb.control.exit_int_info == 0);
}

TEST_CASE("delivery clears IF and IRET brings it back") {
  Guest guest;
  inject(guest, event_inj::event(event_inj::type_intr, 0x41)).interrupts_enabled();
  guest.enter();
  CHECK((guest.cpu.rflags() & rflags::interrupt) == 0);
  guest.execute(ActionKind::iret);
  CHECK((guest.cpu.rflags() & rflags::interrupt) != 0);
  CHECK_FALSE(guest.cpu.interrupt_shadow());
}

TEST_CASE("an injected exception runs its handler and is not intercepted") {
  Guest guest;
  guest.intercept(Intercept::exception_0);
  inject(guest, event_inj::event(event_inj::type_exception, 0));
  const Step step = guest.enter();
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 0);
  guest.execute(ActionKind::iret);
  CHECK(guest.cpu.rip() == guest_rip);  // a fault returns to the instruction
}

TEST_CASE("what an instruction raised returns behind it, at nRIP") {
  struct Case {
    std::uint32_t type;
    std::uint8_t vector;
    bool behind;
  };
  for (const Case& c : {Case{event_inj::type_soft, 0x80, true}, Case{event_inj::type_exception, 3, true},
                        Case{event_inj::type_intr, 3, false}, Case{event_inj::type_exception, 13, false}}) {
    CAPTURE(c.type);
    CAPTURE(c.vector);
    Guest guest;
    guest.vmcb.control.next_rip = guest_rip + 2;
    inject(guest, event_inj::event(c.type, c.vector));
    REQUIRE(guest.enter().kind == StepKind::delivered);
    guest.execute(ActionKind::iret);
    CHECK(guest.cpu.rip() == guest_rip + (c.behind ? 2 : 0));
  }
}

TEST_CASE("without NRIPS an injected INT3 returns to the rIP of the VMCB") {
  Guest guest(all_but_avic().without(Feature::nrips));
  guest.vmcb.control.next_rip = guest_rip + 2;
  inject(guest, event_inj::event(event_inj::type_exception, 3)).enter();
  guest.execute(ActionKind::iret);
  CHECK(guest.cpu.rip() == guest_rip);
}

TEST_CASE("the descriptor is found without the selector's privilege bits") {
  Guest guest;
  guest.vmcb.save.cs.selector = 0x13;
  inject(guest, event_inj::event(event_inj::type_intr, 0x41)).enter();
  CHECK(guest.environment.pages_asked.back() == gdt_base + 0x10);
}

TEST_CASE("an exit during the delivery reports the event in EXITINTINFO and leaves the guest where it was") {
  struct Case {
    std::uint64_t missing;
    std::uint32_t event;
    std::uint32_t error;
    std::uint64_t address;
    std::uint32_t reported;
  };
  const std::vector<Case> cases{
      {idt_base, event_inj::event(0, 0x41), 0, idt_base + 16 * 0x41, 0x8000'0041},
      {gdt_base, event_inj::event(0, 0x41), 0, gdt_base + code_selector, 0x8000'0041},
      {idt_base, event_inj::event(2, 0x77), 0, idt_base + 16 * 2, 0x8000'0202},
      {idt_base, event_inj::event(3, 13) | event_inj::error_valid, 0x10, idt_base + 16 * 13, 0x8000'0b0d},
      {gdt_base, event_inj::event(4, 0x80), 0, gdt_base + code_selector, 0x8000'0480},
  };
  for (const Case& c : cases) {
    CAPTURE(c.reported);
    Guest guest;
    guest.environment.missing_pages.insert(c.missing >> 12);
    guest.vmcb.control.next_rip = guest_rip + 2;
    inject(guest, c.event, c.error).interrupts_enabled();
    CHECK(guest.enter().kind == StepKind::vmexit);
    CHECK(guest.exit_code() == exit_code::npf);
    CHECK(guest.vmcb.control.exit_info_1 == 0x1'0000'0004);
    CHECK(guest.vmcb.control.exit_info_2 == c.address);
    CHECK(guest.vmcb.control.exit_int_info == c.reported);
    CHECK(guest.vmcb.control.exit_int_info_err == c.error);
    CHECK(guest.vmcb.control.next_rip == 0);
    CHECK((guest.vmcb.control.event_inj & event_inj::valid) == 0);
    CHECK(guest.exit_rip() == guest_rip);
    CHECK((guest.vmcb.save.rflags & rflags::interrupt) != 0);
    CHECK(guest.cpu.frames() == 0);

    // The hypervisor maps the page and injects the event again; EXITINTINFO is empty after the next exit.
    guest.environment.missing_pages.clear();
    inject(guest, guest.vmcb.control.exit_int_info, guest.vmcb.control.exit_int_info_err);
    CHECK(guest.enter().kind == StepKind::delivered);
    guest.execute(ActionKind::vmmcall);
    CHECK(guest.vmcb.control.exit_int_info == 0);
    CHECK(guest.vmcb.control.exit_int_info_err == 0);
  }
}

TEST_CASE("the error code counts only with its valid bit") {
  Guest guest;
  guest.environment.missing_pages.insert(idt_base >> 12);
  inject(guest, event_inj::event(3, 13), 0x10);
  guest.enter();
  CHECK(guest.vmcb.control.exit_int_info == 0x8000'030d);
  CHECK(guest.vmcb.control.exit_int_info_err == 0);
}

TEST_CASE("delivery asks for the IDT gate first, then for the code segment's descriptor") {
  Guest guest;
  inject(guest, event_inj::event(event_inj::type_intr, 0x41)).enter();
  CHECK(guest.environment.pages_asked == std::vector<std::uint64_t>{idt_base + 0x410, gdt_base + 8});
}

TEST_CASE("descriptor table pages found mapped are not asked again until the TLB forgets them") {
  Guest guest;
  const auto deliver = [&guest] {
    guest.environment.pages_asked.clear();
    inject(guest, event_inj::event(event_inj::type_intr, 0x41)).enter();
    guest.execute(ActionKind::iret);
    guest.execute(ActionKind::vmmcall);
    return guest.environment.pages_asked.size();
  };
  CHECK(deliver() == 2);
  CHECK(deliver() == 0);
  guest.vmcb.control.tlb_ctl = 3;
  CHECK(deliver() == 2);
  guest.vmcb.control.tlb_ctl = 0;
  CHECK(deliver() == 0);
  guest.vmcb.control.asid = 2;
  CHECK(deliver() == 2);
  guest.vmcb.save.idtr.base = idt_base + 0x10000;  // another page is another question
  CHECK(deliver() == 1);
}

TEST_CASE("the gate size follows the mode, and real mode has no descriptors") {
  Guest guest;
  guest.vmcb.save.efer = efer::svme;
  inject(guest, event_inj::event(event_inj::type_intr, 0x41)).enter();
  CHECK(guest.environment.pages_asked == std::vector<std::uint64_t>{idt_base + 8 * 0x41, gdt_base + 8});

  Guest real;
  real.vmcb.save.efer = efer::svme;
  real.vmcb.save.cr0 = 0;
  inject(real, event_inj::event(event_inj::type_intr, 0x41)).enter();
  CHECK(real.environment.pages_asked == std::vector<std::uint64_t>{idt_base + 4 * 0x41});
}

TEST_CASE("an injected NMI sets V_NMI_MASK only where virtual NMIs are enabled") {
  Guest guest;
  guest.intercept(Intercept::nmi).control_bits(int_ctl::v_nmi_enable);
  CHECK(inject(guest, event_inj::event(event_inj::type_nmi, 0)).enter().vector == 2);
  guest.execute(ActionKind::vmmcall);
  CHECK(guest.saved(int_ctl::v_nmi_mask));
  guest.enter();
  guest.execute(ActionKind::iret);
  guest.execute(ActionKind::vmmcall);
  CHECK_FALSE(guest.saved(int_ctl::v_nmi_mask));

  Guest plain;
  inject(plain, event_inj::event(event_inj::type_nmi, 0)).enter();
  plain.execute(ActionKind::vmmcall);
  CHECK_FALSE(plain.saved(int_ctl::v_nmi_mask));

  // An exit during the delivery leaves the mask clear, so that the event can be injected again.
  Guest faulting;
  faulting.intercept(Intercept::nmi).control_bits(int_ctl::v_nmi_enable);
  faulting.environment.missing_pages.insert(idt_base >> 12);
  inject(faulting, event_inj::event(event_inj::type_nmi, 0)).enter();
  CHECK(faulting.exit_code() == exit_code::npf);
  CHECK_FALSE(faulting.saved(int_ctl::v_nmi_mask));
}

TEST_CASE("the injected event comes before pending physical interrupts") {
  Guest guest;
  guest.intercept(Intercept::intr).control_bits(int_ctl::v_intr_masking);
  guest.events.intr = true;
  CHECK(inject(guest, event_inj::event(event_inj::type_intr, 0x41)).enter().kind == StepKind::delivered);
  CHECK(guest.boundary().kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::intr);
  CHECK(guest.exit_rip() == FakeEnvironment::handler(0x41));
}
