// What can be seen of local APICs in a case.

#include "apic/conformance/lapic_machine.hpp"

namespace svmsim::apic::conformance {

namespace {

using M = const LapicMachine&;
using Unit = std::size_t;
using Argument = std::uint64_t;
using Fields = std::vector<Field<LapicMachine>>;

const Choices mode_names{"disabled", "xapic", "x2apic"};
const Choices timer_mode_names{"one_shot", "periodic", "tsc_deadline", "reserved"};
const Choices cpu_state_names{"running", "uninitialized", "wait_for_startup"};
const Choices change_names{"timer", "addressing", "enabling", "pending"};

[[nodiscard]] const LocalApic& apic(M m, Unit unit) {
  return m.unit(unit).apic;
}

using Seen = std::function<std::string(M, Unit, Argument)>;

/// A member function of LocalApic or CpuEvents, as text.
template <typename Result>
Seen number(Result (LocalApic::*get)() const noexcept) {
  return [get](M m, Unit unit, Argument) {
    return number_text(static_cast<std::uint64_t>((apic(m, unit).*get)()));
  };
}
Seen boolean(bool (LocalApic::*get)() const noexcept) {
  return [get](M m, Unit unit, Argument) { return boolean_text((apic(m, unit).*get)()); };
}
template <typename Result>
Seen vectors(Result (LocalApic::*get)() const noexcept) {
  return [get](M m, Unit unit, Argument) { return vectors_text((apic(m, unit).*get)()); };
}
Seen cpu_boolean(bool (CpuEvents::*get)() const noexcept) {
  return [get](M m, Unit unit, Argument) { return boolean_text((m.unit(unit).cpu.*get)()); };
}
template <typename Result>
Seen cpu_number(Result (CpuEvents::*get)() const noexcept) {
  return [get](M m, Unit unit, Argument) { return number_text((m.unit(unit).cpu.*get)()); };
}
template <typename Enum>
std::string name(const Choices& choices, Enum value) {
  return std::string{choices[static_cast<std::size_t>(value)]};
}

template <typename See>
std::string of_pin(Argument pin, See&& see) {
  return pin < IoApic::pin_count ? number_text(see(static_cast<std::size_t>(pin))) : "no such pin";
}

// Of the event.
Fields outcome_fields() {
  return {
      {"fault",
       ValueKind::boolean,
       [](M m, Unit, Argument) { return boolean_text(m.outcome().fault); },
       {},
       "false",
       true},
      {"impossible",
       ValueKind::word,
       [](M m, Unit, Argument) { return m.outcome().impossible; },
       {},
       "none",
       true},
      {"effect", ValueKind::word, [](M m, Unit, Argument) { return m.outcome().effect; }, effect_choices()},
      {"value", ValueKind::number,
       [](M m, Unit, Argument) {
         return m.outcome().value ? number_text(*m.outcome().value) : "nothing was read";
       }},
      {"changed", ValueKind::words, [](M m, Unit, Argument) { return list_text(m.outcome().changed); },
       change_names},
      {"retired", ValueKind::vector, [](M m, Unit, Argument) { return vector_text(m.outcome().eoi.vector); }},
      {"broadcast",
       ValueKind::boolean,
       [](M m, Unit, Argument) { return boolean_text(m.outcome().eoi.broadcast); },
       {},
       "false"},
      {"command", ValueKind::word,
       [](M m, Unit, Argument) { return m.outcome().command ? ipi_text(*m.outcome().command) : "none"; }},
      {"targets",
       ValueKind::numbers,
       [](M m, Unit, Argument) { return numbers_text(m.outcome().targets); },
       {},
       "[]"},
      {"receptions", ValueKind::words, [](M m, Unit, Argument) { return list_text(m.outcome().receptions); },
       reception_choices()},
      {"actions", ValueKind::words, [](M m, Unit, Argument) { return list_text(m.outcome().actions); },
       startup_choices(), "[]"},
      {"expiries",
       ValueKind::number,
       [](M m, Unit, Argument) { return number_text(m.outcome().expiries); },
       {},
       "0"},
      {"expired_at", ValueKind::numbers,
       [](M m, Unit, Argument) { return numbers_text(m.outcome().expired_at); }},
      {"entries", ValueKind::number_table,
       [](M m, Unit, Argument argument) {
         return of_pin(argument, [&](std::size_t pin) { return m.io_apic().entry(pin); });
       }},
      {"lines", ValueKind::number_table,
       [](M m, Unit, Argument argument) {
         return of_pin(argument, [&](std::size_t pin) { return m.io_apic().line(pin) ? 1U : 0U; });
       }},
      {"io_apic_hears", ValueKind::number_table,
       [](M m, Unit, Argument vector) {
         return number_text(m.io_apic().handles(static_cast<std::uint8_t>(vector)) ? 1 : 0);
       }},
  };
}

// Of one APIC.
Fields apic_fields() {
  using A = LocalApic;
  return {
      {"registers", ValueKind::registers,
       [](M m, Unit unit, Argument offset) {
         return number_text(m.register_value(unit, static_cast<std::uint32_t>(offset)));
       }},
      {"irr", ValueKind::vectors, vectors(&A::irr)},
      {"isr", ValueKind::vectors, vectors(&A::isr)},
      {"tmr", ValueKind::vectors, vectors(&A::tmr)},
      {"tpr", ValueKind::number, number(&A::tpr)},
      {"ppr", ValueKind::number, number(&A::ppr)},
      {"apr", ValueKind::number, number(&A::apr)},
      {"cr8", ValueKind::number, number(&A::cr8)},
      {"deliverable", ValueKind::vector,
       [](M m, Unit unit, Argument) { return vector_text(apic(m, unit).deliverable()); }},
      {"mode", ValueKind::word,
       [](M m, Unit unit, Argument) { return name(mode_names, apic(m, unit).mode()); }, mode_names},
      {"hardware_enabled", ValueKind::boolean, boolean(&A::hardware_enabled)},
      {"software_enabled", ValueKind::boolean, boolean(&A::software_enabled)},
      {"xapic_id", ValueKind::number, number(&A::xapic_id)},
      {"logical_id", ValueKind::number, number(&A::logical_id)},
      {"apic_base", ValueKind::number, number(&A::read_apic_base)},
      {"base_address", ValueKind::number, number(&A::base_address)},
      {"icr", ValueKind::number, number(&A::icr)},
      {"spurious_vector", ValueKind::number, number(&A::spurious_vector)},
      {"passes_ext_int", ValueKind::boolean, boolean(&A::passes_ext_int)},
  };
}

Fields timer_fields() {
  return {
      {"deadline", ValueKind::number,
       [](M m, Unit unit, Argument) {
         return number_text(apic(m, unit).timer().read_deadline(m.now_cycles()));
       }},
      {"count", ValueKind::number,
       [](M m, Unit unit, Argument) {
         return number_text(apic(m, unit).timer().current_count(m.now_cycles()));
       }},
      {"initial_count", ValueKind::number,
       [](M m, Unit unit, Argument) { return number_text(apic(m, unit).timer().initial_count()); }},
      {"divider", ValueKind::number,
       [](M m, Unit unit, Argument) { return number_text(apic(m, unit).timer().divider()); }},
      {"timer_mode", ValueKind::word,
       [](M m, Unit unit, Argument) { return name(timer_mode_names, apic(m, unit).timer().mode()); },
       timer_mode_names},
      {"armed", ValueKind::boolean,
       [](M m, Unit unit, Argument) { return boolean_text(apic(m, unit).timer().armed()); }},
      {"next_expiry", ValueKind::time,
       [](M m, Unit unit, Argument) { return time_text(apic(m, unit).next_timer_expiry(m.now_cycles())); }},
  };
}

// Of the CPU behind an APIC.
Fields cpu_fields() {
  using C = CpuEvents;
  return {
      {"cpu", ValueKind::word,
       [](M m, Unit unit, Argument) { return name(cpu_state_names, m.unit(unit).cpu.state()); },
       cpu_state_names},
      {"nmis", ValueKind::number, cpu_number(&C::nmis)},
      {"nmi_masked", ValueKind::boolean, cpu_boolean(&C::nmi_masked)},
      {"nmi_deliverable", ValueKind::boolean, cpu_boolean(&C::nmi_deliverable)},
      {"smi_pending", ValueKind::boolean, cpu_boolean(&C::smi_pending)},
      {"init_pending", ValueKind::boolean, cpu_boolean(&C::init_pending)},
      {"startup_vector", ValueKind::number, cpu_number(&C::startup_vector)},
  };
}

}  // namespace

const Fields& LapicMachine::fields() {
  static const Fields all = [] {
    Fields fields = outcome_fields();
    for (Fields (*more)() : {apic_fields, timer_fields, cpu_fields}) {
      for (Field<LapicMachine>& field : more())
        fields.push_back(std::move(field));
    }
    return fields;
  }();
  return all;
}

}  // namespace svmsim::apic::conformance
