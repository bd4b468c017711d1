#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apic/conformance/script_values.hpp"
#include "svm/conformance/suite_case.hpp"

// A conformance case of apic/: a machine is set up, events happen to it one after the other, and what can be
// seen of it afterwards is compared. docs/conformance.md describes the file format.
//
// A machine M is a class with
//   static constexpr std::string_view unit_key, units_key;    // "apic" and "apics": its numbered parts
//   static const std::vector<Verb<M>>& verbs();               // what can happen
//   static const std::vector<Field<M>>& fields();             // what can be seen
//   std::size_t units() const;
//   void begin_event();                                       // forgets the outcome of the last event
//   std::string outcome_text() const;                         // of this event, for the trace

namespace svmsim::apic::conformance {

/// Something that can happen. read() reads the event's own keys.
template <typename Machine>
struct Verb {
  using Action = std::function<void(Machine&)>;
  std::string_view name;
  Action (*read)(NodeTable& table, std::size_t unit) = nullptr;
};

/// Something that can be seen, of one unit or of the last event.
template <typename Machine>
struct Field {
  using Seen = std::function<std::string(const Machine& machine, std::size_t unit, std::uint64_t argument)>;

  Field(std::string_view name, ValueKind value_kind, Seen see, Choices words = {},
        std::string_view otherwise = {}, bool everywhere = false)
      : key(name),
        kind(value_kind),
        seen(std::move(see)),
        choices(std::move(words)),
        usual(otherwise),
        always(everywhere) {}

  std::string_view key;
  ValueKind kind;
  Seen seen;
  Choices choices;         ///< of a word, or of the words of a list
  std::string_view usual;  ///< what an expectation that does not name it expects; empty: nothing
  bool always;             ///< `usual` also holds for events without an expectation
};

/// An expectation of one event.
template <typename Machine>
struct Expected {
  const Field<Machine>* field = nullptr;
  std::string name;  ///< as the file has it: "irr", "apics.1.irr", "registers.TPR"
  std::size_t unit = 0;
  std::uint64_t argument = 0;  ///< of a table: the key, such as a register's offset
  std::string value;
};

template <typename Machine>
class Script {
 public:
  struct Event {
    std::string text;
    std::function<void(Machine&)> run;
    bool expects = false;
    std::vector<Expected<Machine>> expected;
  };

  /// Reads "do" and "expect". `units` is how many units the machine has.
  Script(NodeTable& table, std::size_t units) : units_(units) {
    if (const CaseNode* node = table.get("do")) {
      read_events(*node, table.path("do"), table.problems());
    } else {
      table.problem("do", table.node().line, "is missing: what happens");
    }
    const CaseNode* expect = table.get("expect");
    if (expect == nullptr) {
      table.problem("expect", table.node().line, "is missing");
    } else if (!events_.empty()) {
      read_expectation(*expect, table.path("expect"), table.problems(), events_.back());
    }
  }

  /// Lets everything happen to `machine` and compares.
  void run(Machine& machine, svm::conformance::CaseResult& result) const {
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const Event& event = events_[i];
      machine.begin_event();
      event.run(machine);
      result.trace.push_back(fmt::format("{}: {}", event.text, machine.outcome_text()));
      const bool last = i + 1 == events_.size();
      compare(machine, event, last ? std::string{} : fmt::format("event {}: ", i + 1), result);
    }
    result.judge();
  }

 private:
  void read_events(const CaseNode& node, const std::string& path, TomlProblems& problems) {
    if (node.kind != CaseNode::Kind::list) {
      problems.add(node.line, path, fmt::format("must be an array of events, not {}", node.kind_text()));
      return;
    }
    if (node.items.empty()) problems.add(node.line, path, "must not be empty");
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const CaseNode& item = node.items[i];
      const std::string where = fmt::format("{}[{}]", path, i);
      if (item.kind == CaseNode::Kind::text) {
        read_event(svm::conformance::table_of_words(item), where, item.text, problems);
      } else {
        read_event(item, where, {}, problems);
      }
    }
  }

  void read_event(const CaseNode& node, const std::string& path, const std::string& text,
                  TomlProblems& problems) {
    NodeTable table(node, path, problems);
    if (node.kind != CaseNode::Kind::table) return;
    const auto name = table.text("do", true);
    if (!name) return;
    const std::size_t unit = read_unit(table);
    const std::uint64_t repeat = table.number("repeat", most_repeats).value_or(1);
    const CaseNode* expect = table.get("expect");
    const Verb<Machine>* verb = nullptr;
    std::vector<std::string> names;
    for (const Verb<Machine>& one : Machine::verbs()) {
      names.emplace_back(one.name);
      if (one.name == *name) verb = &one;
    }
    if (verb == nullptr) {
      table.problem("do", node.line, fmt::format("\"{}\" is not an event", *name),
                    nearest_name(*name, names));
      return;
    }
    Event event;
    event.text = text.empty() ? *name : text;
    event.run = verb->read(table, unit);
    table.finish();
    if (expect != nullptr) read_expectation(*expect, table.path("expect"), problems, event);
    if (events_.size() + repeat > most_events) {
      problems.add(node.line, path, fmt::format("makes more than {} events", most_events));
      return;
    }
    events_.insert(events_.end(), repeat, event);
  }

  std::size_t read_unit(NodeTable& table) const {
    const auto unit = table.number(Machine::unit_key, UINT32_MAX);
    if (!unit) return 0;
    if (*unit < units_) return static_cast<std::size_t>(*unit);
    table.problem(Machine::unit_key, table.node().line,
                  fmt::format("is {}, but there are only {}", *unit, units_));
    return 0;
  }

  void read_expectation(const CaseNode& node, const std::string& path, TomlProblems& problems, Event& event) {
    event.expects = true;
    NodeTable table(node, path, problems);
    if (node.kind != CaseNode::Kind::table) return;
    read_fields(table, 0, {}, event);
    if (const CaseNode* units = table.table(Machine::units_key)) {
      for (const auto& [key, value] : units->entries) {
        const std::string where = fmt::format("{}.{}", table.path(Machine::units_key), key);
        const auto unit = svm::conformance::parse_number(key);
        if (!unit || *unit >= units_) {
          problems.add(value.line, where, fmt::format("there is none: there are {}", units_));
          continue;
        }
        NodeTable inner(value, where, problems);
        if (value.kind != CaseNode::Kind::table) continue;
        read_fields(inner, static_cast<std::size_t>(*unit), fmt::format("{}.{}.", Machine::units_key, key),
                    event);
        inner.finish();
      }
    }
    table.finish();
  }

  static void read_fields(NodeTable& table, std::size_t unit, const std::string& prefix, Event& event) {
    for (const Field<Machine>& field : Machine::fields()) {
      const CaseNode* value = table.get(field.key);
      if (value == nullptr) continue;
      const std::string name = prefix + std::string{field.key};
      for (ExpectedText& one :
           read_value(*value, field.kind, field.choices, table.path(field.key), table.problems()))
        event.expected.push_back({&field, one.key.empty() ? name : name + "." + one.key, unit, one.argument,
                                  std::move(one.value)});
    }
  }

  static void compare(const Machine& machine, const Event& event, const std::string& prefix,
                      svm::conformance::CaseResult& result) {
    const auto add = [&](const std::string& name, const std::string& expected, const std::string& seen) {
      result.fields.push_back({prefix + name, expected, seen});
    };
    for (const Field<Machine>& field : Machine::fields()) {
      if (field.usual.empty() || (!field.always && !event.expects)) continue;
      const bool named = std::any_of(event.expected.begin(), event.expected.end(),
                                     [&](const auto& one) { return one.field == &field; });
      if (!named) add(std::string{field.key}, std::string{field.usual}, field.seen(machine, 0, 0));
    }
    for (const Expected<Machine>& one : event.expected)
      add(one.name, one.value, one.field->seen(machine, one.unit, one.argument));
  }

  static constexpr std::uint64_t most_repeats = 100'000;
  static constexpr std::size_t most_events = 100'000;

  std::size_t units_;
  std::vector<Event> events_;
};

}  // namespace svmsim::apic::conformance
