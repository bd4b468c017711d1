#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "svm/toml_table.hpp"
#include "workloads/program.hpp"

namespace svmsim::workloads {

enum class ActionPlace : std::uint8_t { body, outside_body, handler };

/// Reads the action lists of a program file; the parameters of `program` are known by then.
class ActionReader {
 public:
  ActionReader(Program& program, TomlProblems& problems) : program_(program), problems_(problems) {}

  /// The list under `key`; empty where it is absent.
  [[nodiscard]] ActionList list(TomlTable& parent, std::string_view key, ActionPlace place);

  /// A number between the bounds, or an integer parameter whose whole range lies between them. `number` stays
  /// as it is where the key is absent or wrong.
  void number(TomlTable& table, std::string_view key, std::uint64_t minimum, std::uint64_t maximum,
              ProgramNumber& number, bool required = false);
  void number(TomlTable& table, std::string_view key, std::uint64_t minimum, std::uint64_t maximum,
              std::optional<ProgramNumber>& number);

  /// Reports what only shows once everything is read: stopwatches that never start or stop, waits for a
  /// vector without a handler.
  void finish();

 private:
  struct Watch {
    std::size_t start_line = 0;
    std::size_t stop_line = 0;
    std::string path;
  };
  struct Wait {
    std::uint8_t vector = 0;
    std::size_t line = 0;
    std::string path;
  };

  [[nodiscard]] std::optional<ProgramAction> action(TomlTable& table, ActionPlace place);
  void operands(TomlTable& table, ProgramAction& action);
  void arguments(TomlTable& table, ProgramAction& action);
  void size(TomlTable& table, ProgramAction& action, std::uint64_t largest, std::uint64_t usual);
  void condition(TomlTable& table, ProgramAction& action);
  void wait(TomlTable& table, ProgramAction& action, ActionPlace place);
  [[nodiscard]] int counter(TomlTable& table);
  [[nodiscard]] int watch(TomlTable& table, std::string_view key, std::size_t Watch::*line);
  [[nodiscard]] std::optional<ProgramNumber> value_of(TomlTable& table, std::string_view key,
                                                      const toml::node& node, std::uint64_t minimum,
                                                      std::uint64_t maximum);
  [[nodiscard]] int parameter(TomlTable& table, std::string_view key, const toml::node& node,
                              std::string_view reference);

  Program& program_;
  TomlProblems& problems_;
  std::vector<Watch> watches_;  // beside Program::stopwatches
  std::vector<Wait> waits_;
};

}  // namespace svmsim::workloads
