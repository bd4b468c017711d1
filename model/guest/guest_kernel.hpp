#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "model/guest/guest_config.hpp"
#include "model/policy/run_queue.hpp"
#include "workloads/guest/guest_platform.hpp"
#include "workloads/guest/pv_memory.hpp"
#include "workloads/tasks/task_set.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::model {

/// The guest kernel and its machine.
struct GuestKernelConfig {
  workloads::GuestPlatform platform;
  GuestKernelCosts costs;
  GuestOsConfig os;
  bool poll_control = false;  ///< the haltpoll driver turns host polling off (KVM_FEATURE_POLL_CONTROL)
  bool tsc_deadline = true;   ///< CPUID.1:ECX[24]; otherwise the timer counts TMICT
  FairAlgorithm algorithm = FairAlgorithm::eevdf;
};

/// A task of the guest: one instance of a TaskSpec.
struct GuestTask : SchedEntity {
  const workloads::TaskSpec* spec = nullptr;
  unsigned spec_index = 0;
  unsigned cpu = 0;  ///< where it runs, waits to run, or ran last
  bool asleep = false;
  bool ended = false;

  // Where it is.
  std::size_t phase = 0;
  std::size_t step = 0;
  std::uint64_t phase_round = 0;
  std::uint64_t compute_left = 0;  ///< cycles of its run step that are still to do
  bool suspended = false;          ///< asleep in a suspend
  bool resumed = false;            ///< a resume came before the suspend
  bool completed = false;          ///< its I/O request is done
  bool holds_timer = false;
  std::uint64_t timer_next = 0;  ///< cycle of its periodic timer

  // What it has done.
  std::uint64_t rounds = 0;
  std::uint64_t began = 0;     ///< cycle of its first run; of the round in progress
  std::uint64_t ended_at = 0;  ///< cycle at which its last round ended
  std::uint64_t woken_at = 0;  ///< + 1; 0 = not on its way from a wake-up to running
  std::uint64_t wakeups = 0;
  std::uint64_t wake_latency = 0;  ///< cycles, summed
  std::uint64_t wake_latency_max = 0;
  std::uint64_t computed = 0;  ///< cycles of completed run steps
};

/// A call of smp_call_function with its waiter.
struct GuestCall {
  unsigned caller = 0;
  unsigned outstanding = 0;        ///< targets whose csd is locked
  std::uint64_t completed_at = 0;  ///< the last unlock becomes visible to the caller
};

/// What other CPUs of the guest see of one.
struct GuestCpuShared {
  GuestCpuShared(FairAlgorithm algorithm, const SchedParameters& parameters) : queue(algorithm, parameters) {}

  static constexpr std::uint64_t never = workloads::WorkloadSource::never_ready;

  RunQueue queue;
  bool online = false;                 ///< it has booted; before, no task is sent to it
  GuestTask* current = nullptr;        ///< nullptr = the idle task
  bool polling = false;                ///< TIF_POLLING_NRFLAG of the idle task
  std::uint64_t told_at = never;       ///< polling: when what was stored for it becomes visible
  std::vector<GuestCall*> call_queue;  ///< call_single_queue
  const workloads::PvMemory* pv = nullptr;
};

/// A request queue of a device, as guest and device share it.
struct GuestDeviceQueue {
  std::deque<GuestTask*> waiting;  ///< in the order of submission; the device completes in that order
  std::uint64_t taken = 0;         ///< completions that the guest has seen
};

/// A Linux guest with a task set on it: what all its CPUs share (kvm-software.md 11). One GuestCpuSource per
/// vCPU executes it.
///
/// Models the fair and FIFO classes per CPU, wake-up to an idle CPU of the task's affinity, reschedule and
/// call-function IPIs with the polling flag, mutexes, barriers, and devices that answer by interrupt. Leaves
/// out load balancing of running tasks, softirqs, RCU, memory, and everything that makes no exit and takes no
/// time.
class GuestKernel final : public workloads::GuestVm, public std::enable_shared_from_this<GuestKernel> {
 public:
  GuestKernel(GuestKernelConfig config, workloads::TaskSet set);

  [[nodiscard]] std::unique_ptr<workloads::WorkloadSource> source(unsigned vcpu) override;

  [[nodiscard]] const GuestKernelConfig& config() const noexcept { return config_; }
  [[nodiscard]] const workloads::TaskSet& set() const noexcept { return set_; }
  [[nodiscard]] unsigned cpus() const noexcept { return config_.platform.apic.cpus; }
  [[nodiscard]] GuestCpuShared& cpu(unsigned index) { return *cpus_[index]; }
  [[nodiscard]] const std::vector<std::unique_ptr<GuestTask>>& tasks() const noexcept { return tasks_; }
  [[nodiscard]] bool ended() const noexcept { return tasks_left_ == 0; }

  [[nodiscard]] std::uint64_t to_ns(std::uint64_t cycles) const;
  [[nodiscard]] std::uint64_t to_cycles(std::uint64_t ns) const;

  /// select_task_rq: where a task that wakes shall run.
  [[nodiscard]] unsigned select_cpu(const GuestTask& task, unsigned waker) const;
  void end_task(GuestTask& task);

  /// A task comes to a barrier: those that it releases, itself not among them; `waits` when it must sleep.
  std::vector<GuestTask*> barrier(unsigned index, GuestTask& task, bool& waits);
  /// False when the task must sleep.
  bool lock(unsigned index, GuestTask& task);
  /// The next owner, to be woken; nullptr when nobody waits.
  GuestTask* unlock(unsigned index);

  [[nodiscard]] std::vector<workloads::GuestDevice>& devices() noexcept { return devices_; }
  [[nodiscard]] workloads::GuestDevice& device(unsigned index) { return devices_[index]; }
  [[nodiscard]] GuestDeviceQueue& device_queue(unsigned index) { return device_queues_[index]; }

 private:
  friend class GuestCpuSource;
  struct Barrier {
    std::size_t size = 0;  ///< tasks that use it
    std::vector<GuestTask*> waiting;
  };
  struct Lock {
    GuestTask* owner = nullptr;
    std::deque<GuestTask*> waiting;
  };

  GuestKernelConfig config_;
  workloads::TaskSet set_;
  std::vector<std::unique_ptr<GuestCpuShared>> cpus_;
  std::vector<std::unique_ptr<GuestTask>> tasks_;
  std::vector<Barrier> barriers_;
  std::vector<Lock> locks_;
  std::vector<workloads::GuestDevice> devices_;
  std::vector<GuestDeviceQueue> device_queues_;
  std::size_t tasks_left_ = 0;
};

}  // namespace svmsim::model
