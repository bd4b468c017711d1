#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/user_error.hpp"
#include "svm/vmrun_checks.hpp"

namespace svmsim::svm {

namespace {

std::uint32_t supported_int_ctl(const FeatureSet& features) noexcept {
  using namespace int_ctl;
  std::uint32_t bits = v_tpr_mask | v_irq | v_intr_prio_mask | v_ign_tpr | v_intr_masking;
  if (features.has(Feature::vgif)) bits |= v_gif | v_gif_enable;
  if (features.has(Feature::vnmi)) bits |= v_nmi | v_nmi_mask | v_nmi_enable;
  if (features.has(Feature::avic)) bits |= avic_enable;
  if (features.has(Feature::x2avic)) bits |= x2avic_enable;
  return bits;
}

}  // namespace

GuestCpu::GuestCpu(FeatureSet features, Knobs knobs, ProcessorLimits limits)
    : supported_int_ctl_(supported_int_ctl(features)),
      has_nrips_(features.has(Feature::nrips)),
      features_(features),
      knobs_(knobs),
      limits_(limits) {
  frames_.reserve(16);
}

Step GuestCpu::vmrun(Vmcb& vmcb, bool host_if, GuestEnvironment& environment) {
  if (vmcb_ != nullptr) throw InternalError("VMRUN while the GuestCpu is in guest mode");
  if (!legal_inputs_.are_of(vmcb)) {
    if (!vmrun_state_legal(vmcb, features_, knobs_, limits_)) return failed_vmrun(vmcb, exit_code::invalid);
    legal_inputs_ = VmrunInputs::of(vmcb);
    needs_surroundings_ = vmrun_needs_surroundings(vmcb, features_, limits_);
    sev_es_environment_ = nullptr;
  }
  if (needs_surroundings_ || (vmcb.save.rflags & rflags::virtual_8086) != 0) {
    const std::uint64_t refusal = load_surroundings(vmcb, environment);
    if (refusal != 0) return failed_vmrun(vmcb, refusal);
  }
  if ((vmcb.control.event_inj & event_inj::valid) != 0 &&
      !vmrun_injection_legal(vmcb, features_, knobs_, limits_)) {
    return failed_vmrun(vmcb, exit_code::invalid);
  }

  VmcbControl& control = vmcb.control;
  const VmcbSave& save = vmcb.save;
  vmcb_ = &vmcb;
  rip_ = save.rip;
  rflags_ = save.rflags | rflags::always_one;
  cpl_ = save.cpl & 3U;
  if ((save.cr0 & cr0::pe) == 0) {
    cpl_ = 0;
  } else if ((rflags_ & rflags::virtual_8086) != 0) {
    cpl_ = 3;
  }
  shadow_ = (control.int_state & int_state::interrupt_shadow) != 0;
  halted_ = false;
  monitor_armed_ = false;
  mwait_ = false;
  host_if_ = host_if;

  using namespace int_ctl;
  int_ctl_ = control.int_ctl & supported_int_ctl_;
  saved_int_ctl_ = v_tpr_mask;
  if ((int_ctl_ & avic_enable) != 0) {
    // 15.29.4: V_IRQ is ignored, and not written back.
    int_ctl_ &= ~v_irq;
    avic_environment_ = &environment;
    environment.avic_vmrun(control);
  } else {
    saved_int_ctl_ |= v_irq;
  }
  if ((int_ctl_ & v_gif_enable) != 0) {
    saved_int_ctl_ |= v_gif;
  } else {
    int_ctl_ |= v_gif;
  }
  if ((int_ctl_ & v_nmi_enable) != 0) {
    saved_int_ctl_ |= v_nmi | v_nmi_mask;
  } else {
    int_ctl_ &= ~(v_nmi | v_nmi_mask);
  }

  pause_filter_.load(
      features_.has(Feature::pause_filter) ? control.pause_filter_count : std::uint16_t{0},
      features_.has(Feature::pause_filter_threshold) ? control.pause_filter_thresh : std::uint16_t{0});
  if (control.tlb_ctl != 0 || control.asid != asid_) {
    idt_page_ = no_page;
    gdt_page_ = no_page;
    asid_ = control.asid;
  }
  gif_ = true;
  const Step step =
      (control.event_inj & event_inj::valid) != 0 ? inject(environment) : Step{StepKind::entered, 0, 0};
  if (avic_environment_ != nullptr) {
    environment.avic_entered();
    note_avic_pending();
  }
  return step;
}

// What VMRUN reads besides the VMCB: PDPTEs, U_CET, the VMSA. Returns the exit code of a refusal, or 0.
std::uint64_t GuestCpu::load_surroundings(const Vmcb& vmcb, GuestEnvironment& environment) {
  const bool sev_es = limits_.sev && (vmcb.control.nested_ctl & nested_ctl::sev_es_enable) != 0;
  const Vmsa vmsa = sev_es ? environment.vmsa(vmcb.control.vmsa_pa) : Vmsa{};
  sev_es_environment_ = sev_es ? &environment : nullptr;
  sev_features_ = vmsa.sev_features;
  return vmrun_refusal(vmcb, features_, limits_, vmsa, environment);
}

Step GuestCpu::failed_vmrun(Vmcb& vmcb, std::uint64_t code) noexcept {
  // The guest never ran: nothing but the exit fields changes.
  VmcbControl& control = vmcb.control;
  control.exit_code = code;
  control.exit_info_1 = 0;
  control.exit_info_2 = 0;
  control.exit_int_info = 0;
  control.exit_int_info_err = 0;
  control.event_inj &= ~event_inj::valid;
  if (has_nrips_) control.next_rip = 0;
  gif_ = false;
  halted_ = false;
  return {StepKind::vmexit, 0, 0};
}

Step GuestCpu::vmexit(std::uint64_t code, std::uint64_t info_1, std::uint64_t info_2,
                      std::uint64_t next_rip) {
  if (sev_es()) return encrypted_exit(code, info_1, info_2, next_rip);
  VmcbControl& control = vmcb_->control;
  VmcbSave& save = vmcb_->save;
  save.rip = rip_;
  save.rflags = rflags_;
  save.cpl = cpl_;
  control.int_ctl = (control.int_ctl & ~saved_int_ctl_) | (int_ctl_ & saved_int_ctl_);
  control.int_state =
      (control.int_state & ~int_state::interrupt_shadow) | (shadow_ ? int_state::interrupt_shadow : 0U);
  control.exit_code = code;
  control.exit_info_1 = info_1;
  control.exit_info_2 = info_2;
  control.exit_int_info = delivering_;
  control.exit_int_info_err = delivering_error_;
  if (has_nrips_) control.next_rip = next_rip;
  control.insn_len = 0;
  delivering_ = 0;
  delivering_error_ = 0;
  halted_ = false;
  gif_ = false;
  vmcb_ = nullptr;
  end_avic();
  return {StepKind::vmexit, 0, 0};
}

}  // namespace svmsim::svm
