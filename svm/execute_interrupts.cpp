#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// INTn, INT3, INTO, ICEBP, exceptions, IRET, POPF, task switches and FERR (APM vol. 2, 15.9, 15.12, 15.14).

namespace svmsim::svm {

namespace {

constexpr std::uint32_t vectors_with_error_code = 1U << 8 | 1U << 10 | 1U << 11 | 1U << 12 | 1U << 13 |
                                                  1U << 14 | 1U << 17 | 1U << 21 | 1U << 29 | 1U << 30;
constexpr std::uint32_t exception_vectors = 32;
constexpr std::uint32_t coprocessor_overrun = 9;

}  // namespace

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

// INTn is intercepted before any exception; INT3 and INTO have the intercepts of their exceptions, with nRIP
// (15.7.1); ICEBP has its own one and then that of #DB.
Step GuestCpu::execute_interrupt(const GuestAction& action, GuestEnvironment& environment) {
  const auto vector = static_cast<std::uint8_t>(action.number);
  switch (action.kind) {
    case ActionKind::int_n:
      if (intercepts(Intercept::swint)) {
        const std::uint64_t info = features_.has(Feature::decode_assists) ? vector : 0;
        return instruction_exit(exit_code::swint, action, info);
      }
      return software_interrupt(vector, action.next_rip(), environment);
    case ActionKind::int3:
      return raise_software(exception_vector::breakpoint, action.next_rip(), environment);
    case ActionKind::into:
      if (mode_64()) return invalid_opcode(environment);
      return raise_software(exception_vector::overflow, action.next_rip(), environment);
    default: {
      if (intercepts(Intercept::icebp)) return intercepted_exit(Intercept::icebp, action);
      const Step retired = retire(action);  // a trap
      const Step step = raise(exception_vector::debug, false, 0, 0, environment);
      return step.kind == StepKind::none ? retired : step;
    }
  }
}

// Vectors that are no exceptions do nothing: 2 is NMI, an event. The intercept bit of 9 is not implemented
// (15.12.10).
Step GuestCpu::execute_raise(const GuestAction& action, GuestEnvironment& environment) {
  const std::uint32_t vector = action.number;
  if (vector >= exception_vectors || vector == exception_vector::nmi) return retire(action);
  const auto number = static_cast<std::uint8_t>(vector);
  if (number == exception_vector::breakpoint || number == exception_vector::overflow) {
    return raise_software(number, action.next_rip(), environment);
  }
  if (number == coprocessor_overrun) {
    return deliver(event_inj::event(event_inj::type_exception, number), 0, rip_, environment);
  }
  const bool has_error = ((vectors_with_error_code >> vector) & 1U) != 0;
  const std::uint64_t next_rip = number == exception_vector::bound_range ? action.next_rip() : 0;
  const Step step = raise(number, has_error, static_cast<std::uint32_t>(action.operand[0]), action.operand[1],
                          environment, next_rip);
  return step.kind == StepKind::none ? retire(action) : step;
}

// 3.1.6. RF and VM stay, IOPL needs CPL 0, IF needs IOPL. No shadow: only STI has one.
Step GuestCpu::perform_popf(const GuestAction& action) {
  constexpr std::uint64_t arithmetic = 0x8d5;  // CF PF AF ZF SF OF
  constexpr std::uint64_t direction = 1U << 10;
  constexpr std::uint64_t alignment_and_id = (1U << 18) | (1U << 21);
  std::uint64_t written = arithmetic | direction | alignment_and_id | rflags::trap | rflags::nested_task;
  if (cpl_ == 0) written |= rflags::iopl_mask;
  if (cpl_ <= iopl()) written |= rflags::interrupt;
  rflags_ = (rflags_ & ~written) | (action.operand[0] & written);
  return retire(action);
}

// 15.14.1: behind the checks of the TSS, before the switch. Long mode has no task switches (12.2).
Step GuestCpu::execute_task_switch(const GuestAction& action, GuestEnvironment& environment) {
  VmcbSave& save = vmcb_->save;
  const auto selector = static_cast<std::uint16_t>(action.number);
  constexpr std::uint32_t rpl = 3;
  if ((save.efer & efer::lma) != 0 || !protected_mode()) {
    return raise(exception_vector::general_protection, true, selector & ~rpl, 0, environment);
  }
  const bool by_iret = (action.flags & action_flags::iret) != 0;
  const bool by_jump = (action.flags & action_flags::far_jump) != 0;
  const bool has_error = (action.flags & action_flags::has_error_code) != 0;
  if (intercepts(Intercept::task_switch)) {
    std::uint64_t info = has_error ? action.operand[0] & 0xffff'ffffU : 0;
    if (by_iret) info |= task_switch_info::iret;
    if (by_jump) info |= task_switch_info::far_jump;
    if (has_error) info |= task_switch_info::has_error_code;
    if ((rflags_ & rflags::resume) != 0) info |= task_switch_info::resume_flag;
    return vmexit(exit_code::task_switch, selector, info);
  }
  save.tr.selector = selector;
  save.cr0 |= cr0::ts;
  if (by_iret) {
    rflags_ &= ~rflags::nested_task;
  } else if (!by_jump) {
    rflags_ |= rflags::nested_task;
  }
  return retire(action);
}

// 15.14.2: an x87 error with CR0.NE clear drives FERR# and freezes the processor until an interrupt; rIP
// stays at the waiting instruction. With CR0.NE it is #MF.
Step GuestCpu::execute_ferr(GuestEnvironment& environment) {
  if ((vmcb_->save.cr0 & cr0::ne) != 0) return fault(exception_vector::x87, environment);
  if (intercepts(Intercept::ferr_freeze)) return vmexit(exit_code::ferr_freeze);
  halted_ = true;
  mwait_ = false;
  return {StepKind::halted, 0, 0};
}

}  // namespace svmsim::svm
