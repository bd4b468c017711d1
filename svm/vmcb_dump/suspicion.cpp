#include "svm/vmcb_dump/suspicion.hpp"

#include <iterator>

#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::svm {

const std::vector<Suspicion>& all_suspicions() {
  static const std::vector<Suspicion> all = [] {
    std::vector<Suspicion> result;
    for (auto* table : {intercept_suspicions, interrupt_suspicions, control_suspicions, exit_suspicions,
                        state_suspicions, sev_suspicions, feature_suspicions}) {
      std::vector<Suspicion> part = table();
      result.insert(result.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
    }
    return result;
  }();
  return all;
}

namespace {

using F = Field;
using C = SuspicionContext;

bool has_bits(std::uint64_t value, std::uint64_t bits) noexcept {
  return (value & bits) == bits;
}

}  // namespace

// Enabled without the CPUID feature: the processor ignores the bit, or VMRUN's behaviour is undefined.
std::vector<Suspicion> feature_suspicions() {
  constexpr std::string_view reason =
      "the processor does not know this setting and does not do what it asks for";
  const auto int_ctl_bit = [&](std::string_view id, std::string_view section, std::string_view text,
                               auto applies, Feature feature) {
    return Suspicion{id, section, text, reason, {F::int_ctl}, applies, feature};
  };
  return {
      int_ctl_bit(
          "avic_without_feature", "15.29.1", "AVIC is enabled on a processor without it (avic)",
          [](const C& c) { return has_bits(c.vmcb.control.int_ctl, int_ctl::avic_enable); }, Feature::avic),
      int_ctl_bit(
          "x2avic_without_feature", "15.29.1", "x2AVIC is enabled on a processor without it (x2avic)",
          [](const C& c) { return has_bits(c.vmcb.control.int_ctl, int_ctl::x2avic_enable); },
          Feature::x2avic),
      int_ctl_bit(
          "v_gif_without_feature", "15.33.2", "V_GIF_ENABLE is set on a processor without it (vgif)",
          [](const C& c) { return has_bits(c.vmcb.control.int_ctl, int_ctl::v_gif_enable); }, Feature::vgif),
      int_ctl_bit(
          "v_nmi_without_feature", "15.21.10", "V_NMI_ENABLE is set on a processor without it (vnmi)",
          [](const C& c) { return has_bits(c.vmcb.control.int_ctl, int_ctl::v_nmi_enable); }, Feature::vnmi),
      {"np_without_feature",
       "15.25.1",
       "nested paging is enabled on a processor without it (np)",
       reason,
       {F::nested_ctl},
       [](const C& c) { return has_bits(c.vmcb.control.nested_ctl, nested_ctl::np_enable); },
       Feature::np},
      {"gmet_without_feature",
       "15.25",
       "GMET is enabled on a processor without it (gmet)",
       reason,
       {F::nested_ctl},
       [](const C& c) { return has_bits(c.vmcb.control.nested_ctl, nested_ctl::gmet_enable); },
       Feature::gmet},
      {"sss_check_without_feature",
       "15.25",
       "the supervisor shadow stack check is enabled on a processor without it (sss_check)",
       reason,
       {F::nested_ctl},
       [](const C& c) { return has_bits(c.vmcb.control.nested_ctl, nested_ctl::sss_check_enable); },
       Feature::sss_check},
      {"rogpt_without_feature",
       "15.25",
       "read-only guest page tables are enabled on a processor without them (rogpt)",
       reason,
       {F::nested_ctl},
       [](const C& c) { return has_bits(c.vmcb.control.nested_ctl, nested_ctl::rogpt_enable); },
       Feature::rogpt},
      {"tlbi_without_feature",
       "15.9",
       "INVLPGB in the guest is enabled on a processor without it (tlbi_ctl)",
       reason,
       {F::nested_ctl},
       [](const C& c) { return has_bits(c.vmcb.control.nested_ctl, nested_ctl::invlpgb_enable); },
       Feature::tlbi_ctl},
      {"lbrv_without_feature",
       "15.23",
       "LBR virtualization is enabled on a processor without it (lbrv)",
       reason,
       {F::virt_ext},
       [](const C& c) { return has_bits(c.vmcb.control.virt_ext, virt_ext::lbr_virtualization); },
       Feature::lbrv},
      {"vls_without_feature",
       "15.33.1",
       "VMSAVE and VMLOAD virtualization is enabled on a processor without it (vls)",
       reason,
       {F::virt_ext},
       [](const C& c) { return has_bits(c.vmcb.control.virt_ext, virt_ext::vls); },
       Feature::vls},
      {"ibs_without_feature",
       "15.38",
       "IBS virtualization is enabled on a processor without it (ibs_virt)",
       reason,
       {F::virt_ext},
       [](const C& c) { return has_bits(c.vmcb.control.virt_ext, virt_ext::ibs_virtualization); },
       Feature::ibs_virt},
      {"pmc_without_feature",
       "15.39",
       "PMC virtualization is enabled on a processor without it (pmc_virt)",
       reason,
       {F::virt_ext},
       [](const C& c) { return has_bits(c.vmcb.control.virt_ext, virt_ext::pmc_virtualization); },
       Feature::pmc_virt},
      {"idle_hlt_without_feature",
       "15.9",
       "the idle-HLT intercept is set on a processor without it (idle_hlt)",
       "HLT then exits only with the HLT intercept, and halts in the guest otherwise",
       {F::intercepts_5},
       [](const C& c) { return intercepted(c.vmcb.control, Intercept::idle_hlt); },
       Feature::idle_hlt},
      {"bus_lock_without_feature",
       "15.9",
       "the bus-lock intercept is set on a processor without it (bus_lock_threshold)",
       reason,
       {F::intercepts_5},
       [](const C& c) { return intercepted(c.vmcb.control, Intercept::buslock); },
       Feature::bus_lock_threshold},
      {"pause_filter_without_feature",
       "15.14.4",
       "a PAUSE filter count is set on a processor without the filter (pause_filter)",
       "every PAUSE of the guest exits",
       {F::pause_filter_count},
       [](const C& c) { return c.vmcb.control.pause_filter_count != 0; },
       Feature::pause_filter},
      {"pause_threshold_without_feature",
       "15.14.4",
       "a PAUSE filter threshold is set on a processor without it (pause_filter_threshold)",
       "PAUSEs are counted over any time, not only within a spin loop",
       {F::pause_filter_thresh},
       [](const C& c) { return c.vmcb.control.pause_filter_thresh != 0; },
       Feature::pause_filter_threshold},
      {"tlb_control_without_feature",
       "15.16.1",
       "TLB_CONTROL flushes one ASID on a processor that cannot (flush_by_asid)",
       "stale translations of the guest may stay in the TLB",
       {F::tlb_ctl},
       [](const C& c) { return c.vmcb.control.tlb_ctl == 3 || c.vmcb.control.tlb_ctl == 7; },
       Feature::flush_by_asid},
  };
}

}  // namespace svmsim::svm
