#include <set>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "svm/sev_es.hpp"
#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

// SEV-ES: APM vol. 2, 15.35.4 to 15.35.8, table 15-33.

namespace {

ProcessorLimits sev_processor() {
  ProcessorLimits limits;
  limits.sev = true;
  limits.secure_avic = true;
  limits.max_encrypted_asid = 100;
  return limits;
}

struct EncryptedGuest : Guest {
  EncryptedGuest() : Guest(all_but_avic(), {}, sev_processor()) {
    vmcb.control.nested_ctl |= nested_ctl::sev_enable | nested_ctl::sev_es_enable;
  }
};

}  // namespace

TEST_CASE("the automatic exits are those of the table") {
  std::set<std::uint64_t> automatic{0x52, 0x60, 0x61, 0x62, 0x63, 0x64,  0x77,
                                    0x78, 0x7f, 0x8f, 0xa5, 0xa6, 0x400, 0x403};
  for (std::uint64_t code = 0x90; code <= 0x9f; ++code)
    automatic.insert(code);
  for (std::uint64_t code = 1; code <= 4; ++code)
    automatic.insert(~code + 1);
  for (const ExitInfo& info : exit_table()) {
    CAPTURE(info.manual_name);
    CHECK(is_automatic_exit(info.code, 0) == (automatic.count(info.code) == 1));
  }
  CHECK_FALSE(is_automatic_exit(exit_code::npf, npf_info::reserved));
}

TEST_CASE("other intercepts raise #VC with the exit code, and no exit") {
  EncryptedGuest guest;
  guest.intercept(Intercept::cpuid).intercept(exception_intercept(29));
  guest.enter();
  const Step step = guest.execute(ActionKind::cpuid);
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 29);
  CHECK(step.result == exit_code::cpuid);
  CHECK(guest.cpu.in_guest_mode());
  CHECK(guest.exit_code() == 0);
  guest.execute(ActionKind::iret);
  CHECK(guest.cpu.rip() == guest_rip);  // the handler advances it
  CHECK(guest.execute(ActionKind::vmmcall).result == exit_code::vmmcall);
}

TEST_CASE("hardware advances rIP for HLT, PAUSE and idle HLT, and ends the shadow") {
  for (const auto& [intercept, kind] :
       {std::pair{Intercept::hlt, ActionKind::hlt}, std::pair{Intercept::idle_hlt, ActionKind::hlt},
        std::pair{Intercept::pause, ActionKind::pause}}) {
    for (const bool encrypted : {false, true}) {
      EncryptedGuest guest;
      if (!encrypted) guest.vmcb.control.nested_ctl = nested_ctl::np_enable;
      guest.intercept(intercept);
      guest.vmcb.control.int_state = int_state::interrupt_shadow;
      guest.enter();
      CHECK(guest.execute(kind).kind == StepKind::vmexit);
      CHECK(guest.exit_code() == exit_code_of(intercept));
      CHECK(guest.exit_rip() == guest_rip + (encrypted ? 2 : 0));
      CHECK(guest.saved_shadow() == !encrypted);
    }
  }
}

TEST_CASE("the host sees RFLAGS.IF of an encrypted guest in the interrupt state") {
  for (const bool encrypted : {false, true}) {
    for (const bool enabled : {false, true}) {
      EncryptedGuest guest;
      if (!encrypted) guest.vmcb.control.nested_ctl = nested_ctl::np_enable;
      guest.vmcb.control.int_state = enabled ? 0 : int_state::guest_interrupt_mask;
      guest.intercept(Intercept::intr).interrupts_enabled(enabled).control_bits(int_ctl::v_intr_masking);
      guest.environment.guest_vmsa.sev_features = 1;
      guest.events.intr = true;
      guest.enter();
      CHECK(guest.boundary().kind == StepKind::vmexit);
      const bool seen = (guest.vmcb.control.int_state & int_state::guest_interrupt_mask) != 0;
      CHECK(seen == (encrypted ? enabled : !enabled));
      CHECK(guest.vmcb.control.guest_sev_features == (encrypted ? 1 : 0));
    }
  }
}

TEST_CASE("an SMI always exits from an encrypted guest") {
  EncryptedGuest guest;
  guest.events.smi = true;
  guest.enter();
  CHECK(guest.boundary().kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::smi);
}

TEST_CASE("an intercepted exception in a delivery becomes #VC in that delivery") {
  EncryptedGuest guest;
  guest.intercept(exception_intercept(13));
  guest.environment.handlers[0x41] = GuestEnvironment::invalid_gate;
  guest.vmcb.control.event_inj = event_inj::event(event_inj::type_intr, 0x41);
  const Step step = guest.enter();
  CHECK(step.vector == 29);
  CHECK(step.result == 0x4d);

  // With #GP first it is the second contributory exception: #DF.
  EncryptedGuest twice;
  twice.intercept(exception_intercept(11));
  twice.environment.handlers[13] = GuestEnvironment::absent_gate;
  twice.vmcb.control.event_inj = event_inj::event(event_inj::type_exception, 13) | event_inj::error_valid;
  CHECK(twice.enter().vector == 8);

  // And when nothing can be delivered the guest shuts down.
  EncryptedGuest lost;
  for (const unsigned vector : {8U, 11U, 13U, 29U})
    lost.intercept(exception_intercept(static_cast<std::uint8_t>(vector)));
  lost.vmcb.save.idtr.limit = 0;
  lost.vmcb.control.event_inj = event_inj::event(event_inj::type_intr, 0x41);
  CHECK(lost.enter().kind == StepKind::vmexit);
  CHECK(lost.exit_code() == exit_code::shutdown);
}

TEST_CASE("an NPF exits, one for MMIO becomes #VC") {
  EncryptedGuest guest;
  guest.environment.missing_pages.insert(0x30);
  guest.enter();
  CHECK(guest.execute(ActionKind::memory_read, 0, 0x30000).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::npf);
}

TEST_CASE("with Secure AVIC INTR, NMI, INIT and #MC are the host's without any intercept") {
  for (const bool secure_avic : {false, true}) {
    for (const std::uint64_t code : {exit_code::intr, exit_code::nmi, exit_code::init}) {
      EncryptedGuest guest;
      guest.environment.guest_vmsa.sev_features = secure_avic ? sev_features::secure_avic : 0;
      guest.interrupts_enabled();
      guest.events.intr = code == exit_code::intr;
      guest.events.nmi = code == exit_code::nmi;
      guest.events.init = code == exit_code::init;
      guest.enter();
      CHECK((guest.boundary().kind == StepKind::vmexit) == secure_avic);
      if (secure_avic) CHECK(guest.exit_code() == code);
    }
  }
}

TEST_CASE("the next guest on the core is a plain one again") {
  EncryptedGuest guest;
  guest.intercept(Intercept::hlt).intercept(Intercept::cpuid);
  guest.enter();
  guest.execute(ActionKind::hlt);
  guest.vmcb.control.nested_ctl = nested_ctl::np_enable;
  guest.enter();
  CHECK(guest.execute(ActionKind::cpuid).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::cpuid);
}

TEST_CASE("whatever an SEV-ES guest does, only automatic exits reach the host") {
  CHECK(rc::check("automatic exits", [] {
    EncryptedGuest guest;
    for (std::uint32_t& word : guest.vmcb.control.intercepts)
      word = *rc::gen::arbitrary<std::uint32_t>();
    guest.intercept(Intercept::vmrun).intercept(Intercept::nmi);
    guest.vmcb.control.int_ctl =
        *rc::gen::arbitrary<std::uint32_t>() & ~(int_ctl::avic_enable | int_ctl::x2avic_enable);
    guest.vmcb.control.int_state = *rc::gen::inRange(0U, 4U);
    guest.vmcb.save.idtr.limit = *rc::gen::element(0U, 13U * 16 + 15, 0xfffU);
    guest.vmcb.save.rflags = *rc::gen::arbitrary<std::uint32_t>() & ~rflags::virtual_8086;
    guest.environment.guest_vmsa.sev_features =
        *rc::gen::element<std::uint64_t>(0, 1, sev_features::secure_avic);
    guest.environment.handlers[*rc::gen::element<std::uint8_t>(1, 8, 13, 29, 0x30)] =
        *rc::gen::element(GuestEnvironment::invalid_gate, GuestEnvironment::absent_gate);
    if (*rc::gen::arbitrary<bool>()) {
      guest.vmcb.control.event_inj =
          *rc::gen::element(event_inj::event(event_inj::type_intr, 0x30),
                            event_inj::event(event_inj::type_exception, 13) | event_inj::error_valid);
    }
    Step step = guest.enter();
    for (int n = 0; n < 20 && guest.cpu.in_guest_mode(); ++n) {
      const unsigned event = *rc::gen::inRange(0U, 40U);
      guest.events = {event == 1, event == 2, event == 3, event > 3 && event < 8};
      step = guest.boundary();
      if (step.kind != StepKind::none || guest.cpu.halted()) continue;
      GuestAction action = guest.action(
          static_cast<ActionKind>(*rc::gen::inRange(0U, static_cast<unsigned>(ActionKind::vmgexit) + 1)),
          *rc::gen::weightedOneOf<std::uint32_t>(
              {{1, rc::gen::inRange(0U, 32U)}, {1, rc::gen::arbitrary<std::uint32_t>()}}),
          *rc::gen::arbitrary<std::uint64_t>(), 4);
      action.cpl = *rc::gen::weightedElement<std::uint8_t>({{4, 0}, {1, 3}});
      step = guest.cpu.execute(action, guest.environment);
    }
    if (step.kind != StepKind::vmexit) return;
    const VmcbControl& control = guest.vmcb.control;
    RC_ASSERT(is_automatic_exit(control.exit_code, control.exit_info_1));
    RC_ASSERT_FALSE(guest.cpu.gif());
    RC_ASSERT((control.event_inj & event_inj::valid) == 0U);
    RC_ASSERT(((control.int_state & int_state::guest_interrupt_mask) != 0) ==
              ((guest.vmcb.save.rflags & rflags::interrupt) != 0));
  }));
}
