#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// MOV CRn, CLTS, LMSW, SMSW (APM vol. 2, 15.8.1, 15.9; 3.1 for what a register may hold). The exceptions that
// need no memory come before the intercepts, an access to a memory operand behind them.

namespace svmsim::svm {

namespace {

constexpr std::uint32_t msr_x2apic_tpr = 0x808;
constexpr unsigned last_cr = 8;
constexpr std::uint64_t no_flush = std::uint64_t{1} << 63;  ///< of MOV to CR3 with CR4.PCIDE

constexpr bool exists(unsigned number) noexcept {
  return number == 0 || (number >= 2 && number <= 4) || number == last_cr;
}

constexpr Intercept nth(Intercept first, unsigned number) noexcept {
  return static_cast<Intercept>(static_cast<unsigned>(first) + number);
}

}  // namespace

std::uint64_t GuestCpu::cr_exit_info(const GuestAction& action) const noexcept {
  return features_.has(Feature::decode_assists) ? cr_info::mov | (action.gpr & 0xfU) : 0;
}

Step GuestCpu::execute_mov_from_cr(const GuestAction& action, GuestEnvironment& environment) {
  const unsigned number = action.number;
  if (!exists(number)) return invalid_opcode(environment);
  if (number == last_cr) return execute_cr8(action, false, environment);
  if (cpl_ != 0) return general_protection(environment);
  const Intercept intercept = nth(Intercept::read_cr0, number);
  if (intercepts(intercept)) {
    return instruction_exit(exit_code_of(intercept), action, cr_exit_info(action));
  }
  const VmcbSave& save = vmcb_->save;
  switch (number) {
    case 0:
      return retire(action, save.cr0);
    case 2:
      return retire(action, save.cr2);
    case 3:
      return retire(action, save.cr3);
    default:
      return retire(action, save.cr4);
  }
}

Step GuestCpu::execute_mov_to_cr(const GuestAction& action, GuestEnvironment& environment) {
  const unsigned number = action.number;
  if (!exists(number)) return invalid_opcode(environment);
  if (number == last_cr) return execute_cr8(action, true, environment);
  const std::uint64_t value = register_operand(action);
  if (cpl_ != 0 || !cr_write_legal(number, value)) return general_protection(environment);
  const Intercept intercept = nth(Intercept::write_cr0, number);
  if (intercepts(intercept)) {
    return instruction_exit(exit_code_of(intercept), action, cr_exit_info(action));
  }
  // 15.8.1: the selective intercept comes second, and TS and MP are no concern of it.
  if (number == 0 && intercepts(Intercept::cr0_sel_write) &&
      ((value ^ vmcb_->save.cr0) & ~(cr0::ts | cr0::mp)) != 0) {
    return instruction_exit(exit_code::cr0_sel_write, action, cr_exit_info(action));
  }
  return write_cr(number, value, action);
}

Step GuestCpu::execute_clts(const GuestAction& action, GuestEnvironment& environment) {
  if (cpl_ != 0) return general_protection(environment);
  if (intercepts(Intercept::write_cr0)) return intercepted_exit(Intercept::write_cr0, action);
  return write_cr(0, vmcb_->save.cr0 & ~cr0::ts, action);
}

// LMSW writes PE, MP, EM and TS, and cannot clear PE. The selective intercept exempts only TS here.
Step GuestCpu::execute_lmsw(const GuestAction& action, GuestEnvironment& environment) {
  if (cpl_ != 0) return general_protection(environment);
  if (intercepts(Intercept::write_cr0)) return intercepted_exit(Intercept::write_cr0, action);
  constexpr std::uint64_t written = cr0::mp | cr0::em | cr0::ts;
  const std::uint64_t old = vmcb_->save.cr0;
  const std::uint64_t value = (old & ~written) | (action.operand[0] & (written | cr0::pe));
  if (intercepts(Intercept::cr0_sel_write) && ((value ^ old) & ~cr0::ts) != 0) {
    return intercepted_exit(Intercept::cr0_sel_write, action);
  }
  if (action.operand[1] != 0) {
    const Step fault = touch(action.operand[1], PageAccess::read, environment);
    if (fault.kind != StepKind::none) return fault;
  }
  return write_cr(0, value, action);
}

Step GuestCpu::execute_smsw(const GuestAction& action, GuestEnvironment& environment) {
  if (cpl_ != 0 && (vmcb_->save.cr4 & cr4::umip) != 0) return general_protection(environment);
  if (intercepts(Intercept::read_cr0)) return intercepted_exit(Intercept::read_cr0, action);
  if (action.operand[1] != 0) {
    const Step fault = touch(action.operand[1], PageAccess::write, environment);
    if (fault.kind != StepKind::none) return fault;
  }
  return retire(action, vmcb_->save.cr0);
}

// What makes MOV CRn raise #GP(0) (3.1.1-3.1.3, 5.5.1, 18.11 for CR4.CET). PDPTEs are in memory that is not
// modelled.
bool GuestCpu::cr_write_legal(unsigned number, std::uint64_t value) const noexcept {
  const VmcbSave& save = vmcb_->save;
  const bool long_mode_active = (save.efer & efer::lma) != 0;
  switch (number) {
    case 0: {
      const bool paging = (value & cr0::pg) != 0;
      const bool was_paging = (save.cr0 & cr0::pg) != 0;
      const bool code_64 = (save.cs.attrib & segment_attrib::long_mode) != 0;
      if ((value >> 32) != 0 || (paging && (value & cr0::pe) == 0)) return false;
      if ((value & cr0::nw) != 0 && (value & cr0::cd) == 0) return false;
      if ((save.cr4 & cr4::cet) != 0 && (value & cr0::wp) == 0) return false;
      if (paging && !was_paging && (save.efer & efer::lme) != 0) {
        return (save.cr4 & cr4::pae) != 0 && !code_64;
      }
      return paging || !was_paging || ((save.cr4 & cr4::pcide) == 0 && !(long_mode_active && code_64));
    }
    case 3: {
      const bool flush_bit = (save.cr4 & cr4::pcide) != 0;
      const std::uint64_t address = flush_bit ? value & ~no_flush : value;
      return !long_mode_active || (address >> limits_.physical_address_bits) == 0;
    }
    case 4: {
      if ((value & limits_.cr4_reserved) != 0) return false;
      if ((value & cr4::osxsave) != 0 && !features_.has(Extension::xsave)) return false;
      if ((value & cr4::umip) != 0 && !features_.has(Extension::umip)) return false;
      if (long_mode_active && (value & cr4::pae) == 0) return false;
      if ((value & cr4::cet) != 0 && (save.cr0 & cr0::wp) == 0) return false;
      const bool sets_pcide = (value & ~save.cr4 & cr4::pcide) != 0;
      return !sets_pcide || (long_mode_active && (save.cr3 & 0xfffU) == 0);
    }
    default:
      return true;
  }
}

// The write, and the trap behind it that SEV-ES guests have (15.35.5).
Step GuestCpu::write_cr(unsigned number, std::uint64_t value, const GuestAction& action) {
  VmcbSave& save = vmcb_->save;
  switch (number) {
    case 0: {
      save.cr0 = value;
      const bool active = (value & cr0::pg) != 0 && (save.efer & efer::lme) != 0;
      save.efer = active ? save.efer | efer::lma : save.efer & ~efer::lma;
      break;
    }
    case 2:
      save.cr2 = value;
      break;
    case 3:
      save.cr3 = (save.cr4 & cr4::pcide) != 0 ? value & ~no_flush : value;
      break;
    default:
      save.cr4 = value;
      break;
  }
  const Step step = retire(action);
  const Intercept trap = nth(Intercept::cr0_write_trap, number);
  return sev_es() && intercepts(trap) ? vmexit(exit_code_of(trap), value) : step;
}

// CR8 is V_TPR. Without V_INTR_MASKING it is the physical APIC's TPR as well (15.21.2), reached as the x2APIC
// register. With AVIC a write also reaches the backing page, whatever V_INTR_MASKING says.
Step GuestCpu::execute_cr8(const GuestAction& action, bool write, GuestEnvironment& environment) {
  if (cpl_ != 0 || (write && action.operand[0] > 0xf)) return general_protection(environment);
  const Intercept intercept = write ? Intercept::write_cr8 : Intercept::read_cr8;
  if (intercepts(intercept)) {
    return instruction_exit(exit_code_of(intercept), action, cr_exit_info(action));
  }
  const bool masking = (int_ctl_ & int_ctl::v_intr_masking) != 0;
  const bool avic = avic_environment_ != nullptr;
  if (!write) {
    return retire(action, masking || avic ? v_tpr() : environment.read_msr(msr_x2apic_tpr).value >> 4);
  }
  const auto priority = static_cast<std::uint8_t>(action.operand[0]);
  int_ctl_ = int_ctl::with_v_tpr(int_ctl_, priority);
  if (avic) {
    environment.avic_write_cr8(priority);
    note_avic_pending();
  }
  if (!masking) static_cast<void>(environment.write_msr(msr_x2apic_tpr, std::uint64_t{priority} << 4));
  const Step step = retire(action);
  return sev_es() && intercepts(Intercept::cr8_write_trap) ? vmexit(exit_code::cr8_write_trap, priority)
                                                           : step;
}

}  // namespace svmsim::svm
