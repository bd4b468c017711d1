#pragma once

#include <cstdint>

namespace svmsim::model {

__extension__ using Wide = unsigned __int128;

/// Nanoseconds exist only at the edges; both directions round half up.
[[nodiscard]] constexpr std::uint64_t cycles_to_ns(std::uint64_t cycles, std::uint64_t tsc_hz) noexcept {
  return static_cast<std::uint64_t>((Wide{cycles} * 1'000'000'000U + tsc_hz / 2) / tsc_hz);
}
[[nodiscard]] constexpr std::uint64_t ns_to_cycles(std::uint64_t ns, std::uint64_t tsc_hz) noexcept {
  return static_cast<std::uint64_t>((Wide{ns} * tsc_hz + 500'000'000U) / 1'000'000'000U);
}

}  // namespace svmsim::model
