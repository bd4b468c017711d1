#include "apic/apic_timer.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "svm/user_error.hpp"

namespace svmsim::apic {

ApicTimer::ApicTimer(TimerClock clock, std::uint64_t minimum_period_cycles)
    : clock_(clock), minimum_period_cycles_(minimum_period_cycles) {
  constexpr std::uint64_t limit = std::uint64_t{1} << 32;
  if (clock.tsc_cycles == 0 || clock.bus_ticks == 0 || clock.tsc_cycles >= limit ||
      clock.bus_ticks >= limit) {
    throw InternalError(
        fmt::format("APIC timer with {} bus ticks in {} TSC cycles", clock.bus_ticks, clock.tsc_cycles));
  }
  const std::uint64_t common = std::gcd(clock.tsc_cycles, clock.bus_ticks);
  clock_.tsc_cycles /= common;
  clock_.bus_ticks /= common;
}

void ApicTimer::reset() noexcept {
  disarm();
  due_ = 0;
  mode_ = TimerMode::one_shot;
  divider_ = timer_divider(0);
  initial_count_ = 0;
}

void ApicTimer::disarm() noexcept {
  running_ = false;
  units_left_ = 0;
  deadline_ = 0;
}

ApicTimer::Units ApicTimer::start_units() const noexcept {
  const Units period = units_per_count() * initial_count_;
  if (mode_ != TimerMode::periodic) return period;
  return std::max(period, units_per_cycle() * minimum_period_cycles_);
}

ApicTimer::Units ApicTimer::units_since_anchor(std::uint64_t now_cycles) const noexcept {
  return now_cycles <= anchor_ ? 0 : units_per_cycle() * (now_cycles - anchor_);
}

// Moves the anchor to now and books the expiries in between. Nothing is rounded here.
void ApicTimer::settle(std::uint64_t now_cycles) noexcept {
  if (deadline_ != 0 && deadline_ <= now_cycles) {
    deadline_ = 0;
    ++due_;
  }
  if (!running_) return;
  const Units passed = units_since_anchor(now_cycles);
  anchor_ = std::max(anchor_, now_cycles);
  if (passed < units_left_) {
    units_left_ -= passed;
    return;
  }
  ++due_;
  if (mode_ != TimerMode::periodic) {
    disarm();
    return;
  }
  const Units period = start_units();
  const Units beyond = passed - units_left_;
  due_ += static_cast<std::uint64_t>(beyond / period);
  units_left_ = period - beyond % period;
}

void ApicTimer::set_mode(TimerMode mode, std::uint64_t now_cycles) noexcept {
  if (mode == mode_) return;
  settle(now_cycles);
  const bool counts_on = mode != TimerMode::reserved && mode_ != TimerMode::reserved &&
                         mode != TimerMode::tsc_deadline && mode_ != TimerMode::tsc_deadline;
  if (!counts_on) {
    disarm();
    initial_count_ = 0;
  }
  mode_ = mode;
}

void ApicTimer::set_divider(unsigned divider, std::uint64_t now_cycles) noexcept {
  if (divider == divider_) return;
  settle(now_cycles);
  divider_ = divider;
}

void ApicTimer::set_initial_count(std::uint32_t count, std::uint64_t now_cycles) noexcept {
  if (mode_ == TimerMode::tsc_deadline) return;
  settle(now_cycles);
  initial_count_ = count;
  running_ = count != 0 && mode_ != TimerMode::reserved;
  anchor_ = now_cycles;
  units_left_ = running_ ? start_units() : 0;
}

std::uint32_t ApicTimer::current_count(std::uint64_t now_cycles) const noexcept {
  if (!running_) return 0;
  const Units passed = units_since_anchor(now_cycles);
  Units left = 0;
  if (passed < units_left_) {
    left = units_left_ - passed;
  } else if (mode_ == TimerMode::periodic) {
    const Units period = start_units();
    left = period - (passed - units_left_) % period;
  }
  // A count is gone only when all of it has passed.
  const Units counts = (left + units_per_count() - 1) / units_per_count();
  return static_cast<std::uint32_t>(std::min(counts, Units{0xffffffffU}));
}

void ApicTimer::write_deadline(std::uint64_t deadline, std::uint64_t now_cycles) noexcept {
  if (mode_ != TimerMode::tsc_deadline) return;
  settle(now_cycles);
  deadline_ = deadline;
}

std::uint64_t ApicTimer::read_deadline(std::uint64_t now_cycles) const noexcept {
  return deadline_ > now_cycles ? deadline_ : 0;
}

std::uint64_t ApicTimer::next_expiry(std::uint64_t now_cycles) const noexcept {
  if (due_ != 0) return now_cycles;
  if (deadline_ != 0) return std::max(deadline_, now_cycles);
  if (!running_) return never;
  const Units cycles = (units_left_ + units_per_cycle() - 1) / units_per_cycle();
  if (cycles > never - anchor_) return never;
  return std::max(anchor_ + static_cast<std::uint64_t>(cycles), now_cycles);
}

std::uint64_t ApicTimer::take_expiries(std::uint64_t now_cycles) noexcept {
  settle(now_cycles);
  const std::uint64_t taken = due_;
  due_ = 0;
  return taken;
}

std::uint64_t ApicTimer::take(std::uint64_t now_cycles) noexcept {
  const std::uint64_t deadline = deadline_;
  take_expiries(now_cycles);
  deadline_ = 0;
  return deadline;
}

void ApicTimer::tsc_jumped(std::int64_t delta) noexcept {
  anchor_ += static_cast<std::uint64_t>(delta);
}

}  // namespace svmsim::apic
