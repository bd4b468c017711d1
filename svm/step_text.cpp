#include "svm/step_text.hpp"

#include <array>

namespace svmsim::svm {

namespace {

// In the order of StepKind.
constexpr std::array<StepText, 8> table{{
    {StepKind::none, "none", "nothing"},
    {StepKind::entered, "entered", "the guest runs"},
    {StepKind::retired, "retired", "retired"},
    {StepKind::halted, "halted", "halted"},
    {StepKind::delivered, "delivered", "delivered"},
    {StepKind::vmexit, "vmexit", "#VMEXIT"},
    {StepKind::shutdown, "shutdown", "shut down"},
    {StepKind::reset, "reset", "reset by INIT"},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (static_cast<std::size_t>(table[i].kind) != i) return false;
  }
  return true;
}
static_assert(in_order() && static_cast<std::size_t>(StepKind::reset) + 1 == table.size());

}  // namespace

const StepText& step_text(StepKind kind) noexcept {
  return table[static_cast<std::size_t>(kind)];
}

}  // namespace svmsim::svm
