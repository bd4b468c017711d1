#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "apic/avic/memory.hpp"

namespace svmsim::apic {

/// The IOMMU's 128-bit interrupt remapping table entry. Fact sheet 8.9; AMD IOMMU specification (48882), and
/// Linux' struct irte_ga. With guest_mode() an interrupt is posted to a backing page, otherwise remapped.
struct Irte {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  static constexpr std::uint64_t remap_enable_bit = 1U << 0;
  static constexpr std::uint64_t no_fault_bit = 1U << 1;     ///< SupIOPF
  static constexpr std::uint64_t ga_log_intr_bit = 1U << 2;  ///< guest mode; 4:2 are the type in remap mode
  static constexpr std::uint64_t request_eoi_bit = 1U << 5;  ///< remap mode
  static constexpr std::uint64_t is_run_bit = 1U << 6;       ///< guest mode; destination mode in remap mode
  static constexpr std::uint64_t guest_mode_bit = 1U << 7;
  static constexpr std::uint64_t low_destination_mask = 0xffff'ff00;
  static constexpr std::uint64_t backing_page_mask = 0x000f'ffff'ffff'f000;
  static constexpr unsigned high_destination_shift = 56;

  /// A valid entry in guest mode of a vCPU that no core runs.
  [[nodiscard]] static constexpr Irte posted(std::uint8_t vector, std::uint64_t backing_page,
                                             std::uint32_t ga_tag) noexcept {
    return {remap_enable_bit | guest_mode_bit | std::uint64_t{ga_tag} << 32,
            (backing_page & backing_page_mask) | vector};
  }

  [[nodiscard]] constexpr bool remap_enable() const noexcept { return (low & remap_enable_bit) != 0; }
  [[nodiscard]] constexpr bool no_fault() const noexcept { return (low & no_fault_bit) != 0; }
  [[nodiscard]] constexpr bool guest_mode() const noexcept { return (low & guest_mode_bit) != 0; }
  [[nodiscard]] constexpr bool ga_log_intr() const noexcept { return (low & ga_log_intr_bit) != 0; }
  [[nodiscard]] constexpr bool is_run() const noexcept { return (low & is_run_bit) != 0; }
  [[nodiscard]] constexpr std::uint32_t ga_tag() const noexcept {
    return static_cast<std::uint32_t>(low >> 32);
  }
  [[nodiscard]] constexpr std::uint8_t vector() const noexcept { return static_cast<std::uint8_t>(high); }
  [[nodiscard]] constexpr std::uint64_t backing_page() const noexcept { return high & backing_page_mask; }
  /// Host APIC ID: bits 23:0 in the low half, 31:24 in the high half.
  [[nodiscard]] constexpr std::uint32_t destination() const noexcept {
    return static_cast<std::uint32_t>((low & low_destination_mask) >> 8 | (high >> high_destination_shift)
                                                                              << 24);
  }
  /// Message type of remap mode.
  [[nodiscard]] constexpr std::uint8_t type() const noexcept {
    return static_cast<std::uint8_t>((low >> 2) & 7U);
  }

  constexpr void set_destination(std::uint32_t host_apic_id) noexcept {
    low = (low & ~low_destination_mask) | (std::uint64_t{host_apic_id & 0xff'ffffU} << 8);
    high = (high & ~(std::uint64_t{0xff} << high_destination_shift)) | std::uint64_t{host_apic_id >> 24}
                                                                           << high_destination_shift;
  }
  /// The vCPU runs on that core: IsRun := 1, GALogIntr := 0.
  constexpr void set_running(std::uint32_t host_apic_id) noexcept {
    set_destination(host_apic_id);
    low = (low & ~ga_log_intr_bit) | is_run_bit;
  }
  /// It does not run: IsRun := 0; `ga_log_intr` asks for a log entry and an interrupt, to wake it.
  constexpr void clear_running(bool ga_log_intr_wanted) noexcept {
    low = (low & ~(is_run_bit | ga_log_intr_bit)) | (ga_log_intr_wanted ? ga_log_intr_bit : 0);
  }
};
static_assert(sizeof(Irte) == 16 && std::is_trivially_copyable_v<Irte>);

/// An entry of the IOMMU's guest vAPIC log.
struct GaLogEntry {
  std::uint64_t raw = 0;

  static constexpr std::uint64_t type_guest_not_running = 1;

  [[nodiscard]] static constexpr GaLogEntry guest_not_running(std::uint32_t ga_tag,
                                                              std::uint16_t device_id) noexcept {
    return {type_guest_not_running << 60 | std::uint64_t{device_id} << 32 | ga_tag};
  }
  [[nodiscard]] constexpr std::uint32_t ga_tag() const noexcept { return static_cast<std::uint32_t>(raw); }
  [[nodiscard]] constexpr std::uint16_t device_id() const noexcept {
    return static_cast<std::uint16_t>(raw >> 32);
  }
  [[nodiscard]] constexpr std::uint8_t type() const noexcept { return static_cast<std::uint8_t>(raw >> 60); }
};
static_assert(sizeof(GaLogEntry) == 8);

/// The guest vAPIC log: a ring of 512 entries. The IOMMU advances the tail, software the head; one slot stays
/// free, so that a full ring is not an empty one. When the ring is full the IOMMU sets its overflow status
/// and logs nothing more until software restarts the log.
class GaLog {
 public:
  static constexpr std::uint32_t entry_count = 512;
  static constexpr std::uint32_t mmio_base = 0xe0;  ///< registers of the IOMMU, as offsets
  static constexpr std::uint32_t mmio_head = 0x2040;
  static constexpr std::uint32_t mmio_tail = 0x2048;

  /// Appends; false when the log has overflowed, now or before.
  bool append(GaLogEntry entry) noexcept;
  /// The oldest entry, for software; nothing when the log is empty.
  std::optional<GaLogEntry> take() noexcept;

  [[nodiscard]] bool overflowed() const noexcept { return overflowed_; }
  /// Software turns the log off and on again: empty, no overflow, running.
  void restart() noexcept;

  [[nodiscard]] std::uint32_t size() const noexcept { return (tail_ - head_) % entry_count; }
  /// Register values: byte offsets into the ring.
  [[nodiscard]] std::uint64_t head_register() const noexcept { return head_ * sizeof(GaLogEntry); }
  [[nodiscard]] std::uint64_t tail_register() const noexcept { return tail_ * sizeof(GaLogEntry); }

 private:
  std::array<GaLogEntry, entry_count> entries_{};
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  bool overflowed_ = false;
};

/// What became of a device's interrupt.
enum class PostOutcome : std::uint8_t {
  aborted,         ///< RemapEn = 0: no interrupt
  remapped,        ///< not guest mode: an ordinary interrupt to destination(), with vector()
  illegal_page,    ///< the backing page pointer leads nowhere: no interrupt
  illegal_vector,  ///< below 16: no interrupt
  doorbell,        ///< IRR set, the core destination() is rung
  logged,          ///< IRR set, a GA log entry written, the GA log interrupt raised
  log_overflow,    ///< IRR set, but the GA log is full: the entry is lost
  recorded,        ///< IRR set and nothing more: taken at the next VMRUN
};

struct PostResult {
  PostOutcome outcome = PostOutcome::aborted;
  bool merged = false;  ///< the IRR bit was set already
};

/// A device's fixed or arbitrated interrupt through its IRTE (fact sheet 8.9; APM vol. 2, 15.29.6.2): IRR in
/// the backing page first, then IsRun decides between a doorbell and the GA log. TMR is left alone.
[[nodiscard]] PostResult post_interrupt(const Irte& irte, std::uint16_t device_id, AvicMemory& memory,
                                        GaLog& log) noexcept;

/// The second half of post_interrupt(), for those who model the time between the two memory accesses: what
/// follows the IRR write, by the IRTE as it is then.
[[nodiscard]] PostOutcome notify_posted(const Irte& irte, std::uint16_t device_id, GaLog& log) noexcept;

}  // namespace svmsim::apic
