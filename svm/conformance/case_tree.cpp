#include "svm/conformance/case_tree.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace svmsim::svm::conformance {

namespace {

/// Deeper nesting has no meaning in a case; the bound keeps the recursion over a hostile file small.
constexpr unsigned most_levels = 32;

CaseNode convert(const toml::node& node, const std::string& path, unsigned level, TomlProblems& problems) {
  CaseNode result;
  result.line = line_of(node);
  if (level > most_levels) {
    problems.add(result.line, path, "is nested too deeply");
    result.kind = CaseNode::Kind::other;
    return result;
  }
  if (const auto* table = node.as_table()) {
    result.kind = CaseNode::Kind::table;
    for (const auto& [key, value] : *table) {
      const std::string name{key.str()};
      const std::string inner = path.empty() ? name : path + "." + name;
      result.entries.emplace_back(name, convert(value, inner, level + 1, problems));
    }
  } else if (const auto* array = node.as_array()) {
    result.kind = CaseNode::Kind::list;
    for (std::size_t i = 0; i < array->size(); ++i) {
      result.items.push_back(convert((*array)[i], fmt::format("{}[{}]", path, i), level + 1, problems));
    }
  } else if (const auto* text = node.as_string()) {
    result.kind = CaseNode::Kind::text;
    result.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    result.kind = CaseNode::Kind::integer;
    result.negative = integer->get() < 0;
    result.hexadecimal =
        (integer->flags() & toml::value_flags::format_as_hexadecimal) != toml::value_flags::none;
    result.number = static_cast<std::uint64_t>(integer->get());
  } else if (const auto* boolean = node.as_boolean()) {
    result.kind = CaseNode::Kind::boolean;
    result.number = boolean->get() ? 1 : 0;
  } else {
    result.kind = CaseNode::Kind::other;
    result.text = std::string{type_text(node)};
  }
  return result;
}

[[nodiscard]] bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// How a parameter is spelt within a text.
[[nodiscard]] std::string spelling(const CaseNode& value) {
  switch (value.kind) {
    case CaseNode::Kind::text:
      return value.text;
    case CaseNode::Kind::boolean:
      return value.number != 0 ? "true" : "false";
    case CaseNode::Kind::integer:
      if (value.negative) return fmt::format("{}", static_cast<std::int64_t>(value.number));
      return value.hexadecimal ? fmt::format("{:#x}", value.number) : fmt::format("{}", value.number);
    default:
      return {};
  }
}

class Substitution {
 public:
  Substitution(const CaseNode& row, std::vector<std::string>& used, TomlProblems& problems)
      : row_(row), used_(used), problems_(problems) {}

  CaseNode apply(const CaseNode& node, const std::string& path) {
    if (node.kind == CaseNode::Kind::text) return text(node, path);
    CaseNode result = node;
    for (std::size_t i = 0; i < result.items.size(); ++i)
      result.items[i] = apply(result.items[i], fmt::format("{}[{}]", path, i));
    for (auto& [key, value] : result.entries)
      value = apply(value, path.empty() ? key : path + "." + key);
    return result;
  }

 private:
  CaseNode text(const CaseNode& node, const std::string& path) {
    const std::string& from = node.text;
    CaseNode result = node;
    result.text.clear();
    for (std::size_t at = 0; at < from.size();) {
      if (from[at] != '$') {
        result.text += from[at++];
        continue;
      }
      const bool braced = at + 1 < from.size() && from[at + 1] == '{';
      const std::size_t begin = at + (braced ? 2 : 1);
      std::size_t end = begin;
      while (end < from.size() && is_name_character(from[end]))
        ++end;
      const std::string name = from.substr(begin, end - begin);
      if (braced && end < from.size() && from[end] == '}') ++end;
      const CaseNode* value = parameter(name, node.line, path);
      if (value == nullptr) return node;
      if (at == 0 && end == from.size()) return *value;
      if (value->kind == CaseNode::Kind::list || value->kind == CaseNode::Kind::table) {
        problems_.add(value->line, path,
                      fmt::format("${} is {}, which does not fit into a text", name, value->kind_text()));
        return node;
      }
      result.text += spelling(*value);
      at = end;
    }
    return result;
  }

  const CaseNode* parameter(const std::string& name, std::size_t line, const std::string& path) {
    if (const CaseNode* value = row_.find(name)) {
      used_.push_back(name);
      return value;
    }
    std::vector<std::string> names;
    for (const auto& [key, value] : row_.entries)
      names.push_back("$" + key);
    problems_.add(line, path, fmt::format("${} is no parameter of this table", name),
                  nearest_name("$" + name, names));
    return nullptr;
  }

  const CaseNode& row_;
  std::vector<std::string>& used_;
  TomlProblems& problems_;
};

}  // namespace

const CaseNode* CaseNode::find(std::string_view key) const noexcept {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == key; });
  return found != entries.end() ? &found->second : nullptr;
}

std::string_view CaseNode::kind_text() const noexcept {
  switch (kind) {
    case Kind::boolean:
      return "a boolean";
    case Kind::integer:
      return "an integer";
    case Kind::text:
      return "a string";
    case Kind::list:
      return "an array";
    case Kind::table:
      return "a table";
    case Kind::other:
      break;
  }
  return text.empty() ? std::string_view{"something else"} : std::string_view{text};
}

CaseNode parse_case_file(std::string_view text, const std::string& source, TomlProblems& problems) {
  try {
    return convert(toml::parse(text, source), "", 0, problems);
  } catch (const toml::parse_error& error) {
    problems.add(error.source().begin.line, "", std::string{error.description()});
    return {};
  }
}

CaseNode table_of_words(const CaseNode& text) {
  CaseNode table;
  table.line = text.line;
  std::string_view rest = text.text;
  while (true) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (rest.empty()) break;
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size());
    CaseNode value;
    value.line = text.line;
    value.kind = CaseNode::Kind::text;
    std::string key{word.substr(0, word.find('='))};
    if (table.entries.empty()) {
      key = "do";
      value.text = std::string{word};
    } else if (word.find('=') == std::string_view::npos) {
      value.kind = CaseNode::Kind::boolean;
      value.number = 1;
    } else {
      value.text = std::string{word.substr(word.find('=') + 1)};
    }
    table.entries.emplace_back(std::move(key), std::move(value));
  }
  return table;
}

CaseNode substitute(const CaseNode& node, const CaseNode& row, const std::string& path,
                    std::vector<std::string>& used, TomlProblems& problems) {
  return Substitution(row, used, problems).apply(node, path);
}

}  // namespace svmsim::svm::conformance
