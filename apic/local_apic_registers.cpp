// The registers as software sees them: MSRs, the APIC page, and what a write does.

#include "apic/local_apic.hpp"
#include "apic/lvt.hpp"

namespace svmsim::apic {

namespace {

constexpr RegisterWrite fault{WriteEffect::general_protection, {}, {}};
constexpr std::uint32_t remote_read_status = 3U << 16;
constexpr std::uint32_t remote_read_in_progress = 1U << 16;
constexpr std::uint32_t remote_read_valid = 2U << 16;

constexpr bool within(std::uint32_t offset, std::uint32_t first) noexcept {
  return offset >= first && offset < first + 0x80;
}

}  // namespace

RegisterRule LocalApic::rule(std::uint32_t offset) const noexcept {
  RegisterRule rule = mode_ == ApicMode::x2apic ? x2apic_rule(offset, options_.extended)
                                                : xapic_rule(offset, options_.extended);
  if (offset == APIC_SPIV && options_.directed_eoi) rule.writable |= svr_suppress_eoi_broadcast;
  if (offset == APIC_LVTT && !options_.tsc_deadline) rule.writable &= ~(1U << 18);
  return rule;
}

std::uint32_t LocalApic::read_register(std::uint32_t offset, std::uint64_t now_cycles) const noexcept {
  const std::size_t index = (offset >> 4) & 7U;
  switch (offset) {
    case APIC_ID:
      return mode_ == ApicMode::x2apic ? id_ : std::uint32_t{xapic_id_} << 24;
    case APIC_LVR:
      return (options_.version & 0x7effffffU) | (options_.extended ? 1U << 31 : 0U) |
             (options_.directed_eoi ? 1U << 24 : 0U);
    case APIC_TASKPRI:
      return tpr_;
    case APIC_ARBPRI:
      return apr();
    case APIC_PROCPRI:
      return ppr_;
    case APIC_LDR:
      return logical_id();
    case APIC_DFR:
      return std::uint32_t{destination_format_} << 28 | 0x0fffffffU;
    case APIC_SPIV:
      return svr_;
    case APIC_ICR:
      return static_cast<std::uint32_t>(icr_);
    case APIC_ICR2:
      return static_cast<std::uint32_t>(icr_ >> 32) & 0xff000000U;
    case APIC_TMICT:
      return timer_.initial_count();
    case APIC_TMCCT:
      return timer_.current_count(now_cycles);
    default:
      break;
  }
  if (within(offset, APIC_ISR)) return isr().word32(index);
  if (within(offset, APIC_TMR)) return tmr_.word32(index);
  if (within(offset, APIC_IRR)) return irr().word32(index);
  if (within(offset, APIC_IER)) return ier_.word32(index);
  return stored(offset);
}

RegisterRead LocalApic::read_msr(std::uint32_t msr, std::uint64_t now_cycles) const noexcept {
  constexpr RegisterRead refused{true, 0};
  if (mode_ != ApicMode::x2apic || !is_x2apic_msr(msr)) return refused;
  const std::uint32_t offset = x2apic_offset(msr);
  if (!rule(offset).readable()) return refused;
  if (offset == APIC_ICR) return {false, icr_};
  return {false, read_register(offset, now_cycles)};
}

RegisterWrite LocalApic::write_other(std::uint32_t msr, std::uint64_t value,
                                     std::uint64_t now_cycles) noexcept {
  if (mode_ != ApicMode::x2apic || !is_x2apic_msr(msr)) return fault;
  const std::uint32_t offset = x2apic_offset(msr);
  const RegisterRule allowed = rule(offset);
  if (!allowed.writes() || (value & ~std::uint64_t{allowed.writable}) != 0) return fault;
  return write_register(offset, static_cast<std::uint32_t>(value), now_cycles);
}

RegisterRead LocalApic::read_mmio(std::uint32_t offset, std::uint64_t now_cycles, unsigned bytes) noexcept {
  const std::uint64_t mask = bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes) - 1;
  if (mode_ != ApicMode::xapic) return {false, mask};
  const std::uint32_t first_byte = offset & 0xfU;
  if (first_byte + bytes > 4) return {false, 0};
  const std::uint32_t aligned = offset & ~0xfU;
  const RegisterRule allowed = rule(aligned);
  if (allowed.access == Access::absent) {
    note_error(esr_illegal_register);
    return {false, 0};
  }
  if (!allowed.readable()) return {false, 0};
  return {false, (read_register(aligned, now_cycles) >> 8 * first_byte) & mask};
}

RegisterWrite LocalApic::write_mmio(std::uint32_t offset, std::uint32_t value, std::uint64_t now_cycles,
                                    unsigned bytes) noexcept {
  if (mode_ != ApicMode::xapic || bytes != 4 || (offset & 0xfU) != 0) return {};
  const RegisterRule allowed = rule(offset);
  if (allowed.access == Access::absent) note_error(esr_illegal_register);
  if (!allowed.writes()) return {};
  return write_register(offset, value & allowed.writable, now_cycles);
}

// The hot one: its own checks, so that a fixed command passes two.
RegisterWrite LocalApic::write_icr(std::uint64_t value) noexcept {
  if ((value & x2apic_icr_reserved) != 0) return fault;
  icr_ = value;
  const IcrCommand command = IcrCommand::from_x2apic(value);
  if (command.delivery == DeliveryMode::fixed && command.vector >= 16) return {WriteEffect::ipi, command, {}};
  if (!x2apic_delivery_defined(command.delivery)) return {WriteEffect::ipi_refused, command, {}};
  return command_written(command);
}

RegisterWrite LocalApic::command_written(const IcrCommand& command) noexcept {
  if (command.carries_vector() && command.vector < 16) {
    note_error(esr_send_illegal_vector);
    return {WriteEffect::ipi_refused, command, {}};
  }
  return {command.init_deassert() ? WriteEffect::ipi_refused : WriteEffect::ipi, command, {}};
}

// `value` has passed the rules of the mode.
RegisterWrite LocalApic::write_register(std::uint32_t offset, std::uint32_t value,
                                        std::uint64_t now_cycles) noexcept {
  RegisterWrite write;
  switch (offset) {
    case APIC_EOI:
      return {WriteEffect::eoi, {}, eoi()};
    case APIC_SEOI:
      return {WriteEffect::eoi, {}, specific_eoi(static_cast<std::uint8_t>(value))};
    case APIC_TASKPRI:
      set_tpr(static_cast<std::uint8_t>(value));
      return {WriteEffect::priority, {}, {}};
    case APIC_ICR: {
      const auto high = static_cast<std::uint32_t>(icr_ >> 32);
      const IcrCommand command = IcrCommand::from_xapic(value, high);
      const std::uint32_t status =
          command.delivery == DeliveryMode::remote_read ? remote_read_in_progress : 0U;
      icr_ = std::uint64_t{high} << 32 | value | status;
      return command_written(command);
    }
    case APIC_ICR2:
      icr_ = std::uint64_t{value} << 32 | static_cast<std::uint32_t>(icr_);
      return write;
    case APIC_SELF_IPI: {
      IcrCommand command;
      command.vector = static_cast<std::uint8_t>(value);
      command.shorthand = Shorthand::self;
      return command_written(command);
    }
    case APIC_ID:
      xapic_id_ = static_cast<std::uint8_t>(value >> 24);
      write.changed = changed::addressing;
      return write;
    case APIC_LDR:
      xapic_logical_id_ = static_cast<std::uint8_t>(value >> 24);
      write.changed = changed::addressing;
      return write;
    case APIC_DFR:
      destination_format_ = static_cast<std::uint8_t>(value >> 28);
      write.changed = changed::addressing;
      return write;
    case APIC_SPIV: {
      settle_timer(now_cycles);
      const bool before = software_enabled();
      write_svr(value);
      if (software_enabled() != before) write.changed = changed::enabling;
      return write;
    }
    case APIC_ESR:
      // The write shows what has accumulated since the last one.
      stored(APIC_ESR) = error_pending_;
      error_pending_ = 0;
      return write;
    case APIC_TMICT:
      settle_timer(now_cycles);
      timer_.set_initial_count(value, now_cycles);
      write.changed = changed::timer;
      return write;
    case APIC_TDCR:
      settle_timer(now_cycles);
      stored(APIC_TDCR) = value;
      timer_.set_divider(timer_divider(value), now_cycles);
      write.changed = changed::timer;
      return write;
    case APIC_ECTRL:
      stored(APIC_ECTRL) = value;
      enabling_changed();
      write.changed = changed::pending;
      return write;
    default:
      break;
  }
  if (lvt::is_entry(offset)) return write_lvt(offset, value, now_cycles);
  if (within(offset, APIC_IER)) {
    ier_.set_word32((offset >> 4) & 7U, value);
    enabling_changed();
    write.changed = changed::pending;
  }
  return write;
}

void LocalApic::write_svr(std::uint32_t value) noexcept {
  svr_ = value;
  if (!software_enabled())
    lvt::for_each_offset([this](std::uint32_t offset) { stored(offset) |= lvt_masked; });
  enabling_changed();
}

RegisterWrite LocalApic::write_lvt(std::uint32_t offset, std::uint32_t value,
                                   std::uint64_t now_cycles) noexcept {
  if (offset == APIC_LVTT) settle_timer(now_cycles);
  std::uint32_t& entry = stored(offset);
  // Linux and others expect an entry that becomes an edge to forget its remote IRR, as in the I/O APIC.
  const std::uint32_t kept = (value & lvt::level_triggered) != 0 ? entry & lvt::status_bits : 0U;
  entry = (value & ~lvt::status_bits) | kept;
  if (!software_enabled()) entry |= lvt_masked;
  RegisterWrite write;
  if (offset == APIC_LVTT) {
    timer_.set_mode(lvt::timer_mode(entry), now_cycles);
    write.changed = changed::timer;
  }
  for (std::size_t pin = 0; pin < lint_asserted_.size(); ++pin) {
    if (offset != lvt::lint_offset(pin) || !lint_asserted_[pin] || !lvt::level_sensitive(entry)) continue;
    raise_level_lint(pin);
    write.changed = changed::pending;
  }
  return write;
}

RegisterRead LocalApic::remote_read(std::uint8_t vector, std::uint64_t now_cycles) const noexcept {
  const std::uint32_t offset = std::uint32_t{vector} << 4;
  if (!hardware_enabled() || !rule(offset).readable()) return {true, 0};
  return {false, read_register(offset, now_cycles)};
}

void LocalApic::complete_remote_read(bool valid, std::uint32_t value) noexcept {
  icr_ = (icr_ & ~std::uint64_t{remote_read_status}) | (valid ? remote_read_valid : 0U);
  if (valid) stored(APIC_RRR) = value;
}

}  // namespace svmsim::apic
