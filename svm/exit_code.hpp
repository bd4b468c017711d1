#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "svm/exit_table.hpp"
#include "svm/features.hpp"

namespace svmsim::svm {

/// #VMEXIT codes, VMCB 070h. `exit_code::hlt` is 78h, `exit_code::invalid` is the 64-bit -1.
namespace exit_code {
#define SVMSIM_ROW(identifier, code, manual_name, kernel_name, feature, meaning) \
  inline constexpr std::uint64_t identifier = code;
SVMSIM_INTERCEPT_EXITS(SVMSIM_ROW)
SVMSIM_OTHER_EXITS(SVMSIM_ROW)
#undef SVMSIM_ROW

/// Exit code of an intercepted exception.
[[nodiscard]] constexpr std::uint64_t exception(std::uint8_t vector) noexcept {
  return exception_0 + vector;
}
}  // namespace exit_code

/// One row of the exit table.
struct ExitInfo {
  std::uint64_t code = 0;
  std::string_view manual_name;    ///< as in APM vol. 2, table C-1, without "VMEXIT_"
  std::string_view kernel_name;    ///< as Linux prints it in kvm_exit; "" where Linux prints the number
  bool has_intercept = false;      ///< whether the code is also the index of an intercept bit
  std::optional<Feature> feature;  ///< CPUID feature without which the exit does not exist
  std::string_view meaning;        ///< one sentence
};

#define SVMSIM_ROW(identifier, code, manual_name, kernel_name, feature, meaning) +1
inline constexpr std::size_t intercept_count = 0 SVMSIM_INTERCEPT_EXITS(SVMSIM_ROW);
inline constexpr std::size_t exit_count = intercept_count SVMSIM_OTHER_EXITS(SVMSIM_ROW);
#undef SVMSIM_ROW

/// Every exit code once, in the order of the manual; the first intercept_count rows are those with an
/// intercept.
[[nodiscard]] const std::array<ExitInfo, exit_count>& exit_table() noexcept;

/// The row of a code, or null.
[[nodiscard]] const ExitInfo* find_exit(std::uint64_t code) noexcept;

/// Linux' name of an exit code ("hlt", "PF excp"), or "" when Linux has none.
[[nodiscard]] std::string_view exit_name(std::uint64_t code) noexcept;

/// Linux' name, or the number as kvm_exit prints it then ("0x8e").
[[nodiscard]] std::string exit_name_or_hex(std::uint64_t code);

/// The code that Linux prints as `kernel_name`.
[[nodiscard]] std::optional<std::uint64_t> exit_code_of(std::string_view kernel_name) noexcept;

}  // namespace svmsim::svm
