#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "svm/conformance/case_tree.hpp"

namespace svmsim::svm::conformance {

/// A number: an integer, a boolean, or a text such as "0xffff_ffff_fe08_e000" for what TOML's signed integers
/// cannot hold. Negative numbers are taken as two's complement of the width of `maximum`. Nothing, and a
/// problem at `path`, when it is none or too great.
[[nodiscard]] std::optional<std::uint64_t> number_of(const CaseNode& node, const std::string& path,
                                                     std::uint64_t maximum, TomlProblems& problems);
/// The number that a text spells; underscores may separate digits.
[[nodiscard]] std::optional<std::uint64_t> parse_number(std::string_view text);

/// One table of a case file being read: every key asked for is a known one, and finish() reports the others.
class NodeTable {
 public:
  NodeTable(const CaseNode& node, std::string path, TomlProblems& problems);

  /// The value of a key, or null.
  [[nodiscard]] const CaseNode* get(std::string_view key);
  /// As get(); null, and a problem, when the value is of another kind.
  [[nodiscard]] const CaseNode* table(std::string_view key) { return of_kind(key, CaseNode::Kind::table); }
  [[nodiscard]] const CaseNode* list(std::string_view key) { return of_kind(key, CaseNode::Kind::list); }
  [[nodiscard]] std::optional<std::string> text(std::string_view key, bool required);
  [[nodiscard]] std::optional<std::uint64_t> number(std::string_view key, std::uint64_t maximum);
  [[nodiscard]] std::optional<bool> boolean(std::string_view key);
  /// A list of numbers, or one number.
  [[nodiscard]] std::vector<std::uint64_t> numbers(std::string_view key, std::uint64_t maximum);
  /// A table whose keys are numbers ("0x10a" = 5).
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> number_pairs(std::string_view key,
                                                                                  std::uint64_t maximum_key,
                                                                                  std::uint64_t maximum);

  void finish();
  void problem(std::string_view key, std::size_t line, std::string message, std::string nearest = {}) {
    problems_.add(line, path(key), std::move(message), std::move(nearest));
  }
  /// Makes a key known without reading it.
  void know(std::string_view key) { known_.emplace_back(key); }
  [[nodiscard]] bool knows(std::string_view key) const;
  [[nodiscard]] const std::vector<std::string>& known() const noexcept { return known_; }
  [[nodiscard]] std::string path(std::string_view key) const;
  [[nodiscard]] const CaseNode& node() const noexcept { return node_; }
  [[nodiscard]] TomlProblems& problems() noexcept { return problems_; }

 private:
  [[nodiscard]] const CaseNode* of_kind(std::string_view key, CaseNode::Kind kind);

  const CaseNode& node_;
  std::string path_;
  TomlProblems& problems_;
  std::vector<std::string> known_;
};

}  // namespace svmsim::svm::conformance
