// Which level handles an exit from L2, events for L1 while L2 runs, L1's GIF and its SVM instructions
// (arch/x86/kvm/svm/nested.c, svm.c; svm-hardware.md section 9, kvm-software.md 1.5).

#include <algorithm>

#include "model/hypervisor.hpp"
#include "model/vm.hpp"
#include "svm/exit_code.hpp"
#include "svm/idle_hlt.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmload_state.hpp"

namespace svmsim::model {

namespace exit_code = svm::exit_code;
using svm::Intercept;
using workloads::EventKind;

namespace {

constexpr std::uint64_t last_exception = 31;

bool is_exception(std::uint64_t code) {
  return code >= exit_code::exception(0) && code <= exit_code::exception(last_exception);
}

// Vcpu::guest_mode without vGIF for L2: VGIF of vmcb02 is L1's.
bool gif_in_running_vmcb(const Vcpu& vcpu) {
  return !vcpu.guest_mode || (vcpu.nested->ctl.int_ctl & svm::int_ctl::v_gif_enable) == 0;
}

}  // namespace

// handle_exit's part for a vCPU that has a guest hypervisor.
bool Hypervisor::nested_exit(Vcpu& vcpu, PhysicalCpu& cpu) {
  NestedState& nested = *vcpu.nested;
  svm::VmcbControl& control = vcpu.vmcb.control;
  const std::uint64_t code = control.exit_code;
  if (!vcpu.guest_mode) return false;
  if (events_.active()) cpu.synchronise();  // the event shows the requests
  trace(cpu, vcpu, EventKind::kvm_nested_vmexit, code, vcpu.vmcb.save.rip, control.exit_info_1,
        control.exit_info_2, control.exit_int_info | std::uint64_t{control.exit_int_info_err} << 32,
        vcpu.requests);
  switch (nested_svm_intercept(vcpu, cpu, code)) {
    case NestedExit::host:
      return false;
    case NestedExit::done:
      ++nested.stats.of(code).reflected;
      nested_svm_vmexit(vcpu, cpu);
      break;
    case NestedExit::resume:
      break;
  }
  return true;
}

// nested_svm_exit_special and nested_svm_intercept.
Hypervisor::NestedExit Hypervisor::nested_svm_intercept(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t code) {
  const NestedState& nested = *vcpu.nested;
  const svm::VmcbControl& l2 = nested.ctl;
  const auto by = [&](bool l1_wants) { return l1_wants ? NestedExit::done : NestedExit::host; };
  switch (code) {
    case exit_code::intr:  // L0's affair; L1 hears of its own interrupts by svm_check_nested_events
    case exit_code::nmi:
    case exit_code::npf:
      return NestedExit::host;
    case exit_code::invalid:
      return NestedExit::done;
    case exit_code::msr: {
      if (!intercepted(l2, Intercept::msr)) return NestedExit::host;
      const bool write = vcpu.vmcb.control.exit_info_1 != 0;
      return by(nested.guest.msr_permission_map(l2.msrpm_base_pa)
                    .intercepts(vcpu.source->current()->number, write));
    }
    case exit_code::ioio: {
      if (!intercepted(l2, Intercept::ioio)) return NestedExit::host;
      const std::uint64_t info = vcpu.vmcb.control.exit_info_1;
      const auto port = static_cast<std::uint16_t>(info >> svm::ioio_info::port_shift);
      return by(nested.guest.io_permission_map(l2.iopm_base_pa)
                    .intercepts(port, std::max<unsigned>(vcpu.source->current()->size, 1)));
    }
    case exit_code::hlt:
      if (intercepted(l2, Intercept::hlt)) return NestedExit::done;
      if (kvm_.nested_idle_hlt == NestedIdleHlt::emulate && intercepted(l2, Intercept::idle_hlt))
        return nested_emulate_idle_hlt(vcpu, cpu);
      return NestedExit::host;
    default:
      break;
  }
  // An exception that L0 intercepts for itself is L0's first; it reaches L1 when L0 would inject it.
  if (is_exception(code) && intercepted(nested.vmcb01.control, static_cast<Intercept>(code)))
    return NestedExit::host;
  return by(code < svm::intercept_count && intercepted(l2, static_cast<Intercept>(code)));
}

// The proposal of the idle-HLT review: what the CPU would do if it had the intercept. vmcb12's V_INTR and
// V_NMI are as the CPU left them.
Hypervisor::NestedExit Hypervisor::nested_emulate_idle_hlt(Vcpu& vcpu, PhysicalCpu& cpu) {
  NestedState& nested = *vcpu.nested;
  const svm::IdleHltInputs inputs{nested.ctl.int_ctl, vcpu.vmcb.save.rflags, -1, 0};
  if (!svm::virtual_interrupt_pending(inputs, host_.knobs)) {
    vcpu.vmcb.control.exit_code = exit_code::idle_hlt;  // L1 finds A6h
    return NestedExit::done;
  }
  ++vcpu.stats.nested_idle_hlt;
  cpu.charge(cost_.h_hlt);
  skip_instruction(vcpu, cpu, 0);
  using namespace svm::int_ctl;
  const std::uint32_t word = vcpu.vmcb.control.int_ctl;
  const bool global = (word & v_gif_enable) == 0 || (word & v_gif) != 0;
  const bool interrupt =
      (word & v_irq) != 0 && above_tpr(word) && (vcpu.vmcb.save.rflags & svm::rflags::interrupt) != 0;
  const bool nmi = (word & (v_nmi_enable | v_nmi | v_nmi_mask)) == (v_nmi_enable | v_nmi);
  // Where they are masked the CPU would stay halted in guest mode: nothing but an event of L1 ends that.
  if (!global || !(interrupt || nmi)) vcpu.mp_state = MpState::halted;
  return NestedExit::resume;
}

// L0's shadow of L1's nested page tables: first what L1 does not map is L1's fault, then what the shadow does
// not have yet is filled in (kvm_mmu_page_fault, nested_svm_inject_npf_exit).
void Hypervisor::nested_npf(Vcpu& vcpu, PhysicalCpu& cpu) {
  NestedState& nested = *vcpu.nested;
  const svm::VmcbControl& control = vcpu.vmcb.control;
  const std::uint64_t address = control.exit_info_2;
  trace(cpu, vcpu, EventKind::kvm_page_fault, vcpu.vmcb.save.rip, address, control.exit_info_1);
  cpu.charge(cost_.h_npf);
  if (!nested.guest.maps(address)) {
    ++nested.stats.of(exit_code::npf).reflected;
    return nested_svm_vmexit(vcpu, cpu);
  }
  auto& absent = nested.shadow_absent;
  absent.erase(std::remove_if(absent.begin(), absent.end(),
                              [&](std::uint64_t page) { return (page >> 12) == (address >> 12); }),
               absent.end());
}

bool Hypervisor::nested_svm_virtualize_tpr(const Vcpu& vcpu) {
  return (vcpu.nested->ctl.int_ctl & svm::int_ctl::v_intr_masking) != 0;
}

// svm_interrupt_blocked of a vCPU with a guest hypervisor: interrupts are L1's.
bool Hypervisor::nested_interrupt_allowed(const Vcpu& vcpu) {
  const NestedState& nested = *vcpu.nested;
  if (!gif_set(vcpu)) return false;
  const bool shadow = (vcpu.vmcb.control.int_state & svm::int_state::interrupt_shadow) != 0;
  if (!vcpu.guest_mode) return (vcpu.vmcb.save.rflags & svm::rflags::interrupt) != 0 && !shadow;
  const std::uint64_t flags =
      nested_svm_virtualize_tpr(vcpu) ? nested.vmcb01.save.rflags : vcpu.vmcb.save.rflags;
  if ((flags & svm::rflags::interrupt) == 0) return false;
  return intercepted(nested.ctl, Intercept::intr) || !shadow;
}

// svm_check_nested_events: exception, NMI, interrupt, in that order.
bool Hypervisor::svm_check_nested_events(Vcpu& vcpu, PhysicalCpu& cpu) {
  NestedState& nested = *vcpu.nested;
  const bool blocked =
      nested.run_pending || vcpu.exception.injected || vcpu.nmi.injected || vcpu.interrupt.injected;
  if (vcpu.exception.pending) {
    const std::uint8_t vector = vcpu.exception.vector;
    if (nested.run_pending) return false;
    if (!intercepted(nested.ctl, svm::exception_intercept(vector))) return true;
    vcpu.vmcb.control.exit_code = exit_code::exception(vector);
    vcpu.vmcb.control.exit_info_1 = vcpu.exception.has_error ? vcpu.exception.error : 0;
    nested_svm_vmexit(vcpu, cpu);
    return true;
  }
  if (vcpu.nmi.pending != 0 && nmi_allowed(vcpu) && intercepted(nested.ctl, Intercept::nmi)) {
    if (blocked) return false;
    nested_svm_simple_vmexit(vcpu, cpu, exit_code::nmi);
    return true;
  }
  cpu.synchronise();
  if (!has_interrupt(vcpu) || !nested_interrupt_allowed(vcpu)) return true;
  if (blocked) return false;
  if (!intercepted(nested.ctl, Intercept::intr)) return true;
  trace(cpu, vcpu, EventKind::kvm_nested_intr_vmexit, vcpu.vmcb.save.rip);
  nested_svm_simple_vmexit(vcpu, cpu, exit_code::intr);
  return true;
}

// gif_set, with get_vgif_vmcb.
bool Hypervisor::gif_set(const Vcpu& vcpu) {
  const svm::VmcbControl& control =
      gif_in_running_vmcb(vcpu) ? vcpu.vmcb.control : vcpu.nested->vmcb01.control;
  if ((control.int_ctl & svm::int_ctl::v_gif_enable) == 0) return vcpu.nested->gif;
  return (control.int_ctl & svm::int_ctl::v_gif) != 0;
}

// svm_set_gif: a set GIF lets what waited look again; without vGIF a cleared one has no window.
void Hypervisor::svm_set_gif(Vcpu& vcpu, bool value) {
  svm::VmcbControl& control = gif_in_running_vmcb(vcpu) ? vcpu.vmcb.control : vcpu.nested->vmcb01.control;
  const bool vgif = (control.int_ctl & svm::int_ctl::v_gif_enable) != 0;
  if (value && intercepted(vcpu.vmcb.control, Intercept::vintr)) svm_clear_vintr(vcpu);
  if (!value && !vgif) svm_clear_vintr(vcpu);
  if (vgif) {
    control.int_ctl = value ? control.int_ctl | svm::int_ctl::v_gif : control.int_ctl & ~svm::int_ctl::v_gif;
  } else {
    vcpu.nested->gif = value;
  }
  if (value && (vcpu.smm.pending || vcpu.nmi.pending != 0 || has_injectable_intr(vcpu)))
    vcpu.requests |= request::event;
}

// svm_set_intercept, svm_clr_intercept: L0's intercepts are those of vmcb01.
void Hypervisor::svm_set_intercept(Vcpu& vcpu, Intercept intercept, bool on) const {
  set_intercept(vcpu.vmcb01().control, intercept, on);
  recalc_intercepts(vcpu);
}

// svm_clear_vintr: the window closes; L2 gets back what L1 had asked for it.
void Hypervisor::svm_clear_vintr(Vcpu& vcpu) {
  using namespace svm::int_ctl;
  constexpr std::uint32_t injection = v_irq | v_intr_prio_mask | v_ign_tpr;
  svm_set_intercept(vcpu, Intercept::vintr, false);
  svm::VmcbControl& control = vcpu.vmcb.control;
  control.int_ctl &= ~injection;
  control.int_vector = 0;
  if (vcpu.guest_mode) {
    vcpu.nested->vmcb01.control.int_ctl &= ~injection;
    control.int_ctl |= vcpu.nested->ctl.int_ctl & injection;
    control.int_vector = vcpu.nested->ctl.int_vector;
  }
  control.clean &= ~svm::clean::intr;
}

// vmrun_interception, vmload_vmsave_interception, stgi_interception, clgi_interception.
void Hypervisor::handle_svm_instruction(Vcpu& vcpu, PhysicalCpu& cpu, Intercept instruction) {
  if (instruction == Intercept::vmrun) return nested_svm_vmrun(vcpu, cpu);
  cpu.charge(cost_.h_insn);
  if (instruction == Intercept::stgi || instruction == Intercept::clgi) {
    skip_instruction(vcpu, cpu, 0);
    cpu.synchronise();
    return svm_set_gif(vcpu, instruction == Intercept::stgi);
  }
  svm::Vmcb* const page = vcpu.nested->guest.vmcb_page(vcpu.source->current()->operand[1]);
  if (page == nullptr) return queue_exception(vcpu, svm::exception_vector::general_protection, true, 0);
  svm::VmcbSave& from = instruction == Intercept::vmload ? page->save : vcpu.vmcb.save;
  svm::VmcbSave& to = instruction == Intercept::vmload ? vcpu.vmcb.save : page->save;
  svm::move_vmload_state(from, to);
  skip_instruction(vcpu, cpu, 0);
}

}  // namespace svmsim::model
