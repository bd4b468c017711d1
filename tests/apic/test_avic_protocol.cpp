#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/apic/avic_protocol.hpp"
#include "tests/apic/avic_protocol_steps.hpp"
#include "tests/apic/state_explorer.hpp"

using namespace svmsim::apic::test;
using svmsim::test::Exploration;

namespace {

Exploration explore(const ProtocolOptions& options) {
  AvicProtocol protocol(options);
  return svmsim::test::explore(protocol);
}

// Two counters to 3, each step of one; 16 states, one of them final. A trap catches who turns at (1, 0).
struct Counters {
  using State = std::pair<int, int>;
  bool forbid = false;
  bool trap = false;
  static State initial() { return {0, 0}; }
  static std::string key(const State& s) { return std::to_string(s.first) + "," + std::to_string(s.second); }
  template <typename Emit>
  void successors(const State& s, Emit&& emit) const {
    if (trap && s == State{1, 0}) emit("into the trap", State{9, 0});
    if (s.first >= 9) {
      emit("round", State{19 - s.first, 0});
      return;
    }
    if (s.first < 3) emit("first", State{s.first + 1, s.second});
    if (s.second < 3) emit("second", State{s.first, s.second + 1});
  }
  [[nodiscard]] std::string violation(const State& s, bool is_final) const {
    if (is_final && s != State{3, 3}) return "stuck";
    return forbid && s == State{2, 1} ? "forbidden" : "";
  }
};

}  // namespace

TEST_CASE("IPI, block, doorbell: no interleaving loses an interrupt or delivers it twice") {
  const std::vector<std::array<std::uint8_t, 2>> vectors{{0x41, 0x52}, {0x41, 0x42}, {0x41, 0x41}};
  for (const HltPolicy hlt : {HltPolicy::exits, HltPolicy::idle_exits, HltPolicy::never_exits}) {
    for (const auto& pair : vectors) {
      for (const bool enable_ipiv : {true, false}) {
        for (const bool polls : {true, false}) {
          ProtocolOptions options;
          options.hlt = hlt;
          options.vectors = pair;
          options.enable_ipiv = enable_ipiv;
          options.polls = polls;
          const Exploration result = explore(options);
          const std::string text = result.text();
          CAPTURE(text);
          CHECK(result.holds());
          // All of it was there to be explored.
          CHECK(result.states > 1000);
          CHECK(result.final_states > 0);
        }
      }
    }
  }
}

TEST_CASE("a device behind the IOMMU and an IPI: no interleaving loses an interrupt") {
  for (const HltPolicy hlt : {HltPolicy::exits, HltPolicy::idle_exits, HltPolicy::never_exits}) {
    for (const bool enable_ipiv : {true, false}) {
      ProtocolOptions options;
      options.hlt = hlt;
      options.enable_ipiv = enable_ipiv;
      options.second_is_device = true;
      const Exploration result = explore(options);
      const std::string text = result.text();
      CAPTURE(text);
      CHECK(result.holds());
    }
  }
}

TEST_CASE("erratum 1235 loses a wake-up, and KVM's answer, IsRunning never set, loses none") {
  for (const HltPolicy hlt : {HltPolicy::exits, HltPolicy::idle_exits}) {
    ProtocolOptions options;
    options.hlt = hlt;
    options.erratum_1235 = true;
    const Exploration lost = explore(options);
    REQUIRE_FALSE(lost.holds());
    CHECK(lost.violation.find("is lost: the vCPU sleeps") != std::string::npos);
    if (hlt == HltPolicy::exits) MESSAGE(lost.text());
    // The early read, the block, then the IRR write, in this order.
    const auto at = [&lost](const std::string& step) {
      for (std::size_t i = 0; i < lost.trace.size(); ++i) {
        if (lost.trace[i].find(step) != std::string::npos) return i;
      }
      FAIL("no such step: ", step);
      return std::size_t{0};
    };
    CHECK(at("reads IsRunning = true too early") < at("target: IsRunning := 0"));
    CHECK(at("target: IRR is empty") < at("acts on the old IsRunning"));

    options.preemptions = 0;
    CHECK_FALSE(explore(options).holds());
    options.preemptions = 1;
    options.enable_ipiv = false;
    const Exploration answered = explore(options);
    const std::string text = answered.text();
    CAPTURE(text);
    CHECK(answered.holds());
  }
}

TEST_CASE("erratum 1235 where HLT never exits: only a vCPU that moves to another core misses the doorbell") {
  ProtocolOptions options;
  options.hlt = HltPolicy::never_exits;
  options.erratum_1235 = true;
  options.preemptions = 0;
  const Exploration stays = explore(options);
  const std::string text = stays.text();
  CAPTURE(text);
  CHECK(stays.holds());
  options.preemptions = 1;
  const Exploration moves = explore(options);
  REQUIRE_FALSE(moves.holds());
  CHECK(moves.violation.find("is lost: the vCPU is halted") != std::string::npos);
  CHECK(std::count(moves.trace.begin(), moves.trace.end(), "target: scheduled in on core 1") == 1);
  options.enable_ipiv = false;
  CHECK(explore(options).holds());
}

TEST_CASE("each part of KVM's order is needed: without it a wake-up is lost") {
  const auto broken = [](void (*change)(ProtocolOptions&)) {
    ProtocolOptions options;
    change(options);
    const Exploration result = explore(options);
    CHECK_FALSE(result.holds());
    CHECK(result.violation.find("is lost") != std::string::npos);
    return result.trace.size();
  };
  CHECK(broken([](ProtocolOptions& o) { o.no_check_after_clear = true; }) > 0);
  CHECK(broken([](ProtocolOptions& o) { o.check_before_clear = true; }) > 0);
  CHECK(broken([](ProtocolOptions& o) { o.late_task_state = true; }) > 0);
  CHECK(broken([](ProtocolOptions& o) { o.load_ignores_blocking = true; }) > 0);
  CHECK(broken([](ProtocolOptions& o) { o.exit_wakes_nobody = true; }) > 0);
  CHECK(broken([](ProtocolOptions& o) {
          o.second_is_device = true;
          o.no_ga_log = true;
        }) > 0);
}

TEST_CASE("the explorer finds every state, the shortest way to a violation, and states without an end") {
  Counters counters;
  Exploration all = svmsim::test::explore(counters);
  CHECK(all.holds());
  CHECK(all.states == 16);
  CHECK(all.transitions == 24);
  CHECK(all.final_states == 1);
  counters.trap = true;
  const Exploration trapped = svmsim::test::explore(counters);
  CHECK(trapped.states == 18);
  CHECK(trapped.text() == "no end can be reached\n  1. first\n  2. into the trap");
  counters.trap = false;
  counters.forbid = true;
  const Exploration found = svmsim::test::explore(counters);
  CHECK(found.violation == "forbidden");
  CHECK(found.trace.size() == 3);
  CHECK(found.text() == "forbidden\n  1. first\n  2. first\n  3. second");
}
