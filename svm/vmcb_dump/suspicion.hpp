#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "svm/features.hpp"
#include "svm/vmcb_dump/vmcb_image.hpp"

namespace svmsim::svm {

/// What a suspicion looks at.
struct SuspicionContext {
  const Vmcb& vmcb;
  const VmcbImage& image;
  const std::optional<FeatureSet>& features;
};

/// A setting that VMRUN accepts, but that an experienced reader would ask about: it does nothing, does
/// something else than it seems to, contradicts another field, or gives the guest more than it should have.
struct Suspicion {
  std::string_view id;       ///< snake_case, never changes
  std::string_view section;  ///< of APM vol. 2, or where KVM's rule stands
  std::string_view text;     ///< what is odd
  std::string_view reason;   ///< why that matters
  std::vector<Field> inputs;
  bool (*applies)(const SuspicionContext&);
  std::optional<Feature> needs_feature;  ///< it is one only on a processor without this feature
};

/// All suspicions in the order of a report. One table per subject.
[[nodiscard]] const std::vector<Suspicion>& all_suspicions();

[[nodiscard]] std::vector<Suspicion> intercept_suspicions();
[[nodiscard]] std::vector<Suspicion> interrupt_suspicions();
[[nodiscard]] std::vector<Suspicion> control_suspicions();
[[nodiscard]] std::vector<Suspicion> exit_suspicions();
[[nodiscard]] std::vector<Suspicion> state_suspicions();
[[nodiscard]] std::vector<Suspicion> sev_suspicions();
[[nodiscard]] std::vector<Suspicion> feature_suspicions();

}  // namespace svmsim::svm
