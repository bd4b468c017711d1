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
  if ((vmcb_->save.dr7 & dr7::enables) != 0) {
    const Step breakpoint = instruction_breakpoint(environment);
    if (breakpoint.kind != StepKind::none) return breakpoint;
  }
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
      return invalid_opcode(environment);
    case ActionKind::iret:
      return execute_iret(action);
    case ActionKind::memory_read:
      return execute_memory(action, PageAccess::read, environment);
    case ActionKind::memory_write:
      return execute_memory(action, PageAccess::write, environment);
    case ActionKind::instruction_fetch:
      return execute_memory(action, PageAccess::fetch, environment);
    case ActionKind::mov_from_cr8:
      return execute_cr8(action, false, environment);
    case ActionKind::mov_to_cr8:
      return execute_cr8(action, true, environment);
    case ActionKind::mov_from_cr:
      return execute_mov_from_cr(action, environment);
    case ActionKind::mov_to_cr:
      return execute_mov_to_cr(action, environment);
    case ActionKind::clts:
      return execute_clts(action, environment);
    case ActionKind::lmsw:
      return execute_lmsw(action, environment);
    case ActionKind::smsw:
      return execute_smsw(action, environment);
    case ActionKind::mov_from_dr:
      return execute_dr(action, false, environment);
    case ActionKind::mov_to_dr:
      return execute_dr(action, true, environment);
    case ActionKind::mov_ss: {
      const Step step = retire(action);
      shadow_ = true;  // 15.21.5
      return step;
    }
    case ActionKind::int_n:
    case ActionKind::int3:
    case ActionKind::into:
    case ActionKind::icebp:
      return execute_interrupt(action, environment);
    case ActionKind::raise:
      return execute_raise(action, environment);
    case ActionKind::task_switch:
      return execute_task_switch(action, environment);
    case ActionKind::ferr:
      return execute_ferr(environment);
    case ActionKind::mwait:
    case ActionKind::mwaitx:
      return execute_mwait(action, environment);
    case ActionKind::vmrun:
      return execute_vmrun(action, environment);
    case ActionKind::vmload:
    case ActionKind::vmsave:
      return execute_vmload_vmsave(action, environment);
    case ActionKind::vmgexit:
      return execute_vmgexit(action, environment);
    case ActionKind::ins:
    case ActionKind::outs:
      return execute_string_io(action, environment);
    case ActionKind::bus_lock:
      return execute_bus_lock(action, environment);
    default:
      return execute_by_rule(action, environment);
  }
}

Step GuestCpu::execute_cli_sti(const GuestAction& action, GuestEnvironment& environment) {
  if (cpl_ > iopl()) return general_protection(environment);
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

}  // namespace svmsim::svm
