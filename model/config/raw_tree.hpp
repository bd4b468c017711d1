#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "svm/user_error.hpp"

namespace svmsim::model {

struct RawValue;
using RawList = std::vector<RawValue>;
using RawTable = std::vector<std::pair<std::string, RawValue>>;  ///< in the order of the input, keys unique

/// A value whose type no parameter has (a date, null); the text says which, for the error.
struct RawForeign {
  std::string what;
};

/// A scenario as read, before validation: one tree for a TOML file, a Python dict and `--set` overrides, each
/// value with the place it came from.
struct RawValue {
  std::variant<bool, std::int64_t, double, std::string, RawList, RawTable, RawForeign> value;
  std::string source;     ///< file name, "<dict>" or "--set"
  std::size_t line = 0;   ///< of the key in a file; 0 = none
  std::string bare_text;  ///< of an override: the text as typed; a value that reads as another type may mean
                          ///< this string

  [[nodiscard]] const RawTable* table() const { return std::get_if<RawTable>(&value); }
  [[nodiscard]] RawTable* table() { return std::get_if<RawTable>(&value); }
  [[nodiscard]] const RawList* list() const { return std::get_if<RawList>(&value); }
  [[nodiscard]] RawList* list() { return std::get_if<RawList>(&value); }
  /// The value in a table under `key`; nullptr when there is none, or this is no table.
  [[nodiscard]] const RawValue* find(std::string_view key) const;
  [[nodiscard]] RawValue* find(std::string_view key);
  /// The value in words for an error message: `the string "x"`, `a table`.
  [[nodiscard]] std::string in_words() const;
};

/// Reads TOML text. A syntax error becomes a problem with its line and column, and the result an empty table.
[[nodiscard]] RawValue read_toml(std::string_view text, const std::string& source,
                                 std::vector<Problem>& problems);

/// Reads the JSON text of a Python dict; problems as for read_toml.
[[nodiscard]] RawValue read_json(std::string_view text, const std::string& source,
                                 std::vector<Problem>& problems);

/// The whole file, or a problem when it does not exist or cannot be read. `path` is the key that named the
/// file.
[[nodiscard]] std::string read_text_file(const std::string& file, const Problem& where,
                                         std::vector<Problem>& problems);

/// A problem at the place of a value.
[[nodiscard]] Problem problem_at(const RawValue& value, std::string path, std::string message,
                                 std::string nearest = {});

}  // namespace svmsim::model
