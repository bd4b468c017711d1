#pragma once

#include <cstdint>

namespace svmsim::svm {

/// Linear addresses have 48 bits (APM vol. 2, 1.1.3); CR4.LA57 is not modelled.
[[nodiscard]] constexpr bool canonical(std::uint64_t address) noexcept {
  const std::uint64_t upper = address >> 47;
  return upper == 0 || upper == 0x1ffff;
}

/// The canonical address with the same low 48 bits.
[[nodiscard]] constexpr std::uint64_t sign_extended(std::uint64_t address) noexcept {
  constexpr std::uint64_t sign = std::uint64_t{1} << 47;
  constexpr std::uint64_t low = (sign << 1) - 1;
  return (address & sign) != 0 ? address | ~low : address & low;
}

/// The address of a 4 KiB page below the first physical address that does not exist.
[[nodiscard]] constexpr bool is_page_below(std::uint64_t address, std::uint64_t physical_limit) noexcept {
  return (address & 0xfffU) == 0 && address < physical_limit;
}

}  // namespace svmsim::svm
