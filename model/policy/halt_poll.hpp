#pragma once

#include <cstdint>

namespace svmsim::model {

/// The halt-polling parameters in force at one halt. Kernel names; times in ns.
struct HaltPollParameters {
  std::uint64_t halt_poll_ns = 200000;  ///< largest window: module parameter, or the VM's KVM_CAP_HALT_POLL
  std::uint64_t grow = 2;               ///< halt_poll_ns_grow; 0 = never grow
  std::uint64_t grow_start = 10000;     ///< halt_poll_ns_grow_start
  std::uint64_t shrink = 2;  ///< halt_poll_ns_shrink; 0 = back to 0 at once (the default until 6.10)
};

/// What one halt asks for: poll until `stop_ns`, or block at once.
struct HaltPollPlan {
  bool poll = false;
  std::uint64_t start_ns = 0;
  std::uint64_t stop_ns = 0;  ///< start_ns + window; polling goes on while the time is below it
};

/// How one halt ended, as the caller saw it.
struct HaltPollResult {
  std::uint64_t poll_end_ns = 0;  ///< last turn of the poll loop; start_ns without polling
  std::uint64_t end_ns = 0;       ///< the halt is over
  bool waited = false;            ///< the thread was scheduled out at least once
};

/// What a halt changes: the statistics to add and the values of its two trace events.
struct HaltPollOutcome {
  std::uint64_t halt_ns = 0;          ///< kvm_vcpu_wakeup: ns
  bool waited = false;                ///< kvm_vcpu_wakeup: wait instead of poll
  bool attempted = false;             ///< halt_attempted_poll
  bool successful = false;            ///< halt_successful_poll
  std::uint64_t poll_success_ns = 0;  ///< halt_poll_success_ns, and its histogram
  std::uint64_t poll_fail_ns = 0;     ///< halt_poll_fail_ns, and its histogram
  std::uint64_t wait_ns = 0;          ///< halt_wait_ns, and its histogram; valid when waited
  bool window_event = false;          ///< kvm_halt_poll_ns is emitted
  bool window_grow = false;           ///< its direction
  std::uint64_t window_new_ns =
      0;  ///< its new value; may exceed the largest window until the next halt clamps it
  std::uint64_t window_old_ns = 0;
};

/// KVM's adaptive halt polling of one vCPU (virt/kvm/kvm_main.c, kvm_vcpu_halt and what it calls).
///
/// It decides the window before a halt and adapts it after. It does not know how the polling ends: whoever
/// drives it finds out when the poll loop stops (event, window, second runnable task, need_resched) and says
/// so in finish(). Left out: invalid wake-ups, which exist on s390 only.
class HaltPoller {
 public:
  /// Start of a halt at `now_ns`. The window is clamped to the largest window here and nowhere else.
  /// `allowed` is bit 0 of MSR_KVM_POLL_CONTROL.
  HaltPollPlan begin(std::uint64_t now_ns, const HaltPollParameters& parameters,
                     bool allowed = true) noexcept;

  /// End of the halt that `plan` began; `parameters` and `allowed` as they are now.
  HaltPollOutcome finish(const HaltPollPlan& plan, const HaltPollResult& result,
                         const HaltPollParameters& parameters, bool allowed = true) noexcept;

  /// vcpu->halt_poll_ns.
  [[nodiscard]] std::uint64_t window_ns() const noexcept { return window_ns_; }

 private:
  std::uint64_t window_ns_ = 0;
};

}  // namespace svmsim::model
