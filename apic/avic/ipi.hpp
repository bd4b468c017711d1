#pragma once

#include <array>
#include <cstdint>

#include "apic/avic/backing_page.hpp"
#include "apic/avic/id_tables.hpp"
#include "apic/avic/knobs.hpp"
#include "apic/avic/memory.hpp"
#include "apic/icr.hpp"

namespace svmsim::apic {

/// Why AVIC could not complete an IPI: EXITINFO2[63:32] of exit 401h. Fact sheet 8.4; APM vol. 2, 15.29.9.1.
namespace incomplete_ipi {
inline constexpr std::uint8_t invalid_type = 0;
inline constexpr std::uint8_t target_not_running = 1;
inline constexpr std::uint8_t invalid_target = 2;
inline constexpr std::uint8_t invalid_backing_page = 3;
inline constexpr std::uint8_t invalid_vector = 4;
inline constexpr std::uint8_t unaccelerated = 5;  ///< Secure AVIC only; never reported here
inline constexpr std::uint64_t index_mask = 0xfff;
}  // namespace incomplete_ipi

/// Hears of what an IPI does, in the order in which it happens. Derive from it, add doorbell(), and hide
/// what is of interest; calls are resolved at compile time.
struct IpiSink {
  // void doorbell(std::uint32_t host_apic_id);  // the sender rings the core with that host APIC ID

  /// IRR[vector] of a target was set; `merged` when it was set already.
  void requested(std::uint32_t /*guest_id*/, std::uint8_t /*vector*/, bool /*merged*/) noexcept {}
  /// What the sender reads for the entry of a target, after requested(); erratum 1235 reads an older one.
  [[nodiscard]] PhysicalIdEntry observe(std::uint32_t /*guest_id*/, PhysicalIdEntry current) const noexcept {
    return current;
  }
};

/// The doorbells of one IPI, without allocation.
struct DoorbellList : IpiSink {
  std::array<std::uint16_t, 4096> host_apic_ids;
  std::size_t count = 0;

  // The array is written before it is read.
  DoorbellList() noexcept {}  // NOLINT(modernize-use-equals-default)
  void doorbell(std::uint32_t host_apic_id) noexcept {
    host_apic_ids[count++] = static_cast<std::uint16_t>(host_apic_id);
  }
};

/// What the sending core knows from its VMCB.
struct IpiContext {
  /// ICR bits that must be 0 in an IPI that hardware sends: message type fixed (0), trigger edge.
  static constexpr std::uint32_t message_type_and_trigger = 0x8700;

  BackingPage* own = nullptr;
  const PhysicalIdTablePage* physical = nullptr;
  const LogicalIdTable* logical = nullptr;  ///< null in x2AVIC mode
  AvicMemory* memory = nullptr;
  std::uint32_t max_index = 0;  ///< of the last entry that can name a vCPU
  bool x2avic = false;

  [[nodiscard]] PhysicalIdEntry entry(std::uint32_t index) const noexcept {
    return physical[index >> 9].entries[index & 511U];
  }
  [[nodiscard]] BackingPage* page(PhysicalIdEntry entry) const noexcept {
    return memory->backing_pages.find(entry.backing_page());
  }
};

struct IpiOutcome {
  static constexpr std::uint8_t complete = 0xff;

  std::uint8_t id = complete;  ///< of exit 401h; `complete`: no exit
  bool own_requested = false;  ///< the sender's own IRR was set and must be evaluated, with no doorbell
  std::uint32_t index = 0;     ///< of the entry that is meant, for ids 1, 2 and 3

  [[nodiscard]] bool exits() const noexcept { return id != complete; }
  [[nodiscard]] std::uint64_t exit_info_2() const noexcept {
    return std::uint64_t{id} << 32 | (index & incomplete_ipi::index_mask);
  }
};

/// The ICR flow of AVIC, fact sheet 8.4, APM vol. 2, 15.29.6.1. Built per IPI; the steps have the sheet's
/// letters. Every check of a directed IPI comes before the first IRR bit is set.
template <typename Sink>
class IpiSender {
 public:
  IpiSender(const IpiContext& context, const AvicKnobs& knobs, Sink& sink) noexcept
      : context_(context), knobs_(knobs), sink_(sink) {}

  /// `icr_low` and `icr_high` are the registers at 300h and 310h.
  IpiOutcome send(std::uint32_t icr_low, std::uint32_t icr_high) noexcept {
    constexpr std::uint32_t logical_mode = 1U << 11;
    if ((icr_low & IpiContext::message_type_and_trigger) != 0)
      return exit_with(knobs_.non_fixed_exit_id, 0);  // A
    vector_ = static_cast<std::uint8_t>(icr_low);
    if (vector_ < 16) return exit_with(incomplete_ipi::invalid_vector, 0);  // B
    const auto shorthand = static_cast<Shorthand>((icr_low >> 18) & 3U);
    if (shorthand == Shorthand::self) return send_self();  // C
    const std::uint32_t destination = context_.x2avic ? icr_high : icr_high >> 24;
    if (shorthand != Shorthand::none || is_broadcast(destination))  // D
      return broadcast(shorthand == Shorthand::all_excluding_self);
    if ((icr_low & logical_mode) == 0) return physical(destination);  // E
    if (context_.x2avic) return logical_x2avic(destination);
    return context_.own->flat() ? logical_xavic(0, LogicalIdTable::flat_entries, destination)
                                : logical_xavic(4 * (destination >> 4), 4, destination & 0xfU);
  }

 private:
  struct Target {
    std::uint32_t guest_id;
    std::uint32_t index;  // as exit 401h id 1 names it
    BackingPage* page;
  };

  static IpiOutcome exit_with(std::uint8_t id, std::uint32_t index) noexcept { return {id, false, index}; }

  [[nodiscard]] bool is_broadcast(std::uint32_t destination) const noexcept {
    if (!context_.x2avic) return destination == 0xff;
    return destination == x2apic_broadcast && knobs_.x2avic_broadcast;
  }
  [[nodiscard]] bool names_vcpu(std::uint32_t guest_id) const noexcept {
    const bool reserved = knobs_.x2avic_entry_255_reserved && guest_id == 255;
    return guest_id <= context_.max_index && !reserved && context_.entry(guest_id).valid();
  }

  IpiOutcome send_self() noexcept {
    const bool merged = context_.own->request(vector_);
    sink_.requested(own_id(), vector_, merged);
    return {IpiOutcome::complete, true, 0};
  }
  [[nodiscard]] std::uint32_t own_id() const noexcept {
    const std::uint32_t id = context_.own->read(APIC_ID);
    return context_.x2avic ? id : id >> 24;
  }

  IpiOutcome physical(std::uint32_t destination) noexcept {
    if (!names_vcpu(destination)) return exit_with(incomplete_ipi::invalid_target, destination);
    BackingPage* page = context_.page(context_.entry(destination));
    if (page == nullptr) return exit_with(incomplete_ipi::invalid_backing_page, destination);
    IpiOutcome outcome;
    deliver({destination, destination, page}, outcome);
    return outcome;
  }

  // One table entry for each bit that is set in `bits`, from entry `first` on.
  IpiOutcome logical_xavic(std::uint32_t first, std::uint32_t width, std::uint32_t bits) noexcept {
    std::array<Target, LogicalIdTable::flat_entries> targets;
    std::size_t count = 0;
    for (std::uint32_t bit = 0; bit < width; ++bit) {
      if ((bits >> bit & 1U) == 0) continue;
      const std::uint32_t index = first + bit;
      // Cluster 15 has no entries.
      if (index >= LogicalIdTable::cluster_entries) return exit_with(incomplete_ipi::invalid_target, index);
      const LogicalIdEntry entry = context_.logical->entries[index];
      if (!entry.valid()) return exit_with(incomplete_ipi::invalid_target, index);
      if (!names_vcpu(entry.guest_id())) return exit_with(incomplete_ipi::invalid_target, entry.guest_id());
      targets[count] = {entry.guest_id(), index, context_.page(context_.entry(entry.guest_id()))};
      if (targets[count].page == nullptr)
        return exit_with(incomplete_ipi::invalid_backing_page, entry.guest_id());
      ++count;
    }
    return deliver_all(targets, count);
  }

  // The APIC ID is 16 * cluster + bit (7.4): no table. The index of id 1 is undocumented here; it is the
  // physical one.
  IpiOutcome logical_x2avic(std::uint32_t destination) noexcept {
    std::array<Target, 16> targets;
    std::size_t count = 0;
    for (std::uint32_t bits = destination & 0xffffU; bits != 0; bits &= bits - 1) {
      const std::uint32_t guest_id =
          (destination >> 16) << 4 | static_cast<std::uint32_t>(__builtin_ctz(bits));
      if (!names_vcpu(guest_id)) return exit_with(incomplete_ipi::invalid_target, guest_id);
      targets[count] = {guest_id, guest_id, context_.page(context_.entry(guest_id))};
      if (targets[count].page == nullptr) return exit_with(incomplete_ipi::invalid_backing_page, guest_id);
      ++count;
    }
    return deliver_all(targets, count);
  }

  template <std::size_t size>
  IpiOutcome deliver_all(const std::array<Target, size>& targets, std::size_t count) noexcept {
    IpiOutcome outcome;
    for (std::size_t i = 0; i < count; ++i)
      deliver(targets[i], outcome);
    return outcome;
  }

  // How hardware tells its own entry is undocumented; here it is the one with its own backing page.
  IpiOutcome broadcast(bool excluding_self) noexcept {
    std::uint32_t illegal = no_index;
    for (std::uint32_t index = 0; index <= context_.max_index && illegal == no_index; ++index) {
      if (names_vcpu(index) && context_.page(context_.entry(index)) == nullptr) illegal = index;
    }
    if (illegal != no_index && !knobs_.broadcast_with_illegal_page_delivers)
      return exit_with(incomplete_ipi::invalid_backing_page, illegal);
    IpiOutcome outcome;
    for (std::uint32_t index = 0; index <= context_.max_index; ++index) {
      if (!names_vcpu(index)) continue;
      BackingPage* page = context_.page(context_.entry(index));
      if (page == nullptr || (excluding_self && page == context_.own)) continue;
      deliver({index, index, page}, outcome);
    }
    if (illegal != no_index) {
      outcome.id = incomplete_ipi::invalid_backing_page;
      outcome.index = illegal;
    }
    return outcome;
  }

  // F and G: IRR first, then IsRunning. The order is the sender's half of the protocol of 8.7.
  void deliver(const Target& target, IpiOutcome& outcome) noexcept {
    const bool merged = target.page->request(vector_);
    sink_.requested(target.guest_id, vector_, merged);
    const PhysicalIdEntry seen = sink_.observe(target.guest_id, context_.entry(target.guest_id));
    if (!seen.is_running()) {
      if (!outcome.exits() || knobs_.not_running_index == NotRunningIndex::highest)
        outcome.index = target.index;
      outcome.id = incomplete_ipi::target_not_running;
    } else if (target.page == context_.own) {
      outcome.own_requested = true;
    } else {
      sink_.doorbell(seen.host_apic_id());
    }
  }

  static constexpr std::uint32_t no_index = ~0U;

  const IpiContext& context_;
  const AvicKnobs& knobs_;
  Sink& sink_;
  std::uint8_t vector_ = 0;
};

}  // namespace svmsim::apic
