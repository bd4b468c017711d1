#pragma once

#include <cstdint>
#include <optional>

#include "apic/icr.hpp"

namespace svmsim::apic {

/// How the bits above the 8-bit destination are carried, for machines with more than 255 CPUs and no
/// interrupt remapping.
enum class MsiDestination : std::uint8_t {
  eight_bits,
  fifteen_bits,     ///< KVM_FEATURE_MSI_EXT_DEST_ID: address bits 11:5 are destination bits 14:8
  thirty_two_bits,  ///< KVM_X2APIC_API_USE_32BIT_IDS: address bits 63:40 are destination bits 31:8
};

/// A message signalled interrupt: a write of `data` to `address`. PCI; APM vol. 2, 16.5; kvm_set_msi_irq.
struct MsiMessage {
  std::uint64_t address = 0;
  std::uint32_t data = 0;
};

/// The command that a message stands for; nothing if the address is not that of the interrupt window
/// (FEEx_xxxxh). The redirection hint with a logical destination asks for lowest priority.
[[nodiscard]] constexpr std::optional<IcrCommand> decode_msi(
    const MsiMessage& message, MsiDestination format = MsiDestination::eight_bits) noexcept {
  const auto low = static_cast<std::uint32_t>(message.address);
  const auto high = static_cast<std::uint32_t>(message.address >> 32);
  if (low >> 20 != 0xfeeU) return std::nullopt;
  if (high != 0 && (format != MsiDestination::thirty_two_bits || (high & 0xffU) != 0)) return std::nullopt;
  IcrCommand command;
  command.vector = static_cast<std::uint8_t>(message.data);
  command.delivery = static_cast<DeliveryMode>((message.data >> 8) & 7U);
  command.assert = true;
  command.level_triggered = (message.data >> 15 & 1U) != 0;
  if (command.level_triggered) command.assert = (message.data >> 14 & 1U) != 0;
  command.destination_mode = static_cast<DestinationMode>(low >> 2 & 1U);
  command.destination = low >> 12 & 0xffU;
  if (format == MsiDestination::fifteen_bits) command.destination |= (low >> 5 & 0x7fU) << 8;
  if (format == MsiDestination::thirty_two_bits) command.destination |= high;
  const bool redirection_hint = (low >> 3 & 1U) != 0;
  if (redirection_hint && command.destination_mode == DestinationMode::logical &&
      command.delivery == DeliveryMode::fixed) {
    command.delivery = DeliveryMode::lowest_priority;
  }
  return command;
}

/// The message for a command: what a driver writes into the device.
[[nodiscard]] constexpr MsiMessage encode_msi(const IcrCommand& command,
                                              MsiDestination format = MsiDestination::eight_bits) noexcept {
  MsiMessage message;
  message.address = 0xfee00000U | (command.destination & 0xffU) << 12 |
                    static_cast<std::uint32_t>(command.destination_mode) << 2;
  if (format == MsiDestination::fifteen_bits) message.address |= (command.destination >> 8 & 0x7fU) << 5;
  if (format == MsiDestination::thirty_two_bits) {
    message.address |= std::uint64_t{command.destination & 0xffffff00U} << 32;
  }
  message.data = std::uint32_t{command.vector} | static_cast<std::uint32_t>(command.delivery) << 8;
  if (command.level_triggered) message.data |= 1U << 15 | (command.assert ? 1U << 14 : 0U);
  return message;
}

}  // namespace svmsim::apic
