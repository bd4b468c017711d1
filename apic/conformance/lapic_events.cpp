// What can happen to local APICs in a case.

#include <fmt/format.h>

#include "apic/conformance/guest_verbs.hpp"
#include "apic/conformance/lapic_machine.hpp"

namespace svmsim::apic::conformance {

namespace {

using Machine = LapicMachine;
using Action = Verb<Machine>::Action;

Action read_store(NodeTable& table, std::size_t unit) {
  const std::uint32_t offset = required_offset(table);
  const std::uint32_t value = required_32(table, "value");
  const auto bytes = static_cast<unsigned>(table.number("bytes", 8).value_or(4));
  return [=](Machine& m) { m.store(unit, offset, value, bytes); };
}

Action read_load(NodeTable& table, std::size_t unit) {
  const std::uint32_t offset = required_offset(table);
  const auto bytes = static_cast<unsigned>(table.number("bytes", 8).value_or(4));
  return [=](Machine& m) { m.load(unit, offset, bytes); };
}

Action read_accept(NodeTable& table, std::size_t unit) {
  const std::uint8_t vector = required_8(table, "vector");
  const bool level = table.boolean("level").value_or(false);
  return [=](Machine& m) { m.accept(unit, vector, level); };
}

Action read_receive(NodeTable& table, std::size_t unit) {
  const IcrCommand command = read_command(table);
  return [=](Machine& m) { m.receive(unit, command); };
}

Action read_signal(NodeTable& table, std::size_t unit) {
  static const Choices entries{"thermal",   "performance", "lint0",     "lint1",    "error",
                               "extended0", "extended1",   "extended2", "extended3"};
  if (table.node().find("lvt") == nullptr) table.problem("lvt", table.node().line, "is missing");
  const auto entry = static_cast<LvtEntry>(read_choice(table, "lvt", entries).value_or(0));
  return [=](Machine& m) { m.signal(unit, entry); };
}

Action read_lint(NodeTable& table, std::size_t unit) {
  const auto pin = static_cast<std::size_t>(required(table, "pin", 1));
  const bool up = table.boolean("up").value_or(false);
  return [=](Machine& m) { m.set_lint(unit, pin, up); };
}

Action read_wait(NodeTable& table, std::size_t) {
  const std::uint64_t cycles = required(table, "cycles", std::uint64_t{1} << 40);
  const bool expire = table.boolean("expire").value_or(true);
  return [=](Machine& m) { m.wait(cycles, expire); };
}

Action read_tsc_jump(NodeTable& table, std::size_t unit) {
  const std::uint64_t delta = required(table, "by", UINT64_MAX);
  return [=](Machine& m) { m.jump_tsc(unit, static_cast<std::int64_t>(delta)); };
}

Action read_boundary(NodeTable& table, std::size_t unit) {
  const bool gif = table.boolean("gif").value_or(true);
  return [=](Machine& m) { m.boundary(unit, gif); };
}

Action read_msi(NodeTable& table, std::size_t) {
  MsiMessage message;
  message.address = required(table, "address", UINT64_MAX);
  message.data = required_32(table, "data");
  return [=](Machine& m) { m.message(message); };
}

Action read_pin(NodeTable& table, std::size_t) {
  const auto pin = static_cast<std::size_t>(required(table, "pin", IoApic::pin_count - 1));
  const bool up = table.boolean("up").value_or(false);
  const auto source = static_cast<unsigned>(table.number("source", 31).value_or(0));
  return [=](Machine& m) { m.set_pin(pin, up, source); };
}

// Through IOREGSEL and IOWIN.
Action read_io_write(NodeTable& table, std::size_t) {
  const std::uint32_t select = required_32(table, "register");
  const std::uint32_t value = required_32(table, "value");
  return [=](Machine& m) {
    m.io_store(IoApic::select_offset, select);
    m.io_store(IoApic::window_offset, value);
  };
}

Action read_io_read(NodeTable& table, std::size_t) {
  const std::uint32_t select = required_32(table, "register");
  return [=](Machine& m) {
    m.io_store(IoApic::select_offset, select);
    m.io_load(IoApic::window_offset);
  };
}

Action read_io_store(NodeTable& table, std::size_t) {
  const std::uint32_t offset = required_32(table, "offset");
  const std::uint32_t value = required_32(table, "value");
  return [=](Machine& m) { m.io_store(offset, value); };
}

Action read_io_load(NodeTable& table, std::size_t) {
  const std::uint32_t offset = required_32(table, "offset");
  return [=](Machine& m) { m.io_load(offset); };
}

Action read_redirect(NodeTable& table, std::size_t) {
  constexpr std::uint32_t first_entry = 0x10;
  const auto pin = static_cast<std::uint32_t>(required(table, "pin", IoApic::pin_count - 1));
  const std::uint64_t entry = required(table, "entry", UINT64_MAX);
  return [=](Machine& m) {
    for (const std::uint32_t half : {1U, 0U}) {
      m.io_store(IoApic::select_offset, first_entry + 2 * pin + half);
      m.io_store(IoApic::window_offset, static_cast<std::uint32_t>(entry >> 32 * half));
    }
  };
}

}  // namespace

const std::vector<Verb<LapicMachine>>& LapicMachine::verbs() {
  static const std::vector<Verb<Machine>> all = [] {
    std::vector<Verb<Machine>> verbs = GuestVerbs<Machine>::all();
    const std::vector<Verb<Machine>> more{
        {"store", read_store},
        {"load", read_load},
        {"accept", read_accept},
        {"receive", read_receive},
        {"signal", read_signal},
        {"lint", read_lint},
        {"wait", read_wait},
        {"tsc_jump", read_tsc_jump},
        {"init", plain_verb<Machine, &Machine::init>},
        {"reset", plain_verb<Machine, &Machine::reset>},
        {"boundary", read_boundary},
        {"take_nmi", plain_verb<Machine, &Machine::take_nmi>},
        {"take_smi", plain_verb<Machine, &Machine::take_smi>},
        {"iret", plain_verb<Machine, &Machine::iret>},
        {"msi", read_msi},
        {"pin", read_pin},
        {"io_write", read_io_write},
        {"io_read", read_io_read},
        {"io_store", read_io_store},
        {"io_load", read_io_load},
        {"redirect", read_redirect},
    };
    verbs.insert(verbs.end(), more.begin(), more.end());
    return verbs;
  }();
  return all;
}

}  // namespace svmsim::apic::conformance
