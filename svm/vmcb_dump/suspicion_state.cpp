#include "svm/exit_code.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmcb_dump/suspicion.hpp"

namespace svmsim::svm {

namespace {

using F = Field;
using C = SuspicionContext;

bool in_long_mode(const C& c) noexcept {
  return (c.vmcb.save.efer & efer::lma) != 0 && (c.vmcb.save.cr0 & cr0::pg) != 0;
}
bool in_64_bit_mode(const C& c) noexcept {
  return in_long_mode(c) && (c.vmcb.save.cs.attrib & segment_attrib::long_mode) != 0;
}
bool canonical(std::uint64_t address, bool five_levels) noexcept {
  const unsigned shift = five_levels ? 7 : 16;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(address << shift) >> shift) == address;
}
bool five_levels(const C& c) noexcept {
  return (c.vmcb.save.cr4 & (1U << 12)) != 0;
}
std::uint64_t exit_code_of_vmcb(const C& c) noexcept {
  return c.vmcb.control.exit_code;
}
bool refused(const C& c) noexcept {
  return exit_code_of_vmcb(c) == exit_code::invalid;
}
unsigned dpl(std::uint16_t attrib) noexcept {
  return (attrib >> 5) & 3U;
}

}  // namespace

std::vector<Suspicion> exit_suspicions() {
  return {
      {"exit_code_unknown",
       "appendix C",
       "the exit code is none of the manual's",
       "software wrote it (F000_0000h and above are reserved for hypervisors), or the field is damaged",
       {F::exit_code},
       [](const C& c) { return find_exit(exit_code_of_vmcb(c)) == nullptr; },
       {}},
      {"exit_not_intercepted",
       "15.9",
       "the exit has an intercept, and that intercept is clear",
       "the VMCB has changed since the exit, or these fields are of another VMCB than the exit",
       {F::exit_code, F::cr_read, F::cr_write, F::dr_read, F::dr_write, F::exceptions, F::intercepts_3,
        F::intercepts_4, F::intercepts_5, F::nested_ctl},
       [](const C& c) {
         const ExitInfo* info = find_exit(exit_code_of_vmcb(c));
         const bool automatic = (c.vmcb.control.nested_ctl & nested_ctl::sev_es_enable) != 0;
         return info != nullptr && info->has_intercept && !automatic && exit_code_of_vmcb(c) != 0 &&
                !intercepted(c.vmcb.control, static_cast<Intercept>(info->code));
       },
       {}},
      {"exit_shutdown",
       "15.14.3",
       "the guest is in shutdown (exit 7Fh)",
       "a triple fault or the like: the state save area is undefined, and of the control area bytes 60h, 61h "
       "and 68h",
       {F::exit_code},
       [](const C& c) { return exit_code_of_vmcb(c) == exit_code::shutdown; },
       {}},
      {"exit_int_info_reserved_type",
       "15.7.2",
       "EXITINTINFO is valid with a reserved type",
       "types 1 and 5 to 7 do not exist",
       {F::exit_int_info},
       [](const C& c) {
         const std::uint32_t info = c.vmcb.control.exit_int_info;
         const std::uint32_t type = event_inj::type(info);
         return (info & event_inj::valid) != 0 && (type == 1 || type > event_inj::type_soft);
       },
       {}},
      {"npf_reserved_bits",
       "15.25.6",
       "a nested page fault found reserved bits set in the nested page tables",
       "KVM sets them on purpose for MMIO pages; anywhere else the tables are damaged",
       {F::exit_code, F::exit_info_1},
       [](const C& c) {
         return exit_code_of_vmcb(c) == exit_code::npf &&
                (c.vmcb.control.exit_info_1 & npf_info::reserved) != 0;
       },
       {}},
      {"npf_without_np",
       "15.25.6",
       "the exit is a nested page fault, but nested paging is off",
       "the VMCB has changed since the exit",
       {F::exit_code, F::nested_ctl},
       [](const C& c) {
         return exit_code_of_vmcb(c) == exit_code::npf &&
                (c.vmcb.control.nested_ctl & nested_ctl::np_enable) == 0;
       },
       {}},
      {"avic_exit_without_avic",
       "15.29",
       "the exit is one of AVIC's, but AVIC is off",
       "the VMCB has changed since the exit: KVM may have inhibited AVIC",
       {F::exit_code, F::int_ctl},
       [](const C& c) {
         const std::uint64_t code = exit_code_of_vmcb(c);
         return (code == exit_code::avic_incomplete_ipi || code == exit_code::avic_noaccel) &&
                (c.vmcb.control.int_ctl & int_ctl::avic_enable) == 0;
       },
       {}},
      {"avic_ipi_backing_page",
       "15.29",
       "AVIC found an invalid backing page pointer for an IPI's target",
       "the physical APIC ID table has an entry that is marked valid and is not",
       {F::exit_code, F::exit_info_2},
       [](const C& c) {
         return exit_code_of_vmcb(c) == exit_code::avic_incomplete_ipi &&
                c.vmcb.control.exit_info_2 >> 32 == 3;
       },
       {}},
      {"next_rip_far",
       "15.7.1",
       "nRIP is set, but is not 1 to 15 bytes after rIP",
       "the saved rIP is not the one of the exit: software has moved it, or the exit is trap-like",
       {F::exit_code, F::next_rip, F::rip, F::cs_attrib, F::efer, F::cr0},
       [](const C& c) {
         const std::uint64_t next = c.vmcb.control.next_rip;
         const std::uint64_t distance = next - c.vmcb.save.rip;
         return next != 0 && !refused(c) && exit_code_of_vmcb(c) < intercept_count &&
                (distance == 0 || distance > 15) && in_64_bit_mode(c);
       },
       {}},
  };
}

std::vector<Suspicion> state_suspicions() {
  return {
      {"rflags_bit_1_clear",
       "3.1.6",
       "RFLAGS bit 1 is 0",
       "the bit is always 1: this state was made by software or is damaged",
       {F::rflags},
       [](const C& c) { return (c.vmcb.save.rflags & rflags::always_one) == 0; },
       {}},
      {"rflags_reserved",
       "3.1.6",
       "RFLAGS has reserved bits set",
       "bits 63:22, 15, 5 and 3 are 0",
       {F::rflags},
       [](const C& c) { return (c.vmcb.save.rflags & ~std::uint64_t{0x3f'7fd7}) != 0; },
       {}},
      {"rflags_vm_in_long_mode",
       "3.1.6",
       "RFLAGS.VM is 1 in long mode",
       "virtual-8086 mode does not exist there; VMRUN still makes CPL 3 of it",
       {F::rflags, F::efer, F::cr0},
       [](const C& c) { return (c.vmcb.save.rflags & rflags::virtual_8086) != 0 && in_long_mode(c); },
       {}},
      {"lma_mismatch",
       "3.1.7",
       "EFER.LMA does not fit EFER.LME and CR0.PG",
       "the processor keeps LMA = LME and PG: one of the three has been changed alone",
       {F::efer, F::cr0},
       [](const C& c) {
         const bool lme = (c.vmcb.save.efer & efer::lme) != 0;
         const bool pg = (c.vmcb.save.cr0 & cr0::pg) != 0;
         return ((c.vmcb.save.efer & efer::lma) != 0) != (lme && pg);
       },
       {}},
      {"paged_real_mode",
       "15.19",
       "CR0.PG is 1 with CR0.PE 0: paged real mode",
       "legal in a guest alone; KVM runs real mode so without nested paging",
       {F::cr0},
       [](const C& c) { return (c.vmcb.save.cr0 & cr0::pg) != 0 && (c.vmcb.save.cr0 & cr0::pe) == 0; },
       {}},
      {"cs_l_without_lma",
       "4.8",
       "CS.L is 1 outside of long mode",
       "the bit is reserved there",
       {F::cs_attrib, F::efer, F::cr0},
       [](const C& c) {
         return (c.vmcb.save.cs.attrib & segment_attrib::long_mode) != 0 && !in_long_mode(c);
       },
       {}},
      {"cs_not_present",
       "4.7",
       "CS is not present",
       "the next far transfer or event return faults",
       {F::cs_attrib, F::cr0},
       [](const C& c) {
         return (c.vmcb.save.cs.attrib & segment_attrib::present) == 0 && (c.vmcb.save.cr0 & cr0::pe) != 0;
       },
       {}},
      {"cpl_differs_from_ss",
       "15.5.1",
       "CPL differs from SS.DPL in protected mode",
       "the processor keeps them equal; KVM takes the CPL from its own field",
       {F::cpl, F::ss_attrib, F::cr0, F::rflags},
       [](const C& c) {
         return (c.vmcb.save.cr0 & cr0::pe) != 0 && (c.vmcb.save.rflags & rflags::virtual_8086) == 0 &&
                (c.vmcb.save.ss.attrib & segment_attrib::present) != 0 &&
                dpl(c.vmcb.save.ss.attrib) != c.vmcb.save.cpl;
       },
       {}},
      {"cpl_in_real_mode",
       "15.5.1",
       "CPL is not 0 in real mode, or not 3 in virtual-8086 mode",
       "VMRUN forces the value",
       {F::cpl, F::cr0, F::rflags},
       [](const C& c) {
         if ((c.vmcb.save.cr0 & cr0::pe) == 0) return c.vmcb.save.cpl != 0;
         return (c.vmcb.save.rflags & rflags::virtual_8086) != 0 && c.vmcb.save.cpl != 3;
       },
       {}},
      {"rip_not_canonical",
       "15.5.1",
       "rIP is not canonical",
       "VMRUN accepts it and the guest takes #GP at its first instruction",
       {F::rip, F::efer, F::cr0, F::cs_attrib, F::cr4},
       [](const C& c) { return in_64_bit_mode(c) && !canonical(c.vmcb.save.rip, five_levels(c)); },
       {}},
      {"rip_beyond_limit",
       "15.5.1",
       "rIP is beyond the limit of CS",
       "VMRUN accepts it and the guest takes #GP at its first instruction",
       {F::rip, F::efer, F::cr0, F::cs_attrib, F::cs_limit},
       [](const C& c) { return !in_64_bit_mode(c) && c.vmcb.save.rip > c.vmcb.save.cs.limit; },
       {}},
      {"tr_not_busy",
       "12.2.2",
       "TR holds no busy TSS",
       "the processor marks the TSS busy when it loads TR",
       {F::tr_attrib},
       [](const C& c) {
         const unsigned type = c.vmcb.save.tr.attrib & 0x1fU;
         return type != 3 && type != 11;
       },
       {}},
      {"idt_empty",
       "8.2",
       "the IDT holds no gate in protected mode",
       "the first exception or interrupt of the guest ends in shutdown",
       {F::idtr_limit, F::cr0},
       [](const C& c) { return c.vmcb.save.idtr.limit < 7 && (c.vmcb.save.cr0 & cr0::pe) != 0; },
       {}},
      {"dr7_bit_10_clear",
       "13.1.1",
       "DR7 bit 10 is 0",
       "the bit always reads 1: the field was never loaded from a register",
       {F::dr7},
       [](const C& c) { return (c.vmcb.save.dr7 & (1U << 10)) == 0; },
       {}},
      {"trap_flag_set",
       "15.12.2",
       "RFLAGS.TF is 1",
       "the guest single-steps: a debugger, or KVM stepping over an IRET to open an NMI window",
       {F::rflags},
       [](const C& c) { return (c.vmcb.save.rflags & rflags::trap) != 0; },
       {}},
      {"pcid_without_long_mode",
       "5.5",
       "CR4.PCIDE is 1 outside of long mode",
       "PCIDs exist in long mode only",
       {F::cr4, F::efer, F::cr0},
       [](const C& c) { return (c.vmcb.save.cr4 & (1U << 17)) != 0 && !in_long_mode(c); },
       {}},
      {"wp_clear",
       "5.6",
       "CR0.WP is 0 in a paging guest",
       "supervisor code writes to read-only pages: usual in firmware, odd in an operating system",
       {F::cr0, F::efer},
       [](const C& c) {
         return (c.vmcb.save.cr0 & cr0::pg) != 0 && (c.vmcb.save.cr0 & cr0::wp) == 0 && in_long_mode(c);
       },
       {}},
      {"caches_disabled",
       "7.6",
       "CR0.CD is 1",
       "the guest runs with caches off, very slowly; the state after INIT",
       {F::cr0},
       [](const C& c) { return (c.vmcb.save.cr0 & cr0::cd) != 0; },
       {}},
  };
}

}  // namespace svmsim::svm
