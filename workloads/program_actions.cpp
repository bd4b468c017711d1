#include "workloads/program_actions.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace svmsim::workloads {

namespace {

constexpr std::uint64_t any_number = UINT64_MAX;
constexpr std::size_t most_stopwatches = 32;

}  // namespace

ActionList ActionReader::list(TomlTable& parent, std::string_view key, ActionPlace place) {
  ActionList result;
  const toml::array* array = parent.array(key);
  if (array == nullptr) return result;
  for (std::size_t i = 0; i < array->size(); ++i) {
    const toml::node& node = (*array)[i];
    const std::string path = parent.path(fmt::format("{}[{}]", key, i));
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      problems_.add(line_of(node), path, fmt::format("must be a table, not {}", type_text(node)));
      continue;
    }
    TomlTable view(*table, path, problems_);
    if (auto read = action(view, place)) {
      const bool returns = read->form->kind == svm::ActionKind::iret;
      if (returns && (place != ActionPlace::handler || i + 1 != array->size())) {
        problems_.add(line_of(node), path, "iret can only be the last action of a handler");
      }
      result.push_back(*read);
    }
  }
  return result;
}

std::optional<ProgramAction> ActionReader::action(TomlTable& table, ActionPlace place) {
  const auto name = table.text("do", true);
  if (!name) return std::nullopt;
  ProgramAction result;
  result.form = find_action_form(*name);
  if (result.form == nullptr) {
    std::vector<std::string> names;
    for (const ActionForm& form : action_forms())
      names.emplace_back(form.name);
    table.problem(*table.get("do"), "do", fmt::format("\"{}\" is not an action", *name),
                  nearest_name(*name, names));
    return std::nullopt;
  }
  const bool compute = result.form->kind == svm::ActionKind::compute;
  number(table, "rip", 0, any_number, result.rip);
  number(table, "cycles", 0, UINT32_MAX, result.cycles, compute);
  condition(table, result);
  if (result.form->halt_until) {
    wait(table, result, place);
  } else {
    // A compute stands for any stretch of code, the others for one instruction.
    number(table, "length", 0, compute ? UINT8_MAX : 15, result.length);
    result.cpl = static_cast<std::uint8_t>(table.integer("cpl", 0, 3, false).value_or(0));
    if (result.form->kind != svm::ActionKind::iret) {
      number(table, "repeat", 0, any_number, result.repeat);
    } else if (result.condition >= 0) {
      problems_.add(table.line(), table.own_path(), "iret cannot be conditional");
    }
    operands(table, result);
    if ((result.form->keys & action_key::wait) != 0) wait(table, result, place);
  }
  table.finish(*name);
  return result;
}

void ActionReader::operands(TomlTable& table, ProgramAction& action) {
  namespace keys = action_key;
  if (action.form->info != nullptr) {
    for (const svm::ActionOperand& operand : *action.form->info) {
      ProgramNumber value{operand.usual, -1};
      number(table, operand.key, 0, operand.maximum, value);
      action.others.emplace_back(&operand, value);
    }
    return;
  }
  const unsigned known = action.form->keys;
  if ((known & keys::msr) != 0) number(table, "msr", 0, UINT32_MAX, action.number, true);
  if ((known & keys::port) != 0) {
    number(table, "port", 0, UINT16_MAX, action.number, true);
    size(table, action, 4, 1);
  }
  if ((known & keys::memory) != 0) {
    number(table, "address", 0, any_number, action.operand[1], true);
    size(table, action, 8, 8);
  }
  if ((known & keys::deadline) != 0) number(table, "delay", 0, any_number, action.count, true);
  if ((known & keys::add) != 0) {
    action.counter = counter(table);
    number(table, "value", 0, UINT32_MAX, action.count);
  }
  if ((known & keys::value) != 0) number(table, "value", 0, any_number, action.operand[0], true);
  if ((known & keys::leaf) != 0) {
    number(table, "leaf", 0, UINT32_MAX, action.number);
    number(table, "subleaf", 0, UINT32_MAX, action.operand[0]);
  }
  if ((known & keys::hypercall) != 0) {
    number(table, "number", 0, UINT32_MAX, action.number);
    arguments(table, action);
  }
  if ((known & keys::stopwatch) != 0) {
    action.start_watch = watch(table, "start", &Watch::start_line);
    action.stop_watch = watch(table, "stop", &Watch::stop_line);
    const bool timed = action.start_watch >= 0 || action.stop_watch >= 0;
    if (action.start_watch >= 0 && action.stop_watch >= 0) {
      problems_.add(table.line(), table.own_path(), "can start or stop a stopwatch, not both");
    } else if (timed && (action.repeat.parameter >= 0 || action.repeat.literal != 1)) {
      problems_.add(table.line(), table.path("repeat"), "does not go with a stopwatch");
    }
  }
}

void ActionReader::arguments(TomlTable& table, ProgramAction& action) {
  const toml::array* array = table.array("arguments");
  if (array == nullptr) return;
  if (array->size() > action.operand.size()) {
    table.problem(*array, "arguments", "are four at the most: RBX, RCX, RDX, RSI");
    return;
  }
  for (std::size_t i = 0; i < array->size(); ++i) {
    if (const auto value = value_of(table, "arguments", (*array)[i], 0, any_number))
      action.operand[i] = *value;
  }
}

void ActionReader::size(TomlTable& table, ProgramAction& action, std::uint64_t largest, std::uint64_t usual) {
  const auto size = table.integer("size", 1, largest, false);
  if (size && (*size & (*size - 1)) != 0) table.problem(*table.get("size"), "size", "must be a power of two");
  action.size.literal = size.value_or(usual);
}

void ActionReader::condition(TomlTable& table, ProgramAction& action) {
  for (const bool wanted : {true, false}) {
    const std::string_view key = wanted ? "when" : "unless";
    const toml::node* node = table.get(key);
    if (node == nullptr) continue;
    const auto* text = node->as_string();
    if (text == nullptr) {
      table.wrong_type(key, *node, "a boolean parameter (\"$name\")");
      continue;
    }
    const int index = parameter(table, key, *node, text->get());
    if (index < 0) continue;
    const ProgramParameter& found = program_.info.parameters[static_cast<std::size_t>(index)];
    if (!std::holds_alternative<bool>(found.default_value)) {
      table.problem(*node, key, fmt::format("needs a boolean parameter, and {} is none", text->get()));
    } else if (action.condition >= 0) {
      table.problem(*node, key, "does not go with when");
    } else {
      action.condition = index;
      action.condition_value = wanted;
    }
  }
}

void ActionReader::wait(TomlTable& table, ProgramAction& action, ActionPlace place) {
  if (place == ActionPlace::handler) {
    problems_.add(table.line(), table.own_path(),
                  fmt::format("{} cannot stand in a handler", action.form->name));
  }
  if (!action.form->halt_until) action.pauses = table.boolean("pause").value_or(false);
  if (action.form->halt_until) action.interrupts_on = table.boolean("interrupts_on").value_or(false);
  action.per_iteration = place == ActionPlace::body;
  number(table, "count", 0, UINT32_MAX, action.count);
  const toml::node* shared = table.get("counter");
  const auto vector = table.integer("vector", 0, 255, shared == nullptr);
  if (shared != nullptr) {
    if (vector) table.problem(*shared, "counter", "does not go with vector");
    action.counter = counter(table);
    return;
  }
  if (!vector) return;
  action.vector = static_cast<std::uint8_t>(*vector);
  waits_.push_back({action.vector, table.line(), table.path("vector")});
}

int ActionReader::counter(TomlTable& table) {
  constexpr std::size_t most_counters = 1024;
  const auto name = table.text("counter", true);
  if (!name) return -1;
  std::vector<std::string>& names = program_.counters;
  const auto found = std::find(names.begin(), names.end(), *name);
  const auto index = static_cast<std::size_t>(found - names.begin());
  if (found == names.end()) {
    if (names.size() == most_counters) {
      problems_.add(table.line(), table.path("counter"), fmt::format("more than {} counters", most_counters));
      return -1;
    }
    names.push_back(*name);
  }
  return static_cast<int>(index);
}

int ActionReader::watch(TomlTable& table, std::string_view key, std::size_t Watch::*line) {
  const auto name = table.text(key, false);
  if (!name) return -1;
  std::vector<std::string>& names = program_.stopwatches;
  const auto found = std::find(names.begin(), names.end(), *name);
  const auto index = static_cast<std::size_t>(found - names.begin());
  if (found == names.end()) {
    if (names.size() == most_stopwatches) {
      problems_.add(table.line(), table.path(key), fmt::format("more than {} stopwatches", most_stopwatches));
      return -1;
    }
    names.push_back(*name);
    watches_.push_back({0, 0, table.path(key)});
  }
  watches_[index].*line = table.line();
  return static_cast<int>(index);
}

void ActionReader::number(TomlTable& table, std::string_view key, std::uint64_t minimum,
                          std::uint64_t maximum, ProgramNumber& number, bool required) {
  const toml::node* node = required ? table.require(key) : table.get(key);
  if (node == nullptr) return;
  if (const auto value = value_of(table, key, *node, minimum, maximum)) number = *value;
}

void ActionReader::number(TomlTable& table, std::string_view key, std::uint64_t minimum,
                          std::uint64_t maximum, std::optional<ProgramNumber>& number) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return;
  if (const auto value = value_of(table, key, *node, minimum, maximum)) number = value;
}

std::optional<ProgramNumber> ActionReader::value_of(TomlTable& table, std::string_view key,
                                                    const toml::node& node, std::uint64_t minimum,
                                                    std::uint64_t maximum) {
  const auto out_of_range = [&](auto what) {
    table.problem(node, key, fmt::format("is {}, but must be from {} to {}", what, minimum, maximum));
    return std::nullopt;
  };
  if (const auto* integer = node.as_integer()) {
    const std::int64_t value = integer->get();
    if (value < 0) return out_of_range(value);
    const auto number = static_cast<std::uint64_t>(value);
    if (number < minimum || number > maximum) return out_of_range(value);
    return ProgramNumber{number, -1};
  }
  const auto* text = node.as_string();
  if (text == nullptr) {
    table.wrong_type(key, node, "a number or a parameter (\"$name\")");
    return std::nullopt;
  }
  const std::string& reference = text->get();
  if (reference.rfind("0x", 0) == 0) {
    // TOML's integers end at 2^63; a register's do not.
    std::uint64_t number = 0;
    const char* const end = reference.data() + reference.size();
    const auto [stop, error] = std::from_chars(reference.data() + 2, end, number, 16);
    if (error == std::errc{} && stop == end) {
      if (number < minimum || number > maximum) return out_of_range(reference);
      return ProgramNumber{number, -1};
    }
  }
  const int index = parameter(table, key, node, reference);
  if (index < 0) return std::nullopt;
  const ProgramParameter& found = program_.info.parameters[static_cast<std::size_t>(index)];
  if (!std::holds_alternative<std::int64_t>(found.default_value)) {
    table.problem(node, key, fmt::format("needs an integer parameter, and {} is none", reference));
    return std::nullopt;
  }
  if (found.minimum < 0 || static_cast<std::uint64_t>(found.minimum) < minimum ||
      (found.maximum >= 0 && static_cast<std::uint64_t>(found.maximum) > maximum)) {
    table.problem(node, key,
                  fmt::format("must be from {} to {}, but {} may be from {} to {}", minimum, maximum,
                              reference, found.minimum, found.maximum));
    return std::nullopt;
  }
  return ProgramNumber{0, index};
}

int ActionReader::parameter(TomlTable& table, std::string_view key, const toml::node& node,
                            std::string_view reference) {
  if (reference.empty() || reference.front() != '$') {
    table.problem(node, key,
                  fmt::format("\"{}\" is neither a number nor a parameter (\"$name\")", reference));
    return -1;
  }
  const std::string_view name = reference.substr(1);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < program_.info.parameters.size(); ++i) {
    if (program_.info.parameters[i].name == name) return static_cast<int>(i);
    names.push_back(program_.info.parameters[i].name);
  }
  std::string nearest = nearest_name(name, names);
  if (!nearest.empty()) nearest.insert(nearest.begin(), '$');
  table.problem(node, key, fmt::format("{} is not a parameter of this program", reference),
                std::move(nearest));
  return -1;
}

void ActionReader::finish() {
  for (std::size_t i = 0; i < watches_.size(); ++i) {
    const Watch& watch = watches_[i];
    if (watch.start_line != 0 && watch.stop_line != 0) continue;
    problems_.add(std::max(watch.start_line, watch.stop_line), watch.path,
                  fmt::format("stopwatch \"{}\" is never {}", program_.stopwatches[i],
                              watch.start_line == 0 ? "started" : "stopped"));
  }
  for (const Wait& wait : waits_) {
    const bool handled =
        std::any_of(program_.handlers.begin(), program_.handlers.end(),
                    [&wait](const ProgramHandler& handler) { return handler.vector == wait.vector; });
    if (!handled) problems_.add(wait.line, wait.path, fmt::format("0x{:x} has no handler", wait.vector));
  }
}

}  // namespace svmsim::workloads
