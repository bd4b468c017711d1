#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

/// The two halves of vmrun_legal(): the state, and the event that is injected.
[[nodiscard]] bool vmrun_state_legal(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                                     const ProcessorLimits& limits) noexcept;
[[nodiscard]] bool vmrun_injection_legal(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                                         const ProcessorLimits& limits) noexcept;

/// All that the rules about the state read of a VMCB: two VMCBs with equal inputs get the same verdict, so
/// that a core may remember the last legal ones.
struct VmrunInputs {
  std::array<std::uint64_t, 17> words{};

  [[nodiscard]] static VmrunInputs of(const Vmcb& vmcb) noexcept;
  [[nodiscard]] friend bool operator==(const VmrunInputs& a, const VmrunInputs& b) noexcept {
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < a.words.size(); ++i)
      difference |= a.words[i] ^ b.words[i];
    return difference == 0;
  }
};

/// All rules, in the order in which vmrun_violations() reports them.
[[nodiscard]] std::vector<RuleViolation> vmrun_rules();

}  // namespace svmsim::svm
