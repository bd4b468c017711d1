// I/O APIC and MSI, alone and with local APICs behind them.

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "apic/interrupt_routing.hpp"
#include "apic/io_apic.hpp"
#include "apic/msi.hpp"

using namespace svmsim::apic;

namespace {

/// Takes every message, or none.
struct Sink {
  bool operator()(const IcrCommand& command) {
    messages.push_back(command);
    return accepts;
  }
  std::vector<IcrCommand> messages;
  bool accepts = true;
};

void write_register(IoApic& io_apic, std::uint32_t number, std::uint32_t value, Sink& sink) {
  io_apic.write_mmio(0x00, number, sink);
  io_apic.write_mmio(0x10, value, sink);
}

std::uint32_t read_register(IoApic& io_apic, std::uint32_t number) {
  Sink unused;
  io_apic.write_mmio(0x00, number, unused);
  return io_apic.read_mmio(0x10);
}

}  // namespace

TEST_CASE("I/O APIC registers: ID, version, arbitration, 24 entries, nothing else") {
  IoApic io_apic;
  Sink sink;
  CHECK(read_register(io_apic, 1) == 0x00170011);
  write_register(io_apic, 0, 0xffffffff, sink);
  CHECK(read_register(io_apic, 0) == 0x0f000000);
  CHECK(read_register(io_apic, 2) == 0x0f000000);
  for (std::uint32_t pin = 0; pin < 24; ++pin) {
    CHECK(read_register(io_apic, 0x10 + 2 * pin) == 0x10000);
    CHECK(read_register(io_apic, 0x11 + 2 * pin) == 0);
    write_register(io_apic, 0x10 + 2 * pin, 0xffffffff, sink);
    write_register(io_apic, 0x11 + 2 * pin, 0xffffffff, sink);
    // Delivery status and remote IRR are read-only.
    CHECK(read_register(io_apic, 0x10 + 2 * pin) == 0x0001afff);
    CHECK(read_register(io_apic, 0x11 + 2 * pin) == 0xff000000);
  }
  write_register(io_apic, 0x40, 0xffffffff, sink);
  CHECK(read_register(io_apic, 0x40) == 0);
  CHECK(read_register(io_apic, 3) == 0);
  CHECK(io_apic.read_mmio(0x20) == 0);
  CHECK(sink.messages.empty());
  CHECK(read_register(io_apic, 0) == 0x0f000000);
  io_apic.reset();
  CHECK(io_apic.entry(5) == 0x10000);
}

TEST_CASE("an edge pin interrupts once per rise; a masked edge is lost") {
  IoApic io_apic;
  Sink sink;
  CHECK(io_apic.set_pin(4, true, sink) == PinResult::masked);
  io_apic.set_pin(4, false, sink);
  write_register(io_apic, 0x11 + 8, 0x03000000, sink);
  write_register(io_apic, 0x10 + 8, 0x00000834, sink);
  CHECK(sink.messages.empty());
  CHECK(io_apic.set_pin(4, true, sink) == PinResult::delivered);
  CHECK(io_apic.set_pin(4, true, sink) == PinResult::merged);
  CHECK(io_apic.set_pin(4, false, sink) == PinResult::lowered);
  CHECK(io_apic.set_pin(4, true, sink) == PinResult::delivered);
  REQUIRE(sink.messages.size() == 2);
  CHECK(sink.messages[0].vector == 0x34);
  CHECK(sink.messages[0].destination == 3);
  CHECK(sink.messages[0].destination_mode == DestinationMode::logical);
  CHECK_FALSE(sink.messages[0].level_triggered);
  CHECK(io_apic.end_of_interrupt(0x34, sink) == 0);
  CHECK_FALSE(io_apic.handles(0x34));
}

TEST_CASE("a level pin waits for its EOI, and interrupts again while its line is up") {
  IoApic io_apic;
  Sink sink;
  write_register(io_apic, 0x10 + 20, 0x00018055, sink);
  CHECK(io_apic.set_pin(10, true, sink) == PinResult::masked);
  write_register(io_apic, 0x10 + 20, 0x00008055, sink);  // unmasked: comes now
  REQUIRE(sink.messages.size() == 1);
  CHECK(sink.messages[0].level_triggered);
  CHECK(sink.messages[0].assert);
  CHECK(io_apic.entry(10) == 0xc055);
  CHECK(io_apic.set_pin(10, true, sink) == PinResult::merged);
  CHECK(io_apic.end_of_interrupt(0x54, sink) == 0);
  CHECK(io_apic.end_of_interrupt(0x55, sink) == 1);
  CHECK(sink.messages.size() == 2);
  // A mask between delivery and EOI holds the next one back, and a low line ends it.
  write_register(io_apic, 0x10 + 20, 0x00018055, sink);
  CHECK(io_apic.entry(10) == 0x1c055);
  CHECK(io_apic.end_of_interrupt(0x55, sink) == 0);
  CHECK(io_apic.entry(10) == 0x18055);
  write_register(io_apic, 0x10 + 20, 0x00008055, sink);
  CHECK(sink.messages.size() == 3);
  io_apic.set_pin(10, false, sink);
  CHECK(io_apic.end_of_interrupt(0x55, sink) == 0);
  CHECK(io_apic.entry(10) == 0x8055);
  CHECK(io_apic.set_pin(10, true, sink) == PinResult::delivered);
  // As an edge it forgets the remote IRR.
  write_register(io_apic, 0x10 + 20, 0x00010055, sink);
  CHECK(io_apic.entry(10) == 0x10055);
}

TEST_CASE("devices share a level pin: it is up while one of them holds it") {
  IoApic io_apic;
  Sink sink;
  write_register(io_apic, 0x10, 0x00008055, sink);
  CHECK(io_apic.set_pin(0, true, sink, 1) == PinResult::delivered);
  CHECK(io_apic.set_pin(0, true, sink, 2) == PinResult::merged);
  io_apic.set_pin(0, false, sink, 1);
  CHECK(io_apic.line(0));
  CHECK(io_apic.end_of_interrupt(0x55, sink) == 1);
  io_apic.set_pin(0, false, sink, 2);
  CHECK(io_apic.end_of_interrupt(0x55, sink) == 0);
}

TEST_CASE("a level interrupt that nobody accepts stays pending, an edge is lost") {
  IoApic io_apic;
  Sink sink;
  sink.accepts = false;
  write_register(io_apic, 0x10, 0x00008055, sink);
  write_register(io_apic, 0x12, 0x00000056, sink);
  CHECK(io_apic.set_pin(0, true, sink) == PinResult::unaccepted);
  CHECK(io_apic.entry(0) == 0x9055);  // delivery status
  CHECK(io_apic.set_pin(1, true, sink) == PinResult::unaccepted);
  CHECK(io_apic.entry(1) == 0x56);
  sink.accepts = true;
  CHECK(io_apic.end_of_interrupt(0x55, sink) == 1);
  CHECK(io_apic.entry(0) == 0xc055);
}

TEST_CASE("the pin's delivery mode and destination make the command; NMI, SMI, INIT and ExtINT are edges") {
  for (unsigned mode = 0; mode < 8; ++mode) {
    CAPTURE(mode);
    IoApic io_apic;
    Sink sink;
    write_register(io_apic, 0x13, 0x0c000000, sink);
    write_register(io_apic, 0x12, 0x8061 | mode << 8, sink);
    CHECK(io_apic.set_pin(1, true, sink) == PinResult::delivered);
    CHECK(static_cast<unsigned>(sink.messages.at(0).delivery) == mode);
    CHECK(sink.messages.at(0).destination == 0x0c);
    CHECK(sink.messages.at(0).level_triggered == (mode <= 1));
    CHECK((io_apic.entry(1) & IoApic::remote_irr) == (mode <= 1 ? IoApic::remote_irr : 0));
    CHECK(io_apic.handles(0x61) == (mode <= 1));
  }
}

TEST_CASE(
    "the EOI register ends an interrupt where the version has it; one EOI serves every pin of the vector") {
  for (const std::uint8_t version : {std::uint8_t{0x11}, std::uint8_t{0x20}}) {
    IoApic::Options options;
    options.version = version;
    IoApic io_apic(options);
    Sink sink;
    for (const std::uint32_t pin : {2U, 3U}) {
      write_register(io_apic, 0x10 + 2 * pin, 0x8055, sink);
      io_apic.set_pin(pin, true, sink);
    }
    CHECK(sink.messages.size() == 2);
    io_apic.write_mmio(0x40, 0x55, sink);
    CHECK(sink.messages.size() == (version == 0x20 ? 4 : 2));
    CHECK(io_apic.end_of_interrupt(0x55, sink) == 2);
  }
}

TEST_CASE("a level interrupt travels from pin to EOI broadcast and back, an edge needs none") {
  IoApic io_apic;
  LocalApicOptions options;
  options.initial_mode = ApicMode::xapic;
  std::vector<LocalApic> apics;
  for (std::uint32_t id = 0; id < 2; ++id) {
    apics.emplace_back(id, options);
    apics.back().write_mmio(0xd0, 1U << (24 + id));
    apics.back().write_mmio(0xf0, 0x1ff);
  }
  const DestinationMap map = DestinationMap::of({apics[0].address(), apics[1].address()});
  Arbiter arbiter(2);
  const auto deliver = [&](const IcrCommand& command) {
    bool accepted = false;
    route(
        map, arbiter, command, DestinationMap::no_sender,
        [&apics](std::size_t i) -> LocalApic& { return apics[i]; },
        [&](std::size_t index, const IcrCommand& message) {
          const Reception reception = apics[index].receive(message);
          accepted |= reception == Reception::accepted || reception == Reception::merged;
        });
    return accepted;
  };
  const auto program = [&](std::uint32_t pin, std::uint32_t low, std::uint32_t high) {
    io_apic.write_mmio(0, 0x11 + 2 * pin, deliver);
    io_apic.write_mmio(0x10, high, deliver);
    io_apic.write_mmio(0, 0x10 + 2 * pin, deliver);
    io_apic.write_mmio(0x10, low, deliver);
  };
  program(9, 0x8951, 0x03000000);  // level, lowest priority, logical, both CPUs: 51h mod 2 = 1
  CHECK(io_apic.set_pin(9, true, deliver) == PinResult::delivered);
  CHECK(apics[0].deliverable() == -1);
  CHECK(apics[1].acknowledge() == 0x51);
  EndOfInterrupt end = apics[1].write_mmio(0xb0, 0).eoi;
  REQUIRE(end.broadcast);
  CHECK(io_apic.end_of_interrupt(0x51, deliver) == 1);
  CHECK(apics[1].acknowledge() == 0x51);
  io_apic.set_pin(9, false, deliver);
  end = apics[1].write_mmio(0xb0, 0).eoi;
  CHECK(io_apic.end_of_interrupt(static_cast<std::uint8_t>(end.vector), deliver) == 0);

  program(4, 0x0034, 0);
  CHECK(io_apic.set_pin(4, true, deliver) == PinResult::delivered);
  CHECK(apics[0].acknowledge() == 0x34);
  CHECK_FALSE(apics[0].write_mmio(0xb0, 0).eoi.broadcast);

  const auto msi = decode_msi({0xfee01000, 0x0042});
  REQUIRE(msi);
  CHECK(deliver(*msi));
  CHECK(apics[1].acknowledge() == 0x42);
  apics[0].write_mmio(0xf0, 0xff);
  CHECK(io_apic.set_pin(4, false, deliver) == PinResult::lowered);
  CHECK(io_apic.set_pin(4, true, deliver) == PinResult::unaccepted);
}

TEST_CASE("an MSI decodes by its fields") {
  struct Row {
    std::uint64_t address;
    std::uint32_t data;
    std::uint8_t vector;
    DeliveryMode delivery;
    DestinationMode mode;
    std::uint32_t destination;
    bool level;
  };
  const std::vector<Row> rows{
      {0xfee00000, 0x0031, 0x31, DeliveryMode::fixed, DestinationMode::physical, 0, false},
      {0xfeeff00c, 0x4031, 0x31, DeliveryMode::lowest_priority, DestinationMode::logical, 0xff, false},
      {0xfee0f004, 0x4031, 0x31, DeliveryMode::fixed, DestinationMode::logical, 0x0f, false},
      {0xfee07008, 0x0031, 0x31, DeliveryMode::fixed, DestinationMode::physical, 7, false},
      {0xfee07000, 0x0131, 0x31, DeliveryMode::lowest_priority, DestinationMode::physical, 7, false},
      {0xfee07000, 0xc031, 0x31, DeliveryMode::fixed, DestinationMode::physical, 7, true},
      {0xfee0700c, 0x0400, 0x00, DeliveryMode::nmi, DestinationMode::logical, 7, false}};
  for (const Row& row : rows) {
    CAPTURE(row.address);
    const auto command = decode_msi({row.address, row.data});
    REQUIRE(command);
    CHECK(command->vector == row.vector);
    CHECK(command->delivery == row.delivery);
    CHECK(command->destination_mode == row.mode);
    CHECK(command->destination == row.destination);
    CHECK(command->level_triggered == row.level);
    CHECK(command->assert);
  }
  CHECK_FALSE(decode_msi({0xfed00000, 0x31}));
  CHECK_FALSE(decode_msi({0x1fee00000, 0x31}));
  CHECK_FALSE(decode_msi({0x1'fee00000, 0x31}, MsiDestination::thirty_two_bits));
  CHECK(decode_msi({0x12345600'fee78000, 0x31}, MsiDestination::thirty_two_bits)->destination == 0x12345678);
  CHECK(decode_msi({0xfee78fe0, 0x31}, MsiDestination::fifteen_bits)->destination == 0x7f78);
  CHECK(decode_msi({0xfee78fe0, 0x31})->destination == 0x78);
  CHECK_FALSE(decode_msi({0xfee00000, 0x8031})->assert);
}

TEST_CASE("what a driver encodes is what the interrupt becomes") {
  const bool held = rc::check("decode after encode", [] {
    IcrCommand command = IcrCommand::from_x2apic(*rc::gen::arbitrary<std::uint64_t>());
    command.shorthand = Shorthand::none;
    if (!command.level_triggered) command.assert = true;
    RC_ASSERT(decode_msi(encode_msi(command, MsiDestination::thirty_two_bits),
                         MsiDestination::thirty_two_bits) == command);
    command.destination &= 0x7fff;
    RC_ASSERT(decode_msi(encode_msi(command, MsiDestination::fifteen_bits), MsiDestination::fifteen_bits) ==
              command);
    command.destination &= 0xff;
    RC_ASSERT(decode_msi(encode_msi(command)) == command);
  });
  CHECK(held);
}
