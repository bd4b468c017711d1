#pragma once

#include <string>
#include <vector>

#include "svm/conformance/case.hpp"

namespace svmsim::svm::conformance {

/// One thing that a case expects, as text: "exit", "rflags.if", in a case of several VMRUNs "vmrun 2: exit".
struct FieldResult {
  std::string field;
  std::string expected;
  std::string seen;

  [[nodiscard]] bool equal() const noexcept { return expected == seen; }
};

struct CaseResult {
  std::string name;
  std::string source;
  std::string rule;
  std::string file;
  std::size_t line = 0;
  bool passed = false;
  std::vector<FieldResult> fields;  ///< all that was compared
  std::vector<std::string> trace;   ///< what happened, a line for each step
};

/// Runs one case on a GuestCpu of its own. Besides what the case expects, it checks what holds after every
/// #VMEXIT: GIF is 0, EVENTINJ.V is 0, and EXITINTINFO is empty unless the case speaks of it.
[[nodiscard]] CaseResult run_case(const Case& conformance_case);

}  // namespace svmsim::svm::conformance
