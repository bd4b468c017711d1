#include "svm/conformance/suite.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "svm/conformance/case_reader.hpp"
#include "svm/conformance/runner.hpp"
#include "svm/user_error.hpp"

namespace svmsim {
const std::vector<EmbeddedFile>& builtin_case_files();
}  // namespace svmsim

namespace svmsim::svm::conformance {

namespace {

constexpr std::uintmax_t largest_file = 1 << 24;

[[nodiscard]] std::string contents(const std::string& path) {
  std::error_code error;
  // Anything but a file could go on for ever.
  if (!std::filesystem::is_regular_file(path, error))
    throw CaseError(Problem{path, 0, "", "cannot be read: no such file", ""});
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > largest_file)
    throw CaseError(Problem{path, 0, "", "cannot be read: is longer than a file of cases can be", ""});
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throw CaseError(Problem{path, 0, "", "cannot be read", ""});
  return text;
}

/// Adds `cases` to `all`, and a problem for each name that is there already.
void add(std::vector<SuiteCase>& all, std::vector<SuiteCase> cases, std::vector<Problem>& problems) {
  std::map<std::string, const SuiteCase*> names;
  for (const SuiteCase& one : all)
    names.emplace(one.name, &one);
  for (const SuiteCase& one : cases) {
    const auto found = names.find(one.name);
    if (found == names.end()) continue;
    problems.push_back({one.file, one.line, "name",
                        fmt::format("\"{}\" is also the name of the case at {}:{}", one.name,
                                    found->second->file, found->second->line),
                        ""});
  }
  all.insert(all.end(), std::make_move_iterator(cases.begin()), std::make_move_iterator(cases.end()));
}

template <typename Input>
[[nodiscard]] std::vector<SuiteCase> read_suite(const Input& input, const std::string& source,
                                                const std::vector<Subject>& subjects) {
  std::vector<SuiteCase> cases;
  std::vector<CaseKind> kinds;
  for (const Subject& subject : subjects) {
    kinds.push_back({subject.key, [&cases, &subject](CaseIdentity identity, NodeTable& table) {
                       cases.push_back(subject.read(std::move(identity), table));
                     }});
  }
  read_case_file(input, source, kinds);
  return cases;
}

/// A set such as [a-c] at the start of `glob`: whether `c` is in it. Moves `glob` behind it; a set without an
/// end is a plain bracket.
[[nodiscard]] bool in_set(char c, std::string_view& glob) {
  const std::size_t end = glob.find(']', 2);
  if (end == std::string_view::npos) {
    glob.remove_prefix(1);
    return c == '[';
  }
  std::string_view set = glob.substr(1, end - 1);
  glob.remove_prefix(end + 1);
  const bool negated = set.front() == '!';
  if (negated) set.remove_prefix(1);
  bool found = false;
  while (!set.empty()) {
    const bool range = set.size() > 2 && set[1] == '-';
    found = found || (c >= set[0] && c <= (range ? set[2] : set[0]));
    set.remove_prefix(range ? 3 : 1);
  }
  return found != negated;
}

}  // namespace

const Subject& guest_subject() {
  static constexpr Subject subject{"case", [](CaseIdentity identity, NodeTable& table) {
                                     const Case one = read_case(std::move(identity), table);
                                     return SuiteCase(one, [one] { return run_case(one); });
                                   }};
  return subject;
}

std::vector<SuiteCase> builtin_cases() {
  return embedded_cases(builtin_case_files(), {guest_subject()});
}

std::vector<SuiteCase> embedded_cases(const std::vector<EmbeddedFile>& files,
                                      const std::vector<Subject>& subjects) {
  std::vector<SuiteCase> all;
  std::vector<Problem> problems;
  for (const EmbeddedFile& file : files)
    add(all, read_suite(file.text, fmt::format("{}.toml", file.name), subjects), problems);
  if (!problems.empty()) throw CaseError(problems);
  return all;
}

std::vector<SuiteCase> suite_of(const CaseNode& root, const std::string& source,
                                const std::vector<Subject>& subjects) {
  return read_suite(root, source, subjects);
}

std::vector<SuiteCase> load_cases(const std::vector<std::string>& paths,
                                  const std::vector<Subject>& subjects) {
  std::vector<SuiteCase> all;
  std::vector<Problem> problems;
  for (const std::string& path : paths) {
    try {
      const std::string text = contents(path);
      add(all, read_suite(std::string_view{text}, path, subjects), problems);
    } catch (const UserError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
  if (!problems.empty()) throw CaseError(problems);
  return all;
}

// Greedy, with one place to go back to: the last star.
bool matches(std::string_view name, std::string_view glob) {
  std::string_view star_glob;
  std::string_view star_name;
  bool starred = false;
  while (true) {
    if (!glob.empty() && glob.front() == '*') {
      glob.remove_prefix(1);
      star_glob = glob;
      star_name = name;
      starred = true;
      continue;
    }
    if (name.empty() && glob.empty()) return true;
    bool same = false;
    if (!name.empty() && !glob.empty()) {
      if (glob.front() == '[') {
        same = in_set(name.front(), glob);
      } else {
        same = glob.front() == '?' || glob.front() == name.front();
        glob.remove_prefix(1);
      }
    }
    if (same) {
      name.remove_prefix(1);
      continue;
    }
    if (!starred || star_name.empty()) return false;
    star_name.remove_prefix(1);
    name = star_name;
    glob = star_glob;
  }
}

std::vector<SuiteCase> filter_cases(std::vector<SuiteCase> cases, const std::string& glob) {
  std::vector<std::string> names;
  std::vector<SuiteCase> chosen;
  for (SuiteCase& one : cases) {
    names.push_back(one.name);
    if (matches(one.name, glob)) chosen.push_back(std::move(one));
  }
  if (chosen.empty())
    throw CaseError(Problem{"--filter", 0, glob, "matches the name of no case", nearest_name(glob, names)});
  return chosen;
}

SuiteResult run_cases(const std::vector<SuiteCase>& cases) {
  SuiteResult suite;
  suite.results.reserve(cases.size());
  for (const SuiteCase& one : cases) {
    suite.results.push_back(one.run());
    ++(suite.results.back().passed ? suite.passed : suite.failed);
  }
  return suite;
}

}  // namespace svmsim::svm::conformance
