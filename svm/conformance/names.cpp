#include "svm/conformance/names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_map>

#include <fmt/format.h>

#include "svm/conformance/node_table.hpp"
#include "svm/exit_code.hpp"
#include "svm/user_error.hpp"

namespace svmsim::svm::conformance {

namespace {

/// Mnemonics of the exceptions, "" where a vector has none.
constexpr std::array<std::string_view, 32> mnemonics{
    "#DE", "#DB", "",    "#BP", "#OF", "#BR", "#UD", "#NM", "#DF", "", "#TS", "#NP", "#SS", "#GP", "#PF", "",
    "#MF", "#AC", "#MC", "#XF", "",    "#CP", "",    "",    "",    "", "",    "",    "#HV", "#VC", "#SX", ""};

[[nodiscard]] std::string lower(std::string_view text) {
  std::string result{text};
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

struct Names {
  std::unordered_map<std::string, std::uint64_t> codes;
  std::vector<std::string> spellings;

  Names() {
    for (const ExitInfo& info : exit_table()) {
      add(std::string{info.manual_name}, info.code);
      if (!info.kernel_name.empty()) add(std::string{info.kernel_name}, info.code);
    }
    // Names in the source, which often are the manual's.
#define SVMSIM_ROW(identifier, code, manual_name, kernel_name, feature, meaning) \
  codes.emplace(#identifier, code);
    SVMSIM_INTERCEPT_EXITS(SVMSIM_ROW)
    SVMSIM_OTHER_EXITS(SVMSIM_ROW)
#undef SVMSIM_ROW
    for (std::size_t vector = 0; vector < mnemonics.size(); ++vector) {
      if (!mnemonics[vector].empty()) add(std::string{mnemonics[vector]}, exit_code::exception_0 + vector);
    }
  }

  void add(const std::string& name, std::uint64_t code) {
    if (codes.emplace(lower(name), code).second) spellings.push_back(name);
  }
};

const Names& names() {
  static const Names all;
  return all;
}

}  // namespace

std::optional<std::uint64_t> exit_code_named(std::string_view name) {
  std::string key = lower(name);
  constexpr std::string_view prefix = "vmexit_";
  if (key.compare(0, prefix.size(), prefix) == 0) key.erase(0, prefix.size());
  const auto found = names().codes.find(key);
  if (found != names().codes.end()) return found->second;
  if (key == "-1") return exit_code::invalid;
  return parse_number(key);
}

std::optional<Intercept> intercept_named(std::string_view name) {
  const auto code = exit_code_named(name);
  if (!code || *code >= intercept_count) return std::nullopt;
  return static_cast<Intercept>(*code);
}

std::string nearest_exit_name(std::string_view name) {
  std::vector<std::string> candidates;
  for (const std::string& spelling : names().spellings)
    candidates.push_back(lower(spelling));
  const std::string nearest = nearest_name(lower(name), candidates);
  const auto found = std::find(candidates.begin(), candidates.end(), nearest);
  return found != candidates.end() ? names().spellings[static_cast<std::size_t>(found - candidates.begin())]
                                   : std::string{};
}

std::string_view clean_finding_name(const CleanBitsFinding& finding) noexcept {
  switch (finding.rule) {
    case CleanBitsRule::changed_under_set_bit:
      return finding.field;
    case CleanBitsRule::first_run:
      return "first_run";
    case CleanBitsRule::other_core:
      return "other_core";
    case CleanBitsRule::moved:
      return "moved";
  }
  return {};
}

std::string exit_text(std::uint64_t code) {
  const ExitInfo* info = find_exit(code);
  std::string number = fmt::format("{:x}h", code);
  if (code > 0xffff'ffff'0000'0000) number = fmt::format("{}", static_cast<std::int64_t>(code));
  if (info == nullptr) return number;
  std::string_view name = info->manual_name;
  if (code >= exit_code::exception_0 && code < exit_code::exception_0 + mnemonics.size()) {
    const std::string_view mnemonic = mnemonics[code - exit_code::exception_0];
    if (!mnemonic.empty()) name = mnemonic;
  }
  return fmt::format("{} ({})", name, number);
}

std::string hex(std::uint64_t value) {
  return fmt::format("{:#x}", value);
}

}  // namespace svmsim::svm::conformance
