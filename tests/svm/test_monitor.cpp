// MONITOR and MWAIT (APM vol. 2, table 15-7, 15.9; 4.5 of the fact sheet for what ends a wait).

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

using K = ActionKind;
using I = Intercept;

const GuestAction monitor = make(ActionKind::monitor, 0, 0, 0x9010);

}  // namespace

TEST_CASE("MWAIT: the conditional intercept comes first and needs an armed monitor") {
  struct Case {
    bool conditional;
    bool unconditional;
    bool armed;
    std::uint64_t code;  ///< 0: no exit
  };
  for (const Case& c :
       {Case{true, true, true, 0x8c}, Case{true, true, false, 0x8b}, Case{true, false, true, 0x8c},
        Case{true, false, false, 0}, Case{false, true, true, 0x8b}, Case{false, true, false, 0x8b},
        Case{false, false, true, 0}, Case{false, false, false, 0}}) {
    for (const K kind : {K::mwait, K::mwaitx}) {
      Guest guest;
      guest.intercept(I::mwait_conditional, c.conditional).intercept(I::mwait, c.unconditional).enter();
      if (c.armed) guest.run(monitor);
      const std::uint64_t rip = guest.cpu.rip();
      const Step step = guest.run(make(kind));
      if (c.code != 0) {
        REQUIRE(step.kind == StepKind::vmexit);
        CHECK(guest.exit_code() == c.code);
        CHECK(guest.exit_rip() == rip);
        CHECK(guest.vmcb.control.next_rip == rip + 3);
      } else {
        CHECK(step.kind == (c.armed ? StepKind::halted : StepKind::retired));
        CHECK(guest.cpu.halted() == c.armed);
        CHECK(guest.cpu.rip() == rip + 3);
      }
    }
  }
}

TEST_CASE("a store into the monitored line ends the wait, or disarms the monitor before it") {
  Guest guest;
  guest.enter();
  guest.run(monitor);
  CHECK(guest.cpu.monitor_armed());
  guest.run(make(K::mwait));
  CHECK_FALSE(guest.cpu.monitor_written(0x8fff));
  CHECK_FALSE(guest.cpu.monitor_written(0x9040));
  CHECK(guest.cpu.halted());
  CHECK(guest.cpu.monitor_written(0x903f));
  CHECK_FALSE(guest.cpu.halted());
  CHECK(guest.run(make(K::nop)).kind == StepKind::retired);
  // The monitor is used up.
  CHECK(guest.run(make(K::mwait)).kind == StepKind::retired);

  guest.run(monitor);
  CHECK_FALSE(guest.cpu.monitor_written(0x9000));  // nobody was waiting
  CHECK_FALSE(guest.cpu.monitor_armed());
  CHECK(guest.run(make(K::mwait)).kind == StepKind::retired);
}

TEST_CASE("a store into the line does not end a HLT or a shutdown") {
  Guest guest;
  guest.interrupts_enabled().enter();
  guest.run(monitor);
  guest.run(make(K::mwait));
  guest.events.intr = true;
  guest.environment.physical_vector = 0x30;
  CHECK(guest.boundary().kind == StepKind::delivered);
  guest.events.intr = false;
  guest.run(make(K::hlt));
  CHECK_FALSE(guest.cpu.monitor_written(0x9000));
  CHECK(guest.cpu.halted());

  Guest frozen;
  frozen.interrupts_enabled().v_irq(0x41);
  frozen.enter();
  frozen.run(monitor);
  frozen.run(make(K::mwait));
  CHECK(frozen.boundary().kind == StepKind::delivered);
  frozen.run(make(K::ferr));
  CHECK_FALSE(frozen.cpu.monitor_written(0x9000));
  CHECK(frozen.cpu.halted());

  Guest down;
  down.intercept(I::shutdown, false).interrupts_enabled().v_irq(0x41);
  down.enter();
  down.run(monitor);
  down.run(make(K::mwait));
  CHECK(down.boundary().kind == StepKind::delivered);
  down.vmcb.save.idtr.limit = 0;
  CHECK(down.run(make(K::rsm)).kind == StepKind::shutdown);
  CHECK_FALSE(down.cpu.monitor_written(0x9000));
}

TEST_CASE("events end the wait; a masked interrupt only that of MWAIT with ECX[0]") {
  for (const bool takes_masked : {false, true}) {
    for (const bool physical : {false, true}) {
      Guest guest;
      if (!physical) guest.v_irq(0x41);
      guest.enter();
      guest.run(monitor);
      guest.run(make(K::mwait, 0, 0, takes_masked ? 1 : 0));
      guest.events.intr = physical;
      CHECK(guest.boundary().kind == StepKind::none);
      CHECK(guest.cpu.halted() == !takes_masked);
    }
  }
  Guest low;  // an interrupt that V_TPR masks is none
  low.v_irq(0x41, 3).control_bits(5);
  low.enter();
  low.run(monitor);
  low.run(make(K::mwait, 0, 0, 1));
  CHECK(low.boundary().kind == StepKind::none);
  CHECK(low.cpu.halted());

  Guest guest;
  guest.interrupts_enabled().v_irq(0x41);
  guest.enter();
  guest.run(monitor);
  guest.run(make(K::mwait));
  const std::uint64_t behind = guest.cpu.rip();
  CHECK(guest.boundary().kind == StepKind::delivered);
  CHECK_FALSE(guest.cpu.halted());
  guest.run(make(K::iret));
  CHECK(guest.cpu.rip() == behind);
  CHECK(guest.run(make(K::mwait)).kind == StepKind::retired);  // the monitor is used up

  Guest exiting;
  exiting.intercept(I::nmi).enter();
  exiting.run(monitor);
  exiting.run(make(K::mwait));
  exiting.events.nmi = true;
  CHECK(exiting.boundary().kind == StepKind::vmexit);
  CHECK(exiting.exit_rip() == guest_rip + 6);
}

TEST_CASE("the monitor does not survive VMRUN") {
  Guest guest;
  guest.intercept(I::cpuid).enter();
  guest.run(monitor);
  guest.run(make(K::cpuid));
  guest.enter();
  CHECK_FALSE(guest.cpu.monitor_armed());
}
