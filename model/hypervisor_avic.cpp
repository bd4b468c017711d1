// AVIC in KVM: IsRunning, delivery by vIRR and doorbell (arch/x86/kvm/svm/avic.c, svm.c; kvm-software.md 6.2,
// 6.5). What keeps KVM from using it is in hypervisor_apicv.cpp, its exits are in hypervisor_avic_exits.cpp.

#include "model/hypervisor.hpp"
#include "model/vm.hpp"

namespace svmsim::model {

using workloads::EventKind;

// avic_vcpu_load. With enable_ipiv=0 the hardware's table never says that a vCPU runs.
void Hypervisor::avic_vcpu_load(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_avic_load);
  cpu.synchronise();
  AvicVm& avic = *vcpu.vm.avic;
  vcpu.avic->entry = vcpu.avic->entry.running_on(cpu.index());
  avic.entry(vcpu.index) =
      avic.options.ipi_virtualization ? vcpu.avic->entry : vcpu.avic->entry.not_running();
}

// avic_vcpu_put.
void Hypervisor::avic_vcpu_put(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (!vcpu.avic->entry.is_running()) return;
  cpu.synchronise();
  AvicVm& avic = *vcpu.vm.avic;
  apic::PhysicalIdEntry& entry = avic.entry(vcpu.index);
  avic.stale.note_cleared(vcpu.index, entry, cpu.local());
  vcpu.avic->entry = vcpu.avic->entry.not_running();
  entry = entry.not_running();
  cpu.charge(cost_.h_avic_load);
}

// kvm_sched_in and kvm_sched_out, as far as AVIC is concerned. A vCPU that blocks has been put already, and
// is loaded when it has woken.
void Hypervisor::avic_sched_in(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (vcpu.apicv_active && vcpu.halt.phase != HaltPhase::blocked) avic_vcpu_load(vcpu, cpu);
}
void Hypervisor::avic_sched_out(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (vcpu.apicv_active) avic_vcpu_put(vcpu, cpu);
}

// svm_deliver_interrupt: the backing page's IRR first, then a look at where the target is.
bool Hypervisor::avic_deliver_interrupt(Vcpu& target, PhysicalCpu& cpu, const Vcpu* context,
                                        const apic::IcrCommand& message) {
  const apic::LocalApic& apic = target.apic_unit.state();
  if (message.vector < 16 || !apic.hardware_enabled() || !apic.software_enabled()) return false;
  apic::BackingPage& page = *target.avic->page;
  page.set_tmr(message.vector, message.level_triggered);
  if (!page.set_irr(message.vector)) target.ipi_sent_cycles[message.vector] = cpu.local() + 1;
  avic_complete_delivery(target, cpu, context, message);
  return true;
}

// svm_complete_interrupt_delivery: the IRR bit is set, by KVM or by the hardware of a sender.
void Hypervisor::avic_complete_delivery(Vcpu& target, PhysicalCpu& cpu, const Vcpu* context,
                                        const apic::IcrCommand& message) {
  cpu.synchronise();  // waking an earlier target has taken time
  const bool in_guest = target.mode == VcpuMode::in_guest;
  if (!target.apicv_active) {
    // Inhibited since: the emulated APIC takes over what a sender's hardware has written into the page.
    target.avic_adopt_page();
    target.requests |= request::event;
    return kick(target, cpu);
  }
  trace_from(cpu, context, EventKind::kvm_apicv_accept_irq, target.index,
             static_cast<unsigned>(message.delivery), message.level_triggered, message.vector);
  cpu.synchronise();
  if (in_guest) return avic_ring_doorbell(target, cpu, context);
  if (target.mode == VcpuMode::outside_guest) kick(target, cpu);  // kvm_vcpu_wake_up
}

// avic_ring_doorbell. No doorbell to the own pCPU: the target is not in guest mode there.
void Hypervisor::avic_ring_doorbell(Vcpu& target, PhysicalCpu& cpu, const Vcpu* context) {
  if (target.pcpu == &cpu) return;
  cpu.charge(cost_.h_doorbell);
  cpu.synchronise();
  fabric->send(target.pcpu->index(), ArrivalKind::doorbell, cpu.local());
  cpu.notified_others();
  trace_from(cpu, context, EventKind::kvm_avic_doorbell, target.index, target.pcpu->index());
}

// A doorbell has reached the core of a vCPU in guest mode.
void Hypervisor::avic_take_doorbell(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (!vcpu.guest.avic_enabled()) return;
  cpu.synchronise();
  vcpu.avic->core.doorbell(vcpu.guest.halted());
  vcpu.guest.avic_evaluated();
}

}  // namespace svmsim::model
