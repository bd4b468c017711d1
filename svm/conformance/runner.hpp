#pragma once

#include "svm/conformance/case.hpp"
#include "svm/conformance/suite_case.hpp"

namespace svmsim::svm::conformance {

/// Runs one case on a GuestCpu of its own. Besides what the case expects, it checks what holds after every
/// #VMEXIT: GIF is 0, EVENTINJ.V is 0, and EXITINTINFO is empty unless the case speaks of it.
[[nodiscard]] CaseResult run_case(const Case& conformance_case);

}  // namespace svmsim::svm::conformance
