#include "svm/vmrun_checks.hpp"

#include <array>
#include <cstddef>

#include "svm/address.hpp"
#include "svm/exit_code.hpp"
#include "svm/guest_environment.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmrun_rules.hpp"

namespace svmsim::svm {

namespace {

struct Context {
  const VmcbControl& control;
  const VmcbSave& save;
  const FeatureSet& features;
  const Knobs& knobs;
  const ProcessorLimits& limits;

  [[nodiscard]] constexpr bool avic() const noexcept {
    return features.has(Feature::avic) && (control.int_ctl & int_ctl::avic_enable) != 0;
  }
  [[nodiscard]] constexpr bool x2avic() const noexcept {
    return features.has(Feature::x2avic) && (control.int_ctl & int_ctl::x2avic_enable) != 0;
  }
  [[nodiscard]] constexpr bool np() const noexcept {
    return features.has(Feature::np) && (control.nested_ctl & nested_ctl::np_enable) != 0;
  }
  [[nodiscard]] constexpr bool sev() const noexcept {
    return limits.sev && (control.nested_ctl & nested_ctl::sev_enable) != 0;
  }
  [[nodiscard]] constexpr bool sev_es() const noexcept {
    return limits.sev && (control.nested_ctl & nested_ctl::sev_es_enable) != 0;
  }
};

constexpr Knobs no_knobs{};  ///< for the rules that no knob changes

/// Bit v is set if v is the vector of an exception. 2 is the NMI; 9, 15, 20, 22-27 and 31 are reserved.
constexpr std::uint32_t exception_vectors = 0x702f'7dfb;

[[nodiscard]] constexpr bool is_exception(std::uint8_t vector) noexcept {
  return vector < 32 && ((exception_vectors >> vector) & 1U) != 0;
}

/// Memory types of PAT are 0, 1, 4, 5, 6, 7 in the low three bits of each byte; the other bits are reserved.
[[nodiscard]] constexpr bool pat_legal(std::uint64_t pat) noexcept {
  constexpr std::uint64_t every_byte = 0x0101'0101'0101'0101;
  const std::uint64_t type_2_or_3 = (pat >> 1) & ~(pat >> 2) & every_byte;
  return (pat & (every_byte * 0xf8)) == 0 && type_2_or_3 == 0;
}

[[nodiscard]] constexpr std::uint64_t page_of(std::uint64_t address) noexcept {
  return address & ~std::uint64_t{0xfff};
}

// clang-format off
enum class Rule : unsigned {
#define SVMSIM_RULE(id, section, text) id,
  SVMSIM_VMRUN_RULES(SVMSIM_RULE)
#undef SVMSIM_RULE
  count,
};
// clang-format on

constexpr std::size_t rule_count = static_cast<std::size_t>(Rule::count);
static_assert(rule_count <= 64, "the failed rules are the bits of one word");

constexpr std::array<RuleViolation, rule_count> rules{{
#define SVMSIM_RULE(id, section, text) {#id, section, text},
    SVMSIM_VMRUN_RULES(SVMSIM_RULE)
#undef SVMSIM_RULE
}};

[[nodiscard]] constexpr std::uint64_t bit_of(Rule number, bool violated) noexcept {
  return violated ? std::uint64_t{1} << static_cast<unsigned>(number) : 0;
}

[[nodiscard]] constexpr bool in_long_mode(const VmcbSave& save) noexcept {
  return (save.efer & efer::lme) != 0 && (save.cr0 & cr0::pg) != 0;
}

/// The failed rules about EVENTINJ, bit n for rule n.
[[nodiscard]] std::uint64_t failed_injection_rules(const Context& c) noexcept {
  const std::uint32_t event = c.control.event_inj;
  if ((event & event_inj::valid) == 0) return 0;
  const std::uint32_t type = event_inj::type(event);
  const std::uint8_t vector = event_inj::vector(event);
  const bool exception = type == event_inj::type_exception;
  std::uint64_t failed = bit_of(Rule::injects_reserved_type, type == 1 || type > event_inj::type_soft);
  failed |= bit_of(Rule::injects_no_exception, exception && !is_exception(vector));
  // BOUND and INTO do not exist in 64-bit mode.
  failed |= bit_of(Rule::injects_impossible_exception,
                   exception && in_long_mode(c.save) && (c.save.cs.attrib & segment_attrib::long_mode) != 0 &&
                       (vector == exception_vector::bound_range || vector == exception_vector::overflow));
  // Its return address is the nRIP field.
  failed |= bit_of(Rule::injects_soft_without_nrips,
                   type == event_inj::type_soft && !c.features.has(Feature::nrips));
  failed |= bit_of(Rule::sev_es_injection, c.sev_es() && (type == event_inj::type_soft ||
                                                          (exception && (vector == 3 || vector == 4))));
  return failed;
}

/// The other failed rules. Whatever this reads of the VMCB is in VmrunInputs.
[[nodiscard]] std::uint64_t failed_state_rules(const Context& c) noexcept {
  constexpr std::uint64_t upper_half = 0xffff'ffff'0000'0000;
  constexpr std::uint16_t l_and_d = segment_attrib::long_mode | segment_attrib::default_size;
  const VmcbControl& control = c.control;
  const VmcbSave& save = c.save;
  const std::uint64_t limit = c.limits.physical_limit();
  const std::uint64_t msrpm = page_of(control.msrpm_base_pa);
  const bool long_mode = in_long_mode(save);
  const bool pae = (save.cr4 & cr4::pae) != 0;

  std::uint64_t failed = 0;
  const auto rule = [&failed](Rule number, bool violated) { failed |= bit_of(number, violated); };
  rule(Rule::svme_clear, (save.efer & efer::svme) == 0);
  rule(Rule::cache_bits, (save.cr0 & (cr0::cd | cr0::nw)) == cr0::nw);
  rule(Rule::cr0_upper, (save.cr0 & upper_half) != 0);
  rule(Rule::cr3_reserved, save.cr3 >= limit);
  rule(Rule::cr4_reserved, (save.cr4 & c.limits.cr4_reserved) != 0);
  rule(Rule::dr6_upper, (save.dr6 & upper_half) != 0);
  rule(Rule::dr7_upper, (save.dr7 & upper_half) != 0);
  rule(Rule::efer_reserved, (save.efer & c.limits.efer_reserved) != 0);
  rule(Rule::no_long_mode, !c.limits.long_mode && (save.efer & (efer::lma | efer::lme)) != 0);
  rule(Rule::long_mode_without_pae, long_mode && !pae);
  rule(Rule::long_mode_without_pe, long_mode && (save.cr0 & cr0::pe) == 0);
  rule(Rule::code_segment_l_and_d, long_mode && pae && (save.cs.attrib & l_and_d) == l_and_d);
  rule(Rule::vmrun_not_intercepted, !intercepted(control, Intercept::vmrun));
  rule(Rule::asid_zero, control.asid == 0);
  rule(Rule::msrpm_beyond_memory, msrpm >= limit - 0x2000 + (c.knobs.msrpm_at_limit_is_invalid ? 0 : 1));
  // The IOPM ends with the byte for the three bits beyond port FFFFh, at base + 2000h.
  rule(Rule::iopm_beyond_memory, page_of(control.iopm_base_pa) >= limit - 0x2000);
  rule(Rule::v_nmi_without_nmi_intercept, c.features.has(Feature::vnmi) &&
                                              (control.int_ctl & int_ctl::v_nmi_enable) != 0 &&
                                              !intercepted(control, Intercept::nmi));
  rule(Rule::s_cet_reserved, (save.s_cet & ~std::uint64_t{3}) != 0);
  rule(Rule::cet_without_wp, (save.cr4 & cr4::cet) != 0 && (save.cr0 & cr0::wp) == 0);

  if (c.np()) {
    rule(Rule::np_without_host_paging, !c.limits.host_paging);
    rule(Rule::nested_cr3_reserved, control.nested_cr3 >= limit);
    rule(Rule::g_pat_illegal, !pat_legal(save.g_pat));
  }
  if (c.avic() || c.x2avic()) {
    const std::uint64_t max_index = control.avic_physical_id & avic_physical_id::max_index_mask;
    rule(Rule::x2avic_without_avic, c.x2avic() && !c.avic());
    rule(Rule::avic_max_index, c.avic() && !c.x2avic() && max_index > 255);
    rule(Rule::x2avic_max_index,
         c.avic() && c.x2avic() && max_index > 511 && !c.features.has(Feature::x2avic_ext));
    rule(Rule::avic_backing_page_beyond_memory, c.avic() && page_of(control.avic_backing_page) >= limit);
    rule(Rule::avic_physical_table_beyond_memory, c.avic() && page_of(control.avic_physical_id) >= limit);
    // x2AVIC computes logical IDs and does not use the table.
    rule(Rule::avic_logical_table_beyond_memory,
         c.avic() && !c.x2avic() && page_of(control.avic_logical_id) >= limit);
    rule(Rule::avic_without_np, c.knobs.avic_without_np_is_invalid && c.avic() && !c.np());
  }
  if (c.sev()) {
    rule(Rule::sev_without_np, !c.np());
    rule(Rule::sev_without_smm_lock, !c.limits.smm_lock);
    rule(Rule::sev_asid, control.asid > c.limits.max_encrypted_asid);
  }
  return failed;
}

[[nodiscard]] bool vmsa_beyond_memory(const Context& c) noexcept {
  return c.sev_es() && c.control.vmsa_pa >= c.limits.physical_limit();
}

/// Whether PAE paging loads its four page-directory-pointer entries from guest memory.
[[nodiscard]] bool loads_pdptes(const Context& c) noexcept {
  return (c.save.cr0 & cr0::pg) != 0 && (c.save.cr4 & cr4::pae) != 0 && (c.save.efer & efer::lme) == 0 &&
         !c.np();
}

[[nodiscard]] bool pdptes_legal(const Context& c, GuestEnvironment& environment) {
  constexpr std::uint64_t present = 1;
  const std::uint64_t reserved = ~(c.limits.physical_limit() - 1) | 0x1e6;  // also 8:5 and 2:1
  const auto entries = environment.page_directory_pointers(c.save.cr3 & 0xffff'ffe0U);
  if (!entries) return true;
  for (const std::uint64_t entry : *entries) {
    if ((entry & present) != 0 && (entry & reserved) != 0) return false;
  }
  return true;
}

/// The failed rules about what lies outside of the VMCB.
[[nodiscard]] std::uint64_t failed_surrounding_rules(const Context& c, const Vmsa& vmsa,
                                                     GuestEnvironment& environment) {
  constexpr std::uint32_t msr_u_cet = 0x6a0;
  constexpr std::uint64_t shadow_stack_enable = 1;
  std::uint64_t failed = 0;
  const auto rule = [&failed](Rule number, bool violated) { failed |= bit_of(number, violated); };
  if (loads_pdptes(c)) rule(Rule::pdpte_reserved, !pdptes_legal(c, environment));
  if ((c.save.cr4 & cr4::cet) != 0 && (c.save.rflags & rflags::virtual_8086) != 0) {
    rule(Rule::cet_in_virtual_8086_mode, (environment.read_msr(msr_u_cet).value & shadow_stack_enable) != 0);
  }
  if (!c.sev_es()) return failed;

  constexpr std::uint64_t injection = sev_features::restricted_injection | sev_features::alternate_injection;
  const std::uint64_t allowed = c.control.allowed_sev_features;
  const bool injects = (vmsa.sev_features & injection) != 0;
  const bool secure_avic = c.limits.secure_avic && (vmsa.sev_features & sev_features::secure_avic) != 0;
  rule(Rule::sev_es_vmsa_damaged, vmsa.load == VmsaLoad::damaged);
  rule(Rule::sev_features_not_allowed, c.limits.allowed_sev_features &&
                                           (allowed & sev_features::mask_enable) != 0 &&
                                           (vmsa.sev_features & ~allowed) != 0);
  rule(Rule::secure_avic_with_avic, secure_avic && c.avic());
  rule(Rule::secure_avic_with_injection, secure_avic && injects);
  if ((vmsa.sev_features & sev_features::snp_active) != 0 && c.avic()) {
    rule(Rule::snp_avic_with_injection, injects);
    rule(Rule::snp_avic_backing_page_owner,
         !environment.hypervisor_owned(page_of(c.control.avic_backing_page)));
  }
  return failed;
}

}  // namespace

bool vmrun_needs_surroundings(const Vmcb& vmcb, const FeatureSet& features,
                              const ProcessorLimits& limits) noexcept {
  const Context context{vmcb.control, vmcb.save, features, no_knobs, limits};
  return loads_pdptes(context) || context.sev_es();
}

std::uint64_t vmrun_refusal(const Vmcb& vmcb, const FeatureSet& features, const ProcessorLimits& limits,
                            const Vmsa& vmsa, GuestEnvironment& environment) {
  const Context context{vmcb.control, vmcb.save, features, no_knobs, limits};
  if (vmsa_beyond_memory(context) || failed_surrounding_rules(context, vmsa, environment) != 0) {
    return exit_code::invalid;
  }
  switch (vmsa.load) {
    case VmsaLoad::busy:
      return exit_code::busy;
    case VmsaLoad::sibling_not_idle:
      return exit_code::idle_required;
    case VmsaLoad::illegal_pmc:
      return exit_code::invalid_pmc;
    default:
      return 0;
  }
}

bool vmrun_state_legal(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                       const ProcessorLimits& limits) noexcept {
  return failed_state_rules({vmcb.control, vmcb.save, features, knobs, limits}) == 0;
}

bool vmrun_injection_legal(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                           const ProcessorLimits& limits) noexcept {
  return failed_injection_rules({vmcb.control, vmcb.save, features, knobs, limits}) == 0;
}

bool vmrun_legal(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                 const ProcessorLimits& limits) noexcept {
  return vmrun_state_legal(vmcb, features, knobs, limits) &&
         vmrun_injection_legal(vmcb, features, knobs, limits) &&
         !vmsa_beyond_memory({vmcb.control, vmcb.save, features, knobs, limits});
}

std::vector<RuleViolation> vmrun_violations(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                                            const ProcessorLimits& limits, GuestEnvironment* environment) {
  const Context context{vmcb.control, vmcb.save, features, knobs, limits};
  std::uint64_t failed = failed_state_rules(context) | failed_injection_rules(context);
  failed |= bit_of(Rule::sev_es_vmsa_beyond_memory, vmsa_beyond_memory(context));
  if (environment != nullptr) {
    const Vmsa vmsa = context.sev_es() ? environment->vmsa(vmcb.control.vmsa_pa) : Vmsa{};
    failed |= failed_surrounding_rules(context, vmsa, *environment);
  }
  std::vector<RuleViolation> violations;
  for (std::size_t number = 0; number < rule_count; ++number) {
    if (((failed >> number) & 1U) != 0) violations.push_back(rules[number]);
  }
  return violations;
}

std::vector<RuleViolation> vmrun_rules() {
  return {rules.begin(), rules.end()};
}

std::optional<std::uint8_t> svm_instruction_exception(const SvmInstruction& instruction,
                                                      const ProcessorLimits& limits) noexcept {
  if (!instruction.svme || !instruction.protected_mode) return exception_vector::invalid_opcode;
  if (instruction.cpl != 0) return exception_vector::general_protection;
  if (instruction.vmcb_physical && !is_page_below(*instruction.vmcb_physical, limits.physical_limit())) {
    return exception_vector::general_protection;
  }
  return std::nullopt;
}

}  // namespace svmsim::svm
