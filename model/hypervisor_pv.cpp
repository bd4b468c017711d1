// What KVM offers its guests beyond hardware: hypercalls, PV EOI, the steal-time page (arch/x86/kvm/x86.c,
// lapic.c; kvm-software.md 4).

#include "apic/icr.hpp"
#include "model/config/pv.hpp"
#include "model/hypervisor.hpp"
#include "svm/exit_code.hpp"
#include "workloads/guest/apic_driver.hpp"
#include "workloads/guest/pv_memory.hpp"

namespace svmsim::model {

using workloads::EventKind;
namespace hypercall = workloads::kvm_hypercall;
namespace kvm_msr = workloads::kvm_msr;

namespace {

// Error numbers of include/uapi/linux/kvm_para.h.
constexpr std::uint64_t minus(std::uint64_t error) {
  return 0 - error;
}
constexpr std::uint64_t kvm_enosys = 1000;
constexpr std::uint64_t kvm_einval = 22;
constexpr std::uint64_t kvm_eperm = 1;

constexpr std::uint64_t icr_destination_mode = 1U << 11;
constexpr std::uint64_t icr_shorthand = 3U << 18;

}  // namespace

// guest_pv_has: without KVM_CAP_ENFORCE_PV_FEATURE_CPUID everything is served, advertised or not.
bool Hypervisor::guest_pv_has(const Vcpu& vcpu, std::uint32_t feature) {
  return !vcpu.vm.pv.enforce_cpuid || (vcpu.vm.pv.features & feature) != 0;
}

// kvm_emulate_hypercall.
void Hypervisor::handle_hypercall(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.charge(cost_.h_vmmcall);
  const svm::GuestAction& action = *vcpu.source->current();
  const auto& argument = action.operand;
  trace(cpu, vcpu, EventKind::kvm_hypercall, action.number, argument[0], argument[1], argument[2],
        argument[3]);
  std::uint64_t result = minus(kvm_enosys);
  if (action.cpl > 0) {
    result = minus(kvm_eperm);
  } else {
    switch (action.number) {
      case hypercall::vapic_poll_irq:
        result = 0;
        break;
      case hypercall::kick_cpu:
        if (!guest_pv_has(vcpu, kvm_feature::pv_unhalt)) break;
        pv_kick_cpu_op(vcpu, cpu, static_cast<std::uint32_t>(argument[1]));
        sched_yield(vcpu, cpu, static_cast<std::uint32_t>(argument[1]));
        result = 0;
        break;
      case hypercall::send_ipi:
        if (!guest_pv_has(vcpu, kvm_feature::pv_send_ipi)) break;
        ++vcpu.hypercall_ipis;
        result = pv_send_ipi(vcpu, cpu, argument);
        break;
      case hypercall::sched_yield:
        if (!guest_pv_has(vcpu, kvm_feature::pv_sched_yield)) break;
        sched_yield(vcpu, cpu, static_cast<std::uint32_t>(argument[0]));
        result = 0;
        break;
      default:
        break;
    }
  }
  ++vcpu.stats.hypercalls;
  skip_instruction(vcpu, cpu, result);
}

// kvm_pv_send_ipi. The destination is a bitmap; a destination mode or a shorthand beside it makes no sense.
std::uint64_t Hypervisor::pv_send_ipi(Vcpu& vcpu, PhysicalCpu& cpu,
                                      const std::array<std::uint64_t, 4>& argument) {
  const std::uint64_t icr = argument[3];
  if ((icr & (icr_destination_mode | icr_shorthand)) != 0) return minus(kvm_einval);
  cpu.charge(cost_.h_pv_ipi);
  apic::IcrCommand message = apic::IcrCommand::from_x2apic(icr & 0xffffffffU);
  const auto first = static_cast<std::uint32_t>(argument[2]);
  constexpr std::uint32_t bits = 64;
  std::uint64_t count = 0;
  cpu.synchronise();
  for (std::uint32_t half = 0; half < 2; ++half) {
    for (std::uint64_t left = argument[half]; left != 0; left &= left - 1) {
      const std::uint32_t id = first + half * bits + static_cast<std::uint32_t>(__builtin_ctzll(left));
      const std::int32_t target = vcpu.vm.apics.index_of(id);
      if (target < 0) continue;
      message.destination = id;
      if (accept_irq(*vcpu.vm.vcpus[static_cast<std::size_t>(target)], cpu, &vcpu, message)) ++count;
    }
  }
  return count;
}

// kvm_pv_kick_cpu_op: a message of the type remote read, which KVM uses for nothing else.
void Hypervisor::pv_kick_cpu_op(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t apic_id) {
  apic::IcrCommand message;
  message.delivery = apic::DeliveryMode::remote_read;
  message.destination = apic_id;
  cpu.synchronise();
  static_cast<void>(irq_delivery_to_apic(vcpu.vm, cpu, &vcpu, message));
}

// kvm_sched_yield: only where something else waits for this pCPU, and the target waits for its own.
void Hypervisor::sched_yield(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t apic_id) {
  cpu.synchronise();
  ++vcpu.stats.directed_yield_attempted;
  if (scheduler->single_task_running(cpu.index())) return;
  const std::int32_t index = vcpu.vm.apics.index_of(apic_id);
  if (index < 0) return;
  Vcpu& target = *vcpu.vm.vcpus[static_cast<std::size_t>(index)];
  if (&target == &vcpu || !target.ready) return;
  if (scheduler->yield_to(cpu, target) > 0) ++vcpu.stats.directed_yield_successful;
}

// kvm_set_msr_common and kvm_get_msr_common, the MSRs of PV features. Returns whether the access is #GP(0).
bool Hypervisor::pv_msr(Vcpu& vcpu, std::uint32_t msr, bool write, std::uint64_t& value) {
  PvState& pv = vcpu.pv;
  switch (msr) {
    case kvm_msr::pv_eoi_en: {
      if (!guest_pv_has(vcpu, kvm_feature::pv_eoi)) return true;
      constexpr std::uint64_t unaligned = 3;
      if (write) {
        if ((value & ~kvm_msr::enabled & unaligned) != 0) return true;  // kvm_lapic_set_pv_eoi
        pv.eoi_msr = value;
      }
      value = pv.eoi_msr;
      return false;
    }
    case kvm_msr::poll_control:
      if (!guest_pv_has(vcpu, kvm_feature::poll_control)) return true;
      if (write) {
        if (value > 1) return true;
        pv.poll_control = value;
      }
      value = pv.poll_control;
      return false;
    case kvm_msr::steal_time:
      if (!guest_pv_has(vcpu, kvm_feature::steal_time)) return true;
      if (write) {
        constexpr std::uint64_t reserved = 0x3e;
        if ((value & reserved) != 0) return true;
        pv.steal_msr = value;
      }
      value = pv.steal_msr;
      return false;
    default:
      return true;
  }
}

// kvm_arch_vcpu_put, kvm_steal_time_set_preempted: only a vCPU that an interrupt took out of the guest is
// known to be at an instruction boundary.
void Hypervisor::steal_time_set_preempted(Vcpu& vcpu, PhysicalCpu& cpu) {
  vcpu.pv.descheduled_at = cpu.local() + 1;
  if (!vcpu.at_instruction_boundary) {
    ++vcpu.stats.preemption_other;
    return;
  }
  ++vcpu.stats.preemption_reported;
  if ((vcpu.pv.steal_msr & kvm_msr::enabled) != 0) vcpu.pv.memory.preempted = true;
}

// record_steal_time, at the first entry after the thread was scheduled in.
void Hypervisor::record_steal_time(Vcpu& vcpu, PhysicalCpu& cpu) {
  cpu.synchronise();
  if ((vcpu.pv.steal_msr & kvm_msr::enabled) != 0) {
    vcpu.pv.memory.preempted = false;
    vcpu.pv.memory.steal_ns += to_ns(cpu.local() - (vcpu.pv.descheduled_at - 1));
  }
  vcpu.pv.descheduled_at = 0;
}

// apic_sync_pv_eoi_to_guest: the guest may leave out its EOI when nothing can come of it, which is so when
// one vector is in service, none is requested, and no I/O APIC waits for the EOI. highest_isr_cache knows the
// vector from its injection to the next EOI and not beyond.
void Hypervisor::sync_pv_eoi_to_guest(Vcpu& vcpu) {
  const int vector = vcpu.pv.highest_isr_cache;
  if (vector < 0 || vcpu.apic().highest_irr() >= 0) return;
  if (vcpu.apic().tmr().test(static_cast<std::uint8_t>(vector))) return;
  vcpu.pv.memory.eoi = true;
  vcpu.pv.eoi_pending = true;
}

// apic_sync_pv_eoi_from_guest: a flag that the guest has cleared was its EOI; one that still stands is taken
// back, since KVM may be about to make a second interrupt pending.
void Hypervisor::sync_pv_eoi_from_guest(Vcpu& vcpu, PhysicalCpu& cpu) {
  vcpu.pv.eoi_pending = false;
  if (vcpu.pv.memory.eoi) {
    vcpu.pv.memory.eoi = false;
    return;
  }
  cpu.charge(cost_.h_pv_eoi);
  cpu.synchronise();
  const apic::EndOfInterrupt eoi = vcpu.apic().eoi();
  trace(cpu, vcpu, EventKind::kvm_eoi, vcpu.index, eoi.vector);
  vcpu.pv.highest_isr_cache = -1;
  vcpu.requests |= request::event;
  trace(cpu, vcpu, EventKind::kvm_pv_eoi, vcpu.index, eoi.vector);
}

}  // namespace svmsim::model
