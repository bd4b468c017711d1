#pragma once

#include <string_view>

#include "svm/guest_cpu.hpp"

namespace svmsim::svm {

/// What happened in one step of a guest, as it is told.
struct StepText {
  StepKind kind = StepKind::none;
  std::string_view name;    ///< for programs: "vmexit"
  std::string_view phrase;  ///< for people: "#VMEXIT"
};

[[nodiscard]] const StepText& step_text(StepKind kind) noexcept;

}  // namespace svmsim::svm
