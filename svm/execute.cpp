#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/user_error.hpp"

namespace svmsim::svm {

void GuestCpu::not_runnable() const {
  throw InternalError(vmcb_ == nullptr
                          ? "a GuestCpu was asked to run outside of guest mode"
                          : fmt::format("a GuestCpu that is halted at rIP {:#x} was asked to execute", rip_));
}

Step GuestCpu::execute(const GuestAction& action, GuestEnvironment& environment) {
  if (vmcb_ == nullptr || halted_) not_runnable();
  // A jump since the last action is none of ours to see: where the action stands is where the guest is.
  rip_ = action.rip;
  cpl_ = action.cpl & 3U;
  switch (action.kind) {
    case ActionKind::compute:
    case ActionKind::nop:
      return retire(action);
    case ActionKind::cli:
    case ActionKind::sti:
      return execute_cli_sti(action, environment);
    case ActionKind::hlt:
      return execute_hlt(action, environment);
    case ActionKind::pause:
      return execute_pause(action, environment);
    case ActionKind::cpuid:
      return execute_cpuid(action, environment);
    case ActionKind::rdtsc:
      return execute_rdtsc(action, environment);
    case ActionKind::rdmsr:
      return execute_msr(action, false, environment);
    case ActionKind::wrmsr:
      return execute_msr(action, true, environment);
    case ActionKind::in:
      return execute_io(action, false, environment);
    case ActionKind::out:
      return execute_io(action, true, environment);
    case ActionKind::vmmcall:
      if (intercepts(Intercept::vmmcall)) return intercepted_exit(Intercept::vmmcall, action);
      return fault(exception_vector::invalid_opcode, environment);
    case ActionKind::iret:
      return execute_iret(action);
    case ActionKind::memory_read:
      return execute_memory(action, false, environment);
    case ActionKind::memory_write:
      return execute_memory(action, true, environment);
    case ActionKind::mov_from_cr8:
      return execute_cr8(action, false, environment);
    case ActionKind::mov_to_cr8:
      return execute_cr8(action, true, environment);
    default:
      break;
  }
  throw InternalError(fmt::format("guest action {} does not exist", static_cast<unsigned>(action.kind)));
}

Step GuestCpu::execute_cli_sti(const GuestAction& action, GuestEnvironment& environment) {
  const std::uint64_t iopl = (rflags_ & rflags::iopl_mask) >> rflags::iopl_shift;
  if (cpl_ > iopl) return general_protection(environment);
  if (action.kind == ActionKind::cli) {
    rflags_ &= ~rflags::interrupt;
    return retire(action);
  }
  // Only an STI that changes IF has a shadow (15.21.5).
  const bool was_clear = (rflags_ & rflags::interrupt) == 0;
  rflags_ |= rflags::interrupt;
  const Step step = retire(action);
  shadow_ = was_clear;
  return step;
}

Step GuestCpu::execute_pause(const GuestAction& action, GuestEnvironment& environment) {
  if (intercepts(Intercept::pause) &&
      pause_filter_.exits(environment.host_tsc(), knobs_.pause_gap_at_threshold_reloads)) {
    return intercepted_exit(Intercept::pause, action);
  }
  return retire(action);
}

Step GuestCpu::execute_cpuid(const GuestAction& action, GuestEnvironment& environment) {
  if (intercepts(Intercept::cpuid)) return intercepted_exit(Intercept::cpuid, action);
  const auto registers = environment.cpuid(action.number, static_cast<std::uint32_t>(action.operand[0]));
  return retire(action, registers[0] | (std::uint64_t{registers[1]} << 32));
}

Step GuestCpu::execute_rdtsc(const GuestAction& action, GuestEnvironment& environment) {
  if (cpl_ != 0 && (vmcb_->save.cr4 & cr4::tsd) != 0) return general_protection(environment);
  if (intercepts(Intercept::rdtsc)) return intercepted_exit(Intercept::rdtsc, action);
  return retire(action, environment.host_tsc() + vmcb_->control.tsc_offset);
}

Step GuestCpu::execute_memory(const GuestAction& action, bool write, GuestEnvironment& environment) {
  const std::uint64_t address = action.operand[1];
  if (environment.page_allows(address, write ? PageAccess::write : PageAccess::read)) return retire(action);
  const std::uint64_t info = npf_info::final_translation | npf_info::user | (write ? npf_info::write : 0);
  return vmexit(exit_code::npf, info, address);
}

Step GuestCpu::execute_iret(const GuestAction& action) {
  if (intercepts(Intercept::iret)) return intercepted_exit(Intercept::iret, action);
  int_ctl_ &= ~int_ctl::v_nmi_mask;
  nmi_masked_ = false;
  // Without a frame there is nothing to return to: a guest that was entered in a handler falls through.
  const Step step = retire(action);
  if (frames_.empty()) return step;
  const Frame& frame = frames_.back();
  rip_ = frame.rip;
  rflags_ = frame.rflags;
  cpl_ = frame.cpl;
  frames_.pop_back();
  return step;
}

}  // namespace svmsim::svm
