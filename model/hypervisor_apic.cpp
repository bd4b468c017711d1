// The emulated local APIC (arch/x86/kvm/lapic.c) and interrupt delivery to a vCPU (kvm-software.md 1.8).

#include <fmt/format.h>

#include "apic/apic_registers.hpp"
#include "model/hypervisor.hpp"
#include "svm/user_error.hpp"

namespace svmsim::model {

using workloads::EventKind;
using workloads::KernelGeneration;

void Hypervisor::apic_write_msr(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t msr, std::uint64_t value,
                                bool fastpath) {
  const std::uint32_t offset = apic::x2apic_offset(msr);
  cpu.synchronise();
  const std::uint8_t old_ppr = vcpu.apic().ppr();
  const apic::RegisterWrite write = vcpu.apic().write_msr(msr, value);
  switch (write.effect) {
    case apic::WriteEffect::general_protection:
      cpu.charge(cost_.h_msr);
      trace(cpu, vcpu, EventKind::kvm_msr, 1, msr, value, 1);
      queue_exception(vcpu, svm::exception_vector::general_protection, true, 0);
      return;
    case apic::WriteEffect::ipi:
    case apic::WriteEffect::ipi_refused:
      cpu.charge(cost_.h_icr);
      // The ICR is written after its IPI was sent; SELF_IPI is an ordinary register, traced before its
      // effect.
      if (msr == apic::msr_x2apic_self_ipi) trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
      send_ipi(vcpu, cpu, write.command, fastpath);
      if (msr != apic::msr_x2apic_self_ipi) trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
      break;
    case apic::WriteEffect::eoi:
      cpu.charge(cost_.h_eoi);
      trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
      trace(cpu, vcpu, EventKind::kvm_eoi, vcpu.index, write.eoi.vector);
      if (write.eoi.vector >= 0) vcpu.requests |= request::event;
      break;
    case apic::WriteEffect::priority:
      if (vcpu.apic().ppr() < old_ppr && vcpu.apic().deliverable() >= 0) vcpu.requests |= request::event;
      [[fallthrough]];
    case apic::WriteEffect::stored:
      cpu.charge(cost_.h_msr);
      trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
      break;
  }
  trace(cpu, vcpu, EventKind::kvm_msr, 1, msr, value, 0);
}

// apic_set_tpr, apic_update_ppr: only a lower PPR that frees a vector asks for an injection.
void Hypervisor::set_tpr(Vcpu& vcpu, PhysicalCpu& cpu, std::uint8_t tpr) {
  cpu.synchronise();
  const std::uint8_t old_ppr = vcpu.apic().ppr();
  vcpu.apic().set_tpr(tpr);
  if (vcpu.apic().ppr() < old_ppr && vcpu.apic().deliverable() >= 0) vcpu.requests |= request::event;
}

// kvm_apic_send_ipi prints the IPI before its delivery; mainline's fastpath delivers first (recordings a1 and
// b1 of kernel 6.18).
void Hypervisor::send_ipi(Vcpu& sender, PhysicalCpu& cpu, const apic::IcrCommand& command, bool fastpath) {
  if (command.delivery != apic::DeliveryMode::fixed && !command.init_deassert()) {
    throw UserError(
        Problem{"", 0, sender.vm.name,
                fmt::format("vCPU {} sends an IPI of type {} at rip {:#x}, which this version does not model",
                            sender.index, delivery_mode_text(command.delivery), sender.vmcb.save.rip),
                "Fixed"});
  }
  const bool before = !(fastpath && at_least(KernelGeneration::v6_18));
  if (before) trace(cpu, sender, EventKind::kvm_apic_ipi, command.low(), command.destination);
  cpu.synchronise();
  if (command.delivery == apic::DeliveryMode::fixed) {
    sender.vm.apics.for_each_target(command, sender.index, [&](std::size_t target) {
      deliver_interrupt(sender, cpu, *sender.vm.vcpus[target], command);
    });
  }
  if (!before) trace(cpu, sender, EventKind::kvm_apic_ipi, command.low(), command.destination);
}

// __apic_accept_irq, svm_deliver_interrupt without AVIC.
void Hypervisor::deliver_interrupt(Vcpu& sender, PhysicalCpu& cpu, Vcpu& target,
                                   const apic::IcrCommand& command) {
  cpu.charge(cost_.h_accept_irq);
  trace(cpu, sender, EventKind::kvm_apic_accept_irq, target.index, static_cast<unsigned>(command.delivery),
        command.level_triggered, command.vector);
  cpu.synchronise();
  const apic::Acceptance acceptance = target.apic_unit.entry->accept(command.vector, command.level_triggered);
  if (acceptance == apic::Acceptance::accepted) target.ipi_sent_cycles[command.vector] = cpu.local() + 1;
  if (acceptance == apic::Acceptance::accepted || acceptance == apic::Acceptance::merged) {
    target.requests |= request::event;
    if (&target != &sender) kick(target, cpu, sender);
  }
}

// kvm_vcpu_kick. A target in host mode sees the request by itself.
void Hypervisor::kick(Vcpu& target, PhysicalCpu& cpu, const Vcpu& sender) {
  if (target.state == HostThread::State::ended) return;
  if (target.halt.phase == HaltPhase::blocked && target.state == HostThread::State::blocked) {
    ++target.stats.halt_wakeup;
    target.halt.woken_cycles = cpu.local();
    target.wake_cause_cycles = cpu.local() + 1;
    scheduler->wake(target, &cpu, cpu.local());
    return;
  }
  if (target.polling) {
    if (target.wake_cause_cycles == 0) target.wake_cause_cycles = cpu.local() + 1;
    target.poll_event.notify(delay_until(target.pcpu->moment_of(cpu.local() + 1)));
    cpu.notified_others();
    return;
  }
  if (target.mode == VcpuMode::in_guest) {
    target.mode = VcpuMode::exiting_guest;
    if (target.pcpu == sender.pcpu) return;
    fabric->send(target.pcpu->index(), ArrivalKind::reschedule, cpu.local());
    cpu.notified_others();
  }
}

}  // namespace svmsim::model
