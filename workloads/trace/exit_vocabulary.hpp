#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace svmsim::workloads {

/// Whose exit reasons a recording holds.
enum class Isa : std::uint8_t { unknown, svm, vmx, arm64, riscv };
/// "svm", "vmx", "arm64", "riscv" or "unknown".
[[nodiscard]] std::string_view isa_name(Isa isa);
/// The reverse of isa_name(); nothing for any other word.
[[nodiscard]] std::optional<Isa> isa_of_name(std::string_view name);

/// A VMX exit reason (Intel SDM vol. 3D, appendix C) is kept as vmx_exit_base + basic reason, so that no code
/// of SVM can be taken for it.
inline constexpr std::uint64_t vmx_exit_base = 0xe000'0000'0000'0000;
/// Exit reasons of no known table keep their order of appearance: foreign_exit_base + index into
/// TraceNames::foreign_exits.
inline constexpr std::uint64_t foreign_exit_base = 0xf000'0000'0000'0000;

/// What one word for an exit means.
struct KnownExit {
  Isa isa = Isa::unknown;
  std::uint64_t code = 0;  ///< of SVM and VMX; 0 for the others, whose names stay opaque
  bool has_flags = false;  ///< flag words stood behind the reason ("EPT_VIOLATION FAILED_VMENTRY")
};

/// Any vocabulary: the kernel's for SVM ("npf", "DE excp") and VMX ("EPT_VIOLATION"), trace-cmd's plugin
/// ("EXIT_NPF"), bcc ("EXIT_REASON_HLT", taken for VMX, whose names these are), a number in hexadecimal
/// ("0xa6") or the plugin's decimal ("UNKNOWN (166)") with `numbers` as the ISA they belong to. Names of
/// arm64 and riscv are recognised as such and mapped to nothing.
[[nodiscard]] std::optional<KnownExit> known_exit(std::string_view name, Isa numbers = Isa::svm);

/// The kernel's name of a VMX basic exit reason; "" without one.
[[nodiscard]] std::string_view vmx_reason_name(std::uint64_t reason);

}  // namespace svmsim::workloads
