#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apic/avic/backing_page.hpp"
#include "apic/avic/id_tables.hpp"

namespace svmsim::apic {

/// Consecutive 4 KiB pages of one kind in host physical memory.
template <typename Page>
class PageRange {
 public:
  PageRange(std::uint64_t base, std::size_t count) : base_(base), pages_(count) {}

  [[nodiscard]] std::size_t size() const noexcept { return pages_.size(); }
  [[nodiscard]] std::uint64_t address(std::size_t index) const noexcept { return base_ + index * 0x1000; }
  [[nodiscard]] std::uint64_t end() const noexcept { return address(size()); }
  [[nodiscard]] Page& operator[](std::size_t index) noexcept { return pages_[index]; }
  [[nodiscard]] const Page& operator[](std::size_t index) const noexcept { return pages_[index]; }

  /// The page at a host physical address, whose bits 11:0 are dropped, or null.
  [[nodiscard]] Page* find(std::uint64_t address) noexcept {
    const std::uint64_t index = (address - base_) >> 12;
    return index < pages_.size() ? &pages_[index] : nullptr;
  }
  /// How many pages follow `address`, its own included.
  [[nodiscard]] std::size_t from(std::uint64_t address) const noexcept {
    const std::uint64_t index = (address - base_) >> 12;
    return index < pages_.size() ? pages_.size() - index : 0;
  }

 private:
  std::uint64_t base_;
  std::vector<Page> pages_;
};

/// The part of host physical memory that AVIC and the IOMMU reach through pointers: backing pages, physical
/// and logical APIC ID tables. A pointer to anything else is what hardware calls an illegal one. One for a
/// VM, or one for a machine with all its VMs.
class AvicMemory {
 public:
  struct Size {
    std::size_t backing_pages = 0;
    std::size_t physical_table_pages = 1;
    std::size_t logical_tables = 1;
  };

  /// `base` must be 4 KiB aligned. Backing pages come first, then the tables.
  explicit AvicMemory(Size size, std::uint64_t base = 0x1'0000'0000)
      : backing_pages(base, size.backing_pages),
        physical_tables(backing_pages.end(), size.physical_table_pages),
        logical_tables(physical_tables.end(), size.logical_tables) {}

  PageRange<BackingPage> backing_pages;
  PageRange<PhysicalIdTablePage> physical_tables;
  PageRange<LogicalIdTable> logical_tables;
};

}  // namespace svmsim::apic
