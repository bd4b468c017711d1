#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "apic/arbitration.hpp"
#include "apic/destination.hpp"
#include "apic/icr.hpp"
#include "apic/local_apic.hpp"

namespace svmsim::apic {

/// Sends a command from the APIC `sender` (DestinationMap::no_sender for a device) to everyone whom it
/// concerns: calls visit(index, message) for each target, in index order, and returns how many there were.
/// The caller hands `message` to LocalApic::receive(). `apic_of(index)` gives the LocalApic of a target.
///
/// For lowest priority the arbiter picks one; a physical broadcast with it is a fixed one to everybody
/// (kvm_irq_delivery_to_apic). 0 is the sender's send accept error (LocalApic::note_send_accept_error()).
/// A remote read has one target at most, or none answers.
template <typename ApicOf, typename Visit>
std::size_t route(const DestinationMap& map, Arbiter& arbiter, const IcrCommand& command, std::size_t sender,
                  ApicOf&& apic_of, Visit&& visit) {
  if (command.delivery != DeliveryMode::lowest_priority) {
    return map.for_each_target(command, sender, [&](std::size_t index) { visit(index, command); });
  }
  if (command.shorthand == Shorthand::none && command.destination_mode == DestinationMode::physical &&
      command.destination == xapic_broadcast) {
    IcrCommand to_all = command;
    to_all.delivery = DeliveryMode::fixed;
    return map.for_each_target(to_all, sender, [&](std::size_t index) { visit(index, to_all); });
  }
  const std::optional<std::size_t> winner = arbiter.choose(
      command.vector, [&](auto&& candidate) { map.for_each_target(command, sender, candidate); },
      [&](std::size_t index) -> std::optional<std::uint8_t> {
        const LocalApic& apic = apic_of(index);
        if (!apic.hardware_enabled() || !apic.software_enabled()) return std::nullopt;
        return apic.tpr();
      });
  if (!winner) return 0;
  visit(*winner, command);
  return 1;
}

/// A remote read command of `sender` (delivery mode 3): the target's register reaches the sender's remote
/// read register, and the remote read status of its ICR says whether it is valid.
template <typename ApicOf>
void read_remotely(const DestinationMap& map, const IcrCommand& command, std::size_t sender, ApicOf&& apic_of,
                   std::uint64_t now_cycles) {
  std::size_t answers = 0;
  RegisterRead read;
  map.for_each_target(command, sender, [&](std::size_t index) {
    ++answers;
    read = std::as_const(apic_of(index)).remote_read(command.vector, now_cycles);
  });
  const bool valid = answers == 1 && !read.general_protection;
  apic_of(sender).complete_remote_read(valid, static_cast<std::uint32_t>(read.value));
}

}  // namespace svmsim::apic
