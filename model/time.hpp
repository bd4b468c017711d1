#pragma once

#include <cstdint>
#include <systemc>

namespace svmsim::model {

/// The one place that converts between cycles and sc_time. An sc_time unit is 2^-16 of a TSC cycle; the low
/// 16 bits carry the rank of the actor, so that two actors never act at the same sc_time and equal cycles
/// have one fixed order (design.md section 2).
inline constexpr unsigned rank_bits = 16;

/// A moment as a raw sc_time value: cycle and rank.
using Moment = std::uint64_t;

/// Later than anything that can be pending.
inline constexpr Moment never = ~Moment{0};
inline constexpr std::uint64_t never_cycles = never >> rank_bits;

[[nodiscard]] constexpr Moment moment(std::uint64_t cycles, std::uint32_t rank) noexcept {
  return (cycles << rank_bits) | rank;
}
[[nodiscard]] constexpr std::uint64_t cycles_of(Moment at) noexcept {
  return at >> rank_bits;
}

[[nodiscard]] inline Moment kernel_now() {
  return sc_core::sc_time_stamp().value();
}

/// Earliest moment at which the kernel has anything pending; something pending now counts as now.
[[nodiscard]] inline Moment earliest_pending() {
  const Moment now = kernel_now();
  const Moment delay = sc_core::sc_time_to_pending_activity().value();
  return delay > never - now ? never : now + delay;
}

/// Delay from now until `at`; zero when `at` has passed.
[[nodiscard]] inline sc_core::sc_time delay_until(Moment at) {
  const Moment now = kernel_now();
  return sc_core::sc_time::from_value(at > now ? at - now : 0);
}

}  // namespace svmsim::model
