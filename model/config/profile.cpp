#include "model/config/profile.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "model/config/section_reader.hpp"
#include "svm/embedded_file.hpp"

namespace svmsim {
const std::vector<EmbeddedFile>& builtin_profile_files();
}

namespace svmsim::model {

namespace {

using Problems = std::vector<Problem>;

constexpr std::int64_t slowest_tsc_hz = 1000 * 1000;
constexpr std::int64_t fastest_tsc_hz = std::int64_t{10} * 1000 * 1000 * 1000;

/// Declarations of a profile's own keys, so that they are checked like a scenario's.
Parameter profile_key(const std::string& name, ParameterType type) {
  Parameter parameter;
  parameter.path = name;
  parameter.type = type;
  if (type == ParameterType::integer) {
    parameter.minimum = slowest_tsc_hz;
    parameter.maximum = fastest_tsc_hz;
  }
  if (type == ParameterType::choice_list) parameter.choices = svm::feature_names();
  return parameter;
}

template <class Value>
void read_required(const RawValue& root, const Parameter& declaration, Value& target, Problems& problems) {
  const RawValue* value = root.find(declaration.path);
  if (value == nullptr) {
    problems.push_back(problem_at(root, declaration.path, "missing"));
    return;
  }
  if (const auto setting = check_value(declaration, *value, declaration.path, problems)) {
    target = static_cast<Value>(
        std::get<std::conditional_t<std::is_integral_v<Value>, std::int64_t, Value>>(*setting));
  }
}

/// The source text of a number: every number of a profile says where it comes from.
std::string read_source(const RawValue& table, const std::string& path, Problems& problems) {
  const RawValue* source = table.find("source");
  const auto* text = source == nullptr ? nullptr : std::get_if<std::string>(&source->value);
  if (text != nullptr && !text->empty()) return *text;
  problems.push_back(
      problem_at(table, path, "has no source; say in one sentence what identified the number"));
  return {};
}

void read_cost(const Binding<Costs>& binding, const RawValue& entry, Profile& profile, Problems& problems) {
  const std::string name = binding.declaration.key();
  const std::string path = "cost." + name;
  if (entry.table() == nullptr) {
    problems.push_back(problem_at(
        entry, path, fmt::format("expected {{value = ..., source = \"...\"}}, found {}", entry.in_words())));
    return;
  }
  for (const auto& [key, value] : *entry.table()) {
    if (key != "value" && key != "source")
      report_unknown_key(value, key, path, path, {"value", "source"}, problems);
  }
  const std::string source = read_source(entry, path, problems);
  const RawValue* value = entry.find("value");
  if (value == nullptr) {
    problems.push_back(problem_at(entry, path, "has no value"));
    return;
  }
  if (const auto setting = check_value(binding.declaration, *value, path, problems)) {
    binding.set(profile.cost, *setting);
    profile.costs.push_back({name, std::get<std::int64_t>(*setting), binding.declaration.unit, source});
  }
}

void read_costs(const RawValue& root, Profile& profile, Problems& problems) {
  const RawValue* costs = root.find("cost");
  if (costs == nullptr) {
    problems.push_back(problem_at(root, "cost", "missing"));
    return;
  }
  const RawTable* table = require_table(*costs, "cost", problems);
  if (table == nullptr) return;
  std::vector<std::string> names;
  for (const auto& binding : cost_parameters()) {
    names.push_back(binding.declaration.key());
    if (const RawValue* entry = costs->find(names.back())) {
      read_cost(binding, *entry, profile, problems);
    } else {
      problems.push_back(problem_at(*costs, "cost." + names.back(), "missing"));
    }
  }
  for (const auto& [key, value] : *table) {
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      const std::string nearest = nearest_name(key, names);
      problems.push_back(
          problem_at(value, "cost." + key, "unknown cost", nearest.empty() ? "" : "cost." + nearest));
    }
  }
}

void read_cstates(const RawValue& states, Profile& profile, Problems& problems) {
  if (states.list() == nullptr) {
    problems.push_back(
        problem_at(states, "cstate", fmt::format("expected [[cstate]] tables, found {}", states.in_words())));
    return;
  }
  std::vector<std::pair<CState, std::string>> read;
  for (const RawValue& state : *states.list()) {
    const std::string path = "cstate";
    auto& [result, source] = read.emplace_back();
    read_section(state, cstate_parameters(), "cstate", path, {"source"}, result, problems);
    if (state.table() != nullptr) {
      source = read_source(state, path, problems);
      for (const char* key : {"name", "latency", "residency", "wake"}) {
        if (state.find(key) == nullptr) problems.push_back(problem_at(state, path + "." + key, "missing"));
      }
    }
  }
  std::stable_sort(read.begin(), read.end(),
                   [](const auto& a, const auto& b) { return a.first.latency_ns < b.first.latency_ns; });
  for (auto& [state, source] : read) {
    profile.cstates.push_back(std::move(state));
    profile.cstate_sources.push_back(std::move(source));
  }
}

}  // namespace

std::vector<std::string> builtin_profile_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : builtin_profile_files())
    names.emplace_back(file.name);
  return names;
}

const Profile& builtin_profile(const std::string& name) {
  // Parsed once; the files are part of the program.
  static const std::map<std::string, Profile> profiles = [] {
    std::map<std::string, Profile> result;
    for (const EmbeddedFile& file : builtin_profile_files()) {
      Problems problems;
      Profile profile = parse_profile(std::string(file.text), std::string(file.name) + ".toml", problems);
      if (!problems.empty()) throw InternalError("built-in profile: " + problems.front().text());
      result.emplace(std::string(file.name), std::move(profile));
    }
    return result;
  }();
  const auto found = profiles.find(name);
  if (found == profiles.end()) throw InternalError("no built-in profile " + name);
  return found->second;
}

Profile parse_profile(const std::string& text, const std::string& source, Problems& problems) {
  const std::size_t before = problems.size();
  Profile profile;
  const RawValue root = read_toml(text, source, problems);
  if (problems.size() != before) return profile;

  read_required(root, profile_key("name", ParameterType::text), profile.name, problems);
  read_required(root, profile_key("doc", ParameterType::text), profile.doc, problems);
  read_required(root, profile_key("cpu", ParameterType::text), profile.cpu, problems);
  read_required(root, profile_key("tsc_hz", ParameterType::integer), profile.tsc_hz, problems);
  if (root.find("family") != nullptr) {
    Parameter family = profile_key("family", ParameterType::integer);
    family.minimum = 0;
    family.maximum = 0xfff;
    read_required(root, family, profile.family, problems);
  }
  std::vector<std::string> features;
  read_required(root, profile_key("features", ParameterType::choice_list), features, problems);
  for (const std::string& feature : features)
    profile.features.set(*svm::feature_of(feature));
  read_costs(root, profile, problems);
  if (const RawValue* states = root.find("cstate")) read_cstates(*states, profile, problems);

  if (const RawValue* governor = root.find("idle_governor")) {
    Parameter declaration = profile_key("idle_governor", ParameterType::choice);
    declaration.choices = {"menu", "teo", "none"};
    if (const auto setting = check_value(declaration, *governor, declaration.path, problems)) {
      const auto& name = std::get<std::string>(*setting);
      if (name == "menu") profile.idle_governor = IdleGovernorKind::menu;
      if (name == "teo") profile.idle_governor = IdleGovernorKind::teo;
      if (name == "none") profile.idle_governor = IdleGovernorKind::none;
    }
  }

  const std::vector<std::string> known{"name",     "doc",  "cpu",    "family",       "tsc_hz",
                                       "features", "cost", "cstate", "idle_governor"};
  for (const auto& [key, value] : *root.table()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      problems.push_back(problem_at(value, key, "unknown key", nearest_name(key, known)));
    }
  }
  return profile;
}

Profile load_profile(const std::string& name_or_path) {
  Problems problems;
  const bool is_path =
      name_or_path.find('/') != std::string::npos || std::filesystem::path(name_or_path).has_extension();
  if (!is_path) {
    const auto names = builtin_profile_names();
    if (std::find(names.begin(), names.end(), name_or_path) != names.end())
      return builtin_profile(name_or_path);
    throw UserError(Problem{"", 0, "host.profile", fmt::format("unknown profile \"{}\"", name_or_path),
                            nearest_name(name_or_path, names)});
  }
  const std::string text = read_text_file(name_or_path, {"", 0, "host.profile", "", ""}, problems);
  Profile profile;
  if (problems.empty()) profile = parse_profile(text, name_or_path, problems);
  if (!problems.empty()) throw UserError(std::move(problems));
  return profile;
}

}  // namespace svmsim::model
