#include "model/exits_change.hpp"

#include <utility>

#include "model/hypervisor.hpp"

namespace svmsim::model {

ExitsChangeThread::ExitsChangeThread(const sc_core::sc_module_name& name, Hypervisor& hypervisor, Vcpu& vcpu,
                                     DisableExitsChange change, std::uint64_t at_cycles)
    : sc_core::sc_module(name),
      hypervisor_(hypervisor),
      vcpu_(vcpu),
      change_(std::move(change)),
      at_cycles_(at_cycles) {}

void ExitsChangeThread::timer_expired(PhysicalCpu& cpu, HostTimer&) {
  cpu.charge(cpu.costs().t_irq_host);
  cpu.synchronise();
  scheduler->wake(*this, &cpu, cpu.local());
}

void ExitsChangeThread::run(PhysicalCpu& cpu) {
  cpu.synchronise();
  if (cpu.local() < at_cycles_) {
    cpu.start_timer(alarm_, at_cycles_);
    state = State::blocked;
    scheduler->sleep(*this, cpu.local() + cpu.costs().t_sched_out);
    cpu.charge(cpu.costs().t_sched_out);
    return;
  }
  // Changes pile up on what an earlier one asked for.
  const DisabledExits before = vcpu_.requested_exits.value_or(vcpu_.disabled_exits);
  hypervisor_.request_disabled_exits(vcpu_, cpu, changed(before, change_));
  state = State::ended;
}

}  // namespace svmsim::model
