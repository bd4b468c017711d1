// Acceptance beyond the common case, errors, local vector table, modes and reset. The registers as software
// sees them are in local_apic_registers.cpp.

#include "apic/local_apic.hpp"

#include "apic/lvt.hpp"

namespace svmsim::apic {

namespace {

constexpr std::uint64_t default_base = 0xfee00000;

constexpr Reception reception_of(Acceptance acceptance) noexcept {
  switch (acceptance) {
    case Acceptance::accepted:
      return Reception::accepted;
    case Acceptance::merged:
      return Reception::merged;
    case Acceptance::illegal_vector:
      return Reception::illegal_vector;
    case Acceptance::disabled:
      break;
  }
  return Reception::disabled;
}

}  // namespace

LocalApic::LocalApic(std::uint32_t id, LocalApicOptions options)
    : id_(id), options_(options), timer_(options.timer_clock, options.minimum_timer_period_cycles) {
  reset();
}

void LocalApic::reset() noexcept {
  mode_ = options_.initial_mode;
  base_address_ = default_base;
  xapic_id_ = static_cast<std::uint8_t>(id_);
  set_registers_to_reset_values();
}

void LocalApic::init() noexcept {
  set_registers_to_reset_values();
}

// APM vol. 2, Table 16-2.
void LocalApic::set_registers_to_reset_values() noexcept {
  irr_ = isr_ = tmr_ = irr_excluded_ = isr_excluded_ = VectorSet{};
  ier_ = ~VectorSet{};
  tpr_ = 0;
  svr_ = 0xff;
  icr_ = 0;
  error_pending_ = 0;
  xapic_logical_id_ = 0;
  destination_format_ = 0xf;
  timer_.reset();
  stored_.fill(0);
  lvt::for_each_offset([this](std::uint32_t offset) { stored(offset) = lvt_masked; });
  if (options_.lint0_ext_int_after_reset && options_.bootstrap) stored(APIC_LVT0) = lvt::ext_int;
  stored(APIC_EFEAT) = 0x00040007;
  enabling_changed();
}

// What acknowledge() and deliverable() look at excludes what may not be delivered, so that they need not ask.
// A vector that the IERs exclude takes no part in either priority, as in Bochs; the manual names the IERs as
// the way to reorder interrupts, together with the specific EOI.
void LocalApic::enabling_changed() noexcept {
  const VectorSet everything = ~VectorSet{};
  const VectorSet included = excludes() ? ier_ : everything;
  const VectorSet requested = irr();
  const VectorSet in_service = isr();
  const VectorSet deliverable = hardware_enabled() ? included : VectorSet{};
  irr_ = requested & deliverable;
  irr_excluded_ = requested & ~deliverable;
  isr_ = in_service & included;
  isr_excluded_ = in_service & ~included;
  plain_ = hardware_enabled() && software_enabled() && included == everything;
  const bool msrs = mode_ == ApicMode::x2apic;
  eoi_msr_ = msrs ? msr_x2apic_eoi : no_msr;
  icr_msr_ = msrs ? msr_x2apic_icr : no_msr;
  update_ppr();
}

void LocalApic::set_avic_state(const AvicState& state) noexcept {
  irr_ = state.irr;
  isr_ = state.isr;
  tmr_ = state.tmr;
  tpr_ = state.tpr;
  irr_excluded_ = isr_excluded_ = VectorSet{};
  if (plain_) {
    update_ppr();
  } else {
    enabling_changed();
  }
}

Acceptance LocalApic::accept_slowly(std::uint8_t vector, bool level) noexcept {
  if (!hardware_enabled() || !software_enabled()) return Acceptance::disabled;
  VectorSet& requested = excludes() && !ier_.test(vector) ? irr_excluded_ : irr_;
  const bool merged = requested.test(vector);
  requested.set(vector);
  if (level) {
    tmr_.set(vector);
  } else {
    tmr_.clear(vector);
  }
  return merged ? Acceptance::merged : Acceptance::accepted;
}

Reception LocalApic::receive(const IcrCommand& command) noexcept {
  if (!hardware_enabled()) return Reception::disabled;
  switch (command.delivery) {
    case DeliveryMode::fixed:
    case DeliveryMode::lowest_priority:
      // __apic_accept_irq: the de-assert of a level interrupt is not an interrupt.
      if (command.level_triggered && !command.assert) return Reception::ignored;
      return reception_of(accept(command.vector, command.level_triggered));
    case DeliveryMode::smi:
      return Reception::smi;
    case DeliveryMode::remote_read:
      return Reception::remote_read;
    case DeliveryMode::nmi:
      return Reception::nmi;
    case DeliveryMode::init:
      return command.init_deassert() ? Reception::ignored : Reception::init;
    case DeliveryMode::startup:
      return Reception::startup;
    case DeliveryMode::ext_int:
      return Reception::ext_int;
  }
  return Reception::ignored;
}

std::uint8_t LocalApic::apr() const noexcept {
  const int requested = irr_.highest() < 0 ? 0 : irr_.highest() >> 4;
  const int in_service = isr_.highest() < 0 ? 0 : isr_.highest() >> 4;
  const int task = tpr_ >> 4;
  if (task >= requested && task > in_service) return tpr_;
  const int common = task & in_service;
  return static_cast<std::uint8_t>((common > requested ? common : requested) << 4);
}

EndOfInterrupt LocalApic::end_level(std::uint8_t vector) noexcept {
  for (std::size_t pin = 0; pin < lint_asserted_.size(); ++pin) {
    std::uint32_t& entry = stored(lvt::lint_offset(pin));
    if ((entry & lvt::remote_irr) == 0 || lvt::vector(entry) != vector) continue;
    entry &= ~lvt::remote_irr;
    if (lint_asserted_[pin]) raise_level_lint(pin);
  }
  return {vector, true, (svr_ & svr_suppress_eoi_broadcast) == 0};
}

EndOfInterrupt LocalApic::specific_eoi(std::uint8_t vector) noexcept {
  if ((stored(APIC_ECTRL) & 2U) == 0 || !isr().test(vector)) return {};
  isr_.clear(vector);
  isr_excluded_.clear(vector);
  update_ppr();
  if (tmr_.test(vector)) return end_level(vector);
  return {vector, false, false};
}

// A write of the ESR re-arms the error interrupt: until then an error that is known already raises none.
void LocalApic::note_error(std::uint32_t bit) noexcept {
  if (!options_.reports_errors || (error_pending_ & bit) != 0) return;
  error_pending_ |= bit;
  signal(LvtEntry::error);
}

Reception LocalApic::signal(LvtEntry which) noexcept {
  const std::uint32_t entry = stored(lvt::offset(which));
  if (!hardware_enabled()) return Reception::disabled;
  if ((entry & lvt_masked) != 0) return Reception::masked;
  IcrCommand message;
  message.vector = lvt::vector(entry);
  message.delivery = lvt::delivery(entry);
  message.assert = true;
  switch (message.delivery) {
    case DeliveryMode::lowest_priority:
    case DeliveryMode::remote_read:
    case DeliveryMode::startup:
      return Reception::ignored;
    default:
      return receive(message);
  }
}

Reception LocalApic::set_lint(LvtEntry pin, bool asserted) noexcept {
  const std::size_t index = pin == LvtEntry::lint0 ? 0 : 1;
  const bool rising = asserted && !lint_asserted_[index];
  lint_asserted_[index] = asserted;
  if (!asserted) return Reception::ignored;
  if (lvt::level_sensitive(stored(lvt::lint_offset(index)))) return raise_level_lint(index);
  return rising ? signal(pin) : Reception::ignored;
}

Reception LocalApic::raise_level_lint(std::size_t pin) noexcept {
  std::uint32_t& entry = stored(lvt::lint_offset(pin));
  if (!hardware_enabled()) return Reception::disabled;
  if ((entry & lvt_masked) != 0) return Reception::masked;
  if ((entry & lvt::remote_irr) != 0) return Reception::ignored;
  const Acceptance acceptance = accept(lvt::vector(entry), true);
  if (acceptance == Acceptance::accepted || acceptance == Acceptance::merged) entry |= lvt::remote_irr;
  return reception_of(acceptance);
}

// kvm_apic_accept_pic_intr.
bool LocalApic::passes_ext_int() const noexcept {
  if (!hardware_enabled()) return true;
  const std::uint32_t entry = stored(APIC_LVT0);
  return (entry & lvt_masked) == 0 && lvt::delivery(entry) == DeliveryMode::ext_int;
}

Reception LocalApic::expire_timer(std::uint64_t now_cycles) noexcept {
  if (timer_.take_expiries(now_cycles) == 0) return Reception::ignored;
  const std::uint32_t entry = stored(APIC_LVTT);
  if (!hardware_enabled()) return Reception::disabled;
  if ((entry & lvt_masked) != 0) return Reception::masked;
  return reception_of(accept(lvt::vector(entry), false));
}

std::uint64_t LocalApic::read_apic_base() const noexcept {
  std::uint64_t value = base_address_;
  if (options_.bootstrap) value |= base_bootstrap;
  if (hardware_enabled()) value |= base_enable;
  if (mode_ == ApicMode::x2apic) value |= base_x2apic;
  return value;
}

// Fact sheet 7.1. Registers keep their values while the APIC is disabled, but the ID returns to what the CPU
// was built with (__kvm_apic_set_base). Bit 8 is read-only: a write does not change it.
RegisterWrite LocalApic::write_apic_base(std::uint64_t value, std::uint64_t now_cycles) noexcept {
  constexpr RegisterWrite fault{WriteEffect::general_protection, {}, {}};
  std::uint64_t reserved = 0x2ff;
  if (options_.physical_address_bits < 64) reserved |= ~std::uint64_t{0} << options_.physical_address_bits;
  if (!options_.x2apic) reserved |= base_x2apic;
  if ((value & reserved) != 0) return fault;
  const bool enable = (value & base_enable) != 0;
  const bool extend = (value & base_x2apic) != 0;
  if (extend && !enable) return fault;
  const ApicMode next = !enable ? ApicMode::disabled : extend ? ApicMode::x2apic : ApicMode::xapic;
  if (mode_ == ApicMode::x2apic && next == ApicMode::xapic) return fault;
  if (mode_ == ApicMode::disabled && next == ApicMode::x2apic) return fault;
  base_address_ = value & ~std::uint64_t{0xfff};
  RegisterWrite write;
  if (next == mode_) return write;
  settle_timer(now_cycles);
  write.changed = changed::addressing;
  if (next == ApicMode::disabled || mode_ == ApicMode::disabled) write.changed |= changed::enabling;
  mode_ = next;
  xapic_id_ = static_cast<std::uint8_t>(id_);
  enabling_changed();
  return write;
}

RegisterRead LocalApic::read_tsc_deadline(std::uint64_t now_cycles) const noexcept {
  if (!options_.tsc_deadline) return {true, 0};
  return {false, hardware_enabled() ? timer_.read_deadline(now_cycles) : 0};
}

RegisterWrite LocalApic::write_tsc_deadline(std::uint64_t value, std::uint64_t now_cycles) noexcept {
  if (!options_.tsc_deadline) return {WriteEffect::general_protection, {}, {}};
  RegisterWrite write;
  if (!hardware_enabled() || timer_.mode() != TimerMode::tsc_deadline) return write;
  settle_timer(now_cycles);
  timer_.write_deadline(value, now_cycles);
  write.changed = changed::timer;
  return write;
}

}  // namespace svmsim::apic
