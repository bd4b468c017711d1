#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "svm/conformance/case.hpp"
#include "svm/conformance/runner.hpp"

namespace svmsim::svm::conformance {

/// The cases that are compiled in, from svm/cases/*.toml, in the order of the files' names.
[[nodiscard]] std::vector<Case> builtin_cases();

/// The cases of the user's files. Throws CaseError with the problems of all of them: what cannot be read,
/// what is wrong in them, and names that occur in two of them.
[[nodiscard]] std::vector<Case> load_cases(const std::vector<std::string>& paths);

/// Whether a name matches a glob: * is any text, ? any character, [a-c] one of them, [!a-c] none of them.
[[nodiscard]] bool matches(std::string_view name, std::string_view glob);

/// The cases whose name matches, in their order. Throws CaseError when none does.
[[nodiscard]] std::vector<Case> filter_cases(std::vector<Case> cases, const std::string& glob);

struct SuiteResult {
  std::vector<CaseResult> results;
  std::size_t passed = 0;
  std::size_t failed = 0;
};

[[nodiscard]] SuiteResult run_cases(const std::vector<Case>& cases);

}  // namespace svmsim::svm::conformance
