#pragma once

#include <algorithm>
#include <cstdint>

namespace svmsim::model {

/// Parameters of the PAUSE filter (arch/x86/kvm/svm/svm.c, module parameters of kvm_amd).
struct PleParameters {
  std::uint64_t count = 3000;  ///< pause_filter_count: the base window
  std::uint64_t thresh = 128;  ///< pause_filter_thresh, cycles
  std::uint64_t grow = 2;      ///< pause_filter_count_grow
  std::uint64_t shrink = 0;    ///< pause_filter_count_shrink
  std::uint64_t max = 65535;   ///< pause_filter_count_max
};

/// __grow_ple_window (arch/x86/kvm/x86.h): a small modifier multiplies, one of at least the base adds.
[[nodiscard]] constexpr std::uint16_t grown_ple_window(std::uint64_t window,
                                                       const PleParameters& parameters) noexcept {
  if (parameters.grow < 1) return static_cast<std::uint16_t>(parameters.count);
  const std::uint64_t result =
      parameters.grow < parameters.count ? window * parameters.grow : window + parameters.grow;
  return static_cast<std::uint16_t>(std::min(result, parameters.max));
}

/// __shrink_ple_window; never below the base.
[[nodiscard]] constexpr std::uint16_t shrunk_ple_window(std::uint64_t window,
                                                        const PleParameters& parameters) noexcept {
  if (parameters.shrink < 1) return static_cast<std::uint16_t>(parameters.count);
  const std::uint64_t result = parameters.shrink < parameters.count
                                   ? window / parameters.shrink
                                   : window - std::min(window, parameters.shrink);
  return static_cast<std::uint16_t>(std::max(result, parameters.count));
}

}  // namespace svmsim::model
