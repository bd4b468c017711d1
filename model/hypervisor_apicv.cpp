// Whether AVIC is used: enabling, inhibits, and the change from one to the other (arch/x86/kvm/x86.c,
// svm/avic.c, lapic.c; kvm-software.md 6.1, 6.4).

#include <algorithm>

#include "model/hypervisor.hpp"
#include "model/vm.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

using svm::Intercept;
using workloads::EventKind;
using workloads::KernelGeneration;
using Reason = ApicvInhibitReason;

namespace {

constexpr unsigned family_of_erratum_1235 = 0x17;
constexpr std::uint64_t default_apic_base = 0xfee0'0000;

// svm-hardware.md 8.3. Not LVTT, whose TSC-deadline mode the hardware refuses, and not SELF_IPI.
constexpr std::array<std::uint32_t, 24> x2avic_passthrough_msrs{
    0x802, 0x803, 0x808, 0x809, 0x80a, 0x80b, 0x80c, 0x80d, 0x80e, 0x80f, 0x810, 0x818,
    0x820, 0x828, 0x830, 0x831, 0x833, 0x834, 0x835, 0x836, 0x837, 0x838, 0x839, 0x83e};

}  // namespace

// avic_vm_init and kvm_apicv_init. VM by VM, before its vCPUs.
void Hypervisor::create_vm(Vm& vm, const VmConfig& config) {
  vm.inhibits = ApicvInhibits(warmup_cycles_);
  const bool has_avic = host_.features.has(svm::Feature::avic) && host_.features.has(svm::Feature::np);
  if (!kvm_.avic || !has_avic) {
    vm.inhibits.set(Reason::disabled, true, 0);
    return;
  }
  const bool x2avic = host_.features.has(svm::Feature::x2avic);
  AvicVm::Options options;
  options.vm_index = vm.index;
  options.vcpus = config.vcpus;
  options.x2avic = x2avic;
  // 6.18 does not trust family 17h; older kernels do not know better.
  const bool distrusts = at_least(KernelGeneration::v6_18) && host_.cpu_family == family_of_erratum_1235;
  options.ipi_virtualization = kvm_.enable_ipiv && !distrusts;
  options.stale_is_running = host_.knobs.isrunning_stale_read;
  options.stale_cycles = cost_.u_stale_is_running;
  vm.avic = std::make_unique<AvicVm>(options);

  const auto inhibit = [&](Reason reason, bool on) {
    if (on) vm.inhibits.set(reason, true, 0);
  };
  for (const std::string& name : config.apicv_inhibits)
    inhibit(*inhibit_of(name), true);
  inhibit(Reason::pit_reinj, config.pit == "delay");
  if (kvm_.avic_x2apic_inhibit) {
    inhibit(Reason::x2apic, config.apic == "x2apic");
    inhibit(Reason::nested, kvm_.nested);
  }
  const bool x2avic_ext = host_.features.has(svm::Feature::x2avic_ext) && at_least(KernelGeneration::v6_18);
  inhibit(Reason::physical_id_too_big, config.vcpus - 1 > AvicVm::last_index(x2avic, x2avic_ext));
}

// avic_init_vcpu. The VM's maps are filled.
void Hypervisor::avic_create_vcpu(Vcpu& vcpu) {
  Vm& vm = vcpu.vm;
  AvicVm& avic = *vm.avic;
  vcpu.avic = std::make_unique<AvicVcpu>(avic_registers_, avic.memory.backing_pages[vcpu.index]);
  vcpu.avic->entry = apic::PhysicalIdEntry::make(avic.memory.backing_pages.address(vcpu.index));
  avic.entry(vcpu.index) = vcpu.avic->entry;
  avic.x2avic_msrpm = vm.msrpm;
  for (const std::uint32_t msr : x2avic_passthrough_msrs)
    avic.x2avic_msrpm.set(msr, false, false);
  avic_init_vmcb(vcpu);
  if (!vm.inhibits.any() && vcpu.apic().hardware_enabled()) avic_activate(vcpu);
}

void Hypervisor::avic_init_vmcb(Vcpu& vcpu) {
  AvicVm& avic = *vcpu.vm.avic;
  svm::VmcbControl& control = vcpu.vmcb.control;
  control.avic_vapic_bar = default_apic_base;
  control.avic_backing_page = avic.memory.backing_pages.address(vcpu.index);
  control.avic_logical_id = avic.memory.logical_tables.address(0);
}

// INIT: the emulated APIC and the VMCB are new; the page follows.
void Hypervisor::avic_reset_vcpu(Vcpu& vcpu, PhysicalCpu& cpu) {
  vcpu.avic->store_state({});
  avic_init_vmcb(vcpu);
  avic_apic_changed(vcpu, cpu);
}

// kvm_set_or_clear_apicv_inhibit. `context`: the vCPU that does it, nullptr for none. When AVIC becomes
// usable or unusable, every vCPU has to leave guest mode, and the caller waits for that.
void Hypervisor::set_apicv_inhibit(Vm& vm, PhysicalCpu& cpu, Vcpu* context, Reason reason, bool on) {
  if (vm.avic == nullptr) return;
  cpu.synchronise();
  const bool changes = vm.inhibits.set(reason, on, cpu.local());
  trace_from(cpu, context, EventKind::kvm_apicv_inhibit_changed, static_cast<unsigned>(reason), on,
             vm.inhibits.bitmap());
  if (!changes) return;
  cpu.synchronise();
  bool waits = false;
  for (Vcpu* vcpu : vm.vcpus) {
    vcpu->requests |= request::apicv_update;
    if (vcpu->mode != VcpuMode::in_guest || vcpu == context) continue;
    vcpu->mode = VcpuMode::exiting_guest;
    if (vcpu->pcpu == &cpu) continue;
    fabric->send(vcpu->pcpu->index(), ArrivalKind::reschedule, cpu.local());
    waits = true;
  }
  vm.avic->apic_page_mapped = false;  // kvm_zap_gfn_range
  if (!waits) return;
  cpu.notified_others();
  // KVM_REQUEST_WAIT: the IPI has been answered when the last of them has left guest mode and served it.
  cpu.charge(std::uint64_t{cost_.t_ipi_hw} + t_world_exit_ + cost_.t_irq_host);
}

// kvm_vcpu_update_apicv, at the top of vcpu_enter_guest.
void Hypervisor::vcpu_update_apicv(Vcpu& vcpu, PhysicalCpu& cpu) {
  vcpu.requests &= ~request::apicv_update;
  cpu.synchronise();  // inhibits are the VM's
  // While L2 runs its vCPU has no AVIC (APICV_INHIBIT_REASON_NESTED, of the vCPU alone).
  const bool active =
      !vcpu.vm.inhibits.any() && !vcpu.guest_mode && vcpu.apic_unit.state().hardware_enabled();
  if (active == vcpu.apicv_active) return;
  cpu.charge(cost_.h_apicv_update);
  cpu.synchronise();
  if (active) {
    avic_activate(vcpu);
    avic_vcpu_load(vcpu, cpu);
  } else {
    avic_vcpu_put(vcpu, cpu);
    cpu.synchronise();
    avic_deactivate(vcpu);
    vcpu.requests |= request::event;
  }
}

// avic_activate_vmcb, and the page becomes what the emulated APIC is.
void Hypervisor::avic_activate(Vcpu& vcpu) {
  using namespace svm::int_ctl;
  AvicVm& avic = *vcpu.vm.avic;
  apic::LocalApic& apic = vcpu.apic_unit.state();
  vcpu.avic->pull(apic);
  vcpu.avic->store_state(apic.avic_state());
  vcpu.avic->publish_registers(apic);
  vcpu.apicv_active = true;
  vcpu.pv.highest_isr_cache = -1;  // PV EOI has nothing to do
  svm::VmcbControl& control = vcpu.vmcb.control;
  const bool x2avic = avic.options.x2avic && apic.mode() == apic::ApicMode::x2apic;
  control.int_ctl = (control.int_ctl & ~x2avic_enable) | avic_enable | (x2avic ? x2avic_enable : 0U);
  const std::uint32_t last =
      std::min(AvicVm::last_index(x2avic, host_.features.has(svm::Feature::x2avic_ext)),
               x2avic ? static_cast<std::uint32_t>(avic.memory.physical_tables.size() * 512 - 1) : ~0U);
  control.avic_physical_id = avic.memory.physical_tables.address(0) | last;
  vcpu.msrpm = x2avic ? &avic.x2avic_msrpm : &vcpu.vm.msrpm;
  set_intercept(control, Intercept::write_cr8, false);
  control.clean &= ~(svm::clean::intr | svm::clean::avic | svm::clean::intercepts | svm::clean::iopm);
  avic_update_logical_id(vcpu);
}

// avic_deactivate_vmcb. What the page holds goes back to the emulated APIC.
void Hypervisor::avic_deactivate(Vcpu& vcpu) {
  using namespace svm::int_ctl;
  vcpu.avic_adopt_page();
  svm::VmcbControl& control = vcpu.vmcb01().control;
  if ((control.int_ctl & x2avic_enable) != 0 || vcpu.apic_unit.state().mode() == apic::ApicMode::xapic)
    vcpu.apic_unit.state().set_avic_icr(vcpu.avic->page->icr());
  vcpu.apicv_active = false;
  control.int_ctl &= ~(avic_enable | x2avic_enable);
  if (!vcpu.guest_mode) vcpu.msrpm = &vcpu.vm.msrpm;
  control.clean &= ~(svm::clean::intr | svm::clean::avic | svm::clean::intercepts | svm::clean::iopm);
}

// An APIC has changed its mode, ID, LDR or DFR, or was enabled or disabled: kvm_recalculate_apic_map, and
// avic_refresh_virtual_apic_mode.
void Hypervisor::avic_apic_changed(Vcpu& vcpu, PhysicalCpu& cpu) {
  Vm& vm = vcpu.vm;
  std::vector<ApicMapEntry> apics;
  for (Vcpu* each : vm.vcpus) {
    const apic::LocalApic& apic = each->apic_unit.state();
    apics.push_back({apic.address(), apic.software_enabled()});
  }
  const ApicMapProblems problems = apic_map_problems(apics);
  const auto follow = [&](Reason reason, bool on) { set_apicv_inhibit(vm, cpu, &vcpu, reason, on); };
  follow(Reason::physical_id_aliased, problems.physical_id_aliased);
  follow(Reason::logical_id_aliased, problems.logical_id_aliased);
  follow(Reason::apic_id_modified, problems.apic_id_modified);
  cpu.synchronise();
  // The mode of the APIC is the mode of AVIC, and a disabled APIC has none.
  if (!vcpu.apic_unit.state().hardware_enabled() || vm.inhibits.any()) {
    vcpu.requests |= request::apicv_update;
  } else if (vcpu.apicv_active) {
    avic_activate(vcpu);
  } else {
    vcpu.requests |= request::apicv_update;
  }
}

// __kvm_apic_set_base: once an APIC page has moved, KVM never uses AVIC for this VM again.
void Hypervisor::avic_apic_base_changed(Vcpu& vcpu, PhysicalCpu& cpu) {
  const apic::LocalApic& apic = vcpu.apic_unit.state();
  if (apic.hardware_enabled() && apic.base_address() != default_apic_base)
    set_apicv_inhibit(vcpu.vm, cpu, &vcpu, Reason::apic_base_modified, true);
}

// avic_handle_ldr_update, avic_handle_dfr_update: the entry follows the LDR of an APIC in xAPIC mode.
void Hypervisor::avic_update_logical_id(Vcpu& vcpu) {
  apic::LogicalIdTable& table = vcpu.vm.avic->memory.logical_tables[0];
  const apic::ApicAddress address = vcpu.apic_unit.state().address();
  if (vcpu.avic->logical_index >= 0) table.entries[static_cast<std::size_t>(vcpu.avic->logical_index)] = {};
  vcpu.avic->logical_index = -1;
  const std::uint32_t id = address.xapic_logical_id;
  if (address.mode != apic::ApicMode::xapic || id == 0) return;
  const bool flat = address.destination_format == 0xf;
  const std::uint32_t cluster = flat ? 0 : id >> 4;
  const std::uint32_t bits = flat ? id : id & 0xfU;
  constexpr std::uint32_t clusters = 15;
  if (bits == 0 || (bits & (bits - 1)) != 0 || cluster >= clusters) return;
  const auto bit = static_cast<std::uint32_t>(__builtin_ctz(bits));
  const std::uint32_t index = apic::LogicalIdTable::cluster_index(cluster, bit);
  table.entries[index] = apic::LogicalIdEntry::make(address.xapic_id);
  vcpu.avic->logical_index = static_cast<int>(index);
}

// svm_enable_irq_window: with AVIC a window can only be for an ExtINT, which the hardware cannot deliver.
// 6.12 sets the inhibit for every window; mainline counts who wants one.
void Hypervisor::avic_request_irq_window(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (!at_least(KernelGeneration::v6_18)) {
    return set_apicv_inhibit(vcpu.vm, cpu, &vcpu, Reason::irqwin, true);
  }
  if (vcpu.avic->irq_window) return;
  vcpu.avic->irq_window = true;
  cpu.synchronise();  // the count is the VM's
  if (vcpu.vm.avic->irq_windows++ == 0) set_apicv_inhibit(vcpu.vm, cpu, &vcpu, Reason::irqwin, true);
}

// interrupt_window_interception of 6.1 and 6.12.
void Hypervisor::avic_irq_window_open(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (!at_least(KernelGeneration::v6_18)) set_apicv_inhibit(vcpu.vm, cpu, &vcpu, Reason::irqwin, false);
}

// svm_inject_irq of mainline.
void Hypervisor::avic_irq_injected(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (!vcpu.avic->irq_window) return;
  vcpu.avic->irq_window = false;
  cpu.synchronise();
  if (--vcpu.vm.avic->irq_windows == 0) set_apicv_inhibit(vcpu.vm, cpu, &vcpu, Reason::irqwin, false);
}

}  // namespace svmsim::model
