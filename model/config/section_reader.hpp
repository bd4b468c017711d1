#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "model/config/parameters.hpp"
#include "model/config/raw_tree.hpp"

namespace svmsim::model {

/// Checks a value against its declaration. Returns nothing and adds the problems when it does not fit.
/// `path` is what the user calls it ("vm.web.pin").
[[nodiscard]] std::optional<SettingValue> check_value(const Parameter& declaration, const RawValue& value,
                                                      const std::string& path,
                                                      std::vector<Problem>& problems);

/// Adds the problem of a key that no declaration knows: not modelled yet, or unknown with the nearest known
/// path. `declared_prefix` is the table's path in the declarations ("vm"), `path` the user's ("vm.web").
void report_unknown_key(const RawValue& value, const std::string& key, const std::string& declared_prefix,
                        const std::string& path, const std::vector<std::string>& known_keys,
                        std::vector<Problem>& problems);

/// A problem unless `value` is a table; the table otherwise.
[[nodiscard]] const RawTable* require_table(const RawValue& value, const std::string& path,
                                            std::vector<Problem>& problems);

[[nodiscard]] std::string join_path(const std::string& prefix, const std::string& key);

/// Reads a table into `owner`: every value that fits is set, everything else becomes a problem.
/// `other_keys` are sub-tables that the caller reads itself.
template <class Owner>
void read_section(const RawValue& raw, const std::vector<Binding<Owner>>& bindings,
                  const std::string& declared_prefix, const std::string& path,
                  const std::vector<std::string>& other_keys, Owner& owner, std::vector<Problem>& problems) {
  const RawTable* table = require_table(raw, path, problems);
  if (table == nullptr) return;
  for (const auto& [key, value] : *table) {
    if (std::find(other_keys.begin(), other_keys.end(), key) != other_keys.end()) continue;
    const auto binding = std::find_if(
        bindings.begin(), bindings.end(),
        [&name = key](const Binding<Owner>& candidate) { return candidate.declaration.key() == name; });
    if (binding == bindings.end()) {
      std::vector<std::string> known = other_keys;
      for (const auto& candidate : bindings)
        known.push_back(candidate.declaration.key());
      report_unknown_key(value, key, declared_prefix, path, known, problems);
      continue;
    }
    if (const auto setting = check_value(binding->declaration, value, join_path(path, key), problems)) {
      binding->set(owner, *setting);
    }
  }
}

}  // namespace svmsim::model
