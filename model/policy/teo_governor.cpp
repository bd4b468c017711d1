#include "model/policy/teo_governor.hpp"

#include <algorithm>

namespace svmsim::model {

namespace {

constexpr std::uint32_t pulse = 1024;
constexpr unsigned decay_shift = 3;

}  // namespace

TeoGovernor::TeoGovernor(std::vector<IdleState> states, std::uint64_t tick_ns)
    : states_(std::move(states)), bins_(states_.size()), tick_ns_(tick_ns) {}

bool TeoGovernor::deep_enough(unsigned state, bool tick_stopped) const {
  return !tick_stopped || states_[state].target_residency_ns >= tick_ns_;
}

// teo_update: a hit when the idle lasted as long as its timer allowed, by bins of target residencies; an
// intercept in the bin of what it really lasted otherwise.
void TeoGovernor::update() {
  needs_update_ = false;
  std::uint64_t measured = ~std::uint64_t{0};
  if (last_residency_ns_ < sleep_length_ns_ && !tick_wakeup_) {
    const std::uint64_t latency = states_[last_state_].exit_latency_ns;
    measured = last_residency_ns_ >= latency ? last_residency_ns_ - latency / 2 : last_residency_ns_ / 2;
  }
  std::size_t of_timer = 0;
  std::size_t of_duration = 0;
  total_ = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    Bin& bin = bins_[i];
    bin.hits -= bin.hits >> decay_shift;
    bin.intercepts -= bin.intercepts >> decay_shift;
    total_ += bin.hits + bin.intercepts;
    if (states_[i].target_residency_ns <= sleep_length_ns_) {
      of_timer = i;
      if (states_[i].target_residency_ns <= measured) of_duration = i;
    }
  }
  (of_timer == of_duration ? bins_[of_timer].hits : bins_[of_duration].intercepts) += pulse;
  total_ += pulse;
}

void TeoGovernor::reflect(std::uint64_t residency_ns, bool tick_wakeup) {
  needs_update_ = true;
  last_residency_ns_ = residency_ns;
  tick_wakeup_ = tick_wakeup;
}

// teo_find_shallower_state.
unsigned TeoGovernor::shallower(unsigned than, std::uint64_t duration_ns) const {
  unsigned state = than;
  while (state > 0 && states_[state].target_residency_ns > duration_ns)
    --state;
  return state;
}

// The deepest state that would have been right in more than half of the intercepted idles.
unsigned TeoGovernor::by_intercepts(unsigned candidate, bool tick_stopped) const {
  std::uint64_t all_intercepts = 0;
  std::uint64_t all_hits = 0;
  for (unsigned i = 0; i < candidate; ++i) {
    all_intercepts += bins_[i].intercepts;
    all_hits += bins_[i].hits;
  }
  if (2 * all_intercepts <= total_ - all_hits) return candidate;
  unsigned suitable = candidate;
  std::uint64_t sum = 0;
  for (unsigned i = candidate; i-- != 0;) {
    sum += bins_[i].intercepts;
    if (2 * sum > all_intercepts) return deep_enough(i, tick_stopped) ? i : suitable;
    if (!deep_enough(i, tick_stopped)) return suitable;
    suitable = i;
  }
  return suitable;
}

IdleChoice TeoGovernor::select(const IdleRequest& request) {
  if (needs_update_) update();
  sleep_length_ns_ = request.next_timer_ns;
  const std::uint64_t until_tick =
      request.tick_stopped ? request.next_timer_ns : std::min(request.next_tick_ns, request.next_timer_ns);
  unsigned chosen = 0;
  if (states_.size() > 1) {
    chosen = by_intercepts(static_cast<unsigned>(states_.size()) - 1, request.tick_stopped);
    if (states_[chosen].target_residency_ns > sleep_length_ns_) {
      const unsigned fitting = shallower(chosen, sleep_length_ns_);
      if (deep_enough(fitting, request.tick_stopped)) chosen = fitting;
    }
  }
  bool stop_tick = true;
  if ((states_[chosen].polling || sleep_length_ns_ < tick_ns_) && !request.tick_stopped) {
    stop_tick = false;
    chosen = shallower(chosen, until_tick);
  }
  last_state_ = chosen;
  return {chosen, stop_tick};
}

}  // namespace svmsim::model
