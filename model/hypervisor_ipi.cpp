// Messages between local APICs as KVM emulates them (arch/x86/kvm/lapic.c, svm/svm.c; kvm-software.md 1.8).

#include "apic/interrupt_routing.hpp"
#include "model/hypervisor.hpp"

namespace svmsim::model {

using workloads::EventKind;
using workloads::KernelGeneration;

// kvm_apic_send_ipi prints the IPI before its delivery; mainline's fastpath delivers first (recordings a1 and
// b1 of kernel 6.18). KVM sends every message type, also those that x2APIC mode reserves.
void Hypervisor::send_ipi(Vcpu& sender, PhysicalCpu& cpu, const apic::IcrCommand& command, bool fastpath) {
  const bool before = !(fastpath && at_least(KernelGeneration::v6_18));
  if (before) trace(cpu, sender, EventKind::kvm_apic_ipi, command.low(), command.destination);
  irq_delivery_to_apic(sender.vm, cpu, &sender, command);
  if (!before) trace(cpu, sender, EventKind::kvm_apic_ipi, command.low(), command.destination);
}

// kvm_irq_delivery_to_apic. A device is no sender.
unsigned Hypervisor::irq_delivery_to_apic(Vm& vm, PhysicalCpu& cpu, Vcpu* sender,
                                          const apic::IcrCommand& command) {
  cpu.synchronise();
  unsigned accepted = 0;
  const std::size_t from = sender != nullptr ? sender->index : apic::DestinationMap::no_sender;
  apic::route(
      vm.apics, vm.arbiter, command, from,
      [&](std::size_t index) -> const apic::LocalApic& { return vm.vcpus[index]->apic(); },
      [&](std::size_t index, const apic::IcrCommand& message) {
        accepted += accept_irq(*vm.vcpus[index], cpu, sender, message) ? 1U : 0U;
      });
  return accepted;
}

// __apic_accept_irq. Whether the APIC took the message, not whether it was new.
bool Hypervisor::accept_irq(Vcpu& target, PhysicalCpu& cpu, const Vcpu* sender,
                            const apic::IcrCommand& message) {
  if (!target.vm.native) {
    cpu.charge(cost_.h_accept_irq);
    trace_from(cpu, sender, EventKind::kvm_apic_accept_irq, target.index,
               static_cast<unsigned>(message.delivery), message.level_triggered, message.vector);
  }
  cpu.synchronise();
  switch (message.delivery) {
    case apic::DeliveryMode::fixed:
    case apic::DeliveryMode::lowest_priority:
      // The de-assert of a level interrupt is not an interrupt.
      if (message.level_triggered && !message.assert) return false;
      if (target.apicv_active) return avic_deliver_interrupt(target, cpu, sender, message);
      return deliver_interrupt(target, cpu, message);
    case apic::DeliveryMode::remote_read:  // KVM's own use of the mode: kvm_pv_kick_cpu_op
      target.pv_unhalted = true;
      target.requests |= request::event;
      break;
    case apic::DeliveryMode::smi:
      target.requests |= request::smi;
      break;
    case apic::DeliveryMode::nmi:
      ++target.nmi.queued;
      target.requests |= request::nmi;
      break;
    case apic::DeliveryMode::init:
      if (message.init_deassert()) return false;
      target.startup.init = true;
      target.startup.sipi = false;  // one that came before is void
      target.requests |= request::event;
      break;
    case apic::DeliveryMode::startup:
      target.startup.sipi_vector = message.vector;
      target.startup.sipi = true;
      target.requests |= request::event;
      break;
    case apic::DeliveryMode::ext_int:  // the PIC's interrupts come by kvm_cpu_has_extint
      return false;
  }
  kick(target, cpu);
  return true;
}

// svm_deliver_interrupt without AVIC.
bool Hypervisor::deliver_interrupt(Vcpu& target, PhysicalCpu& cpu, const apic::IcrCommand& message) {
  const apic::Acceptance acceptance = target.apic_unit.entry->accept(message.vector, message.level_triggered);
  if (acceptance == apic::Acceptance::disabled) return false;
  if (acceptance == apic::Acceptance::accepted) target.ipi_sent_cycles[message.vector] = cpu.local() + 1;
  target.requests |= request::event;
  kick(target, cpu);
  return true;
}

// kvm_vcpu_kick. A target in host mode sees the request by itself.
void Hypervisor::kick(Vcpu& target, PhysicalCpu& cpu) {
  if (target.state == HostThread::State::ended) return;
  if (target.vm.native) {  // a physical interrupt, of its own pCPU or by an IPI
    if (target.pcpu == &cpu) {
      target.native.look = true;
      return;
    }
    fabric->send(target.pcpu->index(), ArrivalKind::reschedule, cpu.local());
    cpu.notified_others();
    return;
  }
  if (target.halt.phase == HaltPhase::blocked && target.state == HostThread::State::blocked) {
    ++target.stats.halt_wakeup;
    target.ready = true;
    target.halt.woken_cycles = cpu.local();
    target.wake_cause_cycles = cpu.local() + 1;
    scheduler->wake(target, &cpu, cpu.local());
    return;
  }
  if (target.polling) {
    if (target.wake_cause_cycles == 0) target.wake_cause_cycles = cpu.local() + 1;
    if (target.pcpu == &cpu) return;  // its own interrupt: the poll loop looks behind it
    target.poll_event.notify(delay_until(target.pcpu->moment_of(cpu.local() + 1)));
    cpu.notified_others();
    return;
  }
  if (target.mode == VcpuMode::in_guest) {
    target.mode = VcpuMode::exiting_guest;
    if (target.pcpu == &cpu) return;
    fabric->send(target.pcpu->index(), ArrivalKind::reschedule, cpu.local());
    cpu.notified_others();
  }
}

}  // namespace svmsim::model
