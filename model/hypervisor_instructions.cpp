// Instructions that KVM emulates or skips, and MMIO (arch/x86/kvm/svm/svm.c, arch/x86/kvm/x86.c;
// kvm-software.md 1.6).

#include <algorithm>

#include <fmt/format.h>

#include "model/hypervisor.hpp"
#include "model/vm.hpp"
#include "svm/exit_code.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

namespace exit_code = svm::exit_code;
using svm::Intercept;
using workloads::EventKind;

namespace {

constexpr std::uint64_t kvm_exit_mmio = 6;
constexpr unsigned crs = 16;
constexpr std::uint64_t lmsw_writes = svm::cr0::mp | svm::cr0::em | svm::cr0::ts;
constexpr std::uint64_t page_mask = ~std::uint64_t{0xfff};
constexpr std::uint64_t io_apic_base = 0xfec00000;
constexpr std::uint64_t unsatisfied_read = 0;
constexpr std::uint64_t read_mmio = 1;
constexpr std::uint64_t write_mmio = 2;

std::uint64_t bytes_mask(std::uint64_t size) {
  return size >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
}

}  // namespace

void Hypervisor::handle_instruction(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t code) {
  if (code < svm::exit_code_of(Intercept::read_dr0) || code == svm::exit_code_of(Intercept::cr0_sel_write))
    return handle_cr(vcpu, cpu, code);
  if (code < exit_code::exception(0)) return handle_dr(vcpu, cpu);
  switch (static_cast<Intercept>(code)) {
    case Intercept::iret:
      return handle_iret(vcpu, cpu);
    case Intercept::rsm:
      if (vcpu.smm.active) return leave_smm(vcpu, cpu);
      cpu.charge(cost_.h_insn);
      return queue_exception(vcpu, svm::exception_vector::invalid_opcode, false, 0);
    case Intercept::wbinvd:   // kvm_emulate_wbinvd: nothing to do without non-coherent DMA
    case Intercept::invd:     // kvm_emulate_invd: as a no-op
    case Intercept::monitor:  // kvm_emulate_monitor, kvm_emulate_mwait: as no-ops
    case Intercept::mwait:
    case Intercept::xsetbv:
    case Intercept::rdpmc:  // without a virtual PMU's counters: 0
      cpu.charge(cost_.h_insn);
      return skip_instruction(vcpu, cpu, 0);
    case Intercept::vmrun:  // nested_svm_check_permissions: a guest that is no hypervisor has no EFER.SVME
    case Intercept::vmload:
    case Intercept::vmsave:
    case Intercept::stgi:
    case Intercept::clgi:
      if (vcpu.nested != nullptr) return handle_svm_instruction(vcpu, cpu, static_cast<Intercept>(code));
      cpu.charge(cost_.h_insn);
      return queue_exception(vcpu, svm::exception_vector::invalid_opcode, false, 0);
    case Intercept::invlpga:
    case Intercept::skinit:
    case Intercept::rdpru:
      cpu.charge(cost_.h_insn);
      return queue_exception(vcpu, svm::exception_vector::invalid_opcode, false, 0);
    default:
      break;
  }
  vcpu.failure = fmt::format("exit {} at rip {:#x} has no handler in this version",
                             svm::exit_name_or_hex(code), vcpu.vmcb.save.rip);
  end_vcpu(vcpu, cpu);
}

// cr_interception. Without decode assists the emulator decodes the instruction.
void Hypervisor::handle_cr(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t code) {
  const svm::GuestAction& action = *vcpu.source->current();
  const bool decoded = (vcpu.vmcb.control.exit_info_1 & svm::cr_info::mov) != 0;
  const bool write = code >= crs;
  unsigned cr = static_cast<unsigned>(code) % crs;
  if (code == svm::exit_code_of(Intercept::cr0_sel_write)) cr = 0;
  cpu.charge(decoded ? cost_.h_insn : cost_.h_emulate);
  if (!write) {
    const svm::VmcbSave& save = vcpu.vmcb.save;
    const std::uint64_t value = cr == 0   ? save.cr0
                                : cr == 3 ? save.cr3
                                : cr == 4 ? save.cr4
                                          : vcpu.apic().cr8();
    if (decoded) trace(cpu, vcpu, EventKind::kvm_cr, 0, cr, value);
    return skip_instruction(vcpu, cpu, value);
  }
  std::uint64_t value = action.operand[0];
  if (action.kind == svm::ActionKind::clts) value = vcpu.vmcb.save.cr0 & ~svm::cr0::ts;
  if (action.kind == svm::ActionKind::lmsw)
    value = (vcpu.vmcb.save.cr0 & ~lmsw_writes) | (value & (lmsw_writes | svm::cr0::pe));
  if (decoded) trace(cpu, vcpu, EventKind::kvm_cr, 1, cr, value);
  if (set_cr(vcpu, cpu, cr, value)) {
    skip_instruction(vcpu, cpu, 0);
  } else {
    queue_exception(vcpu, svm::exception_vector::general_protection, true, 0);
  }
}

// kvm_set_cr0, kvm_set_cr3, kvm_set_cr4, kvm_set_cr8; false = #GP. The guest stays in its mode: what would
// leave long mode is refused by the processor's own rules too.
bool Hypervisor::set_cr(Vcpu& vcpu, PhysicalCpu& cpu, unsigned cr, std::uint64_t value) {
  svm::VmcbSave& save = vcpu.vmcb.save;
  constexpr std::uint64_t paging = svm::cr0::pg | svm::cr0::pe;
  switch (cr) {
    case 0:
      if ((value & paging) != paging || (value >> 32) != 0) return false;
      save.cr0 = value & ~(svm::cr0::cd | svm::cr0::nw);  // KVM_X86_QUIRK_CD_NW_CLEARED
      // svm_set_cr0: while the guest's CR0 is not the real one, every access exits.
      set_intercept(vcpu.vmcb.control, Intercept::read_cr0, save.cr0 != value);
      set_intercept(vcpu.vmcb.control, Intercept::write_cr0, save.cr0 != value);
      vcpu.vmcb.control.clean &= ~(svm::clean::cr | svm::clean::intercepts);
      return true;
    case 3:
      save.cr3 = value;
      vcpu.vmcb.control.clean &= ~svm::clean::cr;
      return true;
    case 4:
      if ((value & vcpu.guest.limits().cr4_reserved) != 0 || (value & svm::cr4::pae) == 0) return false;
      save.cr4 = value;
      vcpu.vmcb.control.clean &= ~svm::clean::cr;
      return true;
    case 8:
      if (value > 0xf) return false;
      set_tpr(vcpu, cpu, static_cast<std::uint8_t>(value << 4));
      return true;
    default:
      return false;
  }
}

// dr_interception: the guest gets its debug registers and tries again; the exit after it takes them back
// (KVM_DEBUGREG_WONT_EXIT, svm_sync_dirty_debug_regs).
void Hypervisor::handle_dr(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_insn);
  set_dr_intercepts(vcpu.vmcb.control, false);
  vcpu.vmcb.control.clean &= ~(svm::clean::intercepts | svm::clean::dr);
  vcpu.debug_registers_of_guest = true;
}

void Hypervisor::take_debug_registers(Vcpu& vcpu) {
  vcpu.debug_registers_of_guest = false;
  set_dr_intercepts(vcpu.vmcb.control, true);
  vcpu.vmcb.control.clean &= ~svm::clean::intercepts;
}

// apic_mmio_read, apic_mmio_write, ioapic_mmio_read, ioapic_mmio_write. The xAPIC page of an x2APIC guest
// reads as ones and swallows writes (KVM_X86_QUIRK_LAPIC_MMIO_HOLE), as LocalApic does. A read is traced
// behind the device's own event, a write before it. Returns the value.
std::uint64_t Hypervisor::in_kernel_mmio(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action,
                                         std::uint64_t address) {
  const std::uint64_t size = action.size;
  const auto offset = static_cast<std::uint32_t>(address & ~page_mask);
  const bool local = (address & page_mask) == vcpu.apic().base_address();
  cpu.synchronise();
  if (action.kind == svm::ActionKind::memory_write) {
    const std::uint64_t value = action.operand[0] & bytes_mask(size);
    trace(cpu, vcpu, EventKind::kvm_mmio, write_mmio, size, address, value);
    if (local) {
      apic_write_mmio(vcpu, cpu, offset, value, static_cast<unsigned>(size));
    } else {
      cpu.synchronise();
      io_apic_write(vcpu.vm, cpu, offset & 0xffU, static_cast<std::uint32_t>(value));
    }
    return value;
  }
  std::uint64_t value = 0;
  if (local) {
    const bool traced = vcpu.apic().mode() == apic::ApicMode::xapic;
    value = vcpu.apic().read_mmio(offset, guest_tsc(vcpu, cpu), static_cast<unsigned>(size)).value;
    if (traced) trace(cpu, vcpu, EventKind::kvm_apic, 0, offset & ~0xfU, value);
  } else {
    value = vcpu.vm.io_apic.read_mmio(offset & 0xffU) & bytes_mask(size);
  }
  trace(cpu, vcpu, EventKind::kvm_mmio, read_mmio, size, address, value);
  return value;
}

// handle_mmio_page_fault, emulator_read_write. What no device of the kernel answers is user space's.
void Hypervisor::handle_mmio(Vcpu& vcpu, PhysicalCpu& cpu) {
  const std::uint64_t address = vcpu.vmcb.control.exit_info_2;
  auto& absent = vcpu.absent_pages;
  absent.erase(std::remove_if(absent.begin(), absent.end(),
                              [&](std::uint64_t page) { return (page >> 12) == (address >> 12); }),
               absent.end());
  const svm::GuestAction& action = *vcpu.source->current();
  const bool write = action.kind == svm::ActionKind::memory_write;
  const std::uint64_t size = action.size;
  cpu.charge(cost_.h_emulate);
  std::uint64_t value = write ? action.operand[0] & bytes_mask(size) : bytes_mask(size);
  const std::uint64_t page = address & page_mask;
  if (page == vcpu.apic().base_address() || page == io_apic_base) {
    value = in_kernel_mmio(vcpu, cpu, action, address);
  } else {
    ++vcpu.stats.mmio_exits;
    trace(cpu, vcpu, EventKind::kvm_mmio, write ? write_mmio : unsatisfied_read, size, address,
          write ? value : 0);
    user_exit(vcpu, cpu, kvm_exit_mmio, true);
    if (!write) trace(cpu, vcpu, EventKind::kvm_mmio, read_mmio, size, address, value);
  }
  // The emulator knows the length of what it decoded; an NPF has no next rIP.
  skip_instruction(vcpu, cpu, value);
}

}  // namespace svmsim::model
