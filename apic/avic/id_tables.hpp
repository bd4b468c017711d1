#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace svmsim::apic {

/// Entry of the physical APIC ID table. Fact sheet 8.1; APM vol. 2, table 15-23.
struct PhysicalIdEntry {
  std::uint64_t raw = 0;

  static constexpr std::uint64_t host_apic_id_mask = 0xfff;
  static constexpr std::uint64_t backing_page_mask = 0x000f'ffff'ffff'f000;
  /// Linux keeps this flag in its own copy of an entry and never writes it to the table; hardware ignores it.
  static constexpr std::uint64_t ga_log_intr_bit = std::uint64_t{1} << 61;
  static constexpr std::uint64_t is_running_bit = std::uint64_t{1} << 62;
  static constexpr std::uint64_t valid_bit = std::uint64_t{1} << 63;
  /// Bits 61:52 should be zero.
  static constexpr std::uint64_t reserved_mask = 0x3ff0'0000'0000'0000;

  /// A valid entry of a vCPU that no core runs.
  [[nodiscard]] static constexpr PhysicalIdEntry make(std::uint64_t backing_page) noexcept {
    return {valid_bit | (backing_page & backing_page_mask)};
  }

  [[nodiscard]] constexpr bool valid() const noexcept { return (raw & valid_bit) != 0; }
  [[nodiscard]] constexpr bool is_running() const noexcept { return (raw & is_running_bit) != 0; }
  [[nodiscard]] constexpr std::uint64_t backing_page() const noexcept { return raw & backing_page_mask; }
  /// Meaningful only with is_running().
  [[nodiscard]] constexpr std::uint32_t host_apic_id() const noexcept {
    return static_cast<std::uint32_t>(raw & host_apic_id_mask);
  }

  [[nodiscard]] constexpr PhysicalIdEntry running_on(std::uint32_t host_apic_id) const noexcept {
    return {(raw & ~host_apic_id_mask) | (host_apic_id & host_apic_id_mask) | is_running_bit};
  }
  /// Only IsRunning changes: KVM leaves the last host APIC ID behind.
  [[nodiscard]] constexpr PhysicalIdEntry not_running() const noexcept { return {raw & ~is_running_bit}; }
};

/// One page of the physical APIC ID table, indexed by guest physical APIC ID. xAVIC uses entries 0-254 of
/// it; x2AVIC up to 512, and with x2AVIC_EXT up to eight consecutive pages.
struct alignas(64) PhysicalIdTablePage {
  static constexpr std::size_t entry_count = 512;
  std::array<PhysicalIdEntry, entry_count> entries{};
};

/// Entry of the logical APIC ID table, which only xAVIC uses.
struct LogicalIdEntry {
  std::uint32_t raw = 0;

  static constexpr std::uint32_t guest_id_mask = 0xff;
  static constexpr std::uint32_t valid_bit = 1U << 31;

  [[nodiscard]] static constexpr LogicalIdEntry make(std::uint32_t guest_id) noexcept {
    return {valid_bit | (guest_id & guest_id_mask)};
  }
  [[nodiscard]] constexpr bool valid() const noexcept { return (raw & valid_bit) != 0; }
  [[nodiscard]] constexpr std::uint32_t guest_id() const noexcept { return raw & guest_id_mask; }
};

/// The logical APIC ID table of a VM. In the flat model entry n is logical ID bit n; in the cluster model an
/// entry stands at byte 16 * cluster + 4 * bit, clusters 0 to 14.
struct alignas(64) LogicalIdTable {
  static constexpr std::size_t flat_entries = 8;
  static constexpr std::size_t cluster_entries = 60;
  std::array<LogicalIdEntry, 1024> entries{};

  [[nodiscard]] static constexpr std::uint32_t cluster_index(std::uint32_t cluster,
                                                             std::uint32_t bit) noexcept {
    return 4 * cluster + bit;
  }
};

static_assert(sizeof(PhysicalIdEntry) == 8 && sizeof(LogicalIdEntry) == 4);
static_assert(sizeof(PhysicalIdTablePage) == 0x1000 && sizeof(LogicalIdTable) == 0x1000);
static_assert(std::is_standard_layout_v<PhysicalIdTablePage> &&
              std::is_trivially_copyable_v<PhysicalIdTablePage>);
static_assert(std::is_standard_layout_v<LogicalIdTable> && std::is_trivially_copyable_v<LogicalIdTable>);
static_assert(4 * LogicalIdTable::cluster_index(1, 0) == 16);

/// Index of the last entry in xAVIC mode: 255 stands for broadcast and cannot name a vCPU.
inline constexpr std::uint32_t xavic_last_index = 254;

/// Greatest AVIC_PHYSICAL_MAX_INDEX that VMRUN accepts (fact sheet 3.2 and 8.1; APM vol. 2, 15.29.4.3).
[[nodiscard]] constexpr std::uint32_t avic_max_index_limit(bool x2avic, bool x2avic_ext) noexcept {
  if (!x2avic) return 255;
  return x2avic_ext ? 4095 : 511;
}
/// Pages of the physical APIC ID table: one in xAVIC mode, MAX_INDEX[11:9] + 1 in x2AVIC mode.
[[nodiscard]] constexpr std::size_t physical_table_pages(std::uint32_t max_index, bool x2avic) noexcept {
  return x2avic ? (max_index >> 9) + std::size_t{1} : 1;
}

}  // namespace svmsim::apic
