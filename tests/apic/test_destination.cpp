#include <algorithm>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "apic/destination.hpp"
#include "svm/user_error.hpp"

using namespace svmsim::apic;

namespace {

using Targets = std::vector<std::size_t>;

IcrCommand to(std::uint32_t destination, DestinationMode mode = DestinationMode::physical,
              Shorthand shorthand = Shorthand::none) {
  IcrCommand command;
  command.vector = 0x41;
  command.destination = destination;
  command.destination_mode = mode;
  command.shorthand = shorthand;
  return command;
}

}  // namespace

TEST_CASE("the logical ID is the cluster and one bit of sixteen") {
  CHECK(x2apic_logical_id(0) == 0x00000001);
  CHECK(x2apic_logical_id(15) == 0x00008000);
  CHECK(x2apic_logical_id(16) == 0x00010001);
  CHECK(x2apic_logical_id(0x12345) == 0x12340020);
  CHECK(x2apic_logical_id(0xfffff) == 0xffff8000);
  CHECK(x2apic_logical_id(0xfff00003) == 0x00000008);
}

TEST_CASE("physical destinations match 32 bits, or everybody") {
  const DestinationMap map({0, 1, 0x100, 0xfe});
  CHECK(map.targets(to(0x100), 0) == Targets{2});
  CHECK(map.targets(to(0), 0) == Targets{0});
  CHECK(map.targets(to(0xff), 0).empty());
  CHECK(map.targets(to(0x200), 0).empty());
  CHECK(map.targets(to(0xffffffff), 1) == Targets{0, 1, 2, 3});
}

TEST_CASE("logical destinations match the cluster and at least one member bit, or everybody") {
  const DestinationMap map({0, 1, 15, 16, 17, 32});
  const auto logical = DestinationMode::logical;
  CHECK(map.targets(to(0x00000001, logical), 5) == Targets{0});
  CHECK(map.targets(to(0x00008003, logical), 5) == Targets{0, 1, 2});
  CHECK(map.targets(to(0x0001ffff, logical), 5) == Targets{3, 4});
  CHECK(map.targets(to(0x00020002, logical), 5).empty());
  CHECK(map.targets(to(0x00020000, logical), 5).empty());
  CHECK(map.targets(to(0x00030001, logical), 5).empty());
  CHECK(map.targets(to(0xffffffff, logical), 5) == Targets{0, 1, 2, 3, 4, 5});
}

TEST_CASE("the logical ID leaves out bits 31:20, so APICs that differ there are addressed together") {
  const DestinationMap map({3, 4, 0x100003});
  CHECK(map.targets(to(0x8, DestinationMode::logical), 0) == Targets{0, 2});
  CHECK(map.targets(to(0x18, DestinationMode::logical), 0) == Targets{0, 1, 2});
}

TEST_CASE("a shorthand overrides destination and mode") {
  const DestinationMap map({4, 5, 6});
  for (const auto mode : {DestinationMode::physical, DestinationMode::logical}) {
    CHECK(map.targets(to(5, mode, Shorthand::self), 2) == Targets{2});
    CHECK(map.targets(to(5, mode, Shorthand::all_including_self), 2) == Targets{0, 1, 2});
    CHECK(map.targets(to(5, mode, Shorthand::all_excluding_self), 1) == Targets{0, 2});
    CHECK(map.targets(to(x2apic_broadcast, mode, Shorthand::self), 0) == Targets{0});
  }
}

TEST_CASE("for_each_target counts what it visited") {
  const DestinationMap map({0, 1});
  const auto ignore = [](std::size_t) {};
  CHECK(map.for_each_target(to(7), 0, ignore) == 0);
  CHECK(map.for_each_target(to(1), 0, ignore) == 1);
  CHECK(map.for_each_target(to(x2apic_broadcast), 0, ignore) == 2);
  CHECK(map.for_each_target(to(0, DestinationMode::physical, Shorthand::all_excluding_self), 0, ignore) == 1);
}

TEST_CASE("IDs of one machine are distinct") {
  CHECK_THROWS_AS(DestinationMap({1, 2, 1}), svmsim::InternalError);
}

TEST_CASE("the map finds exactly the APICs that the matching rule names") {
  const bool held = rc::check("targets of the map are those of the rule", [] {
    auto ids = *rc::gen::unique<std::vector<std::uint32_t>>(
        rc::gen::oneOf(rc::gen::inRange<std::uint32_t>(0, 40), rc::gen::arbitrary<std::uint32_t>()));
    RC_PRE(!ids.empty());
    ids.erase(std::remove(ids.begin(), ids.end(), x2apic_broadcast), ids.end());
    RC_PRE(!ids.empty());
    const auto sender = *rc::gen::inRange<std::size_t>(0, ids.size());
    const auto target = *rc::gen::elementOf(ids);
    const bool logical = *rc::gen::arbitrary<bool>();
    const auto mode = logical ? DestinationMode::logical : DestinationMode::physical;
    const std::uint32_t destination =
        *rc::gen::element(target, x2apic_logical_id(target) | 0xf, x2apic_broadcast, target + 1);
    Targets expected;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool everybody = destination == 0xffffffff;
      const bool physical = !logical && ids[i] == destination;
      const bool member =
          logical && (ids[i] >> 4 & 0xffff) == destination >> 16 && (destination >> (ids[i] & 15) & 1) != 0;
      if (everybody || physical || member) expected.push_back(i);
    }
    RC_ASSERT(DestinationMap(ids).targets(to(destination, mode), sender) == expected);
  });
  CHECK(held);
}
