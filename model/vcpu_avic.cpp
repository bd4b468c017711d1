// AVIC as the hardware does it while a vCPU is in guest mode: GuestCpu's questions, answered by the vCPU's
// AvicCore (svm-hardware.md 8). The backing pages and tables are shared: whoever reads or writes them first
// synchronises.

#include "model/hypervisor.hpp"
#include "model/vcpu.hpp"
#include "model/vm.hpp"

namespace svmsim::model {

namespace {

constexpr std::uint32_t shorthand_mask = 3U << 18;
constexpr std::uint32_t shorthand_self = 1U << 18;

/// Hears of an IPI while the hardware carries it out, at one moment: nobody acts in between.
class IpiWatcher : public apic::IpiSink {
 public:
  IpiWatcher(Vcpu& sender, PhysicalCpu& cpu, InterruptFabricInterface& fabric) noexcept
      : sender_(sender), cpu_(cpu), fabric_(fabric), knobs_(sender.vm.avic->options) {}

  void requested(std::uint32_t guest_id, std::uint8_t vector, bool merged) noexcept {
    ++targets_;
    Vcpu& target = *sender_.vm.vcpus[guest_id];
    if (!merged) target.ipi_sent_cycles[vector] = cpu_.local() + 1;
    if (target.polling) {
      target.notice_while_polling(cpu_);
      notified_ = true;
    }
  }
  [[nodiscard]] apic::PhysicalIdEntry observe(std::uint32_t guest_id,
                                              apic::PhysicalIdEntry current) const noexcept {
    if (!knobs_.stale_is_running) return current;
    return sender_.vm.avic->stale.observe(guest_id, current, cpu_.local());
  }
  void doorbell(std::uint32_t host_apic_id) {
    fabric_.send(host_apic_id, ArrivalKind::doorbell, cpu_.local());
    notified_ = true;
  }

  [[nodiscard]] unsigned targets() const noexcept { return targets_; }
  [[nodiscard]] bool notified() const noexcept { return notified_; }

 private:
  Vcpu& sender_;
  PhysicalCpu& cpu_;
  InterruptFabricInterface& fabric_;
  const AvicVm::Options& knobs_;
  unsigned targets_ = 0;
  bool notified_ = false;
};

}  // namespace

void Vcpu::notice_while_polling(PhysicalCpu& by) {
  if (wake_cause_cycles == 0) wake_cause_cycles = by.local() + 1;
  poll_event.notify(delay_until(pcpu->moment_of(by.local() + 1)));
}

void Vcpu::avic_pull() noexcept {
  avic->pull(apic_unit.state());
}

void Vcpu::avic_adopt_page() noexcept {
  avic->pull(apic_unit.state());
  for (std::uint32_t word = 0; word < 8; ++word)
    avic->page->write(apic::APIC_IRR + 0x10 * word, 0);
}

void Vcpu::avic_post(std::uint8_t vector) {
  pcpu->synchronise();
  avic->page->request(vector);
  if (!avic->in_guest) return;
  avic->core.doorbell(guest.halted());
  guest.avic_evaluated();
}

void Vcpu::Environment::avic_vmrun(const svm::VmcbControl& control) {
  PhysicalCpu& cpu = *vcpu_.pcpu;
  cpu.synchronise();
  vcpu_.avic->enter(vcpu_.apic_unit.state());
  vcpu_.avic->core.vmrun(control, vcpu_.vm.avic->memory);
}

void Vcpu::Environment::avic_entered() {
  vcpu_.avic->core.entered();
}

void Vcpu::Environment::avic_vmexit() {
  vcpu_.avic->leave(vcpu_.apic_unit.state());
  vcpu_.avic->core.vmexit();
}

int Vcpu::Environment::avic_pending() {
  if (vcpu_.hypervisor_.host().knobs.snoops_irr_writes) vcpu_.pcpu->synchronise();
  return vcpu_.avic->core.pending();
}

int Vcpu::Environment::avic_acknowledge() {
  vcpu_.pcpu->synchronise();
  const int vector = vcpu_.avic->core.acknowledge();
  if (vector >= 0) {
    vcpu_.injected_ipi_sent_cycles =
        std::exchange(vcpu_.ipi_sent_cycles[static_cast<std::size_t>(vector)], 0);
  }
  return vector;
}

void Vcpu::Environment::avic_write_cr8(std::uint8_t cr8) {
  vcpu_.pcpu->synchronise();
  vcpu_.avic->core.write_cr8(cr8);
}

// The time of a register access passes before its effect, that of further targets behind it.
template <typename Access>
svm::AvicAccess Vcpu::Environment::avic_write(std::uint32_t offset, std::uint64_t value, Access&& access) {
  PhysicalCpu& cpu = *vcpu_.pcpu;
  const Costs& cost = cpu.costs();
  const bool icr = offset == apic::APIC_ICR;
  const bool self = offset == apic::APIC_SELF_IPI || (icr && (value & shorthand_mask) == shorthand_self);
  cpu.guest_charge(self ? cost.u_avic_self : icr ? cost.u_avic_icr : cost.u_avic_access);
  cpu.synchronise();
  IpiWatcher watcher(vcpu_, cpu, *vcpu_.hypervisor_.fabric.operator->());
  const svm::AvicAccess result = access(watcher);
  if (watcher.notified()) cpu.notified_others();
  if (icr && !self && result.outcome == svm::AvicOutcome::done) cpu.guest_charge(cost.u_avic_icr_end);
  if (watcher.targets() > 1) cpu.guest_charge((watcher.targets() - 1) * cost.u_avic_target);
  return result;
}

svm::AvicAccess Vcpu::Environment::avic_write_msr(std::uint32_t msr, std::uint64_t value) {
  return avic_write(apic::x2apic_offset(msr), value,
                    [&](IpiWatcher& watcher) { return vcpu_.avic->core.write_msr(msr, value, watcher); });
}

svm::AvicAccess Vcpu::Environment::avic_write_page(std::uint32_t offset, std::uint32_t value) {
  return avic_write(offset, value,
                    [&](IpiWatcher& watcher) { return vcpu_.avic->core.write_page(offset, value, watcher); });
}

svm::AvicAccess Vcpu::Environment::avic_read_msr(std::uint32_t msr) {
  vcpu_.pcpu->guest_charge(vcpu_.pcpu->costs().u_avic_access);
  vcpu_.pcpu->synchronise();
  return vcpu_.avic->core.read_msr(msr);
}

svm::AvicAccess Vcpu::Environment::avic_read_page(std::uint32_t offset) {
  vcpu_.pcpu->guest_charge(vcpu_.pcpu->costs().u_avic_access);
  vcpu_.pcpu->synchronise();
  return vcpu_.avic->core.read_page(offset);
}

int Vcpu::Environment::avic_highest_irr() {
  vcpu_.pcpu->synchronise();
  return vcpu_.avic->core.highest_irr();
}

std::uint8_t Vcpu::Environment::avic_ppr() {
  return vcpu_.avic->core.ppr();
}

}  // namespace svmsim::model
