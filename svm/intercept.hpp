#pragma once

#include <cstdint>
#include <string_view>

#include "svm/exit_table.hpp"
#include "svm/vmcb.hpp"

namespace svmsim::svm {

/// Every intercept of the six intercept words. The value is the bit index (32 * word + bit), which is also
/// the exit code (APM vol. 2, 15.9 and appendix C). Intercept::ioio and Intercept::msr are IOIO_PROT and
/// MSR_PROT.
enum class Intercept : std::uint16_t {
#define SVMSIM_ROW(identifier, code, manual_name, kernel_name, feature, meaning) identifier = code,
  SVMSIM_INTERCEPT_EXITS(SVMSIM_ROW)
#undef SVMSIM_ROW
};

[[nodiscard]] constexpr std::uint64_t exit_code_of(Intercept intercept) noexcept {
  return static_cast<std::uint64_t>(intercept);
}

[[nodiscard]] constexpr Intercept exception_intercept(std::uint8_t vector) noexcept {
  return static_cast<Intercept>(static_cast<unsigned>(Intercept::exception_0) + (vector & 31U));
}

[[nodiscard]] constexpr bool intercepted(const VmcbControl& control, Intercept intercept) noexcept {
  const auto bit = static_cast<unsigned>(intercept);
  return ((control.intercepts[bit >> 5] >> (bit & 31U)) & 1U) != 0;
}

constexpr void set_intercept(VmcbControl& control, Intercept intercept, bool on) noexcept {
  const auto bit = static_cast<unsigned>(intercept);
  const std::uint32_t mask = std::uint32_t{1} << (bit & 31U);
  std::uint32_t& word = control.intercepts[bit >> 5];
  word = on ? word | mask : word & ~mask;
}

/// Name of the intercept, as the manual names its exit ("HLT", "CR8_WRITE").
[[nodiscard]] std::string_view intercept_name(Intercept intercept) noexcept;

}  // namespace svmsim::svm
