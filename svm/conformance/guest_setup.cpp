#include "svm/conformance/guest_setup.hpp"

#include "svm/vmcb_bits.hpp"

namespace svmsim::svm::conformance {

Vmcb default_vmcb() {
  Vmcb vmcb{};
  for (const Intercept intercept : {Intercept::vmrun, Intercept::vmmcall, Intercept::shutdown})
    set_intercept(vmcb.control, intercept, true);
  VmcbControl& control = vmcb.control;
  control.asid = 1;
  control.nested_ctl = nested_ctl::np_enable;
  control.nested_cr3 = 0x4000;
  control.iopm_base_pa = 0x1'0000;
  control.msrpm_base_pa = 0x2'0000;
  VmcbSave& save = vmcb.save;
  const auto segment = [](std::uint16_t selector, std::uint16_t attrib) {
    return VmcbSegment{selector, attrib, 0xffff'ffff, 0};
  };
  save.cs = segment(0x08, 0x0a9b);  // present, 64-bit, execute and read
  save.ss = save.ds = save.es = save.fs = save.gs = segment(0x10, 0x0c93);
  save.tr = {0x18, 0x008b, 0x67, 0x7000};
  save.ldtr = {0, 0x0082, 0, 0};
  save.gdtr = {0, 0, 0x7f, 0x5000};
  save.idtr = {0, 0, 0xfff, 0x6000};
  save.efer = efer::svme | efer::lme | efer::lma;
  save.cr0 = cr0::pg | cr0::pe | cr0::wp;
  save.cr4 = cr4::pae;
  save.cr3 = 0x1000;
  save.dr6 = 0xffff'0ff0;
  save.dr7 = 0x400;
  save.rflags = rflags::always_one;
  save.rip = default_rip;
  save.rsp = 0x9000;
  save.g_pat = 0x0007'0406'0007'0406;
  return vmcb;
}

void apply(const VmcbChange& change, Vmcb& vmcb) {
  for (const auto& [path, value] : change.fields)
    path.set(vmcb, value);
  for (const auto& [intercept, on] : change.intercepts)
    set_intercept(vmcb.control, intercept, on);
}

void apply(const PendingChange& change, TableEnvironment& environment, bool arriving) {
  if (change.intr) {
    auto& pending = environment.interrupts_pending;
    if (!arriving) pending.clear();
    pending.insert(pending.end(), change.intr->begin(), change.intr->end());
  }
  environment.nmi_pending = change.nmi.value_or(environment.nmi_pending);
  environment.smi_pending = change.smi.value_or(environment.smi_pending);
  environment.init_pending = change.init.value_or(environment.init_pending);
}

void apply(const SurroundingsChange& change, TableEnvironment& environment, bool arriving) {
  environment.tsc = change.tsc.value_or(environment.tsc);
  environment.ratio = change.tsc_ratio.value_or(environment.ratio);
  for (const auto& [msr, value] : change.msrs)
    environment.msrs[msr] = value;
  environment.faulting_msrs.insert(change.faulting_msrs.begin(), change.faulting_msrs.end());
  for (const auto& [port, value] : change.ports)
    environment.ports[port] = value;
  for (const auto& [vector, rip] : change.idt)
    environment.handlers[vector] = rip;
  for (const auto& [vector, level] : change.gate_levels)
    environment.gate_levels[vector] = level;
  for (const auto& [address, page] : change.pages)
    environment.page(address) = page;
  for (const auto& [address, fields] : change.vmcb_pages)
    apply(fields, environment.vmcb_pages[address]);
  environment.highest_irr = change.avic_irr.value_or(environment.highest_irr);
  environment.ppr = change.avic_ppr.value_or(environment.ppr);
  environment.r_init = change.r_init.value_or(environment.r_init);
  if (change.pdptes) environment.pdptes = change.pdptes;
  environment.guest_vmsa = change.vmsa.value_or(environment.guest_vmsa);
  for (const std::uint64_t address : change.foreign_pages)
    environment.foreign_pages.insert(address >> 12);
  environment.smi = change.smi_info.value_or(environment.smi);

  const MapChange& msr = change.msrpm;
  MsrPermissionMap& msr_map = msr.at ? environment.msr_maps[*msr.at] : environment.msr_map;
  const auto set_msr = [&msr_map](std::uint32_t number, bool read, bool write) {
    msr_map.set(number, read || msr_map.intercepts(number, false), write || msr_map.intercepts(number, true));
  };
  if (msr.fill) msr_map.fill(*msr.fill);
  for (const std::uint32_t number : msr.set_read)
    set_msr(number, true, false);
  for (const std::uint32_t number : msr.set_write)
    set_msr(number, false, true);
  for (const std::uint32_t number : msr.clear)
    msr_map.set(number, false, false);

  const MapChange& io = change.iopm;
  IoPermissionMap& io_map = io.at ? environment.io_maps[*io.at] : environment.io_map;
  if (io.fill) io_map.fill(*io.fill);
  for (const std::uint32_t port : io.set)
    io_map.set(port, true);
  for (const std::uint32_t port : io.clear)
    io_map.set(port, false);
  apply(change.pending, environment, arriving);
}

}  // namespace svmsim::svm::conformance
