#pragma once

// The fields of the VMCB, once: for all who name them (svm/vmcb_fields.hpp) and for the dumps of kernels
// (svm/vmcb_dump/dump_fields.hpp, whose enumerations the later columns are of). The intercept words are split
// as the dumps print them, and a segment register is four rows.
//
// X(identifier, structure, member, first byte within the member, bytes, group, vintage, format, name in a
// dump)
// clang-format off
#define SVMSIM_SEGMENT_FIELDS(X, seg)                                                                        \
  X(seg##_selector, VmcbSave, seg, 0, 2, segments, v4_4, hex4, "")                                           \
  X(seg##_attrib, VmcbSave, seg, 2, 2, segments, v4_4, hex4, "")                                             \
  X(seg##_limit, VmcbSave, seg, 4, 4, segments, v4_4, hex8, "")                                              \
  X(seg##_base, VmcbSave, seg, 8, 8, segments, v4_4, hex16, "")

#define SVMSIM_VMCB_FIELDS(X)                                                                                \
  X(cr_read, VmcbControl, intercepts, 0, 2, intercepts, v4_4, hex4, "cr_read")                               \
  X(cr_write, VmcbControl, intercepts, 2, 2, intercepts, v4_4, hex4, "cr_write")                             \
  X(dr_read, VmcbControl, intercepts, 4, 2, intercepts, v4_4, hex4, "dr_read")                               \
  X(dr_write, VmcbControl, intercepts, 6, 2, intercepts, v4_4, hex4, "dr_write")                             \
  X(exceptions, VmcbControl, intercepts, 8, 4, intercepts, v4_4, hex8, "exceptions")                         \
  X(intercepts_3, VmcbControl, intercepts, 12, 4, intercepts, v4_4, hex8, "")                                \
  X(intercepts_4, VmcbControl, intercepts, 16, 4, intercepts, v4_4, hex8, "")                                \
  X(intercepts_5, VmcbControl, intercepts, 20, 4, intercepts, never, hex8, "intercepts (extended)")          \
  X(pause_filter_thresh, VmcbControl, pause_filter_thresh, 0, 2, control, v4_17, decimal, "pause filter threshold") \
  X(pause_filter_count, VmcbControl, pause_filter_count, 0, 2, control, v4_4, decimal, "pause filter count") \
  X(iopm_base_pa, VmcbControl, iopm_base_pa, 0, 8, control, v4_4, hex16, "iopm_base_pa")                     \
  X(msrpm_base_pa, VmcbControl, msrpm_base_pa, 0, 8, control, v4_4, hex16, "msrpm_base_pa")                  \
  X(tsc_offset, VmcbControl, tsc_offset, 0, 8, control, v4_4, hex16, "tsc_offset")                           \
  X(asid, VmcbControl, asid, 0, 4, control, v4_4, decimal, "asid")                                           \
  X(tlb_ctl, VmcbControl, tlb_ctl, 0, 1, control, v4_4, decimal, "tlb_ctl")                                  \
  X(erap_ctl, VmcbControl, erap_ctl, 0, 1, control, v6_19, decimal, "erap_ctl")                              \
  X(int_ctl, VmcbControl, int_ctl, 0, 4, interrupts, v4_4, hex8, "int_ctl")                                  \
  X(int_vector, VmcbControl, int_vector, 0, 4, interrupts, v4_4, hex8, "int_vector")                         \
  X(int_state, VmcbControl, int_state, 0, 4, interrupts, v4_4, hex8, "int_state")                            \
  X(exit_code, VmcbControl, exit_code, 0, 8, exit, v4_4, hex8_or_16, "exit_code")                            \
  X(exit_info_1, VmcbControl, exit_info_1, 0, 8, exit, v4_4, hex16, "exit_info1")                            \
  X(exit_info_2, VmcbControl, exit_info_2, 0, 8, exit, v4_4, hex16, "exit_info2")                            \
  X(exit_int_info, VmcbControl, exit_int_info, 0, 4, exit, v4_4, hex8, "exit_int_info")                      \
  X(exit_int_info_err, VmcbControl, exit_int_info_err, 0, 4, exit, v4_4, hex8, "exit_int_info_err")          \
  X(nested_ctl, VmcbControl, nested_ctl, 0, 8, paging, v4_4, decimal, "nested_ctl")                          \
  X(avic_vapic_bar, VmcbControl, avic_vapic_bar, 0, 8, avic, v4_4, hex16, "avic_vapic_bar")                  \
  X(ghcb_gpa, VmcbControl, ghcb_gpa, 0, 8, sev, v5_11, hex16, "ghcb")                                        \
  X(event_inj, VmcbControl, event_inj, 0, 4, interrupts, v4_4, hex8, "event_inj")                            \
  X(event_inj_err, VmcbControl, event_inj_err, 0, 4, interrupts, v4_4, hex8, "event_inj_err")                \
  X(nested_cr3, VmcbControl, nested_cr3, 0, 8, paging, v4_4, hex16, "nested_cr3")                            \
  X(virt_ext, VmcbControl, virt_ext, 0, 8, control, v4_4, decimal, "virt_ext")                               \
  X(clean, VmcbControl, clean, 0, 4, control, never, none, "")                                               \
  X(next_rip, VmcbControl, next_rip, 0, 8, exit, v4_4, hex16, "next_rip")                                    \
  X(insn_len, VmcbControl, insn_len, 0, 1, exit, never, none, "")                                            \
  X(insn_bytes, VmcbControl, insn_bytes, 0, 15, exit, never, none, "")                                       \
  X(avic_backing_page, VmcbControl, avic_backing_page, 0, 8, avic, v4_4, hex16, "avic_backing_page")         \
  X(avic_logical_id, VmcbControl, avic_logical_id, 0, 8, avic, v4_4, hex16, "avic_logical_id")               \
  X(avic_physical_id, VmcbControl, avic_physical_id, 0, 8, avic, v4_4, hex16, "avic_physical_id")            \
  X(vmsa_pa, VmcbControl, vmsa_pa, 0, 8, sev, v5_11, hex16, "vmsa_pa")                                       \
  X(vmgexit_rax, VmcbControl, vmgexit_rax, 0, 8, sev, never, none, "")                                       \
  X(vmgexit_cpl, VmcbControl, vmgexit_cpl, 0, 1, sev, never, none, "")                                       \
  X(bus_lock_counter, VmcbControl, bus_lock_counter, 0, 2, control, never, none, "")                         \
  X(update_irr, VmcbControl, update_irr, 0, 4, sev, never, none, "")                                         \
  X(allowed_sev_features, VmcbControl, allowed_sev_features, 0, 8, sev, v6_16, hex16, "allowed_sev_features") \
  X(guest_sev_features, VmcbControl, guest_sev_features, 0, 8, sev, v6_16, hex16, "guest_sev_features")      \
  X(requested_irr, VmcbControl, requested_irr, 0, 32, sev, never, none, "")                                  \
  SVMSIM_SEGMENT_FIELDS(X, es)                                                                               \
  SVMSIM_SEGMENT_FIELDS(X, cs)                                                                               \
  SVMSIM_SEGMENT_FIELDS(X, ss)                                                                               \
  SVMSIM_SEGMENT_FIELDS(X, ds)                                                                               \
  SVMSIM_SEGMENT_FIELDS(X, fs)                                                                               \
  SVMSIM_SEGMENT_FIELDS(X, gs)                                                                               \
  SVMSIM_SEGMENT_FIELDS(X, gdtr)                                                                             \
  SVMSIM_SEGMENT_FIELDS(X, ldtr)                                                                             \
  SVMSIM_SEGMENT_FIELDS(X, idtr)                                                                             \
  SVMSIM_SEGMENT_FIELDS(X, tr)                                                                               \
  X(vmpl, VmcbSave, vmpl, 0, 1, registers, v6_16, decimal, "vmpl")                                           \
  X(cpl, VmcbSave, cpl, 0, 1, registers, v4_4, decimal, "cpl")                                               \
  X(efer, VmcbSave, efer, 0, 8, registers, v4_4, hex16, "efer")                                              \
  X(cr0, VmcbSave, cr0, 0, 8, registers, v4_4, hex16, "cr0")                                                 \
  X(cr2, VmcbSave, cr2, 0, 8, registers, v4_4, hex16, "cr2")                                                 \
  X(cr3, VmcbSave, cr3, 0, 8, registers, v4_4, hex16, "cr3")                                                 \
  X(cr4, VmcbSave, cr4, 0, 8, registers, v4_4, hex16, "cr4")                                                 \
  X(dr6, VmcbSave, dr6, 0, 8, registers, v4_4, hex16, "dr6")                                                 \
  X(dr7, VmcbSave, dr7, 0, 8, registers, v4_4, hex16, "dr7")                                                 \
  X(rip, VmcbSave, rip, 0, 8, registers, v4_4, hex16, "rip")                                                 \
  X(rflags, VmcbSave, rflags, 0, 8, registers, v4_4, hex16, "rflags")                                        \
  X(rsp, VmcbSave, rsp, 0, 8, registers, v4_4, hex16, "rsp")                                                 \
  X(rax, VmcbSave, rax, 0, 8, registers, v4_4, hex16, "rax")                                                 \
  X(s_cet, VmcbSave, s_cet, 0, 8, registers, v6_18, hex16, "s_cet")                                          \
  X(ssp, VmcbSave, ssp, 0, 8, registers, v6_18, hex16, "ssp")                                                \
  X(isst_addr, VmcbSave, isst_addr, 0, 8, registers, v6_18, hex16, "isst_addr")                              \
  X(star, VmcbSave, star, 0, 8, msrs, v4_4, hex16, "star")                                                   \
  X(lstar, VmcbSave, lstar, 0, 8, msrs, v4_4, hex16, "lstar")                                                \
  X(cstar, VmcbSave, cstar, 0, 8, msrs, v4_4, hex16, "cstar")                                                \
  X(sfmask, VmcbSave, sfmask, 0, 8, msrs, v4_4, hex16, "sfmask")                                             \
  X(kernel_gs_base, VmcbSave, kernel_gs_base, 0, 8, msrs, v4_4, hex16, "kernel_gs_base")                     \
  X(sysenter_cs, VmcbSave, sysenter_cs, 0, 8, msrs, v4_4, hex16, "sysenter_cs")                              \
  X(sysenter_esp, VmcbSave, sysenter_esp, 0, 8, msrs, v4_4, hex16, "sysenter_esp")                           \
  X(sysenter_eip, VmcbSave, sysenter_eip, 0, 8, msrs, v4_4, hex16, "sysenter_eip")                           \
  X(g_pat, VmcbSave, g_pat, 0, 8, msrs, v4_4, hex16, "gpat")                                                 \
  X(dbgctl, VmcbSave, dbgctl, 0, 8, msrs, v4_4, hex16, "dbgctl")                                             \
  X(br_from, VmcbSave, br_from, 0, 8, msrs, v4_4, hex16, "br_from")                                          \
  X(br_to, VmcbSave, br_to, 0, 8, msrs, v4_4, hex16, "br_to")                                                \
  X(last_excp_from, VmcbSave, last_excp_from, 0, 8, msrs, v4_4, hex16, "excp_from")                          \
  X(last_excp_to, VmcbSave, last_excp_to, 0, 8, msrs, v4_4, hex16, "excp_to")                                \
  X(spec_ctrl, VmcbSave, spec_ctrl, 0, 8, msrs, never, none, "")
// clang-format on
