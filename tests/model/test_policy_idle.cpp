// The idle governors and the PAUSE-filter window, without a simulator.

#include <vector>

#include <doctest/doctest.h>

#include "model/policy/menu_governor.hpp"
#include "model/policy/ple_window.hpp"
#include "model/policy/teo_governor.hpp"

using namespace svmsim::model;

namespace {

constexpr std::uint64_t us = 1000;
constexpr std::uint64_t tick = 4000 * us;

/// POLL, C1, C2 as acpi_idle declares them on Rome (C-13).
const std::vector<IdleState> rome{{0, 0, true}, {1 * us, 2 * us, false}, {400 * us, 800 * us, false}};

IdleRequest idle_until(std::uint64_t next_timer_ns, bool tick_stopped = false) {
  IdleRequest request;
  request.next_timer_ns = next_timer_ns;
  request.next_tick_ns = 2000 * us;
  request.tick_stopped = tick_stopped;
  return request;
}

template <class Governor>
IdleChoice after(Governor& governor, std::uint64_t idle_ns, int times, std::uint64_t next_timer_ns) {
  for (int i = 0; i < times; ++i) {
    (void)governor.select(idle_until(next_timer_ns));
    governor.reflect(idle_ns, false);
  }
  return governor.select(idle_until(next_timer_ns));
}

}  // namespace

TEST_CASE("menu: the typical interval of eight, without at most two outliers") {
  MenuGovernor steady(rome, tick);
  CHECK(steady.typical_interval_us() == 0);
  (void)after(steady, 101 * us, 8, 100000 * us);
  CHECK(steady.typical_interval_us() == 100);  // less C1's latency
  SUBCASE("one long idle among them is set aside") {
    steady.reflect(40000 * us, false);
    (void)steady.select(idle_until(100000 * us));
    CHECK(steady.typical_interval_us() == 100);
  }
  SUBCASE("three are not: nothing is typical") {
    for (int i = 0; i < 3; ++i) {
      steady.reflect(static_cast<std::uint64_t>(20 + 15 * i) * 1000 * us, false);
      (void)steady.select(idle_until(100000 * us));
    }
    CHECK(steady.typical_interval_us() == MenuGovernor::typical_none);
  }
}

TEST_CASE("menu: short idles take C1 and keep the tick, long ones take C2 and stop it") {
  MenuGovernor governor(rome, tick);
  IdleChoice choice = after(governor, 100 * us, 10, 500000 * us);
  CHECK(choice.state == 1);
  CHECK_FALSE(choice.stop_tick);
  choice = after(governor, 30000 * us, 30, 30000 * us);
  CHECK(choice.state == 2);
  CHECK(choice.stop_tick);
}

TEST_CASE("menu: the residency decides, and the declared one at that") {
  MenuGovernor governor(rome, tick);
  CHECK(after(governor, 790 * us, 12, 500000 * us).state == 1);
  CHECK(after(governor, 900 * us + 400 * us, 12, 500000 * us).state == 2);
}

TEST_CASE("menu: a timer closer than C1's residency polls") {
  MenuGovernor governor(rome, tick);
  (void)after(governor, 100 * us, 8, 500000 * us);
  const IdleChoice choice = governor.select(idle_until(1 * us));
  CHECK(choice.state == 0);
  CHECK_FALSE(choice.stop_tick);
}

TEST_CASE("menu: never POLL where a physical state fits before the timer") {
  MenuGovernor governor(rome, tick);
  CHECK(governor.select(idle_until(500000 * us)).state == 1);  // the first idle: nothing is known
}

TEST_CASE("menu: the correction factor learns that timers are not waited for") {
  MenuGovernor governor(rome, tick);
  // Intervals without a pattern, always a tenth of the time to the timer.
  for (int i = 0; i < 200; ++i) {
    (void)governor.select(idle_until(9000 * us));
    governor.reflect(i % 2 == 0 ? 400 * us : 1300 * us, false);
  }
  (void)governor.select(idle_until(9000 * us));
  CHECK(governor.predicted_ns() > 400 * us);
  CHECK(governor.predicted_ns() < 1400 * us);
}

TEST_CASE("menu: an idle that only the kept tick ended counts as a long one") {
  MenuGovernor governor(rome, tick);
  IdleChoice choice = after(governor, 100 * us, 8, 500000 * us);
  REQUIRE_FALSE(choice.stop_tick);
  for (int i = 0; i < 8; ++i) {
    governor.reflect(2000 * us, true);
    choice = governor.select(idle_until(500000 * us));
  }
  CHECK(choice.state == 2);
  CHECK(choice.stop_tick);
}

TEST_CASE("teo: hits go with the timer, intercepts make it shallower") {
  TeoGovernor governor(rome, tick);
  IdleChoice choice = after(governor, 30000 * us, 5, 30000 * us);
  CHECK(choice.state == 2);
  CHECK(choice.stop_tick);
  CHECK(governor.hits(2) > 0);
  CHECK(governor.intercepts(1) == 0);
  choice = after(governor, 100 * us, 20, 30000 * us);
  CHECK(choice.state == 1);
  CHECK(governor.intercepts(1) > governor.hits(2));
  choice = after(governor, 30000 * us, 20, 30000 * us);
  CHECK(choice.state == 2);
}

TEST_CASE("teo: the state must fit the time to the timer") {
  TeoGovernor governor(rome, tick);
  CHECK(governor.select(idle_until(500 * us)).state == 1);
  CHECK(governor.select(idle_until(1 * us)).state == 0);
}

TEST_CASE("teo: metrics decay by an eighth and grow by 1024") {
  TeoGovernor governor(rome, tick);
  (void)after(governor, 30000 * us, 1, 30000 * us);
  CHECK(governor.hits(2) == 1024);
  governor.reflect(30000 * us, false);
  (void)governor.select(idle_until(30000 * us));
  CHECK(governor.hits(2) == 1024 - 128 + 1024);
}

TEST_CASE("without a governor the first state is taken and the tick stops") {
  const auto governor = make_idle_governor(IdleGovernorKind::none, rome, tick);
  CHECK(governor->select(idle_until(1)).state == 0);
  CHECK(governor->select(idle_until(1)).stop_tick);
}

TEST_CASE("PLE: the window grows 3000, 6000, ... 65535 and falls back to the base") {
  const PleParameters parameters;
  std::vector<unsigned> windows{3000};
  while (windows.back() != 65535)
    windows.push_back(grown_ple_window(windows.back(), parameters));
  CHECK(windows == std::vector<unsigned>{3000, 6000, 12000, 24000, 48000, 65535});
  CHECK(grown_ple_window(65535, parameters) == 65535);
  CHECK(shrunk_ple_window(65535, parameters) == 3000);
}

TEST_CASE(
    "PLE: modifiers below the base multiply and divide, others add and subtract; never below the base") {
  PleParameters parameters;
  parameters.grow = 4000;
  parameters.shrink = 2;
  CHECK(grown_ple_window(3000, parameters) == 7000);
  CHECK(shrunk_ple_window(48000, parameters) == 24000);
  CHECK(shrunk_ple_window(4000, parameters) == 3000);
  parameters.shrink = 5000;
  CHECK(shrunk_ple_window(9000, parameters) == 4000);
  CHECK(shrunk_ple_window(5000, parameters) == 3000);
  parameters.grow = 0;
  CHECK(grown_ple_window(48000, parameters) == 3000);
}
