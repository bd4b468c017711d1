#include "svm/features.hpp"

namespace svmsim::svm {

const std::vector<FeatureInfo>& all_features() {
  static const std::vector<FeatureInfo> features{
      {Feature::np, "np", "Nested paging."},
      {Feature::lbrv, "lbrv", "The last-branch MSRs are kept per guest in the VMCB."},
      {Feature::svm_lock, "svm_lock", "VM_CR can lock SVM off until a key is given."},
      {Feature::nrips, "nrips", "#VMEXIT stores the address of the next sequential instruction in nRIP."},
      {Feature::tsc_rate_msr, "tsc_rate_msr", "TSC_RATIO scales the guest's time-stamp counter."},
      {Feature::vmcb_clean, "vmcb_clean",
       "The clean bits tell which VMCB fields the processor may take from its cache."},
      {Feature::flush_by_asid, "flush_by_asid", "TLB_CONTROL can flush the translations of one ASID."},
      {Feature::decode_assists, "decode_assists",
       "EXITINFO and the VMCB describe the intercepted instruction."},
      {Feature::pmc_virt, "pmc_virt", "Performance counters are kept per guest in the VMCB."},
      {Feature::pause_filter, "pause_filter", "A PAUSE exits only after a count of PAUSEs has run out."},
      {Feature::pause_filter_threshold, "pause_filter_threshold",
       "The PAUSE count is reloaded when PAUSEs come further apart than a threshold."},
      {Feature::avic, "avic",
       "The processor virtualizes the guest's xAPIC and delivers its interrupts without an exit."},
      {Feature::vls, "vls", "VMSAVE and VMLOAD run in the guest without an exit."},
      {Feature::vgif, "vgif", "STGI and CLGI of the guest act on a virtual global interrupt flag."},
      {Feature::gmet, "gmet",
       "Guest mode execute trap: supervisor code cannot run from user pages of the nested tables."},
      {Feature::x2avic, "x2avic", "AVIC also virtualizes the x2APIC."},
      {Feature::sss_check, "sss_check", "Nested paging checks supervisor shadow stack pages."},
      {Feature::spec_ctrl, "spec_ctrl", "SPEC_CTRL is kept per guest in the VMCB."},
      {Feature::rogpt, "rogpt", "Guest page tables can be read-only in the nested tables."},
      {Feature::host_mce_override, "host_mce_override",
       "A machine check in the guest can always reach the host."},
      {Feature::tlbi_ctl, "tlbi_ctl", "INVLPGB and TLBSYNC can run in the guest, or be intercepted."},
      {Feature::vnmi, "vnmi", "The processor delivers virtual NMIs and keeps the guest's NMI mask."},
      {Feature::ibs_virt, "ibs_virt", "Instruction-based sampling is kept per guest."},
      {Feature::ext_lvt_avic_access_chg, "ext_lvt_avic_access_chg",
       "AVIC allows reads of the extended LVT registers and traps their writes."},
      {Feature::nested_virt_vmcb_addr_chk, "nested_virt_vmcb_addr_chk",
       "An illegal VMCB address in a guest's VMRUN, VMLOAD or VMSAVE exits to the host."},
      {Feature::bus_lock_threshold, "bus_lock_threshold",
       "A bus lock exits only after a count of bus locks has run out."},
      {Feature::idle_hlt, "idle_hlt", "HLT exits only if no virtual interrupt is pending."},
      {Feature::x2avic_ext, "x2avic_ext", "x2AVIC supports up to 4096 vCPUs."},
  };
  return features;
}

std::string_view feature_name(Feature feature) {
  for (const FeatureInfo& info : all_features()) {
    if (info.feature == feature) return info.name;
  }
  return {};
}

std::optional<Feature> feature_of(std::string_view name) {
  for (const FeatureInfo& info : all_features()) {
    if (info.name == name) return info.feature;
  }
  return std::nullopt;
}

std::vector<std::string> feature_names() {
  std::vector<std::string> names;
  for (const FeatureInfo& info : all_features())
    names.emplace_back(info.name);
  return names;
}

const std::vector<ExtensionInfo>& all_extensions() {
  static const std::vector<ExtensionInfo> extensions{
      {Extension::monitor, "monitor", "Fn0000_0001_ECX[3]", "MONITOR and MWAIT."},
      {Extension::xsave, "xsave", "Fn0000_0001_ECX[26]", "XSETBV and CR4.OSXSAVE."},
      {Extension::invpcid, "invpcid", "Fn0000_0007_EBX[10]", "INVPCID."},
      {Extension::umip, "umip", "Fn0000_0007_ECX[2]",
       "CR4.UMIP keeps SGDT, SIDT, SLDT, STR and SMSW from user code."},
      {Extension::skinit, "skinit", "Fn8000_0001_ECX[12]", "SKINIT and STGI, also with EFER.SVME clear."},
      {Extension::monitorx, "monitorx", "Fn8000_0001_ECX[29]", "MONITORX and MWAITX."},
      {Extension::rdtscp, "rdtscp", "Fn8000_0001_EDX[27]", "RDTSCP."},
      {Extension::invlpgb, "invlpgb", "Fn8000_0008_EBX[3]", "INVLPGB and TLBSYNC."},
      {Extension::rdpru, "rdpru", "Fn8000_0008_EBX[4]", "RDPRU."},
      {Extension::mcommit, "mcommit", "Fn8000_0008_EBX[8]", "MCOMMIT and EFER.MCOMMIT."},
  };
  return extensions;
}

std::string_view extension_name(Extension extension) {
  for (const ExtensionInfo& info : all_extensions()) {
    if (info.extension == extension) return info.name;
  }
  return {};
}

std::optional<Extension> extension_of(std::string_view name) {
  for (const ExtensionInfo& info : all_extensions()) {
    if (info.name == name) return info.extension;
  }
  return std::nullopt;
}

std::vector<std::string> extension_names() {
  std::vector<std::string> names;
  for (const ExtensionInfo& info : all_extensions())
    names.emplace_back(info.name);
  return names;
}

std::vector<std::string> FeatureSet::names() const {
  std::vector<std::string> names;
  for (const FeatureInfo& info : all_features()) {
    if (has(info.feature)) names.emplace_back(info.name);
  }
  return names;
}

}  // namespace svmsim::svm
