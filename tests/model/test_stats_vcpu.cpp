#include <cstdint>
#include <set>
#include <string>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "model/stats/latency_stats.hpp"
#include "model/stats/vcpu_stats.hpp"

using svmsim::model::LatencyStats;
using svmsim::model::LogHistogram;
using svmsim::model::vcpu_stat_table;
using svmsim::model::VcpuStats;

TEST_CASE("log histogram: KVM's buckets") {
  CHECK(LogHistogram::bucket_of(0) == 0);
  CHECK(LogHistogram::bucket_of(1) == 1);
  CHECK(LogHistogram::bucket_of(2) == 2);
  CHECK(LogHistogram::bucket_of(3) == 2);
  CHECK(LogHistogram::bucket_of(4) == 3);
  CHECK(LogHistogram::bucket_of(10000) == 14);   // 8192 to 16383
  CHECK(LogHistogram::bucket_of(200000) == 18);  // 131072 to 262143
  for (unsigned k = 1; k < 31; ++k) {
    CHECK(LogHistogram::bucket_of(std::uint64_t{1} << (k - 1)) == k);
    CHECK(LogHistogram::bucket_of((std::uint64_t{1} << k) - 1) == k);
  }
  CHECK(LogHistogram::bucket_of(~std::uint64_t{0}) == 31);
}

TEST_CASE("vCPU statistics: the table names every field once, with a sentence") {
  std::set<std::string> names;
  std::size_t bytes = 0;
  for (const auto& info : vcpu_stat_table()) {
    CHECK(names.insert(std::string(info.name)).second);
    CHECK(info.doc.size() > 10);
    CHECK(info.doc.back() == '.');
    CHECK((info.counter != nullptr) != (info.histogram != nullptr));
    bytes += info.counter != nullptr ? sizeof(std::uint64_t) : sizeof(LogHistogram);
  }
  CHECK(bytes == sizeof(VcpuStats));
  for (const char* name : {"exits", "halt_exits", "halt_attempted_poll", "halt_successful_poll",
                           "halt_wakeup", "halt_poll_success_ns", "halt_poll_fail_ns", "halt_wait_ns",
                           "halt_poll_success_hist", "halt_poll_fail_hist", "halt_wait_hist"}) {
    CHECK(names.count(name) == 1);
  }
}

TEST_CASE("vCPU statistics: a window is a difference of every field") {
  VcpuStats start;
  VcpuStats end;
  std::uint64_t value = 1;
  for (const auto& info : vcpu_stat_table()) {
    ++value;
    if (info.counter != nullptr) {
      start.*info.counter = value;
      end.*info.counter = 3 * value;
    } else {
      (start.*info.histogram).count[5] = value;
      (end.*info.histogram).count[5] = 3 * value;
    }
  }
  const VcpuStats window = end - start;
  value = 1;
  for (const auto& info : vcpu_stat_table()) {
    ++value;
    CAPTURE(info.name);
    CHECK((info.counter != nullptr ? window.*info.counter : (window.*info.histogram).count[5]) == 2 * value);
  }
}

TEST_CASE("latency: exact count, mean, maximum and small values") {
  LatencyStats latency;
  CHECK(latency.percentile(500) == 0);
  CHECK(latency.mean() == 0.0);
  for (std::uint64_t i = 1; i <= 100; ++i)
    latency.record(i);
  CHECK(latency.count() == 100);
  CHECK(latency.mean() == 50.5);
  CHECK(latency.max() == 100);
  CHECK(latency.percentile(500) == 50);
  CHECK(latency.percentile(990) == 99);
  CHECK(latency.percentile(1000) == 100);
}

TEST_CASE("latency: a percentile is never below the true one and at most 1/128 above") {
  CHECK(rc::check([] {
    auto values = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint64_t>>(
        rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 50)));
    const unsigned per_mille = *rc::gen::inRange(1U, 1001U);
    LatencyStats latency;
    LatencyStats first;
    LatencyStats second;
    for (std::size_t i = 0; i < values.size(); ++i) {
      latency.record(values[i]);
      (i % 2 == 0 ? first : second).record(values[i]);
    }
    std::sort(values.begin(), values.end());
    const std::size_t rank = (values.size() * per_mille + 999) / 1000;
    const std::uint64_t exact = values[rank - 1];
    const std::uint64_t found = latency.percentile(per_mille);
    RC_ASSERT(found >= exact);
    RC_ASSERT(found - exact <= exact / 128 + 1);
    RC_ASSERT(found <= latency.max());
    first += second;
    RC_ASSERT(first.percentile(per_mille) == found);
    RC_ASSERT(first.mean() == latency.mean());
  }));
}
