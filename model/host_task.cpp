#include "model/host_task.hpp"

#include <utility>

#include "model/physical_cpu.hpp"

namespace svmsim::model {

HostTask::HostTask(const sc_core::sc_module_name& name, std::vector<Phase> phases, std::uint64_t loops,
                   std::uint64_t warmup_cycles)
    : sc_core::sc_module(name), phases_(std::move(phases)), loops_(loops), warmup_cycles_(warmup_cycles) {}

// hrtimer_wakeup.
void HostTask::timer_expired(PhysicalCpu& cpu, HostTimer& timer) {
  cpu.charge(cpu.costs().t_irq_host);
  cpu.synchronise();
  slept_until_ = timer.expires_cycles() + 1;
  scheduler->wake(*this, &cpu, cpu.local());
}

void HostTask::sched_in(PhysicalCpu& cpu) {
  if (slept_until_ == 0) return;
  if (warm(cpu.local())) wakeup_latency_.record(cpu.local() - (slept_until_ - 1));
  slept_until_ = 0;
}

void HostTask::run(PhysicalCpu& cpu) {
  cpu.account(CpuTime::task);
  while (!cpu.at_end()) {
    if (!begun_) {
      begun_ = true;
      left_ = phases_[phase_].run_cycles;
    }
    const std::uint64_t before = left_;
    left_ = cpu.host_work(left_);
    if (warm(cpu.local())) ran_ += before - left_;
    if (left_ == 0 && !finish_phase(cpu)) return;
    cpu.synchronise();
    if (cpu.need_resched()) return;
  }
}

bool HostTask::finish_phase(PhysicalCpu& cpu) {
  const Phase& phase = phases_[phase_];
  begun_ = false;
  phase_ = (phase_ + 1) % phases_.size();
  cpu.synchronise();
  if (phase_ == 0) {
    ++loops_done_;
    if (loops_ != 0 && loops_done_ == loops_) {
      state = State::ended;
      return false;
    }
  }
  std::uint64_t until = cpu.local() + phase.sleep_cycles;
  if (phase.period_cycles != 0) {
    if (next_period_ == 0) next_period_ = cpu.local() - (cpu.local() % phase.period_cycles);
    next_period_ += phase.period_cycles;
    until = next_period_;
  }
  if (until <= cpu.local()) return true;
  cpu.account(CpuTime::host);
  cpu.start_timer(timer_, until);
  state = State::blocked;
  scheduler->sleep(*this, cpu.local() + cpu.costs().t_sched_out);
  cpu.charge(cpu.costs().t_sched_out);
  return false;
}

}  // namespace svmsim::model
