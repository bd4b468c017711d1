#pragma once

#include <vector>

#include "svm/conformance/suite_case.hpp"

namespace svmsim::apic::conformance {

/// Local APICs, their timers, routing, the I/O APIC: the tables [[lapic]].
[[nodiscard]] const svm::conformance::Subject& lapic_subject();
/// A VM with AVIC or x2AVIC: the tables [[avic]].
[[nodiscard]] const svm::conformance::Subject& avic_subject();

/// All that a file of cases can be about: [[case]], [[lapic]], [[avic]].
[[nodiscard]] const std::vector<svm::conformance::Subject>& all_subjects();

/// The cases of apic/, which are compiled in from apic/cases/*.toml.
[[nodiscard]] std::vector<svm::conformance::SuiteCase> builtin_apic_cases();
/// Those of svm/ and of apic/: what `svmsim check` runs.
[[nodiscard]] std::vector<svm::conformance::SuiteCase> builtin_cases();

}  // namespace svmsim::apic::conformance
