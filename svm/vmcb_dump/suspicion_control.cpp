#include <algorithm>
#include <array>
#include <cstdint>

#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmcb_dump/suspicion.hpp"

namespace svmsim::svm {

namespace {

using F = Field;
using C = SuspicionContext;

bool nested(const C& c, std::uint64_t bits) noexcept {
  return (c.vmcb.control.nested_ctl & bits) == bits;
}
std::uint64_t page_of(std::uint64_t address) noexcept {
  return address & ~std::uint64_t{0xfff};
}
template <std::size_t size>
bool any_set(const std::array<std::uint8_t, size>& bytes) noexcept {
  return std::any_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte != 0; });
}

}  // namespace

std::vector<Suspicion> control_suspicions() {
  return {
      {"iopm_unaligned",
       "15.10.1",
       "IOPM_BASE_PA is not aligned to a page",
       "the processor ignores bits 11:0 and looks for the map elsewhere than the address says",
       {F::iopm_base_pa},
       [](const C& c) { return (c.vmcb.control.iopm_base_pa & 0xfff) != 0; },
       {}},
      {"msrpm_unaligned",
       "15.11",
       "MSRPM_BASE_PA is not aligned to a page",
       "the processor ignores bits 11:0 and looks for the map elsewhere than the address says",
       {F::msrpm_base_pa},
       [](const C& c) { return (c.vmcb.control.msrpm_base_pa & 0xfff) != 0; },
       {}},
      {"permission_map_zero",
       "15.10.1",
       "a permission map that is in use lies at physical address 0",
       "the processor takes the first pages of memory for the map",
       {F::intercepts_3, F::iopm_base_pa, F::msrpm_base_pa},
       [](const C& c) {
         const VmcbControl& control = c.vmcb.control;
         return (intercepted(control, Intercept::ioio) && page_of(control.iopm_base_pa) == 0) ||
                (intercepted(control, Intercept::msr) && page_of(control.msrpm_base_pa) == 0);
       },
       {}},
      {"permission_maps_overlap",
       "15.11",
       "the I/O and the MSR permission map overlap",
       "12 KiB at IOPM_BASE_PA and 8 KiB at MSRPM_BASE_PA hold different things",
       {F::iopm_base_pa, F::msrpm_base_pa},
       [](const C& c) {
         const std::uint64_t io = page_of(c.vmcb.control.iopm_base_pa);
         const std::uint64_t msr = page_of(c.vmcb.control.msrpm_base_pa);
         return io != 0 && msr != 0 && io < msr + 0x2000 && msr < io + 0x3000;
       },
       {}},
      {"tlb_control_reserved",
       "15.16.1",
       "TLB_CONTROL has a reserved value",
       "only 0, 1, 3 and 7 have a meaning",
       {F::tlb_ctl},
       [](const C& c) {
         const std::uint8_t value = c.vmcb.control.tlb_ctl;
         return value != 0 && value != 1 && value != 3 && value != 7;
       },
       {}},
      {"tlb_control_flush_all",
       "15.16.1",
       "TLB_CONTROL flushes the whole TLB at each VMRUN",
       "the host's and all guests' translations go too, and VMRUN does not reset the field",
       {F::tlb_ctl},
       [](const C& c) { return c.vmcb.control.tlb_ctl == 1; },
       {}},
      {"asid_beyond_processor",
       "15.16",
       "the ASID is above what the processor has (CPUID Fn8000_000A_EBX)",
       "VMRUN's behaviour is not defined",
       {F::asid},
       [](const C& c) { return c.features && c.vmcb.control.asid >= c.features->asids(); },
       {}},
      {"nested_cr3_low_bits",
       "15.25.4",
       "N_CR3 has reserved low bits set",
       "only bits 3 and 4 (PWT, PCD) may be set below the page number",
       {F::nested_ctl, F::nested_cr3},
       [](const C& c) {
         return nested(c, nested_ctl::np_enable) && (c.vmcb.control.nested_cr3 & 0xfe7) != 0;
       },
       {}},
      {"nested_cr3_zero",
       "15.25.4",
       "nested paging is enabled with N_CR3 at physical address 0",
       "the processor takes the first page of memory for a page table",
       {F::nested_ctl, F::nested_cr3},
       [](const C& c) { return nested(c, nested_ctl::np_enable) && page_of(c.vmcb.control.nested_cr3) == 0; },
       {}},
      {"nested_ctl_reserved",
       "15.25.3",
       "reserved bits of the nested paging control are set",
       "bits 63:8 have no meaning here",
       {F::nested_ctl},
       [](const C& c) { return (c.vmcb.control.nested_ctl & ~std::uint64_t{0xff}) != 0; },
       {}},
      {"gmet_without_np",
       "15.25",
       "GMET or the shadow stack check is enabled without nested paging",
       "both are checks of the nested page tables",
       {F::nested_ctl},
       [](const C& c) {
         return !nested(c, nested_ctl::np_enable) &&
                (c.vmcb.control.nested_ctl & (nested_ctl::gmet_enable | nested_ctl::sss_check_enable)) != 0;
       },
       {}},
      {"virt_ext_reserved",
       "15.33",
       "reserved bits of the virtualization extensions word are set",
       "bits 63:4 have no meaning here",
       {F::virt_ext},
       [](const C& c) { return (c.vmcb.control.virt_ext & ~std::uint64_t{0xf}) != 0; },
       {}},
      {"vls_without_np",
       "15.33.1",
       "VMSAVE and VMLOAD virtualization is enabled without nested paging",
       "the instructions exit instead",
       {F::virt_ext, F::nested_ctl},
       [](const C& c) {
         return (c.vmcb.control.virt_ext & virt_ext::vls) != 0 && !nested(c, nested_ctl::np_enable);
       },
       {}},
      {"clean_bits_reserved",
       "15.15.3",
       "reserved VMCB clean bits are set",
       "bits 30:13 may stand for fields that a later processor caches",
       {F::clean},
       [](const C& c) { return (c.vmcb.control.clean & 0x7fff'e000) != 0; },
       {}},
      {"clean_bits_after_failure",
       "15.15",
       "clean bits are set in a VMCB that VMRUN refused",
       "the values that were checked may be cached ones, not those that are shown",
       {F::clean, F::exit_code},
       [](const C& c) { return c.vmcb.control.clean != 0 && c.vmcb.control.exit_code == ~std::uint64_t{0}; },
       {}},
      {"reserved_not_zero",
       "appendix B",
       "reserved bytes of the control area are not 0",
       "they may mean something on a later processor; or this is no VMCB",
       {},
       [](const C& c) {
         const VmcbControl& control = c.vmcb.control;
         if (c.image.kind != ImageKind::page) return false;  // dumps do not print them
         return any_set(control.reserved_018) || any_set(control.reserved_05e) ||
                any_set(control.reserved_06c) || control.reserved_0c4 != 0 || control.reserved_0e8 != 0 ||
                control.reserved_100 != 0 || any_set(control.reserved_119) || any_set(control.reserved_122) ||
                control.reserved_148 != 0 || any_set(control.reserved_170);
       },
       {}},
  };
}

std::vector<Suspicion> sev_suspicions() {
  return {
      {"sev_es_without_sev",
       "15.35",
       "SEV-ES is enabled without SEV",
       "SEV-ES is an addition to SEV",
       {F::nested_ctl},
       [](const C& c) { return nested(c, nested_ctl::sev_es_enable) && !nested(c, nested_ctl::sev_enable); },
       {}},
      {"vmsa_pointer",
       "15.35.2",
       "SEV-ES is enabled with a VMSA pointer that is 0 or not aligned to a page",
       "the guest's state is loaded from there",
       {F::nested_ctl, F::vmsa_pa},
       [](const C& c) {
         return nested(c, nested_ctl::sev_es_enable) &&
                ((c.vmcb.control.vmsa_pa & 0xfff) != 0 || c.vmcb.control.vmsa_pa == 0);
       },
       {}},
      {"vmsa_pointer_unused",
       "15.35.2",
       "a VMSA pointer is set, but SEV-ES is not enabled",
       "VMRUN loads the guest's state from the VMCB",
       {F::nested_ctl, F::vmsa_pa},
       [](const C& c) { return !nested(c, nested_ctl::sev_es_enable) && c.vmcb.control.vmsa_pa != 0; },
       {}},
      {"sev_features_differ",
       "15.36",
       "GUEST_SEV_FEATURES (140h) differs from SEV_FEATURES of the VMSA (3B0h)",
       "the processor copies the one to the other at #VMEXIT: the VMSA has changed since, or never ran",
       {F::nested_ctl, F::guest_sev_features},
       [](const C& c) {
         return nested(c, nested_ctl::sev_es_enable) && c.image.vmsa_sev_features &&
                c.vmcb.control.guest_sev_features != 0 &&
                *c.image.vmsa_sev_features != c.vmcb.control.guest_sev_features;
       },
       {}},
      {"sev_es_clean_bits",
       "15.35.8",
       "clean bits 10:5 are set for an SEV-ES guest",
       "they are ignored: its state is always loaded anew",
       {F::nested_ctl, F::clean},
       [](const C& c) { return nested(c, nested_ctl::sev_es_enable) && (c.vmcb.control.clean & 0x7e0) != 0; },
       {}},
      {"vc_intercepted",
       "15.35",
       "#VC (vector 29) is intercepted for an SEV-ES guest",
       "the guest's handler must see it; software must not set this bit",
       {F::nested_ctl, F::exceptions},
       [](const C& c) {
         return nested(c, nested_ctl::sev_es_enable) && intercepted(c.vmcb.control, Intercept::exception_29);
       },
       {}},
      {"sev_es_cr_intercepts",
       "15.35",
       "CR0 or CR4 writes are intercepted for an SEV-ES guest before the write",
       "they give #VC in the guest; a hypervisor uses the write traps",
       {F::nested_ctl, F::cr_write},
       [](const C& c) {
         return nested(c, nested_ctl::sev_es_enable) && (intercepted(c.vmcb.control, Intercept::write_cr0) ||
                                                         intercepted(c.vmcb.control, Intercept::write_cr4));
       },
       {}},
      {"sev_es_with_avic",
       "15.35",
       "AVIC is enabled for an SEV-ES guest without Secure AVIC",
       "KVM inhibits AVIC for encrypted guests",
       {F::nested_ctl, F::int_ctl},
       [](const C& c) {
         return nested(c, nested_ctl::sev_es_enable) && (c.vmcb.control.int_ctl & int_ctl::avic_enable) != 0;
       },
       {}},
      {"sev_es_without_lbrv",
       "15.35",
       "LBR virtualization is off for an SEV-ES guest",
       "the state save area of an encrypted guest holds the LBR registers; KVM requires the feature",
       {F::nested_ctl, F::virt_ext},
       [](const C& c) {
         return nested(c, nested_ctl::sev_es_enable) &&
                (c.vmcb.control.virt_ext & virt_ext::lbr_virtualization) == 0;
       },
       {}},
  };
}

}  // namespace svmsim::svm
