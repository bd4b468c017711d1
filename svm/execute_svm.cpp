#include "svm/address.hpp"
#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/vmload_state.hpp"

// SVM's own instructions in the guest (APM vol. 2, 15.5, 15.17, 15.33) and the TLB instructions that know
// about guests.

namespace svmsim::svm {

namespace {

/// What VMRUN, VMLOAD and VMSAVE raise before their intercepts. With NestedVirtVmcbAddrChk an address that no
/// VMCB can have exits instead of #GP, so that a hypervisor can tell its guest of another limit.
std::optional<std::uint8_t> exception_before_intercept(SvmInstruction instruction, const FeatureSet& features,
                                                       const ProcessorLimits& limits) noexcept {
  if (features.has(Feature::nested_virt_vmcb_addr_chk)) instruction.vmcb_physical.reset();
  return svm_instruction_exception(instruction, limits);
}

}  // namespace

Step GuestCpu::execute_vmrun(const GuestAction& action, GuestEnvironment& environment) {
  const bool svme = (vmcb_->save.efer & efer::svme) != 0;
  const auto exception =
      exception_before_intercept({svme, protected_mode(), cpl_, action.operand[1]}, features_, limits_);
  if (exception == exception_vector::invalid_opcode) return invalid_opcode(environment);
  if (exception) return general_protection(environment);
  // No guest runs without this intercept (15.5.1).
  return intercepted_exit(Intercept::vmrun, action);
}

Step GuestCpu::execute_vmload_vmsave(const GuestAction& action, GuestEnvironment& environment) {
  const bool load = action.kind == ActionKind::vmload;
  const std::uint64_t address = action.operand[1];
  const bool svme = (vmcb_->save.efer & efer::svme) != 0;
  const auto exception =
      exception_before_intercept({svme, protected_mode(), cpl_, address}, features_, limits_);
  if (exception == exception_vector::invalid_opcode) return invalid_opcode(environment);
  if (exception) return general_protection(environment);
  const Intercept intercept = load ? Intercept::vmload : Intercept::vmsave;
  if (intercepts(intercept) || !is_page_below(address, limits_.physical_limit()))
    return intercepted_exit(intercept, action);

  const VmcbControl& control = vmcb_->control;
  if (features_.has(Feature::vls) && (control.virt_ext & virt_ext::vls) != 0) {
    // 15.33.1: rAX is a guest physical address. What virtualization needs is nested paging, a host in long
    // mode and no SEV; without that the instruction exits although its intercept is clear.
    const bool nested = (control.nested_ctl & nested_ctl::np_enable) != 0;
    const bool encrypted = limits_.sev && (control.nested_ctl & nested_ctl::sev_enable) != 0;
    if (!nested || encrypted || !limits_.long_mode || !limits_.host_paging) {
      return intercepted_exit(intercept, action);
    }
    const Step fault = touch(address, load ? PageAccess::read : PageAccess::write, environment);
    if (fault.kind != StepKind::none) return fault;
  }
  if (Vmcb* const page = environment.vmcb_page(address); page != nullptr) {
    if (load) {
      move_vmload_state(page->save, vmcb_->save);
    } else {
      move_vmload_state(vmcb_->save, page->save);
    }
  }
  return retire(action);
}

// 15.33.2: VGIF where it is enabled. Without it the guest has the real GIF in its hands.
Step GuestCpu::set_gif(const GuestAction& action, bool value) {
  if (!virtual_gif_enabled()) {
    gif_ = value;
  } else {
    int_ctl_ = value ? int_ctl_ | int_ctl::v_gif : int_ctl_ & ~int_ctl::v_gif;
  }
  return retire(action);
}

// 15.27.4: the secure loader starts in flat protected mode without paging and interrupts, behind the length
// and entry point words of its image. Left out: the reset of other state, the hash, the entry offset, which
// are in memory.
Step GuestCpu::perform_skinit(const GuestAction& action) {
  VmcbSave& save = vmcb_->save;
  constexpr std::uint64_t et = 1U << 4;
  save.cr0 = cr0::pe | et;
  save.cr4 = 0;
  save.efer = 0;
  save.dr7 = dr7::always_one;
  rflags_ = rflags::always_one;
  const Step step = retire(action);
  rip_ = action.number & 0xffff'0000U;
  gif_ = false;
  return step;
}

// Bit 1 of word 5 catches only forms that are not allowed; un-intercepted they raise #GP(0). The rule has
// seen to CPL and to the intercept of every INVLPGB. Legal in a guest: no reserved bit in rAX, its own ASID
// (0), and no flush of nested translations.
Step GuestCpu::perform_invlpgb(const GuestAction& action, GuestEnvironment& environment) {
  constexpr std::uint64_t asid_valid = 1U << 2;
  constexpr std::uint64_t nested_translations = 1U << 5;
  constexpr std::uint64_t reserved = 0xfc0;
  const std::uint64_t rax = action.operand[0];
  const bool other_asid = (rax & asid_valid) != 0 && (action.operand[1] & 0xffffU) != 0;
  const bool illegal = (action.flags & action_flags::illegal_form) != 0 ||
                       (rax & (reserved | nested_translations)) != 0 || other_asid;
  if (!illegal) {
    forget_pages();
    return retire(action);
  }
  if (intercepts(Intercept::invlpgb_illegal)) {
    return intercepted_exit(Intercept::invlpgb_illegal, action);
  }
  return general_protection(environment);
}

// 15.35.6: VMGEXIT is VMMCALL with a prefix that only SEV-ES guests give a meaning. rIP is behind it.
Step GuestCpu::execute_vmgexit(const GuestAction& action, GuestEnvironment& environment) {
  if (!sev_es()) {
    if (intercepts(Intercept::vmmcall)) return intercepted_exit(Intercept::vmmcall, action);
    return invalid_opcode(environment);
  }
  static_cast<void>(retire(action));
  return vmexit(exit_code::vmgexit);
}

}  // namespace svmsim::svm
