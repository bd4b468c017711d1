#pragma once

#include <cstddef>
#include <cstdint>

#include "apic/apic_registers.hpp"
#include "apic/icr.hpp"
#include "apic/local_apic_types.hpp"

/// Fields of a local vector table entry, and where the entries are. Fact sheet 7.7; APM vol. 2, 16.4.
namespace svmsim::apic::lvt {

constexpr std::uint32_t delivery_status = 1U << 12;
constexpr std::uint32_t remote_irr = 1U << 14;
constexpr std::uint32_t level_triggered = 1U << 15;
constexpr std::uint32_t ext_int = 7U << 8;
/// Delivery status and remote IRR belong to the APIC, not to software.
constexpr std::uint32_t status_bits = delivery_status | remote_irr;

[[nodiscard]] constexpr std::uint8_t vector(std::uint32_t entry) noexcept {
  return static_cast<std::uint8_t>(entry);
}
[[nodiscard]] constexpr DeliveryMode delivery(std::uint32_t entry) noexcept {
  return static_cast<DeliveryMode>((entry >> 8) & 7U);
}
[[nodiscard]] constexpr TimerMode timer_mode(std::uint32_t entry) noexcept {
  return static_cast<TimerMode>((entry >> 17) & 3U);
}
/// Only a fixed interrupt can be level-sensitive; NMI, SMI and INIT are edges, ExtINT asks the outside.
[[nodiscard]] constexpr bool level_sensitive(std::uint32_t entry) noexcept {
  return (entry & level_triggered) != 0 && delivery(entry) == DeliveryMode::fixed;
}

[[nodiscard]] constexpr std::uint32_t offset(LvtEntry entry) noexcept {
  const auto index = static_cast<std::uint32_t>(entry);
  return entry < LvtEntry::extended0 ? APIC_LVTTHMR + 0x10 * index : APIC_EILVT + 0x10 * (index - 5);
}
[[nodiscard]] constexpr std::uint32_t lint_offset(std::size_t pin) noexcept {
  return pin == 0 ? APIC_LVT0 : APIC_LVT1;
}
[[nodiscard]] constexpr bool is_entry(std::uint32_t offset) noexcept {
  return (offset >= APIC_LVTT && offset <= APIC_LVTERR) ||
         (offset >= APIC_EILVT && offset < APIC_EILVT + 0x40);
}

template <typename Visit>
void for_each_offset(Visit&& visit) {
  for (std::uint32_t offset = APIC_LVTT; offset <= APIC_LVTERR; offset += 0x10)
    visit(offset);
  for (std::uint32_t offset = APIC_EILVT; offset < APIC_EILVT + 0x40; offset += 0x10)
    visit(offset);
}

}  // namespace svmsim::apic::lvt
