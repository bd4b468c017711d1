#include <doctest/doctest.h>

#include "apic/cpu_events.hpp"

using namespace svmsim::apic;

namespace {

CpuEvents application(bool restarts = false, CpuState state = CpuState::uninitialized) {
  CpuEvents::Options options;
  options.bootstrap = false;
  options.init_restarts_waiting = restarts;
  options.application_state = state;
  return CpuEvents(options);
}

}  // namespace

TEST_CASE("INIT, STARTUP, STARTUP brings an application processor up once") {
  CpuEvents cpu = application();
  CHECK(cpu.next_startup_action(true) == StartupAction::none);
  // A STARTUP without INIT is dropped, and not remembered.
  cpu.note(Reception::startup, 0x9a);
  CHECK(cpu.next_startup_action(true) == StartupAction::none);
  cpu.note(Reception::init);
  CHECK(cpu.next_startup_action(true) == StartupAction::reset_and_wait);
  CHECK(cpu.state() == CpuState::wait_for_startup);
  CHECK(cpu.next_startup_action(true) == StartupAction::none);
  cpu.note(Reception::startup, 0x9a);
  CHECK(cpu.next_startup_action(true) == StartupAction::start);
  CHECK(cpu.startup_vector() == 0x9a);
  CHECK(cpu.state() == CpuState::running);
  cpu.note(Reception::startup, 0x55);
  CHECK(cpu.next_startup_action(true) == StartupAction::none);
  CHECK(cpu.state() == CpuState::running);
}

TEST_CASE("INIT and STARTUP that arrive together run in that order; a STARTUP before the INIT is void") {
  CpuEvents cpu = application();
  cpu.note(Reception::init);
  cpu.note(Reception::startup, 0x10);
  CHECK(cpu.next_startup_action(true) == StartupAction::reset_and_wait);
  CHECK(cpu.next_startup_action(true) == StartupAction::start);
  cpu.note(Reception::startup, 0x20);
  cpu.note(Reception::init);
  CHECK(cpu.next_startup_action(true) == StartupAction::reset_and_wait);
  CHECK(cpu.next_startup_action(true) == StartupAction::none);
}

TEST_CASE("an INIT waits until GIF and SMM allow it; a STARTUP does not") {
  CpuEvents cpu;
  CHECK(cpu.state() == CpuState::running);
  cpu.note(Reception::init);
  CHECK_FALSE(cpu.note(Reception::init));
  cpu.note(Reception::startup, 1);
  CHECK(cpu.next_startup_action(false) == StartupAction::none);
  CHECK(cpu.init_pending());
  // The bootstrap processor runs on from the reset vector.
  CHECK(cpu.next_startup_action(true) == StartupAction::reset);
  CHECK_FALSE(cpu.init_pending());
  CHECK(cpu.state() == CpuState::running);
  CHECK(cpu.next_startup_action(true) == StartupAction::none);
}

TEST_CASE("while a processor waits for STARTUP an INIT is held, or in KVM taken at once") {
  CpuEvents manual = application(false, CpuState::wait_for_startup);
  manual.note(Reception::init);
  CHECK(manual.next_startup_action(true) == StartupAction::none);
  manual.note(Reception::startup, 7);
  CHECK(manual.next_startup_action(true) == StartupAction::start);
  CHECK(manual.next_startup_action(false) == StartupAction::none);
  CHECK(manual.next_startup_action(true) == StartupAction::reset_and_wait);
  CpuEvents kvm = application(true, CpuState::wait_for_startup);
  kvm.note(Reception::init);
  CHECK(kvm.next_startup_action(true) == StartupAction::reset_and_wait);
}

TEST_CASE("one NMI is served and one more waits for IRET; the third is lost") {
  CpuEvents cpu;
  CHECK_FALSE(cpu.nmi_deliverable());
  CHECK(cpu.note(Reception::nmi));
  CHECK_FALSE(cpu.note(Reception::nmi));
  CHECK(cpu.nmi_deliverable());
  cpu.take_nmi();
  CHECK(cpu.nmi_masked());
  CHECK_FALSE(cpu.nmi_pending());
  CHECK(cpu.note(Reception::nmi));
  CHECK_FALSE(cpu.note(Reception::nmi));
  CHECK_FALSE(cpu.nmi_deliverable());
  cpu.iret();
  CHECK(cpu.nmi_deliverable());
  cpu.take_nmi();
  cpu.iret();
  CHECK_FALSE(cpu.nmi_deliverable());
}

TEST_CASE("KVM holds two NMIs while none is in service") {
  CpuEvents::Options options;
  options.nmi_limit = 2;
  CpuEvents cpu(options);
  CHECK(cpu.note(Reception::nmi));
  CHECK(cpu.note(Reception::nmi));
  CHECK_FALSE(cpu.note(Reception::nmi));
  CHECK(cpu.nmis() == 2);
  cpu.take_nmi();
  CHECK_FALSE(cpu.note(Reception::nmi));
  cpu.iret();
  CHECK(cpu.nmi_deliverable());
}

TEST_CASE("a processor that waits for STARTUP holds NMI and SMI, and INIT clears what was in service") {
  CpuEvents cpu = application(false, CpuState::wait_for_startup);
  CHECK(cpu.note(Reception::nmi));
  CHECK(cpu.note(Reception::smi));
  CHECK_FALSE(cpu.note(Reception::smi));
  CHECK_FALSE(cpu.nmi_deliverable());
  cpu.note(Reception::startup, 1);
  cpu.next_startup_action(true);
  CHECK(cpu.nmi_deliverable());
  CHECK(cpu.smi_pending());
  cpu.take_smi();
  CHECK_FALSE(cpu.smi_pending());
  cpu.take_nmi();
  cpu.note(Reception::init);
  cpu.next_startup_action(true);
  CHECK_FALSE(cpu.nmi_masked());
}

TEST_CASE("what has an IRR bit, or was lost, is nothing for the CPU") {
  CpuEvents cpu;
  for (const Reception reception :
       {Reception::accepted, Reception::merged, Reception::masked, Reception::ignored, Reception::disabled}) {
    CHECK(cpu.note(reception));
    CHECK_FALSE(cpu.nmi_pending());
    CHECK_FALSE(cpu.init_pending());
  }
}
