// INS and OUTS, nested page faults, bus locks (APM vol. 2, 15.10, 15.14.5, 15.25).

#include <cstdint>
#include <string_view>

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

using K = ActionKind;
using I = Intercept;

GuestAction string_io(K kind, std::uint32_t port, std::uint8_t size, bool rep, std::uint8_t segment,
                      std::uint8_t address_size) {
  GuestAction action = make(kind, port, 0x5a, 0x9000);
  action.size = size;
  action.flags = rep ? action_flags::rep : std::uint8_t{0};
  action.segment = segment;
  action.address_size = address_size;
  return action;
}

}  // namespace

TEST_CASE("EXITINFO1 of INS and OUTS: direction, string, REP, size, address size, segment, port") {
  struct Case {
    GuestAction action;
    std::uint64_t info;
  };
  for (const Case& c : {Case{string_io(K::ins, 0x1f0, 2, true, 0, 8), 0x1f0'022d},
                        Case{string_io(K::ins, 0x1f0, 1, false, 5, 8), 0x1f0'0215},  // INS: always ES
                        Case{string_io(K::ins, 0x1f0, 4, false, 0, 4), 0x1f0'0145},
                        Case{string_io(K::outs, 0x1f0, 2, true, 3, 8), 0x1f0'0e2c},
                        Case{string_io(K::outs, 0x1f0, 1, false, 1, 2), 0x1f0'0494},
                        Case{string_io(K::outs, 0xffff, 4, true, 5, 0), 0xffff'164c}}) {
    CAPTURE(c.info);
    Guest guest;
    guest.environment.io_map.fill(true);
    guest.intercept(I::ioio).enter();
    guest.run(c.action);
    CHECK(guest.exit_code() == exit_code::ioio);
    CHECK(guest.vmcb.control.exit_info_1 == c.info);
    CHECK(guest.vmcb.control.exit_info_2 == guest_rip + 1);
    CHECK(guest.vmcb.control.next_rip == guest_rip + 1);
  }
  GuestAction in = make(K::in, 0x71);
  in.address_size = 4;
  Guest guest;
  guest.environment.io_map.fill(true);
  guest.intercept(I::ioio).enter();
  guest.run(in);
  CHECK(guest.vmcb.control.exit_info_1 == 0x71'0111);
}

TEST_CASE("INS and OUTS follow the IOPM as IN and OUT do, page crossing and FFFFh included") {
  struct Case {
    std::uint32_t set_bit;
    std::uint32_t port;
    std::uint8_t size;
    bool exits;
  };
  for (const Case& c :
       {Case{0x5000, 0x4fff, 4, true}, Case{0x8000, 0x7fff, 2, true}, Case{0x9000, 0x7fff, 4, false},
        Case{0x10002, 0xffff, 4, true}, Case{0x10001, 0xffff, 2, false}, Case{0, 0xffff, 4, false}}) {
    for (const K kind : {K::ins, K::outs}) {
      CAPTURE(c.port);
      Guest guest;
      guest.environment.io_map.set(c.set_bit, true);
      guest.environment.ports[static_cast<std::uint16_t>(c.port)] = 0x77;
      guest.intercept(I::ioio).enter();
      const Step step = guest.run(string_io(kind, c.port, c.size, false, 0, 8));
      CHECK(step.kind == (c.exits ? StepKind::vmexit : StepKind::retired));
      if (!c.exits && kind == K::ins) CHECK(step.result == 0x77);
      if (!c.exits && kind == K::outs)
        CHECK(guest.environment.ports[static_cast<std::uint16_t>(c.port)] == 0x5a);
    }
  }
  Guest open;
  open.environment.io_map.fill(true);
  open.enter();
  CHECK(open.run(string_io(K::ins, 0x60, 1, false, 0, 8)).kind == StepKind::retired);
}

TEST_CASE("EXITINFO1 of a nested page fault says what the page lacks and what the access was (15.25.6)") {
  struct Case {
    std::string_view rule;
    K kind;
    NestedPage page;
    std::uint64_t info;  ///< 0: no fault
  };
  const auto with = [](auto change) {
    NestedPage page;
    change(page);
    return page;
  };
  const NestedPage absent = with([](NestedPage& p) { p.present = false; });
  const NestedPage read_only = with([](NestedPage& p) { p.writable = false; });
  const NestedPage supervisor = with([](NestedPage& p) { p.user = false; });
  const NestedPage no_execute = with([](NestedPage& p) { p.no_execute = true; });
  const NestedPage reserved = with([](NestedPage& p) { p.reserved_bit = true; });
  const NestedPage table = with([](NestedPage& p) {
    p.writable = false;
    p.guest_table_walk = true;
  });
  for (const Case& c : {Case{"not present", K::memory_read, absent, 0x1'0000'0004},
                        Case{"not present", K::memory_write, absent, 0x1'0000'0006},
                        Case{"not present", K::instruction_fetch, absent, 0x1'0000'0014},
                        Case{"read only", K::memory_read, read_only, 0},
                        Case{"read only", K::memory_write, read_only, 0x1'0000'0007},
                        Case{"read only", K::instruction_fetch, read_only, 0},
                        Case{"supervisor", K::memory_read, supervisor, 0x1'0000'0005},
                        Case{"supervisor", K::memory_write, supervisor, 0x1'0000'0007},
                        Case{"no execute", K::memory_read, no_execute, 0},
                        Case{"no execute", K::instruction_fetch, no_execute, 0x1'0000'0015},
                        Case{"reserved bit", K::memory_read, reserved, 0x1'0000'000d},
                        Case{"reserved bit", K::memory_write, reserved, 0x1'0000'000f},
                        Case{"reserved bit", K::instruction_fetch, reserved, 0x1'0000'001d},
                        Case{"guest tables", K::memory_write, table, 0x2'0000'0007}}) {
    CAPTURE(c.rule);
    CAPTURE(action_name(c.kind));
    Guest guest;
    guest.environment.page(0x9000) = c.page;
    guest.enter();
    const Step step = guest.run(make(c.kind, 0, 1, 0x9123));
    if (c.info == 0) {
      CHECK(step.kind == StepKind::retired);
      continue;
    }
    REQUIRE(step.kind == StepKind::vmexit);
    CHECK(guest.exit_code() == exit_code::npf);
    CHECK(guest.vmcb.control.exit_info_1 == c.info);
    CHECK(guest.vmcb.control.exit_info_2 == 0x9123);
    CHECK(guest.vmcb.control.next_rip == 0);
    CHECK(guest.exit_rip() == guest_rip);

    Guest shadow_paging;
    shadow_paging.environment.page(0x9000) = c.page;
    shadow_paging.vmcb.control.nested_ctl = 0;
    shadow_paging.enter();
    CHECK(shadow_paging.run(make(c.kind, 0, 1, 0x9123)).kind == StepKind::retired);
  }
}

TEST_CASE("GMET: supervisor code runs only from pages that are not the user's") {
  struct Case {
    bool user_page;
    bool no_execute;
    std::uint8_t cpl;
    std::uint64_t info;
  };
  for (const Case& c :
       {Case{true, false, 0, 0x1'0000'0011}, Case{false, false, 0, 0}, Case{false, true, 0, 0x1'0000'0011},
        Case{true, false, 3, 0}, Case{false, false, 3, 0x1'0000'0015}}) {
    CAPTURE(c.cpl);
    CAPTURE(c.user_page);
    Guest guest;
    guest.vmcb.control.nested_ctl |= nested_ctl::gmet_enable;
    guest.environment.page(0x9000).user = c.user_page;
    guest.environment.page(0x9000).no_execute = c.no_execute;
    guest.cpl = c.cpl;
    REQUIRE(guest.enter().kind == StepKind::entered);
    const Step step = guest.run(make(K::instruction_fetch, 0, 0, 0x9000));
    CHECK(step.kind == (c.info == 0 ? StepKind::retired : StepKind::vmexit));
    if (c.info != 0) CHECK(guest.vmcb.control.exit_info_1 == c.info);
  }
  Guest without(all_but_avic().without(Feature::gmet));
  without.vmcb.control.nested_ctl |= nested_ctl::gmet_enable;
  if (without.enter().kind == StepKind::entered)
    CHECK(without.run(make(K::instruction_fetch, 0, 0, 0x9000)).kind == StepKind::retired);
}

TEST_CASE("SEV-ES: an NPF with a reserved bit is MMIO, which the guest handles itself") {
  ProcessorLimits limits;
  limits.sev = true;
  limits.max_encrypted_asid = 100;
  for (const bool reserved : {false, true}) {
    Guest guest(all_but_avic(), {}, limits);
    guest.vmcb.control.nested_ctl |= nested_ctl::sev_enable | nested_ctl::sev_es_enable;
    guest.environment.page(0x9000).reserved_bit = reserved;
    guest.environment.page(0x9000).writable = false;
    guest.enter();
    const Step step = guest.run(make(K::memory_write, 0, 0, 0x9000));
    CHECK(step.kind == (reserved ? StepKind::delivered : StepKind::vmexit));
    if (reserved) CHECK(step.result == 0x400);
  }
}

TEST_CASE("bus locks count the threshold down, and exit before the access when it is 0") {
  Guest guest;
  guest.vmcb.control.bus_lock_counter = 2;
  guest.intercept(I::buslock).enter();
  const GuestAction lock = make(K::bus_lock, 0, 0, 0x9000);
  CHECK(guest.run(lock).kind == StepKind::retired);
  CHECK(guest.run(lock).kind == StepKind::retired);
  const std::uint64_t rip = guest.cpu.rip();
  CHECK(guest.run(lock).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::buslock);
  CHECK(guest.exit_rip() == rip);
  CHECK(guest.vmcb.control.exit_info_1 == 0);
  CHECK(guest.vmcb.control.exit_info_2 == 0);
  CHECK(guest.vmcb.control.next_rip == 0);
  CHECK(guest.vmcb.control.bus_lock_counter == 0);

  Guest faulting;  // the access did not take place: nothing to count
  faulting.vmcb.control.bus_lock_counter = 2;
  faulting.environment.missing_pages.insert(9);
  faulting.intercept(I::buslock).enter();
  faulting.run(lock);
  CHECK(faulting.exit_code() == exit_code::npf);
  CHECK(faulting.vmcb.control.bus_lock_counter == 2);

  for (const bool feature : {false, true}) {
    Guest open(feature ? all_but_avic() : all_but_avic().without(Feature::bus_lock_threshold));
    open.intercept(I::buslock, !feature).enter();
    CHECK(open.run(lock).kind == StepKind::retired);
    CHECK(open.vmcb.control.bus_lock_counter == 0);
  }
}
