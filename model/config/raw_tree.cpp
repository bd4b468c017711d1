#include "model/config/raw_tree.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>

namespace svmsim::model {

namespace {

constexpr int max_depth = 32;  // far deeper than any scenario; keeps the recursion below bounded

template <class Table>
auto find_in(Table* table, std::string_view key) -> decltype(&table->front().second) {
  if (table == nullptr) return nullptr;
  for (auto& [name, value] : *table) {
    if (name == key) return &value;
  }
  return nullptr;
}

RawValue convert(const toml::node& node, const std::string& source, int depth,
                 std::vector<Problem>& problems);

RawValue convert_table(const toml::table& table, const std::string& source, int depth,
                       std::vector<Problem>& problems) {
  RawTable result;
  for (const auto& [key, node] : table) {
    RawValue value = convert(node, source, depth + 1, problems);
    if (key.source().begin.line != 0) value.line = key.source().begin.line;
    result.emplace_back(std::string(key.str()), std::move(value));
  }
  // toml++ sorts keys by name; the order of the file is what a user wants to see problems in.
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.second.line < b.second.line; });
  RawValue value;
  value.value = std::move(result);
  value.source = source;
  value.line = table.source().begin.line;
  return value;
}

RawValue convert(const toml::node& node, const std::string& source, int depth,
                 std::vector<Problem>& problems) {
  RawValue value;
  value.source = source;
  value.line = node.source().begin.line;
  if (depth > max_depth) {
    problems.push_back(problem_at(value, "", "values are nested too deeply"));
    value.value = RawForeign{"a deeply nested value"};
    return value;
  }
  if (const toml::table* table = node.as_table()) return convert_table(*table, source, depth, problems);
  if (const toml::array* array = node.as_array()) {
    RawList list;
    for (const toml::node& element : *array)
      list.push_back(convert(element, source, depth + 1, problems));
    value.value = std::move(list);
  } else if (const auto* boolean = node.as_boolean()) {
    value.value = boolean->get();
  } else if (const auto* integer = node.as_integer()) {
    value.value = integer->get();
  } else if (const auto* real = node.as_floating_point()) {
    value.value = real->get();
  } else if (const auto* text = node.as_string()) {
    value.value = text->get();
  } else {
    value.value = RawForeign{"a date or time"};
  }
  return value;
}

RawValue convert(const nlohmann::ordered_json& json, const std::string& source, int depth,
                 std::vector<Problem>& problems) {
  RawValue value;
  value.source = source;
  if (depth > max_depth) {
    problems.push_back(problem_at(value, "", "values are nested too deeply"));
    value.value = RawForeign{"a deeply nested value"};
    return value;
  }
  if (json.is_object()) {
    RawTable table;
    for (const auto& [key, element] : json.items())
      table.emplace_back(key, convert(element, source, depth + 1, problems));
    value.value = std::move(table);
  } else if (json.is_array()) {
    RawList list;
    for (const auto& element : json)
      list.push_back(convert(element, source, depth + 1, problems));
    value.value = std::move(list);
  } else if (json.is_boolean()) {
    value.value = json.get<bool>();
  } else if (json.is_number_unsigned() &&
             json.get<std::uint64_t>() >
                 static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    value.value = RawForeign{"an integer beyond 64 bits"};
  } else if (json.is_number_integer()) {
    value.value = json.get<std::int64_t>();
  } else if (json.is_number_float()) {
    value.value = json.get<double>();
  } else if (json.is_string()) {
    value.value = json.get<std::string>();
  } else {
    value.value = RawForeign{"null (None)"};
  }
  return value;
}

RawValue empty_table(const std::string& source) {
  RawValue value;
  value.value = RawTable{};
  value.source = source;
  return value;
}

}  // namespace

const RawValue* RawValue::find(std::string_view key) const {
  return find_in(table(), key);
}
RawValue* RawValue::find(std::string_view key) {
  return find_in(table(), key);
}

std::string RawValue::in_words() const {
  struct Words {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return fmt::format("the integer {}", v); }
    std::string operator()(double v) const { return fmt::format("the float {}", v); }
    std::string operator()(const std::string& v) const { return fmt::format("the string \"{}\"", v); }
    std::string operator()(const RawList&) const { return "a list"; }
    std::string operator()(const RawTable&) const { return "a table"; }
    std::string operator()(const RawForeign& v) const { return v.what; }
  };
  return std::visit(Words{}, value);
}

RawValue read_toml(std::string_view text, const std::string& source, std::vector<Problem>& problems) {
  try {
    return convert_table(toml::parse(text), source, 0, problems);
  } catch (const toml::parse_error& error) {
    const auto where = error.source().begin;
    problems.push_back({source, where.line, "",
                        fmt::format("column {}: TOML syntax error: {}", where.column, error.description()),
                        ""});
    return empty_table(source);
  }
}

RawValue read_json(std::string_view text, const std::string& source, std::vector<Problem>& problems) {
  try {
    const auto json = nlohmann::ordered_json::parse(text.begin(), text.end());
    if (!json.is_object()) {
      problems.push_back({source, 0, "", "a scenario is a table of sections (host, kvm, vm, run)", ""});
      return empty_table(source);
    }
    return convert(json, source, 0, problems);
  } catch (const nlohmann::ordered_json::exception& error) {
    problems.push_back({source, 0, "", fmt::format("not JSON: {}", error.what()), ""});
    return empty_table(source);
  }
}

std::string read_text_file(const std::string& file, const Problem& where, std::vector<Problem>& problems) {
  Problem problem = where;
  // Named by a key, the file is in the message; given by itself, it is the source.
  if (problem.path.empty()) problem.source = file;
  const std::string name = problem.path.empty() ? "the file" : "the file " + file;
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    problem.message = name + " does not exist";
  } else if (std::filesystem::is_directory(status)) {
    problem.message = name + " is a directory";
  } else {
    std::ifstream stream(file, std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    if (stream.is_open() && !stream.bad()) return std::move(text).str();
    problem.message = name + " cannot be read";
  }
  problems.push_back(std::move(problem));
  return {};
}

Problem problem_at(const RawValue& value, std::string path, std::string message, std::string nearest) {
  return {value.source, value.line, std::move(path), std::move(message), std::move(nearest)};
}

}  // namespace svmsim::model
