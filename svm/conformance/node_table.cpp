#include "svm/conformance/node_table.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace svmsim::svm::conformance {

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::string digits;
  std::copy_if(text.begin(), text.end(), std::back_inserter(digits), [](char c) { return c != '_'; });
  int base = 10;
  std::size_t begin = 0;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'b')) {
    base = digits[1] == 'x' ? 16 : 2;
    begin = 2;
  }
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data() + begin, end, value, base);
  if (error != std::errc{} || stop != end || begin == digits.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> number_of(const CaseNode& node, const std::string& path, std::uint64_t maximum,
                                       TomlProblems& problems) {
  std::uint64_t value = node.number;
  if (node.kind == CaseNode::Kind::text) {
    const auto parsed = parse_number(node.text);
    if (!parsed) {
      problems.add(node.line, path, fmt::format("must be a number, not \"{}\"", node.text));
      return std::nullopt;
    }
    value = *parsed;
  } else if (node.kind != CaseNode::Kind::integer && node.kind != CaseNode::Kind::boolean) {
    problems.add(node.line, path, fmt::format("must be a number, not {}", node.kind_text()));
    return std::nullopt;
  }
  if (node.negative) {
    // Two's complement: the bits above the field are all copies of its highest bit.
    const std::uint64_t above = ~(maximum >> 1);
    if ((value & above) == above) return value & maximum;
    problems.add(node.line, path,
                 fmt::format("is {}, which the field cannot hold", static_cast<std::int64_t>(value)));
    return std::nullopt;
  }
  if (value > maximum) {
    problems.add(node.line, path, fmt::format("is {:#x}, but must be at most {:#x}", value, maximum));
    return std::nullopt;
  }
  return value;
}

NodeTable::NodeTable(const CaseNode& node, std::string path, TomlProblems& problems)
    : node_(node), path_(std::move(path)), problems_(problems) {
  if (node.kind != CaseNode::Kind::table)
    problems_.add(node.line, path_, fmt::format("must be a table, not {}", node.kind_text()));
}

std::string NodeTable::path(std::string_view key) const {
  if (path_.empty()) return std::string{key};
  return key.empty() ? path_ : fmt::format("{}.{}", path_, key);
}

bool NodeTable::knows(std::string_view key) const {
  return std::find(known_.begin(), known_.end(), key) != known_.end();
}

const CaseNode* NodeTable::get(std::string_view key) {
  if (!knows(key)) known_.emplace_back(key);
  return node_.find(key);
}

const CaseNode* NodeTable::of_kind(std::string_view key, CaseNode::Kind kind) {
  const CaseNode* value = get(key);
  if (value == nullptr || value->kind == kind) return value;
  CaseNode wanted;
  wanted.kind = kind;
  problem(key, value->line, fmt::format("must be {}, not {}", wanted.kind_text(), value->kind_text()));
  return nullptr;
}

std::optional<std::string> NodeTable::text(std::string_view key, bool required) {
  const CaseNode* value = of_kind(key, CaseNode::Kind::text);
  if (value == nullptr) {
    if (required && node_.find(key) == nullptr) problem(key, node_.line, "is missing");
    return std::nullopt;
  }
  if (required && value->text.empty()) problem(key, value->line, "must not be empty");
  return value->text;
}

std::optional<std::uint64_t> NodeTable::number(std::string_view key, std::uint64_t maximum) {
  const CaseNode* value = get(key);
  return value != nullptr ? number_of(*value, path(key), maximum, problems_) : std::nullopt;
}

std::optional<bool> NodeTable::boolean(std::string_view key) {
  const CaseNode* value = get(key);
  if (value == nullptr) return std::nullopt;
  const bool digit = value->kind == CaseNode::Kind::integer && value->number <= 1;
  // Words of a text: "level=1".
  if (value->kind == CaseNode::Kind::text) {
    for (const std::string_view word : {"0", "false", "1", "true"})
      if (value->text == word) return word == "1" || word == "true";
  }
  if (value->kind != CaseNode::Kind::boolean && !digit) {
    problem(key, value->line, fmt::format("must be true or false, not {}", value->kind_text()));
    return std::nullopt;
  }
  return value->number != 0;
}

std::vector<std::uint64_t> NodeTable::numbers(std::string_view key, std::uint64_t maximum) {
  std::vector<std::uint64_t> result;
  const CaseNode* value = get(key);
  if (value == nullptr) return result;
  const auto add = [&](const CaseNode& node, const std::string& where) {
    if (const auto number = number_of(node, where, maximum, problems_)) result.push_back(*number);
  };
  if (value->kind != CaseNode::Kind::list) {
    add(*value, path(key));
    return result;
  }
  for (std::size_t i = 0; i < value->items.size(); ++i)
    add(value->items[i], fmt::format("{}[{}]", path(key), i));
  return result;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> NodeTable::number_pairs(std::string_view key,
                                                                             std::uint64_t maximum_key,
                                                                             std::uint64_t maximum) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> result;
  const CaseNode* value = table(key);
  if (value == nullptr) return result;
  for (const auto& [name, entry] : value->entries) {
    const std::string where = path(fmt::format("{}.{}", key, name));
    const auto number = parse_number(name);
    if (!number || *number > maximum_key) {
      problems_.add(entry.line, where, fmt::format("must be a number of at most {:#x}", maximum_key));
    } else if (const auto content = number_of(entry, where, maximum, problems_)) {
      result.emplace_back(*number, *content);
    }
  }
  return result;
}

void NodeTable::finish() {
  for (const auto& [key, value] : node_.entries) {
    if (knows(key)) continue;
    problems_.add(value.line, path(key), "is not a known key", nearest_name(key, known_));
  }
}

}  // namespace svmsim::svm::conformance
