#include "svm/conformance/program_reader.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "svm/action_table.hpp"
#include "svm/conformance/case_reader.hpp"

namespace svmsim::svm::conformance {

namespace {

constexpr std::uint64_t most_repeats = 10'000;
constexpr std::size_t most_steps = 100'000;
constexpr std::size_t most_levels = 8;

/// What happens between actions.
constexpr std::string_view arrive = "arrive";
constexpr std::string_view avic = "avic";
constexpr std::string_view wait = "wait";
constexpr std::string_view set = "set";
constexpr std::string_view store = "store";

class ProgramReader {
 public:
  explicit ProgramReader(TomlProblems& problems) : problems_(problems) {}

  void list(const CaseNode& node, const std::string& path, std::size_t level) {
    if (node.kind != CaseNode::Kind::list || level > most_levels) {
      problems_.add(node.line, path, fmt::format("must be an array of actions, not {}", node.kind_text()));
      return;
    }
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const CaseNode& item = node.items[i];
      const std::string where = fmt::format("{}[{}]", path, i);
      if (item.kind == CaseNode::Kind::list) {
        list(item, where, level + 1);
      } else if (item.kind == CaseNode::Kind::text) {
        const CaseNode table = table_of_words(item);
        step(table, where, item.text);
      } else {
        step(item, where, "");
      }
    }
  }

  Program take() { return std::move(program_); }

 private:
  void step(const CaseNode& node, const std::string& path, const std::string& text) {
    NodeTable table(node, path, problems_);
    if (node.kind != CaseNode::Kind::table) return;
    const auto name = table.text("do", true);
    if (!name) return;
    ProgramStep step;
    step.text = text.empty() ? *name : text;
    if (*name == arrive || *name == avic || *name == wait || *name == set || *name == store) {
      step.kind = ProgramStep::Kind::happens;
      happening(table, *name, step);
      table.finish();
      push(step, 1, node.line, path);
      return;
    }
    const auto kind = action_of(*name);
    if (!kind) {
      std::vector<std::string> names = action_names();
      names.insert(names.end(), {std::string{arrive}, std::string{avic}, std::string{wait}, std::string{set},
                                 std::string{store}});
      table.problem("do", node.line, fmt::format("\"{}\" is not an action", *name),
                    nearest_name(*name, names));
      return;
    }
    step.action = usual_action(*kind);
    // Every action needs an address of its own for the guest to go on from.
    if (step.action.length == 0) step.action.length = 1;
    for (const ActionOperand& operand : action_info(*kind)) {
      if (const auto value = table.number(operand.key, operand.maximum))
        static_cast<void>(set_operand(step.action, operand, *value));
    }
    if (const auto length = table.number("length", 15))
      step.action.length = static_cast<std::uint8_t>(*length);
    if (const auto cycles = table.number("cycles", UINT32_MAX)) step.action.cycles = *cycles;
    if (const auto cpl = table.number("cpl", 3)) {
      step.has_cpl = true;
      step.action.cpl = static_cast<std::uint8_t>(*cpl);
    }
    const std::uint64_t repeat = table.number("repeat", most_repeats).value_or(1);
    table.finish();
    push(step, repeat, node.line, path);
  }

  void happening(NodeTable& table, std::string_view name, ProgramStep& step) {
    if (name == wait) {
      step.cycles = table.number("cycles", UINT32_MAX).value_or(0);
    } else if (name == store) {
      step.change.store = table.number("address", UINT64_MAX);
    } else if (name == arrive) {
      step.change.pending = read_pending(table);
    } else if (name == avic) {
      if (const auto irr = table.number("irr", UINT8_MAX)) step.change.avic_irr = static_cast<int>(*irr);
      if (const auto ppr = table.number("ppr", UINT8_MAX))
        step.change.avic_ppr = static_cast<std::uint8_t>(*ppr);
    } else {
      step.change = read_surroundings(table);
    }
  }

  void push(const ProgramStep& step, std::uint64_t repeat, std::size_t line, const std::string& path) {
    if (program_.size() + repeat > most_steps) {
      problems_.add(line, path, fmt::format("makes the program longer than {} steps", most_steps));
      return;
    }
    program_.insert(program_.end(), repeat, step);
  }

  TomlProblems& problems_;
  Program program_;
};

MapChange read_msrpm(NodeTable& parent) {
  MapChange change;
  const CaseNode* node = parent.table("msrpm");
  if (node == nullptr) return change;
  NodeTable table(*node, parent.path("msrpm"), parent.problems());
  const auto msrs = [&table](std::string_view key) {
    const auto numbers = table.numbers(key, UINT32_MAX);
    return std::vector<std::uint32_t>(numbers.begin(), numbers.end());
  };
  change.at = table.number("at", UINT64_MAX);
  change.fill = table.boolean("fill");
  change.set_read = msrs("read");
  change.set_write = msrs("write");
  change.clear = msrs("clear");
  table.finish();
  return change;
}

MapChange read_iopm(NodeTable& parent) {
  constexpr std::uint64_t last_bit = IoPermissionMap::size_bytes * 8 - 1;
  MapChange change;
  const CaseNode* node = parent.table("iopm");
  if (node == nullptr) return change;
  NodeTable table(*node, parent.path("iopm"), parent.problems());
  const auto bits = [&table](std::string_view key) {
    const auto numbers = table.numbers(key, last_bit);
    return std::vector<std::uint32_t>(numbers.begin(), numbers.end());
  };
  change.at = table.number("at", UINT64_MAX);
  change.fill = table.boolean("fill");
  change.set = bits("set");
  change.clear = bits("clear");
  table.finish();
  return change;
}

void read_pages(NodeTable& parent, SurroundingsChange& change) {
  const CaseNode* list = parent.list("pages");
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    NodeTable table(list->items[i], fmt::format("{}[{}]", parent.path("pages"), i), parent.problems());
    NestedPage page;
    const auto address = table.number("address", UINT64_MAX);
    if (!address && table.node().find("address") == nullptr)
      table.problem("address", table.node().line, "is missing");
    page.present = table.boolean("present").value_or(page.present);
    page.writable = table.boolean("writable").value_or(page.writable);
    page.user = table.boolean("user").value_or(page.user);
    page.no_execute = table.boolean("no_execute").value_or(page.no_execute);
    page.reserved_bit = table.boolean("reserved_bit").value_or(page.reserved_bit);
    page.guest_table_walk = table.boolean("guest_table_walk").value_or(page.guest_table_walk);
    table.finish();
    if (address) change.pages.emplace_back(*address, page);
  }
}

void read_vmcb_pages(NodeTable& parent, SurroundingsChange& change) {
  const CaseNode* list = parent.list("vmcb_pages");
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    NodeTable table(list->items[i], fmt::format("{}[{}]", parent.path("vmcb_pages"), i), parent.problems());
    const auto address = table.number("address", UINT64_MAX);
    if (table.node().find("address") == nullptr) table.problem("address", table.node().line, "is missing");
    VmcbChange fields;
    if (const CaseNode* vmcb = table.get("vmcb"))
      fields = read_vmcb_change(*vmcb, table.path("vmcb"), parent.problems());
    table.finish();
    if (address) change.vmcb_pages.emplace_back(*address, std::move(fields));
  }
}

/// What VMRUN's checks ask of memory: PDPTEs, the VMSA, the owners of pages.
void read_vmrun_surroundings(NodeTable& table, SurroundingsChange& change) {
  constexpr std::size_t entries = 4;
  if (const CaseNode* node = table.get("pdptes")) {
    const auto values = table.numbers("pdptes", UINT64_MAX);
    if (values.size() != entries) {
      table.problem("pdptes", node->line, "must be four numbers");
    } else {
      change.pdptes.emplace();
      std::copy(values.begin(), values.end(), change.pdptes->begin());
    }
  }
  change.foreign_pages = table.numbers("foreign_pages", UINT64_MAX);
  const CaseNode* node = table.table("vmsa");
  if (node == nullptr) return;
  const std::vector<std::string> loads{"loaded", "damaged", "busy", "sibling_not_idle", "illegal_pmc"};
  NodeTable inner(*node, table.path("vmsa"), table.problems());
  change.vmsa.emplace();
  change.vmsa->sev_features = inner.number("sev_features", UINT64_MAX).value_or(0);
  if (const auto load = inner.text("load", false)) {
    const auto found = std::find(loads.begin(), loads.end(), *load);
    if (found == loads.end()) {
      inner.problem("load", node->line, "must be " + fmt::format("{}", fmt::join(loads, ", ")),
                    nearest_name(*load, loads));
    } else {
      change.vmsa->load = static_cast<VmsaLoad>(found - loads.begin());
    }
  }
  inner.finish();
}

}  // namespace

Program read_program(const CaseNode& node, const std::string& path, TomlProblems& problems) {
  ProgramReader reader(problems);
  reader.list(node, path, 0);
  return reader.take();
}

std::map<std::uint8_t, Program> read_handlers(NodeTable& table) {
  std::map<std::uint8_t, Program> programs;
  const CaseNode* handlers = table.table("handlers");
  if (handlers == nullptr) return programs;
  for (const auto& [key, value] : handlers->entries) {
    const std::string path = table.path("handlers." + key);
    const auto vector = parse_number(key);
    if (!vector || *vector > UINT8_MAX) {
      table.problems().add(value.line, path, "must be the number of a vector");
    } else {
      programs[static_cast<std::uint8_t>(*vector)] = read_program(value, path, table.problems());
    }
  }
  return programs;
}

PendingChange read_pending(NodeTable& table) {
  PendingChange change;
  if (table.get("intr") != nullptr) {
    const auto vectors = table.numbers("intr", UINT8_MAX);
    change.intr.emplace(vectors.begin(), vectors.end());
  }
  change.nmi = table.boolean("nmi");
  change.smi = table.boolean("smi");
  change.init = table.boolean("init");
  return change;
}

SurroundingsChange read_surroundings(NodeTable& table) {
  SurroundingsChange change;
  change.tsc = table.number("tsc", UINT64_MAX);
  change.tsc_ratio = table.number("tsc_ratio", UINT64_MAX);
  for (const auto& [msr, value] : table.number_pairs("msrs", UINT32_MAX, UINT64_MAX))
    change.msrs.emplace_back(static_cast<std::uint32_t>(msr), value);
  for (const std::uint64_t msr : table.numbers("faulting_msrs", UINT32_MAX))
    change.faulting_msrs.push_back(static_cast<std::uint32_t>(msr));
  for (const auto& [port, value] : table.number_pairs("ports", UINT16_MAX, UINT32_MAX))
    change.ports.emplace_back(static_cast<std::uint16_t>(port), value);
  for (const auto& [vector, rip] : table.number_pairs("idt", UINT8_MAX, UINT64_MAX))
    change.idt.emplace_back(static_cast<std::uint8_t>(vector), rip);
  for (const std::uint64_t vector : table.numbers("idt_invalid", UINT8_MAX))
    change.idt.emplace_back(static_cast<std::uint8_t>(vector), GuestEnvironment::invalid_gate);
  for (const std::uint64_t vector : table.numbers("idt_absent", UINT8_MAX))
    change.idt.emplace_back(static_cast<std::uint8_t>(vector), GuestEnvironment::absent_gate);
  for (const auto& [vector, level] : table.number_pairs("gate_dpl", UINT8_MAX, 3))
    change.gate_levels.emplace_back(static_cast<std::uint8_t>(vector), static_cast<std::uint8_t>(level));
  read_pages(table, change);
  read_vmcb_pages(table, change);
  change.msrpm = read_msrpm(table);
  change.iopm = read_iopm(table);
  read_vmrun_surroundings(table, change);
  change.r_init = table.boolean("r_init");
  if (const CaseNode* node = table.table("avic")) {
    NodeTable inner(*node, table.path("avic"), table.problems());
    if (const auto irr = inner.number("irr", UINT8_MAX)) change.avic_irr = static_cast<int>(*irr);
    if (const auto ppr = inner.number("ppr", UINT8_MAX)) change.avic_ppr = static_cast<std::uint8_t>(*ppr);
    inner.finish();
  }
  if (const CaseNode* node = table.table("smi_info")) {
    NodeTable inner(*node, table.path("smi_info"), table.problems());
    change.smi_info.emplace();
    change.smi_info->info_1 = inner.number("info1", UINT64_MAX).value_or(SmiInfo{}.info_1);
    change.smi_info->info_2 = inner.number("info2", UINT64_MAX).value_or(0);
    inner.finish();
  }
  if (const CaseNode* node = table.table("pending")) {
    NodeTable inner(*node, table.path("pending"), table.problems());
    change.pending = read_pending(inner);
    inner.finish();
  }
  return change;
}

}  // namespace svmsim::svm::conformance
