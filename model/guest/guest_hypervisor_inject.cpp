// Events that a guest hypervisor gives its guest, in the two styles.

#include <utility>

#include "apic/apic_registers.hpp"
#include "model/guest/flat_guest.hpp"
#include "model/guest/guest_hypervisor.hpp"
#include "svm/exit_code.hpp"
#include "svm/intercept.hpp"

namespace svmsim::model {

using svm::Intercept;
using svm::set_intercept;

namespace {

constexpr std::uint64_t msrpm_page = 0x3'0000'0000;
constexpr std::uint64_t iopm_page = 0x3'0001'0000;
constexpr std::uint64_t nested_tables = 0x4'0000'0000;
constexpr std::uint16_t pause_count = 3000;
constexpr std::uint16_t pause_threshold = 128;

}  // namespace

// init_vmcb, as L1 fills it in.
void GuestHypervisor::init_vmcb12(const workloads::InitialState& initial) {
  using namespace svm::int_ctl;
  svm::VmcbControl& control = vmcb12_.control;
  const svm::FeatureSet& features = config_.features;
  set_flat_guest(vmcb12_.save, initial);
  if (config_.style == L1Style::kvm) {
    set_kvm_intercepts(control);
    for (unsigned bit = 0x20; bit < 0x40; ++bit)  // all DR
      set_intercept(control, static_cast<Intercept>(bit), true);
    set_intercept(control, Intercept::write_cr8, true);
  } else {
    // Hyper-V's intercepts are not published; what exits for the workloads at hand is the same set. L2's
    // control and debug registers and its CR8 are its own.
    for (const Intercept intercept : {Intercept::intr,        Intercept::nmi,
                                      Intercept::init,        Intercept::cpuid,
                                      Intercept::ioio,        Intercept::msr,
                                      Intercept::shutdown,    Intercept::vmrun,
                                      Intercept::vmmcall,     Intercept::vmload,
                                      Intercept::vmsave,      Intercept::stgi,
                                      Intercept::clgi,        Intercept::skinit,
                                      Intercept::rdpmc,       Intercept::invd,
                                      Intercept::wbinvd,      Intercept::xsetbv,
                                      Intercept::monitor,     Intercept::mwait,
                                      Intercept::task_switch, svm::exception_intercept(18)})
      set_intercept(control, intercept, true);
  }
  // A hypervisor takes the idle-HLT intercept where it is offered one.
  const bool idle_hlt = features.has(svm::Feature::idle_hlt);
  set_intercept(control, idle_hlt ? Intercept::idle_hlt : Intercept::hlt, true);
  if (features.has(svm::Feature::pause_filter)) {
    set_intercept(control, Intercept::pause, true);
    control.pause_filter_count = pause_count;
    if (features.has(svm::Feature::pause_filter_threshold)) control.pause_filter_thresh = pause_threshold;
  }
  control.msrpm_base_pa = msrpm_page;
  control.iopm_base_pa = iopm_page;
  control.asid = 1;
  control.int_ctl = v_intr_masking;
  if (config_.style == L1Style::hyperv && features.has(svm::Feature::vgif))
    control.int_ctl |= v_gif_enable | v_gif;
  if (features.has(svm::Feature::np)) {
    control.nested_ctl = svm::nested_ctl::np_enable;
    control.nested_cr3 = nested_tables;
  }
}

bool GuestHypervisor::interrupt_allowed() const {
  return (vmcb12_.save.rflags & svm::rflags::interrupt) != 0 &&
         (vmcb12_.control.int_state & svm::int_state::interrupt_shadow) == 0;
}

// kvm_vcpu_has_events.
bool GuestHypervisor::has_wake_event() const {
  return exception_pending_ || (interrupt_allowed() && apic_.deliverable() >= 0);
}

// What devices and other CPUs of L1 have sent.
void GuestHypervisor::take_incoming() {
  if (incoming_.none()) return;
  for (unsigned vector = 0; vector < incoming_.size(); ++vector)
    if (incoming_.test(vector)) static_cast<void>(apic_.accept(static_cast<std::uint8_t>(vector)));
  incoming_.reset();
}

void GuestHypervisor::queue_exception(std::uint8_t vector, bool has_error) {
  exception_pending_ = true;
  exception_ = vector;
  exception_has_error_ = has_error;
}

// kvm_check_and_inject_events; of style hyperv only its last part differs.
void GuestHypervisor::check_and_inject_events() {
  svm::VmcbControl& control = vmcb12_.control;
  bool can_inject = true;
  control.event_inj = 0;
  if (std::exchange(reinjects_, false)) {
    control.event_inj = reinjection_;
    control.event_inj_err = reinjection_error_;
    can_inject = false;
  } else if (std::exchange(exception_pending_, false)) {
    control.event_inj = svm::event_inj::event(svm::event_inj::type_exception, exception_) |
                        (exception_has_error_ ? svm::event_inj::error_valid : 0U);
    control.event_inj_err = 0;
    can_inject = false;
  }
  if (config_.style == L1Style::hyperv) {
    request_virtual_interrupt();
  } else if (apic_.deliverable() >= 0) {
    bool window = true;
    if (can_inject && interrupt_allowed()) {
      injection_cycles_ += config_.cost.h_inject;
      control.event_inj = svm::event_inj::event(svm::event_inj::type_intr, apic_.acknowledge());
      window = apic_.deliverable() >= 0;
    }
    if (window) set_window(true);
  }
  if (config_.style == L1Style::kvm) {  // update_cr8_intercept
    const int highest = apic_.highest_irr();
    set_intercept(control, Intercept::write_cr8, highest >= 0 && apic_.cr8() >= (highest >> 4));
  }
  control.clean = 0;
}

// svm_set_vintr, svm_clear_vintr.
void GuestHypervisor::set_window(bool on) {
  using namespace svm::int_ctl;
  svm::VmcbControl& control = vmcb12_.control;
  set_intercept(control, Intercept::vintr, on);
  control.int_vector = 0;
  control.int_ctl &= ~(v_irq | v_intr_prio_mask | v_ign_tpr);
  if (!on) return;
  injection_cycles_ += config_.cost.h_irq_window;
  control.int_ctl = with_v_intr_prio(control.int_ctl, 0xf) | v_irq;
}

// The highest vector above what is in service, whatever L2's TPR: the CPU compares with V_TPR.
void GuestHypervisor::request_virtual_interrupt() {
  using namespace svm::int_ctl;
  svm::VmcbControl& control = vmcb12_.control;
  const int vector = apic_.highest_irr();
  const bool above = vector >= 0 && (apic_.highest_isr() < 0 || (vector >> 4) > (apic_.highest_isr() >> 4));
  control.int_ctl &= ~(v_irq | v_intr_prio_mask | v_ign_tpr);
  requested_vector_ = above ? vector : -1;
  if (!above) return;
  injection_cycles_ += config_.cost.h_inject;
  control.int_vector = static_cast<std::uint32_t>(vector);
  control.int_ctl = with_v_intr_prio(control.int_ctl, static_cast<std::uint8_t>(vector >> 4)) | v_irq;
}

// sync_cr8_to_lapic and svm_complete_interrupts; and where the CPU has taken the virtual interrupt, it is in
// service now.
void GuestHypervisor::after_exit() {
  using namespace svm::int_ctl;
  const svm::VmcbControl& control = vmcb12_.control;
  if (requested_vector_ >= 0 && (control.int_ctl & v_irq) == 0 &&
      control.exit_code != svm::exit_code::invalid) {
    apic_.set_tpr(0);  // it was taken at a V_TPR that let it in
    static_cast<void>(apic_.acknowledge());
    requested_vector_ = -1;
  }
  if (v_tpr(control.int_ctl) != apic_.cr8()) apic_.set_cr8(v_tpr(control.int_ctl));
  if ((control.exit_int_info & svm::event_inj::valid) == 0) return;
  reinjects_ = true;
  reinjection_ = control.exit_int_info;
  reinjection_error_ = control.exit_int_info_err;
}

}  // namespace svmsim::model
