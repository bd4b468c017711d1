#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "model/guest/guest_kernel.hpp"
#include "workloads/guest/apic_driver.hpp"
#include "workloads/guest/kernel_code.hpp"

namespace svmsim::model {

/// One CPU of a Linux guest with a task set: its scheduler, its timers, its idle loop, its interrupt
/// handlers, as the actions that they execute (kernel/sched/core.c, idle.c, kernel/time/tick-sched.c,
/// hrtimer.c, arch/x86/kernel/apic/apic.c; kvm-software.md 3, 11).
///
/// What touches memory that other CPUs use happens when a shared action completes, in global order of time.
/// Code between such actions is private. Kernel code is not preempted (PREEMPT_VOLUNTARY), tasks are.
class GuestCpuSource final : public workloads::WorkloadSource {
 public:
  GuestCpuSource(std::shared_ptr<GuestKernel> kernel, unsigned cpu);

  [[nodiscard]] workloads::InitialState initial_state() const override;
  [[nodiscard]] const svm::GuestAction* current() override;
  void retire(std::uint64_t tsc, std::uint64_t result) override;
  const std::vector<unsigned>& retire_shared(std::uint64_t tsc) override;
  [[nodiscard]] std::uint64_t spin_ready() const override;
  void interrupt(std::uint8_t vector, std::uint64_t tsc) override;
  [[nodiscard]] std::uint64_t resume_compute(std::uint64_t left_cycles) override;
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t vector) const override;
  void attach(workloads::PvMemory& memory) override {
    pv_ = &memory;
    shared().pv = &memory;
  }
  [[nodiscard]] std::vector<workloads::GuestDevice>* devices() override { return &kernel_->devices(); }
  [[nodiscard]] bool finished() const override { return kernel_->ended(); }
  [[nodiscard]] std::string failure() const override { return failure_; }
  [[nodiscard]] workloads::Metrics metrics() const override;

 private:
  // What the completion of an action means.
  enum class Meaning : std::uint8_t {
    none,
    start,       // shared: the CPU is up and looks for tasks
    task_run,    // a run step of the current task has been computed
    task_step,   // shared: the current task takes its next step
    preempt,     // shared: schedule(), since a handler asked for it
    call_yield,  // shared: kvm_smp_send_call_func_ipi looks for a preempted target
    call_wait,   // spin: until a function ran on the CPUs that were called
    io_wait,     // shared: behind the notification of a device
    idle_look,   // shared: top of the idle loop
    idle_last,   // shared, interrupts off: the last look before HLT
    idle_woken,  // shared: behind HLT
    idle_poll,   // spin: polling
    timer,       // shared: hrtimer_interrupt
    reschedule,  // shared: the reschedule IPI's handler
    call,        // shared: flush_smp_call_function_queue
    device,      // shared: a device's handler
    pv_eoi,      // the BTR of kvm_guest_apic_eoi_write
  };
  using Code = workloads::KernelCode<Meaning>;
  static constexpr std::uint64_t never = workloads::WorkloadSource::never_ready;

  struct TaskTimer {
    std::uint64_t soft;     // an interrupt from then on may take it along
    std::uint64_t expires;  // the hardware is set to this: soft and the slack
    std::uint64_t sequence;
    GuestTask* task;
    [[nodiscard]] bool operator>(const TaskTimer& other) const noexcept {
      return expires != other.expires ? expires > other.expires : sequence > other.sequence;
    }
  };

  [[nodiscard]] GuestCpuShared& shared() { return kernel_->cpu(cpu_); }
  [[nodiscard]] const GuestKernelConfig& config() const noexcept { return kernel_->config(); }
  [[nodiscard]] const GuestKernelCosts& costs() const noexcept { return kernel_->config().costs; }
  [[nodiscard]] const Code::Item& item_now() const {
    return in_handler_ ? handler_.items[handler_next_] : code_.items[next_];
  }
  void advance() {
    if (!in_handler_) {
      ++next_;
    } else if (++handler_next_ == handler_.items.size()) {
      in_handler_ = false;
    }
  }
  void restart_code() {
    code_.items.clear();
    next_ = 0;
  }

  // guest_cpu_source.cpp: boot, interrupts, waking.
  void boot();
  void add_eoi();
  void handle(std::uint64_t tsc);
  void wake(GuestTask& task, std::uint64_t tsc, Code& code);
  void resched_remote(unsigned cpu, std::uint64_t tsc, Code& code);
  void tell_polling(unsigned cpu, std::uint64_t tsc);
  void run_call_queue(std::uint64_t tsc);
  void append_actions(Code& code);
  void apic_write(std::uint32_t offset, std::uint64_t value, std::uint64_t rip, Code& code);

  // guest_cpu_tasks.cpp: the running task.
  void start(std::uint64_t tsc);
  void schedule(std::uint64_t tsc);
  void continue_task();
  void task_step(std::uint64_t tsc);
  void begin_step(const workloads::TaskStep& step, std::uint64_t tsc);
  [[nodiscard]] const workloads::TaskStep* take_step(GuestTask& task, std::uint64_t tsc);
  void sleep_until(std::uint64_t soft, std::uint64_t tsc);
  void block(std::uint64_t tsc);
  void call_function(const workloads::TaskStep& step, std::uint64_t tsc);
  void yield_to_preempted();
  void submit(unsigned device);
  void system_call();

  // guest_cpu_time.cpp: timers and the tick.
  void arm(GuestTask& task, std::uint64_t soft);
  void timer_interrupt(std::uint64_t tsc);
  void program_timer(std::uint64_t tsc, Code& code);
  void write_timer(std::uint64_t expires, std::uint64_t tsc, Code& code);
  /// What is due next besides the tick.
  [[nodiscard]] std::uint64_t next_timer() const {
    return timers_.empty() ? watchdog_next_ : std::min(timers_.top().expires, watchdog_next_);
  }
  void stop_tick(std::uint64_t tsc);
  void restart_tick(std::uint64_t tsc);

  // guest_cpu_idle.cpp: the idle loop.
  void enter_idle();
  void idle_look(std::uint64_t tsc);
  void idle_last(std::uint64_t tsc);
  void idle_woken(std::uint64_t tsc);
  void idle_polled(std::uint64_t tsc);
  void start_polling(std::uint64_t limit_cycles, std::uint64_t granularity_turns, std::uint64_t tsc);
  void go_to_halt(std::uint64_t tsc);
  [[nodiscard]] bool has_work();

  std::shared_ptr<GuestKernel> kernel_;
  unsigned cpu_;
  workloads::ApicDriver driver_;
  workloads::PvMemory* pv_ = nullptr;
  std::vector<svm::GuestAction> actions_;  // of the driver, kept so that an IPI allocates nothing
  std::vector<unsigned> reached_;

  Code code_;
  std::size_t next_ = 0;
  Code handler_;
  std::size_t handler_next_ = 0;
  bool in_handler_ = false;
  std::uint8_t handler_vector_ = 0;
  bool preempt_ = false;  // a handler found need_resched set
  bool stopped_ = false;  // the last task of all ended here

  // Timers.
  std::priority_queue<TaskTimer, std::vector<TaskTimer>, std::greater<>> timers_;
  std::uint64_t timer_sequence_ = 0;
  std::uint64_t tick_cycles_;
  std::uint64_t tick_next_ = never;
  std::uint64_t watchdog_cycles_;
  std::uint64_t watchdog_next_ = never;
  std::uint64_t programmed_ = never;  // what the hardware timer is set to
  bool timer_shut_down_ = false;

  // The idle loop.
  HaltpollGovernor haltpoll_;
  std::uint64_t poll_end_ = never;
  std::uint64_t halted_at_ = 0;
  bool polled_once_ = false;  // cpuidle_kvm: this idle has polled

  GuestCall call_;
  workloads::ApicDriver::CpuMask call_mask_;
  std::string failure_;
};

}  // namespace svmsim::model
