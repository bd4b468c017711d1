#pragma once

#include <cstdint>
#include <optional>

#include "apic/avic/knobs.hpp"

namespace svmsim::apic {

/// The doorbell MSR, with which the hypervisor does what an accelerated IPI does at its end. Write-only:
/// RDMSR raises #GP(0). Fact sheet 8.6; APM vol. 2, 15.29.8.
inline constexpr std::uint32_t msr_avic_doorbell = 0xc001'011b;

/// The host APIC ID whose core WRMSR of the doorbell MSR rings; nothing: reserved bits are set, #GP(0).
[[nodiscard]] constexpr std::optional<std::uint32_t> doorbell_target(std::uint64_t value,
                                                                     const AvicKnobs& knobs) noexcept {
  if (value >> knobs.doorbell_id_bits != 0) return std::nullopt;
  return static_cast<std::uint32_t>(value);
}

}  // namespace svmsim::apic
