// Instructions that KVM emulates or skips, and MMIO (arch/x86/kvm/svm/svm.c, arch/x86/kvm/x86.c;
// kvm-software.md 1.6).

#include <algorithm>

#include <fmt/format.h>

#include "model/hypervisor.hpp"
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
constexpr std::uint64_t xapic_page = 0xfee00000;

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
    case Intercept::vmrun:  // nested_svm_check_permissions: the guest has not set EFER.SVME
    case Intercept::vmload:
    case Intercept::vmsave:
    case Intercept::stgi:
    case Intercept::clgi:
    case Intercept::invlpga:
    case Intercept::skinit:
    case Intercept::rdpru:
      cpu.charge(cost_.h_insn);
      return queue_exception(vcpu, svm::exception_vector::invalid_opcode, false, 0);
    case Intercept::pause:  // pause_interception, without the directed yield: the one vCPU of its pCPU spins
                            // on
      cpu.charge(cost_.h_insn);
      return skip_instruction(vcpu, cpu, 0);
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

// handle_mmio_page_fault, emulator_read_write. The xAPIC page of an x2APIC guest reads as ones and swallows
// writes (KVM_X86_QUIRK_LAPIC_MMIO_HOLE); any other page is user space's.
void Hypervisor::handle_mmio(Vcpu& vcpu, PhysicalCpu& cpu) {
  constexpr std::uint64_t unsatisfied_read = 0;
  constexpr std::uint64_t read_mmio = 1;
  constexpr std::uint64_t write_mmio = 2;
  constexpr std::uint64_t apic_page_mask = ~std::uint64_t{0xfff};
  const std::uint64_t address = vcpu.vmcb.control.exit_info_2;
  auto& absent = vcpu.absent_pages;
  absent.erase(std::remove_if(absent.begin(), absent.end(),
                              [&](std::uint64_t page) { return (page >> 12) == (address >> 12); }),
               absent.end());
  const svm::GuestAction& action = *vcpu.source->current();
  const bool write = action.kind == svm::ActionKind::memory_write;
  const std::uint64_t size = action.size;
  cpu.charge(cost_.h_emulate);
  const std::uint64_t ones = size >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
  const std::uint64_t value = write ? action.operand[0] & ones : ones;
  if ((address & apic_page_mask) == xapic_page) {
    trace(cpu, vcpu, EventKind::kvm_mmio, write ? write_mmio : read_mmio, size, address, value);
  } else {
    ++vcpu.stats.mmio_exits;
    trace(cpu, vcpu, EventKind::kvm_mmio, write ? write_mmio : unsatisfied_read, size, address,
          write ? value : 0);
    user_exit(vcpu, cpu, kvm_exit_mmio);
    if (!write) trace(cpu, vcpu, EventKind::kvm_mmio, read_mmio, size, address, value);
  }
  // The emulator knows the length of what it decoded; an NPF has no next rIP.
  skip_instruction(vcpu, cpu, value);
}

}  // namespace svmsim::model
