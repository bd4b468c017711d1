#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "apic/apic_registers.hpp"
#include "apic/icr.hpp"

namespace svmsim::apic {

/// The vAPIC backing page: a 4 KiB page in the layout of the APIC page, a 32-bit register every 16 bytes.
/// Fact sheet 8.1; APM vol. 2, 15.29.3. Hardware keeps TPR, PPR, IRR, ISR and TMR in it, software the rest.
/// The page is the only copy of this state: nothing about it is cached, because senders, the IOMMU and the
/// hypervisor write it too.
class alignas(64) BackingPage {
 public:
  /// The 32-bit word at a byte offset; bits 1:0 of the offset are dropped.
  [[nodiscard]] std::uint32_t read(std::uint32_t offset) const noexcept { return words_[word(offset)]; }
  void write(std::uint32_t offset, std::uint32_t value) noexcept { words_[word(offset)] = value; }

  /// Values after RESET or INIT (fact sheet 7.2; APM vol. 2, table 16-2) of an APIC with `id`, as the
  /// hypervisor prepares the page: the ID in bits 31:24 for xAPIC, in 31:0 for x2APIC, whose LDR is derived.
  void reset(std::uint32_t id, std::uint32_t version, bool x2apic) noexcept;

  [[nodiscard]] bool test_irr(std::uint8_t vector) const noexcept { return test(APIC_IRR, vector); }
  [[nodiscard]] bool test_isr(std::uint8_t vector) const noexcept { return test(APIC_ISR, vector); }
  [[nodiscard]] bool test_tmr(std::uint8_t vector) const noexcept { return test(APIC_TMR, vector); }
  void set_tmr(std::uint8_t vector, bool level) noexcept {
    if (level) {
      set(APIC_TMR, vector);
    } else {
      clear(APIC_TMR, vector);
    }
  }

  /// IRR := 1. Returns whether it was set before: two interrupts are one then.
  bool set_irr(std::uint8_t vector) noexcept {
    std::uint32_t& bits = words_[word(register_of(APIC_IRR, vector))];
    const bool merged = (bits & mask(vector)) != 0;
    bits |= mask(vector);
    return merged;
  }
  /// A sender's request of a fixed, edge-triggered interrupt: IRR := 1, TMR := 0 (8.4, step F).
  bool request(std::uint8_t vector) noexcept {
    clear(APIC_TMR, vector);
    return set_irr(vector);
  }

  /// Highest vector requested, in service; -1 if there is none.
  [[nodiscard]] int highest_irr() const noexcept { return highest(APIC_IRR, 7); }
  [[nodiscard]] int highest_isr() const noexcept { return highest(APIC_ISR, 7); }

  [[nodiscard]] std::uint8_t tpr() const noexcept { return static_cast<std::uint8_t>(read(APIC_TASKPRI)); }
  [[nodiscard]] std::uint8_t ppr() const noexcept { return static_cast<std::uint8_t>(read(APIC_PROCPRI)); }

  /// TPR := value, PPR follows.
  void set_tpr(std::uint8_t value) noexcept {
    write(APIC_TASKPRI, value);
    update_ppr();
  }
  /// PPR from TPR and the highest ISR vector (7.5).
  void update_ppr() noexcept { set_ppr(highest_isr()); }

  /// The vector that the CPU would take: the highest of the IRR if its class is above that of PPR, else -1.
  [[nodiscard]] int deliverable() const noexcept {
    const int vector = highest_irr();
    return (vector >> 4) > (ppr() >> 4) ? vector : -1;
  }
  /// Interrupt acknowledge: moves deliverable() from IRR to ISR and returns it; -1 changes nothing.
  int acknowledge() noexcept {
    const int vector = deliverable();
    if (vector < 0) return -1;
    const auto taken = static_cast<std::uint8_t>(vector);
    clear(APIC_IRR, taken);
    set(APIC_ISR, taken);
    // Its class is above that of PPR, so above TPR and everything in service.
    write(APIC_PROCPRI, taken & 0xf0U);
    return vector;
  }
  /// Clears the ISR bit of `vector`, which must be the highest in service.
  void retire(std::uint8_t vector) noexcept {
    clear(APIC_ISR, vector);
    set_ppr(highest(APIC_ISR, vector >> 5));
  }

  /// ICR high and low as one value: bits 63:32 are 310h, in both modes.
  [[nodiscard]] std::uint64_t icr() const noexcept {
    return std::uint64_t{read(APIC_ICR2)} << 32 | read(APIC_ICR);
  }
  /// DFR bits 31:28 = F: the flat model. Otherwise cluster.
  [[nodiscard]] bool flat() const noexcept { return read(APIC_DFR) >> 28 == 0xf; }

 private:
  static constexpr std::size_t word(std::uint32_t offset) noexcept { return (offset & 0xfffU) >> 2; }
  static constexpr std::uint32_t mask(std::uint8_t vector) noexcept { return 1U << (vector & 31U); }
  static constexpr std::uint32_t register_of(std::uint32_t first, std::uint8_t vector) noexcept {
    return first + 0x10U * (vector >> 5);
  }
  [[nodiscard]] bool test(std::uint32_t first, std::uint8_t vector) const noexcept {
    return (words_[word(register_of(first, vector))] & mask(vector)) != 0;
  }
  void set(std::uint32_t first, std::uint8_t vector) noexcept {
    words_[word(register_of(first, vector))] |= mask(vector);
  }
  void clear(std::uint32_t first, std::uint8_t vector) noexcept {
    words_[word(register_of(first, vector))] &= ~mask(vector);
  }
  [[nodiscard]] int highest(std::uint32_t first, int from) const noexcept {
    for (int index = from; index >= 0; --index) {
      const std::uint32_t bits = words_[word(first + 0x10U * static_cast<std::uint32_t>(index))];
      if (bits != 0) return 32 * index + 31 - __builtin_clz(bits);
    }
    return -1;
  }
  void set_ppr(int highest_isr) noexcept {
    const std::uint32_t in_service = highest_isr < 0 ? 0U : static_cast<std::uint32_t>(highest_isr);
    const std::uint32_t task = tpr();
    write(APIC_PROCPRI, task >> 4 >= in_service >> 4 ? task : in_service & 0xf0U);
  }

  std::array<std::uint32_t, 1024> words_{};
};

static_assert(sizeof(BackingPage) == 0x1000);
static_assert(std::is_standard_layout_v<BackingPage> && std::is_trivially_copyable_v<BackingPage>);

}  // namespace svmsim::apic
