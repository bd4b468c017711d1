#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "apic/icr.hpp"

namespace svmsim::apic {

/// How an APIC is reached: not at all, through its page, or through MSRs. APIC_BASE bits 11:10.
enum class ApicMode : std::uint8_t { disabled, xapic, x2apic };

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

/// What a destination is compared with at one APIC.
struct ApicAddress {
  ApicMode mode = ApicMode::x2apic;
  std::uint32_t id = 0;                   ///< x2APIC ID
  std::uint8_t xapic_id = 0;              ///< APIC_ID[31:24]
  std::uint8_t xapic_logical_id = 0;      ///< LDR[31:24]
  std::uint8_t destination_format = 0xf;  ///< DFR[31:28]: Fh flat, 0 cluster, anything else matches nothing

  [[nodiscard]] friend constexpr bool operator==(const ApicAddress& a, const ApicAddress& b) noexcept {
    return a.mode == b.mode && a.id == b.id && a.xapic_id == b.xapic_id &&
           a.xapic_logical_id == b.xapic_logical_id && a.destination_format == b.destination_format;
  }
};

/// Whether `destination` names the APIC, without regard to shorthands. Fact sheet 7.4. In a machine with
/// APICs in both modes each compares in its own way, as in the kernel (kvm_apic_match_dest): FFh is a
/// broadcast to those in xAPIC mode, FFFF_FFFFh to those in x2APIC mode. A disabled APIC hears nothing.
[[nodiscard]] constexpr bool destination_matches(const ApicAddress& address, DestinationMode mode,
                                                 std::uint32_t destination) noexcept {
  if (address.mode == ApicMode::disabled) return false;
  if (address.mode == ApicMode::x2apic) return x2apic_destination_matches(mode, destination, address.id);
  if (destination == xapic_broadcast) return true;
  if (destination > xapic_broadcast) return false;
  if (mode == DestinationMode::physical) return destination == address.xapic_id;
  const std::uint32_t logical = address.xapic_logical_id;
  if (address.destination_format == 0xf) return (destination & logical) != 0;
  if (address.destination_format != 0) return false;
  return destination >> 4 == logical >> 4 && (destination & logical & 0xfU) != 0;
}

/// Which APICs of one machine a command addresses, in index order. Whoever changes an APIC's mode, ID, LDR or
/// DFR tells the map (update()). Which one of them gets a lowest priority interrupt is decided in
/// arbitration.hpp.
class DestinationMap {
 public:
  /// The index of a sender that is no APIC (I/O APIC, MSI).
  static constexpr std::size_t no_sender = ~std::size_t{0};

  /// All in x2APIC mode. `ids` must be distinct; throws InternalError otherwise.
  explicit DestinationMap(const std::vector<std::uint32_t>& ids);
  /// The x2APIC IDs must be distinct; throws InternalError otherwise. xAPIC and logical IDs may be anything.
  [[nodiscard]] static DestinationMap of(std::vector<ApicAddress> addresses) {
    return DestinationMap(std::move(addresses), 0);
  }

  /// The APIC at `index` is addressed otherwise from now on. Its x2APIC ID never changes.
  void update(std::size_t index, const ApicAddress& address);

  [[nodiscard]] std::size_t size() const noexcept { return addresses_.size(); }
  [[nodiscard]] std::uint32_t id(std::size_t index) const { return addresses_[index].id; }
  [[nodiscard]] const ApicAddress& address(std::size_t index) const { return addresses_[index]; }
  /// Index of the APIC with the x2APIC ID `id`, or -1.
  [[nodiscard]] std::int32_t index_of(std::uint32_t id) const noexcept;

  /// Calls visit(index) for each addressed APIC, in index order; `sender` is the index of the commanding one.
  /// Returns how many there were: 0 is the sender's "send accept error" (7.8).
  /// A device's FFh reaches the APICs in x2APIC mode as well, which its 8 bits could not address otherwise
  /// (kvm_apic_mda, without KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK).
  template <typename Visit>
  std::size_t for_each_target(const IcrCommand& command, std::size_t sender, Visit&& visit) const {
    if (command.shorthand == Shorthand::self) {
      visit(sender);
      return 1;
    }
    if (command.shorthand == Shorthand::none) {
      if (all_x2apic_) {
        if (command.destination != x2apic_broadcast && !(sender == no_sender && device_broadcast(command))) {
          return visit_x2apic(command, visit);
        }
      } else if (all_xapic_ && command.destination_mode == DestinationMode::physical &&
                 command.destination < xapic_broadcast) {
        const std::int32_t target = by_xapic_id_[command.destination];
        if (target == nobody) return 0;
        if (target != several) {
          visit(static_cast<std::size_t>(target));
          return 1;
        }
      }
    }
    std::size_t count = 0;
    for (std::size_t index = 0; index < addresses_.size(); ++index) {
      if (!addressed(command, sender, index)) continue;
      visit(index);
      ++count;
    }
    return count;
  }

  /// The same as a list, for tests and reports.
  [[nodiscard]] std::vector<std::size_t> targets(const IcrCommand& command, std::size_t sender) const;

 private:
  DestinationMap(std::vector<ApicAddress> addresses, int);

  static constexpr std::int32_t nobody = -1;
  static constexpr std::int32_t several = -2;

  [[nodiscard]] static constexpr bool device_broadcast(const IcrCommand& command) noexcept {
    return command.destination == xapic_broadcast;
  }

  // Everybody is in x2APIC mode, and this is no broadcast.
  template <typename Visit>
  std::size_t visit_x2apic(const IcrCommand& command, Visit&& visit) const {
    if (command.destination_mode == DestinationMode::physical) {
      const std::int32_t target = index_of(command.destination);
      if (target < 0) return 0;
      visit(static_cast<std::size_t>(target));
      return 1;
    }
    std::size_t count = 0;
    if (ids_ascend_) {
      const std::uint32_t first_id = (command.destination >> 16) << 4;
      for (std::uint32_t members = command.destination & 0xffffU; members != 0; members &= members - 1) {
        const std::int32_t target = index_of(first_id + static_cast<std::uint32_t>(__builtin_ctz(members)));
        if (target < 0) continue;
        visit(static_cast<std::size_t>(target));
        ++count;
      }
      return count;
    }
    for (std::size_t index = 0; index < addresses_.size(); ++index) {
      if (!x2apic_destination_matches(command.destination_mode, command.destination, addresses_[index].id)) {
        continue;
      }
      visit(index);
      ++count;
    }
    return count;
  }

  [[nodiscard]] bool addressed(const IcrCommand& command, std::size_t sender,
                               std::size_t index) const noexcept {
    const ApicAddress& address = addresses_[index];
    switch (command.shorthand) {
      case Shorthand::self:
        return index == sender;
      case Shorthand::all_including_self:
        return address.mode != ApicMode::disabled;
      case Shorthand::all_excluding_self:
        return index != sender && address.mode != ApicMode::disabled;
      case Shorthand::none:
        break;
    }
    if (sender == no_sender && device_broadcast(command) && address.mode == ApicMode::x2apic) return true;
    return destination_matches(address, command.destination_mode, command.destination);
  }

  void sort_ids();
  void classify();

  std::vector<ApicAddress> addresses_;
  std::vector<std::uint32_t> by_id_;  // indices, sorted by x2APIC ID
  bool all_x2apic_ = true;
  bool all_xapic_ = false;
  bool ids_ascend_ = true;  // with the index, and below 2^20, where logical IDs repeat
  std::array<std::int32_t, 256> by_xapic_id_{};
};

}  // namespace svmsim::apic
