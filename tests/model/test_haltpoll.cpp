#include <vector>

#include <doctest/doctest.h>

#include "model/policy/haltpoll_governor.hpp"

using svmsim::model::HaltpollGovernor;
using svmsim::model::HaltpollParameters;

namespace {

constexpr std::uint64_t us = 1000;

// An idle time of `idle_ns`, as the idle loop spends it: polls up to the limit, then halts for the rest.
// Returns what it halted; 0 when polling saw the end.
std::uint64_t idle(HaltpollGovernor& governor, std::uint64_t idle_ns) {
  std::uint64_t left = idle_ns;
  if (governor.select() == HaltpollGovernor::State::poll) {
    const std::uint64_t limit = governor.limit_ns();
    const bool timed_out = left > limit;
    governor.polled(timed_out);
    if (!timed_out) return 0;
    left -= limit;
    CHECK(governor.select() == HaltpollGovernor::State::halt);
  }
  governor.halted(left);
  return left;
}

}  // namespace

TEST_CASE("haltpoll: what is left after polling decides (kvm-software.md 3.3)") {
  HaltpollGovernor governor{{}};
  CHECK(idle(governor, 60 * us) == 60 * us);  // the first halts at once
  CHECK(governor.limit_ns() == 50 * us);
  for (int i = 0; i < 5; ++i) {
    CHECK(idle(governor, 60 * us) == 10 * us);  // 10 us is no more than the limit: it stays
    CHECK(governor.limit_ns() == 50 * us);
  }
  CHECK(idle(governor, 120 * us) == 70 * us);
  CHECK(governor.limit_ns() == 100 * us);
  for (int i = 0; i < 3; ++i) {
    CHECK(idle(governor, 120 * us) == 20 * us);
    CHECK(governor.limit_ns() == 100 * us);
  }
  CHECK(idle(governor, 90 * us) == 0);
}

TEST_CASE("haltpoll: the limit stops at its maximum, and shrinks by the time in HLT alone") {
  HaltpollGovernor governor{{}};
  for (int i = 0; i < 8; ++i)
    idle(governor, 390 * us);
  CHECK(governor.limit_ns() == 0);  // 390 us of HLT are above the maximum: nothing to grow from
  idle(governor, 150 * us);
  CHECK(governor.limit_ns() == 50 * us);
  idle(governor, 250 * us);
  CHECK(governor.limit_ns() == 100 * us);
  idle(governor, 250 * us);  // 150 us in HLT
  CHECK(governor.limit_ns() == 200 * us);
  idle(governor, 300 * us);  // 100 us in HLT: neither
  CHECK(governor.limit_ns() == 200 * us);
  idle(governor, 400 * us);  // exactly the maximum in HLT: neither
  CHECK(governor.limit_ns() == 200 * us);
  idle(governor, 401 * us);
  CHECK(governor.limit_ns() == 100 * us);
  idle(governor, 301 * us);
  CHECK(governor.limit_ns() == 50 * us);
  idle(governor, 251 * us);
  CHECK(governor.limit_ns() == 0);  // below the first limit
}

TEST_CASE("haltpoll: parameters") {
  HaltpollGovernor governor{HaltpollParameters{200'000, 4, 10'000, 0, true}};
  idle(governor, 60 * us);
  CHECK(governor.limit_ns() == 10 * us);
  idle(governor, 60 * us);
  CHECK(governor.limit_ns() == 40 * us);
  idle(governor, 500 * us);
  CHECK(governor.limit_ns() == 0);  // shrink 0: back to none
  HaltpollGovernor stays{HaltpollParameters{200'000, 2, 50'000, 2, false}};
  idle(stays, 60 * us);
  idle(stays, 900 * us);
  CHECK(stays.limit_ns() == 50 * us);
}

TEST_CASE("haltpoll: an interrupt without need_resched does not end the polling") {
  HaltpollGovernor governor{{}};
  idle(governor, 60 * us);
  governor.polled(false);
  CHECK(governor.select() == HaltpollGovernor::State::poll);
  governor.polled(true);
  CHECK(governor.select() == HaltpollGovernor::State::halt);
}
