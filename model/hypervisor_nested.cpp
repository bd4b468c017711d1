// Guests that are hypervisors: VMRUN and #VMEXIT between L1 and L2 (arch/x86/kvm/svm/nested.c;
// svm-hardware.md section 9). The CPU knows no second level: L2 runs under vmcb02, which KVM makes of vmcb01
// (its own VMCB for L1) and vmcb12 (L1's VMCB for L2, in L1's memory).
//
// Left out: L1's own shadow paging and TLB; a TSC ratio for L2; LBR virtualization; SMM and INIT while L2
// runs.

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "model/guest_vms.hpp"
#include "model/hypervisor.hpp"
#include "model/vm.hpp"
#include "svm/exit_code.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmload_state.hpp"
#include "svm/vmrun_checks.hpp"

namespace svmsim::model {

namespace exit_code = svm::exit_code;
using svm::Intercept;
using workloads::EventKind;

const std::array<std::uint32_t, 12>& passed_through_msr_list();

namespace {

constexpr std::uint32_t v_irq_injection_bits =
    svm::int_ctl::v_irq | svm::int_ctl::v_intr_prio_mask | svm::int_ctl::v_ign_tpr;

/// The fields of the state save area that this model uses: what lies behind them is a reserved area.
void copy_save(svm::VmcbSave& to, const svm::VmcbSave& from) noexcept {
  static_assert(std::is_trivially_copyable_v<svm::VmcbSave>);
  std::memcpy(static_cast<void*>(&to), &from, offsetof(svm::VmcbSave, reserved_298));
}

/// What VMRUN loads and #VMEXIT saves.
void copy_guest_state(svm::VmcbSave& to, const svm::VmcbSave& from) noexcept {
  to.es = from.es;
  to.cs = from.cs;
  to.ss = from.ss;
  to.ds = from.ds;
  to.gdtr = from.gdtr;
  to.idtr = from.idtr;
  to.cpl = from.cpl;
  to.efer = from.efer;
  to.cr4 = from.cr4;
  to.cr3 = from.cr3;
  to.cr0 = from.cr0;
  to.dr7 = from.dr7;
  to.dr6 = from.dr6;
  to.rflags = from.rflags;
  to.rip = from.rip;
  to.rsp = from.rsp;
  to.rax = from.rax;
  to.cr2 = from.cr2;
}

bool nested_vgif_enabled(const NestedState& nested) {
  return nested.features.has(svm::Feature::vgif) && (nested.ctl.int_ctl & svm::int_ctl::v_gif_enable) != 0;
}

bool nested_vnmi_enabled(const NestedState& nested) {
  return nested.features.has(svm::Feature::vnmi) && (nested.ctl.int_ctl & svm::int_ctl::v_nmi_enable) != 0;
}

}  // namespace

void Hypervisor::create_nested(Vcpu& vcpu) {
  workloads::NestedGuest* const guest = vcpu.source->nested_guest();
  if (guest == nullptr) return;
  vcpu.nested = std::make_unique<NestedState>(*guest);
  NestedState& nested = *vcpu.nested;
  nested.features = nested_features(host_, kvm_);
  nested.msrpm02.fill(true);
  nested.shadow_absent = guest->untouched_pages();
}

// nested_svm_vmrun.
void Hypervisor::nested_svm_vmrun(Vcpu& vcpu, PhysicalCpu& cpu) {
  NestedState& nested = *vcpu.nested;
  const std::uint64_t gpa = vcpu.source->current()->operand[1];
  cpu.charge(cost_.h_nested_vmrun);
  svm::Vmcb* const vmcb12 = nested.guest.vmcb_page(gpa);
  if (vmcb12 == nullptr) return queue_exception(vcpu, svm::exception_vector::general_protection, true, 0);
  skip_instruction(vcpu, cpu, 0);
  if (!nested_vmcb_check(nested, *vmcb12)) {
    vmcb12->control.exit_code = exit_code::invalid;
    vmcb12->control.exit_info_1 = 0;
    vmcb12->control.exit_info_2 = 0;
    ++nested.stats.of(exit_code::invalid).seen_by_l1;
    return;
  }
  nested.vmcb12 = vmcb12;
  nested.vmcb12_gpa = gpa;
  nested.ctl = vmcb12->control;
  nested.run_pending = true;
  enter_svm_guest_mode(vcpu, cpu, *vmcb12);
}

// nested_vmcb_check_save, nested_vmcb_check_controls: with the CPU's own rules, of which KVM's are a part.
bool Hypervisor::nested_vmcb_check(NestedState& nested, const svm::Vmcb& vmcb12) const {
  const svm::ProcessorLimits limits;
  if (!nested.legal_inputs.are_of(vmcb12)) {
    if (!svm::vmrun_state_legal(vmcb12, nested.features, host_.knobs, limits)) return false;
    nested.legal_inputs = svm::VmrunInputs::of(vmcb12);
  }
  return (vmcb12.control.event_inj & svm::event_inj::valid) == 0 ||
         svm::vmrun_injection_legal(vmcb12, nested.features, host_.knobs, limits);
}

void Hypervisor::enter_svm_guest_mode(Vcpu& vcpu, PhysicalCpu& cpu, svm::Vmcb& vmcb12) {
  NestedState& nested = *vcpu.nested;
  trace(cpu, vcpu, EventKind::kvm_nested_vmenter, vcpu.vmcb.save.rip, nested.vmcb12_gpa, vmcb12.save.rip,
        vmcb12.control.int_ctl, vmcb12.control.event_inj, vmcb12.control.nested_ctl,
        vmcb12.control.nested_cr3, vmcb12.save.cr3);
  nested.vmcb01.control = vcpu.vmcb.control;
  copy_save(nested.vmcb01.save, vcpu.vmcb.save);
  vcpu.guest_mode = true;
  nested_vmcb02_prepare_save(vcpu, vmcb12);
  nested_vmcb02_prepare_control(vcpu);
  nested_svm_merge_msrpm(vcpu);
  nested.guest.vmrun();
  vcpu.compute_left = nested.l2_compute_left;
  if (vcpu.apicv_active) vcpu.requests |= request::apicv_update;
  cpu.synchronise();
  svm_set_gif(vcpu, true);
}

void Hypervisor::nested_vmcb02_prepare_save(Vcpu& vcpu, const svm::Vmcb& vmcb12) {
  copy_guest_state(vcpu.vmcb.save, vmcb12.save);
}

// int_ctl, TSC offset, PAUSE filter, events: from vmcb12, from vmcb01, or of both (section 9).
void Hypervisor::nested_vmcb02_prepare_control(Vcpu& vcpu) {
  using namespace svm::int_ctl;
  NestedState& nested = *vcpu.nested;
  const svm::VmcbControl& l1 = nested.vmcb01.control;
  const svm::VmcbControl& l2 = nested.ctl;
  svm::VmcbControl& control = vcpu.vmcb.control;

  std::uint32_t of_l1 = v_intr_masking;
  std::uint32_t of_l2 = v_tpr_mask | v_irq_injection_bits;
  (nested_vgif_enabled(nested) ? of_l2 : of_l1) |= v_gif | v_gif_enable;
  if (nested_vnmi_enabled(nested)) of_l2 |= v_nmi | v_nmi_enable | v_nmi_mask;
  if ((l1.int_ctl & v_nmi_enable) != 0 && (l1.int_ctl & v_nmi) != 0) {
    ++vcpu.nmi.pending;  // it waits for L1, or ends L2
    vcpu.requests |= request::event;
  }
  control.int_ctl = (l1.int_ctl & of_l1) | (l2.int_ctl & of_l2);
  control.int_vector = l2.int_vector;
  control.int_state = l2.int_state;
  control.event_inj = l2.event_inj;
  control.event_inj_err = l2.event_inj_err;
  control.next_rip = l2.next_rip;
  control.tsc_offset = l1.tsc_offset + l2.tsc_offset;
  const bool filter = nested.features.has(svm::Feature::pause_filter);
  const bool threshold = nested.features.has(svm::Feature::pause_filter_threshold);
  control.pause_filter_count = filter ? l2.pause_filter_count : std::uint16_t{0};
  control.pause_filter_thresh = threshold ? l2.pause_filter_thresh : std::uint16_t{0};
  control.virt_ext &= ~svm::virt_ext::vls;
  if (nested.features.has(svm::Feature::vls)) control.virt_ext |= l2.virt_ext & svm::virt_ext::vls;
  control.tlb_ctl = svm::tlb_control::none;
  control.clean = 0;
  recalc_intercepts(vcpu);
}

// vmcb02's intercepts: both levels', but for what does not concern the other one.
void Hypervisor::recalc_intercepts(Vcpu& vcpu) const {
  vcpu.vmcb.control.clean &= ~svm::clean::intercepts;
  if (!vcpu.guest_mode) return;
  NestedState& nested = *vcpu.nested;
  const svm::VmcbControl& l1 = nested.vmcb01.control;
  const svm::VmcbControl& l2 = nested.ctl;
  svm::VmcbControl& control = vcpu.vmcb.control;
  control.intercepts = l1.intercepts;
  if ((l2.int_ctl & svm::int_ctl::v_intr_masking) != 0) {
    // L2's CR8 masks nothing that L0 would inject; and with L1's IF clear no interrupt of L1 gets in
    // whatever L2 does.
    set_intercept(control, Intercept::write_cr8, false);
    if ((nested.vmcb01.save.rflags & svm::rflags::interrupt) == 0)
      set_intercept(control, Intercept::vintr, false);
  }
  set_intercept(control, Intercept::vmmcall, false);
  set_intercept(control, Intercept::pause, false);
  for (std::size_t word = 0; word < control.intercepts.size(); ++word)
    control.intercepts[word] |= l2.intercepts[word];
  const bool virtual_vmload = (control.virt_ext & svm::virt_ext::vls) != 0;
  if (!virtual_vmload) {
    set_intercept(control, Intercept::vmload, true);
    set_intercept(control, Intercept::vmsave, true);
  }
  // The proposal: L0 looks at each HLT itself, on whatever CPU.
  if (kvm_.nested_idle_hlt == NestedIdleHlt::emulate && intercepted(l2, Intercept::idle_hlt)) {
    set_intercept(control, Intercept::hlt, true);
    set_intercept(control, Intercept::idle_hlt, false);
  }
}

// The MSRs that L0 leaves to its guests exit where L1 wants it; all others exit for L0.
void Hypervisor::nested_svm_merge_msrpm(Vcpu& vcpu) {
  NestedState& nested = *vcpu.nested;
  vcpu.msrpm = &vcpu.vm.msrpm;
  if (!intercepted(nested.ctl, Intercept::msr)) return;
  const svm::MsrPermissionMap& l1 = nested.guest.msr_permission_map(nested.ctl.msrpm_base_pa);
  for (const std::uint32_t msr : passed_through_msr_list())
    nested.msrpm02.set(msr, l1.intercepts(msr, false), l1.intercepts(msr, true));
  vcpu.msrpm = &nested.msrpm02;
}

// svm_vcpu_run's part for them, behind every exit.
void Hypervisor::note_nested_exit(Vcpu& vcpu) {
  NestedExits& exits = vcpu.nested->stats.of(vcpu.vmcb.control.exit_code);
  if (!vcpu.guest_mode) {
    ++exits.l1;
    return;
  }
  ++exits.l2;
  nested_sync_control_from_vmcb02(vcpu);
}

// What the CPU has changed of L2's control area.
void Hypervisor::nested_sync_control_from_vmcb02(Vcpu& vcpu) {
  using namespace svm::int_ctl;
  NestedState& nested = *vcpu.nested;
  const svm::VmcbControl& control = vcpu.vmcb.control;
  nested.ctl.event_inj = control.event_inj;
  nested.ctl.event_inj_err = control.event_inj_err;
  std::uint32_t mask = v_irq | v_tpr_mask;
  // Not a V_IRQ that is L0's own window.
  if (intercepted(control, Intercept::vintr) && !intercepted(nested.ctl, Intercept::vintr)) mask &= ~v_irq;
  if (nested_vgif_enabled(nested)) mask |= v_gif;
  if (nested_vnmi_enabled(nested)) mask |= v_nmi | v_nmi_mask;
  nested.ctl.int_ctl = (nested.ctl.int_ctl & ~mask) | (control.int_ctl & mask);
  if (nested.run_pending && control.exit_code != exit_code::invalid) ++vcpu.stats.nested_run;
  nested.run_pending = false;
}

namespace {

/// nested_save_pending_event_to_vmcb12: what L0 would have injected again is L1's to do.
void save_pending_event(const Vcpu& vcpu, svm::VmcbControl& control) {
  using namespace svm::event_inj;
  control.exit_int_info = 0;
  control.exit_int_info_err = 0;
  if (vcpu.exception.injected) {
    control.exit_int_info = event(type_exception, vcpu.exception.vector);
    if (vcpu.exception.has_error) {
      control.exit_int_info |= error_valid;
      control.exit_int_info_err = vcpu.exception.error;
    }
  } else if (vcpu.nmi.injected) {
    control.exit_int_info = event(type_nmi, svm::exception_vector::nmi);
  } else if (vcpu.interrupt.injected) {
    control.exit_int_info = event(vcpu.interrupt.soft ? type_soft : type_intr, vcpu.interrupt.vector);
  }
}

}  // namespace

// nested_svm_vmexit: vmcb02's exit becomes L1's.
void Hypervisor::nested_svm_vmexit(Vcpu& vcpu, PhysicalCpu& cpu) {
  NestedState& nested = *vcpu.nested;
  cpu.charge(cost_.h_nested_vmexit);
  svm::Vmcb& vmcb12 = *nested.vmcb12;
  svm::Vmcb& vmcb = vcpu.vmcb;
  vcpu.guest_mode = false;
  vcpu.mp_state = MpState::runnable;  // in case L2 was halted by L0
  copy_guest_state(vmcb12.save, vmcb.save);
  svm::VmcbControl& out = vmcb12.control;
  out.int_state = vmcb.control.int_state;
  out.exit_code = vmcb.control.exit_code;
  out.exit_info_1 = vmcb.control.exit_info_1;
  out.exit_info_2 = vmcb.control.exit_info_2;
  if (out.exit_code != exit_code::invalid) save_pending_event(vcpu, out);
  if (nested.features.has(svm::Feature::nrips)) out.next_rip = vmcb.control.next_rip;
  out.int_ctl = nested.ctl.int_ctl;
  out.event_inj = nested.ctl.event_inj;
  out.event_inj_err = nested.ctl.event_inj_err;
  ++nested.stats.of(out.exit_code).seen_by_l1;

  // svm_switch_vmcb to vmcb01, and L1's state as it was at its VMRUN.
  svm::move_vmload_state(vmcb.save, nested.vmcb01.save);  // VMRUN does not switch it
  vmcb.control = nested.vmcb01.control;
  copy_save(vmcb.save, nested.vmcb01.save);
  vmcb.control.exit_int_info = 0;
  vmcb.control.event_inj = 0;
  vmcb.control.clean = 0;
  if ((vmcb.control.int_ctl & svm::int_ctl::v_nmi_enable) != 0) {
    vmcb.control.int_ctl &= ~svm::int_ctl::v_nmi;
    if (vcpu.nmi.pending != 0) {
      --vcpu.nmi.pending;
      vmcb.control.int_ctl |= svm::int_ctl::v_nmi;
    }
  }
  vcpu.msrpm = &vcpu.vm.msrpm;
  nested.l2_compute_left = vcpu.compute_left;
  vcpu.compute_left = 0;
  // L1 that does not intercept interrupts may have had a window of L0 open in vmcb02.
  if (!intercepted(nested.ctl, Intercept::intr)) vcpu.requests |= request::event;
  svm_set_gif(vcpu, false);
  trace(cpu, vcpu, EventKind::kvm_nested_vmexit_inject, out.exit_code, out.exit_info_1, out.exit_info_2,
        out.exit_int_info | std::uint64_t{out.exit_int_info_err} << 32);
  vcpu.nmi.injected = false;
  vcpu.exception = {};
  vcpu.interrupt = {};
  vcpu.pv.highest_isr_cache = -1;
  nested.guest.vmexit();
  // What waits for L1 waits for its GIF, too.
  cpu.synchronise();
  if (has_injectable_intr(vcpu)) vcpu.requests |= request::event;
  if (vcpu.avic != nullptr && !vcpu.vm.inhibits.any()) vcpu_update_apicv(vcpu, cpu);
}

// nested_svm_simple_vmexit: an exit that the CPU has not reported.
void Hypervisor::nested_svm_simple_vmexit(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t code) {
  svm::VmcbControl& control = vcpu.vmcb.control;
  control.exit_code = code;
  control.exit_info_1 = 0;
  control.exit_info_2 = 0;
  nested_svm_vmexit(vcpu, cpu);
}

}  // namespace svmsim::model
