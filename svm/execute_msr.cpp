#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// MSRs (APM vol. 2, 15.11) and the time-stamp counter (15.30.5).

namespace svmsim::svm {

namespace {

constexpr std::uint32_t msr_tsc = 0x10;
constexpr std::uint32_t msr_x2apic_first = 0x800;
constexpr std::uint32_t x2apic_msrs = 0x100;
constexpr std::uint32_t msr_efer = 0xc000'0080;

}  // namespace

// Guest TSC = host TSC * TSC_RATIO + TSC_OFFSET; the ratio has 8 integer and 32 fractional bits.
std::uint64_t GuestCpu::guest_tsc(GuestEnvironment& environment) const {
  std::uint64_t tsc = environment.host_tsc();
  if (features_.has(Feature::tsc_rate_msr)) {
    const std::uint64_t ratio = environment.tsc_ratio();
    if (ratio != GuestEnvironment::tsc_ratio_one) {
      const std::uint64_t whole = (ratio >> 32) & 0xffU;
      const std::uint64_t fraction = ratio & 0xffff'ffffU;
      tsc = tsc * whole + (tsc >> 32) * fraction + (((tsc & 0xffff'ffffU) * fraction) >> 32);
    }
  }
  return tsc + vmcb_->control.tsc_offset;
}

Step GuestCpu::execute_rdtsc(const GuestAction& action, GuestEnvironment& environment) {
  if (cpl_ != 0 && (vmcb_->save.cr4 & cr4::tsd) != 0) return general_protection(environment);
  if (intercepts(Intercept::rdtsc)) return intercepted_exit(Intercept::rdtsc, action);
  return retire(action, guest_tsc(environment));
}

// 15.11: the #GP of CPL > 0 comes before the MSRPM, the #GP of the single MSR after it.
Step GuestCpu::execute_msr(const GuestAction& action, bool write, GuestEnvironment& environment) {
  if (cpl_ != 0) return general_protection(environment);
  if (intercepts(Intercept::msr) &&
      environment.msr_permission_map(vmcb_->control.msrpm_base_pa & ~std::uint64_t{0xfff})
          .intercepts(action.number, write)) {
    return instruction_exit(exit_code::msr, action, write ? 1 : 0);
  }
  if (x2avic() && action.number - msr_x2apic_first < x2apic_msrs) {
    return execute_avic_msr(action, write, environment);
  }
  if (write) {
    if (action.number == msr_efer) return write_efer(action, environment);
    if (environment.write_msr(action.number, action.operand[0]).general_protection) {
      return general_protection(environment);
    }
    return retire(action);
  }
  if (action.number == msr_tsc) return retire(action, guest_tsc(environment));
  if (action.number == msr_efer) return retire(action, vmcb_->save.efer);
  const MsrAccess access = environment.read_msr(action.number);
  if (access.general_protection) return general_protection(environment);
  return retire(action, access.value);
}

// EFER is in the VMCB and so in the core (3.1.7): no reserved bits, LME only while paging is off, LMA keeps
// its value. SEV-ES guests trap after the write (15.35.5).
Step GuestCpu::write_efer(const GuestAction& action, GuestEnvironment& environment) {
  VmcbSave& save = vmcb_->save;
  const std::uint64_t value = action.operand[0];
  const bool changes_lme = ((value ^ save.efer) & efer::lme) != 0;
  const bool no_long_mode = !limits_.long_mode && (value & efer::lme) != 0;
  if ((value & limits_.efer_reserved) != 0 || (changes_lme && (save.cr0 & cr0::pg) != 0) || no_long_mode) {
    return general_protection(environment);
  }
  save.efer = (value & ~efer::lma) | (save.efer & efer::lma);
  const Step step = retire(action);
  if (intercepts(Intercept::efer_write_trap) && sev_es()) {
    return vmexit(exit_code::efer_write_trap, save.efer);
  }
  return step;
}

}  // namespace svmsim::svm
