#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "svm/conformance/case_tree.hpp"
#include "svm/conformance/suite_case.hpp"
#include "svm/embedded_file.hpp"

namespace svmsim::svm::conformance {

/// Cases about a guest under a VMCB: the tables [[case]].
[[nodiscard]] const Subject& guest_subject();

/// The cases of svm/, which are compiled in from svm/cases/*.toml, in the order of the files' names.
[[nodiscard]] std::vector<SuiteCase> builtin_cases();

/// The cases of files that are compiled in. Throws CaseError as load_cases() does.
[[nodiscard]] std::vector<SuiteCase> embedded_cases(const std::vector<EmbeddedFile>& files,
                                                    const std::vector<Subject>& subjects);

/// The cases of the user's files. Throws CaseError with the problems of all of them: what cannot be read,
/// what is wrong in them, and names that occur in two of them.
[[nodiscard]] std::vector<SuiteCase> load_cases(const std::vector<std::string>& paths,
                                                const std::vector<Subject>& subjects = {guest_subject()});

/// The cases of a tree that comes from elsewhere than a file. Throws CaseError.
[[nodiscard]] std::vector<SuiteCase> suite_of(const CaseNode& root, const std::string& source,
                                              const std::vector<Subject>& subjects);

/// Whether a name matches a glob: * is any text, ? any character, [a-c] one of them, [!a-c] none of them.
[[nodiscard]] bool matches(std::string_view name, std::string_view glob);

/// The cases whose name matches, in their order. Throws CaseError when none does.
[[nodiscard]] std::vector<SuiteCase> filter_cases(std::vector<SuiteCase> cases, const std::string& glob);

struct SuiteResult {
  std::vector<CaseResult> results;
  std::size_t passed = 0;
  std::size_t failed = 0;
};

[[nodiscard]] SuiteResult run_cases(const std::vector<SuiteCase>& cases);

}  // namespace svmsim::svm::conformance
