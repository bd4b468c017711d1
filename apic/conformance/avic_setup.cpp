// How a case sets its VM with AVIC up.

#include <array>

#include <fmt/format.h>

#include "apic/conformance/avic_machine.hpp"
#include "svm/conformance/names.hpp"
#include "svm/conformance/settings.hpp"

namespace svmsim::apic::conformance {

namespace {

using svm::conformance::number_of;
using svm::conformance::parse_number;

constexpr std::size_t most_vcpus = 4096;

struct BooleanKnob {
  std::string_view name;
  bool AvicKnobs::*member;
};

constexpr std::array boolean_knobs{
    BooleanKnob{"doorbell_wakes_halted_guest", &AvicKnobs::doorbell_wakes_halted_guest},
    BooleanKnob{"snoops_irr_writes", &AvicKnobs::snoops_irr_writes},
    BooleanKnob{"level_eoi_clears_isr", &AvicKnobs::level_eoi_clears_isr},
    BooleanKnob{"nrip_is_next", &AvicKnobs::nrip_is_next},
    BooleanKnob{"x2avic_broadcast", &AvicKnobs::x2avic_broadcast},
    BooleanKnob{"x2avic_entry_255_reserved", &AvicKnobs::x2avic_entry_255_reserved},
    BooleanKnob{"x2apic_checks_before_table", &AvicKnobs::x2apic_checks_before_table},
    BooleanKnob{"broadcast_with_illegal_page_delivers", &AvicKnobs::broadcast_with_illegal_page_delivers},
    BooleanKnob{"leaves_icr_busy", &AvicKnobs::leaves_icr_busy},
    BooleanKnob{"isrunning_stale_read", &AvicKnobs::isrunning_stale_read},
};

struct NumberKnob {
  std::string_view name;
  std::uint8_t AvicKnobs::*member;
};

constexpr std::array number_knobs{
    NumberKnob{"non_fixed_exit_id", &AvicKnobs::non_fixed_exit_id},
    NumberKnob{"doorbell_id_bits", &AvicKnobs::doorbell_id_bits},
};

[[nodiscard]] std::vector<std::string> avic_knob_names() {
  std::vector<std::string> names{"host_mode_doorbell", "not_running_index"};
  for (const BooleanKnob& knob : boolean_knobs)
    names.emplace_back(knob.name);
  for (const NumberKnob& knob : number_knobs)
    names.emplace_back(knob.name);
  return names;
}

// The knobs of AVIC by their names; others are those of the core that executes HLT.
void read_knobs(NodeTable& parent, AvicSetup& setup) {
  const CaseNode* node = parent.table("knobs");
  if (node == nullptr) return;
  NodeTable table(*node, parent.path("knobs"), parent.problems());
  AvicKnobs& knobs = setup.knobs;
  for (const BooleanKnob& knob : boolean_knobs)
    knobs.*(knob.member) = table.boolean(knob.name).value_or(knobs.*(knob.member));
  for (const NumberKnob& knob : number_knobs) {
    if (const auto value = table.number(knob.name, 63))
      knobs.*(knob.member) = static_cast<std::uint8_t>(*value);
  }
  static const Choices host_mode{"dropped", "stalls", "pending"};
  static const Choices index{"lowest", "highest"};
  if (const auto choice = read_choice(table, "host_mode_doorbell", host_mode))
    knobs.host_mode_doorbell = static_cast<HostModeDoorbell>(*choice);
  if (const auto choice = read_choice(table, "not_running_index", index))
    knobs.not_running_index = static_cast<NotRunningIndex>(*choice);
  for (const auto& [name, value] : node->entries) {
    if (table.knows(name)) continue;
    const std::string near = nearest_name(name, avic_knob_names());
    if (!near.empty() && !svm::conformance::is_knob(name)) {
      table.problem(name, value.line, "is not a knob", near);
    } else {
      svm::conformance::set_knob(setup.core_knobs, name, value, table.path(name), table.problems());
    }
  }
}

void read_processor(NodeTable& parent, AvicProcessor& processor) {
  const CaseNode* node = parent.table("processor");
  if (node == nullptr) return;
  NodeTable table(*node, parent.path("processor"), parent.problems());
  processor.x2avic = table.boolean("x2avic").value_or(processor.x2avic);
  processor.ext_lvt_accelerated =
      table.boolean("ext_lvt_avic_access_chg").value_or(processor.ext_lvt_accelerated);
  processor.extended_apic_space =
      table.boolean("extended_apic_space").value_or(processor.extended_apic_space);
  if (const auto registers = table.number("ext_lvt_registers", 8))
    processor.ext_lvt_registers = static_cast<std::uint32_t>(*registers);
  table.finish();
}

void read_page_pointer(NodeTable& table, AvicVcpuSetup& vcpu) {
  const CaseNode* page = table.get("page");
  if (page == nullptr) return;
  if (page->kind == CaseNode::Kind::text && page->text == "illegal") {
    vcpu.page = AvicMachine::illegal_page;
  } else {
    vcpu.page = table.number("page", UINT64_MAX);
  }
}

void read_vcpu(NodeTable& table, AvicVcpuSetup& vcpu) {
  vcpu.valid = table.boolean("valid").value_or(vcpu.valid);
  vcpu.running = table.boolean("running").value_or(vcpu.running);
  vcpu.in_guest = table.boolean("in_guest").value_or(vcpu.in_guest);
  vcpu.halted = table.boolean("halted").value_or(vcpu.halted);
  if (const auto host = table.number("host", 0xfff)) vcpu.host_apic_id = static_cast<std::uint32_t>(*host);
  if (const auto v_tpr = table.number("v_tpr", 15)) vcpu.v_tpr = static_cast<std::uint8_t>(*v_tpr);
  vcpu.entry = table.number("entry", UINT64_MAX);
  read_page_pointer(table, vcpu);
  vcpu.irr = table.numbers("irr", UINT8_MAX);
  vcpu.isr = table.numbers("isr", UINT8_MAX);
  vcpu.tmr = table.numbers("tmr", UINT8_MAX);
  const CaseNode* registers = table.table("registers");
  if (registers == nullptr) return;
  for (const auto& [name, value] : registers->entries) {
    const std::string path = table.path("registers." + name);
    const auto offset = register_named(name, value.line, path, table.problems());
    const auto number = number_of(value, path, UINT32_MAX, table.problems());
    if (offset && number) vcpu.registers.emplace_back(*offset, static_cast<std::uint32_t>(*number));
  }
}

// "vcpus" is how many there are, "vcpu" what is particular about some of them.
void read_vcpus(NodeTable& table, AvicSetup& setup) {
  const auto count = table.number("vcpus", most_vcpus);
  if (count == std::optional<std::uint64_t>{0})
    table.problem("vcpus", table.node().find("vcpus")->line, "must be at least 1");
  setup.vcpus.resize(static_cast<std::size_t>(std::max<std::uint64_t>(count.value_or(1), 1)));
  for (std::size_t index = 0; index < setup.vcpus.size(); ++index)
    setup.vcpus[index].host_apic_id = static_cast<std::uint32_t>(0x100 + index) & 0xfffU;
  const CaseNode* node = table.table("vcpu");
  if (node == nullptr) return;
  for (const auto& [key, value] : node->entries) {
    const std::string path = table.path("vcpu." + key);
    const auto index = parse_number(key);
    if (!index || *index >= setup.vcpus.size()) {
      table.problems().add(value.line, path, fmt::format("there is none: there are {}", setup.vcpus.size()));
      continue;
    }
    NodeTable inner(value, path, table.problems());
    if (value.kind != CaseNode::Kind::table) continue;
    read_vcpu(inner, setup.vcpus[*index]);
    inner.finish();
  }
}

void read_intercepts(NodeTable& table, AvicSetup& setup) {
  const CaseNode* list = table.list("intercepts");
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const CaseNode& item = list->items[i];
    if (const auto intercept = svm::conformance::intercept_named(item.text)) {
      setup.intercepts.push_back(*intercept);
    } else {
      table.problems().add(item.line, fmt::format("{}[{}]", table.path("intercepts"), i),
                           fmt::format("\"{}\" is not an intercept", item.text),
                           svm::conformance::nearest_exit_name(item.text));
    }
  }
}

}  // namespace

AvicSetup read_avic_setup(NodeTable& table) {
  static const Choices modes{"xavic", "x2avic"};
  AvicSetup setup;
  if (table.node().find("mode") == nullptr) table.problem("mode", table.node().line, "is missing");
  setup.x2avic = read_choice(table, "mode", modes).value_or(0) == 1;
  read_knobs(table, setup);
  read_processor(table, setup.processor);
  read_vcpus(table, setup);
  if (const auto max_index = table.number("max_index", 0xfff))
    setup.max_index = static_cast<std::uint32_t>(*max_index);
  for (const auto& [index, raw] : table.number_pairs("logical", 1023, UINT32_MAX))
    setup.logical.emplace_back(static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(raw));
  setup.stale_window_cycles = table.number("stale_window_cycles", UINT32_MAX).value_or(0);
  setup.interrupts_enabled = table.boolean("interrupts_enabled").value_or(true);
  read_intercepts(table, setup);
  return setup;
}

}  // namespace svmsim::apic::conformance
