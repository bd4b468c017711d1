#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "svm/clean_bits.hpp"
#include "svm/intercept.hpp"

namespace svmsim::svm::conformance {

/// An exit code by any of its names, in any case: the manual's ("CR0_SEL_WRITE", "VMEXIT_HLT"), Linux'
/// ("write_cr0", "PF excp"), the exception's mnemonic ("#PF"), or its number ("0x78", "-1").
[[nodiscard]] std::optional<std::uint64_t> exit_code_named(std::string_view name);
/// An intercept by any name of its exit.
[[nodiscard]] std::optional<Intercept> intercept_named(std::string_view name);
/// The name that was meant by an unknown one, or "".
[[nodiscard]] std::string nearest_exit_name(std::string_view name);

/// How cases name a finding: the field, or "first_run", "other_core", "moved".
[[nodiscard]] std::string_view clean_finding_name(const CleanBitsFinding& finding) noexcept;

/// "HLT (78h)"; the number alone where the code has no name.
[[nodiscard]] std::string exit_text(std::uint64_t code);
/// "0x51".
[[nodiscard]] std::string hex(std::uint64_t value);

}  // namespace svmsim::svm::conformance
