// The pCPU's timer queue and the choice of a pCPU at wake-up, without a simulator.

#include <algorithm>
#include <memory>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "model/host_timer.hpp"
#include "model/policy/wake_placement.hpp"

using namespace svmsim::model;

namespace {

class NoClient final : public HostTimerClient {
 public:
  void timer_expired(PhysicalCpu&, HostTimer&) override {}
};

CpuSet idle_of(unsigned cpus, const std::vector<unsigned>& idle) {
  CpuSet result(cpus);
  for (const unsigned cpu : idle)
    result.add(cpu);
  return result;
}

}  // namespace

TEST_CASE("timers come out by time, equal ones in the order of arming, cancelled ones never") {
  CHECK(rc::check([] {
    NoClient client;
    std::vector<std::unique_ptr<HostTimer>> timers;
    for (int i = 0; i < 40; ++i)
      timers.push_back(std::make_unique<HostTimer>(client));
    HostTimerQueue queue;
    std::vector<std::pair<std::uint64_t, HostTimer*>> expected;
    for (int step = 0; step < 200; ++step) {
      HostTimer* timer = timers[*rc::gen::inRange<std::size_t>(0, timers.size())].get();
      const auto armed = std::find_if(expected.begin(), expected.end(),
                                      [timer](const auto& entry) { return entry.second == timer; });
      if (armed != expected.end()) {
        queue.erase(*timer);
        expected.erase(armed);
      }
      if (*rc::gen::inRange(0, 3) != 0) {
        const auto expires = *rc::gen::inRange<std::uint64_t>(0, 50);
        queue.insert(*timer, expires);
        expected.emplace_back(expires, timer);
      }
    }
    std::stable_sort(expected.begin(), expected.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [expires, timer] : expected) {
      RC_ASSERT(queue.first() == timer);
      RC_ASSERT(queue.next_expiry() == expires);
      queue.erase(*timer);
    }
    RC_ASSERT(queue.first() == nullptr);
    RC_ASSERT(queue.next_expiry() == never_cycles);
  }));
}

TEST_CASE("a CPU set finds members across words, around a start, and within another set") {
  CpuSet set(200);
  set.add(3);
  set.add(130);
  CHECK(set.first(0, 200) == 3);
  CHECK(set.first(4, 200) == 130);
  CHECK(set.first(4, 130) == CpuSet::none);
  CHECK(set.first_around(131, 0, 200) == 3);
  CpuSet other(200);
  other.add(130);
  CHECK(set.first(0, 200, &other) == 130);
  const CpuSet full(70, true);
  CHECK(full.first(64, 70) == 64);
  CHECK(full.first(70, 128) == CpuSet::none);
}

TEST_CASE("wake-up placement: the previous pCPU if idle, then one that shares its cache, else stay") {
  const CpuTopology topology{32, 8, 1};
  const CpuSet no_cores(32);
  WakeRequest request;
  request.previous = 9;
  request.waker = 20;
  request.weight = 1024;
  request.previous_load = 1024;
  request.waker_load = 1024;
  CHECK(select_cpu(request, topology, idle_of(32, {9, 10}), no_cores) == 9);
  CHECK(select_cpu(request, topology, idle_of(32, {3, 14, 21}), no_cores) == 14);
  CHECK(select_cpu(request, topology, idle_of(32, {3, 21}), no_cores) == 9);  // other caches are not searched
  request.recent = 15;
  CHECK(select_cpu(request, topology, idle_of(32, {10, 15}), no_cores) == 15);
}

TEST_CASE("wake-up placement: an idle waker pulls within its cache, a less loaded one across caches") {
  const CpuTopology topology{32, 8, 1};
  const CpuSet no_cores(32);
  WakeRequest request;
  request.previous = 9;
  request.waker = 11;  // an interrupt of an idle pCPU
  request.weight = 1024;
  request.previous_load = 2048;
  CHECK(select_cpu(request, topology, idle_of(32, {10, 11}), no_cores) == 11);
  CHECK(select_cpu(request, topology, idle_of(32, {9, 11}), no_cores) == 9);
  request.waker = 20;
  request.waker_load = 1024;
  request.previous_load = 3072;
  CHECK(select_cpu(request, topology, idle_of(32, {22}), no_cores) == 22);
  request.previous_load = 1024;
  CHECK(select_cpu(request, topology, idle_of(32, {22}), no_cores) == 9);
}

TEST_CASE("wake-up placement: whole idle cores first, and never outside the affinity") {
  const CpuTopology topology{16, 8, 2};
  WakeRequest request;
  request.previous = 2;
  request.previous_load = 1024;
  CHECK(select_cpu(request, topology, idle_of(16, {3, 6, 7}), idle_of(16, {6})) == 6);
  const CpuSet allowed = idle_of(16, {2, 3, 12});
  request.allowed = &allowed;
  CHECK(select_cpu(request, topology, idle_of(16, {3, 6, 7}), idle_of(16, {6})) == 3);
  request.previous = 5;  // no longer allowed
  CHECK(select_cpu(request, topology, idle_of(16, {6}), idle_of(16, {})) == 2);
}
