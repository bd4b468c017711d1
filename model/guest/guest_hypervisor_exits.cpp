// Exits of L2 as a guest hypervisor handles them: what it emulates, and what that costs.

#include <algorithm>

#include <fmt/format.h>

#include "apic/apic_registers.hpp"
#include "apic/interrupt_routing.hpp"
#include "model/emulated_cpuid.hpp"
#include "model/guest/guest_hypervisor.hpp"
#include "svm/exit_code.hpp"
#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

namespace exit_code = svm::exit_code;
using svm::ActionKind;
using svm::Intercept;
using workloads::KernelGeneration;

namespace {

constexpr std::uint32_t msr_tsc = 0x10;
constexpr std::uint32_t msr_apic_base = 0x1b;
constexpr std::uint32_t msr_tsc_deadline = 0x6e0;
constexpr std::uint64_t page_mask = ~std::uint64_t{0xfff};

std::uint64_t bytes_mask(std::uint64_t size) {
  return size >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
}

bool lists(const std::vector<std::uint64_t>& pages, std::uint64_t address) {
  return std::any_of(pages.begin(), pages.end(),
                     [&](std::uint64_t page) { return (page >> 12) == (address >> 12); });
}

}  // namespace

bool GuestHypervisor::maps(std::uint64_t l2_physical) const {
  return (l2_physical & page_mask) != apic_.base_address() && !lists(absent_pages_, l2_physical) &&
         !lists(mmio_pages_, l2_physical);
}

// svm_exit_handlers_fastpath, by the rules of model/hypervisor_exits.cpp.
bool GuestHypervisor::takes_fastpath() const {
  const svm::VmcbControl& control = vmcb12_.control;
  if (config_.style != L1Style::kvm || control.next_rip == 0) return false;
  if (control.exit_code == exit_code::hlt) return config_.kernel >= KernelGeneration::v6_12;
  if (control.exit_code != exit_code::msr || control.exit_info_1 == 0) return false;
  const svm::GuestAction& action = *l2_->current();
  if (action.number != apic::msr_x2apic_icr || apic_.mode() != apic::ApicMode::x2apic) return false;
  const apic::IcrCommand command = apic::IcrCommand::from_x2apic(action.operand[0]);
  return command.shorthand == apic::Shorthand::none && command.delivery == apic::DeliveryMode::fixed &&
         command.destination_mode == apic::DestinationMode::physical &&
         command.destination != apic::x2apic_broadcast;
}

std::uint64_t GuestHypervisor::handler_cycles() const {
  const Costs& cost = config_.cost;
  const svm::VmcbControl& control = vmcb12_.control;
  switch (control.exit_code) {
    case exit_code::msr: {
      const std::uint32_t msr = l2_->current()->number;
      if (control.exit_info_1 == 0) return cost.h_msr;
      if (msr == apic::msr_x2apic_icr || msr == apic::msr_x2apic_self_ipi)
        return cost.h_icr + cost.h_accept_irq;
      if (msr == apic::msr_x2apic_eoi) return cost.h_eoi;
      return msr == msr_tsc_deadline ? cost.h_msr + cost.t_timer_arm : cost.h_msr;
    }
    case exit_code::vintr:
      return cost.h_vintr;
    case exit_code::intr:
      return cost.h_intr;
    case exit_code::hlt:
    case exit_code::idle_hlt:
      return cost.h_hlt;
    case exit_code::npf:
      return lists(absent_pages_, control.exit_info_2) ? cost.h_npf : cost.h_emulate;
    case exit_code::ioio:
      return cost.h_io_kernel;
    case exit_code::cpuid:
      return cost.h_cpuid;
    case exit_code::vmmcall:
      return cost.h_vmmcall;
    default:
      return cost.h_insn;
  }
}

void GuestHypervisor::skip_instruction(std::uint64_t tsc, std::uint64_t result) {
  const std::uint64_t next = vmcb12_.control.next_rip;
  vmcb12_.save.rip = next != 0 ? next : vmcb12_.save.rip + l2_->current()->length;
  vmcb12_.control.int_state &= ~svm::int_state::interrupt_shadow;
  l2_->retire(tsc, result);
}

// What sends a fastpath the long way round: something to inject.
bool GuestHypervisor::has_requests(std::uint64_t code) const {
  const bool sent_to_itself = code == exit_code::msr && apic_.deliverable() >= 0;
  return timer_pending_ || incoming_.any() || reinjects_ || exception_pending_ || sent_to_itself;
}

// The exit handler has run: its effects, and the way back into L2. A fastpath runs with interrupts off.
void GuestHypervisor::handle(std::uint64_t tsc, bool fastpath) {
  begin();
  const std::uint64_t code = vmcb12_.control.exit_code;
  switch (code) {
    case exit_code::msr:
      handle_msr(tsc);
      break;
    case exit_code::vintr:
      set_window(false);
      break;
    case exit_code::intr:
    case exit_code::nmi:
      break;
    case exit_code::hlt:
    case exit_code::idle_hlt:
      emulate_halt(tsc);
      break;
    case exit_code::npf:
      handle_npf(tsc);
      break;
    case exit_code::ioio:
      handle_io(tsc);
      break;
    case exit_code::cpuid: {
      const svm::GuestAction& action = *l2_->current();
      PvConfig none;
      none.features = 0;
      skip_instruction(
          tsc,
          emulated_cpuid(action.number, static_cast<std::uint32_t>(action.operand[0]), index_, none).eax);
      break;
    }
    case exit_code::vmmcall:  // KVM_HC_*: none is offered
      skip_instruction(tsc, static_cast<std::uint64_t>(-1000));
      break;
    default:
      handle_instruction(code, tsc);
      break;
  }
  if (fastpath) {
    if (!halted_ && !has_requests(code)) return run();
    instruction(ActionKind::sti);
  }
  if (halted_) return work(config_.cost.h_vcpu_block, Meaning::block);
  enter_guest();
}

// kvm_emulate_halt.
void GuestHypervisor::emulate_halt(std::uint64_t tsc) {
  skip_instruction(tsc, 0);
  take_incoming();
  // 6.1 lets vcpu_block find out.
  halted_ = config_.kernel == KernelGeneration::v6_1 || !has_wake_event();
}

void GuestHypervisor::handle_msr(std::uint64_t tsc) {
  const svm::GuestAction& action = *l2_->current();
  const std::uint32_t msr = action.number;
  const bool write = vmcb12_.control.exit_info_1 != 0;
  const std::uint64_t value = action.operand[0];
  std::uint64_t result = 0;
  bool fault = false;
  if (apic::is_x2apic_msr(msr)) {
    if (write) {
      const apic::RegisterWrite effect = apic_.write_msr(msr, value, tsc);
      fault = effect.effect == apic::WriteEffect::general_protection;
      if (!fault) written(effect, tsc);
    } else {
      const apic::RegisterRead read = apic_.read_msr(msr, tsc);
      fault = read.general_protection;
      result = read.value;
    }
  } else if (msr == msr_tsc_deadline) {
    if (write) {
      const apic::RegisterWrite effect = apic_.write_tsc_deadline(value, tsc);
      fault = effect.effect == apic::WriteEffect::general_protection;
      if (effect.changed != 0) restart_timer(tsc);
    } else {
      const apic::RegisterRead read = apic_.read_tsc_deadline(tsc);
      fault = read.general_protection;
      result = read.value;
    }
  } else if (msr == msr_tsc) {
    result = tsc + vmcb12_.control.tsc_offset;
    if (write) vmcb12_.control.tsc_offset = value - tsc;
  } else if (msr == msr_apic_base) {
    result = apic_.read_apic_base();
    if (write) {
      const apic::RegisterWrite effect = apic_.write_apic_base(value, tsc);
      fault = effect.effect == apic::WriteEffect::general_protection;
      if (!fault) written(effect, tsc);
    }
  }
  // Other MSRs are plain storage whose values reach no result.
  if (fault) return queue_exception(svm::exception_vector::general_protection, true);
  skip_instruction(tsc, result);
}

// What a write to L2's APIC leads to.
void GuestHypervisor::written(const apic::RegisterWrite& write, std::uint64_t tsc) {
  if (write.effect == apic::WriteEffect::ipi || write.effect == apic::WriteEffect::ipi_refused)
    send_ipi(write.command);
  if ((write.changed & apic::changed::timer) != 0) restart_timer(tsc);
  if ((write.changed & (apic::changed::addressing | apic::changed::enabling)) != 0)
    vm_->apics.update(index_, apic_.address());
}

// kvm_irq_delivery_to_apic: another vCPU's IRR is memory; its CPU is told by a reschedule IPI of L1, unless
// it looks by itself.
void GuestHypervisor::send_ipi(const apic::IcrCommand& command) {
  apic::route(
      vm_->apics, vm_->arbiter, command, index_,
      [&](std::size_t index) -> const apic::LocalApic& { return vm_->vcpus[index]->apic_; },
      [&](std::size_t index, const apic::IcrCommand& message) {
        if (!message.carries_vector()) return;
        GuestHypervisor& target = *vm_->vcpus[index];
        if (&target == this) {
          static_cast<void>(apic_.accept(message.vector, message.level_triggered));
          return;
        }
        target.incoming_.set(message.vector);
        if (target.where_ == Where::polling) {
          target.store_cycles_ = 0;
          reached_.push_back(static_cast<unsigned>(index));
        } else if (target.where_ != Where::host) {
          write_msr(code_, apic::msr_x2apic_icr, std::uint64_t{index} << 32 | reschedule_vector);
        }
      });
}

// start_apic_timer: L1's hrtimer is its own TSC deadline; 0 cancels.
void GuestHypervisor::restart_timer(std::uint64_t tsc) {
  timer_pending_ = false;
  const bool armed = apic_.timer().armed();
  const std::uint64_t expiry = armed ? apic_.next_timer_expiry(tsc) : apic::ApicTimer::never;
  if (expiry == apic::ApicTimer::never) return write_msr(code_, msr_tsc_deadline, 0);
  if (expiry > tsc) return write_msr(code_, msr_tsc_deadline, expiry);
  static_cast<void>(apic_.take_timer(tsc));
  timer_pending_ = true;
}

// An NPF that L0 has found to be L1's: a page without memory yet, or the instruction emulator.
void GuestHypervisor::handle_npf(std::uint64_t tsc) {
  const std::uint64_t address = vmcb12_.control.exit_info_2;
  if (lists(absent_pages_, address)) {
    absent_pages_.erase(std::remove_if(absent_pages_.begin(), absent_pages_.end(),
                                       [&](std::uint64_t page) { return (page >> 12) == (address >> 12); }),
                        absent_pages_.end());
    return;
  }
  const svm::GuestAction& action = *l2_->current();
  const bool write = action.kind == ActionKind::memory_write;
  std::uint64_t value = write ? action.operand[0] & bytes_mask(action.size) : bytes_mask(action.size);
  if ((address & page_mask) == apic_.base_address()) {
    const auto offset = static_cast<std::uint32_t>(address & ~page_mask);
    if (write) {
      written(apic_.write_mmio(offset, static_cast<std::uint32_t>(value), tsc, action.size), tsc);
    } else {
      value = apic_.read_mmio(offset, tsc, action.size).value;
    }
  } else {
    work(config_.cost.t_user_exit);
  }
  skip_instruction(tsc, value);
}

// A port of a device of L0 that L1 has given to L2 is written again by L1; others are L1's user space.
void GuestHypervisor::handle_io(std::uint64_t tsc) {
  const svm::GuestAction action = *l2_->current();
  skip_instruction(tsc, 0);
  const std::vector<workloads::GuestDevice>* devices = vm_->vcpus[0]->l2_->devices();
  const bool device = devices != nullptr && action.kind == ActionKind::out &&
                      std::any_of(devices->begin(), devices->end(),
                                  [&](const auto& each) { return each.notify_port == action.number; });
  if (!device) return work(config_.cost.t_user_exit);
  svm::GuestAction out = action;
  out.cpl = 0;
  out.rip = 0xffffffff81005000;
  code_.add(out);
}

void GuestHypervisor::handle_instruction(std::uint64_t code, std::uint64_t tsc) {
  if (code >= exit_code::exception(0) && code <= exit_code::exception(31)) {
    const auto vector = static_cast<std::uint8_t>(code - exit_code::exception(0));
    return queue_exception(vector, vector == svm::exception_vector::alignment_check);
  }
  const svm::GuestAction& action = *l2_->current();
  const auto intercept = static_cast<Intercept>(code);
  switch (intercept) {
    case Intercept::vmrun:  // L2 is offered no SVM
    case Intercept::vmload:
    case Intercept::vmsave:
    case Intercept::stgi:
    case Intercept::clgi:
    case Intercept::skinit:
    case Intercept::invlpga:
    case Intercept::rdpru:
    case Intercept::rsm:
      return queue_exception(svm::exception_vector::invalid_opcode, false);
    case Intercept::write_cr8:
      apic_.set_cr8(static_cast<std::uint8_t>(action.operand[0] & 0xfU));
      return skip_instruction(tsc, 0);
    case Intercept::write_cr4:
      vmcb12_.save.cr4 = action.operand[0];
      return skip_instruction(tsc, 0);
    case Intercept::read_cr4:
      return skip_instruction(tsc, vmcb12_.save.cr4);
    case Intercept::cr0_sel_write:
      if (action.kind == ActionKind::mov_to_cr) vmcb12_.save.cr0 = action.operand[0];
      return skip_instruction(tsc, 0);
    case Intercept::pause:  // kvm_vcpu_on_spin finds nobody to yield to
    case Intercept::wbinvd:
    case Intercept::invd:
    case Intercept::monitor:
    case Intercept::mwait:
    case Intercept::xsetbv:
    case Intercept::rdpmc:
    case Intercept::icebp:
      return skip_instruction(tsc, 0);
    default:
      break;
  }
  if (code >= 0x20 && code < 0x40) return skip_instruction(tsc, 0);  // DR accesses
  failure_ = fmt::format("the guest hypervisor stops at exit {} of its guest at rip {:#x}",
                         svm::exit_name_or_hex(code), vmcb12_.save.rip);
  halted_ = true;  // and nothing is left that could wake it
}

}  // namespace svmsim::model
