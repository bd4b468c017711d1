#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "svm/conformance/case_tree.hpp"
#include "svm/conformance/suite_case.hpp"
#include "svm/user_error.hpp"

namespace svmsim::svm::conformance {

/// A case, or what stands in one, is wrong.
class CaseError : public UserError {
 public:
  using UserError::UserError;
};

/// What to do with the tables `[[key]]` of a file. `read` gets the identity, and the table for its own keys.
struct CaseKind {
  std::string_view key;
  std::function<void(CaseIdentity identity, NodeTable& table)> read;
};

/// Reads one file: names, sources and rules, tables made into one case for each row, unknown keys. Throws
/// CaseError with everything that is wrong with it; `source` is the file's name in messages.
void read_case_file(std::string_view text, const std::string& source, const std::vector<CaseKind>& kinds);
/// As above, of a tree that comes from elsewhere than a file.
void read_case_file(const CaseNode& root, const std::string& source, const std::vector<CaseKind>& kinds);

}  // namespace svmsim::svm::conformance
