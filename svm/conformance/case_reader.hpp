#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "svm/conformance/case.hpp"
#include "svm/conformance/case_file.hpp"
#include "svm/conformance/node_table.hpp"

namespace svmsim::svm::conformance {

/// The cases of one file, tables made into one case for each row. Throws CaseError with everything that is
/// wrong with it; `source` is the file's name in messages.
[[nodiscard]] std::vector<Case> read_cases(std::string_view text, const std::string& source);

/// As above, of a tree that comes from elsewhere than a file.
[[nodiscard]] std::vector<Case> read_cases(const CaseNode& root, const std::string& source);

/// One case, of a table whose identity is read already.
[[nodiscard]] Case read_case(CaseIdentity identity, NodeTable& table);

/// "vmcb": fields, bits and intercepts by name.
[[nodiscard]] VmcbChange read_vmcb_change(const CaseNode& node, const std::string& path,
                                          TomlProblems& problems);
/// "expect".
[[nodiscard]] Expectation read_expectation(const CaseNode& node, const std::string& path,
                                           TomlProblems& problems);

}  // namespace svmsim::svm::conformance
