#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

// Exceptions in the guest and in the delivery of events: APM vol. 2, 8.2.9, 8.4, 15.7.2, 15.12, 15.14.3.

namespace {

constexpr std::uint64_t idt_end = 0xfff;

Intercept exception(unsigned vector) {
  return exception_intercept(static_cast<std::uint8_t>(vector));
}

/// #GP(0) of the guest: HLT at CPL 3.
Step general_protection(Guest& guest) {
  guest.cpl = 3;
  const Step step = guest.execute(ActionKind::hlt);
  guest.cpl = 0;
  return step;
}

}  // namespace

TEST_CASE("a fault pushes RFLAGS.RF and the error code; the resumed instruction clears RF") {
  Guest guest;
  guest.enter();
  const Step step = general_protection(guest);
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 13);
  CHECK(step.result == 0);
  CHECK((guest.cpu.rflags() & rflags::resume) == 0);
  guest.execute(ActionKind::iret);
  CHECK(guest.cpu.rip() == guest_rip);
  CHECK((guest.cpu.rflags() & rflags::resume) != 0);
  guest.execute(ActionKind::nop);
  CHECK((guest.cpu.rflags() & rflags::resume) == 0);
}

TEST_CASE("interrupts and NMIs do not push RF") {
  for (const std::uint32_t type : {event_inj::type_intr, event_inj::type_nmi, event_inj::type_soft}) {
    Guest guest;
    guest.vmcb.control.event_inj = event_inj::event(type, 0x41);
    guest.vmcb.control.next_rip = guest_rip;
    guest.enter();
    guest.execute(ActionKind::iret);
    CHECK((guest.cpu.rflags() & rflags::resume) == 0);
  }
}

TEST_CASE("an IDT without the gate turns the event into #GP with the gate's selector code") {
  struct Case {
    const char* name;
    std::uint32_t event;
    std::uint32_t error;
  };
  for (const Case& c : {Case{"interrupt", event_inj::event(event_inj::type_intr, 0x41), 0x41 * 8 + 3},
                        Case{"NMI", event_inj::event(event_inj::type_nmi, 2), 2 * 8 + 3},
                        Case{"INTn", event_inj::event(event_inj::type_soft, 0x80), 0x80 * 8 + 2}}) {
    CAPTURE(c.name);
    for (const bool intercepted : {false, true}) {
      Guest guest;
      guest.intercept(exception(13), intercepted);
      guest.vmcb.control.event_inj = c.event;
      // Only the gates of vectors 13 and above 13 in the limit: the NMI's is absent, the others are beyond.
      guest.vmcb.save.idtr.limit = 13 * 16 + 15;
      if (event_inj::type(c.event) == event_inj::type_nmi) {
        guest.environment.handlers[2] = GuestEnvironment::invalid_gate;
      }
      const Step step = guest.enter();
      if (intercepted) {
        CHECK(step.kind == StepKind::vmexit);
        CHECK(guest.exit_code() == 0x4d);
        CHECK(guest.vmcb.control.exit_info_1 == c.error);
        CHECK(guest.vmcb.control.exit_int_info == c.event);
        CHECK(guest.exit_rip() == guest_rip);
      } else {
        CHECK(step.kind == StepKind::delivered);
        CHECK(step.vector == 13);
        CHECK(step.result == c.error);
        guest.execute(ActionKind::vmmcall);
        CHECK(guest.vmcb.control.exit_int_info == 0);
      }
    }
  }
}

TEST_CASE("the IDT limit is the offset of the gate's last byte, in each mode") {
  struct Case {
    const char* mode;
    std::uint64_t efer, cr0;
    std::uint32_t gate;
  };
  for (const Case& c :
       {Case{"long", efer::svme | efer::lme | efer::lma, cr0::pg | cr0::pe | cr0::wp, 16},
        Case{"protected", efer::svme, cr0::pg | cr0::pe, 8}, Case{"real", efer::svme, 0, 4}}) {
    CAPTURE(c.mode);
    for (const bool fits : {false, true}) {
      Guest guest;
      guest.vmcb.save.efer = c.efer;
      guest.vmcb.save.cr0 = c.cr0;
      guest.vmcb.save.idtr.limit = c.gate * 0x42 - (fits ? 1 : 2);
      guest.vmcb.control.event_inj = event_inj::event(event_inj::type_intr, 0x41);
      const Step step = guest.enter();
      CHECK(step.kind == StepKind::delivered);
      CHECK(step.vector == (fits ? 0x41 : 13));
      if (!fits) CHECK(step.result == (c.cr0 == 0 ? 0 : 0x41 * 8 + 3));  // no error code in real mode
    }
  }
}

TEST_CASE("gates: empty is #GP, not present is #NP, an entry that is not canonical is #GP(0)") {
  struct Case {
    std::uint64_t entry;
    std::uint8_t vector;
    std::uint32_t error;
  };
  for (const Case& c : {Case{GuestEnvironment::invalid_gate, 13, 0x41 * 8 + 3},
                        Case{GuestEnvironment::absent_gate, 11, 0x41 * 8 + 3},
                        Case{0x0000'8000'0000'0000, 13, 1}, Case{0xffff'7fff'ffff'ffff, 13, 1}}) {
    Guest guest;
    guest.environment.handlers[0x41] = c.entry;
    guest.vmcb.control.event_inj = event_inj::event(event_inj::type_intr, 0x41);
    const Step step = guest.enter();
    CHECK(step.kind == StepKind::delivered);
    CHECK(step.vector == c.vector);
    CHECK(step.result == c.error);
  }
  for (const std::uint64_t entry :
       {std::uint64_t{0x0000'7fff'ffff'ffff}, std::uint64_t{0xffff'8000'0000'0000}}) {
    Guest guest;
    guest.environment.handlers[0x41] = entry;
    guest.vmcb.control.event_inj = event_inj::event(event_inj::type_intr, 0x41);
    CHECK(guest.enter().vector == 0x41);
  }
}

TEST_CASE("software interrupts need a gate that their CPL may use, events from outside do not") {
  struct Case {
    std::uint32_t type;
    std::uint8_t vector, cpl, level;
    bool refused;
  };
  for (const Case& c :
       {Case{event_inj::type_soft, 0x80, 3, 3, false}, Case{event_inj::type_soft, 0x41, 3, 0, true},
        Case{event_inj::type_soft, 0x41, 3, 2, true}, Case{event_inj::type_soft, 0x41, 0, 0, false},
        Case{event_inj::type_soft, 0x41, 1, 1, false}, Case{event_inj::type_exception, 3, 3, 3, false},
        Case{event_inj::type_exception, 3, 3, 0, true}, Case{event_inj::type_intr, 0x41, 3, 0, false},
        Case{event_inj::type_exception, 13, 3, 0, false}}) {
    CAPTURE(c.type);
    CAPTURE(c.vector);
    CAPTURE(c.level);
    Guest guest;
    guest.vmcb.save.cpl = c.cpl;
    guest.environment.gate_levels[c.vector] = c.level;
    guest.vmcb.control.event_inj = event_inj::event(c.type, c.vector);
    const Step step = guest.enter();
    CHECK(step.kind == StepKind::delivered);
    CHECK(step.vector == (c.refused ? 13 : c.vector));
    CHECK(step.result == (c.refused ? c.vector * 8U + 2U : 0U));
  }
}

TEST_CASE("in virtual-8086 mode INTn needs IOPL 3, INT3 does not") {
  for (const unsigned iopl : {0U, 2U, 3U}) {
    for (const bool breakpoint : {false, true}) {
      Guest guest;
      guest.vmcb.save.efer = efer::svme;
      guest.vmcb.save.rflags |= rflags::virtual_8086 | (std::uint64_t{iopl} << rflags::iopl_shift);
      guest.vmcb.control.event_inj = breakpoint ? event_inj::event(event_inj::type_exception, 3)
                                                : event_inj::event(event_inj::type_soft, 0x80);
      const Step step = guest.enter();
      const bool refused = !breakpoint && iopl < 3;
      CHECK(step.vector == (refused ? 13 : (breakpoint ? 3 : 0x80)));
      CHECK(step.result == 0);
    }
  }
}

TEST_CASE("INTO exists outside of 64-bit mode and has INT3's rules") {
  Guest guest;
  guest.vmcb.save.cs.attrib = 0x0c9b;
  guest.vmcb.save.cpl = 3;
  guest.environment.gate_levels[4] = 0;
  guest.vmcb.control.event_inj = event_inj::event(event_inj::type_exception, 4);
  CHECK(guest.enter().vector == 13);
}

TEST_CASE("two exceptions: which pairs make #DF") {
  // The second is #GP (the first one's gate is empty) or #NP (absent).
  const std::vector<std::uint8_t> vectors{0, 1, 3, 6, 7, 10, 11, 12, 13, 14, 16, 17, 18, 19, 21, 28, 29, 30};
  const auto contributory = [](std::uint8_t v) {
    return v == 0 || (v >= 10 && v <= 13) || v == 21 || v == 29;
  };
  for (const std::uint8_t vector : vectors) {
    for (const bool absent : {false, true}) {
      const std::uint8_t second = absent ? 11 : 13;
      if (vector == second) continue;  // its own gate is the broken one: that is a triple fault
      CAPTURE(vector);
      Guest guest;
      guest.environment.handlers[vector] =
          absent ? GuestEnvironment::absent_gate : GuestEnvironment::invalid_gate;
      guest.vmcb.control.event_inj = event_inj::event(event_inj::type_exception, vector);
      const Step step = guest.enter();
      CHECK(step.kind == StepKind::delivered);
      CHECK(step.vector == (contributory(vector) || vector == 14 ? 8 : second));
      if (step.vector == 8) CHECK(step.result == 0);
    }
  }
}

TEST_CASE("the second exception's intercept comes before the combination, #DF's after it") {
  const auto first = event_inj::event(event_inj::type_exception, 14) | event_inj::error_valid;
  const auto run = [](Guest& guest) {
    guest.environment.handlers[14] = GuestEnvironment::invalid_gate;
    guest.vmcb.control.event_inj = first;
    guest.vmcb.control.event_inj_err = 6;
    return guest.enter();
  };
  Guest second;
  second.intercept(exception(13)).intercept(exception(8));
  CHECK(run(second).kind == StepKind::vmexit);
  CHECK(second.exit_code() == 0x4d);
  CHECK(second.vmcb.control.exit_info_1 == 14 * 8 + 3);
  CHECK(second.vmcb.control.exit_int_info == first);
  CHECK(second.vmcb.control.exit_int_info_err == 6);

  Guest combined;
  combined.intercept(exception(8));
  CHECK(run(combined).kind == StepKind::vmexit);
  CHECK(combined.exit_code() == 0x48);
  CHECK(combined.vmcb.control.exit_info_1 == 0);
  CHECK(combined.vmcb.control.exit_int_info == first);
  CHECK(combined.exit_rip() == guest_rip);

  // Nothing intercepted: #DF is what is being delivered when its own gate is not there.
  Guest delivered;
  delivered.environment.missing_pages.insert((idt_base + 0x1000) >> 12);
  delivered.vmcb.save.idtr.base = idt_base + 0x1000 - 14 * 16;  // the gate of 14 begins the missing page
  delivered.environment.handlers[8] = GuestEnvironment::invalid_gate;
  delivered.vmcb.control.event_inj = first;
  CHECK(delivered.enter().kind == StepKind::vmexit);
  CHECK(delivered.exit_code() == exit_code::npf);
  CHECK(delivered.vmcb.control.exit_int_info == first);
}

TEST_CASE("a fault in the delivery of #DF is a shutdown, intercepted or not") {
  for (const bool intercepted : {false, true}) {
    Guest guest;
    guest.intercept(Intercept::shutdown, intercepted);
    guest.vmcb.save.idtr.limit = 0;
    guest.enter();
    const Step step = general_protection(guest);
    if (intercepted) {
      CHECK(step.kind == StepKind::vmexit);
      CHECK(guest.exit_code() == exit_code::shutdown);
      CHECK(guest.vmcb.control.exit_int_info == 0x8000'0b08);  // #DF was on its way
      CHECK_FALSE(guest.cpu.gif());
      CHECK_FALSE(guest.cpu.shut_down());
    } else {
      CHECK(step.kind == StepKind::shutdown);
      CHECK(guest.cpu.shut_down());
      CHECK(guest.cpu.halted());
      CHECK(guest.cpu.in_guest_mode());
    }
  }
}

TEST_CASE("only SMI, INIT and NMI count in the shutdown state") {
  const auto shut_down = [](Guest& guest) {
    guest.intercept(Intercept::shutdown, false).intercept(Intercept::intr).interrupts_enabled();
    guest.v_irq(0x41);
    guest.vmcb.save.idtr.limit = 0;
    guest.enter();
    REQUIRE(general_protection(guest).kind == StepKind::shutdown);
  };
  Guest guest;
  shut_down(guest);
  guest.events.intr = true;
  CHECK(guest.boundary().kind == StepKind::none);
  guest.events.smi = true;
  CHECK(guest.boundary().kind == StepKind::none);
  CHECK(guest.cpu.shut_down());
  guest.events.nmi = true;
  CHECK(guest.boundary().kind == StepKind::shutdown);  // its handler cannot be reached either
  CHECK(guest.cpu.shut_down());
  guest.events.init = true;
  CHECK(guest.boundary().kind == StepKind::reset);
  CHECK_FALSE(guest.cpu.shut_down());

  for (const Intercept intercept : {Intercept::smi, Intercept::init, Intercept::nmi}) {
    Guest other;
    other.intercept(intercept);
    shut_down(other);
    other.events = {true, true, true, true};
    if (intercept != Intercept::smi) other.events.smi = false;
    if (intercept == Intercept::nmi) other.events.init = false;
    CHECK(other.boundary().kind == StepKind::vmexit);
    CHECK(other.exit_code() == exit_code_of(intercept));
    CHECK_FALSE(other.cpu.shut_down());
    other.vmcb.save.idtr.limit = idt_end;
    CHECK(other.enter().kind == StepKind::entered);
    CHECK_FALSE(other.cpu.halted());
  }
}

TEST_CASE("a virtual NMI whose delivery leads to an exit is unmasked and in EXITINTINFO") {
  Guest guest;
  guest.intercept(Intercept::nmi).intercept(exception(13));
  guest.control_bits(int_ctl::v_nmi_enable | int_ctl::v_nmi);
  guest.environment.handlers[2] = GuestEnvironment::invalid_gate;
  guest.enter();
  CHECK(guest.boundary().kind == StepKind::vmexit);
  CHECK(guest.exit_code() == 0x4d);
  CHECK(guest.vmcb.control.exit_int_info == 0x8000'0202);
  CHECK_FALSE(guest.saved(int_ctl::v_nmi));
  CHECK_FALSE(guest.saved(int_ctl::v_nmi_mask));
}
