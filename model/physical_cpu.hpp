#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <systemc>
#include <utility>
#include <vector>

#include "model/config/cost_profile.hpp"
#include "model/event_hub.hpp"
#include "model/host_timer.hpp"
#include "model/interfaces.hpp"
#include "model/policy/idle_governor.hpp"
#include "model/time.hpp"
#include "model/wave_probe.hpp"

namespace svmsim::model {

/// What the time of a pCPU is spent on: `host` is the kernel's, `task` that of threads other than vCPUs; idle
/// counts from the first idle state on.
enum class CpuTime : std::uint8_t { guest, host, poll, task, idle };

/// An idle state of the host as the idle loop uses it.
struct HostIdleState {
  IdleState declared;
  std::uint64_t wake_cycles = 0;  ///< real time to leave it
};

/// A physical CPU: its clock, the interrupts that reach it, its tick, and the loop that runs host threads.
///
/// The clock runs ahead of the SystemC kernel where that cannot change a result (design.md section 2):
/// private work is only added to `local`; whoever reads or writes shared state first calls synchronise(). In
/// guest mode interrupts are seen at the cycle they arrive; in the host they are pended until interrupts are
/// enabled (take_interrupts).
class PhysicalCpu : public sc_core::sc_module, public ArrivalInterface {
 public:
  SC_HAS_PROCESS(PhysicalCpu);

  struct Settings {
    unsigned index = 0;
    bool run_ahead = true;
    std::uint64_t tick_period_cycles = 0;  ///< 0 = no tick
    std::uint64_t reaction_cycles = 1;     ///< L: least latency from another CPU's action to an effect here
    std::uint64_t end_cycles = never_cycles;  ///< end of the run
    std::uint64_t warmup_cycles = 0;          ///< what was spent before counts for nothing
    bool bare = false;  ///< vm.native: no host kernel, so no tick and no handlers of its own
    std::uint64_t doorbell_stall_cycles = 0;  ///< what a doorbell costs a core in host mode (12.4)
    std::uint64_t tsc_hz = 1000000000;
    IdleGovernorKind idle_governor = IdleGovernorKind::none;
    std::vector<HostIdleState> idle_states;  ///< shallow to deep; at most max_idle_states, none = no latency
    /// vCPUs that have not ended: a run without a duration is over when there are none, whatever ticks still
    /// come.
    const unsigned* live_vcpus = nullptr;
    unsigned sibling = CpuSet::none;  ///< the core's other thread, if that slows this one
    unsigned smt_factor = 100;        ///< speed in percent while it is busy
    bool nohz_full = false;           ///< no tick while a single thread runs
  };

  static constexpr std::size_t max_idle_states = 10;  // CPUIDLE_STATE_MAX
  using Spent = std::array<std::uint64_t, static_cast<std::size_t>(CpuTime::idle) + max_idle_states>;

  PhysicalCpu(const sc_core::sc_module_name& name, const Settings& settings, const Costs& costs,
              EventHub& events);

  sc_core::sc_export<ArrivalInterface> arrivals{"arrivals"};
  sc_core::sc_port<InterruptFabricInterface> fabric{"fabric"};
  sc_core::sc_port<HostSchedulerInterface> scheduler{"scheduler"};

  [[nodiscard]] unsigned index() const noexcept { return settings_.index; }
  [[nodiscard]] std::uint64_t local() const noexcept { return local_; }
  /// Of the shallowest idle state that is not POLL: its index, and the time to leave it.
  [[nodiscard]] std::size_t shallow_idle_state() const noexcept {
    const auto& states = settings_.idle_states;
    return !states.empty() && states.front().declared.polling && states.size() > 1 ? 1 : 0;
  }
  [[nodiscard]] std::uint64_t idle_wake_cycles() const noexcept {
    return settings_.idle_states.empty() ? 0 : settings_.idle_states[shallow_idle_state()].wake_cycles;
  }
  [[nodiscard]] bool at_end() const noexcept { return local_ >= settings_.end_cycles; }

  /// Whether the scheduler wants this pCPU back. The caller has synchronised.
  [[nodiscard]] bool need_resched() const noexcept { return *need_resched_; }

  /// Private work of the host that no interrupt can cut short.
  void charge(std::uint64_t cycles) {
    local_ += cycles;
    if (!settings_.run_ahead) wait_until(moment(local_, rank_));
  }

  /// To be called before shared state is read or written: afterwards every other CPU has acted up to our
  /// local clock.
  void synchronise() {
    if (local_ >= unsynchronised_from_) wait_until(moment(local_, rank_));
  }

  /// To be called after something was notified that makes another process act: it may act earlier than we
  /// knew.
  void notified_others() { look_ahead(); }

  /// Guest mode: whether a physical interrupt is pending at the local clock.
  [[nodiscard]] bool interrupt_pending() {
    if (local_ >= horizon_) look_around();
    return interrupt_pending_;
  }

  /// Guest mode: whether an interrupt, or the end of the run, may have come. While false, neither
  /// interrupt_pending() nor at_end() can be true.
  [[nodiscard]] bool something_due() const noexcept { return local_ >= horizon_; }

  /// Guest mode: an action of that many cycles that is not interruptible.
  void guest_charge(std::uint64_t cycles) { charge(cycles); }

  /// Guest mode: up to `cycles` of interruptible work. Returns what is left when an interrupt (or the end)
  /// came first.
  [[nodiscard]] std::uint64_t guest_work(std::uint64_t cycles) {
    if (local_ + cycles < horizon_) {
      local_ += cycles;
      return 0;
    }
    return guest_work_slow(cycles);
  }

  /// Guest mode: waits, halted, until an interrupt or the end of the run.
  void guest_halt();

  /// Guest mode, in a loop that looks at memory: waits until `stop_cycles`, `event`, a physical interrupt or
  /// the end of the run, and moves the local clock there.
  void spin_wait(std::uint64_t stop_cycles, sc_core::sc_event& event);
  /// Guest mode: whether a doorbell has arrived.
  [[nodiscard]] bool doorbell_due() const noexcept {
    return !doorbells_.empty() && doorbells_.front() <= local_;
  }
  /// Guest mode: takes the doorbells that have arrived; whether there were any.
  [[nodiscard]] bool take_doorbell() {
    if (!doorbell_due()) return false;
    static_cast<void>(drop_doorbells());
    look_ahead();
    return true;
  }

  /// Host, interrupts enabled: handles what is pending at the local clock (tick, IPIs) and charges for it.
  /// Returns whether anything was handled.
  bool take_interrupts();

  /// Host: up to `cycles` of a thread's own work, with interrupts served as they come. Returns what is left
  /// when the scheduler wants this pCPU back, or at the end of the run.
  [[nodiscard]] std::uint64_t host_work(std::uint64_t cycles);

  /// Host, interrupts enabled: waits until `deadline`, `event` or a physical interrupt, whichever is first,
  /// and moves the local clock there. Used by halt polling.
  void poll_wait(std::uint64_t deadline_cycles, sc_core::sc_event& event);

  /// Arms a timer of the host on this pCPU; the caller acts on it.
  void start_timer(HostTimer& timer, std::uint64_t expires_cycles);
  /// The same, called by another pCPU, which has synchronised and tells the kernel (notified_others) next: no
  /// earlier than news from there can arrive.
  void start_timer_for(const PhysicalCpu& by, HostTimer& timer, std::uint64_t expires_cycles);
  /// Disarms a timer wherever it is armed; the caller acts on this pCPU and has synchronised. False: it is
  /// armed on another one and expires there before word of this could reach it.
  bool cancel_timer(HostTimer& timer);

  /// From now on time goes to `use`.
  void account(CpuTime use) noexcept { account(static_cast<std::size_t>(use)); }
  void account(std::size_t use) noexcept {
    const std::uint64_t now = std::min(local_, settings_.end_cycles);  // the last step may lead past the end
    if (accounted_ < settings_.warmup_cycles && now >= settings_.warmup_cycles) end_warmup();
    spent_[use_] += now - accounted_;
    accounted_ = now;
    use_ = use;
  }

  /// Cycles by use from the end of the warm-up up to `until`, capped at the end of the run.
  [[nodiscard]] Spent spent(std::uint64_t until) const;
  [[nodiscard]] std::uint64_t context_switches() const noexcept {
    const bool warm = accounted_ >= settings_.warmup_cycles;
    return warm ? context_switches_ - warmup_switches_ : 0;
  }
  /// Expired host timers since the end of the warm-up.
  [[nodiscard]] std::uint64_t timer_interrupts() const noexcept { return timer_interrupts_; }
  /// Cycles spent leaving the idle state before the current thread ran; counted once.
  [[nodiscard]] std::uint64_t take_idle_exit_cycles() noexcept { return std::exchange(last_idle_exit_, 0); }

  /// Without a duration: the last vCPU ended at that cycle, so that a tick that is still armed here is in
  /// vain.
  void run_ended(std::uint64_t at_cycles) {
    arrival_event_.notify(delay_until(moment(at_cycles + settings_.reaction_cycles, rank_)));
  }

  [[nodiscard]] EventHub& events() noexcept { return events_; }
  /// No event earlier than this can be pushed any more.
  [[nodiscard]] std::uint64_t event_watermark() const {
    return std::min(local_, cycles_of(others_ == never ? moment(local_, 0) : others_));
  }

  /// Host thread that runs now; 0 = idle.
  [[nodiscard]] std::int32_t current_tid() const noexcept { return current_ != nullptr ? current_->tid : 0; }
  [[nodiscard]] std::exception_ptr failure() const { return failure_; }
  [[nodiscard]] const Costs& costs() const noexcept { return costs_; }
  [[nodiscard]] Moment moment_of(std::uint64_t cycles) const noexcept { return moment(cycles, rank_); }

  /// What the time goes to now.
  [[nodiscard]] CpuTime use() const noexcept {
    return static_cast<CpuTime>(std::min(use_, static_cast<std::size_t>(CpuTime::idle)));
  }
  /// The probe must outlive the run.
  void set_wave_probe(WaveProbe& probe) noexcept { wave_probe_ = &probe; }

  void post(const Arrival& arrival) override;

 private:
  void main();
  void end_warmup() noexcept {
    warmup_spent_ = spent_;
    warmup_spent_[use_] += settings_.warmup_cycles - accounted_;
    warmup_switches_ = context_switches_;
  }
  void run_threads();
  void idle();
  void switch_to(HostThread& next);
  void leave(HostThread& thread);
  void start_tick();
  [[nodiscard]] IdleChoice choose_idle_state();
  [[nodiscard]] bool run_over() const noexcept {
    return settings_.end_cycles == never_cycles && settings_.live_vcpus != nullptr &&
           *settings_.live_vcpus == 0;
  }
  void wait_until(Moment until);
  void wait_for_arrival(Moment until);
  void after_wait();
  void before_wait() {
    if (wave_probe_ != nullptr) wave_probe_->sample();
  }
  void look_ahead();
  void look_around();
  [[nodiscard]] std::uint64_t guest_work_slow(std::uint64_t cycles);
  [[nodiscard]] std::uint64_t spend(std::uint64_t cycles);
  void take_sibling_changes();
  void tell_sibling(ArrivalKind kind);
  [[nodiscard]] std::uint64_t next_own() const noexcept;
  void expire_timer();
  // In guest mode a doorbell counts as well.
  [[nodiscard]] std::uint64_t next_for_guest() const noexcept {
    return doorbells_.empty() ? next_own() : std::min(next_own(), doorbells_.front());
  }
  [[nodiscard]] std::size_t drop_doorbells();
  void emit_idle(std::uint64_t state);
  void emit_switch(const HostThread* next);

  Settings settings_;
  Costs costs_;
  EventHub& events_;
  std::uint32_t rank_;
  sc_core::sc_event arrival_event_;

  std::uint64_t local_ = 0;
  std::uint64_t horizon_ = 0;              // private guest work may reach up to, but not to, this cycle
  Moment others_ = 0;                      // earliest moment at which another process may act
  std::uint64_t unsynchronised_from_ = 0;  // first cycle whose moment here is later than that
  bool interrupt_pending_ = false;
  bool told_busy_ = false;  // what the sibling knows of this thread
  bool slowed_ = false;     // the SMT sibling is busy
  std::uint64_t next_tick_ = never_cycles;
  std::vector<Arrival> inbox_;            // heap, earliest first
  std::vector<std::uint64_t> doorbells_;  // cycles of arrival, rising
  HostTimerQueue timers_;
  std::unique_ptr<IdleGovernor> governor_;

  HostThread* current_ = nullptr;
  const bool* need_resched_ = nullptr;
  std::size_t use_ = static_cast<std::size_t>(CpuTime::idle);
  std::uint64_t accounted_ = 0;
  Spent spent_{};
  std::uint64_t context_switches_ = 0;
  std::uint64_t timer_interrupts_ = 0;
  Spent warmup_spent_{};
  std::uint64_t warmup_switches_ = 0;
  std::uint64_t last_idle_exit_ = 0;
  std::exception_ptr failure_;
  WaveProbe* wave_probe_ = nullptr;
};

}  // namespace svmsim::model
