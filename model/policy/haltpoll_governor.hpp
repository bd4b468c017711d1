#pragma once

#include <algorithm>
#include <cstdint>

namespace svmsim::model {

/// Module parameters of cpuidle-haltpoll (/sys/module/haltpoll/parameters), with Linux's defaults.
struct HaltpollParameters {
  std::uint64_t max_ns = 200'000;        ///< guest_halt_poll_ns
  std::uint32_t grow = 2;                ///< guest_halt_poll_grow
  std::uint64_t grow_start_ns = 50'000;  ///< guest_halt_poll_grow_start
  std::uint32_t shrink = 2;              ///< guest_halt_poll_shrink
  bool allow_shrink = true;              ///< guest_halt_poll_allow_shrink
};

/// The haltpoll governor of one guest CPU (drivers/cpuidle/governors/haltpoll.c of 6.12;
/// kvm-software.md 3.3): polls up to an adaptive limit before it halts. The limit follows the time spent in
/// HLT alone, unlike the host's window, which follows the whole halt.
///
/// Left out: latency requests (PM QoS).
class HaltpollGovernor {
 public:
  enum class State : std::uint8_t { poll, halt };

  explicit HaltpollGovernor(const HaltpollParameters& parameters) : parameters_(parameters) {}

  /// haltpoll_select: what the CPU does now. Polling keeps the tick.
  [[nodiscard]] State select() const noexcept {
    if (limit_ns_ == 0) return State::halt;
    return last_ == State::poll && timed_out_ ? State::halt : State::poll;
  }
  /// haltpoll_reflect after polling; `timed_out`: the limit ended it, not need_resched.
  void polled(bool timed_out) noexcept {
    last_ = State::poll;
    timed_out_ = timed_out;
  }
  /// haltpoll_reflect after a HLT that took `block_ns`.
  void halted(std::uint64_t block_ns) noexcept {
    last_ = State::halt;
    timed_out_ = false;
    const HaltpollParameters& p = parameters_;
    if (block_ns > limit_ns_ && block_ns <= p.max_ns) {
      const std::uint64_t grown = std::max(limit_ns_ * p.grow, p.grow_start_ns);
      limit_ns_ = std::min(grown, p.max_ns);
    } else if (block_ns > p.max_ns && p.allow_shrink) {
      const std::uint64_t shrunk = p.shrink == 0 ? 0 : limit_ns_ / p.shrink;
      limit_ns_ = shrunk < p.grow_start_ns ? 0 : shrunk;
    }
  }
  [[nodiscard]] std::uint64_t limit_ns() const noexcept { return limit_ns_; }

 private:
  HaltpollParameters parameters_;
  std::uint64_t limit_ns_ = 0;
  State last_ = State::halt;
  bool timed_out_ = false;
};

}  // namespace svmsim::model
