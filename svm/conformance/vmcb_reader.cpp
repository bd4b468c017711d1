#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "svm/conformance/case_reader.hpp"
#include "svm/conformance/names.hpp"
#include "svm/conformance/program_reader.hpp"
#include "svm/exit_code.hpp"
#include "svm/vmrun_checks.hpp"

namespace svmsim::svm::conformance {

namespace {

constexpr std::string_view intercepts_key = "intercepts";

/// Short names in "expect".
struct Alias {
  std::string_view name;
  std::string_view path;
};
constexpr std::array aliases{
    Alias{"info1", "exit_info_1"},
    Alias{"info2", "exit_info_2"},
};

class VmcbReader {
 public:
  explicit VmcbReader(TomlProblems& problems) : problems_(problems) {}

  void intercepts(const CaseNode& node, const std::string& path, VmcbChange& change) {
    if (node.kind != CaseNode::Kind::list) {
      problems_.add(node.line, path, fmt::format("must be an array of names, not {}", node.kind_text()));
      return;
    }
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const CaseNode& item = node.items[i];
      const std::string where = fmt::format("{}[{}]", path, i);
      if (item.kind == CaseNode::Kind::list) {
        intercepts(item, where, change);
        continue;
      }
      if (item.kind == CaseNode::Kind::integer && item.number < intercept_count) {
        change.intercepts.emplace_back(static_cast<Intercept>(item.number), true);
        continue;
      }
      const bool off = item.text.compare(0, 1, "-") == 0;
      const std::string name = off ? item.text.substr(1) : item.text;
      const auto intercept = intercept_named(name);
      if (item.kind != CaseNode::Kind::text || !intercept) {
        problems_.add(item.line, where, fmt::format("\"{}\" is not an intercept", name),
                      nearest_exit_name(name));
      } else {
        change.intercepts.emplace_back(*intercept, !off);
      }
    }
  }

  /// Calls `found(path, name, node)` for every field or group of bits in a table.
  template <typename Found>
  void fields(const CaseNode& node, const std::string& prefix, const std::string& path, Found&& found) {
    for (const auto& [key, value] : node.entries) {
      const std::string name = prefix.empty() ? key : prefix + "." + key;
      field(name, value, path + "." + key, found);
    }
  }

  template <typename Found>
  void field(const std::string& name, const CaseNode& value, const std::string& path, Found&& found) {
    const bool masked = value.kind == CaseNode::Kind::table && value.find("value") != nullptr;
    if (value.kind == CaseNode::Kind::table && !masked) {
      fields(value, name, path, found);
      return;
    }
    const auto alias =
        std::find_if(aliases.begin(), aliases.end(), [&](const Alias& one) { return one.name == name; });
    const auto vmcb_path = find_vmcb_path(alias != aliases.end() ? alias->path : std::string_view{name});
    if (!vmcb_path) {
      problems_.add(value.line, path, fmt::format("the VMCB has no \"{}\"", name),
                    nearest_name(name, known_));
      return;
    }
    found(*vmcb_path, name, value, path);
  }

  /// Names that a message may propose.
  void propose(const std::vector<std::string>& names) {
    known_.insert(known_.end(), names.begin(), names.end());
  }

 private:
  TomlProblems& problems_;
  std::vector<std::string> known_ = vmcb_paths();
};

std::optional<ExpectedRip> read_rip(NodeTable& table, std::string_view key) {
  const CaseNode* node = table.get(key);
  if (node == nullptr) return std::nullopt;
  using Kind = ExpectedRip::Kind;
  if (node->kind == CaseNode::Kind::integer && !node->negative) {
    if (key == "nrip" && node->number == 0) return ExpectedRip{Kind::zero, 0};
    return ExpectedRip{Kind::offset, node->number};
  }
  constexpr std::string_view handler = "handler ";
  if (node->text == "at") return ExpectedRip{Kind::at, 0};
  if (node->text == "after") return ExpectedRip{Kind::after, 0};
  if (node->text.compare(0, handler.size(), handler) == 0) {
    const auto vector = parse_number(std::string_view{node->text}.substr(handler.size()));
    if (vector && *vector <= UINT8_MAX) return ExpectedRip{Kind::handler, *vector};
  }
  table.problem(
      key, node->line,
      "must be \"at\" or \"after\" (the last action), \"handler VECTOR\", or an offset from the start of "
      "the program");
  return std::nullopt;
}

void read_exit(NodeTable& table, Expectation& expect) {
  const CaseNode* node = table.get("exit");
  if (node == nullptr) {
    table.problem("exit", table.node().line, "is missing (\"none\" if the guest does not exit)");
    return;
  }
  if (node->kind == CaseNode::Kind::integer) {
    expect.exit = node->number;
    return;
  }
  if (node->text == "none") return;
  expect.exit = exit_code_named(node->text);
  if (node->kind != CaseNode::Kind::text || !expect.exit) {
    table.problem("exit", node->line, fmt::format("\"{}\" is not an exit code", node->text),
                  nearest_exit_name(node->text));
  }
}

void read_expected_value(const VmcbPath& field, const std::string& name, const CaseNode& value,
                         const std::string& where, TomlProblems& problems, std::vector<ExpectedValue>& into) {
  ExpectedValue expected{name, field, 0, field.maximum()};
  const CaseNode* number = &value;
  if (value.kind == CaseNode::Kind::table) {
    NodeTable masked(value, where, problems);
    number = masked.get("value");
    expected.mask = masked.number("mask", field.maximum()).value_or(field.maximum());
    masked.finish();
  }
  if (const auto content = number_of(*number, where, field.maximum(), problems)) {
    expected.value = *content;
    into.push_back(std::move(expected));
  }
}

void read_expected_pages(NodeTable& parent, Expectation& expect) {
  const CaseNode* list = parent.list("vmcb_pages");
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    NodeTable table(list->items[i], fmt::format("{}[{}]", parent.path("vmcb_pages"), i), parent.problems());
    const std::uint64_t address = table.number("address", UINT64_MAX).value_or(0);
    std::vector<ExpectedValue> values;
    VmcbReader reader(parent.problems());
    if (const CaseNode* vmcb = table.table("vmcb")) {
      reader.fields(*vmcb, "", table.path("vmcb"),
                    [&](const VmcbPath& field, const std::string& name, const CaseNode& value,
                        const std::string& where) {
                      read_expected_value(field, name, value, where, parent.problems(), values);
                    });
    }
    table.finish();
    expect.vmcb_pages.emplace_back(address, std::move(values));
  }
}

void read_clean_findings(NodeTable& table, Expectation& expect) {
  const CaseNode* list = table.list("clean_findings");
  if (list == nullptr) return;
  std::vector<std::string> known{"first_run", "other_core", "moved"};
  for (const CleanField& field : clean_fields())
    known.emplace_back(field.path);
  expect.clean_findings.emplace();
  for (const CaseNode& item : list->items) {
    if (std::find(known.begin(), known.end(), item.text) == known.end()) {
      table.problem("clean_findings", item.line,
                    fmt::format("\"{}\" is no field under a clean bit", item.text),
                    nearest_name(item.text, known));
    }
    expect.clean_findings->push_back(item.text);
  }
}

void read_violations(NodeTable& table, Expectation& expect) {
  const CaseNode* list = table.list("violations");
  if (list == nullptr) return;
  std::vector<std::string> known;
  for (const RuleViolation& rule : vmrun_rules())
    known.emplace_back(rule.id);
  expect.violations.emplace();
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const CaseNode& item = list->items[i];
    if (std::find(known.begin(), known.end(), item.text) == known.end()) {
      table.problems().add(item.line, fmt::format("{}[{}]", table.path("violations"), i),
                           fmt::format("\"{}\" is no rule of VMRUN", item.text),
                           nearest_name(item.text, known));
    }
    expect.violations->push_back(item.text);
  }
}

}  // namespace

VmcbChange read_vmcb_change(const CaseNode& node, const std::string& path, TomlProblems& problems) {
  VmcbChange change;
  if (node.kind != CaseNode::Kind::table) {
    problems.add(node.line, path, fmt::format("must be a table, not {}", node.kind_text()));
    return change;
  }
  VmcbReader reader(problems);
  reader.propose({std::string{intercepts_key}});
  const auto found = [&](const VmcbPath& field, const std::string&, const CaseNode& value,
                         const std::string& where) {
    if (const auto number = number_of(value, where, field.maximum(), problems))
      change.fields.emplace_back(field, *number);
  };
  for (const auto& [key, value] : node.entries) {
    if (key == intercepts_key) {
      reader.intercepts(value, path + "." + key, change);
    } else {
      reader.field(key, value, path + "." + key, found);
    }
  }
  return change;
}

Expectation read_expectation(const CaseNode& node, const std::string& path, TomlProblems& problems) {
  Expectation expect;
  NodeTable table(node, path, problems);
  if (node.kind != CaseNode::Kind::table) return expect;
  read_exit(table, expect);
  expect.rip = read_rip(table, "rip");
  expect.nrip = read_rip(table, "nrip");
  for (const std::uint64_t vector : table.numbers("delivered", UINT8_MAX))
    expect.delivered.push_back(static_cast<std::uint8_t>(vector));
  expect.retired = table.number("retired", UINT64_MAX);
  expect.halted = table.boolean("halted");
  expect.shut_down = table.boolean("shut_down");
  expect.reset = table.boolean("reset");
  expect.result = table.number("result", UINT64_MAX);
  read_violations(table, expect);
  read_clean_findings(table, expect);
  read_expected_pages(table, expect);
  if (const CaseNode* pending = table.table("pending")) {
    NodeTable inner(*pending, table.path("pending"), problems);
    expect.pending = read_pending(inner);
    inner.finish();
  }
  for (const auto& [msr, value] : table.number_pairs("msrs", UINT32_MAX, UINT64_MAX))
    expect.msrs.emplace_back(static_cast<std::uint32_t>(msr), value);
  for (const auto& [port, value] : table.number_pairs("ports", UINT16_MAX, UINT32_MAX))
    expect.ports.emplace_back(static_cast<std::uint16_t>(port), value);

  VmcbReader reader(problems);
  reader.propose(table.known());
  const bool no_exit = node.find("exit") != nullptr && node.find("exit")->text == "none";
  const auto found = [&](const VmcbPath& field, const std::string& name, const CaseNode& value,
                         const std::string& where) {
    if (no_exit) problems.add(value.line, where, "is in the VMCB, which is written at #VMEXIT only");
    read_expected_value(field, name, value, where, problems, expect.fields);
  };
  for (const auto& [key, value] : node.entries) {
    if (!table.knows(key)) reader.field(key, value, table.path(key), found);
  }
  return expect;
}

}  // namespace svmsim::svm::conformance
