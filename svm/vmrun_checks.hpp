#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "svm/features.hpp"
#include "svm/guest_environment.hpp"
#include "svm/intercept.hpp"
#include "svm/knobs.hpp"
#include "svm/processor_limits.hpp"
#include "svm/vmcb.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::svm {

/// One consistency check of VMRUN that a VMCB fails.
struct RuleViolation {
  std::string_view id;       ///< short and stable: "asid_zero"
  std::string_view section;  ///< of APM vol. 2
  std::string_view text;     ///< what is wrong, one sentence without a full stop
};

/// VMRUN's consistency checks (APM vol. 2, 15.5.1 and the sections of the single features).
///
/// vmrun_legal() covers what follows from the VMCB, the CPUID features and the processor's limits.
/// vmrun_violations() names every failed rule; with an environment also those about guest memory, MSRs, the
/// VMSA and the owner of pages: PDPTEs, U_CET, SEV-ES, Secure AVIC, SNP. Both run over the same table.
[[nodiscard]] bool vmrun_legal(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                               const ProcessorLimits& limits) noexcept;
[[nodiscard]] std::vector<RuleViolation> vmrun_violations(const Vmcb& vmcb, const FeatureSet& features,
                                                          const Knobs& knobs = {},
                                                          const ProcessorLimits& limits = {},
                                                          GuestEnvironment* environment = nullptr);

/// The two halves of vmrun_legal(): the state, and the event that is injected.
[[nodiscard]] bool vmrun_state_legal(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                                     const ProcessorLimits& limits) noexcept;
[[nodiscard]] bool vmrun_injection_legal(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                                         const ProcessorLimits& limits) noexcept;

/// Whether the VMCB's state asks for rules about what lies outside of it. The same for equal VmrunInputs.
[[nodiscard]] bool vmrun_needs_surroundings(const Vmcb& vmcb, const FeatureSet& features,
                                            const ProcessorLimits& limits) noexcept;
/// The exit code with which VMRUN fails because of what lies outside of the VMCB (INVALID, BUSY,
/// IDLE_REQUIRED, INVALID_PMC), or 0. `vmsa` is that of an SEV-ES guest.
[[nodiscard]] std::uint64_t vmrun_refusal(const Vmcb& vmcb, const FeatureSet& features,
                                          const ProcessorLimits& limits, const Vmsa& vmsa,
                                          GuestEnvironment& environment);

/// What VMRUN, VMLOAD, VMSAVE and the other instructions of SVM check before anything else.
struct SvmInstruction {
  bool svme = true;            ///< EFER.SVME
  bool protected_mode = true;  ///< CR0.PE and not virtual-8086 mode
  std::uint8_t cpl = 0;
  std::optional<std::uint64_t> vmcb_physical;  ///< rAX of VMRUN, VMLOAD and VMSAVE
};
/// #UD or #GP, or nothing (15.5.1): #UD without EFER.SVME or outside of protected mode, #GP at CPL > 0 and
/// for an address that is not 4 KiB aligned or beyond the physical address space.
[[nodiscard]] std::optional<std::uint8_t> svm_instruction_exception(const SvmInstruction& instruction,
                                                                    const ProcessorLimits& limits) noexcept;

/// All that the rules about the state read of a VMCB: two VMCBs with equal inputs get the same verdict, so
/// that a core may remember the last legal ones.
struct VmrunInputs {
  std::array<std::uint64_t, 17> words{};

  /// The inputs of no VMCB: its second word has bits that no VMCB sets.
  [[nodiscard]] static VmrunInputs of_none() noexcept {
    VmrunInputs inputs;
    inputs.words[1] = ~std::uint64_t{0};
    return inputs;
  }
  [[nodiscard]] static VmrunInputs of(const Vmcb& vmcb) noexcept {
    VmrunInputs inputs;
    std::size_t next = 0;
    for_each(vmcb, [&](std::uint64_t word) { inputs.words[next++] = word; });
    return inputs;
  }
  /// Whether these are the inputs of `vmcb`; as of() and a comparison, without the copy.
  [[nodiscard]] bool are_of(const Vmcb& vmcb) const noexcept {
    std::uint64_t difference = 0;
    std::size_t next = 0;
    for_each(vmcb, [&](std::uint64_t word) { difference |= words[next++] ^ word; });
    return difference == 0;
  }

 private:
  template <typename Take>
  static void for_each(const Vmcb& vmcb, Take take) noexcept {
    constexpr std::uint32_t enables = int_ctl::v_nmi_enable | int_ctl::avic_enable | int_ctl::x2avic_enable;
    const VmcbControl& control = vmcb.control;
    const VmcbSave& save = vmcb.save;
    const std::uint64_t intercepts =
        (intercepted(control, Intercept::vmrun) ? 1U : 0U) | (intercepted(control, Intercept::nmi) ? 2U : 0U);
    take(std::uint64_t{control.asid} << 32 | (control.int_ctl & enables));
    take(intercepts << 16 | save.cs.attrib);
    take(control.iopm_base_pa);
    take(control.msrpm_base_pa);
    take(control.nested_ctl);
    take(control.nested_cr3);
    take(control.avic_backing_page);
    take(control.avic_logical_id);
    take(control.avic_physical_id);
    take(save.efer);
    take(save.cr0);
    take(save.cr3);
    take(save.cr4);
    take(save.dr6);
    take(save.dr7);
    take(save.s_cet);
    take(save.g_pat);
  }
};

/// All rules, in the order in which vmrun_violations() reports them.
[[nodiscard]] std::vector<RuleViolation> vmrun_rules();

}  // namespace svmsim::svm
