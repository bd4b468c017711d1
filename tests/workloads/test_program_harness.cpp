#include <cstdint>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "tests/workloads/program_driver.hpp"
#include "workloads/harness.hpp"
#include "workloads/program_loader.hpp"

using namespace svmsim::workloads;
using svmsim::workloads::test::drive;
using svmsim::workloads::test::ProgramDriver;

namespace {

constexpr std::uint64_t vmexit_goal = std::uint64_t{1} << 30;

struct Totals {
  std::uint64_t iterations = 0;
  std::uint64_t batches = 0;
  std::uint64_t last = 0;
};

/// All batches of a loop that takes `cycles` an iteration.
Totals run_batches(std::uint64_t cycles, std::uint64_t goal, std::uint64_t count = 0,
                   std::uint64_t start = 32) {
  BatchHarness harness(start, goal, count);
  Totals totals;
  std::uint64_t tsc = 12345;
  bool more = true;
  while (more) {
    harness.begin(tsc);
    totals.iterations += harness.batch_size();
    ++totals.batches;
    tsc += cycles * harness.batch_size() + 7;  // the loop and one remainder
    more = harness.end(tsc);
    tsc += 1000;  // what happens between batches does not count
  }
  CHECK(harness.cycles_per_iteration() == cycles + 7 / harness.batch_size());
  totals.last = harness.last_batch_size();
  CHECK(harness.batches() == totals.batches);
  return totals;
}

Program constant_loop(std::uint64_t cycles, const std::string& repeat) {
  return parse_program("name = 'loop'\ndoc = 'a loop'\nbody = [ { do = 'compute', cycles = " +
                           std::to_string(cycles) + " } ]\n[repeat]\n" + repeat,
                       "loop.toml");
}

ProgramDriver run_loop(std::uint64_t cycles, const std::string& repeat) {
  std::vector<std::unique_ptr<WorkloadSource>> sources;
  sources.push_back(make_source(constant_loop(cycles, repeat), {}, 0));
  ProgramDriver driver(std::move(sources));
  driver.run();
  return driver;
}

}  // namespace

TEST_CASE("the doubling rule gives the published totals of each octave") {
  // 2^(k+1) - 64 operations when the last batch has 2^k, that is 2^30 / c rounded up to a power of two.
  CHECK(run_batches(19000, vmexit_goal).iterations == 131008);
  CHECK(run_batches(9806, vmexit_goal).iterations == 262080);
  CHECK(run_batches(4806, vmexit_goal).iterations == 524224);
  CHECK(run_batches(2100, vmexit_goal).iterations == 1048512);
  CHECK(run_batches(1100, vmexit_goal).iterations == 2097088);
  CHECK(run_batches(600, vmexit_goal).iterations == 4194240);
}

TEST_CASE("the octave of the idle-HLT thread is 8192 to 16383 cycles, to the cycle") {
  CHECK(run_batches(8191, vmexit_goal).last == 262144);
  CHECK(run_batches(8192, vmexit_goal).last == 131072);
  CHECK(run_batches(16383, vmexit_goal).last == 131072);
  CHECK(run_batches(16384, vmexit_goal).last == 65536);
  CHECK(run_batches(9806, vmexit_goal).batches == 12);
}

TEST_CASE("a batch that takes exactly the goal is the last one") {
  BatchHarness harness(32, 6400, 0);
  harness.begin(0);
  CHECK(harness.batch_size() == 64);
  CHECK(harness.end(6399));
  harness.begin(10000);
  CHECK(harness.batch_size() == 128);
  CHECK_FALSE(harness.end(16400));
  CHECK(harness.last_batch_cycles() == 6400);
  CHECK(harness.cycles_per_iteration() == 50);
}

TEST_CASE("a given count is one batch of exactly that many") {
  const Totals totals = run_batches(10, vmexit_goal, 17);
  CHECK(totals.batches == 1);
  CHECK(totals.iterations == 17);
}

TEST_CASE("before the first batch has ended there are no figures") {
  BatchHarness harness(32, 100, 0);
  CHECK(harness.cycles_per_iteration() == 0);
  harness.begin(5);
  CHECK(harness.batches() == 0);
  CHECK(harness.last_batch_size() == 0);
}

TEST_CASE("the harness ends even when the time stands still") {
  CHECK(run_batches(0, UINT64_MAX).batches == 58);
}

TEST_CASE("any cost and goal: the last batch reaches the goal, the one before it did not") {
  const bool held = rc::check("doubling", [] {
    const auto cycles = *rc::gen::inRange<std::uint64_t>(1, 1'000'000);
    const auto goal = *rc::gen::inRange<std::uint64_t>(1, vmexit_goal);
    const Totals totals = run_batches(cycles, goal);
    RC_ASSERT(totals.last * cycles + 7 >= goal);
    RC_ASSERT(totals.last == 64 || totals.last / 2 * cycles + 7 < goal);
    RC_ASSERT(totals.iterations == 2 * totals.last - 64);
  });
  CHECK(held);
}

TEST_CASE("a program under the harness counts every batch and reports the last one") {
  auto driver = run_loop(9806, "until_cycles = 1073741824");
  CHECK(driver.metrics() == std::map<std::string, double>{{"iterations", 262080},
                                                          {"batches", 12},
                                                          {"last_batch_iterations", 131072},
                                                          {"cycles_per_iteration", 9806}});
  CHECK(run_loop(4806, "until_cycles = 1073741824").metrics()["iterations"] == 524224);
  CHECK(run_loop(100, "until_cycles = 6401\nstart = 8").metrics()["iterations"] == 16 + 32 + 64 + 128);
}

TEST_CASE("without a goal a program repeats its body so many times and reads no TSC") {
  auto driver = run_loop(10, "count = 3");
  CHECK(driver.metrics() == std::map<std::string, double>{{"iterations", 3}});
  auto none = run_loop(10, "count = 0");
  CHECK(none.ended());
  CHECK(none.metrics().empty());
}

TEST_CASE("metrics keep the documented order") {
  const Metrics metrics = make_program({"idle_hlt_test", {}}, 0, 1)->metrics();
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics)
    names.push_back(name);
  CHECK(names == std::vector<std::string>{"iterations", "batches", "last_batch_iterations",
                                          "cycles_per_iteration", "ipi_cycles", "eoi_cycles"});
}
