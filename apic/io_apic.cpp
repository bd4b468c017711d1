#include "apic/io_apic.hpp"

namespace svmsim::apic {

namespace {

constexpr std::uint32_t register_id = 0;
constexpr std::uint32_t register_version = 1;
constexpr std::uint32_t register_arbitration = 2;
constexpr std::uint32_t register_table = 0x10;
constexpr std::uint8_t version_with_eoi = 0x20;

}  // namespace

void IoApic::reset() noexcept {
  select_ = 0;
  id_ = options_.id & 0xfU;
  table_.fill(masked);
}

std::uint32_t IoApic::read_mmio(std::uint32_t offset) const noexcept {
  if (offset == select_offset) return select_;
  return offset == window_offset ? read_selected() : 0;
}

std::uint32_t IoApic::read_selected() const noexcept {
  switch (select_) {
    case register_id:
    case register_arbitration:
      return std::uint32_t{id_} << 24;
    case register_version:
      return static_cast<std::uint32_t>(pin_count - 1) << 16 | options_.version;
    default:
      break;
  }
  if (select_ < register_table || select_ >= register_table + 2 * pin_count) return 0;
  const std::uint64_t value = entry((select_ - register_table) >> 1);
  return static_cast<std::uint32_t>((select_ & 1U) != 0 ? value >> 32 : value);
}

IoApic::Written IoApic::store(std::uint32_t offset, std::uint32_t value) noexcept {
  if (offset == select_offset) {
    select_ = value & 0xffU;
    return {};
  }
  if (offset == eoi_offset) return {-1, options_.version >= version_with_eoi};
  if (offset != window_offset) return {};
  if (select_ == register_id) id_ = static_cast<std::uint8_t>(value >> 24 & 0xfU);
  if (select_ < register_table || select_ >= register_table + 2 * pin_count) return {};
  const std::size_t pin = (select_ - register_table) >> 1;
  store_half(pin, (select_ & 1U) != 0, value);
  return {static_cast<int>(pin), false};
}

void IoApic::store_half(std::size_t pin, bool high, std::uint32_t value) noexcept {
  constexpr std::uint64_t writable_low = 0x1afff;
  std::uint64_t& entry = table_[pin];
  if (high) {
    entry = (entry & 0xffffffffU) | std::uint64_t{value & 0xff000000U} << 32;
    return;
  }
  entry = (entry & ~writable_low) | (value & writable_low);
  // Linux and Xen clear the remote IRR of an I/O APIC without EOI register by making the entry an edge.
  if ((entry & level_triggered) == 0) entry &= ~remote_irr;
}

std::uint64_t IoApic::entry(std::size_t pin) const noexcept {
  return table_[pin] | (waits(pin) ? delivery_status : 0U);
}

IcrCommand IoApic::command(std::size_t pin) const noexcept {
  const std::uint64_t entry = table_[pin];
  IcrCommand command = IcrCommand::from_xapic(static_cast<std::uint32_t>(entry & 0xfffU),
                                              static_cast<std::uint32_t>(entry >> 32));
  command.assert = true;
  command.level_triggered = is_level(entry);
  return command;
}

bool IoApic::handles(std::uint8_t vector) const noexcept {
  for (const std::uint64_t entry : table_)
    if (is_level(entry) && static_cast<std::uint8_t>(entry) == vector) return true;
  return false;
}

}  // namespace svmsim::apic
