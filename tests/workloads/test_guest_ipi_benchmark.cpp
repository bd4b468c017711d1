// The histogram of the benchmark, and its parameters.

#include <algorithm>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "svm/user_error.hpp"
#include "workloads/guest/ipi_benchmark.hpp"

namespace svmsim::workloads::test {

TEST_CASE("a quantile of the histogram is within 1/128 of the sorted list's") {
  CHECK(rc::check("CycleHistogram", [] {
    const auto values = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint64_t>>(rc::gen::oneOf(
        rc::gen::inRange<std::uint64_t>(0, 400), rc::gen::inRange<std::uint64_t>(0, 5000000))));
    CycleHistogram histogram;
    for (const std::uint64_t value : values)
      histogram.add(value);
    std::vector<std::uint64_t> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    RC_ASSERT(histogram.count() == values.size());
    for (const std::uint64_t share : {0U, 1U, 250U, 500U, 990U, 1000U}) {
      const std::size_t rank = std::max<std::size_t>((sorted.size() * share + 999) / 1000, 1);
      const std::uint64_t exact = share == 0 ? sorted.front() : sorted[rank - 1];
      const std::uint64_t found = histogram.quantile(share);
      const std::uint64_t distance = found > exact ? found - exact : exact - found;
      RC_ASSERT(distance * 128 <= exact);
    }
  }));
  CycleHistogram largest;
  largest.add(~std::uint64_t{0});
  CHECK(largest.quantile(500) == ~std::uint64_t{0});
}

TEST_CASE("the benchmark's parameters") {
  GuestPlatform platform;
  platform.apic.cpus = 4;
  WorkloadSpec spec{"ipi_benchmark", {}};
  CHECK(IpiBenchmark::parse(spec, platform).fan_out == 3);
  CHECK(IpiBenchmark::parse(spec, platform).test == IpiTest::normal);
  spec.parameters["test"] = std::string("broadcast");
  spec.parameters["target"] = std::string("halt");
  spec.parameters["fan_out"] = std::int64_t{2};
  const IpiBenchmarkSpec parsed = IpiBenchmark::parse(spec, platform);
  CHECK(parsed.test == IpiTest::broadcast);
  CHECK(parsed.target == IpiTarget::halt);
  CHECK(parsed.fan_out == 2);
  spec.parameters["fan_out"] = std::int64_t{4};
  CHECK_THROWS_WITH_AS(static_cast<void>(IpiBenchmark::parse(spec, platform)),
                       "fan_out: is 4, but the VM has 3 other vCPUs (did you mean 3?)", UserError);
  spec.parameters["test"] = std::string("brodcast");
  const auto problems = check_spec(spec, "vm.vm0.workload");
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].path == "vm.vm0.workload.test");
  CHECK(problems[0].nearest == "broadcast");
}

}  // namespace svmsim::workloads::test
