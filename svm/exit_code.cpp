#include "svm/exit_code.hpp"

#include <fmt/format.h>

namespace svmsim::svm {

namespace {

#define SVMSIM_NO_FEATURE std::nullopt
#define SVMSIM_INTERCEPT_ROW(identifier, code, manual_name, kernel_name, feature, meaning) \
  ExitInfo{code, manual_name, kernel_name, true, feature, meaning},
#define SVMSIM_OTHER_ROW(identifier, code, manual_name, kernel_name, feature, meaning) \
  ExitInfo{code, manual_name, kernel_name, false, feature, meaning},
constexpr std::array<ExitInfo, exit_count> table{
    {SVMSIM_INTERCEPT_EXITS(SVMSIM_INTERCEPT_ROW) SVMSIM_OTHER_EXITS(SVMSIM_OTHER_ROW)}};
#undef SVMSIM_OTHER_ROW
#undef SVMSIM_INTERCEPT_ROW
#undef SVMSIM_NO_FEATURE

/// The architecture's rule that makes one table enough: exit code = bit index, without a gap.
constexpr bool codes_are_bit_indices() {
  for (std::size_t i = 0; i < intercept_count; ++i) {
    if (table[i].code != i) return false;
  }
  return true;
}
static_assert(intercept_count == 0xa7 && codes_are_bit_indices());

}  // namespace

const std::array<ExitInfo, exit_count>& exit_table() noexcept {
  return table;
}

const ExitInfo* find_exit(std::uint64_t code) noexcept {
  if (code < intercept_count) return &table[code];
  for (std::size_t i = intercept_count; i < exit_count; ++i) {
    if (table[i].code == code) return &table[i];
  }
  return nullptr;
}

std::string_view exit_name(std::uint64_t code) noexcept {
  const ExitInfo* info = find_exit(code);
  return info != nullptr ? info->kernel_name : std::string_view{};
}

std::string exit_name_or_hex(std::uint64_t code) {
  const std::string_view name = exit_name(code);
  return name.empty() ? fmt::format("{:#x}", code) : std::string{name};
}

std::optional<std::uint64_t> exit_code_of(std::string_view kernel_name) noexcept {
  if (kernel_name.empty()) return std::nullopt;
  for (const ExitInfo& info : table) {
    if (info.kernel_name == kernel_name) return info.code;
  }
  return std::nullopt;
}

}  // namespace svmsim::svm
