// INTn, INT3, INTO, ICEBP, exceptions, POPF, MOV SS, task switches, FERR (APM vol.
// 2, 15.9, 15.12, 15.14, 15.21.5).

#include <cstdint>

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

using K = ActionKind;
using I = Intercept;

/// 32-bit protected mode, where INTO and task switches exist.
struct LegacyGuest : Guest {
  LegacyGuest() {
    vmcb.save.efer = efer::svme;
    vmcb.save.cr0 = cr0::pe;
    vmcb.save.cs.attrib = 0x0c9b;
  }
};

}  // namespace

TEST_CASE(
    "INT3 and INTO have the intercepts of their exceptions, with nRIP; the handler returns behind them") {
  for (const K kind : {K::int3, K::into}) {
    const std::uint8_t vector = kind == K::int3 ? 3 : 4;
    LegacyGuest guest;
    guest.intercept(I::swint).intercept(exception_intercept(vector));
    REQUIRE(guest.enter().kind == StepKind::entered);
    guest.run(make(kind));
    CHECK(guest.exit_code() == exit_code::exception(vector));
    CHECK(guest.exit_rip() == guest_rip);
    CHECK(guest.vmcb.control.next_rip == guest_rip + 1);

    guest.intercept(exception_intercept(vector), false).enter();
    const Step step = guest.run(make(kind));
    CHECK(step.kind == StepKind::delivered);
    CHECK(step.vector == vector);
    guest.run(make(K::iret));
    CHECK(guest.cpu.rip() == guest_rip + 1);
  }
  Guest long_mode;
  long_mode.intercept(I::exception_6).enter();
  long_mode.run(make(K::into));
  CHECK(long_mode.exit_code() == exit_code::exception(6));
}

TEST_CASE("INTn returns behind itself, and its vector is EXITINFO1 only with decode assists") {
  Guest guest;
  guest.enter();
  CHECK(guest.run(make(K::int_n, 0x80)).vector == 0x80);
  guest.run(make(K::iret));
  CHECK(guest.cpu.rip() == guest_rip + 2);

  Guest cut;  // 15.7.2: INTn is type 4 in EXITINTINFO
  cut.environment.missing_pages.insert(idt_base >> 12);
  cut.enter();
  cut.run(make(K::int_n, 0x80));
  CHECK(cut.exit_code() == exit_code::npf);
  CHECK(cut.vmcb.control.exit_int_info == 0x8000'0480);
}

TEST_CASE("ICEBP: its own intercept at the instruction, then #DB as a trap behind it") {
  Guest guest;
  guest.intercept(I::icebp).intercept(I::exception_1).enter();
  guest.run(make(K::icebp));
  CHECK(guest.exit_code() == exit_code::icebp);
  CHECK(guest.exit_rip() == guest_rip);
  guest.intercept(I::icebp, false).enter();
  guest.run(make(K::icebp));
  CHECK(guest.exit_code() == exit_code::exception(1));
  CHECK(guest.exit_rip() == guest_rip + 1);
  CHECK(guest.vmcb.control.next_rip == 0);
}

TEST_CASE("raise: exit 40h + vector, the error code in EXITINFO1, CR2 of #PF in EXITINFO2, nRIP of #BR") {
  for (std::uint32_t vector = 0; vector < 32; ++vector) {
    if (vector == 2 || vector == 3 || vector == 4 || vector == 9) continue;
    CAPTURE(vector);
    const bool has_error = vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 ||
                           vector == 29 || vector == 30;
    GuestAction action = make(K::raise, vector, 0x5a, 0xdead);
    action.length = 2;
    Guest guest;
    guest.intercept(exception_intercept(static_cast<std::uint8_t>(vector))).enter();
    REQUIRE(guest.run(action).kind == StepKind::vmexit);
    CHECK(guest.exit_code() == 0x40 + vector);
    CHECK(guest.vmcb.control.exit_info_1 == (has_error ? 0x5a : 0));
    CHECK(guest.vmcb.control.exit_info_2 == (vector == 14 ? 0xdead : 0));
    CHECK(guest.vmcb.control.next_rip == (vector == 5 ? guest_rip + 2 : 0));
    CHECK(guest.exit_rip() == guest_rip);
    CHECK(guest.vmcb.save.cr2 == 0);

    Guest open;
    open.enter();
    const Step step = open.run(action);
    CHECK(step.kind == StepKind::delivered);
    CHECK(step.vector == vector);
    CHECK(step.result == (has_error ? 0x5a : 0));
    CHECK(open.vmcb.save.cr2 == (vector == 14 ? 0xdead : 0));
  }
}

TEST_CASE("raise of #BP and #OF is that of INT3 and INTO") {
  for (const std::uint8_t vector : {std::uint8_t{3}, std::uint8_t{4}}) {
    GuestAction action = make(K::raise, vector);
    action.length = 1;
    Guest guest;
    guest.intercept(exception_intercept(vector)).enter();
    guest.run(action);
    CHECK(guest.exit_code() == exit_code::exception(vector));
    CHECK(guest.vmcb.control.next_rip == guest_rip + 1);
    Guest open;
    open.enter();
    CHECK(open.run(action).vector == vector);
    open.run(make(K::iret));
    CHECK(open.cpu.rip() == guest_rip + 1);
  }
}

TEST_CASE(
    "raise of what is no exception does nothing, and the intercept bit of vector 9 is not implemented") {
  Guest guest;
  guest.intercept(I::exception_2).intercept(I::exception_9).enter();
  CHECK(guest.run(make(K::raise, 2)).kind == StepKind::retired);
  CHECK(guest.run(make(K::raise, 32)).kind == StepKind::retired);
  CHECK(guest.run(make(K::raise, 9)).kind == StepKind::delivered);
}

TEST_CASE("MOV SS makes a shadow over the next instruction, always; STI only when it changes IF") {
  Guest guest;
  guest.interrupts_enabled().v_irq(0x41);
  guest.vmcb.control.int_state = int_state::interrupt_shadow;
  guest.enter();
  guest.run(make(K::mov_ss));
  CHECK(guest.cpu.interrupt_shadow());
  CHECK(guest.boundary().kind == StepKind::none);
  guest.run(make(K::nop));
  CHECK(guest.boundary().kind == StepKind::delivered);
}

TEST_CASE("POPF: IF needs IOPL, IOPL needs CPL 0, RF and VM stay; no shadow") {
  struct Case {
    std::uint8_t cpl;
    std::uint64_t iopl;
    std::uint64_t image;
    std::uint64_t after;
  };
  constexpr std::uint64_t one = rflags::always_one;
  for (const Case& c :
       {Case{0, 0, 0x202, 0x202}, Case{0, 0, 0x3002, 0x3002}, Case{3, 0, 0x202, one},
        Case{3, 3, 0x202, 0x3202}, Case{3, 3, 0x2, 0x3002}, Case{0, 0, 0x3'0000, one},
        Case{0, 0, 0x8d5, 0x8d7}, Case{0, 0, 0x24'0000, 0x24'0002}, Case{0, 0, 0x4100, 0x4102}}) {
    CAPTURE(c.image);
    Guest guest;
    guest.cpl = c.cpl;
    guest.vmcb.save.rflags |= c.iopl << rflags::iopl_shift;
    guest.enter();
    CHECK(guest.run(make(K::popf, 0, c.image)).kind == StepKind::retired);
    CHECK(guest.cpu.rflags() == c.after);
    CHECK_FALSE(guest.cpu.interrupt_shadow());
  }
}

TEST_CASE("task switch: selector, error code and the flags of EXITINFO2 (15.14.1)") {
  struct Case {
    std::uint8_t flags;
    bool resume;
    std::uint64_t info_2;
  };
  for (const Case& c : {Case{0, false, 0}, Case{action_flags::iret, false, std::uint64_t{1} << 36},
                        Case{action_flags::far_jump, false, std::uint64_t{1} << 38},
                        Case{action_flags::has_error_code, false, std::uint64_t{1} << 44 | 0x5a},
                        Case{0, true, std::uint64_t{1} << 48}}) {
    CAPTURE(c.info_2);
    GuestAction action = make(K::task_switch, 0x40, 0x5a);
    action.flags = c.flags;
    LegacyGuest guest;
    if (c.resume) guest.vmcb.save.rflags |= rflags::resume;
    guest.intercept(I::task_switch);
    REQUIRE(guest.enter().kind == StepKind::entered);
    guest.run(action);
    CHECK(guest.exit_code() == exit_code::task_switch);
    CHECK(guest.vmcb.control.exit_info_1 == 0x40);
    CHECK(guest.vmcb.control.exit_info_2 == c.info_2);
    CHECK(guest.vmcb.control.next_rip == 0);
    CHECK(guest.vmcb.save.tr.selector == 0);

    LegacyGuest open;
    open.vmcb.save.rflags |= rflags::nested_task;
    open.enter();
    CHECK(open.run(action).kind == StepKind::retired);
    CHECK(open.vmcb.save.tr.selector == 0x40);
    CHECK((open.vmcb.save.cr0 & cr0::ts) != 0);
    CHECK(((open.cpu.rflags() & rflags::nested_task) != 0) == ((c.flags & action_flags::iret) == 0));
  }
  Guest long_mode;
  long_mode.intercept(I::exception_13).enter();
  long_mode.run(make(K::task_switch, 0x43));
  CHECK(long_mode.exit_code() == exit_code::exception(13));
  CHECK(long_mode.vmcb.control.exit_info_1 == 0x40);
}

TEST_CASE("an x87 error with CR0.NE is #MF, without it the processor freezes until an interrupt (15.14.2)") {
  Guest guest;
  guest.intercept(I::ferr_freeze).enter();
  guest.run(make(K::ferr));
  CHECK(guest.exit_code() == exit_code::ferr_freeze);
  CHECK(guest.exit_rip() == guest_rip);

  Guest frozen;
  frozen.interrupts_enabled().enter();
  CHECK(frozen.run(make(K::ferr)).kind == StepKind::halted);
  CHECK(frozen.cpu.rip() == guest_rip);
  CHECK(frozen.cpu.halted());
  frozen.events.intr = true;
  frozen.environment.physical_vector = 0x2d;
  CHECK(frozen.boundary().kind == StepKind::delivered);
  CHECK_FALSE(frozen.cpu.halted());

  Guest native;
  native.vmcb.save.cr0 |= cr0::ne;
  native.intercept(I::ferr_freeze).intercept(I::exception_16).enter();
  native.run(make(K::ferr));
  CHECK(native.exit_code() == exit_code::exception(16));
}
