#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "apic/destination.hpp"
#include "tests/apic/avic_ipi_row.hpp"

using namespace svmsim::apic;
using namespace svmsim::apic::test;

TEST_CASE("8.4, xAVIC flat logical destinations go through the logical table") {
  // Logical ID bit n belongs to vCPU 5 - n, so that indices of both tables differ.
  const auto prepare = [](AvicVm& vm) {
    for (std::uint32_t bit = 0; bit < 6; ++bit)
      vm.logical(bit) = LogicalIdEntry::make(5 - bit);
    vm.logical(7) = LogicalIdEntry::make(9);  // not in the physical table
    populate(vm);
  };
  const std::vector<IpiRow> rows{
      {"one running", logical | 0x41, 1U << 4, no_exit, 0, {1}, {0x101}},
      {"two running", logical | 0x41, 1U << 4 | 1U << 3, no_exit, 0, {1, 2}, {0x102, 0x101}},
      {"self among them", logical | 0x41, 1U << 5 | 1U << 4, no_exit, 0, {0, 1}, {0x101}, true},
      {"not running: logical index", logical | 0x41, 1U << 2, 1, 2, {3}, {}},
      {"one of two not running", logical | 0x41, 1U << 2 | 1U << 4, 1, 2, {1, 3}, {0x101}},
      {"no logical entry", logical | 0x41, 1U << 6, 2, 6, {}, {}},
      {"one of two without entry: nothing is sent", logical | 0x41, 1U << 6 | 1U << 4, 2, 6, {}, {}},
      {"invalid physical entry", logical | 0x41, 1U << 1 | 1U << 4, 2, 4, {}, {}},
      {"guest ID above MAX_INDEX", logical | 0x41, 1U << 7, 2, 9, {}, {}},
      {"illegal page", logical | 0x41, 1U << 0 | 1U << 4, 3, 5, {}, {}},
      {"nobody", logical | 0x41, 0, no_exit, 0, {}, {}},
  };
  for (const IpiRow& row : rows) {
    AvicVm vm(false, 6);
    prepare(vm);
    check(vm, row, std::uint64_t{row.destination} << 56 | row.low);
  }
}

TEST_CASE("8.4, xAVIC cluster destinations: four IDs in each of 15 clusters") {
  for (std::uint32_t cluster = 0; cluster < 16; ++cluster) {
    CAPTURE(cluster);
    for (std::uint32_t bits = 1; bits < 16; ++bits) {
      if (cluster == 15 && bits == 15) continue;  // broadcast
      CAPTURE(bits);
      AvicVm vm(false, 60);
      vm.page(0).write(APIC_DFR, 0x0fff'ffff);
      // What stands beyond the 60 entries does not count.
      for (std::uint32_t index = 0; index < 64; ++index)
        vm.logical(index) = LogicalIdEntry::make(index % 60);
      IpiRow row{"cluster", logical | 0x41, cluster << 4 | bits, no_exit, 0, {}, {}};
      for (std::uint32_t bit = 0; bit < 4; ++bit) {
        if ((bits >> bit & 1U) == 0) continue;
        const std::uint32_t id = 4 * cluster + bit;
        if (cluster == 15) {
          if (row.id == no_exit) row.index = id;
          row.id = 2;
          continue;
        }
        row.irr.push_back(id);
        if (id == 0) {
          row.own_pending = true;
        } else {
          row.doorbells.push_back(0x100 + id);
        }
      }
      check(vm, row, std::uint64_t{row.destination} << 56 | row.low);
    }
  }
}

TEST_CASE("8.4, x2AVIC logical destinations are computed, in clusters of 16") {
  for (std::uint32_t cluster = 0; cluster < 3; ++cluster) {
    for (const std::uint32_t bits : {0x0001U, 0x8000U, 0x8001U, 0x00f0U, 0xffffU}) {
      AvicVm vm(true, 40);
      IpiRow row{"x2 cluster", logical | 0x41, cluster << 16 | bits, no_exit, 0, {}, {}};
      for (std::uint32_t bit = 0; bit < 16; ++bit) {
        if ((bits >> bit & 1U) == 0) continue;
        const std::uint32_t id = 16 * cluster + bit;
        if (id >= 40) {
          if (row.id == no_exit) row.index = id;
          row.id = 2;
        }
        row.irr.push_back(id);
        if (id == 0) {
          row.own_pending = true;
        } else {
          row.doorbells.push_back(0x100 + id);
        }
      }
      if (row.id != no_exit) {
        row.irr.clear();
        row.doorbells.clear();
      }
      check(vm, row, std::uint64_t{row.destination} << 32 | row.low);
    }
  }
  AvicVm vm(true, 40);
  vm.entry(18) = vm.entry(18).not_running();
  vm.entry(20) = vm.entry(20).not_running();
  check(vm, {"not running", logical | 0x41, 0x1'003e, 1, 18, {17, 18, 19, 20, 21}, {0x111, 0x113, 0x115}},
        0x1'003e'0000'0841);
}

TEST_CASE("x2AVIC_EXT: targets on the later pages of the physical table") {
  AvicVm vm(true, 1500);
  DoorbellList doorbells;
  CHECK_FALSE(vm.send(0, 0x41, 1499, doorbells).exits());
  CHECK_FALSE(vm.send(0, 0x41, 512, doorbells).exits());
  CHECK(vm.send(0, 0x41, 1500, doorbells).exit_info_2 == (std::uint64_t{2} << 32 | 1500));
  CHECK(vm.requested(0x41) == Ids{512, 1499});
  CHECK(rung(doorbells) == Ids{0x100 + 1499, 0x100 + 512});
  // A MAX_INDEX beyond the pages that are there finds no valid entry.
  vm.set_max_index(4095);
  vm.enter(0);
  CHECK(vm.send(0, 0x41, 4000, doorbells).exit_info_2 == (std::uint64_t{2} << 32 | 4000));
}

TEST_CASE("random x2AVIC IPIs agree with a second statement of the rules") {
  const bool held = rc::check("targets, exits, doorbells", [] {
    constexpr std::uint32_t count = 24;
    AvicVm vm(true, count);
    // 0: runs, 1: not running, 2: invalid; most run.
    const auto kinds =
        *rc::gen::container<std::vector<int>>(count, rc::gen::weightedElement<int>({{6, 0}, {1, 1}, {1, 2}}));
    for (std::uint32_t id = 0; id < count; ++id) {
      if (kinds[id] == 1) vm.entry(id) = vm.entry(id).not_running();
      if (kinds[id] == 2) vm.entry(id) = {};
    }
    const auto shorthand = *rc::gen::inRange<std::uint32_t>(0, 4);
    const bool is_logical = *rc::gen::arbitrary<bool>();
    const std::uint32_t destination =
        *rc::gen::oneOf(rc::gen::inRange<std::uint32_t>(0, 30), rc::gen::inRange<std::uint32_t>(0, 0x2'0000),
                        rc::gen::just(everybody_x2));
    const auto sender = *rc::gen::inRange<std::uint32_t>(0, count);

    // Whom the LAPIC's rule of 7.4 addresses.
    const IcrCommand command = IcrCommand::from_x2apic(std::uint64_t{destination} << 32 | shorthand << 18 |
                                                       (is_logical ? logical : 0) | 0x41);
    const bool everybody = shorthand >= 2 || (shorthand == 0 && destination == everybody_x2);
    Ids addressed;
    for (std::uint32_t id = 0; id < 0x1'0000 && !everybody; ++id) {
      const bool match = shorthand == 1
                             ? id == sender
                             : x2apic_destination_matches(command.destination_mode, destination, id);
      if (match) addressed.push_back(id);
    }
    for (std::uint32_t id = 0; id < count && everybody; ++id) {
      if (kinds[id] != 2 && !(shorthand == 3 && id == sender)) addressed.push_back(id);
    }
    const bool invalid =
        shorthand != 1 && (std::any_of(addressed.begin(), addressed.end(),
                                       [&](std::uint32_t id) { return id >= count || kinds[id] == 2; }) ||
                           (!everybody && !is_logical && addressed.empty()));
    const bool blocked =
        shorthand != 1 && std::any_of(addressed.begin(), addressed.end(),
                                      [&](std::uint32_t id) { return id < count && kinds[id] == 1; });

    DoorbellList doorbells;
    const AvicResult result = vm.send(sender, command.low(), destination, doorbells);
    if (invalid) {
      RC_ASSERT((result.exit_info_2 >> 32) == 2U);
      RC_ASSERT(vm.requested(0x41).empty());
      RC_ASSERT(doorbells.count == 0U);
      return;
    }
    RC_ASSERT(vm.requested(0x41) == addressed);
    RC_ASSERT(result.exits() == blocked);
    Ids expected;
    for (const std::uint32_t id : addressed) {
      if (id != sender && kinds[id] == 0) expected.push_back(AvicVm::host_id(id));
    }
    RC_ASSERT(rung(doorbells) == expected);
  });
  CHECK(held);
}
