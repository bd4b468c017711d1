#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "svm/conformance/node_table.hpp"

// What every conformance case has, whatever it is about: svm/ has cases about a guest under a VMCB, apic/
// about local APICs and AVIC.

namespace svmsim::svm::conformance {

/// What a case is called, where its expectation comes from, and where it stands.
struct CaseIdentity {
  std::string name;
  std::string source;  ///< where the expectation comes from
  std::string rule;    ///< the rule that decides
  std::string file;
  std::size_t line = 0;
};

/// One thing that a case expects, as text: "exit", "rflags.if", in a case of several VMRUNs "vmrun 2: exit".
struct FieldResult {
  std::string field;
  std::string expected;
  std::string seen;

  [[nodiscard]] bool equal() const noexcept { return expected == seen; }
};

struct CaseResult : CaseIdentity {
  explicit CaseResult(CaseIdentity identity) : CaseIdentity(std::move(identity)) {}

  bool passed = false;
  std::vector<FieldResult> fields;  ///< all that was compared
  std::vector<std::string> trace;   ///< what happened, a line for each step

  /// Sets `passed` from the fields.
  void judge() noexcept;
};

/// A case of any subject, ready to run.
struct SuiteCase : CaseIdentity {
  SuiteCase(CaseIdentity identity, std::function<CaseResult()> runner)
      : CaseIdentity(std::move(identity)), run(std::move(runner)) {}

  std::function<CaseResult()> run;
};

/// What cases can be about: the tables `[[key]]` of case files. read() reads the keys of one such table that
/// are not the identity's, and reports what is wrong with them.
struct Subject {
  std::string_view key;
  SuiteCase (*read)(CaseIdentity identity, NodeTable& table) = nullptr;
};

}  // namespace svmsim::svm::conformance
