#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apic/apic_registers.hpp"
#include "apic/conformance/script.hpp"

// What software does to an APIC, with or without AVIC below it.

namespace svmsim::apic::conformance {

/// An event without keys of its own.
template <typename Machine, void (Machine::*member)(std::size_t)>
typename Verb<Machine>::Action plain_verb(NodeTable& /*table*/, std::size_t unit) {
  return [unit](Machine& m) { (m.*member)(unit); };
}

template <typename Machine>
struct GuestVerbs {
  using Action = typename Verb<Machine>::Action;

  static Action write(NodeTable& table, std::size_t unit) {
    const auto written = read_register_value(table).value_or(RegisterValue{});
    return [=](Machine& m) { m.write_register(unit, written.offset, written.value); };
  }
  static Action read(NodeTable& table, std::size_t unit) {
    const std::uint32_t offset = read_register_name(table).value_or(0);
    return [=](Machine& m) { m.read_register(unit, offset); };
  }
  static Action wrmsr(NodeTable& table, std::size_t unit) {
    const std::uint32_t msr = required_32(table, "msr");
    const std::uint64_t value = required(table, "value", UINT64_MAX);
    return [=](Machine& m) { m.write_msr(unit, msr, value); };
  }
  static Action rdmsr(NodeTable& table, std::size_t unit) {
    const std::uint32_t msr = required_32(table, "msr");
    return [=](Machine& m) { m.read_msr(unit, msr); };
  }
  static Action ipi(NodeTable& table, std::size_t unit) {
    const IcrCommand command = read_command(table);
    return [=](Machine& m) { m.send(unit, command); };
  }
  static Action eoi(NodeTable& /*table*/, std::size_t unit) {
    return [=](Machine& m) { m.write_register(unit, APIC_EOI, 0); };
  }
  static Action cr8(NodeTable& table, std::size_t unit) {
    const auto value = static_cast<std::uint8_t>(required(table, "value", 15));
    return [=](Machine& m) { m.set_cr8(unit, value); };
  }

  [[nodiscard]] static std::vector<Verb<Machine>> all() {
    return {{"write", write}, {"read", read},
            {"wrmsr", wrmsr}, {"rdmsr", rdmsr},
            {"ipi", ipi},     {"eoi", eoi},
            {"cr8", cr8},     {"acknowledge", plain_verb<Machine, &Machine::acknowledge>}};
  }
};

}  // namespace svmsim::apic::conformance
