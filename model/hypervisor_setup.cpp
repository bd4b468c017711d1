// The state of a vCPU and a VM after their creation (arch/x86/kvm/svm/svm.c, init_vmcb;
// kvm-software.md 1.6, 6.6).

#include <algorithm>

#include "apic/apic_registers.hpp"
#include "model/guest/flat_guest.hpp"
#include "model/hypervisor.hpp"
#include "model/vm.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

using svm::Intercept;

namespace {

constexpr std::uint64_t iopm_pa = 0x10000;
constexpr std::uint64_t msrpm_pa = 0x20000;

}  // namespace

const std::array<std::uint32_t, 12>& passed_through_msr_list();

// set_dr_intercepts, clr_dr_intercepts.
void Hypervisor::set_dr_intercepts(svm::VmcbControl& control, bool on) {
  for (unsigned bit = 0x20; bit < 0x40; ++bit)
    set_intercept(control, static_cast<Intercept>(bit), on);
}

void Hypervisor::init_vmcb(Vcpu& vcpu) {
  svm::VmcbControl& control = vcpu.vmcb.control;
  const auto& features = host_.features;
  set_kvm_intercepts(control);
  set_dr_intercepts(control, true);
  set_intercept(control, Intercept::write_cr8, true);
  if (features.has(svm::Feature::vgif)) {
    set_intercept(control, Intercept::stgi, false);
    set_intercept(control, Intercept::clgi, false);
  }
  if (features.has(svm::Feature::vls)) {
    set_intercept(control, Intercept::vmload, false);
    set_intercept(control, Intercept::vmsave, false);
    control.virt_ext |= svm::virt_ext::vls;
  }
  if (at_least(workloads::KernelGeneration::v6_18)) set_intercept(control, Intercept::icebp, true);
  set_disabled_exits(vcpu, vcpu.vm.disabled_exits);
  control.iopm_base_pa = iopm_pa;
  control.msrpm_base_pa = msrpm_pa;
  control.asid = 1;
  control.int_ctl = svm::int_ctl::v_intr_masking;
  if (features.has(svm::Feature::vgif)) control.int_ctl |= svm::int_ctl::v_gif_enable | svm::int_ctl::v_gif;
  if (!features.has(svm::Feature::np)) {
    set_intercept(control, Intercept::read_cr3, true);
    set_intercept(control, Intercept::write_cr3, true);
    set_intercept(control, Intercept::invlpg, true);
  } else {
    control.nested_ctl = svm::nested_ctl::np_enable;
    control.nested_cr3 = 0x100000;
  }
  if (kvm_.vnmi && features.has(svm::Feature::vnmi) && features.has(svm::Feature::vgif))
    control.int_ctl |= svm::int_ctl::v_nmi_enable;
}

// Where firmware or the start-up code hands over to the program.
void Hypervisor::start_program(Vcpu& vcpu) {
  const workloads::InitialState initial = vcpu.source->initial_state();
  set_flat_guest(vcpu.vmcb.save, initial);
  if (vcpu.apic().mode() == apic::ApicMode::x2apic) {
    static_cast<void>(vcpu.apic().write_msr(apic::msr_x2apic_svr, initial.apic_svr));
  } else {
    static_cast<void>(vcpu.apic().write_mmio(apic::APIC_SPIV, initial.apic_svr));
  }
  vcpu.vm.apics.update(vcpu.index, vcpu.apic().address());
}

void Hypervisor::create_vcpu(Vcpu& vcpu) {
  vcpu.source->attach(vcpu.pv.memory);
  ++live_vcpus_;
  init_vmcb(vcpu);
  start_program(vcpu);
  create_timer(vcpu);
  const workloads::InitialState initial = vcpu.source->initial_state();
  vcpu.absent_pages = initial.absent_pages;
  vcpu.mmio_pages = initial.mmio_pages;
  if (initial.wait_for_sipi && vcpu.index != 0) vcpu.mp_state = MpState::uninitialized;

  Vm& vm = vcpu.vm;
  vm.iopm.fill(true);
  vm.msrpm.fill(true);
  for (const std::uint32_t msr : passed_through_msr_list())
    vm.msrpm.set(msr, false, false);
  vcpu.msrpm = &vm.msrpm;
  create_nested(vcpu);
  if (vm.avic != nullptr) avic_create_vcpu(vcpu);
}

}  // namespace svmsim::model
