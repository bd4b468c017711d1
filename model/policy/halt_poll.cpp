#include "model/policy/halt_poll.hpp"

namespace svmsim::model {

namespace {

/// grow_halt_poll_ns. Not clamped: the trace event shows 320 us on the way from 160 to 200.
std::uint64_t grown(std::uint64_t window, const HaltPollParameters& parameters) noexcept {
  if (parameters.grow == 0) return window;
  const std::uint64_t product = (window * parameters.grow) & 0xffffffffU;  // the kernel's unsigned int
  return product < parameters.grow_start ? parameters.grow_start : product;
}

/// shrink_halt_poll_ns. A window below the first one is of no use and becomes 0.
std::uint64_t shrunk(std::uint64_t window, const HaltPollParameters& parameters) noexcept {
  if (parameters.shrink == 0) return 0;
  const std::uint64_t quotient = window / parameters.shrink;
  return quotient < parameters.grow_start ? 0 : quotient;
}

}  // namespace

HaltPollPlan HaltPoller::begin(std::uint64_t now_ns, const HaltPollParameters& parameters,
                               bool allowed) noexcept {
  if (window_ns_ > parameters.halt_poll_ns) window_ns_ = parameters.halt_poll_ns;
  HaltPollPlan plan;
  plan.poll = allowed && window_ns_ > 0;
  plan.start_ns = now_ns;
  plan.stop_ns = plan.poll ? now_ns + window_ns_ : now_ns;
  return plan;
}

HaltPollOutcome HaltPoller::finish(const HaltPollPlan& plan, const HaltPollResult& result,
                                   const HaltPollParameters& parameters, bool allowed) noexcept {
  HaltPollOutcome outcome;
  outcome.halt_ns = result.end_ns - plan.start_ns;
  outcome.waited = result.waited;
  if (result.waited) outcome.wait_ns = result.end_ns - result.poll_end_ns;
  if (plan.poll) {
    // Success means "never scheduled out", even when the event came after the poll loop.
    outcome.attempted = true;
    outcome.successful = !result.waited;
    const std::uint64_t polled = result.poll_end_ns - plan.start_ns;
    (result.waited ? outcome.poll_fail_ns : outcome.poll_success_ns) = polled;
  }
  if (!allowed) return outcome;

  const std::uint64_t maximum = parameters.halt_poll_ns;
  const std::uint64_t old_window = window_ns_;
  if (maximum == 0) {
    window_ns_ = 0;
    return outcome;
  }
  if (outcome.halt_ns <= old_window) return outcome;
  if (old_window > 0 && outcome.halt_ns > maximum) {
    window_ns_ = shrunk(old_window, parameters);
    outcome.window_event = true;
  } else if (old_window < maximum && outcome.halt_ns < maximum) {
    window_ns_ = grown(old_window, parameters);
    outcome.window_event = true;  // also with grow == 0, where the value stays
    outcome.window_grow = true;
  }
  outcome.window_new_ns = window_ns_;
  outcome.window_old_ns = old_window;
  return outcome;
}

}  // namespace svmsim::model
