#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "svm/features.hpp"
#include "svm/knobs.hpp"
#include "svm/processor_limits.hpp"
#include "svm/vmcb.hpp"

namespace svmsim::svm {

/// One consistency check of VMRUN that a VMCB fails.
struct RuleViolation {
  std::string_view section;  ///< of APM vol. 2
  std::string_view text;     ///< what is wrong, one sentence without a full stop
};

/// VMRUN's consistency checks (APM vol. 2, 15.5.1 and the sections of the single features), as far as they
/// follow from the VMCB, the CPUID features and the processor's limits. Not covered, since they need guest
/// memory, MSRs or a VMSA: the PDPTEs of PAE paging without nested paging, U_CET with virtual-8086 mode,
/// SEV-ES load errors, Secure AVIC, SNP.
///
/// vmrun_legal() is what VMRUN itself asks, vmrun_violations() names every failed rule. Both run over the
/// same table.
[[nodiscard]] bool vmrun_legal(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                               const ProcessorLimits& limits) noexcept;
[[nodiscard]] std::vector<RuleViolation> vmrun_violations(const Vmcb& vmcb, const FeatureSet& features,
                                                          const Knobs& knobs = {},
                                                          const ProcessorLimits& limits = {});

/// All rules, in the order in which vmrun_violations() reports them.
[[nodiscard]] std::vector<RuleViolation> vmrun_rules();

}  // namespace svmsim::svm
