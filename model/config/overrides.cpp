#include "model/config/overrides.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "model/config/parameters.hpp"

namespace svmsim::model {

namespace {

using Problems = std::vector<Problem>;
using Path = std::vector<std::string>;

constexpr const char* set_option = "--set";

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// The parts of a dotted TOML key; empty when it is none.
Path parse_key(const std::string& key) {
  Problems ignored;
  const RawValue parsed = read_toml(key + " = 0", set_option, ignored);
  Path path;
  for (const RawValue* value = &parsed; value->table() != nullptr; value = &value->table()->front().second) {
    if (value->table()->size() != 1) return {};
    path.push_back(value->table()->front().first);
  }
  return path;
}

RawValue make(std::variant<bool, std::int64_t, double, std::string, RawList, RawTable, RawForeign> value) {
  RawValue result;
  result.value = std::move(value);
  result.source = set_option;
  return result;
}

void forget_lines(RawValue& value) {
  value.line = 0;
  if (RawList* list = value.list()) {
    for (RawValue& element : *list)
      forget_lines(element);
  } else if (RawTable* table = value.table()) {
    for (auto& [key, element] : *table)
      forget_lines(element);
  }
}

/// False after adding a problem.
bool parse_value(const std::string& text, const std::string& key, RawValue& value, Problems& problems) {
  Problems syntax;
  RawValue parsed = read_toml("value = " + text, set_option, syntax);
  if (syntax.empty() && parsed.table()->size() == 1) {
    value = std::move(parsed.table()->front().second);
    forget_lines(value);
    value.bare_text = text;
    return true;
  }
  // A bare word may stand for a string; what starts like another TOML value was meant as one.
  if (text.empty() || std::string("[{\"'").find(text.front()) != std::string::npos) {
    problems.push_back({set_option, 0, key, fmt::format("\"{}\" is not a TOML value", text), ""});
    return false;
  }
  value = make(text);
  value.bare_text = text;
  return true;
}

void set_in_table(RawValue& target, const Path& path, std::size_t from, const std::string& key,
                  const RawValue& value, Problems& problems) {
  RawTable* table = target.table();
  if (table == nullptr) {
    problems.push_back(
        {set_option, 0, key, fmt::format("{} is {}, not a table", path[from - 1], target.in_words()), ""});
    return;
  }
  RawValue* child = target.find(path[from]);
  if (child == nullptr) {
    table->emplace_back(path[from], make(RawTable{}));
    child = &table->back().second;
  }
  if (from + 1 == path.size()) {
    *child = value;
  } else {
    set_in_table(*child, path, from + 1, key, value, problems);
  }
}

std::int64_t count_of(const RawValue& vm) {
  const RawValue* count = vm.find("count");
  const auto* number = count == nullptr ? nullptr : std::get_if<std::int64_t>(&count->value);
  return number != nullptr && *number >= 1 && *number <= 1024 ? *number : 1;
}

bool is_vm_key(const std::string& name) {
  if (name == "workload") return true;
  for (const auto& binding : vm_parameters()) {
    if (binding.declaration.key() == name) return true;
  }
  const auto& later = later_parameters();
  return std::find(later.begin(), later.end(), "vm." + name) != later.end();
}

/// Replaces a table with a count by that many tables with a name each.
void split(RawList& vms, std::size_t index, const std::vector<std::string>& names) {
  RawList copies;
  for (const std::string& name : names) {
    RawValue copy = vms[index];
    RawTable& table = *copy.table();
    table.erase(
        std::remove_if(table.begin(), table.end(),
                       [](const auto& entry) { return entry.first == "count" || entry.first == "name"; }),
        table.end());
    RawValue text = make(name);
    text.source = copy.source;
    text.line = copy.line;
    table.emplace(table.begin(), "name", std::move(text));
    copies.push_back(std::move(copy));
  }
  const auto at = vms.erase(vms.begin() + static_cast<std::ptrdiff_t>(index));
  vms.insert(at, copies.begin(), copies.end());
}

/// One `--set`, parsed.
struct Override {
  std::string key;
  Path path;
  RawValue value;
};

enum class Pass : std::uint8_t { general, single_vms };

/// True when done; false in the general pass for an override of one VM out of a table with a count, which has
/// to wait until all tables have their final count and name.
bool set_in_vms(RawValue& root, const Override& override_, Pass pass, Problems& problems) {
  const auto& [key, path, value] = override_;
  RawValue* vms = root.find("vm");
  if (vms == nullptr) {
    RawValue list = make(RawList{make(RawTable{})});
    root.table()->emplace_back("vm", std::move(list));
    vms = &root.table()->back().second;
  }
  RawList* list = vms->list();
  if (list == nullptr) return true;  // reported when the scenario is read
  const bool tables =
      std::all_of(list->begin(), list->end(), [](const RawValue& vm) { return vm.table() != nullptr; });
  if (!tables) return true;

  const auto names = vm_names(*vms);
  std::vector<std::string> known;
  for (std::size_t i = 0; i < list->size(); ++i) {
    known.insert(known.end(), names[i].begin(), names[i].end());
    const RawValue* own = (*list)[i].find("name");
    const auto* text = own == nullptr ? nullptr : std::get_if<std::string>(&own->value);
    if (text != nullptr && *text == path[1] && path.size() > 2) {
      set_in_table((*list)[i], path, 2, key, value, problems);
      return true;
    }
    const auto one = std::find(names[i].begin(), names[i].end(), path[1]);
    if (one != names[i].end() && path.size() > 2) {
      if (pass == Pass::general) return false;
      const auto offset = static_cast<std::size_t>(one - names[i].begin());
      if (names[i].size() > 1) split(*list, i, names[i]);
      set_in_table((*list)[i + offset], path, 2, key, value, problems);
      return true;
    }
  }
  if (path.size() > 2 && !is_vm_key(path[1])) {
    if (pass == Pass::general) return false;
    problems.push_back(
        {set_option, 0, key, fmt::format("there is no VM named {}", path[1]), nearest_name(path[1], known)});
    return true;
  }
  for (RawValue& vm : *list)
    set_in_table(vm, path, 1, key, value, problems);
  return true;
}

}  // namespace

std::vector<std::vector<std::string>> vm_names(const RawValue& vms) {
  std::vector<std::vector<std::string>> result;
  std::int64_t index = 0;
  for (const RawValue& vm : *vms.list()) {
    std::vector<std::string> names;
    const std::int64_t count = count_of(vm);
    const RawValue* own = vm.find("name");
    const auto* name = own == nullptr ? nullptr : std::get_if<std::string>(&own->value);
    for (std::int64_t i = 0; i < count; ++i) {
      if (name == nullptr) {
        names.push_back(fmt::format("vm{}", index + i));
      } else {
        names.push_back(count == 1 ? *name : fmt::format("{}{}", *name, i));
      }
    }
    index += count;
    result.push_back(std::move(names));
  }
  return result;
}

void apply_overrides(RawValue& root, const std::vector<std::string>& overrides, Problems& problems) {
  std::vector<Override> single_vms;
  for (const std::string& text : overrides) {
    const auto equals = text.find('=');
    Override parsed;
    parsed.key = trimmed(text.substr(0, equals));
    parsed.path = parse_key(parsed.key);
    if (equals == std::string::npos || parsed.path.empty()) {
      problems.push_back({set_option, 0, "", fmt::format("\"{}\" is not key=value", text), ""});
      continue;
    }
    if (!parse_value(trimmed(text.substr(equals + 1)), parsed.key, parsed.value, problems)) continue;
    if (parsed.path.front() != "vm" || parsed.path.size() == 1) {
      set_in_table(root, parsed.path, 0, parsed.key, parsed.value, problems);
    } else if (!set_in_vms(root, parsed, Pass::general, problems)) {
      single_vms.push_back(std::move(parsed));
    }
  }
  for (const Override& one : single_vms)
    set_in_vms(root, one, Pass::single_vms, problems);
}

}  // namespace svmsim::model
