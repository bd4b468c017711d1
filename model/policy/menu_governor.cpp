#include "model/policy/menu_governor.hpp"

#include <algorithm>

namespace svmsim::model {

namespace {

constexpr std::uint64_t ns_per_us = 1000;
constexpr std::uint64_t resolution = 1024;
constexpr std::uint64_t decay = 8;
constexpr std::uint64_t max_interesting_us = 50000;
constexpr std::uint64_t residency_threshold_ns = 15 * ns_per_us;
constexpr std::uint64_t forever_ns = ~std::uint64_t{0} >> 1;

// which_bucket: the decade of the time to the next timer.
std::size_t bucket_of(std::uint64_t duration_ns) {
  std::size_t bucket = 0;
  for (std::uint64_t bound = 10 * ns_per_us; bucket < 5 && duration_ns >= bound; bound *= 10)
    ++bucket;
  return bucket;
}

}  // namespace

MenuGovernor::MenuGovernor(std::vector<IdleState> states, std::uint64_t tick_ns)
    : states_(std::move(states)), tick_ns_(tick_ns) {
  correction_.fill(resolution * decay);
}

// get_typical_interval: the average of the last intervals when they agree, after at most two of the greatest
// were set aside.
std::uint64_t MenuGovernor::typical_interval_us() const {
  std::uint64_t threshold = 0x7fffffffU;
  for (;;) {
    std::uint64_t sum = 0;
    std::uint64_t count = 0;
    std::uint64_t greatest = 0;
    for (const std::uint32_t value : interval_us_) {
      if (value > threshold) continue;
      sum += value;
      greatest = std::max<std::uint64_t>(greatest, value);
      ++count;
    }
    if (count == 0) return typical_none;
    const std::uint64_t average = sum / count;
    std::uint64_t variance = 0;
    for (const std::uint32_t value : interval_us_) {
      if (value > threshold) continue;
      const auto difference = static_cast<std::int64_t>(value) - static_cast<std::int64_t>(average);
      variance += static_cast<std::uint64_t>(difference * difference);
    }
    variance /= count;
    constexpr std::uint64_t steady_variance = 400;  // 20 us of deviation
    constexpr std::uint64_t relative = 36;          // or a sixth of the average
    const bool relatively_steady = average * average > variance * relative && count * 4 >= intervals * 3;
    if (relatively_steady || variance <= steady_variance) return average;
    if (count * 4 <= intervals * 3) return typical_none;
    if (greatest == 0) return typical_none;
    threshold = greatest - 1;
  }
}

// menu_update.
void MenuGovernor::update() {
  needs_update_ = false;
  const IdleState& state = states_[last_state_];
  std::uint64_t measured = last_residency_ns_;
  if (tick_wakeup_ && next_timer_ns_ > tick_ns_) {
    // The tick was kept on a wrong prediction: without it the idle would have gone on.
    measured = 9 * max_interesting_us * ns_per_us / 10;
  } else if (measured > 2 * state.exit_latency_ns) {
    measured -= state.exit_latency_ns;
  } else {
    measured /= 2;
  }
  measured = std::min(measured, next_timer_ns_);
  std::uint64_t& factor = correction_[bucket_];
  factor -= factor / decay;
  factor += next_timer_ns_ > 0 && measured < max_interesting_us * ns_per_us
                ? resolution * measured / next_timer_ns_
                : resolution;
  interval_us_[next_interval_] =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(measured / ns_per_us, 0xffffffffU));
  next_interval_ = (next_interval_ + 1) % intervals;
}

void MenuGovernor::reflect(std::uint64_t residency_ns, bool tick_wakeup) {
  needs_update_ = true;
  last_residency_ns_ = residency_ns;
  tick_wakeup_ = tick_wakeup;
}

IdleChoice MenuGovernor::select(const IdleRequest& request) {
  if (needs_update_) update();
  const std::uint64_t timer = std::min(request.next_timer_ns, forever_ns);
  std::uint64_t until_tick = request.tick_stopped ? timer : std::min(request.next_tick_ns, timer);
  predicted_ns_ = typical_interval_us() * ns_per_us;
  if (predicted_ns_ > residency_threshold_ns) {
    next_timer_ns_ = timer;
    bucket_ = bucket_of(timer);
    // In us and rounded, as the kernel has it.
    const auto corrected_us = timer >= forever_ns / correction_[bucket_]
                                  ? forever_ns / ns_per_us
                                  : (resolution * decay * ns_per_us / 2 + timer * correction_[bucket_]) /
                                        (resolution * decay * ns_per_us);
    predicted_ns_ = std::min(corrected_us * ns_per_us, predicted_ns_);
  } else {
    // The timer does not matter when the last idles were that short: the kernel does not even look.
    next_timer_ns_ = forever_ns;
    bucket_ = buckets - 1;
    until_tick = tick_ns_ / 2;
  }
  last_state_ = 0;
  if (states_.size() <= 1 || next_timer_ns_ < states_[1].target_residency_ns) return {0, !states_[0].polling};
  if (request.tick_stopped && predicted_ns_ < tick_ns_) predicted_ns_ = next_timer_ns_;
  unsigned chosen = 0;
  for (unsigned i = 1; i < states_.size(); ++i) {
    const IdleState& state = states_[i];
    if (state.target_residency_ns <= predicted_ns_) {
      chosen = i;
      continue;
    }
    if (states_[chosen].polling && state.target_residency_ns <= next_timer_ns_) {
      predicted_ns_ = state.target_residency_ns;  // a physical state rather than busy polling
      chosen = i;
      break;
    }
    if (predicted_ns_ < tick_ns_) break;
    if (!request.tick_stopped) {
      predicted_ns_ = states_[chosen].target_residency_ns;  // the tick will bring a second chance
      break;
    }
    if (states_[chosen].target_residency_ns < tick_ns_ && state.target_residency_ns <= until_tick) chosen = i;
    last_state_ = chosen;
    return {chosen, true};
  }
  bool stop_tick = true;
  if ((states_[chosen].polling || predicted_ns_ < tick_ns_) && !request.tick_stopped) {
    stop_tick = false;
    while (chosen > 0 && states_[chosen].target_residency_ns > until_tick)
      --chosen;
  }
  last_state_ = chosen;
  return {chosen, stop_tick};
}

}  // namespace svmsim::model
