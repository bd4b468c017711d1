#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/apic/avic_vm.hpp"

namespace svmsim::apic::test {

using Ids = std::vector<std::uint32_t>;

inline constexpr std::uint32_t logical = 0x800;
inline constexpr std::uint32_t to_self = 1U << 18;
inline constexpr std::uint32_t to_all = 2U << 18;
inline constexpr std::uint32_t to_others = 3U << 18;
inline constexpr std::uint32_t everybody_x2 = 0xffff'ffff;
inline constexpr int no_exit = -1;

// One IPI of vector 41h and all that follows from it.
struct IpiRow {
  const char* name;
  std::uint32_t low;
  std::uint32_t destination;
  int id;               // of exit 401h, or no_exit
  std::uint32_t index;  // in EXITINFO2
  Ids irr;              // whose IRR bit is set afterwards
  Ids doorbells;        // to which host APIC IDs
  bool own_pending = false;
};

inline void check(AvicVm& vm, const IpiRow& row, std::uint64_t exit_info_1) {
  const std::string name = row.name;
  CAPTURE(name);
  DoorbellList doorbells;
  const AvicResult result = vm.send(0, row.low, row.destination, doorbells);
  const auto vector = static_cast<std::uint8_t>(row.low);
  CHECK(vm.requested(vector) == row.irr);
  CHECK(rung(doorbells) == row.doorbells);
  CHECK(vm.cores[0].pending() == (row.own_pending ? vector : -1));
  CHECK(vm.page(0).read(APIC_ICR) == row.low);
  CHECK(result.rip_after());
  CHECK(result.exits() == (row.id != no_exit));
  if (row.id == no_exit) return;
  CHECK(result.exit_code() == 0x401);
  CHECK(result.exit_info_1 == exit_info_1);
  CHECK(result.exit_info_2 == (static_cast<std::uint64_t>(row.id) << 32 | row.index));
}

// Six vCPUs: 0, 1, 2 run; 3 is blocked; 4 has no valid entry; 5 has a backing page pointer to nowhere.
inline void populate(AvicVm& vm) {
  vm.entry(3) = vm.entry(3).not_running();
  vm.entry(4) = {};
  vm.entry(5) = PhysicalIdEntry::make(0x10'0000).running_on(0x105);
}

}  // namespace svmsim::apic::test
