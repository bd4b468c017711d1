#include "svm/toml_table.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace svmsim {

std::vector<Problem> TomlProblems::take() {
  std::stable_sort(problems_.begin(), problems_.end(),
                   [](const Problem& a, const Problem& b) { return a.line < b.line; });
  return std::exchange(problems_, {});
}

std::string_view type_text(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a floating-point number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

std::string TomlTable::path(std::string_view key) const {
  return path_.empty() ? std::string{key} : fmt::format("{}.{}", path_, key);
}

const toml::node* TomlTable::get(std::string_view key) {
  known_.emplace_back(key);
  return table_.get(key);
}

const toml::node* TomlTable::require(std::string_view key) {
  const toml::node* node = get(key);
  if (node == nullptr) problems_.add(line(), path(key), "is missing");
  return node;
}

void TomlTable::wrong_type(std::string_view key, const toml::node& node, std::string_view expected) {
  problem(node, key, fmt::format("must be {}, not {}", expected, type_text(node)));
}

std::optional<std::string> TomlTable::text(std::string_view key, bool required) {
  const toml::node* node = required ? require(key) : get(key);
  if (node == nullptr) return std::nullopt;
  const toml::value<std::string>* value = node->as_string();
  if (value == nullptr) {
    wrong_type(key, *node, "a string");
    return std::nullopt;
  }
  return value->get();
}

std::optional<bool> TomlTable::boolean(std::string_view key) {
  const toml::node* node = get(key);
  if (node == nullptr) return std::nullopt;
  const toml::value<bool>* value = node->as_boolean();
  if (value == nullptr) {
    wrong_type(key, *node, "true or false");
    return std::nullopt;
  }
  return value->get();
}

std::optional<std::uint64_t> TomlTable::integer(std::string_view key, std::uint64_t minimum,
                                                std::uint64_t maximum, bool required) {
  const toml::node* node = required ? require(key) : get(key);
  if (node == nullptr) return std::nullopt;
  const toml::value<std::int64_t>* value = node->as_integer();
  if (value == nullptr) {
    wrong_type(key, *node, "an integer");
    return std::nullopt;
  }
  const std::int64_t number = value->get();
  if (number < 0 || static_cast<std::uint64_t>(number) < minimum ||
      static_cast<std::uint64_t>(number) > maximum) {
    problem(*node, key, fmt::format("is {}, but must be from {} to {}", number, minimum, maximum));
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(number);
}

const toml::array* TomlTable::array(std::string_view key) {
  const toml::node* node = get(key);
  if (node == nullptr) return nullptr;
  if (!node->is_array()) wrong_type(key, *node, "an array");
  return node->as_array();
}

const toml::table* TomlTable::table(std::string_view key) {
  const toml::node* node = get(key);
  if (node == nullptr) return nullptr;
  if (!node->is_table()) wrong_type(key, *node, "a table");
  return node->as_table();
}

void TomlTable::finish(std::string_view what) {
  for (const auto& [key, node] : table_) {
    const std::string_view name = key.str();
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    problems_.add(line_of(node), path(name),
                  what.empty() ? std::string{"is not a known key"} : fmt::format("is not a key of {}", what),
                  nearest_name(name, known_));
  }
}

}  // namespace svmsim
