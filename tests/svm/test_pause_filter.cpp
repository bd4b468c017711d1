#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

/// Number of the PAUSE that exits, counted from 1, or 0 if none of `pauses` does; `gap` cycles lie between
/// two.
unsigned exiting_pause(Guest& guest, unsigned pauses, std::uint64_t gap) {
  guest.intercept(Intercept::pause);
  guest.environment.tsc = 5;  // near 0, where a forgotten "never" would look like a small gap
  guest.enter();
  for (unsigned n = 1; n <= pauses; ++n) {
    if (guest.execute(ActionKind::pause).kind == StepKind::vmexit) return n;
    guest.environment.tsc += gap;
  }
  return 0;
}

unsigned exiting_pause(std::uint16_t count, std::uint16_t threshold, unsigned pauses, std::uint64_t gap,
                       FeatureSet features = all_but_avic(), Knobs knobs = {}) {
  Guest guest(features, knobs);
  guest.vmcb.control.pause_filter_count = count;
  guest.vmcb.control.pause_filter_thresh = threshold;
  return exiting_pause(guest, pauses, gap);
}

}  // namespace

TEST_CASE("PAUSE number count + 1 exits") {
  CHECK(exiting_pause(9, 0, 10, 100) == 10);
  CHECK(exiting_pause(21, 0, 20, 100) == 0);
  CHECK(exiting_pause(2, 0, 4, 100) == 3);
  CHECK(exiting_pause(10, 0, 4, 100) == 0);
  CHECK(exiting_pause(3000, 0, 4000, 1) == 3001);
}

TEST_CASE("without a count, or without the feature, every PAUSE exits") {
  CHECK(exiting_pause(0, 0, 4, 100) == 1);
  CHECK(exiting_pause(0, 1000, 4, 100) == 1);
  CHECK(exiting_pause(10, 0, 4, 100, all_but_avic().without(Feature::pause_filter)) == 1);
}

TEST_CASE("a gap above the threshold starts the count again") {
  CHECK(exiting_pause(21, 10, 40, 1000) == 0);
  CHECK(exiting_pause(21, 1000, 40, 10) == 23);  // the first PAUSE only loads the count
}

TEST_CASE("a gap of exactly the threshold decrements, unless the knob says reload") {
  CHECK(exiting_pause(5, 100, 20, 100) == 7);
  Knobs knobs;
  knobs.pause_gap_at_threshold_reloads = true;
  CHECK(exiting_pause(5, 100, 20, 100, all_but_avic(), knobs) == 0);
  CHECK(exiting_pause(5, 100, 20, 99, all_but_avic(), knobs) == 7);
  CHECK(exiting_pause(5, 100, 20, 101) == 0);
}

TEST_CASE("without the threshold feature the threshold says nothing") {
  CHECK(exiting_pause(5, 10, 20, 1000, all_but_avic().without(Feature::pause_filter_threshold)) == 6);
}

TEST_CASE("VMRUN reloads the count, and the CPU never writes the field") {
  Guest guest;
  guest.vmcb.control.pause_filter_count = 9;
  CHECK(exiting_pause(guest, 5, 10) == 0);
  guest.execute(ActionKind::vmmcall);
  CHECK(exiting_pause(guest, 20, 10) == 10);
  CHECK(guest.exit_code() == exit_code::pause);
  CHECK(guest.exit_rip() == guest_rip + 2 * 14);
  CHECK(guest.vmcb.control.next_rip == guest.exit_rip() + 2);
  CHECK(guest.vmcb.control.pause_filter_count == 9);
}

TEST_CASE("without the intercept no PAUSE exits") {
  Guest guest;
  guest.enter();
  for (int n = 0; n < 100; ++n)
    CHECK(guest.execute(ActionKind::pause).kind == StepKind::retired);
}

TEST_CASE("a burst of PAUSEs counted together is the same as one by one") {
  CHECK(rc::check("completing() and complete()", [] {
    const auto count = static_cast<std::uint16_t>(*rc::gen::inRange(0, 12));
    const auto threshold = static_cast<std::uint16_t>(*rc::gen::element(0, 1, 50));
    const bool equal_gap_reloads = *rc::gen::arbitrary<bool>();
    PauseFilter one_by_one;
    one_by_one.load(count, threshold);
    PauseFilter together = one_by_one;
    std::uint64_t tsc = 7;
    for (const auto gap : *rc::gen::container<std::vector<std::uint64_t>>(
             rc::gen::element<std::uint64_t>(1, 49, 50, 51, 200))) {
      const std::uint64_t completing = together.completing(tsc, gap, equal_gap_reloads);
      constexpr std::uint64_t many = 40;
      std::uint64_t completed = 0;
      PauseFilter trial = one_by_one;
      while (completed < many && !trial.exits(tsc + completed * gap, equal_gap_reloads))
        ++completed;
      RC_ASSERT(completed == std::min(completing, many));
      const std::uint64_t number = *rc::gen::inRange<std::uint64_t>(0, completed + 1);
      for (std::uint64_t i = 0; i < number; ++i)
        RC_ASSERT_FALSE(one_by_one.exits(tsc + i * gap, equal_gap_reloads));
      together.complete(number, tsc, gap, equal_gap_reloads);
      tsc += number * gap + *rc::gen::element<std::uint64_t>(0, 49, 50, 51);
      const bool expected = one_by_one.exits(tsc, equal_gap_reloads);
      RC_ASSERT(together.exits(tsc, equal_gap_reloads) == expected);
      if (expected) {
        one_by_one.reload();
        together.reload();
      }
      ++tsc;
    }
  }));
}
