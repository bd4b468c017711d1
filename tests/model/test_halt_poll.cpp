#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "model/policy/halt_poll.hpp"

using svmsim::model::HaltPoller;
using svmsim::model::HaltPollOutcome;
using svmsim::model::HaltPollParameters;
using svmsim::model::HaltPollPlan;
using svmsim::model::HaltPollResult;

namespace {

constexpr std::uint64_t us = 1000;

/// One halt of `idle_ns`: the event arrives then, the poll loop runs in no time and sleeping costs nothing.
struct IdleVcpu {
  HaltPoller poller;
  HaltPollParameters parameters;
  std::uint64_t now = 1000 * us;

  HaltPollOutcome halt(std::uint64_t idle_ns, bool allowed = true) {
    const HaltPollPlan plan = poller.begin(now, parameters, allowed);
    HaltPollResult result;
    const std::uint64_t event = now + idle_ns;
    if (plan.poll && event < plan.stop_ns) {
      result = {event, event, false};
    } else {
      result = {plan.stop_ns, event, true};
    }
    now = event + 5 * us;
    return poller.finish(plan, result, parameters, allowed);
  }

  /// Windows in force at each of `count` halts.
  std::vector<std::uint64_t> windows(std::uint64_t idle_ns, int count) {
    std::vector<std::uint64_t> result;
    for (int i = 0; i < count; ++i) {
      const HaltPollPlan plan = poller.begin(now, parameters);
      result.push_back(plan.stop_ns - plan.start_ns);
      halt(idle_ns);
    }
    return result;
  }
};

using Windows = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("halt polling: idle 50 us grows to 80 us and succeeds from the fifth halt") {
  IdleVcpu vcpu;
  CHECK(vcpu.windows(50 * us, 7) == Windows{0, 10 * us, 20 * us, 40 * us, 80 * us, 80 * us, 80 * us});

  IdleVcpu again;
  std::vector<std::pair<bool, bool>> attempted_successful;
  for (int i = 0; i < 6; ++i) {
    const HaltPollOutcome outcome = again.halt(50 * us);
    attempted_successful.emplace_back(outcome.attempted, outcome.successful);
  }
  CHECK(attempted_successful ==
        std::vector<std::pair<bool, bool>>{
            {false, false}, {true, false}, {true, false}, {true, false}, {true, true}, {true, true}});
}

TEST_CASE("halt polling: too long idle shrinks step by step with shrink 2 and at once with 6.1's shrink 0") {
  for (const std::uint64_t shrink : {std::uint64_t{2}, std::uint64_t{0}}) {
    IdleVcpu vcpu;
    vcpu.parameters.shrink = shrink;
    vcpu.windows(50 * us, 5);
    REQUIRE(vcpu.poller.window_ns() == 80 * us);
    const Windows expected =
        shrink == 2 ? Windows{80 * us, 40 * us, 20 * us, 10 * us, 0, 0} : Windows{80 * us, 0, 0, 0, 0, 0};
    CHECK(vcpu.windows(300 * us, 6) == expected);
  }
}

TEST_CASE("halt polling: idle above the largest window never polls") {
  IdleVcpu vcpu;
  CHECK(vcpu.windows(250 * us, 4) == Windows{0, 0, 0, 0});
}

TEST_CASE("halt polling: idle 150 us succeeds from the sixth halt on") {
  IdleVcpu vcpu;
  CHECK(vcpu.windows(150 * us, 6) == Windows{0, 10 * us, 20 * us, 40 * us, 80 * us, 160 * us});
  CHECK(vcpu.halt(150 * us).successful);
}

TEST_CASE("halt polling: equality with the largest window freezes the window") {
  IdleVcpu vcpu;
  CHECK(vcpu.windows(200 * us, 3) == Windows{0, 0, 0});
  vcpu.windows(20 * us, 3);
  const std::uint64_t window = vcpu.poller.window_ns();
  REQUIRE(window > 0);
  const HaltPollOutcome outcome = vcpu.halt(200 * us);
  CHECK_FALSE(outcome.window_event);
  CHECK(vcpu.poller.window_ns() == window);
}

TEST_CASE("halt polling: a halt as long as the window counts as covered") {
  IdleVcpu vcpu;
  vcpu.halt(50 * us);
  REQUIRE(vcpu.poller.window_ns() == 10 * us);
  CHECK_FALSE(vcpu.halt(10 * us).window_event);
  CHECK(vcpu.poller.window_ns() == 10 * us);
  CHECK(vcpu.halt(10 * us + 1).window_event);
  CHECK(vcpu.poller.window_ns() == 20 * us);
}

TEST_CASE("halt polling: the trace shows 320 us, the next halt clamps to 200 us") {
  IdleVcpu vcpu;
  std::vector<std::uint64_t> news;
  std::vector<std::uint64_t> olds;
  for (int i = 0; i < 6; ++i) {
    const HaltPollOutcome outcome = vcpu.halt(199 * us);
    REQUIRE(outcome.window_event);
    REQUIRE(outcome.window_grow);
    news.push_back(outcome.window_new_ns);
    olds.push_back(outcome.window_old_ns);
  }
  CHECK(news == Windows{10 * us, 20 * us, 40 * us, 80 * us, 160 * us, 320 * us});
  CHECK(olds == Windows{0, 10 * us, 20 * us, 40 * us, 80 * us, 160 * us});
  CHECK(vcpu.windows(199 * us, 2) == Windows{200 * us, 200 * us});
}

TEST_CASE("halt polling: a cap of 11 us gives 0, 10, 11 us (C-11)") {
  IdleVcpu vcpu;
  vcpu.parameters.halt_poll_ns = 11 * us;
  CHECK(vcpu.windows(10 * us + 500, 4) == Windows{0, 10 * us, 11 * us, 11 * us});
}

TEST_CASE("halt polling: a shrink of 0 stays at 0 (C-11)") {
  IdleVcpu vcpu;
  const HaltPollOutcome outcome = vcpu.halt(300 * us);
  CHECK_FALSE(outcome.window_event);
  CHECK(vcpu.poller.window_ns() == 0);
}

TEST_CASE("halt polling: grow 0 keeps the window and still emits its event") {
  IdleVcpu vcpu;
  vcpu.parameters.grow = 0;
  const HaltPollOutcome outcome = vcpu.halt(50 * us);
  CHECK(outcome.window_event);
  CHECK(outcome.window_grow);
  CHECK(outcome.window_new_ns == 0);
  CHECK(vcpu.poller.window_ns() == 0);
}

TEST_CASE("halt polling: poll control forbids polling and freezes the window") {
  IdleVcpu vcpu;
  vcpu.windows(50 * us, 3);
  const std::uint64_t window = vcpu.poller.window_ns();
  const HaltPollOutcome outcome = vcpu.halt(300 * us, false);
  CHECK_FALSE(outcome.attempted);
  CHECK_FALSE(outcome.window_event);
  CHECK(outcome.wait_ns == 300 * us);
  CHECK(vcpu.poller.window_ns() == window);
}

TEST_CASE("halt polling: a largest window of 0 switches polling off") {
  IdleVcpu vcpu;
  vcpu.windows(50 * us, 3);
  REQUIRE(vcpu.poller.window_ns() > 0);
  vcpu.parameters.halt_poll_ns = 0;
  CHECK_FALSE(vcpu.halt(50 * us).attempted);
  CHECK(vcpu.poller.window_ns() == 0);
}

TEST_CASE("halt polling: success means never scheduled out, even after the poll loop") {
  HaltPoller poller;
  const HaltPollParameters parameters;
  poller.finish(poller.begin(0, parameters), {0, 50 * us, true}, parameters);
  const HaltPollPlan plan = poller.begin(100 * us, parameters);
  REQUIRE(plan.poll);
  const HaltPollOutcome outcome = poller.finish(plan, {110 * us, 111 * us, false}, parameters);
  CHECK(outcome.successful);
  CHECK(outcome.poll_success_ns == 10 * us);
  CHECK(outcome.halt_ns == 11 * us);
  CHECK(outcome.wait_ns == 0);
}

TEST_CASE("halt polling: a second runnable task ends the polling early, only the time counts") {
  HaltPoller poller;
  const HaltPollParameters parameters;
  poller.finish(poller.begin(0, parameters), {0, 50 * us, true}, parameters);
  const HaltPollPlan plan = poller.begin(100 * us, parameters);
  const HaltPollOutcome outcome = poller.finish(plan, {103 * us, 150 * us, true}, parameters);
  CHECK(outcome.attempted);
  CHECK_FALSE(outcome.successful);
  CHECK(outcome.poll_fail_ns == 3 * us);
  CHECK(outcome.wait_ns == 47 * us);
  CHECK(poller.window_ns() == 20 * us);
}

TEST_CASE("halt polling: the windows of a real trace, from its wake-up times (trace 05)") {
  // kvm list, 2023, ns stamps of kvm_halt_poll_ns: a halt that ended at each of them. Those that shrink
  // lasted since the event before, more than the 200 us of the largest window; those that grow at most 150
  // us.
  struct Wake {
    std::uint64_t stamp;
    std::uint64_t window;
    bool grow;
    std::uint64_t old_window;
  };
  const std::vector<Wake> wakes{{87162647182125, 10000, true, 0},      {87162647637763, 20000, true, 10000},
                                {87162649627943, 40000, true, 20000},  {87162650892407, 20000, false, 40000},
                                {87162651540378, 40000, true, 20000},  {87162652276768, 20000, false, 40000},
                                {87162652515037, 40000, true, 20000},  {87162653383787, 20000, false, 40000},
                                {87162653627670, 10000, false, 20000}, {87162653796321, 20000, true, 10000},
                                {87162656171645, 10000, false, 20000}, {87162661607487, 0, false, 10000}};
  HaltPoller poller;
  const HaltPollParameters parameters;  // shrink 2: what the patch that shows the trace makes the default
  std::uint64_t before = wakes.front().stamp - 150 * us;
  for (const Wake& wake : wakes) {
    CAPTURE(wake.stamp);
    const std::uint64_t since = wake.stamp - before;
    const std::uint64_t halt = wake.grow ? std::min(since, 150 * us) : since;
    const HaltPollPlan plan = poller.begin(wake.stamp - halt, parameters);
    CHECK(plan.stop_ns - plan.start_ns == wake.old_window);
    const HaltPollOutcome outcome = poller.finish(plan, {plan.stop_ns, wake.stamp, true}, parameters);
    CHECK(outcome.window_event);
    CHECK(outcome.window_grow == wake.grow);
    CHECK(outcome.window_new_ns == wake.window);
    CHECK(outcome.window_old_ns == wake.old_window);
    before = wake.stamp;
  }
}

TEST_CASE("halt polling: no window beyond the largest is ever used, and it is 0 or at least the first one") {
  CHECK(rc::check([] {
    IdleVcpu vcpu;
    vcpu.parameters.halt_poll_ns = *rc::gen::inRange<std::uint64_t>(0, 500 * us);
    vcpu.parameters.grow = *rc::gen::inRange<std::uint64_t>(0, 5);
    vcpu.parameters.shrink = *rc::gen::inRange<std::uint64_t>(0, 5);
    vcpu.parameters.grow_start = *rc::gen::inRange<std::uint64_t>(1, 50 * us);
    for (const std::uint64_t idle :
         *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(1, 600 * us))) {
      const HaltPollPlan plan = vcpu.poller.begin(vcpu.now, vcpu.parameters);
      const std::uint64_t window = plan.stop_ns - plan.start_ns;
      RC_ASSERT(window <= vcpu.parameters.halt_poll_ns);
      RC_ASSERT(window == 0 || window >= vcpu.parameters.grow_start ||
                window == vcpu.parameters.halt_poll_ns);
      const HaltPollOutcome outcome = vcpu.halt(idle);
      RC_ASSERT(outcome.poll_success_ns + outcome.poll_fail_ns + outcome.wait_ns == outcome.halt_ns);
    }
  }));
}
