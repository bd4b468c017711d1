#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "apic/icr.hpp"

namespace svmsim::apic {

/// What came of a change at an input pin, or of a retry.
enum class PinResult : std::uint8_t {
  delivered,   ///< somebody accepted the interrupt
  merged,      ///< a level interrupt waits for its EOI already, or the line of an edge was up already
  masked,      ///< an edge is lost, a level waits for the unmasking
  unaccepted,  ///< nobody accepted it: an edge is lost, a level stays pending
  lowered,     ///< the line went down, or stayed up through another source: nothing to do
};

/// An I/O APIC with 24 pins (82093AA; arch/x86/kvm/ioapic.c): redirection table, edge and level inputs,
/// remote IRR, EOI by broadcast or by its own EOI register.
///
/// It sends through a callable `bool deliver(const IcrCommand&)` that returns whether somebody accepted the
/// interrupt (route() with DestinationMap::no_sender, then LocalApic::receive()). Pins carry the logical
/// state, asserted or not; the polarity bit is stored and changes nothing, as in the kernel. Not modelled:
/// the kernel's delay after 10000 EOIs of a line that stays up, and its notifiers.
class IoApic {
 public:
  static constexpr std::size_t pin_count = 24;

  struct Options {
    std::uint8_t id = 0;
    /// 11h: KVM and the 82093AA, 20h: with the EOI register at 40h.
    std::uint8_t version = 0x11;
  };

  static constexpr std::uint32_t select_offset = 0x00;  ///< IOREGSEL
  static constexpr std::uint32_t window_offset = 0x10;  ///< IOWIN
  static constexpr std::uint32_t eoi_offset = 0x40;
  static constexpr std::uint64_t delivery_status = 1U << 12;
  static constexpr std::uint64_t active_low = 1U << 13;
  static constexpr std::uint64_t remote_irr = 1U << 14;
  static constexpr std::uint64_t level_triggered = 1U << 15;
  static constexpr std::uint64_t masked = 1U << 16;

  IoApic() : IoApic(Options{}) {}
  explicit IoApic(Options options) noexcept : options_(options) { reset(); }

  /// All pins masked; the lines stay as the devices hold them.
  void reset() noexcept;

  /// 32-bit load in the page.
  [[nodiscard]] std::uint32_t read_mmio(std::uint32_t offset) const noexcept;
  /// 32-bit store in the page. Unmasking a pin whose line is up with a level entry sends its interrupt.
  template <typename Deliver>
  void write_mmio(std::uint32_t offset, std::uint32_t value, Deliver&& deliver) {
    const Written written = store(offset, value);
    if (written.eoi) {
      end_of_interrupt(static_cast<std::uint8_t>(value), deliver);
    } else if (written.pin >= 0) {
      const auto pin = static_cast<std::size_t>(written.pin);
      if (waits(pin)) send(pin, deliver);
    }
  }

  /// A device (`source`, 0 to 31, for devices that share a pin) asserts or releases its line.
  template <typename Deliver>
  PinResult set_pin(std::size_t pin, bool asserted, Deliver&& deliver, unsigned source = 0) {
    std::uint32_t& line = lines_[pin];
    const bool before = line != 0;
    const std::uint32_t bit = 1U << (source & 31U);
    line = asserted ? line | bit : line & ~bit;
    if (!asserted) return PinResult::lowered;
    const std::uint64_t entry = table_[pin];
    const bool level = is_level(entry);
    if (level ? (entry & remote_irr) != 0 : before) return PinResult::merged;
    if ((entry & masked) != 0) return PinResult::masked;
    return send(pin, deliver) ? PinResult::delivered : PinResult::unaccepted;
  }

  /// The EOI of a level interrupt, from a local APIC or the EOI register: every level pin with that vector
  /// may interrupt again, and does so if its line is still up. Returns how many did.
  template <typename Deliver>
  unsigned end_of_interrupt(std::uint8_t vector, Deliver&& deliver) {
    unsigned again = 0;
    for (std::size_t pin = 0; pin < pin_count; ++pin) {
      std::uint64_t& entry = table_[pin];
      if (!is_level(entry) || static_cast<std::uint8_t>(entry) != vector) continue;
      entry &= ~remote_irr;
      if (waits(pin) && send(pin, deliver)) ++again;
    }
    return again;
  }

  /// A redirection entry as it reads, and as a command.
  [[nodiscard]] std::uint64_t entry(std::size_t pin) const noexcept;
  [[nodiscard]] IcrCommand command(std::size_t pin) const noexcept;
  [[nodiscard]] bool line(std::size_t pin) const noexcept { return lines_[pin] != 0; }
  /// Whether an EOI of `vector` matters here: some level pin has it.
  [[nodiscard]] bool handles(std::uint8_t vector) const noexcept;

 private:
  struct Written {
    int pin = -1;  // an entry was written
    bool eoi = false;
  };

  // NMI, SMI, INIT and ExtINT are edges, whatever the trigger bit says.
  [[nodiscard]] static constexpr bool is_level(std::uint64_t entry) noexcept {
    return (entry & level_triggered) != 0 && ((entry >> 8) & 7U) <= 1;
  }
  // A level interrupt that could be sent now.
  [[nodiscard]] bool waits(std::size_t pin) const noexcept {
    const std::uint64_t entry = table_[pin];
    return is_level(entry) && lines_[pin] != 0 && (entry & (remote_irr | masked)) == 0;
  }

  template <typename Deliver>
  bool send(std::size_t pin, Deliver&& deliver) {
    if (!deliver(command(pin))) return false;
    if (is_level(table_[pin])) table_[pin] |= remote_irr;
    return true;
  }

  [[nodiscard]] std::uint32_t read_selected() const noexcept;
  Written store(std::uint32_t offset, std::uint32_t value) noexcept;
  void store_half(std::size_t pin, bool high, std::uint32_t value) noexcept;

  Options options_;
  std::uint32_t select_ = 0;
  std::uint8_t id_ = 0;
  std::array<std::uint64_t, pin_count> table_{};
  std::array<std::uint32_t, pin_count> lines_{};  // one bit per source
};

}  // namespace svmsim::apic
