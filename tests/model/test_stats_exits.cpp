#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "model/stats/exit_stats.hpp"

using svmsim::model::ExitCounter;
using svmsim::model::ExitStats;
namespace exit_code = svmsim::svm::exit_code;

TEST_CASE("exit stats: every code of the exit table has its own slot, all others share one") {
  std::size_t slot = 0;
  for (const auto& info : svmsim::svm::exit_table()) {
    CAPTURE(info.code);
    CHECK(ExitStats::slot_of(info.code) == slot);
    ++slot;
  }
  for (const std::uint64_t code : {std::uint64_t{0xa7}, std::uint64_t{0x3ff}, std::uint64_t{0x404},
                                   ~std::uint64_t{4}, ExitStats::unknown_code}) {
    CHECK(ExitStats::slot_of(code) == svmsim::svm::exit_count);
  }
}

TEST_CASE("exit stats: a kvm_exit opens, the next kvm_entry closes") {
  ExitStats stats;
  stats.entry(100);
  stats.exit(exit_code::msr, 150);
  stats.entry(190);
  stats.exit(exit_code::msr, 200);
  stats.entry(220);
  stats.exit(exit_code::hlt, 300);
  stats.entry(1300);
  const ExitCounter msr = stats.counter(exit_code::msr);
  CHECK(msr.count == 2);
  CHECK(msr.time == 60);
  CHECK(msr.min == 20);
  CHECK(msr.max == 40);
  CHECK(stats.counter(exit_code::hlt).time == 1000);
  const auto rows = stats.rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].code == exit_code::hlt);  // 78h before 7Ch
  CHECK(rows[1].code == exit_code::msr);
}

TEST_CASE("exit stats: perf's pairing rules") {
  SUBCASE("exits before the first kvm_entry are ignored") {
    ExitStats stats;
    stats.exit(exit_code::msr, 10);
    stats.entry(20);
    CHECK(stats.rows().empty());
  }
  SUBCASE("a second kvm_exit replaces the first, with its parts") {
    ExitStats stats;
    stats.entry(0);
    stats.exit(exit_code::msr, 10);
    stats.add_polling(3);
    stats.exit(exit_code::hlt, 20);
    stats.entry(50);
    CHECK(stats.counter(exit_code::msr).count == 0);
    CHECK(stats.counter(exit_code::hlt).time == 30);
    CHECK(stats.counter(exit_code::hlt).polling == 0);
  }
  SUBCASE("a kvm_entry without an exit counts nothing") {
    ExitStats stats;
    stats.entry(0);
    stats.entry(10);
    CHECK(stats.rows().empty());
  }
  SUBCASE("an exit that is open at the end is not counted") {
    ExitStats stats;
    stats.entry(0);
    stats.exit(exit_code::hlt, 10);
    CHECK(stats.rows().empty());
  }
  SUBCASE("an end before its begin is dropped") {
    ExitStats stats;
    stats.entry(0);
    stats.exit(exit_code::hlt, 10);
    stats.entry(5);
    CHECK(stats.rows().empty());
  }
}

TEST_CASE("exit stats: the parts of the time, the rest is handling") {
  ExitStats stats;
  stats.entry(0);
  stats.exit(exit_code::hlt, 100);
  stats.add_polling(10);
  stats.add_blocked(200);
  stats.add_cstate(30);
  stats.add_runqueue(4);
  stats.entry(1100);
  stats.exit(exit_code::hlt, 1200);  // the next one begins without parts
  stats.entry(1250);
  const ExitCounter& hlt = stats.counter(exit_code::hlt);
  CHECK(hlt.time == 1050);
  CHECK(hlt.polling == 10);
  CHECK(hlt.blocked == 200);
  CHECK(hlt.cstate == 30);
  CHECK(hlt.runqueue == 4);
  CHECK(hlt.handling() == 1050 - 244);
}

TEST_CASE("exit stats: the warm-up's end forgets counts but keeps an open exit") {
  ExitStats stats;
  stats.entry(0);
  stats.exit(exit_code::msr, 10);
  stats.entry(100);
  stats.exit(exit_code::hlt, 200);
  stats.reset();
  CHECK(stats.rows().empty());
  stats.entry(260);
  CHECK(stats.counter(exit_code::hlt).count == 1);
  CHECK(stats.counter(exit_code::hlt).min == 60);
  CHECK(stats.counter(exit_code::msr).count == 0);
}

TEST_CASE("exit stats: codes outside the table are counted as unknown") {
  ExitStats stats;
  stats.entry(0);
  stats.exit(0x1234, 1);
  stats.entry(3);
  REQUIRE(stats.rows().size() == 1);
  CHECK(stats.rows().front().code == ExitStats::unknown_code);
  CHECK(svmsim::model::exit_row_name(stats.rows().front().code) == "unknown");
  CHECK(svmsim::model::exit_row_name(exit_code::idle_hlt) == "idle-halt");
  CHECK(svmsim::model::exit_row_name(exit_code::rdpru) == "0x8e");
}

TEST_CASE("exit stats: the standard error in percent of the mean") {
  ExitStats stats;
  stats.entry(0);
  std::uint64_t now = 0;
  for (const std::uint64_t time : {10U, 20U, 30U, 40U}) {
    stats.exit(exit_code::msr, now);
    stats.entry(now + time);
    now += 100;
  }
  // mean 25, variance 500/3, of the mean 500/12; sqrt(41.67) / 25 = 25.82 %.
  CHECK(stats.counter(exit_code::msr).error_pct() == doctest::Approx(25.8199));
  CHECK(ExitCounter{}.error_pct() == 0.0);
}

TEST_CASE("exit stats: equal times have no error however large the count, and sums agree") {
  CHECK(rc::check([] {
    const auto times = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint64_t>>(
        rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 40)));
    ExitStats stats;
    stats.entry(0);
    std::uint64_t sum = 0;
    ExitCounter by_parts;
    for (const std::uint64_t time : times) {
      stats.exit(exit_code::npf, 7);
      stats.entry(7 + time);
      sum += time;
    }
    const ExitCounter& counter = stats.counter(exit_code::npf);
    RC_ASSERT(counter.count == times.size());
    RC_ASSERT(counter.time == sum);
    RC_ASSERT(counter.min <= counter.max);
    RC_ASSERT(std::isfinite(counter.error_pct()));
    by_parts += counter;
    by_parts += counter;
    RC_ASSERT(by_parts.time == 2 * sum);
    RC_ASSERT(by_parts.min == counter.min);
  }));
}
