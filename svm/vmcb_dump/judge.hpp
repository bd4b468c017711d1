#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "svm/features.hpp"
#include "svm/knobs.hpp"
#include "svm/processor_limits.hpp"
#include "svm/vmcb_dump/vmcb_image.hpp"

namespace svmsim::svm {

/// What explain() is told besides the VMCB.
struct ExplainOptions {
  std::optional<FeatureSet> features;  ///< of the processor; nothing when nobody knows
  std::optional<unsigned> physical_address_bits;
  Knobs knobs;
};

enum class Verdict : std::uint8_t { passed, failed, unknown };

struct Judgement {
  Verdict verdict = Verdict::passed;
  std::vector<std::string> needs;  ///< of an unknown: names of fields, or of what no VMCB has
};

/// Asks `fails` about a VMCB that may lack some of `inputs`, by asking about what they could be: unknown if
/// the answers differ. With more missing inputs than can be tried the verdict is unknown.
[[nodiscard]] Judgement judge(const VmcbImage& image, const std::vector<Field>& inputs,
                              const std::function<bool(const Vmcb&)>& fails);

/// One of VMRUN's rules, applied to an image.
struct JudgedRule {
  std::string_view section;
  std::string_view id;
  std::string_view text;
  Judgement judgement;
};

/// Every rule of vmrun_rules(), in its order. What only the host or CPUID knows is varied like a missing
/// field: the features if they are not given, the width of physical addresses, HWCR.SmmLock, the highest
/// encrypted ASID, and the host's CR0.PG.
[[nodiscard]] std::vector<JudgedRule> judge_vmrun(const VmcbImage& image, const ExplainOptions& options);

/// The fields that a rule of vmrun_rules() reads; empty for a rule that is not known here.
[[nodiscard]] const std::vector<Field>& vmrun_rule_inputs(std::string_view id);

}  // namespace svmsim::svm
