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
  const apic::RegisterWrite write = vcpu.apic().write_msr(msr, value, guest_tsc(vcpu, cpu));
  switch (write.effect) {
    case apic::WriteEffect::general_protection:
      cpu.charge(cost_.h_msr);
      trace(cpu, vcpu, EventKind::kvm_msr, 1, msr, value, 1);
      queue_exception(vcpu, svm::exception_vector::general_protection, true, 0);
      return;
    case apic::WriteEffect::ipi:
    case apic::WriteEffect::ipi_refused:
      cpu.charge(cost_.h_icr);
      if (write.command.shorthand != apic::Shorthand::self) ++vcpu.icr_exits;
      // The ICR is written after its IPI was sent; SELF_IPI is an ordinary register, traced before its
      // effect.
      if (msr == apic::msr_x2apic_self_ipi) trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
      send_ipi(vcpu, cpu, write.command, fastpath);
      if (msr != apic::msr_x2apic_self_ipi) trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
      break;
    case apic::WriteEffect::eoi:
      cpu.charge(cost_.h_eoi);
      trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
      end_of_interrupt(vcpu, cpu, write.eoi);
      break;
    case apic::WriteEffect::priority:
      if (vcpu.apic().ppr() < old_ppr && vcpu.apic().deliverable() >= 0) vcpu.requests |= request::event;
      [[fallthrough]];
    case apic::WriteEffect::stored:
      cpu.charge(cost_.h_msr);
      trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
      if (write.changed != 0) apic_changed(vcpu, cpu, write.changed, offset);
      if (vcpu.apicv_active) vcpu.avic->publish_registers(vcpu.apic());
      break;
  }
  trace(cpu, vcpu, EventKind::kvm_msr, 1, msr, value, 0);
}

// kvm_lapic_reg_write by MMIO: every register is traced before its effect.
void Hypervisor::apic_write_mmio(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t offset, std::uint64_t value,
                                 unsigned bytes) {
  if (vcpu.apic().mode() != apic::ApicMode::xapic || bytes != 4 || (offset & 0xfU) != 0) return;
  const std::uint8_t old_ppr = vcpu.apic().ppr();
  const apic::RegisterWrite write =
      vcpu.apic().write_mmio(offset, static_cast<std::uint32_t>(value), guest_tsc(vcpu, cpu), bytes);
  trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
  switch (write.effect) {
    case apic::WriteEffect::ipi:
    case apic::WriteEffect::ipi_refused:
      cpu.charge(cost_.h_icr);
      send_ipi(vcpu, cpu, write.command, false);
      break;
    case apic::WriteEffect::eoi:
      cpu.charge(cost_.h_eoi);
      end_of_interrupt(vcpu, cpu, write.eoi);
      break;
    case apic::WriteEffect::priority:
      if (vcpu.apic().ppr() < old_ppr && vcpu.apic().deliverable() >= 0) vcpu.requests |= request::event;
      break;
    case apic::WriteEffect::stored:
      if (write.changed != 0) apic_changed(vcpu, cpu, write.changed, offset);
      break;
    case apic::WriteEffect::general_protection:
      break;  // MSRs only
  }
}

// apic_set_eoi: the ISR bit is clear already; a level interrupt is told to the I/O APIC, whose line may be up
// still.
void Hypervisor::end_of_interrupt(Vcpu& vcpu, PhysicalCpu& cpu, const apic::EndOfInterrupt& eoi) {
  vcpu.pv.highest_isr_cache = -1;
  trace(cpu, vcpu, EventKind::kvm_eoi, vcpu.index, eoi.vector);
  if (eoi.vector < 0) return;
  if (eoi.broadcast) {
    cpu.synchronise();
    io_apic_eoi(vcpu.vm, cpu, static_cast<std::uint8_t>(eoi.vector));
  }
  vcpu.requests |= request::event;
}

// kvm_set_apic_base; false = #GP.
bool Hypervisor::set_apic_base(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t value) {
  cpu.synchronise();
  const apic::RegisterWrite write = vcpu.apic().write_apic_base(value, guest_tsc(vcpu, cpu));
  if (write.effect == apic::WriteEffect::general_protection) return false;
  apic_changed(vcpu, cpu, write.changed, 0);
  if (vcpu.avic != nullptr) avic_apic_base_changed(vcpu, cpu);
  return true;
}

// kvm_recalculate_apic_map, and what a change of enabling or priorities makes deliverable.
void Hypervisor::apic_changed(Vcpu& vcpu, PhysicalCpu& cpu, std::uint8_t what, std::uint32_t offset) {
  if ((what & apic::changed::timer) != 0) {
    if (offset == apic::APIC_LVTT) {
      // apic_update_lvtt: a change from or to TSC-deadline mode cancels, any other leaves the timer alone.
      const apic::ApicTimer& timer = vcpu.apic().timer();
      if (!timer.armed() && !timer.ran_out()) cancel_hrtimer(vcpu, cpu);
    } else if (offset == apic::APIC_TDCR) {
      restart_after_divider(vcpu, cpu);
    } else {
      restart_apic_timer(vcpu, cpu);
    }
  }
  if ((what & (apic::changed::addressing | apic::changed::enabling)) != 0)
    vcpu.vm.apics.update(vcpu.index, vcpu.apic().address());
  if (vcpu.avic != nullptr && (what & (apic::changed::addressing | apic::changed::enabling)) != 0)
    avic_apic_changed(vcpu, cpu);
  if ((what & (apic::changed::enabling | apic::changed::pending)) != 0) vcpu.requests |= request::event;
}

// apic_set_tpr, apic_update_ppr: only a lower PPR that frees a vector asks for an injection.
void Hypervisor::set_tpr(Vcpu& vcpu, PhysicalCpu& cpu, std::uint8_t tpr) {
  cpu.synchronise();
  const std::uint8_t old_ppr = vcpu.apic().ppr();
  vcpu.apic().set_tpr(tpr);
  if (vcpu.apic().ppr() < old_ppr && vcpu.apic().deliverable() >= 0) vcpu.requests |= request::event;
}

}  // namespace svmsim::model
