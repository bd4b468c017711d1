#pragma once

#include <cstdint>
#include <string>
#include <systemc>

#include "model/policy/cpu_set.hpp"
#include "model/policy/sched_entity.hpp"

namespace svmsim::model {

class PhysicalCpu;

/// What reaches a physical CPU asynchronously.
enum class ArrivalKind : std::uint8_t {
  reschedule,    ///< host RESCHEDULE IPI (vector 0xfd): a kick, or a wake-up of an idle or busy pCPU
  doorbell,      ///< AVIC's: no interrupt, and nothing to a core that is not in guest mode
  sibling_busy,  ///< no interrupt: the SMT sibling runs something from now on
  sibling_idle,  ///< no interrupt: it does not any more
};

struct Arrival {
  std::uint64_t time = 0;  ///< cycle at which the interrupt becomes pending at the pCPU
  std::uint64_t sequence = 0;
  ArrivalKind kind = ArrivalKind::reschedule;
};

/// The receiving side of one pCPU.
class ArrivalInterface : public virtual sc_core::sc_interface {
 public:
  virtual void post(const Arrival& arrival) = 0;
};

/// Carries interrupts between pCPUs. The sender has synchronised and gives its local clock; the effect comes
/// later.
class InterruptFabricInterface : public virtual sc_core::sc_interface {
 public:
  virtual void send(unsigned to_cpu, ArrivalKind kind, std::uint64_t sent_at) = 0;
};

/// A schedulable thread of the host. `run` executes it on a pCPU until it blocks, is preempted at a
/// reschedule point, or ends; its continuation is its own state, never a stack. A thread that blocks calls
/// HostSchedulerInterface::sleep itself, at the moment it does.
class HostThread : public SchedEntity {
 public:
  enum class State : std::uint8_t { runnable, running, blocked, ended };

  HostThread() = default;
  HostThread(const HostThread&) = delete;
  HostThread& operator=(const HostThread&) = delete;
  virtual ~HostThread() = default;

  virtual void run(PhysicalCpu& cpu) = 0;

  // The preempt notifiers (kvm_sched_in, kvm_sched_out): called in the context switch, in that order after
  // those of the other thread. `preempted`: it is still runnable.
  virtual void sched_in(PhysicalCpu& cpu) { static_cast<void>(cpu); }
  virtual void sched_out(PhysicalCpu& cpu, bool preempted) {
    static_cast<void>(cpu);
    static_cast<void>(preempted);
  }

  /// Its priority as traces print it: 120 plus nice, or 99 minus the priority of SCHED_FIFO.
  [[nodiscard]] std::uint64_t trace_priority() const noexcept {
    constexpr int nice_0_priority = 120;
    constexpr int lowest_rt = 99;
    return static_cast<std::uint64_t>(policy == SchedPolicy::fifo ? lowest_rt - rt_priority
                                                                  : nice_0_priority + nice);
  }

  std::int32_t tid = 0;
  std::string comm;
  int nice = 0;
  unsigned cpu_index = 0;              ///< pCPU where it runs, waits or last ran
  unsigned recent_cpu = CpuSet::none;  ///< where it ran before that
  const CpuSet* allowed = nullptr;     ///< its affinity; nullptr = every pCPU
  State state = State::runnable;
  bool on_cpu = false;             ///< a pCPU has not switched away from it yet
  bool was_woken = false;          ///< made runnable since it last ran
  bool wakeup_traced = false;      ///< its sched_wakeup has been emitted
  std::uint64_t woken_cycles = 0;  ///< when it was last made runnable
};

/// Decides which thread runs on which pCPU. All calls come from a synchronised pCPU; `now` is its local
/// clock.
class HostSchedulerInterface : public virtual sc_core::sc_interface {
 public:
  /// Makes a blocked or new thread runnable; kicks its pCPU if that is idle or should preempt. `waker`:
  /// nullptr before time starts.
  virtual void wake(HostThread& thread, PhysicalCpu* waker, std::uint64_t now) = 0;
  /// The thread that runs sleeps; pick() follows. Its run time lasts until `until`: the way into schedule()
  /// is its own.
  virtual void sleep(HostThread& thread, std::uint64_t until) = 0;
  /// The thread that runs ends; pick() follows.
  virtual void end(HostThread& thread, std::uint64_t now) = 0;
  /// schedule(): the thread to run next on `cpu`; nullptr = idle. The one that ran goes back to the queue if
  /// it is runnable.
  [[nodiscard]] virtual HostThread* pick(unsigned cpu, std::uint64_t now) = 0;
  /// The periodic tick of a busy pCPU.
  virtual void tick(unsigned cpu, std::uint64_t now) = 0;
  /// TIF_NEED_RESCHED of the pCPU; the reference stays valid, so that a CPU asks for it once.
  [[nodiscard]] virtual const bool& need_resched(unsigned cpu) const = 0;
  /// Whether the running thread is the only runnable one of the pCPU (KVM stops halt polling otherwise).
  [[nodiscard]] virtual bool single_task_running(unsigned cpu) const = 0;
  /// yield_to: gives the rest of the slice to `target`. Above 0: done, the caller calls schedule(); 0: it
  /// cannot be; below 0 (-ESRCH): both queues have only one thread.
  [[nodiscard]] virtual int yield_to(PhysicalCpu& cpu, HostThread& target) = 0;
  /// While `event` is given it is notified when a thread joins the queue of `cpu`: for the halt-polling loop.
  virtual void watch(PhysicalCpu& cpu, sc_core::sc_event* event) = 0;
};

}  // namespace svmsim::model
