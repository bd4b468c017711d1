#include "svm/sev_es.hpp"

#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// What becomes of an intercept in an SEV-ES guest (APM vol. 2, 15.35.4 to 15.35.6, table 15-33).

namespace svmsim::svm {

bool is_automatic_exit(std::uint64_t code, std::uint64_t exit_info_1) noexcept {
  if (code >= exit_code::invalid_pmc) return true;  // -4 to -1
  if (code >= exit_code::cr0_write_trap && code <= exit_code::cr0_write_trap + 15) return true;
  switch (code) {
    case exit_code::exception(exception_vector::machine_check):
    case exit_code::intr:
    case exit_code::nmi:
    case exit_code::smi:
    case exit_code::init:
    case exit_code::vintr:
    case exit_code::pause:
    case exit_code::hlt:
    case exit_code::shutdown:
    case exit_code::efer_write_trap:
    case exit_code::buslock:
    case exit_code::idle_hlt:
    case exit_code::vmgexit:
      return true;
    case exit_code::npf:
      return (exit_info_1 & npf_info::reserved) == 0;
    default:
      return false;
  }
}

Step GuestCpu::encrypted_exit(std::uint64_t code, std::uint64_t info_1, std::uint64_t info_2,
                              std::uint64_t next_rip) {
  if (!is_automatic_exit(code, info_1)) return communicate(code);
  // The stars of table 15-33. Write traps and VMGEXIT have completed when they exit: their rIP is the next
  // one already.
  if (code == exit_code::pause || code == exit_code::hlt || code == exit_code::idle_hlt) {
    rip_ = next_rip;
    shadow_ = false;
    rflags_ &= ~rflags::resume;
  }
  // The host cannot read RFLAGS of the VMSA; this bit is all that it sees of them.
  std::uint32_t& state = vmcb_->control.int_state;
  state = (rflags_ & rflags::interrupt) != 0 ? state | int_state::guest_interrupt_mask
                                             : state & ~int_state::guest_interrupt_mask;
  vmcb_->control.guest_sev_features = sev_features_;
  // What remains is the #VMEXIT of any guest; the next VMRUN asks for the environment again.
  sev_es_environment_ = nullptr;
  return vmexit(code, info_1, info_2, next_rip);
}

// #VC with the exit code as its error code. It may come in the delivery of another event, as any exception.
Step GuestCpu::communicate(std::uint64_t code) {
  const auto error_code = static_cast<std::uint32_t>(code);
  const std::uint32_t event = delivering_;
  const std::uint32_t event_error = delivering_error_;
  delivering_ = 0;
  delivering_error_ = 0;
  if (event != 0) {
    return exception_in_delivery(event, event_error, exception_vector::vmm_communication, error_code,
                                 *sev_es_environment_);
  }
  return raise(exception_vector::vmm_communication, true, error_code, 0, *sev_es_environment_);
}

}  // namespace svmsim::svm
