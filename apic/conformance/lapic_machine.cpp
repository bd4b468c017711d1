#include "apic/conformance/lapic_machine.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apic/interrupt_routing.hpp"

namespace svmsim::apic::conformance {

namespace {

constexpr std::uint32_t msr_apic_base = 0x1b;
constexpr std::uint32_t msr_tsc_deadline = 0x6e0;

[[nodiscard]] std::vector<LapicMachine::Unit> units_of(const LapicSetup& setup) {
  std::vector<LapicMachine::Unit> units;
  for (const LapicUnitSetup& one : setup.units)
    units.push_back({LocalApic(one.id, one.options), CpuEvents(one.cpu)});
  return units;
}

[[nodiscard]] DestinationMap map_of(const std::vector<LapicMachine::Unit>& units) {
  std::vector<ApicAddress> addresses;
  for (const LapicMachine::Unit& unit : units)
    addresses.push_back(unit.apic.address());
  return DestinationMap::of(std::move(addresses));
}

template <typename Enum>
[[nodiscard]] std::string word(const Choices& choices, Enum value) {
  return std::string{choices[static_cast<std::size_t>(value)]};
}

[[nodiscard]] const Choices& pin_choices() {
  static const Choices choices{"delivered", "merged", "masked", "unaccepted", "lowered"};
  return choices;
}

}  // namespace

const Choices& reception_choices() {
  static const Choices choices{"accepted", "merged",  "illegal_vector", "disabled",
                               "masked",   "ignored", "remote_read",    "smi",
                               "nmi",      "init",    "startup",        "ext_int"};
  return choices;
}

// Those of a register write first, in the order of WriteEffect; then those of other events.
const Choices& effect_choices() {
  static const Choices choices = [] {
    Choices all{"#GP", "stored", "priority", "eoi", "ipi", "ipi_refused", "none", "not_msi"};
    const auto add = [&all](const Choices& more) {
      for (const std::string_view one : more)
        if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
    };
    add(reception_choices());
    add(pin_choices());
    return all;
  }();
  return choices;
}

const Choices& startup_choices() {
  static const Choices choices{"none", "reset", "reset_and_wait", "start"};
  return choices;
}

LapicMachine::LapicMachine(const LapicSetup& setup)
    : units_(units_of(setup)),
      map_(map_of(units_)),
      arbiter_(units_.size(), setup.arbitration),
      io_apic_(setup.io_apic),
      msi_(setup.msi) {}

std::uint64_t LapicMachine::register_value(std::size_t index, std::uint32_t offset) const {
  // Reading an unknown offset of the page notes an error: the copy keeps it from the APIC.
  LocalApic copy = units_[index].apic;
  if (!registers_are_msrs(index)) return copy.read_mmio(offset, now_).value;
  const RegisterRead read = copy.read_msr(x2apic_msr(offset), now_);
  return read.general_protection ? ~std::uint64_t{0} : read.value;
}

std::string LapicMachine::outcome_text() const {
  std::string text = outcome_.fault ? "#GP(0)" : outcome_.effect;
  if (outcome_.value) text += fmt::format(", value {:#x}", *outcome_.value);
  if (outcome_.eoi.vector >= 0) {
    text += fmt::format(", retired {:#x}{}", outcome_.eoi.vector,
                        outcome_.eoi.broadcast ? " and told the I/O APIC" : "");
  }
  if (outcome_.command) text += fmt::format(", {}", ipi_text(*outcome_.command));
  for (std::size_t i = 0; i < outcome_.targets.size(); ++i)
    text += fmt::format(", APIC {}: {}", outcome_.targets[i], outcome_.receptions[i]);
  if (!outcome_.actions.empty()) text += fmt::format(", {}", fmt::join(outcome_.actions, ", "));
  for (const std::uint64_t time : outcome_.expired_at)
    text += fmt::format(", timer at {}", time);
  return text;
}

void LapicMachine::written(std::size_t index, const RegisterWrite& write) {
  outcome_.effect = word(effect_choices(), write.effect);
  outcome_.fault = write.effect == WriteEffect::general_protection;
  if ((write.changed & changed::timer) != 0) outcome_.changed.emplace_back("timer");
  if ((write.changed & changed::addressing) != 0) outcome_.changed.emplace_back("addressing");
  if ((write.changed & changed::enabling) != 0) outcome_.changed.emplace_back("enabling");
  if ((write.changed & changed::pending) != 0) outcome_.changed.emplace_back("pending");
  tell_map(index);
  if (write.effect == WriteEffect::eoi) {
    outcome_.eoi = write.eoi;
    if (write.eoi.broadcast) {
      io_apic_.end_of_interrupt(
          static_cast<std::uint8_t>(write.eoi.vector),
          [this](const IcrCommand& command) { return deliver(command, DestinationMap::no_sender); });
    }
  }
  if (write.effect != WriteEffect::ipi && write.effect != WriteEffect::ipi_refused) return;
  outcome_.command = write.command;
  if (write.effect == WriteEffect::ipi) deliver(write.command, index);
}

void LapicMachine::read(const RegisterRead& read) {
  outcome_.fault = read.general_protection;
  outcome_.effect = read.general_protection ? "#GP" : "none";
  if (!read.general_protection) outcome_.value = read.value;
}

void LapicMachine::note(std::size_t index, Reception reception, std::uint8_t vector) {
  units_[index].cpu.note(reception, vector);
  outcome_.targets.push_back(index);
  outcome_.receptions.push_back(word(reception_choices(), reception));
}

bool LapicMachine::deliver(const IcrCommand& command, std::size_t sender) {
  const auto apic_of = [this](std::size_t index) -> LocalApic& { return units_[index].apic; };
  if (command.delivery == DeliveryMode::remote_read && sender != DestinationMap::no_sender) {
    read_remotely(map_, command, sender, apic_of, now_);
    return true;
  }
  bool accepted = false;
  const std::size_t targets =
      route(map_, arbiter_, command, sender, apic_of, [&](std::size_t index, const IcrCommand& to_it) {
        const Reception reception = units_[index].apic.receive(to_it);
        accepted = accepted || (reception != Reception::disabled && reception != Reception::illegal_vector);
        note(index, reception, to_it.vector);
      });
  if (targets == 0 && sender != DestinationMap::no_sender) units_[sender].apic.note_send_accept_error();
  return accepted;
}

void LapicMachine::write_register(std::size_t index, std::uint32_t offset, std::uint64_t value) {
  if (registers_are_msrs(index)) {
    write_msr(index, x2apic_msr(offset), value);
  } else {
    store(index, offset, static_cast<std::uint32_t>(value), 4);
  }
}

void LapicMachine::read_register(std::size_t index, std::uint32_t offset) {
  if (registers_are_msrs(index)) {
    read_msr(index, x2apic_msr(offset));
  } else {
    load(index, offset, 4);
  }
}

void LapicMachine::write_msr(std::size_t index, std::uint32_t msr, std::uint64_t value) {
  LocalApic& apic = units_[index].apic;
  if (msr == msr_apic_base) return written(index, apic.write_apic_base(value, now_));
  if (msr == msr_tsc_deadline) return written(index, apic.write_tsc_deadline(value, now_));
  written(index, apic.write_msr(msr, value, now_));
}

void LapicMachine::read_msr(std::size_t index, std::uint32_t msr) {
  const LocalApic& apic = units_[index].apic;
  if (msr == msr_apic_base) return read({false, apic.read_apic_base()});
  if (msr == msr_tsc_deadline) return read(apic.read_tsc_deadline(now_));
  read(apic.read_msr(msr, now_));
}

void LapicMachine::store(std::size_t index, std::uint32_t offset, std::uint32_t value, unsigned bytes) {
  written(index, units_[index].apic.write_mmio(offset, value, now_, bytes));
}

void LapicMachine::load(std::size_t index, std::uint32_t offset, unsigned bytes) {
  read(units_[index].apic.read_mmio(offset, now_, bytes));
}

void LapicMachine::send(std::size_t index, const IcrCommand& command) {
  if (registers_are_msrs(index)) return write_msr(index, msr_x2apic_icr, command.x2apic());
  store(index, APIC_ICR2, command.destination << 24, 4);
  store(index, APIC_ICR, command.low(), 4);
}

void LapicMachine::accept(std::size_t index, std::uint8_t vector, bool level) {
  constexpr std::array receptions{Reception::accepted, Reception::merged, Reception::illegal_vector,
                                  Reception::disabled};
  const Acceptance acceptance = units_[index].apic.accept(vector, level);
  outcome_.effect = word(reception_choices(), receptions[static_cast<std::size_t>(acceptance)]);
}

void LapicMachine::receive(std::size_t index, const IcrCommand& command) {
  const Reception reception = units_[index].apic.receive(command);
  outcome_.effect = word(reception_choices(), reception);
  units_[index].cpu.note(reception, command.vector);
}

void LapicMachine::acknowledge(std::size_t index) {
  outcome_.value = units_[index].apic.acknowledge();
}

void LapicMachine::set_cr8(std::size_t index, std::uint8_t value) {
  units_[index].apic.set_cr8(value);
}

void LapicMachine::signal(std::size_t index, LvtEntry entry) {
  const Reception reception = units_[index].apic.signal(entry);
  outcome_.effect = word(reception_choices(), reception);
  units_[index].cpu.note(reception, 0);
}

void LapicMachine::set_lint(std::size_t index, std::size_t pin, bool asserted) {
  const Reception reception =
      units_[index].apic.set_lint(pin == 0 ? LvtEntry::lint0 : LvtEntry::lint1, asserted);
  outcome_.effect = word(reception_choices(), reception);
  units_[index].cpu.note(reception, 0);
}

// Expiries are taken when they are due, as the model does.
void LapicMachine::wait(std::uint64_t cycles, bool expire) {
  const std::uint64_t end = now_ + cycles;
  while (expire) {
    std::uint64_t next = ApicTimer::never;
    std::size_t first = 0;
    for (std::size_t index = 0; index < units_.size(); ++index) {
      const std::uint64_t expiry = units_[index].apic.next_timer_expiry(now_);
      if (expiry < next) {
        next = expiry;
        first = index;
      }
    }
    if (next > end) break;
    now_ = next;
    ++outcome_.expiries;
    outcome_.expired_at.push_back(now_);
    outcome_.effect = word(reception_choices(), units_[first].apic.expire_timer(now_));
  }
  now_ = end;
}

void LapicMachine::init(std::size_t index) {
  units_[index].apic.init();
  tell_map(index);
}

void LapicMachine::reset(std::size_t index) {
  units_[index].apic.reset();
  units_[index].cpu.reset();
  tell_map(index);
}

void LapicMachine::boundary(std::size_t index, bool init_allowed) {
  Unit& unit = units_[index];
  while (true) {
    const StartupAction action = unit.cpu.next_startup_action(init_allowed);
    if (action == StartupAction::none) return;
    outcome_.actions.push_back(word(startup_choices(), action));
    if (action != StartupAction::start) init(index);
  }
}

void LapicMachine::take_nmi(std::size_t index) {
  if (!units_[index].cpu.nmi_deliverable()) {
    outcome_.impossible = "no NMI is deliverable";
    return;
  }
  units_[index].cpu.take_nmi();
}

void LapicMachine::message(const MsiMessage& message) {
  const auto command = decode_msi(message, msi_);
  outcome_.effect = command ? "none" : "not_msi";
  if (!command) return;
  outcome_.command = *command;
  deliver(*command, DestinationMap::no_sender);
}

void LapicMachine::set_pin(std::size_t pin, bool asserted, unsigned source) {
  const PinResult result = io_apic_.set_pin(
      pin, asserted,
      [this](const IcrCommand& command) {
        outcome_.command = command;
        return deliver(command, DestinationMap::no_sender);
      },
      source);
  outcome_.effect = word(pin_choices(), result);
}

void LapicMachine::io_store(std::uint32_t offset, std::uint32_t value) {
  io_apic_.write_mmio(offset, value, [this](const IcrCommand& command) {
    return deliver(command, DestinationMap::no_sender);
  });
}

void LapicMachine::io_load(std::uint32_t offset) {
  outcome_.value = io_apic_.read_mmio(offset);
}

}  // namespace svmsim::apic::conformance
