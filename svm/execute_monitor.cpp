#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// MWAIT and MWAITX (APM vol. 2, table 15-7 and 15.9; MONITOR is decided by its rule alone). A waiting CPU is
// halted in guest mode until an event or a store into the monitored line. The timer of MWAITX is left to
// whoever drives the CPU.

namespace svmsim::svm {

namespace {

constexpr std::uint64_t line_mask = ~std::uint64_t{63};
constexpr std::uint64_t ends_on_masked_interrupt = 1U << 0;
constexpr std::uint64_t with_timer = 1U << 1;

}  // namespace

Step GuestCpu::execute_mwait(const GuestAction& action, GuestEnvironment& environment) {
  const bool extended = action.kind == ActionKind::mwaitx;
  if (!features_.has(extended ? Extension::monitorx : Extension::monitor)) return invalid_opcode(environment);
  if (!extended && cpl_ != 0) return invalid_opcode(environment);
  const std::uint64_t known = extended ? ends_on_masked_interrupt | with_timer : ends_on_masked_interrupt;
  if ((action.operand[1] & 0xffff'ffffU & ~known) != 0) return general_protection(environment);

  if (monitor_armed_ && intercepts(Intercept::mwait_conditional)) {
    return intercepted_exit(Intercept::mwait_conditional, action);
  }
  if (intercepts(Intercept::mwait)) return intercepted_exit(Intercept::mwait, action);
  const Step step = retire(action);
  if (!monitor_armed_) return step;
  monitor_armed_ = false;
  mwait_ = true;
  mwait_takes_masked_ = (action.operand[1] & ends_on_masked_interrupt) != 0;
  halted_ = true;
  return {StepKind::halted, 0, 0};
}

bool GuestCpu::monitor_written(std::uint64_t address) noexcept {
  if ((address & line_mask) != monitor_line_) return false;
  monitor_armed_ = false;
  if (!waiting()) return false;
  halted_ = false;
  return true;
}

// MWAIT with ECX[0]: an interrupt that RFLAGS.IF masks ends the wait all the same, and
// stays pending.
void GuestCpu::end_wait_by_masked_interrupt(PhysicalEvents events) noexcept {
  // What AVIC has recognized is above the PPR already.
  const bool above = avic_environment_ != nullptr || int_ctl::above_tpr(int_ctl_);
  const bool is_virtual = (int_ctl_ & int_ctl::v_irq) != 0 && above;
  if (waiting() && mwait_takes_masked_ && (events.intr || is_virtual)) halted_ = false;
}

}  // namespace svmsim::svm
