#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apic/icr.hpp"

namespace svmsim::apic {

/// How an APIC is reached. xAPIC and "disabled" come with the xAPIC registers.
enum class ApicMode : std::uint8_t { x2apic };

/// Logical ID that x2APIC mode derives from the APIC ID: cluster in bits 31:16, one bit of 16 below. APM vol.
/// 2, 16.11.
[[nodiscard]] constexpr std::uint32_t x2apic_logical_id(std::uint32_t id) noexcept {
  return ((id >> 4) & 0xffffU) << 16 | 1U << (id & 0xfU);
}

/// Whether `destination` names the APIC with `id`, without regard to shorthands. Fact sheet 7.4, x2APIC rows.
[[nodiscard]] constexpr bool x2apic_destination_matches(DestinationMode mode, std::uint32_t destination,
                                                        std::uint32_t id) noexcept {
  if (destination == x2apic_broadcast) return true;
  if (mode == DestinationMode::physical) return destination == id;
  const std::uint32_t logical = x2apic_logical_id(id);
  return destination >> 16 == logical >> 16 && (destination & logical & 0xffffU) != 0;
}

/// Which APICs of one machine a command addresses. Built once from the APIC IDs, in index order.
/// Lowest priority needs the targets' TPR and is reserved in x2APIC mode, so it is not resolved here.
class DestinationMap {
 public:
  /// `ids` must be distinct; throws InternalError otherwise.
  explicit DestinationMap(std::vector<std::uint32_t> ids);

  [[nodiscard]] std::size_t size() const noexcept { return ids_.size(); }
  [[nodiscard]] std::uint32_t id(std::size_t index) const { return ids_[index]; }
  /// Index of the APIC with `id`, or -1.
  [[nodiscard]] std::int32_t index_of(std::uint32_t id) const noexcept;

  /// Calls visit(index) for each addressed APIC, in index order; `sender` is the index of the commanding one.
  /// Returns how many there were: 0 is the sender's "send accept error" (7.8).
  template <typename Visit>
  std::size_t for_each_target(const IcrCommand& command, std::size_t sender, Visit&& visit) const {
    if (command.shorthand == Shorthand::self) {
      visit(sender);
      return 1;
    }
    if (command.shorthand == Shorthand::none && command.destination_mode == DestinationMode::physical &&
        command.destination != x2apic_broadcast) {
      const std::int32_t target = index_of(command.destination);
      if (target < 0) return 0;
      visit(static_cast<std::size_t>(target));
      return 1;
    }
    std::size_t count = 0;
    for (std::size_t index = 0; index < ids_.size(); ++index) {
      if (!addressed(command, sender, index)) continue;
      visit(index);
      ++count;
    }
    return count;
  }

  /// The same as a list, for tests and reports.
  [[nodiscard]] std::vector<std::size_t> targets(const IcrCommand& command, std::size_t sender) const;

 private:
  [[nodiscard]] bool addressed(const IcrCommand& command, std::size_t sender,
                               std::size_t index) const noexcept {
    switch (command.shorthand) {
      case Shorthand::self:
        return index == sender;
      case Shorthand::all_including_self:
        return true;
      case Shorthand::all_excluding_self:
        return index != sender;
      case Shorthand::none:
        break;
    }
    return x2apic_destination_matches(command.destination_mode, command.destination, ids_[index]);
  }

  std::vector<std::uint32_t> ids_;
  std::vector<std::uint32_t> by_id_;  // indices, sorted by ID
};

}  // namespace svmsim::apic
