// What can be seen of a VM with AVIC in a case.

#include "apic/conformance/avic_machine.hpp"
#include "svm/conformance/names.hpp"

namespace svmsim::apic::conformance {

namespace {

using M = const AvicMachine&;
using Unit = std::size_t;
using Argument = std::uint64_t;
using Fields = std::vector<Field<AvicMachine>>;

const Choices rip_names{"at", "after"};
const Choices nrip_names{"zero", "next"};

[[nodiscard]] VectorSet set_of(const BackingPage& page,
                               bool (BackingPage::*test)(std::uint8_t) const noexcept) {
  VectorSet set;
  for (unsigned vector = 0; vector < 256; ++vector) {
    if ((page.*test)(static_cast<std::uint8_t>(vector))) set.set(static_cast<std::uint8_t>(vector));
  }
  return set;
}

std::function<std::string(M, Unit, Argument)> vectors(bool (BackingPage::*test)(std::uint8_t)
                                                          const noexcept) {
  return [test](M m, Unit unit, Argument) { return vectors_text(set_of(m.page(unit), test)); };
}

[[nodiscard]] std::vector<std::uint64_t> log_entries(const GaLog& log) {
  GaLog copy = log;
  std::vector<std::uint64_t> entries;
  while (const auto entry = copy.take())
    entries.push_back(entry->raw);
  return entries;
}

// Of the guest's part of the event.
Fields guest_fields() {
  return {
      {"impossible",
       ValueKind::word,
       [](M m, Unit, Argument) { return m.outcome().impossible; },
       {},
       "none",
       true},
      {"fault",
       ValueKind::boolean,
       [](M m, Unit, Argument) { return boolean_text(m.outcome().fault); },
       {},
       "false",
       true},
      {"exit",
       ValueKind::exit,
       [](M m, Unit, Argument) {
         return m.outcome().exit ? svm::conformance::exit_text(*m.outcome().exit) : std::string{"none"};
       },
       {},
       "none",
       true},
      {"info1", ValueKind::number, [](M m, Unit, Argument) { return number_text(m.outcome().exit_info_1); }},
      {"info2", ValueKind::number, [](M m, Unit, Argument) { return number_text(m.outcome().exit_info_2); }},
      {"id", ValueKind::number,
       [](M m, Unit, Argument) { return number_text(m.outcome().exit_info_2 >> 32); }},
      {"index", ValueKind::number,
       [](M m, Unit, Argument) { return number_text(m.outcome().exit_info_2 & 0xffff'ffffU); }},
      {"rip", ValueKind::word,
       [](M m, Unit, Argument) { return std::string{m.outcome().rip_after ? "after" : "at"}; }, rip_names},
      {"nrip", ValueKind::word,
       [](M m, Unit, Argument) { return std::string{m.outcome().nrip_is_next ? "next" : "zero"}; },
       nrip_names},
      {"value", ValueKind::number,
       [](M m, Unit, Argument) {
         return m.outcome().value ? number_text(*m.outcome().value) : "nothing was read";
       }},
      {"v_tpr", ValueKind::vector, [](M m, Unit, Argument) { return vector_text(m.outcome().v_tpr); }},
      {"delivered",
       ValueKind::numbers,
       [](M m, Unit, Argument) { return numbers_text(m.outcome().delivered); },
       {},
       "[]"},
      {"taken", ValueKind::vector, [](M m, Unit, Argument) { return vector_text(m.outcome().taken); }},
  };
}

// Of what the event did to others.
Fields sending_fields() {
  return {
      {"requested",
       ValueKind::numbers,
       [](M m, Unit, Argument) { return numbers_text(m.outcome().requested); },
       {},
       "[]"},
      {"merged",
       ValueKind::numbers,
       [](M m, Unit, Argument) { return numbers_text(m.outcome().merged); },
       {},
       "[]"},
      {"doorbells",
       ValueKind::numbers,
       [](M m, Unit, Argument) { return numbers_text(m.outcome().doorbells); },
       {},
       "[]"},
      {"sequence", ValueKind::texts, [](M m, Unit, Argument) { return list_text(m.outcome().sequence); }},
      {"rung", ValueKind::words, [](M m, Unit, Argument) { return list_text(m.outcome().rung); },
       avic_effect_choices()},
      {"effect", ValueKind::word, [](M m, Unit, Argument) { return m.outcome().effect; },
       avic_effect_choices()},
      {"tpr_mismatch", ValueKind::boolean,
       [](M m, Unit, Argument) { return boolean_text(m.outcome().tpr_mismatch); }},
  };
}

// Of one vCPU.
Fields vcpu_fields() {
  return {
      {"registers", ValueKind::registers,
       [](M m, Unit unit, Argument offset) {
         return number_text(m.page(unit).read(static_cast<std::uint32_t>(offset)));
       }},
      {"irr", ValueKind::vectors, vectors(&BackingPage::test_irr)},
      {"isr", ValueKind::vectors, vectors(&BackingPage::test_isr)},
      {"tmr", ValueKind::vectors, vectors(&BackingPage::test_tmr)},
      {"tpr", ValueKind::number, [](M m, Unit unit, Argument) { return number_text(m.page(unit).tpr()); }},
      {"ppr", ValueKind::number, [](M m, Unit unit, Argument) { return number_text(m.page(unit).ppr()); }},
      {"icr", ValueKind::number, [](M m, Unit unit, Argument) { return number_text(m.page(unit).icr()); }},
      {"pending", ValueKind::vector,
       [](M m, Unit unit, Argument) { return vector_text(m.vcpu(unit).core.pending()); }},
      {"entry", ValueKind::number, [](M m, Unit unit, Argument) { return number_text(m.entry(unit).raw); }},
      {"running", ValueKind::boolean,
       [](M m, Unit unit, Argument) { return boolean_text(m.entry(unit).is_running()); }},
      {"halted", ValueKind::boolean,
       [](M m, Unit unit, Argument) { return boolean_text(m.vcpu(unit).halted); }},
      {"in_guest", ValueKind::boolean,
       [](M m, Unit unit, Argument) { return boolean_text(m.vcpu(unit).core.active()); }},
  };
}

// Of the IOMMU.
Fields iommu_fields() {
  return {
      {"irte_low", ValueKind::number, [](M m, Unit, Argument) { return number_text(m.irte().low); }},
      {"irte_high", ValueKind::number, [](M m, Unit, Argument) { return number_text(m.irte().high); }},
      {"irte_destination", ValueKind::number,
       [](M m, Unit, Argument) { return number_text(m.irte().destination()); }},
      {"ga_log", ValueKind::numbers,
       [](M m, Unit, Argument) { return numbers_text(log_entries(m.ga_log())); }},
      {"ga_log_size", ValueKind::number, [](M m, Unit, Argument) { return number_text(m.ga_log().size()); }},
      {"ga_log_head", ValueKind::number,
       [](M m, Unit, Argument) { return number_text(m.ga_log().head_register()); }},
      {"ga_log_tail", ValueKind::number,
       [](M m, Unit, Argument) { return number_text(m.ga_log().tail_register()); }},
      {"ga_log_overflowed", ValueKind::boolean,
       [](M m, Unit, Argument) { return boolean_text(m.ga_log().overflowed()); }},
  };
}

}  // namespace

const Fields& AvicMachine::fields() {
  static const Fields all = [] {
    Fields fields = guest_fields();
    for (Fields (*more)() : {sending_fields, vcpu_fields, iommu_fields}) {
      for (Field<AvicMachine>& field : more())
        fields.push_back(std::move(field));
    }
    return fields;
  }();
  return all;
}

}  // namespace svmsim::apic::conformance
