#include <fmt/format.h>

#include "svm/address.hpp"
#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/user_error.hpp"

// Instructions that svm/instruction_rules.hpp decides up to their effect, and the effects.

namespace svmsim::svm {

namespace {

constexpr std::uint32_t msr_mperf = 0xe7;
constexpr std::uint32_t msr_aperf = 0xe8;
constexpr std::uint32_t performance_counters = 6;
constexpr std::uint32_t legacy_counters = 4;
constexpr std::uint32_t msr_legacy_counter = 0xc001'0004;    ///< PerfCtr0 to 3
constexpr std::uint32_t msr_extended_counter = 0xc001'0201;  ///< every second MSR, for counters 0 to 5
constexpr std::uint64_t line_mask = ~std::uint64_t{63};

/// Components that XCR0 can name: x87, SSE, AVX, AVX-512, PKRU.
constexpr std::uint64_t xcr0_known = 0x2e7;
constexpr std::uint64_t xcr0_x87 = 1U << 0;
constexpr std::uint64_t xcr0_sse = 1U << 1;
constexpr std::uint64_t xcr0_avx = 1U << 2;
constexpr std::uint64_t xcr0_avx512 = 7U << 5;

constexpr bool legal_xcr0(std::uint64_t value) noexcept {
  if ((value & ~xcr0_known) != 0 || (value & xcr0_x87) == 0) return false;
  if ((value & xcr0_avx) != 0 && (value & xcr0_sse) == 0) return false;
  const std::uint64_t avx512 = value & xcr0_avx512;
  return avx512 == 0 || (avx512 == xcr0_avx512 && (value & xcr0_avx) != 0);
}

constexpr std::uint32_t counter_msr(std::uint32_t counter) noexcept {
  return counter < legacy_counters ? msr_legacy_counter + counter : msr_extended_counter + 2 * counter;
}

}  // namespace

Step GuestCpu::execute_by_rule(const GuestAction& action, GuestEnvironment& environment) {
  const InstructionRule* const rule = instruction_rule(action.kind);
  if (rule == nullptr) {
    throw InternalError(fmt::format("guest action {} does not exist", static_cast<unsigned>(action.kind)));
  }
  const auto exception = [&](int vector) {
    return vector == exception_vector::invalid_opcode ? invalid_opcode(environment)
                                                      : general_protection(environment);
  };
  if (const int vector = failed_check(rule->before, *rule, action); vector >= 0) return exception(vector);
  if (rule->intercept && intercepts(*rule->intercept) &&
      (!rule->intercept_feature || features_.has(*rule->intercept_feature))) {
    const bool shows_address = action.kind == ActionKind::invlpg && features_.has(Feature::decode_assists);
    return instruction_exit(exit_code_of(*rule->intercept), action, shows_address ? action.operand[1] : 0);
  }
  if (const int vector = failed_check(rule->after, *rule, action); vector >= 0) return exception(vector);
  return perform(action, environment);
}

// The vector of the first condition that holds, -1 when none does.
int GuestCpu::failed_check(std::uint32_t checks, const InstructionRule& rule,
                           const GuestAction& action) const noexcept {
  const auto has = [checks](std::uint32_t bit) { return (checks & bit) != 0; };
  const VmcbSave& save = vmcb_->save;
  const bool svme = (save.efer & efer::svme) != 0;
  const bool user = cpl_ != 0;
  if ((has(check::ud_extension) && rule.extension && !features_.has(*rule.extension)) ||
      has(check::ud_always) || (has(check::ud_real) && !protected_mode()) || (has(check::ud_svme) && !svme) ||
      (has(check::ud_svme_or_skinit) && !svme && !features_.has(Extension::skinit)) ||
      (has(check::ud_osxsave) && (save.cr4 & cr4::osxsave) == 0) ||
      (has(check::ud_mcommit) && (save.efer & efer::mcommit) == 0) || (has(check::ud_user) && user) ||
      (has(check::ud_user_tsd) && user && (save.cr4 & cr4::tsd) != 0) ||
      (has(check::ud_not_enabled) && (vmcb_->control.nested_ctl & nested_ctl::invlpgb_enable) == 0)) {
    return exception_vector::invalid_opcode;
  }
  if ((has(check::gp_user) && user) || (has(check::gp_user_tsd) && user && (save.cr4 & cr4::tsd) != 0) ||
      (has(check::gp_user_pce) && user && (save.cr4 & cr4::pce) == 0) ||
      (has(check::gp_user_umip) && user && (save.cr4 & cr4::umip) != 0) ||
      (has(check::gp_v86_iopl) && (rflags_ & rflags::virtual_8086) != 0 && iopl() < 3) ||
      (has(check::gp_operand) && !legal_operand(action))) {
    return exception_vector::general_protection;
  }
  return -1;
}

bool GuestCpu::legal_operand(const GuestAction& action) const noexcept {
  constexpr std::uint64_t largest_pcid = 0xfff;
  constexpr std::uint32_t one_address = 0;
  constexpr std::uint32_t one_pcid = 1;
  constexpr std::uint32_t last_type = 3;
  switch (action.kind) {
    case ActionKind::rdpmc:
      return action.number < performance_counters;
    case ActionKind::monitor:
    case ActionKind::monitorx:
      return (action.operand[0] & 0xffff'ffffU) == 0;
    case ActionKind::xsetbv:
      return action.number == 0 && legal_xcr0(action.operand[0]);
    case ActionKind::invpcid: {
      const std::uint64_t pcid = action.operand[0];
      if (action.number > last_type || pcid > largest_pcid) return false;
      if (action.number == one_address && !canonical(action.operand[1])) return false;
      return action.number > one_pcid || pcid == 0 || (vmcb_->save.cr4 & cr4::pcide) != 0;
    }
    default:
      return true;
  }
}

Step GuestCpu::perform(const GuestAction& action, GuestEnvironment& environment) {
  switch (action.kind) {
    case ActionKind::rdtscp:
      return retire(action, guest_tsc(environment));
    case ActionKind::rdpmc: {
      const MsrAccess counter = environment.read_msr(counter_msr(action.number));
      if (counter.general_protection) return general_protection(environment);
      return retire(action, counter.value);
    }
    case ActionKind::rdpru:
      // Registers that do not exist read 0 (APM vol. 3, RDPRU).
      if (action.number > 1) return retire(action);
      return retire(action, environment.read_msr(action.number == 0 ? msr_mperf : msr_aperf).value);
    case ActionKind::pushf:
      return retire(action, rflags_ & ~(rflags::resume | rflags::virtual_8086));
    case ActionKind::popf:
      return perform_popf(action);
    case ActionKind::sidt:
    case ActionKind::sgdt:
    case ActionKind::sldt:
    case ActionKind::str:
    case ActionKind::lidt:
    case ActionKind::lgdt:
    case ActionKind::lldt:
    case ActionKind::ltr:
      return perform_descriptor_table(action, environment);
    case ActionKind::monitor:
    case ActionKind::monitorx: {
      // MONITOR reads the line as a load would.
      if (const Step fault = touch(action.operand[1], PageAccess::read, environment);
          fault.kind != StepKind::none) {
        return fault;
      }
      monitor_line_ = action.operand[1] & line_mask;
      monitor_armed_ = true;
      return retire(action);
    }
    case ActionKind::xsetbv:
      xcr0_ = action.operand[0];
      return retire(action);
    case ActionKind::stgi:
      return set_gif(action, true);
    case ActionKind::clgi:
      return set_gif(action, false);
    case ActionKind::skinit:
      return perform_skinit(action);
    case ActionKind::invlpgb:
      return perform_invlpgb(action, environment);
    case ActionKind::invlpg:
    case ActionKind::invlpga:
    case ActionKind::invpcid:
      forget_pages();
      return retire(action);
    case ActionKind::mcommit:
      // CF says that all stores before it have been committed; in this core they always are.
      rflags_ |= rflags::carry;
      return retire(action);
    default:
      return retire(action);  // INVD, WBINVD, WBNOINVD, TLBSYNC: nothing that can be seen here
  }
}

}  // namespace svmsim::svm
