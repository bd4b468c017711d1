#pragma once

#include <cstdint>
#include <optional>

#include "svm/features.hpp"
#include "svm/guest_action.hpp"
#include "svm/intercept.hpp"

namespace svmsim::svm {

/// Conditions of an exception, as bits. Where several hold, #UD comes before #GP.
namespace check {
inline constexpr std::uint32_t ud_extension = 1U << 0;       ///< #UD: InstructionRule::extension is missing
inline constexpr std::uint32_t ud_always = 1U << 1;          ///< #UD: RSM outside of SMM
inline constexpr std::uint32_t ud_real = 1U << 2;            ///< #UD in real and virtual-8086 mode
inline constexpr std::uint32_t ud_svme = 1U << 3;            ///< #UD without EFER.SVME
inline constexpr std::uint32_t ud_svme_or_skinit = 1U << 4;  ///< #UD without EFER.SVME and without SKINIT
inline constexpr std::uint32_t ud_osxsave = 1U << 5;         ///< #UD without CR4.OSXSAVE
inline constexpr std::uint32_t ud_mcommit = 1U << 6;         ///< #UD without EFER.MCOMMIT
inline constexpr std::uint32_t ud_user = 1U << 7;            ///< #UD at CPL > 0
inline constexpr std::uint32_t ud_user_tsd = 1U << 8;        ///< #UD at CPL > 0 with CR4.TSD
inline constexpr std::uint32_t gp_user = 1U << 9;            ///< #GP(0) at CPL > 0
inline constexpr std::uint32_t gp_user_tsd = 1U << 10;       ///< #GP(0) at CPL > 0 with CR4.TSD
inline constexpr std::uint32_t gp_user_pce = 1U << 11;       ///< #GP(0) at CPL > 0 without CR4.PCE
inline constexpr std::uint32_t gp_user_umip = 1U << 12;      ///< #GP(0) at CPL > 0 with CR4.UMIP
inline constexpr std::uint32_t gp_v86_iopl = 1U << 13;       ///< #GP(0) in virtual-8086 mode with IOPL < 3
inline constexpr std::uint32_t gp_operand = 1U << 14;        ///< #GP(0): the operands are not legal
inline constexpr std::uint32_t ud_not_enabled = 1U << 15;    ///< #UD: VMCB 090h bit 7 is clear
}  // namespace check

/// What decides an instruction in guest mode: the exceptions that come before its intercept, the intercept,
/// and the exceptions behind it (APM vol. 2, table 15-7 and 15.9; the instructions of APM vol. 3).
struct InstructionRule {
  ActionKind kind = ActionKind::compute;
  std::uint32_t before = 0;  ///< check bits
  std::optional<Intercept> intercept;
  std::uint32_t after = 0;                   ///< check bits
  std::optional<Extension> extension;        ///< without which the instruction does not exist
  std::optional<Feature> intercept_feature;  ///< without which the intercept bit is ignored
};

/// The rule of an instruction that needs no code of its own up to its effect; null for the others.
[[nodiscard]] const InstructionRule* instruction_rule(ActionKind kind) noexcept;

}  // namespace svmsim::svm
