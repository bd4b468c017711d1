#pragma once

#include <cstdint>

namespace svmsim::apic {

/// How fast the timer counts: `bus_ticks` ticks of its bus clock pass in `tsc_cycles` cycles of the TSC. Only
/// the ratio counts; a frequency in kHz in each field is fine. Both must be above 0 and below 2^32.
struct TimerClock {
  std::uint64_t tsc_cycles = 1;
  std::uint64_t bus_ticks = 1;
};

/// Mode, bits 18:17 of the LVT timer entry.
enum class TimerMode : std::uint8_t { one_shot, periodic, tsc_deadline, reserved };

/// Bus ticks per count for a value of the divide configuration register (bits 3, 1, 0): 2, 4, ..., 128, 1.
[[nodiscard]] constexpr unsigned timer_divider(std::uint32_t configuration) noexcept {
  const std::uint32_t code = (configuration & 3U) | (configuration & 8U) >> 1;
  return 1U << ((code + 1U) & 7U);
}

/// The timer of a local APIC as a function of time. Fact sheet 7.6; APM vol. 2, 16.4.1; arch/x86/kvm/lapic.c.
///
/// Time is the TSC that the CPU of this APIC reads (for an emulated APIC the guest's), in cycles. Expiries
/// are exact: the n-th expiry of a periodic timer lies n whole periods after the start, rounded up to a
/// cycle, so nothing drifts, whatever the ratio of the clocks. The caller asks next_expiry(), and at that
/// time calls take_expiries(); registers read right at any time, whether or not somebody took what is due.
///
/// Rules that the manual leaves open follow the kernel: a new divider keeps the count that is left; one-shot
/// and periodic change into each other without a restart; a change from or to TSC-deadline disarms and clears
/// the initial count; the prescaler starts anew with the initial count.
/// The mask and the vector of the LVT entry belong to LocalApic. In the reserved mode nothing counts.
class ApicTimer {
 public:
  /// What next_expiry() returns for a timer that is not armed.
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  /// `minimum_period_cycles` is the shortest period in periodic mode (KVM: min_timer_period_us, 200 us);
  /// 0: none. Throws InternalError for a clock outside its range.
  explicit ApicTimer(TimerClock clock = {}, std::uint64_t minimum_period_cycles = 0);

  /// RESET and INIT: disarmed, one-shot, divider 2.
  void reset() noexcept;

  [[nodiscard]] TimerMode mode() const noexcept { return mode_; }
  [[nodiscard]] unsigned divider() const noexcept { return divider_; }
  [[nodiscard]] std::uint32_t initial_count() const noexcept { return initial_count_; }
  [[nodiscard]] bool armed() const noexcept { return running_ || deadline_ != 0; }
  /// A count that has run out, and whose expiry nobody took: not armed any more, and not cancelled by a
  /// change of the mode or divider either.
  [[nodiscard]] bool ran_out() const noexcept { return due_ != 0 && initial_count_ != 0; }

  void set_mode(TimerMode mode, std::uint64_t now_cycles) noexcept;
  void set_divider(unsigned divider, std::uint64_t now_cycles) noexcept;
  /// Starts or restarts the count; 0 stops it. Ignored in TSC-deadline mode.
  void set_initial_count(std::uint32_t count, std::uint64_t now_cycles) noexcept;
  /// Counts that are left; it becomes 0 (or the initial count again) at the expiry. 0 in TSC-deadline mode.
  [[nodiscard]] std::uint32_t current_count(std::uint64_t now_cycles) const noexcept;

  /// MSR 6E0h. A value that is not above the TSC fires at once, 0 disarms. Ignored outside its mode.
  void write_deadline(std::uint64_t deadline, std::uint64_t now_cycles) noexcept;
  /// 0 outside TSC-deadline mode and once the deadline has passed.
  [[nodiscard]] std::uint64_t read_deadline(std::uint64_t now_cycles) const noexcept;

  /// The first expiry that nobody took: `now_cycles` if one is due already, `never` if none will come.
  [[nodiscard]] std::uint64_t next_expiry(std::uint64_t now_cycles) const noexcept;
  /// Takes all expiries up to and including `now_cycles`, and returns how many there were.
  std::uint64_t take_expiries(std::uint64_t now_cycles) noexcept;
  /// The same for an owner that fires a deadline ahead of its time: in TSC-deadline mode the deadline is
  /// taken in any case and returned; 0 in the other modes.
  std::uint64_t take(std::uint64_t now_cycles) noexcept;

  /// The TSC was written and jumped by `delta`: a running count goes on as before, a deadline meets the new
  /// TSC.
  void tsc_jumped(std::int64_t delta) noexcept;

 private:
  // A count is divided into units so small that every quantity is whole: 128 * clock.tsc_cycles units.
  __extension__ using Units = unsigned __int128;

  [[nodiscard]] Units units_per_count() const noexcept { return Units{128} * clock_.tsc_cycles; }
  [[nodiscard]] Units units_per_cycle() const noexcept { return Units{128 / divider_} * clock_.bus_ticks; }
  [[nodiscard]] Units start_units() const noexcept;
  [[nodiscard]] Units units_since_anchor(std::uint64_t now_cycles) const noexcept;
  void settle(std::uint64_t now_cycles) noexcept;
  void disarm() noexcept;

  TimerClock clock_;
  std::uint64_t minimum_period_cycles_;
  TimerMode mode_ = TimerMode::one_shot;
  unsigned divider_ = 2;
  std::uint32_t initial_count_ = 0;
  bool running_ = false;        // a count is under way
  std::uint64_t anchor_ = 0;    // when `units_left_` held
  Units units_left_ = 0;        // up to the next expiry
  std::uint64_t deadline_ = 0;  // 0: none
  std::uint64_t due_ = 0;       // settled expiries that nobody took
};

}  // namespace svmsim::apic
