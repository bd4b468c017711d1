// How a case sets its local APICs up.

#include <fmt/format.h>

#include "apic/conformance/lapic_machine.hpp"

namespace svmsim::apic::conformance {

namespace {

constexpr std::size_t most_apics = 1024;

void read_boolean(NodeTable& table, std::string_view key, bool& member) {
  member = table.boolean(key).value_or(member);
}

void read_unit(NodeTable& table, LapicUnitSetup& unit) {
  static const Choices modes{"disabled", "xapic", "x2apic"};
  static const Choices states{"running", "uninitialized", "wait_for_startup"};
  LocalApicOptions& options = unit.options;
  const auto id = table.number("id", UINT32_MAX);
  if (id) unit.id = static_cast<std::uint32_t>(*id);
  if (const auto mode = read_choice(table, "mode", modes))
    options.initial_mode = static_cast<ApicMode>(*mode);
  if (const auto version = table.number("version", UINT32_MAX))
    options.version = static_cast<std::uint32_t>(*version);
  read_boolean(table, "extended", options.extended);
  read_boolean(table, "bootstrap", options.bootstrap);
  read_boolean(table, "x2apic", options.x2apic);
  read_boolean(table, "tsc_deadline", options.tsc_deadline);
  read_boolean(table, "directed_eoi", options.directed_eoi);
  read_boolean(table, "reports_errors", options.reports_errors);
  read_boolean(table, "lint0_ext_int_after_reset", options.lint0_ext_int_after_reset);
  if (const auto bits = table.number("physical_address_bits", 64))
    options.physical_address_bits = static_cast<unsigned>(*bits);
  // A clock of 0 is none.
  const auto cycles = table.number("tsc_cycles", UINT32_MAX);
  const auto ticks = table.number("bus_ticks", UINT32_MAX);
  for (const auto& [key, value] : {std::pair{"tsc_cycles", cycles}, std::pair{"bus_ticks", ticks}}) {
    if (value == std::optional<std::uint64_t>{0})
      table.problem(key, table.node().find(key)->line, "must be at least 1");
  }
  if (cycles.value_or(0) != 0) options.timer_clock.tsc_cycles = *cycles;
  if (ticks.value_or(0) != 0) options.timer_clock.bus_ticks = *ticks;
  if (const auto period = table.number("minimum_timer_period_cycles", UINT32_MAX))
    options.minimum_timer_period_cycles = *period;
  unit.cpu.bootstrap = options.bootstrap;
  if (const auto limit = table.number("nmi_limit", 2)) unit.cpu.nmi_limit = static_cast<unsigned>(*limit);
  read_boolean(table, "init_restarts_waiting", unit.cpu.init_restarts_waiting);
  if (const auto state = read_choice(table, "application_state", states))
    unit.cpu.application_state = static_cast<CpuState>(*state);
}

// "apics" is how many there are, or a list of what is particular about each.
void read_units(NodeTable& table, LapicSetup& setup) {
  LapicUnitSetup usual;
  read_unit(table, usual);
  const CaseNode* apics = table.get("apics");
  std::size_t count = 1;
  if (apics != nullptr && apics->kind != CaseNode::Kind::list) {
    count = static_cast<std::size_t>(table.number("apics", most_apics).value_or(1));
    if (count == 0) table.problem("apics", apics->line, "must be at least 1");
  } else if (apics != nullptr) {
    count = apics->items.size();
    if (count == 0 || count > most_apics)
      table.problem("apics", apics->line, fmt::format("must have 1 to {} entries", most_apics));
  }
  count = std::min(std::max<std::size_t>(count, 1), most_apics);
  for (std::size_t i = 0; i < count; ++i) {
    LapicUnitSetup unit = usual;
    if (i != 0) unit.id = usual.id + static_cast<std::uint32_t>(i);
    if (apics != nullptr && i < apics->items.size()) {
      NodeTable inner(apics->items[i], fmt::format("{}[{}]", table.path("apics"), i), table.problems());
      if (apics->items[i].kind == CaseNode::Kind::table) {
        read_unit(inner, unit);
        inner.finish();
      }
    }
    for (const LapicUnitSetup& other : setup.units) {
      if (other.id == unit.id)
        table.problem("apics", apics != nullptr ? apics->line : table.node().line,
                      fmt::format("the ID {:#x} is there twice", unit.id));
    }
    setup.units.push_back(unit);
  }
}

}  // namespace

LapicSetup read_lapic_setup(NodeTable& table) {
  static const Choices policies{"vector_hashing", "delivery_count", "task_priority"};
  static const Choices formats{"eight_bits", "fifteen_bits", "thirty_two_bits"};
  LapicSetup setup;
  read_units(table, setup);
  setup.arbitration = static_cast<ArbitrationPolicy>(read_choice(table, "arbitration", policies).value_or(0));
  setup.msi = static_cast<MsiDestination>(read_choice(table, "msi_destination", formats).value_or(0));
  if (const CaseNode* node = table.table("io_apic")) {
    NodeTable inner(*node, table.path("io_apic"), table.problems());
    setup.io_apic.id = static_cast<std::uint8_t>(inner.number("id", UINT8_MAX).value_or(0));
    setup.io_apic.version =
        static_cast<std::uint8_t>(inner.number("version", UINT8_MAX).value_or(setup.io_apic.version));
    inner.finish();
  }
  return setup;
}

}  // namespace svmsim::apic::conformance
