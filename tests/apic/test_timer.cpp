#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "apic/apic_timer.hpp"
#include "svm/user_error.hpp"

using namespace svmsim::apic;

TEST_CASE("the divide configuration register has eight values") {
  const std::array<std::pair<std::uint32_t, unsigned>, 8> table{
      {{0, 2}, {1, 4}, {2, 8}, {3, 16}, {8, 32}, {9, 64}, {0xa, 128}, {0xb, 1}}};
  for (const auto& [value, divider] : table) {
    CHECK(timer_divider(value) == divider);
    CHECK(timer_divider(value | 4) == divider);
  }
}

TEST_CASE("every divider stretches a one-shot count") {
  for (const std::uint32_t value : {0U, 1U, 2U, 3U, 8U, 9U, 0xaU, 0xbU}) {
    const unsigned divider = timer_divider(value);
    CAPTURE(divider);
    ApicTimer timer;
    timer.set_divider(divider, 0);
    timer.set_initial_count(10, 1000);
    CHECK(timer.current_count(1000) == 10);
    CHECK(timer.current_count(1000 + divider - (divider > 1 ? 1 : 0)) == (divider > 1 ? 10 : 9));
    CHECK(timer.current_count(1000 + divider) == 9);
    CHECK(timer.current_count(1000 + 10 * divider - 1) == 1);
    CHECK(timer.current_count(1000 + 10 * divider) == 0);
    CHECK(timer.next_expiry(1000) == 1000 + 10 * divider);
    CHECK(timer.take_expiries(1000 + 10 * divider - 1) == 0);
    CHECK(timer.take_expiries(1000 + 10 * divider) == 1);
    CHECK(timer.take_expiries(1000000) == 0);
    CHECK(timer.next_expiry(1000000) == ApicTimer::never);
    CHECK(timer.initial_count() == 10);
  }
}

TEST_CASE("a write of the initial count restarts, and 0 stops") {
  ApicTimer timer;
  timer.set_divider(1, 0);
  timer.set_initial_count(100, 0);
  timer.set_initial_count(100, 60);
  CHECK(timer.next_expiry(60) == 160);
  timer.set_initial_count(0, 159);
  CHECK(timer.next_expiry(159) == ApicTimer::never);
  CHECK(timer.current_count(159) == 0);
  CHECK(timer.take_expiries(1000) == 0);
  CHECK_FALSE(timer.armed());
}

TEST_CASE("an expiry that nobody took outlives the writes after it") {
  ApicTimer timer;
  timer.set_divider(1, 0);
  timer.set_initial_count(100, 0);
  timer.set_initial_count(0, 100);
  CHECK(timer.next_expiry(100) == 100);
  CHECK(timer.take_expiries(100) == 1);
  CHECK(timer.next_expiry(100) == ApicTimer::never);
}

TEST_CASE("a periodic timer reloads and does not drift, whatever the clocks") {
  // 2.4 GHz TSC, 1 GHz bus: a period of 7 * 16 ns is 268.8 cycles.
  ApicTimer timer({2'400'000, 1'000'000});
  timer.set_mode(TimerMode::periodic, 0);
  timer.set_divider(16, 0);
  timer.set_initial_count(7, 5);
  std::uint64_t now = 5;
  for (std::uint64_t n = 1; n <= 100'000; ++n) {
    now = timer.next_expiry(now);
    REQUIRE(now == 5 + (n * 2688 + 9) / 10);
    REQUIRE(timer.take_expiries(now) == 1);
    REQUIRE(timer.current_count(now) == 7);
  }
  CHECK(timer.take_expiries(5 + 26'880'000 + 2688) == 10);
}

TEST_CASE("periodic and one-shot change into each other without a restart") {
  ApicTimer timer;
  timer.set_divider(1, 0);
  timer.set_initial_count(100, 0);
  timer.set_mode(TimerMode::periodic, 30);
  CHECK(timer.current_count(30) == 70);
  CHECK(timer.take_expiries(100) == 1);
  CHECK(timer.next_expiry(100) == 200);
  timer.set_mode(TimerMode::one_shot, 150);
  CHECK(timer.take_expiries(1000) == 1);
  CHECK(timer.next_expiry(1000) == ApicTimer::never);
  // An expired one-shot does not come back by the mode alone.
  timer.set_mode(TimerMode::periodic, 1001);
  CHECK(timer.next_expiry(1001) == ApicTimer::never);
  CHECK(timer.initial_count() == 100);
}

TEST_CASE("a new divider keeps the count that is left") {
  ApicTimer timer;
  timer.set_divider(4, 0);
  timer.set_initial_count(100, 0);
  timer.set_divider(1, 240);  // 60 counts gone
  CHECK(timer.current_count(240) == 40);
  CHECK(timer.next_expiry(240) == 280);
  timer.set_divider(128, 241);
  CHECK(timer.current_count(241) == 39);
  CHECK(timer.next_expiry(241) == 241 + 39 * 128);
  // Half a count stays half a count.
  ApicTimer half;
  half.set_divider(4, 0);
  half.set_initial_count(10, 0);
  half.set_divider(2, 2);
  CHECK(half.next_expiry(2) == 2 + 19);
}

TEST_CASE("TSC-deadline mode: armed by the MSR only, fires once, then reads 0") {
  ApicTimer timer;
  timer.write_deadline(500, 10);
  CHECK(timer.read_deadline(10) == 0);
  CHECK(timer.next_expiry(10) == ApicTimer::never);
  timer.set_mode(TimerMode::tsc_deadline, 10);
  timer.set_initial_count(5, 10);
  CHECK(timer.initial_count() == 0);
  CHECK(timer.next_expiry(10) == ApicTimer::never);
  timer.write_deadline(500, 20);
  CHECK(timer.read_deadline(499) == 500);
  CHECK(timer.current_count(30) == 0);
  CHECK(timer.next_expiry(30) == 500);
  CHECK(timer.take_expiries(499) == 0);
  CHECK(timer.take_expiries(500) == 1);
  CHECK(timer.read_deadline(500) == 0);
  CHECK(timer.next_expiry(500) == ApicTimer::never);
}

TEST_CASE("a deadline in the past fires at once, and 0 disarms") {
  ApicTimer timer;
  timer.set_mode(TimerMode::tsc_deadline, 0);
  for (const std::uint64_t deadline : {1U, 999U, 1000U}) {
    timer.write_deadline(deadline, 1000);
    CHECK(timer.next_expiry(1000) == 1000);
    CHECK(timer.take_expiries(1000) == 1);
    CHECK(timer.next_expiry(1000) == ApicTimer::never);
  }
  timer.write_deadline(1001, 1000);
  CHECK(timer.next_expiry(1000) == 1001);
  timer.write_deadline(0, 1000);
  CHECK(timer.next_expiry(1000) == ApicTimer::never);
  CHECK(timer.take_expiries(2000) == 0);
}

TEST_CASE("a change between deadline and the other modes disarms") {
  for (const TimerMode mode : {TimerMode::one_shot, TimerMode::periodic}) {
    ApicTimer timer;
    timer.set_mode(mode, 0);
    timer.set_initial_count(100, 0);
    timer.set_mode(TimerMode::tsc_deadline, 5);
    CHECK(timer.next_expiry(5) == ApicTimer::never);
    timer.write_deadline(50, 6);
    timer.set_mode(mode, 7);
    CHECK(timer.next_expiry(7) == ApicTimer::never);
    CHECK(timer.initial_count() == 0);
    CHECK(timer.read_deadline(7) == 0);
  }
  ApicTimer timer;
  timer.set_initial_count(100, 0);
  timer.set_mode(TimerMode::reserved, 1);
  CHECK(timer.next_expiry(1) == ApicTimer::never);
  timer.set_initial_count(100, 2);
  CHECK(timer.next_expiry(2) == ApicTimer::never);
}

TEST_CASE("the shortest period binds periodic mode only") {
  ApicTimer timer({}, 1000);
  timer.set_divider(1, 0);
  timer.set_initial_count(10, 0);
  CHECK(timer.next_expiry(0) == 10);
  timer.set_mode(TimerMode::periodic, 0);
  timer.set_initial_count(10, 0);
  CHECK(timer.next_expiry(0) == 1000);
  CHECK(timer.take_expiries(3500) == 3);
  timer.set_initial_count(1500, 3600);
  CHECK(timer.next_expiry(3600) == 5100);
}

TEST_CASE("a TSC write moves a deadline, not a count") {
  ApicTimer timer;
  timer.set_divider(1, 0);
  timer.set_initial_count(100, 1000);
  timer.tsc_jumped(-500);
  CHECK(timer.next_expiry(510) == 600);
  timer.tsc_jumped(500);
  CHECK(timer.current_count(1040) == 60);
  ApicTimer deadline;
  deadline.set_mode(TimerMode::tsc_deadline, 0);
  deadline.write_deadline(100, 0);
  deadline.tsc_jumped(1000);
  CHECK(deadline.next_expiry(1000) == 1000);
}

TEST_CASE("the longest count on the slowest timer, and clocks outside their range") {
  ApicTimer timer({0xffffffff, 1});
  timer.set_divider(128, 0);
  timer.set_initial_count(0xffffffff, 0);
  CHECK(timer.next_expiry(0) == ApicTimer::never);  // 2^71 cycles
  CHECK(timer.current_count(~std::uint64_t{0} >> 1) > 0xf0000000U);
  ApicTimer fits({1000, 1});
  fits.set_divider(128, 0);
  fits.set_initial_count(0xffffffff, 0);
  CHECK(fits.next_expiry(0) == 0xffffffffULL * 128'000);
  CHECK_THROWS_AS(ApicTimer({0, 1}), svmsim::InternalError);
  CHECK_THROWS_AS(ApicTimer({1, 0}), svmsim::InternalError);
  CHECK_THROWS_AS(ApicTimer({std::uint64_t{1} << 32, 1}), svmsim::InternalError);
}

namespace {

/// The timer cycle by cycle: a prescaler in parts of a count (128 * tsc of them), and a counter.
class StepTimer {
 public:
  StepTimer(std::uint64_t tsc, std::uint64_t bus) : tsc_(tsc), bus_(bus) {}

  void mode(TimerMode next) {
    if (next == mode_) return;
    if (next == TimerMode::tsc_deadline || mode_ == TimerMode::tsc_deadline) {
      count = initial_ = 0;
      deadline_ = 0;
    }
    mode_ = next;
  }
  // What has passed of the current count keeps its share of it.
  void divider(unsigned next) { divider_ = next; }
  void initial(std::uint32_t value) {
    if (mode_ == TimerMode::tsc_deadline) return;
    initial_ = count = value;
    part_ = 0;
  }
  void deadline(std::uint64_t value) {
    if (mode_ == TimerMode::tsc_deadline) deadline_ = value;
    check_deadline();
  }
  void step() {
    ++now;
    check_deadline();
    if (count == 0) return;
    part_ += 128 / divider_ * bus_;
    while (count != 0 && part_ >= 128 * tsc_) {
      part_ -= 128 * tsc_;
      if (--count != 0) continue;
      ++expiries;
      if (mode_ == TimerMode::periodic) count = initial_;
    }
    if (count == 0) part_ = 0;
  }

  std::uint64_t now = 0;
  std::uint64_t expiries = 0;
  std::uint32_t count = 0;

 private:
  void check_deadline() {
    if (deadline_ == 0 || deadline_ > now) return;
    deadline_ = 0;
    ++expiries;
  }
  std::uint64_t tsc_;
  std::uint64_t bus_;
  TimerMode mode_ = TimerMode::one_shot;
  unsigned divider_ = 2;
  std::uint32_t initial_ = 0;
  std::uint64_t part_ = 0;
  std::uint64_t deadline_ = 0;
};

}  // namespace

TEST_CASE("the timer agrees with one that counts cycle by cycle") {
  const bool held = rc::check("counts and expiries at every cycle, under random register writes", [] {
    const auto tsc = *rc::gen::inRange<std::uint64_t>(1, 8);
    const auto bus = *rc::gen::inRange<std::uint64_t>(1, 8);
    StepTimer reference(tsc, bus);
    ApicTimer timer({tsc, bus});
    std::uint64_t taken = 0;
    const auto writes = *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::arbitrary<std::uint32_t>());
    for (const std::uint32_t write : writes) {
      const std::uint64_t now = reference.now;
      const std::uint32_t value = write >> 8;
      switch (write % 5) {
        case 0: {
          const auto mode = static_cast<TimerMode>(value % 3);
          reference.mode(mode);
          timer.set_mode(mode, now);
          break;
        }
        case 1:
          reference.divider(timer_divider(value));
          timer.set_divider(timer_divider(value), now);
          break;
        case 2:
        case 3:
          reference.initial(value % 40);
          timer.set_initial_count(value % 40, now);
          break;
        default: {
          const std::uint64_t deadline = value % 8 == 0 ? 0 : now + value % 64 - (now > 8 ? 8 : 0);
          reference.deadline(deadline);
          timer.write_deadline(deadline, now);
          break;
        }
      }
      const std::uint32_t steps = (write >> 5) % 97;
      for (std::uint32_t i = 0; i < steps; ++i) {
        const std::uint64_t before = reference.expiries;
        const std::uint64_t expected = timer.next_expiry(reference.now);
        reference.step();
        RC_ASSERT(timer.current_count(reference.now) == reference.count);
        // next_expiry named this very cycle, or an expiry left over from a write, or none came.
        if (reference.expiries != before) RC_ASSERT(expected <= reference.now);
        if (reference.expiries == before && taken == before) RC_ASSERT(expected > reference.now);
        if (write % 2 == 0) {
          taken += timer.take_expiries(reference.now);
          RC_ASSERT(taken == reference.expiries);
        }
      }
    }
    taken += timer.take_expiries(reference.now);
    RC_ASSERT(taken == reference.expiries);
  });
  CHECK(held);
}
