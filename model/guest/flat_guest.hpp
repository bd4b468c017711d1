#pragma once

#include <cstdint>

#include "svm/intercept.hpp"
#include "svm/vmcb.hpp"
#include "svm/vmcb_bits.hpp"
#include "workloads/workload_source.hpp"

// What a hypervisor writes into a new VMCB: ours (L0) and a guest hypervisor of KVM's style.
namespace svmsim::model {

inline void flat_segment(svm::VmcbSegment& segment, std::uint16_t selector, std::uint16_t attrib) {
  segment.selector = selector;
  segment.attrib = attrib;
  segment.limit = 0xffffffffU;
  segment.base = 0;
}

/// A flat 64-bit guest, as a unit-test kernel leaves it.
inline void set_flat_guest(svm::VmcbSave& save, const workloads::InitialState& initial) {
  flat_segment(save.cs, initial.code_selector, 0x29b);
  for (svm::VmcbSegment* segment : {&save.ds, &save.es, &save.ss, &save.fs, &save.gs})
    flat_segment(*segment, 16, 0x293);
  flat_segment(save.tr, 24, 0x8b);
  save.gdtr.base = initial.gdt_base;
  save.gdtr.limit = 0xffff;
  save.idtr.base = initial.idt_base;
  save.idtr.limit = 0xfff;
  save.efer = svm::efer::svme | svm::efer::lma | svm::efer::lme | svm::efer::sce | svm::efer::nxe;
  save.cr0 = svm::cr0::pg | svm::cr0::wp | svm::cr0::pe;
  save.cr4 = svm::cr4::pae;
  save.cr3 = 0x1000;
  save.dr6 = 0xffff0ff0;
  save.dr7 = 0x400;
  save.rflags = svm::rflags::always_one | (initial.interrupts_enabled ? svm::rflags::interrupt : 0);
  save.rip = initial.rip;
  save.g_pat = 0x0007040600070406U;
}

/// The intercepts of KVM's init_vmcb that depend on nothing; with all of DR and CR8 writes beside them.
inline void set_kvm_intercepts(svm::VmcbControl& control) {
  using svm::Intercept;
  // CR0 itself is left to the guest while its value is the one KVM would load (svm_set_cr0), CR3 and INVLPG
  // under nested paging.
  for (const Intercept intercept : {Intercept::read_cr4,
                                    Intercept::write_cr4,
                                    Intercept::intr,
                                    Intercept::nmi,
                                    Intercept::smi,
                                    Intercept::cr0_sel_write,
                                    Intercept::rdpmc,
                                    Intercept::cpuid,
                                    Intercept::invd,
                                    Intercept::invlpga,
                                    Intercept::ioio,
                                    Intercept::msr,
                                    Intercept::task_switch,
                                    Intercept::shutdown,
                                    Intercept::vmrun,
                                    Intercept::vmmcall,
                                    Intercept::vmload,
                                    Intercept::vmsave,
                                    Intercept::stgi,
                                    Intercept::clgi,
                                    Intercept::skinit,
                                    Intercept::wbinvd,
                                    Intercept::xsetbv,
                                    Intercept::rdpru,
                                    Intercept::rsm,
                                    svm::exception_intercept(1),
                                    svm::exception_intercept(6),
                                    svm::exception_intercept(17),
                                    svm::exception_intercept(18)}) {
    set_intercept(control, intercept, true);
  }
}

}  // namespace svmsim::model
