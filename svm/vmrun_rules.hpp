#pragma once

// The one table of VMRUN's consistency checks, for svm/vmrun_checks.cpp. A row is
//   X(id, section of APM vol. 2, what is wrong)
// The id is stable: files and tools name rules by it.

// clang-format off
#define SVMSIM_VMRUN_RULES(X) \
  X(svme_clear, "15.5.1", "EFER.SVME is 0") \
  X(cache_bits, "15.5.1", "CR0.CD is 0 and CR0.NW is 1") \
  X(cr0_upper, "15.5.1", "CR0[63:32] is not 0") \
  X(cr3_reserved, "15.5.1", "CR3 has bits above the physical address width set") \
  X(cr4_reserved, "15.5.1", "CR4 has reserved bits set") \
  X(dr6_upper, "15.5.1", "DR6[63:32] is not 0") \
  X(dr7_upper, "15.5.1", "DR7[63:32] is not 0") \
  X(efer_reserved, "15.5.1", "EFER has reserved bits set") \
  X(no_long_mode, "15.5.1", "EFER.LMA or EFER.LME is 1, but the processor has no long mode") \
  X(long_mode_without_pae, "15.5.1", "EFER.LME and CR0.PG are 1, but CR4.PAE is 0") \
  X(long_mode_without_pe, "15.5.1", "EFER.LME and CR0.PG are 1, but CR0.PE is 0") \
  X(code_segment_l_and_d, "15.5.1", "EFER.LME, CR0.PG, CR4.PAE, CS.L and CS.D are all 1") \
  X(vmrun_not_intercepted, "15.5.1", "the VMRUN intercept is clear") \
  X(asid_zero, "15.5.1", "the guest ASID is 0") \
  X(msrpm_beyond_memory, "15.11", "the MSR permission map reaches beyond the physical address space") \
  X(iopm_beyond_memory, "15.10.1", "the I/O permission map reaches beyond the physical address space") \
  X(v_nmi_without_nmi_intercept, "15.21.10", "V_NMI_ENABLE is 1, but the NMI intercept is clear") \
  X(s_cet_reserved, "15.5.1", "S_CET has reserved bits set") \
  X(cet_without_wp, "15.5.1", "CR4.CET is 1, but CR0.WP is 0") \
  X(injects_reserved_type, "15.20", "EVENTINJ has a reserved type") \
  X(injects_no_exception, "15.20", "EVENTINJ injects an exception with a vector that is no exception") \
  X(injects_impossible_exception, "15.20", "EVENTINJ injects an exception that cannot occur in 64-bit mode") \
  X(injects_soft_without_nrips, "15.20", "EVENTINJ injects a software interrupt, but the processor has no nRIP (nrips)") \
  X(sev_es_injection, "15.35.8", "SEV-ES: EVENTINJ injects a software interrupt or vector 3 or 4") \
  X(np_without_host_paging, "15.25.3", "nested paging is enabled while the host's CR0.PG is 0") \
  X(nested_cr3_reserved, "15.25.4", "nested paging: N_CR3 has bits above the physical address width set") \
  X(g_pat_illegal, "15.25.4", "nested paging: G_PAT has a reserved bit or memory type") \
  X(x2avic_without_avic, "15.29.4.1", "x2AVIC is enabled without AVIC") \
  X(avic_max_index, "15.29.4.3", "AVIC_PHYSICAL_MAX_INDEX is above 255 in xAVIC mode") \
  X(x2avic_max_index, "15.29.4.3", "AVIC_PHYSICAL_MAX_INDEX is above 511, but the processor has no x2avic_ext") \
  X(avic_backing_page_beyond_memory, "15.29.4", "the AVIC backing page pointer is beyond the physical address space") \
  X(avic_physical_table_beyond_memory, "15.29.4", "the AVIC physical APIC ID table pointer is beyond the physical address space") \
  X(avic_logical_table_beyond_memory, "15.29.4", "the AVIC logical APIC ID table pointer is beyond the physical address space") \
  X(avic_without_np, "15.29.4", "AVIC is enabled without nested paging") \
  X(sev_without_np, "15.34.3", "SEV is enabled without nested paging") \
  X(sev_without_smm_lock, "15.34.3", "SEV is enabled while HWCR.SmmLock is 0") \
  X(sev_asid, "15.34.3", "SEV is enabled with an ASID above the highest encrypted ASID") \
  X(pdpte_reserved, "15.5.1", "PAE paging without nested paging: a page-directory-pointer entry has reserved bits set") \
  X(cet_in_virtual_8086_mode, "15.5.1", "CR4.CET, U_CET.SH_STK_EN and RFLAGS.VM are all 1") \
  X(sev_es_vmsa_beyond_memory, "15.35.8", "SEV-ES: the VMSA pointer is beyond the physical address space") \
  X(sev_es_vmsa_damaged, "15.35.8", "SEV-ES: the VMSA cannot be loaded, or its checksum is wrong") \
  X(sev_features_not_allowed, "15.36.20", "SEV_FEATURES has bits that ALLOWED_SEV_FEATURES does not allow") \
  X(secure_avic_with_avic, "15.36.21.2", "Secure AVIC together with AVIC") \
  X(secure_avic_with_injection, "15.36.21.2", "Secure AVIC together with restricted or alternate injection") \
  X(snp_avic_with_injection, "15.36.16", "SNP: AVIC together with restricted or alternate injection") \
  X(snp_avic_backing_page_owner, "15.36.16", "SNP: the AVIC backing page is not owned by the hypervisor")
// clang-format on
