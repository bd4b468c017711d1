#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// MOV DRn (APM vol. 2, 15.8.2, 13.1.1) and instruction breakpoints.

namespace svmsim::svm {

// All exceptions come before the intercept. Without CR4.DE, DR4 and DR5 are DR6 and DR7; the intercept is
// that of the number in the instruction.
Step GuestCpu::execute_dr(const GuestAction& action, bool write, GuestEnvironment& environment) {
  VmcbSave& save = vmcb_->save;
  const unsigned number = action.number;
  const bool alias = number == 4 || number == 5;
  if (number > 7 || (alias && (save.cr4 & cr4::de) != 0)) return invalid_opcode(environment);
  if (cpl_ != 0) return general_protection(environment);
  if ((save.dr7 & dr7::gd) != 0) {
    const Step step = raise(exception_vector::debug, false, 0, dr6::bd, environment);
    // Its handler may use the debug registers (13.1.1).
    if (step.kind == StepKind::delivered) save.dr7 &= ~dr7::gd;
    return step;
  }
  const std::uint64_t value = register_operand(action);
  if (write && number >= 4 && (value >> 32) != 0) return general_protection(environment);

  const auto first = static_cast<unsigned>(write ? Intercept::write_dr0 : Intercept::read_dr0);
  const auto intercept = static_cast<Intercept>(first + number);
  if (intercepts(intercept)) {
    const std::uint64_t info = features_.has(Feature::decode_assists) ? action.gpr & 0xfU : 0;
    return instruction_exit(exit_code_of(intercept), action, info);
  }
  const unsigned target = alias ? number + 2 : number;
  if (target < breakpoint_.size()) {
    if (write) breakpoint_[target] = value;
    return retire(action, breakpoint_[target]);
  }
  std::uint64_t& reg = target == 6 ? save.dr6 : save.dr7;
  if (write) {
    reg = target == 6 ? (value & dr6::writable) | dr6::always_one : (value & dr7::writable) | dr7::always_one;
  }
  return retire(action, reg);
}

// An enabled breakpoint (L or G) on the fetch (R/W 0) of this address. It comes before the intercepts of the
// instruction (15.9), and not where RFLAGS.RF says that it has been seen (13.1.4).
Step GuestCpu::instruction_breakpoint(GuestEnvironment& environment) {
  if ((rflags_ & rflags::resume) != 0) return {};
  const std::uint64_t dr7 = vmcb_->save.dr7;
  std::uint64_t hits = 0;
  for (unsigned n = 0; n < breakpoint_.size(); ++n) {
    const bool enabled = ((dr7 >> (2 * n)) & 3U) != 0;
    const bool on_fetch = ((dr7 >> (16 + 4 * n)) & 3U) == 0;
    if (enabled && on_fetch && breakpoint_[n] == rip_) hits |= std::uint64_t{1} << n;
  }
  if (hits == 0) return {};
  return raise(exception_vector::debug, false, 0, hits, environment);
}

}  // namespace svmsim::svm
