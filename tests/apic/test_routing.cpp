// Destinations of all modes, shorthands, lowest priority and remote read, from sender to receivers.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "apic/interrupt_routing.hpp"
#include "svm/user_error.hpp"

using namespace svmsim::apic;

namespace {

using Targets = std::vector<std::size_t>;

constexpr auto logical = DestinationMode::logical;
constexpr auto physical = DestinationMode::physical;

IcrCommand to(std::uint32_t destination, DestinationMode mode, DeliveryMode delivery = DeliveryMode::fixed) {
  IcrCommand command;
  command.vector = 0x41;
  command.destination = destination;
  command.destination_mode = mode;
  command.delivery = delivery;
  return command;
}

ApicAddress flat(std::uint8_t id, std::uint8_t ldr) {
  return {ApicMode::xapic, id, id, ldr, 0xf};
}
ApicAddress cluster(std::uint8_t id, std::uint8_t ldr) {
  return {ApicMode::xapic, id, id, ldr, 0};
}

/// APICs in xAPIC flat mode with one bit each, software-enabled.
struct Machine {
  explicit Machine(std::size_t count, ArbitrationPolicy policy = ArbitrationPolicy::vector_hashing)
      : map(std::vector<std::uint32_t>{}), arbiter(count, policy) {
    LocalApicOptions options;
    options.initial_mode = ApicMode::xapic;
    std::vector<ApicAddress> addresses;
    for (std::uint32_t id = 0; id < count; ++id) {
      apics.emplace_back(id, options);
      apics.back().write_mmio(0xd0, 1U << (24 + id));
      apics.back().write_mmio(0xf0, 0x1ff);
      addresses.push_back(apics.back().address());
    }
    map = DestinationMap::of(addresses);
  }
  Targets send(const IcrCommand& command, std::size_t sender = 0) {
    Targets reached;
    const std::size_t count = route(
        map, arbiter, command, sender, [this](std::size_t i) -> LocalApic& { return apics[i]; },
        [&](std::size_t index, const IcrCommand& message) {
          last = message;
          apics[index].receive(message);
          reached.push_back(index);
        });
    CHECK(count == reached.size());
    return reached;
  }

  std::vector<LocalApic> apics;
  DestinationMap map;
  Arbiter arbiter;
  IcrCommand last;
};

}  // namespace

TEST_CASE("xAPIC physical: the 8-bit ID, or FFh for everybody") {
  const DestinationMap map = DestinationMap::of({flat(0, 1), flat(1, 2), flat(0x20, 4)});
  CHECK(map.targets(to(0x20, physical), 0) == Targets{2});
  CHECK(map.targets(to(0x21, physical), 0).empty());
  CHECK(map.targets(to(0xff, physical), 1) == Targets{0, 1, 2});
}

TEST_CASE("xAPIC flat: each one-bit ID is met by exactly the masks that contain it") {
  std::vector<ApicAddress> addresses;
  for (std::uint8_t id = 0; id < 8; ++id)
    addresses.push_back(flat(id, static_cast<std::uint8_t>(1U << id)));
  const DestinationMap map = DestinationMap::of(addresses);
  for (std::uint32_t mask = 0; mask < 0x100; ++mask) {
    Targets expected;
    for (std::size_t id = 0; id < 8; ++id)
      if ((mask >> id & 1) != 0) expected.push_back(id);
    CHECK(map.targets(to(mask, logical), 0) == expected);
  }
}

TEST_CASE("xAPIC cluster: 15 clusters of 4 bits, and FFh") {
  std::vector<ApicAddress> addresses;
  for (std::uint8_t i = 0; i < 60; ++i) {
    addresses.push_back(cluster(i, static_cast<std::uint8_t>((i / 4U) << 4 | 1U << (i % 4U))));
  }
  const DestinationMap map = DestinationMap::of(addresses);
  for (std::uint32_t destination = 0; destination < 0xff; ++destination) {
    Targets expected;
    for (std::size_t i = 0; i < 60; ++i)
      if (i / 4 == destination >> 4 && (destination >> (i % 4) & 1) != 0) expected.push_back(i);
    CHECK(map.targets(to(destination, logical), 3) == expected);
  }
  CHECK(map.targets(to(0xff, logical), 3).size() == 60);
}

TEST_CASE("a destination format that is neither flat nor cluster matches nothing but FFh") {
  ApicAddress odd = flat(1, 0xff);
  odd.destination_format = 5;
  CHECK_FALSE(destination_matches(odd, logical, 0x01));
  CHECK(destination_matches(odd, logical, 0xff));
  CHECK(destination_matches(odd, physical, 1));
}

TEST_CASE("a disabled APIC hears neither destinations nor shorthands") {
  ApicAddress off = flat(1, 2);
  off.mode = ApicMode::disabled;
  const DestinationMap map = DestinationMap::of({flat(0, 1), off});
  CHECK(map.targets(to(0xff, physical), 0) == Targets{0});
  CHECK(map.targets(to(1, physical), 0).empty());
  IcrCommand all = to(0, physical);
  all.shorthand = Shorthand::all_including_self;
  CHECK(map.targets(all, 0) == Targets{0});
  all.shorthand = Shorthand::all_excluding_self;
  CHECK(map.targets(all, 0).empty());
}

TEST_CASE("two APICs with one xAPIC ID both hear it, and an update moves an APIC") {
  DestinationMap map = DestinationMap::of({flat(0, 1), flat(1, 2), flat(2, 4)});
  ApicAddress moved = flat(2, 4);
  moved.xapic_id = 1;
  map.update(2, moved);
  CHECK(map.targets(to(1, physical), 0) == Targets{1, 2});
  CHECK(map.targets(to(2, physical), 0).empty());
  CHECK(map.index_of(2) == 2);
  moved.id = 9;
  CHECK_THROWS_AS(map.update(2, moved), svmsim::InternalError);
}

TEST_CASE("in a mixed machine each APIC compares in its own mode; a device's FFh reaches both") {
  const DestinationMap map = DestinationMap::of(
      {flat(0, 1), {ApicMode::x2apic, 1, 1, 0, 0xf}, {ApicMode::x2apic, 0xff, 0xff, 0, 0xf}});
  CHECK(map.targets(to(0xff, physical), 0) == Targets{0, 2});
  CHECK(map.targets(to(0xffffffff, physical), 0) == Targets{1, 2});
  CHECK(map.targets(to(0xff, physical), DestinationMap::no_sender) == Targets{0, 1, 2});
  CHECK(map.targets(to(1, logical), 0) == Targets{0});
  CHECK(map.targets(to(2, logical), 0) == Targets{1});
  const DestinationMap x2apic({0U, 1U, 2U});
  CHECK(x2apic.targets(to(0xff, physical), DestinationMap::no_sender) == Targets{0, 1, 2});
  CHECK(x2apic.targets(to(0xff, physical), 0).empty());
}

namespace {

// Fact sheet 7.4, row by row.
bool named(const ApicAddress& apic, bool is_logical, std::uint32_t destination) {
  switch (apic.mode) {
    case ApicMode::disabled:
      return false;
    case ApicMode::x2apic:
      if (destination == 0xffffffff) return true;
      if (!is_logical) return apic.id == destination;
      return (apic.id >> 4 & 0xffff) == destination >> 16 && (destination >> (apic.id & 15) & 1) != 0;
    case ApicMode::xapic:
      break;
  }
  if (destination > 0xff) return false;
  if (destination == 0xff) return true;
  if (!is_logical) return apic.xapic_id == destination;
  for (unsigned bit = 0; bit < 8; ++bit) {
    const bool both = (destination >> bit & 1) != 0 && (apic.xapic_logical_id >> bit & 1) != 0;
    if (apic.destination_format == 0xf && both) return true;
    if (apic.destination_format == 0 && bit < 4 && both && destination / 16 == apic.xapic_logical_id / 16U) {
      return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("the map agrees with the rows of the fact sheet, in every mixture of modes") {
  const bool held = rc::check("targets by brute force", [] {
    const auto ids = *rc::gen::unique<std::vector<std::uint32_t>>(
        rc::gen::oneOf(rc::gen::inRange<std::uint32_t>(0, 64), rc::gen::inRange<std::uint32_t>(0, 0x200000)));
    const int mixture = *rc::gen::inRange(0, 3);
    std::vector<ApicAddress> addresses;
    for (const std::uint32_t id : ids) {
      ApicAddress address;
      address.id = id;
      address.mode = mixture == 0   ? ApicMode::xapic
                     : mixture == 1 ? ApicMode::x2apic
                                    : static_cast<ApicMode>(*rc::gen::inRange(0, 3));
      address.xapic_id = static_cast<std::uint8_t>(*rc::gen::inRange(0, 24));
      address.xapic_logical_id = *rc::gen::arbitrary<std::uint8_t>();
      address.destination_format = *rc::gen::element<std::uint8_t>(0xf, 0xf, 0, 0, 3);
      addresses.push_back(address);
    }
    DestinationMap map = DestinationMap::of(addresses);
    if (!addresses.empty() && mixture == 2 && *rc::gen::arbitrary<bool>()) {
      addresses[0].mode = ApicMode::xapic;
      addresses[0].xapic_id ^= 1;
      map.update(0, addresses[0]);
    }
    IcrCommand command;
    command.vector = 0x41;
    command.destination = *rc::gen::oneOf(
        rc::gen::inRange<std::uint32_t>(0, 32), rc::gen::inRange<std::uint32_t>(0, 0x100),
        rc::gen::element<std::uint32_t>(0xff, 0xffffffff), rc::gen::inRange<std::uint32_t>(0, 0x50000),
        ids.empty() ? rc::gen::just<std::uint32_t>(0) : rc::gen::elementOf(ids));
    command.destination_mode = *rc::gen::element(physical, logical);
    command.shorthand = static_cast<Shorthand>(*rc::gen::element(0, 0, 0, 2, 3));
    const auto sender = *rc::gen::inRange<std::size_t>(0, ids.size() + 1);
    Targets expected;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      bool hit = addresses[i].mode != ApicMode::disabled;
      if (command.shorthand == Shorthand::all_excluding_self) hit = hit && i != sender;
      if (command.shorthand == Shorthand::none) {
        hit = named(addresses[i], command.destination_mode == logical, command.destination);
      }
      if (hit) expected.push_back(i);
    }
    RC_ASSERT(map.targets(command, sender) == expected);
  });
  CHECK(held);
}

TEST_CASE("lowest priority by vector hashing: the (vector mod n)-th candidate") {
  Machine machine(4);
  for (unsigned vector = 0x30; vector < 0x40; ++vector) {
    IcrCommand command = to(0xb, logical, DeliveryMode::lowest_priority);  // APICs 0, 1, 3
    command.vector = static_cast<std::uint8_t>(vector);
    const std::size_t candidates[] = {0, 1, 3};
    CHECK(machine.send(command) == Targets{candidates[vector % 3]});
    CHECK(machine.apics[candidates[vector % 3]].irr().test(command.vector));
  }
  // A software-disabled APIC is no candidate.
  machine.apics[1].write_mmio(0xf0, 0xff);
  IcrCommand command = to(0xb, logical, DeliveryMode::lowest_priority);
  command.vector = 0x31;
  CHECK(machine.send(command) == Targets{3});
  for (LocalApic& apic : machine.apics)
    apic.write_mmio(0xf0, 0xff);
  CHECK(machine.send(command).empty());
}

TEST_CASE("lowest priority without hashing: whoever had the fewest, the first of them") {
  Machine machine(4, ArbitrationPolicy::delivery_count);
  const IcrCommand command = to(0xe, logical, DeliveryMode::lowest_priority);
  Targets order;
  for (unsigned i = 0; i < 6; ++i)
    order.push_back(machine.send(command).at(0));
  CHECK(order == Targets{1, 2, 3, 1, 2, 3});
  machine.send(to(0x4, logical, DeliveryMode::lowest_priority));
  CHECK(machine.send(command) == Targets{1});
  CHECK(machine.send(command) == Targets{3});
  CHECK(machine.send(command) == Targets{1});
}

TEST_CASE("lowest priority by the manual: the lowest TPR, the first of them") {
  Machine machine(4, ArbitrationPolicy::task_priority);
  const IcrCommand command = to(0xf, logical, DeliveryMode::lowest_priority);
  CHECK(machine.send(command) == Targets{0});
  machine.apics[0].set_tpr(0x20);
  machine.apics[1].set_tpr(0x10);
  machine.apics[2].set_tpr(0x10);
  machine.apics[3].set_tpr(0x11);
  CHECK(machine.send(command) == Targets{1});
}

TEST_CASE("a physical broadcast with lowest priority is a fixed one to everybody") {
  Machine machine(3);
  CHECK(machine.send(to(0xff, physical, DeliveryMode::lowest_priority)) == Targets{0, 1, 2});
  CHECK(machine.last.delivery == DeliveryMode::fixed);
  CHECK(machine.send(to(2, physical, DeliveryMode::lowest_priority)) == Targets{2});
}

TEST_CASE("every delivery mode reaches its targets as itself") {
  const std::vector<std::pair<DeliveryMode, Reception>> modes{
      {DeliveryMode::fixed, Reception::accepted},
      {DeliveryMode::smi, Reception::smi},
      {DeliveryMode::remote_read, Reception::remote_read},
      {DeliveryMode::nmi, Reception::nmi},
      {DeliveryMode::init, Reception::init},
      {DeliveryMode::startup, Reception::startup},
      {DeliveryMode::ext_int, Reception::ext_int}};
  for (const auto& [delivery, reception] : modes) {
    Machine machine(3);
    CHECK(machine.send(to(6, logical, delivery)) == Targets{1, 2});
    CHECK(machine.apics[1].receive(machine.last) ==
          (delivery == DeliveryMode::fixed ? Reception::merged : reception));
    CHECK(machine.apics[0].receive(machine.last) == reception);
    // A software-disabled APIC takes everything that does not need its IRR.
    LocalApic fresh(0);
    CHECK(fresh.receive(machine.last) == (delivery == DeliveryMode::fixed ? Reception::disabled : reception));
  }
}

TEST_CASE("de-asserts are nothing; a level interrupt sets the TMR bit") {
  LocalApic apic(0);
  apic.write_msr(0x80f, 0x1ff);
  IcrCommand command = to(0, physical);
  command.level_triggered = true;
  CHECK(apic.receive(command) == Reception::ignored);
  command.assert = true;
  CHECK(apic.receive(command) == Reception::accepted);
  CHECK(apic.tmr().test(0x41));
  command = to(0, physical, DeliveryMode::init);
  CHECK(apic.receive(command) == Reception::init);
  command.level_triggered = true;
  CHECK(apic.receive(command) == Reception::ignored);
  command = to(0, physical);
  command.vector = 9;
  CHECK(apic.receive(command) == Reception::illegal_vector);
}

TEST_CASE("a remote read fetches a register, and says whether it could") {
  Machine machine(3);
  machine.apics[2].set_tpr(0x47);
  const auto apic_of = [&machine](std::size_t i) -> LocalApic& { return machine.apics[i]; };
  LocalApic& sender = machine.apics[0];
  const auto read = [&](std::uint32_t destination, std::uint32_t number) {
    sender.write_mmio(0x310, destination << 24);
    const RegisterWrite write = sender.write_mmio(0x300, 0x300 | number);
    REQUIRE(write.effect == WriteEffect::ipi);
    CHECK((sender.read_mmio(0x300).value >> 16 & 3) == 1);
    read_remotely(machine.map, write.command, 0, apic_of, 0);
    return sender.read_mmio(0x300).value >> 16 & 3;
  };
  CHECK(read(2, 0x08) == 2);
  CHECK(sender.read_mmio(0xc0).value == 0x47);
  CHECK(read(2, 0x02) == 2);
  CHECK(sender.read_mmio(0xc0).value == 0x02000000);
  CHECK(read(9, 0x08) == 0);
  CHECK(read(2, 0x0b) == 0);  // EOI cannot be read
  CHECK(read(2, 0xff) == 0);
  CHECK(sender.read_mmio(0xc0).value == 0x02000000);
}
