#include "apic/apic_registers.hpp"

#include <fmt/format.h>

#include "apic/icr.hpp"

namespace svmsim::apic {

namespace {

struct NamedRegister {
  std::uint16_t offset;
  std::string_view name;
};

// The registers that the kernel's trace symbols know (arch/x86/kvm/trace.h).
constexpr std::array<NamedRegister, 28> named_registers{{
    {APIC_ID, "APIC_ID"},         {APIC_LVR, "APIC_LVR"},           {APIC_TASKPRI, "APIC_TASKPRI"},
    {APIC_ARBPRI, "APIC_ARBPRI"}, {APIC_PROCPRI, "APIC_PROCPRI"},   {APIC_EOI, "APIC_EOI"},
    {APIC_RRR, "APIC_RRR"},       {APIC_LDR, "APIC_LDR"},           {APIC_DFR, "APIC_DFR"},
    {APIC_SPIV, "APIC_SPIV"},     {APIC_ISR, "APIC_ISR"},           {APIC_TMR, "APIC_TMR"},
    {APIC_IRR, "APIC_IRR"},       {APIC_ESR, "APIC_ESR"},           {APIC_ICR, "APIC_ICR"},
    {APIC_ICR2, "APIC_ICR2"},     {APIC_LVTT, "APIC_LVTT"},         {APIC_LVTTHMR, "APIC_LVTTHMR"},
    {APIC_LVTPC, "APIC_LVTPC"},   {APIC_LVT0, "APIC_LVT0"},         {APIC_LVT1, "APIC_LVT1"},
    {APIC_LVTERR, "APIC_LVTERR"}, {APIC_TMICT, "APIC_TMICT"},       {APIC_TMCCT, "APIC_TMCCT"},
    {APIC_TDCR, "APIC_TDCR"},     {APIC_SELF_IPI, "APIC_SELF_IPI"}, {APIC_EFEAT, "APIC_EFEAT"},
    {APIC_ECTRL, "APIC_ECTRL"},
}};

constexpr bool in_range(std::uint32_t offset, std::uint32_t first, std::uint32_t count) noexcept {
  return offset >= first && offset < first + 0x10 * count;
}

RegisterRule extended_rule(std::uint32_t offset) noexcept {
  if (in_range(offset, APIC_IER, 8)) return {Access::read_write, 0xffffffffU};
  if (in_range(offset, APIC_EILVT, 4)) return {Access::read_write, 0x000117ffU};
  switch (offset) {
    case APIC_EFEAT:
      return {Access::read_only, 0};
    case APIC_ECTRL:
      return {Access::read_write, 0x3};
    case APIC_SEOI:
      return {Access::write_only, 0xff};
    default:
      return {};
  }
}

}  // namespace

RegisterRule x2apic_rule(std::uint32_t offset, bool extended) noexcept {
  if ((offset & 0xfU) != 0) return {};
  if (in_range(offset, APIC_ISR, 8) || in_range(offset, APIC_TMR, 8) || in_range(offset, APIC_IRR, 8)) {
    return {Access::read_only, 0};
  }
  if (offset >= APIC_EFEAT) return extended ? extended_rule(offset) : RegisterRule{};
  switch (offset) {
    case APIC_ID:
    case APIC_LVR:
    case APIC_PROCPRI:
    case APIC_LDR:
    case APIC_TMCCT:
      return {Access::read_only, 0};
    case APIC_TASKPRI:
      return {Access::read_write, 0xff};
    case APIC_EOI:
      return {Access::write_only, 0};
    case APIC_SPIV:
      return {Access::read_write, 0x3ff};
    case APIC_ESR:
      return {Access::read_write, 0};
    case APIC_ICR:
      return {Access::read_write, 0xffffffffU};
    // Fact sheet 7.7. Status bits are in the masks: a write may set them, and does not change them.
    case APIC_LVTT:
      return {Access::read_write, 0x000710ffU};
    case APIC_LVTTHMR:
    case APIC_LVTPC:
      return {Access::read_write, 0x000117ffU};
    case APIC_LVT0:
    case APIC_LVT1:
      return {Access::read_write, 0x0001f7ffU};
    case APIC_LVTERR:
      return {Access::read_write, 0x000110ffU};
    case APIC_TMICT:
      return {Access::read_write, 0xffffffffU};
    case APIC_TDCR:
      return {Access::read_write, 0xb};
    case APIC_SELF_IPI:
      return {Access::write_only, 0xff};
    default:
      return {};
  }
}

RegisterRule xapic_rule(std::uint32_t offset, bool extended) noexcept {
  switch (offset) {
    case APIC_ID:
    case APIC_LDR:
    case APIC_ICR2:
      return {Access::read_write, 0xff000000U};
    case APIC_DFR:
      return {Access::read_write, 0xf0000000U};
    case APIC_ARBPRI:
    case APIC_RRR:
      return {Access::read_only, 0};
    case APIC_EOI:
      return {Access::write_only, 0xffffffffU};
    case APIC_ESR:
      return {Access::read_write, 0xffffffffU};
    case APIC_ICR:
      return {Access::read_write, xapic_icr_writable};
    case APIC_SELF_IPI:
      return {};
    default:
      return x2apic_rule(offset, extended);
  }
}

std::string_view register_name(std::uint32_t offset) noexcept {
  for (const NamedRegister& entry : named_registers) {
    if (entry.offset == offset) return entry.name;
  }
  return {};
}

std::string register_text(std::uint32_t offset) {
  const std::string_view name = register_name(offset);
  return name.empty() ? fmt::format("0x{:x}", offset) : std::string{name};
}

std::int32_t register_by_name(std::string_view name) noexcept {
  for (const NamedRegister& entry : named_registers) {
    if (entry.name == name) return entry.offset;
  }
  return -1;
}

}  // namespace svmsim::apic
