#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "svm/toml_table.hpp"

namespace svmsim::svm::conformance {

/// A value of a case file with the line it stands on. Unlike a TOML node it can be copied with its line, so
/// that a row of a table can be put into a case and a mistake in it is still reported where the row stands.
struct CaseNode {
  enum class Kind : std::uint8_t { boolean, integer, text, list, table, other };

  Kind kind = Kind::table;
  std::size_t line = 0;
  bool hexadecimal = false;                               ///< an integer that was written so
  bool negative = false;                                  ///< of an integer
  std::uint64_t number = 0;                               ///< of an integer (two's complement) or boolean
  std::string text;                                       ///< of a text; of `other` what it is
  std::vector<CaseNode> items;                            ///< of a list
  std::vector<std::pair<std::string, CaseNode>> entries;  ///< of a table

  [[nodiscard]] const CaseNode* find(std::string_view key) const noexcept;
  /// "an integer", "a table", ...
  [[nodiscard]] std::string_view kind_text() const noexcept;
};

/// Parses TOML. What is no TOML is a problem, and the result then has no entries.
[[nodiscard]] CaseNode parse_case_file(std::string_view text, const std::string& source,
                                       TomlProblems& problems);

/// A text such as "wrmsr msr=0x10 value=5 privileged" as the table that means the same: the first word is
/// `do`, a word without a value is 1.
[[nodiscard]] CaseNode table_of_words(const CaseNode& text);

/// A copy of `node` in which the parameters of `row` replace "$name": a text that is nothing else becomes the
/// parameter's value with its type, and "$name" or "${name}" within a text its spelling. `used` collects the
/// names. Unknown names are problems at `path`.
[[nodiscard]] CaseNode substitute(const CaseNode& node, const CaseNode& row, const std::string& path,
                                  std::vector<std::string>& used, TomlProblems& problems);

}  // namespace svmsim::svm::conformance
