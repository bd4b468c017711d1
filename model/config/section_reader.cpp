#include "model/config/section_reader.hpp"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace svmsim::model {

namespace {

using Problems = std::vector<Problem>;

std::string amount(const Parameter& declaration, std::int64_t value) {
  return declaration.type == ParameterType::duration ? format_duration(value) : fmt::format("{}", value);
}

std::string wanted(const Parameter& declaration) {
  switch (declaration.type) {
    case ParameterType::boolean:
      return "true or false";
    case ParameterType::integer:
      return "an integer";
    case ParameterType::duration:
      return "a duration (an integer of ns, or a string such as \"10ms\")";
    case ParameterType::text:
      return "a string";
    case ParameterType::choice:
      return fmt::format("one of the strings {}", fmt::join(declaration.choices, ", "));
    case ParameterType::integer_list:
      return "a list of integers";
    case ParameterType::choice_list:
      return "a list of strings";
  }
  return "";
}

Problem wrong_type(const Parameter& declaration, const RawValue& value, const std::string& path) {
  std::string nearest;
  if (const double* real = std::get_if<double>(&value.value)) {
    const bool whole = std::isfinite(*real) && std::floor(*real) == *real && std::fabs(*real) < 1e15;
    if (declaration.type == ParameterType::integer && whole)
      nearest = fmt::format("{}", static_cast<std::int64_t>(*real));
  }
  if (declaration.type == ParameterType::choice) {
    for (const std::string& choice : declaration.choices) {
      const bool same = (std::holds_alternative<double>(value.value) &&
                         choice == fmt::format("{}", std::get<double>(value.value))) ||
                        (std::holds_alternative<std::int64_t>(value.value) &&
                         choice == fmt::format("{}", std::get<std::int64_t>(value.value)));
      if (same) nearest = fmt::format("\"{}\"", choice);
    }
  }
  return problem_at(value, path, fmt::format("expected {}, found {}", wanted(declaration), value.in_words()),
                    nearest);
}

/// The values that a later version will have are an error of their own; true when it was one.
bool is_later(const Parameter& declaration, const std::string& text, const RawValue& value,
              const std::string& path, Problems& problems) {
  if (std::find(declaration.later.begin(), declaration.later.end(), text) == declaration.later.end())
    return false;
  problems.push_back(problem_at(value, path, fmt::format("{} is not modelled yet in this version", text)));
  return true;
}

std::optional<std::int64_t> in_range(const Parameter& declaration, std::int64_t number, const RawValue& value,
                                     const std::string& path, Problems& problems) {
  if (number >= declaration.minimum && number <= declaration.maximum) return number;
  const std::string range = declaration.maximum == std::numeric_limits<std::int64_t>::max()
                                ? fmt::format("at least {}", amount(declaration, declaration.minimum))
                                : fmt::format("{} to {}", amount(declaration, declaration.minimum),
                                              amount(declaration, declaration.maximum));
  const std::int64_t nearest = number < declaration.minimum ? declaration.minimum : declaration.maximum;
  problems.push_back(problem_at(value, path,
                                fmt::format("{} is out of range, {}", amount(declaration, number), range),
                                amount(declaration, nearest)));
  return std::nullopt;
}

/// What the user meant: what only this candidate starts with, or else the smallest edit distance.
std::string nearest_or_longer(const std::string& text, const std::vector<std::string>& candidates) {
  std::vector<std::string> longer;
  for (const std::string& candidate : candidates) {
    if (text.size() >= 2 && candidate.rfind(text, 0) == 0) longer.push_back(candidate);
  }
  return longer.size() == 1 ? longer.front() : nearest_name(text, candidates);
}

bool is_choice(const Parameter& declaration, const std::string& text, const RawValue& value,
               const std::string& path, Problems& problems) {
  if (std::find(declaration.choices.begin(), declaration.choices.end(), text) != declaration.choices.end())
    return true;
  if (is_later(declaration, text, value, path, problems)) return false;
  std::string message = fmt::format("unknown value \"{}\"", text);
  if (declaration.choices.size() <= 8)
    message += fmt::format(", expected {}", fmt::join(declaration.choices, ", "));
  problems.push_back(problem_at(value, path, message, nearest_or_longer(text, declaration.choices)));
  return false;
}

std::optional<SettingValue> check_list(const Parameter& declaration, const RawValue& value,
                                       const std::string& path, Problems& problems) {
  const RawList* list = value.list();
  if (list == nullptr) {
    problems.push_back(wrong_type(declaration, value, path));
    return std::nullopt;
  }
  const std::size_t before = problems.size();
  std::vector<std::int64_t> integers;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const RawValue& element = (*list)[i];
    const std::string element_path = fmt::format("{}[{}]", path, i);
    if (declaration.type == ParameterType::integer_list) {
      const auto* number = std::get_if<std::int64_t>(&element.value);
      if (number == nullptr) {
        problems.push_back(problem_at(element, element_path,
                                      fmt::format("expected an integer, found {}", element.in_words())));
      } else if (in_range(declaration, *number, element, element_path, problems)) {
        integers.push_back(*number);
      }
    } else {
      const auto* text = std::get_if<std::string>(&element.value);
      if (text == nullptr) {
        problems.push_back(problem_at(element, element_path,
                                      fmt::format("expected a string, found {}", element.in_words())));
      } else if (is_choice(declaration, *text, element, element_path, problems)) {
        texts.push_back(*text);
      }
    }
  }
  if (problems.size() != before) return std::nullopt;
  if (declaration.type == ParameterType::integer_list) return SettingValue(std::move(integers));
  return SettingValue(std::move(texts));
}

std::optional<SettingValue> check_number(const Parameter& declaration, const RawValue& value,
                                         const std::string& path, Problems& problems) {
  std::optional<std::int64_t> number;
  if (const auto* integer = std::get_if<std::int64_t>(&value.value)) {
    number = *integer;
  } else if (const auto* text = std::get_if<std::string>(&value.value);
             text != nullptr && declaration.type == ParameterType::duration) {
    number = parse_duration(*text);
    if (!number) {
      problems.push_back(problem_at(
          value, path,
          fmt::format("\"{}\" is no duration; write a whole number of ns, or a number with s, ms, us or ns "
                      "that gives one",
                      *text)));
      return std::nullopt;
    }
  }
  if (!number) {
    problems.push_back(wrong_type(declaration, value, path));
    return std::nullopt;
  }
  if (const auto checked = in_range(declaration, *number, value, path, problems))
    return SettingValue(*checked);
  return std::nullopt;
}

}  // namespace

std::optional<SettingValue> check_value(const Parameter& declaration, const RawValue& value,
                                        const std::string& path, Problems& problems) {
  switch (declaration.type) {
    case ParameterType::boolean:
      if (const bool* boolean = std::get_if<bool>(&value.value)) {
        if (is_later(declaration, *boolean ? "true" : "false", value, path, problems)) return std::nullopt;
        return SettingValue(*boolean);
      }
      break;
    case ParameterType::integer:
    case ParameterType::duration:
      return check_number(declaration, value, path, problems);
    case ParameterType::text:
      if (const auto* text = std::get_if<std::string>(&value.value)) {
        if (is_later(declaration, *text, value, path, problems)) return std::nullopt;
        if (!text->empty() || declaration.fallback == SettingValue(std::string{})) return SettingValue(*text);
        problems.push_back(problem_at(value, path, "must not be empty"));
        return std::nullopt;
      }
      break;
    case ParameterType::choice: {
      const auto* text = std::get_if<std::string>(&value.value);
      // `--set host.kernel=6.12`: a TOML float, but no other reading than the string makes sense.
      if (text == nullptr && !value.bare_text.empty()) text = &value.bare_text;
      if (text == nullptr) break;
      if (is_choice(declaration, *text, value, path, problems)) return SettingValue(*text);
      return std::nullopt;
    }
    case ParameterType::integer_list:
    case ParameterType::choice_list:
      return check_list(declaration, value, path, problems);
  }
  problems.push_back(wrong_type(declaration, value, path));
  return std::nullopt;
}

/// Whether a key that is not modelled yet is set to what this version does anyway: off, empty, plain HLT.
static bool says_what_is_modelled(const std::string& key, const RawValue& value) {
  if (const auto* flag = std::get_if<bool>(&value.value)) return !*flag;
  if (const RawList* list = value.list()) return list->empty();
  if (const auto* text = std::get_if<std::string>(&value.value)) {
    return (key == "idle" && *text == "hlt") || (key == "pit" && *text == "none");
  }
  return false;
}

void report_unknown_key(const RawValue& value, const std::string& key, const std::string& declared_prefix,
                        const std::string& path, const std::vector<std::string>& known_keys,
                        Problems& problems) {
  const std::string full = join_path(path, key);
  const auto& later = later_parameters();
  if (std::find(later.begin(), later.end(), join_path(declared_prefix, key)) != later.end()) {
    if (!says_what_is_modelled(key, value))
      problems.push_back(problem_at(value, full, "not modelled yet in this version"));
    return;
  }
  // The right key in the wrong table is a likelier mistake than a misspelt one.
  std::string nearest;
  for (const Parameter& parameter : all_parameters()) {
    if (parameter.key() == key && nearest.empty()) nearest = parameter.path;
  }
  if (nearest.empty()) {
    const std::string sibling = nearest_or_longer(key, known_keys);
    if (!sibling.empty()) nearest = join_path(path, sibling);
  }
  if (nearest.empty()) {
    std::vector<std::string> keys;
    for (const Parameter& parameter : all_parameters())
      keys.push_back(parameter.key());
    const std::string elsewhere = nearest_name(key, keys);
    const auto found = std::find(keys.begin(), keys.end(), elsewhere);
    if (found != keys.end()) nearest = all_parameters()[static_cast<std::size_t>(found - keys.begin())].path;
  }
  problems.push_back(problem_at(value, full, "unknown key", nearest));
}

const RawTable* require_table(const RawValue& value, const std::string& path, Problems& problems) {
  const RawTable* table = value.table();
  if (table == nullptr)
    problems.push_back(problem_at(value, path, fmt::format("expected a table, found {}", value.in_words())));
  return table;
}

std::string join_path(const std::string& prefix, const std::string& key) {
  return prefix.empty() ? key : prefix + "." + key;
}

}  // namespace svmsim::model
