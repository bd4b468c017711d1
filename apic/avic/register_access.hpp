#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "apic/apic_registers.hpp"
#include "apic/avic/knobs.hpp"

namespace svmsim::apic {

/// What AVIC does with one kind of access to one register.
enum class AvicAction : std::uint8_t {
  allow,               ///< performed on the backing page
  trap,                ///< performed on the backing page, then exit 402h; rIP is after the instruction
  fault,               ///< exit 402h before the access; rIP is at the instruction
  task_priority,       ///< accelerated: the page, V_TPR and PPR change
  end_of_interrupt,    ///< accelerated for an edge-triggered vector, a trap for a level-triggered one
  interrupt_command,   ///< accelerated, or exit 401h
  self_interrupt,      ///< as an ICR write with the shorthand self
  general_protection,  ///< x2AVIC: #GP(0) in the guest
};

/// What of a processor decides about accesses under AVIC.
struct AvicProcessor {
  bool x2avic = true;                   ///< CPUID Fn8000_000A_EDX[18]
  bool ext_lvt_accelerated = false;     ///< EDX[27]: reads of the extended LVTs are allowed, writes trap
  bool extended_apic_space = true;      ///< the MSRs of 400h-570h exist
  std::uint32_t ext_lvt_registers = 8;  ///< 500h-570h; 4, 500h-530h, in APM revision 3.44
};

/// APM vol. 2, table 15-22 (fact sheet 8.3), with the access checks of x2APIC mode that come before it. One
/// for all cores of a host.
class AvicRegisters {
 public:
  explicit AvicRegisters(const AvicProcessor& processor = {}, const AvicKnobs& knobs = {});

  struct Slot {
    AvicAction read = AvicAction::allow;
    AvicAction write = AvicAction::allow;
    std::uint32_t writable = 0;  ///< x2AVIC: bits that a write may set; the ICR has its own check
  };

  /// The rule for an offset in the APIC page (xAVIC).
  [[nodiscard]] const Slot& page(std::uint32_t offset) const noexcept {
    // Bytes 4 to 15 of a slot belong to no register. Below 400h they are undefined locations.
    if ((offset & 0xcU) != 0 && offset < APIC_EFEAT) return undefined_;
    return page_[(offset & 0xfffU) >> 4];
  }
  /// The rule for an MSR of 800h-8FFh (x2AVIC).
  [[nodiscard]] const Slot& msr(std::uint32_t msr) const noexcept { return msr_[msr & 0xffU]; }

  [[nodiscard]] const AvicProcessor& processor() const noexcept { return processor_; }
  [[nodiscard]] const AvicKnobs& knobs() const noexcept { return knobs_; }

 private:
  static constexpr std::size_t slots = 256;

  AvicProcessor processor_;
  AvicKnobs knobs_;
  Slot undefined_{};
  std::array<Slot, slots> page_{};
  std::array<Slot, slots> msr_{};
};

}  // namespace svmsim::apic
