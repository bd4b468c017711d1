#pragma once

#include <cstdint>
#include <string>
#include <systemc>

namespace svmsim::model {

class PhysicalCpu;

/// What reaches a physical CPU asynchronously.
enum class ArrivalKind : std::uint8_t {
  reschedule,  ///< host RESCHEDULE IPI (vector 0xfd): a kick, or a wake-up of an idle or busy pCPU
  doorbell,    ///< AVIC's: no interrupt, and nothing to a core that is not in guest mode
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
/// reschedule point, or ends; its continuation is its own state, never a stack.
class HostThread {
 public:
  enum class State : std::uint8_t { runnable, running, blocked, ended };

  HostThread() = default;
  HostThread(const HostThread&) = delete;
  HostThread& operator=(const HostThread&) = delete;
  virtual ~HostThread() = default;

  virtual void run(PhysicalCpu& cpu) = 0;

  // The preempt notifiers (kvm_sched_in, kvm_sched_out): called in the context switch. `preempted`: it is
  // still runnable.
  virtual void sched_in(PhysicalCpu& cpu) { static_cast<void>(cpu); }
  virtual void sched_out(PhysicalCpu& cpu, bool preempted) {
    static_cast<void>(cpu);
    static_cast<void>(preempted);
  }

  std::int32_t tid = 0;
  std::string comm;
  unsigned cpu_index = 0;  ///< pCPU where it runs or last ran
  State state = State::runnable;
  bool was_woken = false;  ///< made runnable since it last ran
};

/// Decides which thread runs on which pCPU. All calls come from a synchronised pCPU.
class HostSchedulerInterface : public virtual sc_core::sc_interface {
 public:
  /// Makes a blocked or new thread runnable; kicks its pCPU if that is idle or should preempt.
  virtual void wake(HostThread& thread, PhysicalCpu* waker, std::uint64_t now) = 0;
  /// Takes the next thread to run on `cpu` off its queue; nullptr = idle.
  [[nodiscard]] virtual HostThread* pick(unsigned cpu) = 0;
  /// The thread that ran on `cpu` stays runnable and queues again.
  virtual void requeue(HostThread& thread) = 0;
  /// The periodic tick of a busy pCPU.
  virtual void tick(unsigned cpu) = 0;
  /// TIF_NEED_RESCHED of the pCPU; the reference stays valid, so that a CPU asks for it once.
  [[nodiscard]] virtual const bool& need_resched(unsigned cpu) const = 0;
  /// yield_to(): `target`, which waits for its pCPU, runs before the others there. False when it does not
  /// wait. The caller has synchronised.
  [[nodiscard]] virtual bool yield_to(HostThread& yielder, HostThread& target, PhysicalCpu& cpu) = 0;
  /// Whether the running thread is the only runnable one of the pCPU (KVM stops halt polling otherwise).
  [[nodiscard]] virtual bool single_task_running(unsigned cpu) const = 0;
};

}  // namespace svmsim::model
