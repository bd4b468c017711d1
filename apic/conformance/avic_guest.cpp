// GuestCpu and AvicCore in one case: the event "guest" of [[avic]].

#include "apic/conformance/avic_guest.hpp"

#include "apic/conformance/avic_machine.hpp"
#include "apic/conformance/avic_sink.hpp"
#include "svm/conformance/settings.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::apic::conformance {

void AvicGuestEnvironment::avic_vmrun(const svm::VmcbControl& control) {
  machine_.core_of(index_).vmrun(control, machine_.memory());
}
void AvicGuestEnvironment::avic_entered() {
  machine_.core_of(index_).entered();
}
void AvicGuestEnvironment::avic_vmexit() {
  machine_.core_of(index_).vmexit();
}
int AvicGuestEnvironment::avic_pending() {
  return machine_.core_of(index_).pending();
}
int AvicGuestEnvironment::avic_acknowledge() {
  return machine_.core_of(index_).acknowledge();
}
void AvicGuestEnvironment::avic_write_cr8(std::uint8_t cr8) {
  machine_.core_of(index_).write_cr8(cr8);
}
svm::AvicAccess AvicGuestEnvironment::avic_read_msr(std::uint32_t msr) {
  return machine_.core_of(index_).read_msr(msr);
}
svm::AvicAccess AvicGuestEnvironment::avic_read_page(std::uint32_t offset) {
  return machine_.core_of(index_).read_page(offset);
}
int AvicGuestEnvironment::avic_highest_irr() {
  return machine_.core_of(index_).highest_irr();
}
std::uint8_t AvicGuestEnvironment::avic_ppr() {
  return machine_.core_of(index_).ppr();
}

// Doorbells reach the other cores when the instruction has ended.
svm::AvicAccess AvicGuestEnvironment::avic_write_msr(std::uint32_t msr, std::uint64_t value) {
  return machine_.while_ringing([&] {
    AvicSink sink(machine_);
    return svm::AvicAccess(machine_.core_of(index_).write_msr(msr, value, sink));
  });
}
svm::AvicAccess AvicGuestEnvironment::avic_write_page(std::uint32_t offset, std::uint32_t value) {
  return machine_.while_ringing([&] {
    AvicSink sink(machine_);
    return svm::AvicAccess(machine_.core_of(index_).write_page(offset, value, sink));
  });
}

AvicGuest& AvicMachine::guest_of(std::size_t index) {
  std::unique_ptr<AvicGuest>& guest = vcpus_[index].guest;
  if (guest == nullptr) {
    svm::conformance::Case processor{svm::conformance::CaseIdentity{}};
    processor.features = svm::conformance::every_feature();
    processor.knobs = setup_.core_knobs;
    guest = std::make_unique<AvicGuest>(*this, index, processor);
    svm::VmcbControl& control = guest->driver.vmcb.control;
    for (const svm::Intercept intercept : setup_.intercepts)
      set_intercept(control, intercept, true);
    set_avic_fields(index, control);
    if (setup_.interrupts_enabled) guest->driver.vmcb.save.rflags |= svm::rflags::interrupt;
  }
  return *guest;
}

// A whole guest runs: VMRUN if it is not in guest mode, and its program until it exits, halts or has no more
// actions.
void AvicMachine::run_guest(std::size_t index, const svm::conformance::CaseRun& run) {
  Vcpu& vcpu = vcpus_[index];
  if (vcpu.guest == nullptr && vcpu.core.active()) {
    outcome_.impossible = fmt::format("vCPU {} is in guest mode without a program", index);
    return;
  }
  svm::conformance::GuestDriver& driver = guest_of(index).driver;
  const bool inside = driver.cpu.in_guest_mode();
  if (inside && (!run.vmcb.fields.empty() || !run.vmcb.intercepts.empty())) {
    outcome_.impossible = fmt::format("vCPU {} is in guest mode: its VMCB cannot be changed", index);
    return;
  }
  driver.trace.clear();
  inside ? driver.go_on(run.program.value_or(svm::conformance::Program{})) : driver.run(run);
  vcpu.halted = driver.cpu.in_guest_mode() && driver.cpu.halted();
  outcome_.delivered.assign(driver.delivered.begin(), driver.delivered.end());
  outcome_.effect = driver.exited ? "without_avic" : "entered";
  const svm::Vmcb& vmcb = driver.vmcb;
  outcome_.rip_after = (driver.exited ? vmcb.save.rip : driver.cpu.rip()) == driver.last_next_rip &&
                       driver.last_next_rip != driver.last_rip;
  outcome_.v_tpr = driver.exited ? svm::int_ctl::v_tpr(static_cast<std::uint32_t>(vmcb.control.int_ctl))
                                 : driver.cpu.v_tpr();
  vcpu.v_tpr = static_cast<std::uint8_t>(outcome_.v_tpr);
  if (driver.result) outcome_.value = *driver.result;
  if (!driver.exited) return;
  outcome_.exit = vmcb.control.exit_code;
  outcome_.exit_info_1 = vmcb.control.exit_info_1;
  outcome_.exit_info_2 = vmcb.control.exit_info_2;
  outcome_.nrip_is_next = vmcb.control.next_rip == driver.last_next_rip;
}

}  // namespace svmsim::apic::conformance
