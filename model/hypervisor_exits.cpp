// Exit handlers and fastpaths of KVM on SVM (arch/x86/kvm/svm/svm.c, x86.c; kvm-software.md 1.6).

#include <algorithm>

#include <fmt/format.h>

#include "apic/apic_registers.hpp"
#include "model/emulated_cpuid.hpp"
#include "model/hypervisor.hpp"
#include "model/vm.hpp"
#include "svm/exit_code.hpp"
#include "svm/intercept.hpp"
#include "svm/user_error.hpp"
#include "svm/vmcb_bits.hpp"
#include "workloads/guest/pv_memory.hpp"

namespace svmsim::model {

namespace exit_code = svm::exit_code;
using svm::Intercept;
using workloads::EventKind;
using workloads::KernelGeneration;

namespace {

constexpr std::uint64_t kvm_exit_io = 2;
constexpr std::uint32_t msr_tsc = 0x10;
constexpr std::uint32_t msr_apic_base = 0x1b;
constexpr std::uint32_t msr_pat = 0x277;
constexpr std::uint32_t msr_tsc_deadline = 0x6e0;
constexpr std::uint32_t msr_efer = 0xc0000080;

// Ports that KVM's interrupt controllers and timer answer in the kernel (arch/x86/kvm/i8259.c, i8254.c).
bool in_kernel_port(std::uint32_t port) {
  switch (port) {
    case 0x20:
    case 0x21:
    case 0xa0:
    case 0xa1:
    case 0x4d0:
    case 0x4d1:
      return true;
    default:
      return port >= 0x40 && port <= 0x43;
  }
}

}  // namespace

// kvm_skip_emulated_instruction: rIP moves on and the shadow ends; for the workload the action has completed.
void Hypervisor::skip_instruction(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t result) {
  svm::Vmcb& vmcb = vcpu.vmcb;
  // Without NRIPS the kernel decodes the instruction for its length.
  const std::uint64_t next = vmcb.control.next_rip;
  vmcb.save.rip = next != 0 ? next : vmcb.save.rip + vcpu.source->current()->length;
  vmcb.control.int_state &= ~svm::int_state::interrupt_shadow;
  vcpu.source->retire(cpu.local(), result);
}

// svm_exit_handlers_fastpath. It needs the next rIP, and runs with host interrupts off.
Hypervisor::Fastpath Hypervisor::exit_fastpath(Vcpu& vcpu, PhysicalCpu& cpu) {
  const svm::VmcbControl& control = vcpu.vmcb.control;
  if (control.next_rip == 0 || vcpu.guest_mode) return Fastpath::none;
  const bool in_kernel = !vcpu.vm.halts_in_user_space;  // else the fastpath leads to user space: no shortcut
  if (control.exit_code == exit_code::hlt && at_least(KernelGeneration::v6_12) && in_kernel) {
    return emulate_halt(vcpu, cpu) ? Fastpath::reenter : Fastpath::handled;
  }
  if (control.exit_code != exit_code::msr || control.exit_info_1 == 0) return Fastpath::none;
  const svm::GuestAction& action = *vcpu.source->current();
  if (action.number == msr_tsc_deadline && at_least(KernelGeneration::v6_18)) {
    // handle_fastpath_set_tscdeadline. Without hardware for it before mainline, which asks no more.
    cpu.charge(cost_.h_msr);
    if (!write_tsc_deadline(vcpu, cpu, action.operand[0])) return Fastpath::none;
    trace(cpu, vcpu, EventKind::kvm_msr, 1, msr_tsc_deadline, action.operand[0], 0);
    skip_instruction(vcpu, cpu, 0);
    return Fastpath::reenter;
  }
  if (action.number != apic::msr_x2apic_icr || (action.operand[0] & apic::x2apic_icr_reserved) != 0) {
    return Fastpath::none;
  }
  const apic::IcrCommand command = apic::IcrCommand::from_x2apic(action.operand[0]);
  if (vcpu.apic().mode() != apic::ApicMode::x2apic || !icr_fastpath_takes(command)) return Fastpath::none;
  apic_write_msr(vcpu, cpu, action.number, action.operand[0], true);
  skip_instruction(vcpu, cpu, 0);
  return at_least(KernelGeneration::v6_12) ? Fastpath::reenter : Fastpath::handled;
}

// handle_fastpath_set_x2apic_icr_irqoff: a physical unicast; mainline also takes logical destinations and the
// self shorthand, and every delivery mode (kvm_irq_delivery_to_apic_fast).
bool Hypervisor::icr_fastpath_takes(const apic::IcrCommand& command) const {
  const bool unicast =
      command.shorthand == apic::Shorthand::none && command.destination != apic::x2apic_broadcast;
  if (at_least(KernelGeneration::v6_18)) return unicast || command.shorthand == apic::Shorthand::self;
  if (command.delivery != apic::DeliveryMode::fixed) return false;
  return unicast && command.destination_mode == apic::DestinationMode::physical;
}

void Hypervisor::handle_exit(Vcpu& vcpu, PhysicalCpu& cpu) {
  if (vcpu.nested != nullptr && nested_exit(vcpu, cpu)) return;
  const std::uint64_t code = vcpu.vmcb.control.exit_code;
  switch (code) {
    case exit_code::msr:
      return handle_msr(vcpu, cpu);
    case exit_code::vintr:
      return handle_vintr(vcpu, cpu);
    case exit_code::intr:
      ++vcpu.stats.irq_exits;
      return cpu.charge(cost_.h_intr);
    case exit_code::hlt:
    case exit_code::idle_hlt:
      emulate_halt(vcpu, cpu);
      return;
    case exit_code::npf:
      return handle_npf(vcpu, cpu);
    case exit_code::ioio:
      return handle_io(vcpu, cpu);
    case exit_code::cpuid:
      return handle_cpuid(vcpu, cpu);
    case exit_code::vmmcall:
      return handle_hypercall(vcpu, cpu);
    case exit_code::avic_incomplete_ipi:
      return avic_incomplete_ipi_interception(vcpu, cpu);
    case exit_code::avic_noaccel:
      return avic_unaccelerated_access_interception(vcpu, cpu);
    case exit_code::pause:
      return handle_pause(vcpu, cpu);
    default:
      break;
  }
  if (code == exit_code::exception(svm::exception_vector::debug) && vcpu.nmi.single_step)
    return handle_single_step(vcpu, cpu);
  if (code >= exit_code::exception(0) && code <= exit_code::exception(31))
    return handle_exception(vcpu, cpu, code);
  if (code == exit_code::invalid) {
    throw InternalError(fmt::format("VMRUN of vCPU {} of {} failed its consistency checks at rip {:#x}",
                                    vcpu.index, vcpu.vm.name, vcpu.vmcb.save.rip));
  }
  handle_instruction(vcpu, cpu, code);
}

// interrupt_window_interception: the window is open, the next entry injects.
void Hypervisor::handle_vintr(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_vintr);
  vcpu.requests |= request::event;
  if (vcpu.nested != nullptr) {
    svm_clear_vintr(vcpu);
  } else {
    svm::VmcbControl& control = vcpu.vmcb.control;
    set_intercept(control, Intercept::vintr, false);
    control.int_ctl &= ~(svm::int_ctl::v_irq | svm::int_ctl::v_intr_prio_mask | svm::int_ctl::v_ign_tpr);
    control.int_vector = 0;
    control.clean &= ~(svm::clean::intr | svm::clean::intercepts);
  }
  ++vcpu.stats.irq_window_exits;
  if (vcpu.avic != nullptr) avic_irq_window_open(vcpu, cpu);
}

// set_efer (arch/x86/kvm/x86.c): reserved bits, and LME while paging is on, raise #GP; LMA is the
// processor's.
bool Hypervisor::set_efer(Vcpu& vcpu, std::uint64_t value) {
  constexpr std::uint64_t writable = svm::efer::sce | svm::efer::lme | svm::efer::lma | svm::efer::nxe;
  const std::uint64_t old = vcpu.vmcb.save.efer;
  if ((value & ~writable) != 0 || ((value ^ old) & svm::efer::lme) != 0) return false;
  vcpu.vmcb.save.efer = (value & ~svm::efer::lma) | (old & svm::efer::lma) | svm::efer::svme;
  vcpu.vmcb.control.clean &= ~svm::clean::cr;
  return true;
}

void Hypervisor::handle_msr(Vcpu& vcpu, PhysicalCpu& cpu) {
  const svm::GuestAction& action = *vcpu.source->current();
  const std::uint32_t msr = action.number;
  const bool write = vcpu.vmcb.control.exit_info_1 != 0;
  const std::uint64_t value = action.operand[0];
  if (write && apic::is_x2apic_msr(msr)) {
    apic_write_msr(vcpu, cpu, msr, value);
    if (!vcpu.exception.pending) skip_instruction(vcpu, cpu, 0);
    return;
  }
  cpu.charge(cost_.h_msr);
  bool fault = false;
  std::uint64_t result = 0;
  if (apic::is_x2apic_msr(msr)) {
    cpu.synchronise();
    const apic::RegisterRead read = vcpu.apic().read_msr(msr, guest_tsc(vcpu, cpu));
    fault = read.general_protection;
    result = read.value;
    // kvm_x2apic_msr_read takes the ICR from the page without an event.
    if (!fault && msr != apic::msr_x2apic_icr)
      trace(cpu, vcpu, EventKind::kvm_apic, 0, apic::x2apic_offset(msr), result);
  } else {
    switch (msr) {
      case msr_tsc:
        result = cpu.local() + vcpu.vmcb.control.tsc_offset;
        if (write) vcpu.vmcb.control.tsc_offset = value - cpu.local();
        break;
      case msr_apic_base:
        result = vcpu.apic().read_apic_base();
        if (write) fault = !set_apic_base(vcpu, cpu, value);
        break;
      case msr_tsc_deadline:
        if (write) {
          fault = !write_tsc_deadline(vcpu, cpu, value);
        } else {
          cpu.synchronise();
          const apic::RegisterRead read = vcpu.apic().read_tsc_deadline(guest_tsc(vcpu, cpu));
          fault = read.general_protection;
          result = read.value;
        }
        break;
      case msr_pat:
        result = vcpu.pat;
        if (write) vcpu.pat = value;
        break;
      case msr_efer:
        result = vcpu.vmcb.save.efer & ~svm::efer::svme;
        if (write) fault = !set_efer(vcpu, value);
        break;
      case workloads::kvm_msr::steal_time:
      case workloads::kvm_msr::pv_eoi_en:
      case workloads::kvm_msr::poll_control:
        result = value;
        fault = pv_msr(vcpu, msr, write, result);
        break;
      default:
        break;  // KVM keeps many MSRs as plain storage; their values reach no result here
    }
  }
  trace(cpu, vcpu, EventKind::kvm_msr, write, msr, write ? value : result, fault);
  if (fault) {
    queue_exception(vcpu, svm::exception_vector::general_protection, true, 0);
  } else {
    skip_instruction(vcpu, cpu, result);
  }
}

// kvm_fast_pio; the order of events around a return to user space is that of the lab recordings.
void Hypervisor::handle_io(Vcpu& vcpu, PhysicalCpu& cpu) {
  const std::uint64_t info = vcpu.vmcb.control.exit_info_1;
  const auto port = static_cast<std::uint32_t>(info >> svm::ioio_info::port_shift) & 0xffffU;
  const bool in = (info & svm::ioio_info::in) != 0;
  const svm::GuestAction& action = *vcpu.source->current();
  const unsigned size = action.size;
  ++vcpu.stats.io_exits;
  cpu.charge(cost_.h_io_kernel);
  const std::uint64_t value = in ? 0 : action.operand[0];
  const auto trace_pio = [&] { trace(cpu, vcpu, EventKind::kvm_pio, !in, port, size, 1, value); };
  GuestDeviceUnit* device = in ? nullptr : guest_device(vcpu.vm, port);  // an ioeventfd
  const bool kernel = in_kernel_port(port) || device != nullptr;
  if (kernel || !in) trace_pio();
  if (!kernel) {
    user_exit(vcpu, cpu, kvm_exit_io, true);
    if (!in && !vcpu.vm.devices.empty()) acknowledge_devices(vcpu.vm, cpu, port);
    if (in) trace_pio();
  }
  skip_instruction(vcpu, cpu, value);
  if (device == nullptr) return;
  cpu.synchronise();
  device->notify(vcpu, cpu);
}

// Back to user space, its device model if it has something to do, and KVM_RUN again.
void Hypervisor::user_exit(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t reason, bool device) {
  trace(cpu, vcpu, EventKind::kvm_fpu, 0);
  trace(cpu, vcpu, EventKind::kvm_userspace_exit, reason, 0);
  vcpu.host_state_unloaded = true;  // vcpu_put at the end of KVM_RUN
  cpu.charge(device ? cost_.t_user_exit : cost_.t_user_exit - std::min(cost_.t_device, cost_.t_user_exit));
  cpu.take_interrupts();
  trace(cpu, vcpu, EventKind::kvm_fpu, 1);
}

void Hypervisor::handle_cpuid(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_cpuid);
  const svm::GuestAction& action = *vcpu.source->current();
  const auto subleaf = static_cast<std::uint32_t>(action.operand[0]);
  const EmulatedCpuid result = emulated_cpuid(action.number, subleaf, vcpu.index, vcpu.vm.pv);
  trace(cpu, vcpu, EventKind::kvm_cpuid, action.number, subleaf, result.eax, result.ebx, result.ecx,
        result.edx, result.found);
  skip_instruction(vcpu, cpu, result.eax);
}

void Hypervisor::handle_npf(Vcpu& vcpu, PhysicalCpu& cpu) {
  const svm::VmcbControl& control = vcpu.vmcb.control;
  if (vcpu.guest_mode) return nested_npf(vcpu, cpu);
  trace(cpu, vcpu, EventKind::kvm_page_fault, vcpu.vmcb.save.rip, control.exit_info_2, control.exit_info_1);
  if (avic_maps_apic_page(vcpu, cpu)) return;
  if (vcpu.is_mmio(control.exit_info_2)) return handle_mmio(vcpu, cpu);
  cpu.charge(cost_.h_npf);
  const std::uint64_t page = control.exit_info_2 & ~std::uint64_t{0xfff};
  auto& absent = vcpu.absent_pages;
  for (std::size_t i = 0; i < absent.size(); ++i) {
    if ((absent[i] & ~std::uint64_t{0xfff}) == page) {
      absent.erase(absent.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
  }
  throw InternalError(fmt::format("nested page fault at {:#x}, which is mapped", control.exit_info_2));
}

// KVM intercepts some exceptions only to look at them; here they all go on to the guest.
void Hypervisor::handle_exception(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t code) {
  cpu.charge(cost_.h_msr);
  const auto vector = static_cast<std::uint8_t>(code - exit_code::exception(0));
  const bool has_error = vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21;
  queue_exception(vcpu, vector, has_error, static_cast<std::uint32_t>(vcpu.vmcb.control.exit_info_1));
}

}  // namespace svmsim::model
