#include "model/guest/guest_kernel.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "model/guest/guest_cpu_source.hpp"
#include "model/units.hpp"
#include "svm/user_error.hpp"

namespace svmsim::model {

using workloads::TaskPhase;
using workloads::TaskSpec;
using workloads::TaskStep;
using workloads::TaskStepKind;

namespace {

// Where a guest's virtio devices have their notification ports, and the first vector the kernel hands out
// (arch/x86/include/asm/irq_vectors.h, FIRST_EXTERNAL_VECTOR, 20h, and behind it).
constexpr std::uint16_t first_notify_port = 0xc010;
constexpr std::uint16_t port_distance = 0x20;
constexpr std::uint8_t first_device_vector = 0x22;
constexpr std::size_t most_devices = 64;
constexpr std::uint64_t ns_per_second = 1'000'000'000;

template <typename Action>
void for_each_step(const TaskSpec& task, Action action) {
  for (const TaskPhase& phase : task.phases) {
    for (const TaskStep& step : phase.steps)
      action(step);
  }
}

SchedParameters sched_parameters(const GuestKernelConfig& config) {
  const std::uint64_t factor = SchedParameters::factor(config.platform.apic.cpus);
  SchedParameters parameters;
  parameters.tick_ns = ns_per_second / config.os.hz;
  parameters.base_slice_ns *= factor;
  parameters.latency_ns *= factor;
  parameters.min_granularity_ns *= factor;
  parameters.wakeup_granularity_ns *= factor;
  return parameters;
}

std::vector<Problem> check(const GuestKernelConfig& config, const workloads::TaskSet& set) {
  std::vector<Problem> problems;
  const unsigned cpus = config.platform.apic.cpus;
  if (set.cpus_needed > cpus) {
    problems.push_back(
        {"", 0, "tasks",
         fmt::format("the task set names CPU {}, but the VM has {} vCPUs", set.cpus_needed - 1, cpus),
         std::to_string(set.cpus_needed)});
  }
  if (set.devices.size() > most_devices) {
    problems.push_back({"", 0, "tasks", fmt::format("more than {} devices", most_devices), ""});
  }
  return problems;
}

}  // namespace

GuestKernel::GuestKernel(GuestKernelConfig config, workloads::TaskSet set)
    : config_(std::move(config)), set_(std::move(set)) {
  if (auto problems = check(config_, set_); !problems.empty()) throw UserError(std::move(problems));
  const SchedParameters parameters = sched_parameters(config_);
  for (unsigned i = 0; i < cpus(); ++i)
    cpus_.push_back(std::make_unique<GuestCpuShared>(config_.algorithm, parameters));
  barriers_.resize(set_.barriers.size());
  locks_.resize(set_.locks.size());
  unsigned next_cpu = 0;
  for (unsigned index = 0; index < set_.tasks.size(); ++index) {
    const TaskSpec& spec = set_.tasks[index];
    std::vector<bool> uses(barriers_.size(), false);
    for_each_step(spec, [&](const TaskStep& step) {
      if (step.kind == TaskStepKind::barrier) uses[step.object] = true;
    });
    for (unsigned instance = 0; instance < spec.instances; ++instance) {
      auto task = std::make_unique<GuestTask>();
      task->spec = &spec;
      task->spec_index = index;
      task->policy = spec.fifo ? SchedPolicy::fifo : SchedPolicy::other;
      task->rt_priority = static_cast<std::uint8_t>(spec.rt_priority == 0 ? 1 : spec.rt_priority);
      task->weight = weight_of_nice(spec.nice);
      // A new task goes to the idlest CPU: round robin over those it may use.
      task->cpu = spec.cpus.empty() ? next_cpu++ % cpus() : spec.cpus[instance % spec.cpus.size()];
      for (std::size_t b = 0; b < uses.size(); ++b)
        barriers_[b].size += uses[b] ? 1U : 0U;
      tasks_.push_back(std::move(task));
    }
  }
  tasks_left_ = tasks_.size();
  for (std::size_t i = 0; i < set_.devices.size(); ++i) {
    const workloads::TaskDevice& spec = set_.devices[i];
    workloads::GuestDevice device;
    device.name = spec.name;
    device.notify_port = static_cast<std::uint16_t>(first_notify_port + i * port_distance);
    device.vector = static_cast<std::uint8_t>(first_device_vector + i);
    device.cpu = spec.cpu == workloads::TaskDevice::any_cpu ? workloads::GuestDevice::submitter : spec.cpu;
    device.latency_cycles = to_cycles(spec.latency_ns);
    device.jitter_cycles = to_cycles(spec.jitter_ns);
    devices_.push_back(std::move(device));
  }
  device_queues_.resize(devices_.size());
}

std::unique_ptr<workloads::WorkloadSource> GuestKernel::source(unsigned vcpu) {
  return std::make_unique<GuestCpuSource>(shared_from_this(), vcpu);
}

std::uint64_t GuestKernel::to_ns(std::uint64_t cycles) const {
  return cycles_to_ns(cycles, config_.platform.tsc_hz);
}
std::uint64_t GuestKernel::to_cycles(std::uint64_t ns) const {
  return ns_to_cycles(ns, config_.platform.tsc_hz);
}

// select_idle_sibling: where it ran, if that is idle; the waker's CPU; any idle one; where it ran.
unsigned GuestKernel::select_cpu(const GuestTask& task, unsigned waker) const {
  const TaskPhase& phase = task.spec->phases[task.phase];
  const std::vector<unsigned>& allowed = phase.cpus.empty() ? task.spec->cpus : phase.cpus;
  const auto may = [&](unsigned cpu) {
    return allowed.empty() || std::binary_search(allowed.begin(), allowed.end(), cpu);
  };
  const auto idle = [&](unsigned cpu) {
    const GuestCpuShared& shared = *cpus_[cpu];
    return shared.online && shared.current == nullptr && shared.queue.nr_running() == 0;
  };
  if (may(task.cpu) && idle(task.cpu)) return task.cpu;
  if (may(waker) && idle(waker)) return waker;
  if (allowed.empty()) {
    for (unsigned cpu = 0; cpu < cpus(); ++cpu) {
      if (idle(cpu)) return cpu;
    }
    return task.cpu;
  }
  for (const unsigned cpu : allowed) {
    if (idle(cpu)) return cpu;
  }
  return may(task.cpu) ? task.cpu : allowed.front();
}

void GuestKernel::end_task(GuestTask& task) {
  task.ended = true;
  --tasks_left_;
}

std::vector<GuestTask*> GuestKernel::barrier(unsigned index, GuestTask& task, bool& waits) {
  Barrier& barrier = barriers_[index];
  waits = barrier.waiting.size() + 1 < barrier.size;
  if (waits) {
    barrier.waiting.push_back(&task);
    return {};
  }
  return std::exchange(barrier.waiting, {});
}

bool GuestKernel::lock(unsigned index, GuestTask& task) {
  Lock& lock = locks_[index];
  if (lock.owner == nullptr) {
    lock.owner = &task;
    return true;
  }
  lock.waiting.push_back(&task);
  return false;
}

GuestTask* GuestKernel::unlock(unsigned index) {
  Lock& lock = locks_[index];
  lock.owner = nullptr;
  if (lock.waiting.empty()) return nullptr;
  GuestTask* next = lock.waiting.front();
  lock.waiting.pop_front();
  lock.owner = next;
  return next;
}

}  // namespace svmsim::model
