#include "apic/avic/register_access.hpp"

namespace svmsim::apic {

namespace {

using Action = AvicAction;

struct Row {
  std::uint32_t first;
  std::uint32_t last;
  Action read;
  Action write;
};

// Offsets of table 15-22. What stands nowhere below 400h is an undefined location: allowed.
constexpr std::array<Row, 19> rows{{
    {APIC_ID, APIC_ID, Action::allow, Action::trap},
    {APIC_LVR, APIC_LVR, Action::allow, Action::fault},
    {APIC_TASKPRI, APIC_TASKPRI, Action::allow, Action::task_priority},
    {APIC_ARBPRI, APIC_ARBPRI, Action::fault, Action::fault},
    {APIC_PROCPRI, APIC_PROCPRI, Action::allow, Action::fault},
    {APIC_EOI, APIC_EOI, Action::allow, Action::end_of_interrupt},
    {APIC_RRR, APIC_RRR, Action::allow, Action::trap},
    {APIC_LDR, APIC_LDR, Action::allow, Action::trap},
    {APIC_DFR, APIC_DFR, Action::allow, Action::trap},
    {APIC_SPIV, APIC_SPIV, Action::allow, Action::trap},
    {APIC_ISR, APIC_IRR + 0x70, Action::allow, Action::fault},
    {APIC_ESR, APIC_ESR, Action::allow, Action::trap},
    {APIC_ICR, APIC_ICR, Action::allow, Action::interrupt_command},
    {APIC_ICR2, APIC_ICR2, Action::allow, Action::allow},
    {APIC_LVTT, APIC_LVTERR, Action::allow, Action::trap},
    {APIC_TMICT, APIC_TMICT, Action::allow, Action::trap},
    {APIC_TMCCT, APIC_TMCCT, Action::fault, Action::fault},
    {APIC_TDCR, APIC_TDCR, Action::allow, Action::trap},
    {APIC_EFEAT, 0xff0, Action::fault, Action::fault},
}};

constexpr bool is_extended_lvt(std::uint32_t offset, const AvicProcessor& processor) noexcept {
  return offset >= APIC_EILVT && offset < APIC_EILVT + 0x10 * processor.ext_lvt_registers;
}

AvicRegisters::Slot page_slot(std::uint32_t offset, const AvicProcessor& processor) noexcept {
  AvicRegisters::Slot slot;
  for (const Row& row : rows) {
    if (offset >= row.first && offset <= row.last) {
      slot.read = row.read;
      slot.write = row.write;
    }
  }
  if (processor.ext_lvt_accelerated && is_extended_lvt(offset, processor)) {
    slot.read = Action::allow;
    slot.write = Action::trap;
  }
  return slot;
}

RegisterRule msr_rule(std::uint32_t offset, const AvicProcessor& processor) noexcept {
  // Table 15-22 gives the APR an MSR number.
  if (offset == APIC_ARBPRI) return {Access::read_only, 0};
  if (is_extended_lvt(offset, processor) && processor.extended_apic_space)
    return {Access::read_write, 0x0001'17ff};
  RegisterRule rule = x2apic_rule(offset, processor.extended_apic_space);
  if (offset >= APIC_EILVT) return {};
  // AVIC has no TSC-deadline timer: selecting that mode raises #GP(0) (7.6).
  if (offset == APIC_LVTT) rule.writable &= ~(1U << 18);
  return rule;
}

AvicRegisters::Slot msr_slot(std::uint32_t offset, const AvicProcessor& processor, const AvicKnobs& knobs) {
  const RegisterRule rule = msr_rule(offset, processor);
  AvicRegisters::Slot slot = page_slot(offset, processor);
  if (offset == APIC_SELF_IPI) slot.write = Action::self_interrupt;
  if (!rule.readable()) slot.read = Action::general_protection;
  if (!rule.writes()) {
    const bool exits_instead = rule.readable() && !knobs.x2apic_checks_before_table;
    if (!exits_instead) slot.write = Action::general_protection;
    slot.writable = 0xffff'ffff;
  } else {
    slot.writable = rule.writable;
  }
  return slot;
}

}  // namespace

AvicRegisters::AvicRegisters(const AvicProcessor& processor, const AvicKnobs& knobs)
    : processor_(processor), knobs_(knobs) {
  for (std::uint32_t index = 0; index < slots; ++index) {
    page_[index] = page_slot(index << 4, processor);
    msr_[index] = msr_slot(index << 4, processor, knobs);
  }
}

}  // namespace svmsim::apic
