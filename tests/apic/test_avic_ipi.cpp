#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "apic/avic/stale_is_running.hpp"
#include "tests/apic/avic_ipi_row.hpp"

using namespace svmsim::apic;
using namespace svmsim::apic::test;

TEST_CASE("8.4, xAVIC physical destinations") {
  const std::vector<IpiRow> rows{
      {"running", 0x4041, 1, no_exit, 0, {1}, {0x101}},
      {"own ID: evaluated without a doorbell", 0x4041, 0, no_exit, 0, {0}, {}, true},
      {"not running: IRR, then exit", 0x41, 3, 1, 3, {3}, {}},
      {"not valid", 0x41, 4, 2, 4, {}, {}},
      {"illegal page", 0x41, 5, 3, 5, {}, {}},
      {"above MAX_INDEX", 0x41, 6, 2, 6, {}, {}},
      {"above MAX_INDEX", 0x41, 254, 2, 254, {}, {}},
      {"vector 0", 0x4000, 1, 4, 0, {}, {}},
      {"vector 15", 0x400f, 1, 4, 0, {}, {}},
      {"vector 16", 0x4010, 1, no_exit, 0, {1}, {0x101}},
      {"illegal vector to self", to_self | 5, 0, 4, 0, {}, {}},
      {"illegal vector before invalid target", 5, 4, 4, 0, {}, {}},
      {"lowest priority", 0x141, 1, 0, 0, {}, {}},
      {"SMI", 0x200, 1, 0, 0, {}, {}},
      {"NMI", 0x400, 1, 0, 0, {}, {}},
      {"INIT", 0x4500, 1, 0, 0, {}, {}},
      {"STARTUP", 0x469a, 1, 0, 0, {}, {}},
      {"ExtINT", 0x741, 1, 0, 0, {}, {}},
      {"level", 0xc041, 1, 0, 0, {}, {}},
      {"level before vector", 0x8005, 1, 0, 0, {}, {}},
      {"NMI to self", to_self | 0x400, 0, 0, 0, {}, {}},
      {"shorthand self ignores the destination", to_self | 0x41, 4, no_exit, 0, {0}, {}, true},
  };
  for (const IpiRow& row : rows) {
    AvicVm vm(false, 6);
    populate(vm);
    check(vm, row, std::uint64_t{row.destination} << 56 | row.low);
  }
}

TEST_CASE("8.4, x2AVIC physical destinations") {
  const std::vector<IpiRow> rows{
      {"running", 0x4041, 1, no_exit, 0, {1}, {0x101}},
      {"own ID", 0x41, 0, no_exit, 0, {0}, {}, true},
      {"not running", 0x41, 3, 1, 3, {3}, {}},
      {"not valid", 0x41, 4, 2, 4, {}, {}},
      {"illegal page", 0x41, 5, 3, 5, {}, {}},
      {"above MAX_INDEX", 0x41, 0x1'0001, 2, 0x001, {}, {}},
      {"FFh is no broadcast", 0x41, 0xff, 2, 0xff, {}, {}},
      {"NMI", 0x400, 1, 0, 0, {}, {}},
      {"reserved message type", 0x141, 1, 0, 0, {}, {}},
      {"level", 0x8041, 1, 0, 0, {}, {}},
      {"vector 15", 0xf, 1, 4, 0, {}, {}},
      {"self", to_self | 0x41, 4, no_exit, 0, {0}, {}, true},
  };
  for (const IpiRow& row : rows) {
    AvicVm vm(true, 6);
    populate(vm);
    check(vm, row, std::uint64_t{row.destination} << 32 | row.low);
  }
}

TEST_CASE("8.4, broadcast and shorthands: every valid entry, running targets rung before the exit") {
  for (const bool x2avic : {false, true}) {
    CAPTURE(x2avic);
    const std::uint32_t everybody = x2avic ? everybody_x2 : 0xff;
    const auto info = [&](std::uint32_t low, std::uint32_t destination) {
      return std::uint64_t{destination} << (x2avic ? 32 : 56) | low;
    };
    struct Case {
      const char* name;
      std::uint32_t low;
      std::uint32_t destination;
      bool self;
    };
    const std::vector<Case> cases{{"physical broadcast", 0x41, everybody, true},
                                  {"logical broadcast", logical | 0x41, everybody, true},
                                  {"all including self", to_all | 0x41, 4, true},
                                  {"all excluding self", to_others | 0x41, 0, false}};
    for (const Case& c : cases) {
      const Ids all = c.self ? Ids{0, 1, 2, 3} : Ids{1, 2, 3};
      {
        AvicVm vm(x2avic, 4);
        check(vm, {c.name, c.low, c.destination, no_exit, 0, all, {0x101, 0x102, 0x103}, c.self},
              info(c.low, c.destination));
      }
      {
        // An invalid entry is ignored.
        AvicVm vm(x2avic, 5);
        vm.entry(4) = {};
        check(vm, {c.name, c.low, c.destination, no_exit, 0, all, {0x101, 0x102, 0x103}, c.self},
              info(c.low, c.destination));
      }
      {
        // One exit for several targets that are not running; the lowest is named.
        AvicVm vm(x2avic, 4);
        vm.entry(3) = vm.entry(3).not_running();
        vm.entry(1) = vm.entry(1).not_running();
        check(vm, {c.name, c.low, c.destination, 1, 1, all, {0x102}, c.self}, info(c.low, c.destination));
      }
      {
        AvicKnobs knobs;
        knobs.not_running_index = NotRunningIndex::highest;
        AvicVm vm(x2avic, 4, knobs);
        vm.entry(3) = vm.entry(3).not_running();
        vm.entry(1) = vm.entry(1).not_running();
        check(vm, {c.name, c.low, c.destination, 1, 3, all, {0x102}, c.self}, info(c.low, c.destination));
      }
      for (const bool delivers : {false, true}) {
        // 12.20: an illegal page among them.
        AvicKnobs knobs;
        knobs.broadcast_with_illegal_page_delivers = delivers;
        AvicVm vm(x2avic, 4, knobs);
        vm.entry(1) = vm.entry(1).not_running();
        vm.entry(2) = PhysicalIdEntry::make(0x10'0000).running_on(0x102);
        Ids irr = c.self ? Ids{0, 1, 3} : Ids{1, 3};
        if (!delivers) irr.clear();
        check(vm,
              {c.name, c.low, c.destination, 3, 2, irr, delivers ? Ids{0x103} : Ids{}, delivers && c.self},
              info(c.low, c.destination));
      }
    }
  }
}

TEST_CASE("a broadcast reaches no entry above MAX_INDEX, and xAVIC never entry 255") {
  AvicVm small(true, 6);
  small.set_max_index(2);
  small.enter(0);
  DoorbellList doorbells;
  small.send(0, to_all | 0x41, 0, doorbells);
  CHECK(small.requested(0x41) == Ids{0, 1, 2});

  for (const bool x2avic : {false, true}) {
    AvicVm vm(x2avic, 256);
    auto list = std::make_unique<DoorbellList>();
    CHECK(vm.send(0, to_others | 0x41, 0, *list).outcome == AvicOutcome::done);
    CHECK(list->count == (x2avic ? 255 : 254));
    CHECK(vm.page(255).test_irr(0x41) == x2avic);
  }
}

TEST_CASE("12.12: x2AVIC broadcast and entry 255") {
  AvicKnobs knobs;
  knobs.x2avic_broadcast = false;
  AvicVm vm(true, 4, knobs);
  DoorbellList doorbells;
  AvicResult result = vm.send(0, 0x41, everybody_x2, doorbells);
  CHECK(result.exit_info_2 == (std::uint64_t{2} << 32 | 0xfff));
  result = vm.send(0, logical | 0x41, everybody_x2, doorbells);
  CHECK((result.exit_info_2 >> 32) == 2);
  CHECK(vm.requested(0x41).empty());

  for (const bool reserved : {false, true}) {
    knobs.x2avic_entry_255_reserved = reserved;
    AvicVm big(true, 257, knobs);
    DoorbellList list;
    CHECK(big.send(0, 0x41, 255, list).exits() == reserved);
    CHECK(big.send(0, 0x42, 256, list).exits() == false);
    big.send(0, to_others | 0x43, 0, list);
    CHECK(big.page(255).test_irr(0x43) == !reserved);
    CHECK(big.page(256).test_irr(0x43));
  }
}

TEST_CASE("SELF_IPI is an ICR write with the shorthand self that leaves the ICR alone") {
  AvicVm vm(true);
  DoorbellList doorbells;
  vm.send(0, 0x42, 1, doorbells);
  doorbells.count = 0;
  vm.entry(0) = vm.entry(0).not_running();
  CHECK(vm.cores[0].write_msr(0x83f, 0x41, doorbells).outcome == AvicOutcome::done);
  CHECK(vm.cores[0].pending() == 0x41);
  CHECK(vm.requested(0x41) == Ids{0});
  CHECK(doorbells.count == 0);
  CHECK(vm.page(0).icr() == 0x1'0000'0042);
  const AvicResult result = vm.cores[0].write_msr(0x83f, 0x0f, doorbells);
  CHECK(result.exit_code() == 0x401);
  CHECK((result.exit_info_2 >> 32) == 4);
}

TEST_CASE("with IsRunning never set (enable_ipiv off) each IPI but a self IPI exits with id 1") {
  for (const bool x2avic : {false, true}) {
    AvicVm vm(x2avic, 3);
    for (std::uint32_t id = 0; id < 3; ++id)
      vm.entry(id) = vm.entry(id).not_running();
    DoorbellList doorbells;
    CHECK(vm.send(0, 0x41, 1, doorbells).exit_info_2 == (std::uint64_t{1} << 32 | 1));
    CHECK(vm.send(0, to_all | 0x42, 0, doorbells).exit_info_2 == (std::uint64_t{1} << 32));
    CHECK_FALSE(vm.send(0, to_self | 0x43, 0, doorbells).exits());
    CHECK(doorbells.count == 0);
    CHECK(vm.requested(0x42) == Ids{0, 1, 2});
  }
}

TEST_CASE("an IPI is a request of an edge interrupt: TMR is cleared, a set IRR bit merges") {
  struct Sink : IpiSink {
    std::vector<std::string> events;
    void doorbell(std::uint32_t host) { events.push_back("ring " + std::to_string(host)); }
    void requested(std::uint32_t id, std::uint8_t vector, bool merged) {
      events.push_back("irr " + std::to_string(id) + " " + std::to_string(vector) +
                       (merged ? " merged" : ""));
    }
    PhysicalIdEntry observe(std::uint32_t id, PhysicalIdEntry current) {
      events.push_back("read " + std::to_string(id));
      return current;
    }
  };
  AvicVm vm(true, 3);
  vm.page(1).set_tmr(0x41, true);
  Sink sink;
  vm.send(0, 0x41, 1, sink);
  CHECK_FALSE(vm.page(1).test_tmr(0x41));
  vm.entry(1) = vm.entry(1).not_running();
  vm.send(0, to_all | 0x41, 0, sink);
  // For each target: IRR first, then IsRunning (8.7).
  CHECK(sink.events == std::vector<std::string>{"irr 1 65", "read 1", "ring 257", "irr 0 65", "read 0",
                                                "irr 1 65 merged", "read 1", "irr 2 65", "read 2",
                                                "ring 258"});
}

TEST_CASE("erratum 1235 in a sink: the cleared IsRunning is missed, no exit, and the wrong core is rung") {
  struct Sink : DoorbellList {
    StaleIsRunning stale{4, 100};
    std::uint64_t now = 0;
    [[nodiscard]] PhysicalIdEntry observe(std::uint32_t id, PhysicalIdEntry current) const noexcept {
      return stale.observe(id, current, now);
    }
  };
  AvicVm vm(true, 4);
  Sink sink;
  sink.stale.note_cleared(1, vm.entry(1), 1000);
  vm.entry(1) = vm.entry(1).not_running();
  sink.now = 1050;
  CHECK_FALSE(vm.send(0, 0x41, 1, sink).exits());
  CHECK(rung(sink) == Ids{0x101});
  CHECK(vm.page(1).test_irr(0x41));
  sink.now = 1100;
  CHECK(vm.send(0, 0x41, 1, sink).exit_info_2 == (std::uint64_t{1} << 32 | 1));
}

TEST_CASE("the delivery status bit of the ICR is read-only, and may stay set after exit id 0") {
  AvicVm plain(false);
  DoorbellList doorbells;
  AvicResult result = plain.send(0, 0x1441, 1, doorbells);
  CHECK(result.exit_info_1 == 0x0100'0000'0000'0441);
  CHECK(plain.page(0).read(APIC_ICR) == 0x441);
  AvicKnobs knobs;
  knobs.leaves_icr_busy = true;
  AvicVm busy(false, 4, knobs);
  result = busy.send(0, 0x441, 1, doorbells);
  CHECK(result.exit_info_1 == 0x0100'0000'0000'1441);
  CHECK(busy.page(0).read(APIC_ICR) == 0x1441);
  busy.send(0, 0x41, 1, doorbells);
  CHECK(busy.page(0).read(APIC_ICR) == 0x41);
  busy.entry(1) = busy.entry(1).not_running();
  result = busy.send(0, 0x41, 1, doorbells);
  CHECK(result.exit_info_1 == 0x0100'0000'0000'0041);
}

TEST_CASE("12.9: the id for message types that are not fixed") {
  AvicKnobs knobs;
  knobs.non_fixed_exit_id = 5;
  AvicVm vm(true, 4, knobs);
  DoorbellList doorbells;
  CHECK(vm.send(0, 0x400, 1, doorbells).exit_info_2 == (std::uint64_t{5} << 32));
  CHECK(vm.send(0, 0x8041, 1, doorbells).exit_info_2 == (std::uint64_t{5} << 32));
}
