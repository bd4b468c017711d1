#include "apic/local_apic.hpp"

namespace svmsim::apic {

namespace {

constexpr bool is_lvt(std::uint32_t offset) noexcept {
  return (offset >= APIC_LVTT && offset <= APIC_LVTERR) ||
         (offset >= APIC_EILVT && offset < APIC_EILVT + 0x40);
}

// Delivery status and remote IRR belong to the APIC, not to software.
constexpr std::uint32_t lvt_status_bits = 1U << 12 | 1U << 14;

}  // namespace

LocalApic::LocalApic(std::uint32_t id, LocalApicOptions options) : id_(id), options_(options) {
  reset();
}

void LocalApic::reset() noexcept {
  irr_ = isr_ = tmr_ = VectorSet{};
  tpr_ = ppr_ = 0;
  svr_ = 0xff;
  icr_ = 0;
  error_pending_ = 0;
  stored_.fill(0);
  for (std::uint32_t offset = APIC_LVTT; offset <= APIC_LVTERR; offset += 0x10)
    stored(offset) = lvt_masked;
  stored(APIC_EFEAT) = 0x00040007;
  for (std::uint32_t i = 0; i < 8; ++i)
    stored(APIC_IER + 0x10 * i) = 0xffffffffU;
  for (std::uint32_t i = 0; i < 4; ++i)
    stored(APIC_EILVT + 0x10 * i) = lvt_masked;
}

RegisterRead LocalApic::read_msr(std::uint32_t msr) const noexcept {
  constexpr RegisterRead fault{true, 0};
  if (!is_x2apic_msr(msr)) return fault;
  const std::uint32_t offset = x2apic_offset(msr);
  if (!x2apic_rule(offset, options_.extended).readable()) return fault;
  const std::size_t index = (offset >> 4) & 7U;
  switch (offset) {
    case APIC_ID:
      return {false, id_};
    case APIC_LVR:
      return {false, (options_.version & 0x7fffffffU) | (options_.extended ? 1U << 31 : 0U)};
    case APIC_TASKPRI:
      return {false, tpr_};
    case APIC_PROCPRI:
      return {false, ppr_};
    case APIC_LDR:
      return {false, logical_id()};
    case APIC_SPIV:
      return {false, svr_};
    case APIC_ICR:
      return {false, icr_};
    default:
      break;
  }
  if (offset >= APIC_ISR && offset < APIC_TMR) return {false, isr_.word32(index)};
  if (offset >= APIC_TMR && offset < APIC_IRR) return {false, tmr_.word32(index)};
  if (offset >= APIC_IRR && offset < APIC_ESR) return {false, irr_.word32(index)};
  return {false, stored_[offset >> 4]};
}

RegisterWrite LocalApic::write_other(std::uint32_t msr, std::uint64_t value) noexcept {
  constexpr RegisterWrite fault{WriteEffect::general_protection, {}, {}};
  if (!is_x2apic_msr(msr)) return fault;
  const std::uint32_t offset = x2apic_offset(msr);
  const RegisterRule rule = x2apic_rule(offset, options_.extended);
  if (!rule.writes() || (value & ~std::uint64_t{rule.writable}) != 0) return fault;
  const auto low = static_cast<std::uint32_t>(value);
  switch (offset) {
    case APIC_EOI:
      return {WriteEffect::eoi, {}, eoi()};
    case APIC_TASKPRI:
      set_tpr(static_cast<std::uint8_t>(low));
      return {WriteEffect::priority, {}, {}};
    case APIC_SELF_IPI: {
      IcrCommand command;
      command.vector = static_cast<std::uint8_t>(low);
      command.shorthand = Shorthand::self;
      if (command.vector < 16) {
        error_pending_ |= esr_send_illegal_vector;
        return {WriteEffect::ipi_refused, command, {}};
      }
      return {WriteEffect::ipi, command, {}};
    }
    default:
      write_stored(offset, low);
      return {};
  }
}

RegisterWrite LocalApic::write_icr(std::uint64_t value) noexcept {
  if ((value & x2apic_icr_reserved) != 0) return {WriteEffect::general_protection, {}, {}};
  icr_ = value;
  const IcrCommand command = IcrCommand::from_x2apic(value);
  if (command.delivery == DeliveryMode::fixed && command.vector < 16) {
    error_pending_ |= esr_send_illegal_vector;
    return {WriteEffect::ipi_refused, command, {}};
  }
  if (!x2apic_delivery_defined(command.delivery) || command.init_deassert()) {
    return {WriteEffect::ipi_refused, command, {}};
  }
  return {WriteEffect::ipi, command, {}};
}

void LocalApic::write_stored(std::uint32_t offset, std::uint32_t value) noexcept {
  if (offset == APIC_SPIV) {
    svr_ = value;
    if (!software_enabled()) {
      for (std::uint32_t lvt = APIC_LVTT; lvt <= APIC_LVTERR; lvt += 0x10)
        stored(lvt) |= lvt_masked;
    }
    return;
  }
  if (offset == APIC_ESR) {
    // The write shows what has accumulated since the last one.
    stored(APIC_ESR) = error_pending_;
    error_pending_ = 0;
    return;
  }
  if (is_lvt(offset)) {
    value = (value & ~lvt_status_bits) | (stored(offset) & lvt_status_bits);
    if (!software_enabled()) value |= lvt_masked;
  }
  if (offset == APIC_SEOI) return;
  stored(offset) = value;
}

}  // namespace svmsim::apic
