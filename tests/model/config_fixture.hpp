#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "model/config/loader.hpp"

namespace svmsim::model::testing {

/// A directory that goes away with the test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "svmsim-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw InternalError("no temporary directory");
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  /// Writes a file below the directory and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file.string();
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Loads TOML text as a file.
inline Scenario load_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const TempDir directory;
  return load_scenario(ScenarioSource::from_file(directory.write("scenario.toml", text)), overrides);
}

/// The problems of TOML text, sources cut to the file's name; empty when it loads.
inline std::vector<Problem> problems_of(const std::string& text,
                                        const std::vector<std::string>& overrides = {}) {
  try {
    const Scenario loaded = load_text(text, overrides);
    (void)loaded;
    return {};
  } catch (const UserError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems)
      problem.source = std::filesystem::path(problem.source).filename().string();
    return problems;
  }
}

/// "source:line: path: message (did you mean ...?)", a line each.
inline std::string problem_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return UserError(problems_of(text, overrides)).what();
}

inline const std::string smallest = "[[vm]]\nworkload = {kind = \"cpuid\"}\n";

}  // namespace svmsim::model::testing
