// The two exits of AVIC (arch/x86/kvm/svm/avic.c; kvm-software.md 6.3).

#include "apic/apic_registers.hpp"
#include "model/hypervisor.hpp"
#include "model/vm.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

using workloads::EventKind;
using workloads::KernelGeneration;

namespace {

constexpr std::uint64_t apic_page = 0xfee00;
constexpr std::uint32_t icr_busy = 1U << 12;
constexpr std::uint32_t shorthand_mask = 3U << 18;
constexpr std::uint32_t logical_mode = 1U << 11;

// is_avic_unaccelerated_access_trap: registers whose write the hardware has performed before the exit.
bool is_trap(std::uint32_t offset) {
  switch (offset) {
    case apic::APIC_ID:
    case apic::APIC_EOI:
    case apic::APIC_RRR:
    case apic::APIC_LDR:
    case apic::APIC_DFR:
    case apic::APIC_SPIV:
    case apic::APIC_ESR:
    case apic::APIC_ICR:
    case apic::APIC_LVTT:
    case apic::APIC_LVTTHMR:
    case apic::APIC_LVTPC:
    case apic::APIC_LVT0:
    case apic::APIC_LVT1:
    case apic::APIC_LVTERR:
    case apic::APIC_TMICT:
    case apic::APIC_TDCR:
      return true;
    default:
      return false;
  }
}

}  // namespace

// avic_incomplete_ipi_interception. The guest's write has completed, rIP is behind it.
void Hypervisor::avic_incomplete_ipi_interception(Vcpu& vcpu, PhysicalCpu& cpu) {
  const svm::VmcbControl& control = vcpu.vmcb.control;
  const auto icr_high = static_cast<std::uint32_t>(control.exit_info_1 >> 32);
  const auto icr_low = static_cast<std::uint32_t>(control.exit_info_1);
  const auto id = static_cast<std::uint32_t>(control.exit_info_2 >> 32);
  const auto index = static_cast<std::uint32_t>(control.exit_info_2 & apic::incomplete_ipi::index_mask);
  vcpu.source->retire(cpu.local(), 0);
  cpu.charge(cost_.h_avic_ipi);
  trace(cpu, vcpu, EventKind::kvm_avic_incomplete_ipi, icr_high, icr_low, id, index);
  const bool x2apic = vcpu.apic_unit.state().mode() == apic::ApicMode::x2apic;
  const apic::IcrCommand command =
      x2apic ? apic::IcrCommand::from_x2apic(std::uint64_t{icr_high} << 32 | icr_low)
             : apic::IcrCommand::from_xapic(icr_low, icr_high);
  switch (id) {
    case apic::incomplete_ipi::invalid_type:
    case apic::incomplete_ipi::invalid_target:
      // Nothing was sent: KVM sends it all. A busy ICR is written again, which clears the bit.
      if ((icr_low & icr_busy) != 0) {
        vcpu.avic->page->write(apic::APIC_ICR, icr_low & ~icr_busy);
        trace(cpu, vcpu, EventKind::kvm_apic, 1, apic::APIC_ICR,
              control.exit_info_1 & ~std::uint64_t{icr_busy});
      }
      return send_ipi(vcpu, cpu, command, false);
    case apic::incomplete_ipi::target_not_running:
      return avic_kick_target_vcpus(vcpu, cpu, icr_low, icr_high, index);
    default:  // a backing page of ours that is none cannot be; an illegal vector is ignored
      return;
  }
}

// avic_kick_target_vcpus: the hardware has set every IRR bit and rung the cores of targets that run. KVM does
// not know which do not, and finishes the delivery to all.
void Hypervisor::avic_kick_target_vcpus(Vcpu& source, PhysicalCpu& cpu, std::uint32_t icr_low,
                                        std::uint32_t icr_high, std::uint32_t index) {
  const bool x2apic = source.apic_unit.state().mode() == apic::ApicMode::x2apic;
  const apic::IcrCommand command =
      x2apic ? apic::IcrCommand::from_x2apic(std::uint64_t{icr_high} << 32 | icr_low)
             : apic::IcrCommand::from_xapic(icr_low, icr_high);
  cpu.synchronise();
  if (avic_kick_target_vcpus_fast(source, cpu, command)) return;
  trace(cpu, source, EventKind::kvm_avic_kick_vcpu_slowpath, icr_high, icr_low, index);
  cpu.synchronise();
  source.vm.apics.for_each_target(command, source.index, [&](std::size_t target) {
    avic_complete_delivery(*source.vm.vcpus[target], cpu, &source, command);
  });
}

// False: the loop over all vCPUs has to find them, for shorthands and broadcasts, and in 6.1 for more than
// one logical target.
bool Hypervisor::avic_kick_target_vcpus_fast(Vcpu& source, PhysicalCpu& cpu,
                                             const apic::IcrCommand& command) {
  if ((command.low() & shorthand_mask) != 0) return false;
  const bool x2apic = source.apic_unit.state().mode() == apic::ApicMode::x2apic;
  if (command.destination == (x2apic ? apic::x2apic_broadcast : apic::xapic_broadcast)) return false;
  const auto kick_id = [&](std::uint32_t id) {
    if (id < source.vm.vcpus.size()) avic_complete_delivery(*source.vm.vcpus[id], cpu, &source, command);
  };
  if ((command.low() & logical_mode) == 0) {
    kick_id(command.destination);
    return true;
  }
  const std::uint32_t destination = command.destination;
  const bool flat = !x2apic && source.apic_unit.state().address().destination_format == 0xf;
  const std::uint32_t bits = x2apic ? destination & 0xffffU : flat ? destination : destination & 0xfU;
  const std::uint32_t cluster = x2apic ? (destination >> 16) << 4 : flat ? 0 : (destination >> 4) << 2;
  if (!at_least(KernelGeneration::v6_12) && (bits & (bits - 1)) != 0) return false;
  const apic::LogicalIdTable& table = source.vm.avic->memory.logical_tables[0];
  for (std::uint32_t rest = bits; rest != 0; rest &= rest - 1) {
    const std::uint32_t place = cluster + static_cast<std::uint32_t>(__builtin_ctz(rest));
    if (x2apic) {
      kick_id(place);
    } else if (place < table.entries.size() && table.entries[place].valid()) {
      kick_id(table.entries[place].guest_id());
    }
  }
  return true;
}

// avic_unaccelerated_access_interception.
void Hypervisor::avic_unaccelerated_access_interception(Vcpu& vcpu, PhysicalCpu& cpu) {
  const svm::VmcbControl& control = vcpu.vmcb.control;
  const auto offset = static_cast<std::uint32_t>(control.exit_info_1 & apic::noaccel_info::offset_mask);
  const bool write = (control.exit_info_1 & apic::noaccel_info::write) != 0;
  const auto vector = static_cast<std::uint8_t>(control.exit_info_2 & apic::noaccel_info::vector_mask);
  const bool trap = is_trap(offset) && write;
  cpu.charge(cost_.h_avic_noaccel);
  trace(cpu, vcpu, EventKind::kvm_avic_unaccelerated_access, offset, trap, write, vector);
  if (vcpu.vmcb.save.rip != vcpu.source->current()->rip) {
    vcpu.source->retire(cpu.local(), 0);
    if (trap) avic_unaccel_trap_write(vcpu, cpu, offset, vector);
    return;
  }
  avic_emulate_access(vcpu, cpu, offset, write);
}

// avic_unaccel_trap_write, kvm_apic_write_nodecode: the register is written, its side effects are KVM's.
void Hypervisor::avic_unaccel_trap_write(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t offset,
                                         std::uint8_t vector) {
  if (offset == apic::APIC_RRR) return;  // read-only, and not emulated
  cpu.synchronise();
  if (offset == apic::APIC_EOI) return avic_level_eoi(vcpu, cpu, vector);
  apic::LocalApic& apic = vcpu.apic();
  const std::uint32_t value = vcpu.avic->page->read(offset);
  const apic::RegisterWrite written =
      apic.mode() == apic::ApicMode::x2apic
          ? apic.write_msr(apic::x2apic_msr(offset), value, guest_tsc(vcpu, cpu))
          : apic.write_mmio(offset, value, guest_tsc(vcpu, cpu));
  vcpu.avic->publish_registers(apic);
  trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
  avic_register_written(vcpu, cpu, offset, written);
}

// What a register write has set off, besides the register.
void Hypervisor::avic_register_written(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t offset,
                                       const apic::RegisterWrite& written) {
  if (written.effect == apic::WriteEffect::ipi) send_ipi(vcpu, cpu, written.command, false);
  if (written.changed != 0) apic_changed(vcpu, cpu, written.changed, offset);
}

// apic_set_eoi for a vector whose ISR bit the hardware has cleared, or left to KVM (svm-hardware.md 12.7).
void Hypervisor::avic_level_eoi(Vcpu& vcpu, PhysicalCpu& cpu, std::uint8_t vector) {
  apic::LocalApic& apic = vcpu.apic();
  apic::LocalApic::AvicState state = apic.avic_state();
  if (state.isr.test(vector)) {
    state.isr.clear(vector);
    apic.set_avic_state(state);
  }
  const bool broadcast = (apic.svr() & apic::LocalApic::svr_suppress_eoi_broadcast) == 0;
  trace(cpu, vcpu, EventKind::kvm_apic, 1, apic::APIC_EOI, 0);
  end_of_interrupt(vcpu, cpu, {vector, true, broadcast});
}

// The APIC access page of a guest in xAPIC mode: its first touch since AVIC could be used maps it, for the
// VM.
bool Hypervisor::avic_maps_apic_page(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (!vcpu.has_apic_page() || (vcpu.vmcb.control.exit_info_2 >> 12) != apic_page) return false;
  cpu.charge(cost_.h_npf);
  cpu.synchronise();
  vcpu.vm.avic->apic_page_mapped = true;
  return true;
}

// kvm_emulate_instruction: what AVIC neither performs nor leaves to a trap.
void Hypervisor::avic_emulate_access(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t offset, bool write) {
  const svm::GuestAction& action = *vcpu.source->current();
  cpu.charge(cost_.h_emulate);
  cpu.synchronise();
  apic::LocalApic& apic = vcpu.apic();
  if (apic.mode() == apic::ApicMode::xapic) {
    const std::uint64_t result = in_kernel_mmio(vcpu, cpu, action, action.operand[1]);
    return skip_instruction(vcpu, cpu, result);
  }
  const std::uint64_t value = action.operand[0];
  if (write) {
    const apic::RegisterWrite written = apic.write_msr(action.number, value, guest_tsc(vcpu, cpu));
    if (written.effect == apic::WriteEffect::general_protection) {
      return queue_exception(vcpu, svm::exception_vector::general_protection, true, 0);
    }
    vcpu.avic->publish_registers(apic);
    trace(cpu, vcpu, EventKind::kvm_apic, 1, offset, value);
    avic_register_written(vcpu, cpu, offset, written);
    return skip_instruction(vcpu, cpu, 0);
  }
  const apic::RegisterRead read = apic.read_msr(action.number, guest_tsc(vcpu, cpu));
  if (read.general_protection) {
    return queue_exception(vcpu, svm::exception_vector::general_protection, true, 0);
  }
  trace(cpu, vcpu, EventKind::kvm_apic, 0, offset, read.value);
  skip_instruction(vcpu, cpu, read.value);
}

}  // namespace svmsim::model
