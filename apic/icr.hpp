#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace svmsim::apic {

/// Message type, ICR bits 10:8. Fact sheet 7.3; APM vol. 2, 16.5.
enum class DeliveryMode : std::uint8_t {
  fixed,
  lowest_priority,
  smi,
  remote_read,
  nmi,
  init,
  startup,
  ext_int
};
enum class DestinationMode : std::uint8_t { physical, logical };
enum class Shorthand : std::uint8_t { none, self, all_including_self, all_excluding_self };

/// Everybody, in both destination modes of x2APIC.
constexpr std::uint32_t x2apic_broadcast = 0xffffffffU;
/// Everybody, in both destination modes of xAPIC.
constexpr std::uint32_t xapic_broadcast = 0xffU;

/// An interrupt command: what a write of the ICR, or of SELF_IPI, asks for.
struct IcrCommand {
  std::uint8_t vector = 0;
  DeliveryMode delivery = DeliveryMode::fixed;
  DestinationMode destination_mode = DestinationMode::physical;
  bool assert = false;           ///< bit 14
  bool level_triggered = false;  ///< bit 15
  Shorthand shorthand = Shorthand::none;
  std::uint32_t destination = 0;

  /// Fields of the 64-bit ICR of x2APIC mode. Reserved bits are dropped.
  [[nodiscard]] static constexpr IcrCommand from_x2apic(std::uint64_t icr) noexcept {
    IcrCommand command;
    command.vector = static_cast<std::uint8_t>(icr);
    command.delivery = static_cast<DeliveryMode>((icr >> 8) & 7U);
    command.destination_mode = static_cast<DestinationMode>((icr >> 11) & 1U);
    command.assert = ((icr >> 14) & 1U) != 0;
    command.level_triggered = ((icr >> 15) & 1U) != 0;
    command.shorthand = static_cast<Shorthand>((icr >> 18) & 3U);
    command.destination = static_cast<std::uint32_t>(icr >> 32);
    return command;
  }

  /// Fields of the two ICR registers of xAPIC mode: the destination is bits 31:24 of the high one.
  [[nodiscard]] static constexpr IcrCommand from_xapic(std::uint32_t icr_low,
                                                       std::uint32_t icr_high) noexcept {
    IcrCommand command = from_x2apic(icr_low);
    command.destination = icr_high >> 24;
    return command;
  }

  /// Bits 31:0 of the ICR, the same in both APIC modes.
  [[nodiscard]] constexpr std::uint32_t low() const noexcept {
    return std::uint32_t{vector} | static_cast<std::uint32_t>(delivery) << 8 |
           static_cast<std::uint32_t>(destination_mode) << 11 | (assert ? 1U << 14 : 0U) |
           (level_triggered ? 1U << 15 : 0U) | static_cast<std::uint32_t>(shorthand) << 18;
  }
  [[nodiscard]] constexpr std::uint64_t x2apic() const noexcept {
    return std::uint64_t{destination} << 32 | low();
  }

  /// The legacy de-assert (INIT, level 0, trigger level), which every APIC ignores.
  [[nodiscard]] constexpr bool init_deassert() const noexcept {
    return delivery == DeliveryMode::init && level_triggered && !assert;
  }

  /// Whether the message type carries a vector for the IRR: fixed and lowest priority.
  [[nodiscard]] constexpr bool carries_vector() const noexcept {
    return delivery == DeliveryMode::fixed || delivery == DeliveryMode::lowest_priority;
  }

  [[nodiscard]] friend constexpr bool operator==(const IcrCommand& a, const IcrCommand& b) noexcept {
    return a.x2apic() == b.x2apic();
  }
};

/// Bits of the x2APIC ICR that a write must leave 0: 12, 13, 17:16, 31:20. Setting one raises #GP(0).
constexpr std::uint64_t x2apic_icr_reserved = 0xfff33000U;
/// Bits of ICR low that a write in xAPIC mode stores: not the delivery status (12), the remote read status
/// (17:16), which belong to the APIC, and the reserved ones.
constexpr std::uint32_t xapic_icr_writable = 0x000ccfffU;

/// Whether x2APIC mode defines the message type; 1, 3 and 7 are reserved there.
[[nodiscard]] constexpr bool x2apic_delivery_defined(DeliveryMode mode) noexcept {
  return mode != DeliveryMode::lowest_priority && mode != DeliveryMode::remote_read &&
         mode != DeliveryMode::ext_int;
}

/// Names as the kernel's APIC events print them: Fixed, LowPrio, SMI, Res3, NMI, INIT, SIPI, ExtINT.
[[nodiscard]] std::string_view delivery_mode_text(DeliveryMode mode) noexcept;
[[nodiscard]] std::optional<DeliveryMode> delivery_mode_from_text(std::string_view text) noexcept;
/// dst, self, all, all-but-self.
[[nodiscard]] std::string_view shorthand_text(Shorthand shorthand) noexcept;
[[nodiscard]] std::optional<Shorthand> shorthand_from_text(std::string_view text) noexcept;

/// Payload of the kvm_apic_ipi event: "dst b0 vec 176 (Fixed|physical|assert|edge|self)".
[[nodiscard]] std::string ipi_text(const IcrCommand& command);

}  // namespace svmsim::apic
