#pragma once

#include <cstdint>

#include <fmt/format.h>

#include "apic/conformance/avic_machine.hpp"

namespace svmsim::apic::conformance {

/// Writes down what an IPI does.
struct AvicSink : IpiSink {
  explicit AvicSink(AvicMachine& owner) : machine(owner) {}

  void requested(std::uint32_t guest_id, std::uint8_t, bool merged) {
    AvicMachine::Outcome& outcome = machine.outcome_;
    outcome.requested.push_back(guest_id);
    if (merged) outcome.merged.push_back(guest_id);
    outcome.sequence.push_back(fmt::format("irr {}", guest_id));
  }
  [[nodiscard]] PhysicalIdEntry observe(std::uint32_t guest_id, PhysicalIdEntry current) const {
    if (!machine.setup_.knobs.isrunning_stale_read) return current;
    return machine.stale_.observe(guest_id, current, machine.now_);
  }
  void doorbell(std::uint32_t host_apic_id) {
    machine.outcome_.doorbells.push_back(host_apic_id);
    machine.outcome_.sequence.push_back(fmt::format("doorbell {:#x}", host_apic_id));
  }

  AvicMachine& machine;
};

}  // namespace svmsim::apic::conformance
