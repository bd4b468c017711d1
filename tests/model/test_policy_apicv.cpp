// Inhibits of AVIC: their bitmap, their statistics, and what of the APICs' addresses brings them about
// (kvm-software.md 6.4).

#include <doctest/doctest.h>

#include "model/policy/apicv_inhibits.hpp"
#include "workloads/trace/payload_names.hpp"

namespace svmsim::model {

namespace {

using Reason = ApicvInhibitReason;

ApicMapEntry x2apic(std::uint32_t id, bool enabled = true) {
  return {{apic::ApicMode::x2apic, id, static_cast<std::uint8_t>(id), 0, 0xf}, enabled};
}
ApicMapEntry xapic(std::uint32_t id, std::uint8_t xapic_id, std::uint8_t logical, std::uint8_t format = 0xf,
                   bool enabled = true) {
  return {{apic::ApicMode::xapic, id, xapic_id, logical, format}, enabled};
}

}  // namespace

TEST_CASE("inhibits: names are the kernel's, in its order") {
  for (std::size_t i = 0; i < ApicvInhibits::reasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    CHECK(inhibit_of(inhibit_name(reason)) == reason);
    std::string upper(inhibit_name(reason));
    for (char& c : upper)
      c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    CHECK(workloads::apicv_inhibit_name(static_cast<unsigned>(i)) == upper);
  }
  CHECK_FALSE(inhibit_of("irq_win").has_value());
  CHECK(static_cast<unsigned>(Reason::irqwin) == 8);
  CHECK(static_cast<unsigned>(Reason::pit_reinj) == 9);
  CHECK(static_cast<unsigned>(Reason::logical_id_aliased) == 11);
}

TEST_CASE("inhibits: only the first reason and the end of the last one change anything for the vCPUs") {
  ApicvInhibits inhibits;
  CHECK(inhibits.set(Reason::pit_reinj, true, 10));
  CHECK_FALSE(inhibits.set(Reason::irqwin, true, 20));
  CHECK_FALSE(inhibits.set(Reason::irqwin, true, 25));
  CHECK(inhibits.bitmap() == 0x300);
  CHECK_FALSE(inhibits.set(Reason::irqwin, false, 30));
  CHECK(inhibits.set(Reason::pit_reinj, false, 50));
  CHECK_FALSE(inhibits.set(Reason::pit_reinj, false, 60));
  CHECK_FALSE(inhibits.any());
  const auto rows = inhibits.rows(100);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].reason == Reason::irqwin);
  CHECK(rows[0].count == 1);
  CHECK(rows[0].time_cycles == 10);
  CHECK(rows[1].reason == Reason::pit_reinj);
  CHECK(rows[1].time_cycles == 40);
}

TEST_CASE("inhibits: the warm-up counts for nothing, what holds at its end counts once") {
  ApicvInhibits inhibits(100);
  inhibits.set(Reason::irqwin, true, 10);
  inhibits.set(Reason::irqwin, false, 20);
  inhibits.set(Reason::sev, true, 30);
  inhibits.set(Reason::hyperv, true, 90);
  inhibits.set(Reason::hyperv, false, 130);
  inhibits.set(Reason::blockirq, true, 140);
  const auto rows = inhibits.rows(200);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].reason == Reason::hyperv);
  CHECK(rows[0].count == 1);
  CHECK(rows[0].time_cycles == 30);
  CHECK(rows[1].reason == Reason::blockirq);
  CHECK(rows[1].count == 1);
  CHECK(rows[1].time_cycles == 60);
  CHECK(rows[2].reason == Reason::sev);
  CHECK(rows[2].count == 1);
  CHECK(rows[2].time_cycles == 100);
}

TEST_CASE("inhibits: x2APIC guests of any size are fine, unless their APICs are in different modes") {
  std::vector<ApicMapEntry> apics;
  for (std::uint32_t id = 0; id < 300; ++id)
    apics.push_back(x2apic(id));
  ApicMapProblems problems = apic_map_problems(apics);
  CHECK_FALSE(problems.physical_id_aliased);
  CHECK_FALSE(problems.apic_id_modified);
  CHECK_FALSE(problems.logical_id_aliased);
  problems = apic_map_problems({x2apic(0), xapic(1, 1, 2)});
  CHECK(problems.logical_id_aliased);
  CHECK_FALSE(problems.physical_id_aliased);
  // One that software has not enabled, or that has no logical ID, has no mode.
  CHECK_FALSE(apic_map_problems({x2apic(0), xapic(1, 1, 2, 0xf, false)}).logical_id_aliased);
  CHECK_FALSE(apic_map_problems({x2apic(0), xapic(1, 1, 0)}).logical_id_aliased);
  CHECK(apic_map_problems({xapic(0, 0, 1), xapic(1, 1, 0x12, 0)}).logical_id_aliased);
}

TEST_CASE("inhibits: changed and shared xAPIC IDs") {
  ApicMapProblems problems = apic_map_problems({xapic(0, 0, 1), xapic(1, 7, 2)});
  CHECK(problems.apic_id_modified);
  CHECK_FALSE(problems.physical_id_aliased);
  CHECK_FALSE(problems.logical_id_aliased);
  problems = apic_map_problems({xapic(0, 0, 1), xapic(1, 0, 2)});
  CHECK(problems.apic_id_modified);
  CHECK(problems.physical_id_aliased);
  CHECK(problems.logical_id_aliased);
  // An ID that wraps is no change, but an alias.
  problems = apic_map_problems({xapic(0, 0, 0), xapic(256, 0, 0)});
  CHECK_FALSE(problems.apic_id_modified);
  CHECK(problems.physical_id_aliased);
}

TEST_CASE("inhibits: logical IDs of the flat and the cluster model must be one bit each, and all different") {
  const auto aliased = [](std::initializer_list<ApicMapEntry> apics) {
    return apic_map_problems(apics).logical_id_aliased;
  };
  CHECK_FALSE(aliased({xapic(0, 0, 1), xapic(1, 1, 2), xapic(2, 2, 0x80)}));
  CHECK(aliased({xapic(0, 0, 1), xapic(1, 1, 1)}));
  CHECK(aliased({xapic(0, 0, 3)}));
  CHECK_FALSE(aliased({xapic(0, 0, 0x11, 0), xapic(1, 1, 0x12, 0), xapic(2, 2, 0x21, 0)}));
  CHECK(aliased({xapic(0, 0, 0x11, 0), xapic(1, 1, 0x11, 0)}));
  CHECK(aliased({xapic(0, 0, 0x13, 0)}));
  CHECK_FALSE(aliased({xapic(0, 0, 0x10, 0), xapic(1, 1, 0x10, 0)}));
}

}  // namespace svmsim::model
