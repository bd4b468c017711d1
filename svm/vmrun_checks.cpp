#include "svm/vmrun_checks.hpp"

#include <array>
#include <utility>

#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"

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
  [[nodiscard]] constexpr bool long_mode_paging() const noexcept {
    return (save.efer & efer::lme) != 0 && (save.cr0 & cr0::pg) != 0;
  }
  [[nodiscard]] constexpr bool segment_attribute(std::uint16_t bit) const noexcept {
    return (save.cs.attrib & bit) != 0;
  }
  [[nodiscard]] constexpr bool beyond_memory(std::uint64_t page) const noexcept {
    return (page & ~std::uint64_t{0xfff}) >= limits.physical_limit();
  }
  [[nodiscard]] constexpr bool injects(std::uint32_t type) const noexcept {
    return (control.event_inj & event_inj::valid) != 0 && event_inj::type(control.event_inj) == type;
  }
  [[nodiscard]] constexpr std::uint64_t max_index() const noexcept {
    return control.avic_physical_id & avic_physical_id::max_index_mask;
  }
};

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

struct Rule {
  RuleViolation violation;
  bool (*violated)(const Context&) noexcept;
};

constexpr std::uint64_t upper_half = 0xffff'ffff'0000'0000;

constexpr std::array rules{
    Rule{{"15.5.1", "EFER.SVME is 0"},
         [](const Context& c) noexcept { return (c.save.efer & efer::svme) == 0; }},
    Rule{{"15.5.1", "CR0.CD is 0 and CR0.NW is 1"},
         [](const Context& c) noexcept { return (c.save.cr0 & (cr0::cd | cr0::nw)) == cr0::nw; }},
    Rule{{"15.5.1", "CR0[63:32] is not 0"},
         [](const Context& c) noexcept { return (c.save.cr0 & upper_half) != 0; }},
    Rule{{"15.5.1", "CR3 has bits above the physical address width set"},
         [](const Context& c) noexcept { return c.save.cr3 >= c.limits.physical_limit(); }},
    Rule{{"15.5.1", "CR4 has reserved bits set"},
         [](const Context& c) noexcept { return (c.save.cr4 & c.limits.cr4_reserved) != 0; }},
    Rule{{"15.5.1", "DR6[63:32] is not 0"},
         [](const Context& c) noexcept { return (c.save.dr6 & upper_half) != 0; }},
    Rule{{"15.5.1", "DR7[63:32] is not 0"},
         [](const Context& c) noexcept { return (c.save.dr7 & upper_half) != 0; }},
    Rule{{"15.5.1", "EFER has reserved bits set"},
         [](const Context& c) noexcept { return (c.save.efer & c.limits.efer_reserved) != 0; }},
    Rule{{"15.5.1", "EFER.LMA or EFER.LME is 1, but the processor has no long mode"},
         [](const Context& c) noexcept {
           return !c.limits.long_mode && (c.save.efer & (efer::lma | efer::lme)) != 0;
         }},
    Rule{{"15.5.1", "EFER.LME and CR0.PG are 1, but CR4.PAE is 0"},
         [](const Context& c) noexcept { return c.long_mode_paging() && (c.save.cr4 & cr4::pae) == 0; }},
    Rule{{"15.5.1", "EFER.LME and CR0.PG are 1, but CR0.PE is 0"},
         [](const Context& c) noexcept { return c.long_mode_paging() && (c.save.cr0 & cr0::pe) == 0; }},
    Rule{{"15.5.1", "EFER.LME, CR0.PG, CR4.PAE, CS.L and CS.D are all 1"},
         [](const Context& c) noexcept {
           return c.long_mode_paging() && (c.save.cr4 & cr4::pae) != 0 &&
                  c.segment_attribute(segment_attrib::long_mode) &&
                  c.segment_attribute(segment_attrib::default_size);
         }},
    Rule{{"15.5.1", "the VMRUN intercept is clear"},
         [](const Context& c) noexcept { return !intercepted(c.control, Intercept::vmrun); }},
    Rule{{"15.11", "the MSR permission map reaches beyond the physical address space"},
         [](const Context& c) noexcept {
           const std::uint64_t base = c.control.msrpm_base_pa & ~std::uint64_t{0xfff};
           const std::uint64_t last_fit = c.limits.physical_limit() - 0x2000;
           return c.knobs.msrpm_at_limit_is_invalid ? base >= last_fit : base > last_fit;
         }},
    // The IOPM ends with the byte for the three bits beyond port FFFFh, at base + 2000h.
    Rule{{"15.10.1", "the I/O permission map reaches beyond the physical address space"},
         [](const Context& c) noexcept {
           return (c.control.iopm_base_pa & ~std::uint64_t{0xfff}) >= c.limits.physical_limit() - 0x2000;
         }},
    Rule{{"15.20", "EVENTINJ has a reserved type"},
         [](const Context& c) noexcept {
           return c.injects(1) || c.injects(5) || c.injects(6) || c.injects(7);
         }},
    Rule{{"15.20", "EVENTINJ injects an exception with a vector that is no exception"},
         [](const Context& c) noexcept {
           return c.injects(event_inj::type_exception) &&
                  !is_exception(event_inj::vector(c.control.event_inj));
         }},
    // BOUND and INTO do not exist there.
    Rule{{"15.20", "EVENTINJ injects an exception that cannot occur in 64-bit mode"},
         [](const Context& c) noexcept {
           const std::uint8_t vector = event_inj::vector(c.control.event_inj);
           return c.injects(event_inj::type_exception) && c.long_mode_paging() &&
                  c.segment_attribute(segment_attrib::long_mode) &&
                  (vector == exception_vector::bound_range || vector == exception_vector::overflow);
         }},
    // Its return address is the nRIP field, which does not exist without NRIPS.
    Rule{{"15.20", "EVENTINJ injects a software interrupt, but the processor has no nRIP (nrips)"},
         [](const Context& c) noexcept {
           return c.injects(event_inj::type_soft) && !c.features.has(Feature::nrips);
         }},
    Rule{{"15.5.1", "the guest ASID is 0"}, [](const Context& c) noexcept { return c.control.asid == 0; }},
    Rule{{"15.25.3", "nested paging is enabled while the host's CR0.PG is 0"},
         [](const Context& c) noexcept { return c.np() && !c.limits.host_paging; }},
    Rule{{"15.25.4", "nested paging: N_CR3 has bits above the physical address width set"},
         [](const Context& c) noexcept { return c.np() && c.beyond_memory(c.control.nested_cr3); }},
    Rule{{"15.25.4", "nested paging: G_PAT has a reserved bit or memory type"},
         [](const Context& c) noexcept { return c.np() && !pat_legal(c.save.g_pat); }},
    Rule{{"15.21.10", "V_NMI_ENABLE is 1, but the NMI intercept is clear"},
         [](const Context& c) noexcept {
           return c.features.has(Feature::vnmi) && (c.control.int_ctl & int_ctl::v_nmi_enable) != 0 &&
                  !intercepted(c.control, Intercept::nmi);
         }},
    Rule{{"15.29.4.1", "x2AVIC is enabled without AVIC"},
         [](const Context& c) noexcept { return c.x2avic() && !c.avic(); }},
    Rule{{"15.29.4.3", "AVIC_PHYSICAL_MAX_INDEX is above 255 in xAVIC mode"},
         [](const Context& c) noexcept { return c.avic() && !c.x2avic() && c.max_index() > 255; }},
    Rule{{"15.29.4.3", "AVIC_PHYSICAL_MAX_INDEX is above 511, but the processor has no x2avic_ext"},
         [](const Context& c) noexcept {
           return c.avic() && c.x2avic() && c.max_index() > 511 && !c.features.has(Feature::x2avic_ext);
         }},
    Rule{{"15.29.4", "the AVIC backing page pointer is beyond the physical address space"},
         [](const Context& c) noexcept { return c.avic() && c.beyond_memory(c.control.avic_backing_page); }},
    Rule{{"15.29.4", "the AVIC physical APIC ID table pointer is beyond the physical address space"},
         [](const Context& c) noexcept { return c.avic() && c.beyond_memory(c.control.avic_physical_id); }},
    // x2AVIC computes logical IDs and does not use the table.
    Rule{{"15.29.4", "the AVIC logical APIC ID table pointer is beyond the physical address space"},
         [](const Context& c) noexcept {
           return c.avic() && !c.x2avic() && c.beyond_memory(c.control.avic_logical_id);
         }},
    Rule{{"15.29.4", "AVIC is enabled without nested paging"},
         [](const Context& c) noexcept { return c.knobs.avic_without_np_is_invalid && c.avic() && !c.np(); }},
    Rule{{"15.5.1", "S_CET has reserved bits set"},
         [](const Context& c) noexcept { return (c.save.s_cet & ~std::uint64_t{3}) != 0; }},
    Rule{{"15.5.1", "CR4.CET is 1, but CR0.WP is 0"},
         [](const Context& c) noexcept {
           return (c.save.cr4 & cr4::cet) != 0 && (c.save.cr0 & cr0::wp) == 0;
         }},
    Rule{{"15.34.3", "SEV is enabled without nested paging"},
         [](const Context& c) noexcept { return c.sev() && !c.np(); }},
    Rule{{"15.34.3", "SEV is enabled while HWCR.SmmLock is 0"},
         [](const Context& c) noexcept { return c.sev() && !c.limits.smm_lock; }},
    Rule{{"15.34.3", "SEV is enabled with an ASID above the highest encrypted ASID"},
         [](const Context& c) noexcept { return c.sev() && c.control.asid > c.limits.max_encrypted_asid; }},
    Rule{{"15.35.8", "SEV-ES: EVENTINJ injects a software interrupt or vector 3 or 4"},
         [](const Context& c) noexcept {
           const std::uint8_t vector = event_inj::vector(c.control.event_inj);
           return c.sev_es() && (c.injects(event_inj::type_soft) ||
                                 (c.injects(event_inj::type_exception) && (vector == 3 || vector == 4)));
         }},
};

/// The fold makes straight-line code of the table: the pointers are constants, so the checks are inlined.
template <std::size_t... Index>
[[nodiscard]] bool any_violated(const Context& context, std::index_sequence<Index...>) noexcept {
  return (static_cast<int>(rules[Index].violated(context)) | ...) != 0;
}

}  // namespace

bool vmrun_legal(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                 const ProcessorLimits& limits) noexcept {
  const Context context{vmcb.control, vmcb.save, features, knobs, limits};
  return !any_violated(context, std::make_index_sequence<rules.size()>{});
}

std::vector<RuleViolation> vmrun_violations(const Vmcb& vmcb, const FeatureSet& features, const Knobs& knobs,
                                            const ProcessorLimits& limits) {
  const Context context{vmcb.control, vmcb.save, features, knobs, limits};
  std::vector<RuleViolation> violations;
  for (const Rule& rule : rules) {
    if (rule.violated(context)) violations.push_back(rule.violation);
  }
  return violations;
}

std::vector<RuleViolation> vmrun_rules() {
  std::vector<RuleViolation> all;
  for (const Rule& rule : rules)
    all.push_back(rule.violation);
  return all;
}

}  // namespace svmsim::svm
