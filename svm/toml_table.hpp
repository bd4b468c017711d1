#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

#include "svm/user_error.hpp"

namespace svmsim {

/// Collects everything that is wrong with one TOML file.
class TomlProblems {
 public:
  explicit TomlProblems(std::string source) : source_(std::move(source)) {}

  void add(std::size_t line, std::string path, std::string message, std::string nearest = {}) {
    problems_.push_back({source_, line, std::move(path), std::move(message), std::move(nearest)});
  }
  [[nodiscard]] bool empty() const noexcept { return problems_.empty(); }
  /// The problems by line; the collection is empty afterwards.
  [[nodiscard]] std::vector<Problem> take();

 private:
  std::string source_;
  std::vector<Problem> problems_;
};

[[nodiscard]] inline std::size_t line_of(const toml::node& node) {
  return node.source().begin.line;
}
/// "an integer", "a table", ...
[[nodiscard]] std::string_view type_text(const toml::node& node);

/// One TOML table being read: every key asked for is a known one, and finish() reports the others.
class TomlTable {
 public:
  TomlTable(const toml::table& table, std::string path, TomlProblems& problems)
      : table_(table), path_(std::move(path)), problems_(problems) {}

  [[nodiscard]] const toml::node* get(std::string_view key);
  /// As get(), and a missing key is a problem.
  [[nodiscard]] const toml::node* require(std::string_view key);

  /// The value of a key; nothing where it is absent or of another type, which is a problem.
  [[nodiscard]] std::optional<std::string> text(std::string_view key, bool required);
  [[nodiscard]] std::optional<bool> boolean(std::string_view key);
  [[nodiscard]] std::optional<std::uint64_t> integer(std::string_view key, std::uint64_t minimum,
                                                     std::uint64_t maximum, bool required);
  [[nodiscard]] const toml::array* array(std::string_view key);
  [[nodiscard]] const toml::table* table(std::string_view key);

  /// Reports the keys that nobody asked for; `what` names the thing that has no such key ("wrmsr"), or is
  /// empty.
  void finish(std::string_view what = {});

  [[nodiscard]] std::string path(std::string_view key) const;
  [[nodiscard]] const std::string& own_path() const noexcept { return path_; }
  [[nodiscard]] std::size_t line() const { return line_of(table_); }
  [[nodiscard]] TomlProblems& problems() noexcept { return problems_; }
  void wrong_type(std::string_view key, const toml::node& node, std::string_view expected);
  void problem(const toml::node& node, std::string_view key, std::string message, std::string nearest = {}) {
    problems_.add(line_of(node), path(key), std::move(message), std::move(nearest));
  }

 private:
  const toml::table& table_;
  std::string path_;
  TomlProblems& problems_;
  std::vector<std::string> known_;
};

}  // namespace svmsim
