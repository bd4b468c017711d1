#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace svmsim::apic {

/// Offset of a register in the 4 KiB APIC page. Fact sheet 7.2; APM vol. 2, Table 16-2.
enum ApicRegister : std::uint16_t {
  APIC_ID = 0x020,
  APIC_LVR = 0x030,
  APIC_TASKPRI = 0x080,
  APIC_ARBPRI = 0x090,
  APIC_PROCPRI = 0x0a0,
  APIC_EOI = 0x0b0,
  APIC_RRR = 0x0c0,
  APIC_LDR = 0x0d0,
  APIC_DFR = 0x0e0,
  APIC_SPIV = 0x0f0,
  APIC_ISR = 0x100,  ///< eight registers, 10h apart
  APIC_TMR = 0x180,
  APIC_IRR = 0x200,
  APIC_ESR = 0x280,
  APIC_LVTCMCI = 0x2f0,
  APIC_ICR = 0x300,
  APIC_ICR2 = 0x310,
  APIC_LVTT = 0x320,
  APIC_LVTTHMR = 0x330,
  APIC_LVTPC = 0x340,
  APIC_LVT0 = 0x350,
  APIC_LVT1 = 0x360,
  APIC_LVTERR = 0x370,
  APIC_TMICT = 0x380,
  APIC_TMCCT = 0x390,
  APIC_TDCR = 0x3e0,
  APIC_SELF_IPI = 0x3f0,
  APIC_EFEAT = 0x400,
  APIC_ECTRL = 0x410,
  APIC_SEOI = 0x420,
  APIC_IER = 0x480,   ///< eight registers
  APIC_EILVT = 0x500  ///< four registers
};

constexpr std::uint32_t x2apic_msr_first = 0x800;
constexpr std::uint32_t x2apic_msr_last = 0x8ff;

constexpr bool is_x2apic_msr(std::uint32_t msr) noexcept {
  return msr >= x2apic_msr_first && msr <= x2apic_msr_last;
}
constexpr std::uint32_t x2apic_msr(std::uint32_t offset) noexcept {
  return x2apic_msr_first + (offset >> 4);
}
constexpr std::uint32_t x2apic_offset(std::uint32_t msr) noexcept {
  return (msr - x2apic_msr_first) << 4;
}

constexpr std::uint32_t msr_x2apic_eoi = x2apic_msr(APIC_EOI);
constexpr std::uint32_t msr_x2apic_icr = x2apic_msr(APIC_ICR);
constexpr std::uint32_t msr_x2apic_tpr = x2apic_msr(APIC_TASKPRI);
constexpr std::uint32_t msr_x2apic_svr = x2apic_msr(APIC_SPIV);
constexpr std::uint32_t msr_x2apic_self_ipi = x2apic_msr(APIC_SELF_IPI);

enum class Access : std::uint8_t { absent, read_only, write_only, read_write };

/// How a register is reached: the access, and the bits that a write may set. x2APIC mode raises #GP(0) for
/// any other bit, xAPIC mode drops it. The ICR of x2APIC mode is 64 bits wide and checked on its own
/// (icr.hpp).
struct RegisterRule {
  Access access = Access::absent;
  std::uint32_t writable = 0;

  [[nodiscard]] constexpr bool readable() const noexcept {
    return access == Access::read_only || access == Access::read_write;
  }
  [[nodiscard]] constexpr bool writes() const noexcept {
    return access == Access::write_only || access == Access::read_write;
  }
};

/// The rule for `offset` in x2APIC mode. `extended` says whether the AMD extended space (400h-530h) is there.
/// What a feature adds or takes away (TSC-deadline mode, directed EOI) is for LocalApic to know.
[[nodiscard]] RegisterRule x2apic_rule(std::uint32_t offset, bool extended) noexcept;
/// The rule for `offset` in the xAPIC page.
[[nodiscard]] RegisterRule xapic_rule(std::uint32_t offset, bool extended) noexcept;

/// The kernel's name of a register ("APIC_ICR"), as the kvm_apic event prints it; "" for an offset without a
/// name. Only the first of the ISR, TMR and IRR registers has one there.
[[nodiscard]] std::string_view register_name(std::uint32_t offset) noexcept;
/// The name, or the number as the kernel prints it where it has no name ("0x110").
[[nodiscard]] std::string register_text(std::uint32_t offset);
/// Offset of a register by the kernel's name; -1 when no register has it.
[[nodiscard]] std::int32_t register_by_name(std::string_view name) noexcept;

}  // namespace svmsim::apic
