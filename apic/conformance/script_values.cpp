#include "apic/conformance/script_values.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apic/apic_registers.hpp"
#include "apic/apic_timer.hpp"
#include "svm/conformance/names.hpp"

namespace svmsim::apic::conformance {

using svm::conformance::number_of;
using svm::conformance::parse_number;

namespace {

struct NamedOffset {
  std::string_view name;
  std::uint32_t offset;
  std::uint32_t count = 1;  ///< of numbered registers, 10h apart
};

// The manual's names, where the kernel has another one or none.
constexpr std::array<NamedOffset, 22> manual_names{{
    {"VERSION", APIC_LVR},
    {"TPR", APIC_TASKPRI},
    {"APR", APIC_ARBPRI},
    {"PPR", APIC_PROCPRI},
    {"SVR", APIC_SPIV},
    {"ISR", APIC_ISR, 8},
    {"TMR", APIC_TMR, 8},
    {"IRR", APIC_IRR, 8},
    {"CMCI", APIC_LVTCMCI},
    {"ICRL", APIC_ICR},
    {"ICRH", APIC_ICR2},
    {"LVT_TIMER", APIC_LVTT},
    {"LVT_THERMAL", APIC_LVTTHMR},
    {"LVT_PERF", APIC_LVTPC},
    {"LINT0", APIC_LVT0},
    {"LINT1", APIC_LVT1},
    {"LVT_ERROR", APIC_LVTERR},
    {"SEOI", APIC_SEOI},
    {"IER", APIC_IER, 8},
    {"EILVT", APIC_EILVT, 8},
    {"EXT_FEATURE", APIC_EFEAT},
    {"EXT_CONTROL", APIC_ECTRL},
}};

[[nodiscard]] std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const NamedOffset& one : manual_names) {
    for (std::uint32_t i = 0; i < one.count; ++i)
      names.push_back(one.count == 1 ? std::string{one.name} : fmt::format("{}{}", one.name, i));
  }
  for (std::uint32_t offset = 0; offset < 0x1000; offset += 0x10) {
    const std::string_view name = register_name(offset);
    if (!name.empty()) names.emplace_back(name.substr(std::string_view{"APIC_"}.size()));
  }
  return names;
}

[[nodiscard]] std::optional<std::uint32_t> offset_named(std::string_view name) {
  for (const NamedOffset& one : manual_names) {
    for (std::uint32_t i = 0; i < one.count; ++i) {
      if (one.count == 1 ? name == one.name : name == fmt::format("{}{}", one.name, i))
        return one.offset + 0x10 * i;
    }
  }
  const std::int32_t offset =
      register_by_name(name.substr(0, 5) == "APIC_" ? std::string{name} : fmt::format("APIC_{}", name));
  if (offset >= 0) return static_cast<std::uint32_t>(offset);
  const auto number = parse_number(name);
  if (number && *number < 0x1000) return static_cast<std::uint32_t>(*number);
  return std::nullopt;
}

[[nodiscard]] std::vector<std::string> texts_of(const Choices& choices) {
  return {choices.begin(), choices.end()};
}

class ValueReader {
 public:
  ValueReader(const Choices& choices, TomlProblems& problems) : choices_(choices), problems_(problems) {}

  [[nodiscard]] std::string number(const CaseNode& node, const std::string& path) {
    const auto value = number_of(node, path, UINT64_MAX, problems_);
    return value ? number_text(*value) : std::string{};
  }

  [[nodiscard]] std::string boolean(const CaseNode& node, const std::string& path) {
    const auto value = number_of(node, path, 1, problems_);
    return value ? boolean_text(*value != 0) : std::string{};
  }

  // A number, or the word that stands for its absence.
  [[nodiscard]] std::string number_or(const CaseNode& node, std::string_view word, const std::string& path) {
    return node.kind == CaseNode::Kind::text && node.text == word ? node.text : number(node, path);
  }

  [[nodiscard]] std::string exit(const CaseNode& node, const std::string& path) {
    if (node.kind == CaseNode::Kind::integer) return svm::conformance::exit_text(node.number);
    if (node.kind == CaseNode::Kind::text && node.text == "none") return node.text;
    const auto code = svm::conformance::exit_code_named(node.text);
    if (code) return svm::conformance::exit_text(*code);
    problems_.add(node.line, path, fmt::format("\"{}\" is not an exit", node.text),
                  svm::conformance::nearest_exit_name(node.text));
    return {};
  }

  [[nodiscard]] std::string word(const CaseNode& node, const std::string& path) {
    if (node.kind != CaseNode::Kind::text) {
      problems_.add(node.line, path, fmt::format("must be a text, not {}", node.kind_text()));
      return {};
    }
    if (!choices_.empty() && std::find(choices_.begin(), choices_.end(), node.text) == choices_.end()) {
      problems_.add(node.line, path, fmt::format("must be one of {}", fmt::join(choices_, ", ")),
                    nearest_name(node.text, texts_of(choices_)));
    }
    return node.text;
  }

  template <typename Read>
  [[nodiscard]] std::string list(const CaseNode& node, const std::string& path, Read&& read) {
    std::vector<std::string> words;
    if (node.kind != CaseNode::Kind::list) {
      words.push_back(read(node, path));
    } else {
      for (std::size_t i = 0; i < node.items.size(); ++i)
        words.push_back(read(node.items[i], fmt::format("{}[{}]", path, i)));
    }
    return list_text(words);
  }

  [[nodiscard]] std::string vectors(const CaseNode& node, const std::string& path) {
    VectorSet set;
    static_cast<void>(list(node, path, [&](const CaseNode& item, const std::string& where) {
      if (const auto vector = number_of(item, where, UINT8_MAX, problems_))
        set.set(static_cast<std::uint8_t>(*vector));
      return std::string{};
    }));
    return vectors_text(set);
  }

  [[nodiscard]] std::vector<ExpectedText> table(const CaseNode& node, bool of_registers,
                                                const std::string& path) {
    std::vector<ExpectedText> result;
    if (node.kind != CaseNode::Kind::table) {
      problems_.add(node.line, path, fmt::format("must be a table, not {}", node.kind_text()));
      return result;
    }
    for (const auto& [key, value] : node.entries) {
      const std::string where = path + "." + key;
      std::optional<std::uint64_t> argument;
      if (of_registers) {
        argument = register_named(key, value.line, where, problems_);
      } else if (!(argument = parse_number(key))) {
        problems_.add(value.line, where, "must be a number");
      }
      std::string text = number(value, where);
      if (argument) result.push_back({key, *argument, std::move(text)});
    }
    return result;
  }

 private:
  const Choices& choices_;
  TomlProblems& problems_;
};

}  // namespace

std::vector<ExpectedText> read_value(const CaseNode& node, ValueKind kind, const Choices& choices,
                                     const std::string& path, TomlProblems& problems) {
  ValueReader reader(choices, problems);
  const auto word = [&](const CaseNode& item, const std::string& where) { return reader.word(item, where); };
  const auto number = [&](const CaseNode& item, const std::string& where) {
    return reader.number(item, where);
  };
  std::string text;
  switch (kind) {
    case ValueKind::registers:
      return reader.table(node, true, path);
    case ValueKind::number_table:
      return reader.table(node, false, path);
    case ValueKind::number:
      text = reader.number(node, path);
      break;
    case ValueKind::boolean:
      text = reader.boolean(node, path);
      break;
    case ValueKind::exit:
      text = reader.exit(node, path);
      break;
    case ValueKind::word:
      text = reader.word(node, path);
      break;
    case ValueKind::vector:
      text = reader.number_or(node, "none", path);
      break;
    case ValueKind::time:
      text = reader.number_or(node, "never", path);
      break;
    case ValueKind::words:
    case ValueKind::texts:
      text = reader.list(node, path, word);
      break;
    case ValueKind::numbers:
      text = reader.list(node, path, number);
      break;
    case ValueKind::vectors:
      text = reader.vectors(node, path);
      break;
  }
  return {{"", 0, text}};
}

std::string number_text(std::uint64_t value) {
  return value < 10 ? fmt::format("{}", value) : fmt::format("{:#x}", value);
}

std::string boolean_text(bool value) {
  return value ? "true" : "false";
}

std::string vector_text(int vector) {
  return vector < 0 ? "none" : number_text(static_cast<std::uint64_t>(vector));
}

std::string time_text(std::uint64_t cycles) {
  return cycles == ApicTimer::never ? "never" : number_text(cycles);
}

std::string list_text(const std::vector<std::string>& words) {
  return fmt::format("[{}]", fmt::join(words, ", "));
}

std::string vectors_text(const VectorSet& set) {
  std::vector<unsigned> vectors;
  for (unsigned vector = 0; vector < 256; ++vector)
    if (set.test(static_cast<std::uint8_t>(vector))) vectors.push_back(vector);
  return numbers_text(vectors);
}

std::optional<std::uint32_t> register_named(const std::string& name, std::size_t line,
                                            const std::string& path, TomlProblems& problems) {
  const auto offset = offset_named(name);
  if (!offset) {
    problems.add(line, path, fmt::format("\"{}\" is not an APIC register", name),
                 nearest_name(name, all_names()));
  }
  return offset;
}

namespace {

/// The entry of an event that is no key of its own.
[[nodiscard]] const std::pair<std::string, CaseNode>* own_entry(NodeTable& table) {
  const std::pair<std::string, CaseNode>* found = nullptr;
  for (const auto& entry : table.node().entries) {
    if (table.knows(entry.first)) continue;
    if (found != nullptr) return found;  // finish() reports the second one
    found = &entry;
  }
  if (found == nullptr) table.problem("do", table.node().line, "needs a register, as in \"write TPR=0x20\"");
  return found;
}

}  // namespace

std::optional<RegisterValue> read_register_value(NodeTable& table) {
  const auto* entry = own_entry(table);
  if (entry == nullptr) return std::nullopt;
  table.know(entry->first);
  const auto offset =
      register_named(entry->first, entry->second.line, table.path(entry->first), table.problems());
  const auto value = number_of(entry->second, table.path(entry->first), UINT64_MAX, table.problems());
  if (!offset || !value) return std::nullopt;
  return RegisterValue{*offset, *value};
}

std::optional<std::uint32_t> read_register_name(NodeTable& table) {
  const auto* entry = own_entry(table);
  if (entry == nullptr) return std::nullopt;
  table.know(entry->first);
  return register_named(entry->first, entry->second.line, table.path(entry->first), table.problems());
}

std::uint64_t required(NodeTable& table, std::string_view key, std::uint64_t maximum) {
  if (table.node().find(key) == nullptr) table.problem(key, table.node().line, "is missing");
  return table.number(key, maximum).value_or(0);
}

std::uint32_t required_32(NodeTable& table, std::string_view key) {
  return static_cast<std::uint32_t>(required(table, key, UINT32_MAX));
}

std::uint8_t required_8(NodeTable& table, std::string_view key) {
  return static_cast<std::uint8_t>(required(table, key, UINT8_MAX));
}

std::uint32_t required_offset(NodeTable& table) {
  return static_cast<std::uint32_t>(required(table, "offset", 0xfff));
}

std::optional<std::size_t> read_choice(NodeTable& table, std::string_view key, const Choices& choices) {
  const CaseNode* node = table.get(key);
  if (node == nullptr) return std::nullopt;
  const auto found = std::find(choices.begin(), choices.end(), std::string_view{node->text});
  if (node->kind == CaseNode::Kind::text && found != choices.end())
    return static_cast<std::size_t>(found - choices.begin());
  table.problem(key, node->line, fmt::format("must be one of {}", fmt::join(choices, ", ")),
                nearest_name(node->text, texts_of(choices)));
  return std::nullopt;
}

const Choices& delivery_choices() {
  static const Choices choices{"fixed", "lowest_priority", "smi",    "remote_read", "nmi",
                               "init",  "startup",         "ext_int"};
  return choices;
}

IcrCommand read_command(NodeTable& table) {
  static const Choices modes{"physical", "logical"};
  static const Choices shorthands{"none", "self", "all_including_self", "all_excluding_self"};
  IcrCommand command;
  command.vector = static_cast<std::uint8_t>(table.number("vector", UINT8_MAX).value_or(0));
  command.delivery =
      static_cast<DeliveryMode>(read_choice(table, "delivery", delivery_choices()).value_or(0));
  command.destination_mode = static_cast<DestinationMode>(read_choice(table, "mode", modes).value_or(0));
  command.shorthand = static_cast<Shorthand>(read_choice(table, "shorthand", shorthands).value_or(0));
  command.level_triggered = table.boolean("level").value_or(false);
  command.assert = table.boolean("assert").value_or(true);
  command.destination = static_cast<std::uint32_t>(table.number("to", UINT32_MAX).value_or(0));
  return command;
}

}  // namespace svmsim::apic::conformance
