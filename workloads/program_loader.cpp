#include "workloads/program_loader.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "svm/toml_table.hpp"
#include "workloads/program_actions.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::uint64_t any_number = UINT64_MAX;
constexpr unsigned most_vcpus = 4096;

class ProgramReader {
 public:
  explicit ProgramReader(const std::string& source) : problems_(source) {}

  Program read(const toml::table& root) {
    TomlTable top(root, "", problems_);
    program_.info.name = top.text("name", true).value_or("");
    program_.info.doc = top.text("doc", true).value_or("");
    program_.info.source = top.text("source", false).value_or("");
    program_.info.vcpus = static_cast<unsigned>(top.integer("vcpus", 1, most_vcpus, false).value_or(1));
    program_.info.parallel = top.boolean("parallel").value_or(false);
    // Parameters come first, wherever they stand: everything else may refer to them.
    for_each_table(top, "parameter", [this](TomlTable& table) { read_parameter(table); });
    const bool doubling = read_harness(top);
    ActionReader actions(program_, problems_);
    read_initial(top);
    if (!doubling) read_repeat(top, actions);
    program_.common = read_section(top, actions);
    for_each_table(top, "vcpu", [this, &actions](TomlTable& table) { read_vcpu(table, actions); });
    for_each_table(top, "handler", [this, &actions](TomlTable& table) { read_handler(table, actions); });
    for_each_table(top, "check", [this](TomlTable& table) { read_check(table); });
    read_statistics(top);
    top.finish();
    actions.finish();
    if (problems_.empty()) check_program(top);
    if (!problems_.empty()) throw UserError(problems_.take());
    return std::move(program_);
  }

 private:
  template <typename Read>
  void for_each_table(TomlTable& parent, std::string_view key, Read&& read) {
    const toml::array* array = parent.array(key);
    if (array == nullptr) return;
    for (std::size_t i = 0; i < array->size(); ++i) {
      const std::string path = fmt::format("{}[{}]", key, i);
      const toml::table* table = (*array)[i].as_table();
      if (table == nullptr) {
        problems_.add(line_of((*array)[i]), path,
                      fmt::format("must be a table, not {}", type_text((*array)[i])));
        continue;
      }
      TomlTable view(*table, path, problems_);
      read(view);
      view.finish();
    }
  }

  // harness = "doubling" stands for the two parameters and the [repeat] that every vmexit sub-test has.
  bool read_harness(TomlTable& top) {
    const auto harness = top.text("harness", false);
    if (!harness) return false;
    if (*harness != "doubling") {
      top.problem(*top.get("harness"), "harness", fmt::format("\"{}\" is not a harness", *harness),
                  "doubling");
    }
    if (const toml::node* repeat = top.get("repeat")) {
      top.problem(*repeat, "repeat", "does not go with harness, which says how often the body runs");
    }
    const auto add = [this](std::string_view name, std::int64_t usual, std::int64_t minimum,
                            std::string_view unit, std::string_view doc) {
      ProgramParameter parameter;
      parameter.name = name;
      parameter.default_value = usual;
      parameter.minimum = minimum;
      parameter.unit = unit;
      parameter.doc = doc;
      program_.info.parameters.push_back(std::move(parameter));
      return ProgramNumber{0, static_cast<int>(program_.info.parameters.size()) - 1};
    };
    constexpr std::int64_t usual_goal = std::int64_t{1} << 30;  // kvm-unit-tests, x86/vmexit.c
    program_.repeat.count =
        add("iterations", 0, 0, "",
            "iterations of one single batch; 0 = double the batch until one takes goal cycles");
    program_.repeat.until_cycles =
        add("goal", usual_goal, 1, "cycles", "TSC cycles that the last batch takes at the least");
    return true;
  }

  void read_parameter(TomlTable& table) {
    ProgramParameter parameter;
    parameter.name = table.text("name", true).value_or("");
    parameter.unit = table.text("unit", false).value_or("");
    parameter.doc = table.text("doc", true).value_or("");
    const toml::node* value = table.require("default");
    const toml::node* minimum = table.get("min");
    const toml::node* maximum = table.get("max");
    check_parameter_name(table, parameter.name);
    if (value != nullptr) read_default(table, *value, parameter);
    const bool integer = std::holds_alternative<std::int64_t>(parameter.default_value);
    read_bound(table, "min", minimum, integer || value == nullptr, parameter.minimum);
    read_bound(table, "max", maximum, integer || value == nullptr, parameter.maximum);
    if (parameter.minimum > parameter.maximum) {
      // One of them is written: the defaults do not cross.
      table.problem(*(minimum != nullptr ? minimum : maximum), minimum != nullptr ? "min" : "max",
                    fmt::format("leaves nothing from {} to {}", parameter.minimum, parameter.maximum));
    } else if (const auto* number = std::get_if<std::int64_t>(&parameter.default_value);
               number != nullptr && value != nullptr && value->is_integer() &&
               (*number < parameter.minimum || *number > parameter.maximum)) {
      table.problem(
          *value, "default",
          fmt::format("is {}, but must be from {} to {}", *number, parameter.minimum, parameter.maximum));
    }
    program_.info.parameters.push_back(std::move(parameter));
  }

  void check_parameter_name(TomlTable& table, const std::string& name) {
    const toml::node* node = table.get("name");
    if (node == nullptr || name.empty()) return;
    // These keys stand beside a program's own in a scenario.
    for (const std::string_view taken : {"kind", "trace", "tasks"}) {
      if (name == taken) table.problem(*node, "name", "is a key that every workload has");
    }
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (!plain) table.problem(*node, "name", "must consist of a-z, 0-9 and _");
    for (const ProgramParameter& other : program_.info.parameters) {
      if (other.name == name) table.problem(*node, "name", fmt::format("\"{}\" is declared twice", name));
    }
  }

  static void read_default(TomlTable& table, const toml::node& node, ProgramParameter& parameter) {
    if (const auto* boolean = node.as_boolean()) {
      parameter.default_value = boolean->get();
    } else if (const auto* integer = node.as_integer()) {
      parameter.default_value = integer->get();
    } else if (const auto* real = node.as_floating_point()) {
      parameter.default_value = real->get();
    } else if (const auto* text = node.as_string()) {
      parameter.default_value = text->get();
    } else {
      table.wrong_type("default", node, "a boolean, a number or a string");
      parameter.default_value = std::int64_t{0};
    }
  }

  static void read_bound(TomlTable& table, std::string_view key, const toml::node* node, bool allowed,
                         std::int64_t& bound) {
    if (node == nullptr) return;
    if (!node->is_integer()) {
      table.wrong_type(key, *node, "an integer");
    } else if (!allowed) {
      table.problem(*node, key, "is only for parameters with an integer default");
    } else {
      bound = node->as_integer()->get();
    }
  }

  static void read_pages(TomlTable& table, std::string_view key, std::vector<std::uint64_t>& pages) {
    const toml::array* array = table.array(key);
    if (array == nullptr) return;
    for (const toml::node& page : *array) {
      const auto* address = page.as_integer();
      if (address == nullptr || address->get() < 0 || (address->get() & 0xfff) != 0) {
        table.problem(page, key, "must hold addresses of 4 KiB pages");
      } else {
        pages.push_back(static_cast<std::uint64_t>(address->get()));
      }
    }
  }

  void read_initial(TomlTable& top) {
    const toml::table* table = top.table("initial");
    if (table == nullptr) return;
    TomlTable view(*table, "initial", problems_);
    InitialState& initial = program_.initial;
    initial.interrupts_enabled = view.boolean("interrupts_enabled").value_or(false);
    initial.gdt_base = view.integer("gdt_base", 0, any_number, false).value_or(0);
    initial.idt_base = view.integer("idt_base", 0, any_number, false).value_or(0);
    initial.code_selector = static_cast<std::uint16_t>(
        view.integer("code_selector", 0, UINT16_MAX, false).value_or(initial.code_selector));
    initial.apic_svr = static_cast<std::uint32_t>(view.integer("apic_svr", 0, 0x3ff, false).value_or(0xff));
    initial.wait_for_sipi = view.boolean("wait_for_sipi").value_or(false);
    read_pages(view, "absent_pages", initial.absent_pages);
    read_pages(view, "mmio_pages", initial.mmio_pages);
    view.finish();
  }

  void read_repeat(TomlTable& top, ActionReader& actions) {
    const toml::table* table = top.table("repeat");
    if (table == nullptr) return;
    TomlTable view(*table, "repeat", problems_);
    ProgramRepeat& repeat = program_.repeat;
    const bool harness = table->contains("until_cycles");
    repeat.count.literal = harness ? 0 : 1;
    actions.number(view, "count", 0, any_number, repeat.count);
    if (harness) {
      actions.number(view, "until_cycles", 0, any_number, repeat.until_cycles);
      actions.number(view, "start", 1, UINT32_MAX, repeat.start);
      actions.number(view, "tsc_rip", 0, any_number, repeat.tsc_rip);
      view.finish();
    } else {
      if (!table->contains("count")) view.problem(*table, "count", "is missing, and so is until_cycles");
      view.finish("a plain repetition; until_cycles makes it a harness");
    }
  }

  ProgramSection read_section(TomlTable& table, ActionReader& actions) {
    ProgramSection section;
    section.setup = actions.list(table, "setup", ActionPlace::outside_body);
    section.body = actions.list(table, "body", ActionPlace::body);
    section.teardown = actions.list(table, "teardown", ActionPlace::outside_body);
    return section;
  }

  void read_handler(TomlTable& table, ActionReader& actions) {
    ProgramHandler handler;
    const auto vector = table.integer("vector", 0, 255, true);
    handler.vector = static_cast<std::uint8_t>(vector.value_or(0));
    (void)table.require("actions");
    handler.actions = actions.list(table, "actions", ActionPlace::handler);
    const bool returns = !handler.actions.empty() && handler.actions.back().form != nullptr &&
                         handler.actions.back().form->kind == svm::ActionKind::iret;
    if (!returns) problems_.add(table.line(), table.path("actions"), "must end with iret");
    if (vector && !vectors_.insert(handler.vector).second) {
      problems_.add(table.line(), table.path("vector"),
                    fmt::format("0x{:x} has a handler already", handler.vector));
    }
    program_.handlers.push_back(std::move(handler));
  }

  void read_vcpu(TomlTable& table, ActionReader& actions) {
    const toml::node* node = table.require("vcpu");
    ProgramSection section = read_section(table, actions);
    if (node == nullptr) return;
    if (const auto* text = node->as_string()) {
      if (text->get() != "others") {
        table.problem(*node, "vcpu", "must be a vCPU index or \"others\"", "others");
      } else if (program_.others) {
        table.problem(*node, "vcpu", "\"others\" has a section already");
      }
      program_.others = std::move(section);
      return;
    }
    const auto index = table.integer("vcpu", 0, most_vcpus - 1, true);
    if (!index) return;
    if (*index >= program_.info.vcpus) {
      table.problem(*node, "vcpu",
                    fmt::format("is {}, but the program asks for {} vCPUs", *index, program_.info.vcpus));
    }
    if (!program_.vcpus.emplace(static_cast<unsigned>(*index), std::move(section)).second) {
      table.problem(*node, "vcpu", fmt::format("{} has a section already", *index));
    }
  }

  void read_check(TomlTable& table) {
    ProgramCheck check;
    const toml::node* node = table.get("vector");
    const auto vector = table.integer("vector", 0, 255, true);
    check.runs = table.integer("runs", 0, any_number, false).value_or(1);
    if (!vector) return;
    check.vector = static_cast<std::uint8_t>(*vector);
    if (vectors_.count(check.vector) == 0) {
      table.problem(*node, "vector", fmt::format("0x{:x} has no handler", check.vector));
    }
    program_.checks.push_back(check);
  }

  void read_statistics(TomlTable& top) {
    const toml::array* names = top.array("report_statistics");
    if (names == nullptr) return;
    for (const toml::node& node : *names) {
      if (const auto* name = node.as_string()) {
        program_.info.report_statistics.push_back(name->get());
      } else {
        top.wrong_type("report_statistics", node, "a list of strings");
      }
    }
  }

  void check_program(TomlTable& top) {
    const auto acts = [](const ProgramSection& section) {
      return !section.setup.empty() || !section.body.empty() || !section.teardown.empty();
    };
    bool any = acts(program_.common) || (program_.others && acts(*program_.others));
    for (const auto& [vcpu, section] : program_.vcpus)
      any = any || acts(section);
    if (!any) problems_.add(top.line(), "body", "is missing: no vCPU has anything to do");
  }

  TomlProblems problems_;
  Program program_;
  std::set<std::uint8_t> vectors_;
};

}  // namespace

Program parse_program(std::string_view text, const std::string& source) {
  toml::table root;
  try {
    root = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    throw UserError(Problem{source, error.source().begin.line, "", std::string{error.description()}, ""});
  }
  return ProgramReader(source).read(root);
}

Program load_program(const std::string& path) {
  constexpr std::uintmax_t largest_file = 1 << 22;
  std::error_code error;
  // Anything but a file could go on for ever.
  if (!std::filesystem::is_regular_file(path, error)) {
    throw UserError(Problem{path, 0, "", "no such program file", ""});
  }
  if (std::filesystem::file_size(path, error) > largest_file) {
    throw UserError(Problem{path, 0, "", "is too large for a program", ""});
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throw UserError(Problem{path, 0, "", "cannot be read", ""});
  return parse_program(text, path);
}

}  // namespace svmsim::workloads
