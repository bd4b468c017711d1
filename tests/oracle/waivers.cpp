#include "tests/oracle/waivers.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "svm/toml_table.hpp"

namespace svmsim::oracle {

namespace {

bool has_one_of(const std::set<std::string>& tags, std::string_view alternatives) {
  while (!alternatives.empty()) {
    const std::size_t end = std::min(alternatives.find('|'), alternatives.size());
    if (tags.count(std::string(alternatives.substr(0, end))) != 0) return true;
    alternatives.remove_prefix(std::min(end + 1, alternatives.size()));
  }
  return false;
}

}  // namespace

bool Waiver::applies(std::string_view emulator_name, const std::set<std::string>& tags,
                     const std::vector<std::string>& differing) const {
  if (emulator != emulator_name) return false;
  const auto present = [&tags](const std::string& tag) { return has_one_of(tags, tag); };
  if (!std::all_of(all.begin(), all.end(), present) || std::any_of(none.begin(), none.end(), present))
    return false;
  if (differs.empty()) return true;
  return std::all_of(differing.begin(), differing.end(), [this](const std::string& field) {
    return std::find(differs.begin(), differs.end(), field) != differs.end();
  });
}

std::vector<Waiver> read_waivers(const std::string& path) {
  TomlProblems problems(path);
  toml::table file;
  try {
    file = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    problems.add(error.source().begin.line, "", std::string(error.description()));
    throw UserError(problems.take());
  }
  std::vector<Waiver> waivers;
  TomlTable root(file, "", problems);
  const toml::array* entries = root.array("waiver");
  root.finish();
  for (std::size_t i = 0; entries != nullptr && i < entries->size(); ++i) {
    const toml::table* entry = entries->get(i)->as_table();
    const std::string name = fmt::format("waiver[{}]", i);
    if (entry == nullptr) {
      problems.add(line_of(*entries->get(i)), name, "a waiver is a table");
      continue;
    }
    TomlTable table(*entry, name, problems);
    const auto text = [&table](std::string_view key) { return table.text(key, true).value_or(""); };
    const auto list = [&table](std::string_view key) {
      std::vector<std::string> words;
      const toml::array* array = table.array(key);
      if (array == nullptr) return words;
      for (const toml::node& item : *array) {
        if (!item.is_string()) table.wrong_type(key, item, "a string");
        words.push_back(item.value_or<std::string>(""));
      }
      return words;
    };
    Waiver waiver{text("id"),      text("emulator"), list("all"),    list("none"),
                  list("differs"), text("reason"),   text("section")};
    table.finish("waiver");
    // Without a condition it would explain everything.
    if (waiver.all.empty()) problems.add(table.line(), name + ".all", "a waiver needs a condition");
    for (const Waiver& other : waivers) {
      if (other.id == waiver.id)
        problems.add(table.line(), name + ".id", "there is another waiver " + waiver.id);
    }
    waivers.push_back(std::move(waiver));
  }
  if (!problems.empty()) throw UserError(problems.take());
  return waivers;
}

}  // namespace svmsim::oracle
