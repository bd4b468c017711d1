// Guests of guests: exits by level for each cell of `svmsim study nested`, as docs/nested.md derives them,
// the legs of one HLT, and the lab's guests as L2.

#include <algorithm>

#include <doctest/doctest.h>

#include "svm/exit_code.hpp"
#include "tests/model/nested_fixture.hpp"

namespace svmsim::model::test {

namespace {

using workloads::EventKind;
using PerIteration = std::map<std::string, double>;

RunResult run_iterations(const std::string& style, std::vector<std::string> overrides, unsigned iterations) {
  overrides.push_back("vm.workload.iterations=" + std::to_string(iterations));
  RunResult result = Simulation(nested_scenario(style, "idle_hlt_test", std::move(overrides))).run();
  CHECK(result.failure.empty());
  return result;
}

PerIteration iteration_of(const std::string& style, const std::vector<std::string>& overrides) {
  constexpr unsigned fewer = 100;
  constexpr unsigned more = 300;
  return per_iteration(nested_exits(run_iterations(style, overrides, fewer)),
                       nested_exits(run_iterations(style, overrides, more)), more - fewer);
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("nested: exits per iteration of idle_hlt_test, each cell of the study") {
  struct Cell {
    const char* style;
    const char* mode;
    PerIteration exits;
  };
  const std::vector<Cell> cells{
      {"kvm",
       "none",
       {{"l2 msr", 2},
        {"l2 hlt", 1},
        {"l2 vintr", 1},
        {"seen msr", 2},
        {"seen hlt", 1},
        {"seen vintr", 1},
        {"l1 vmrun", 4}}},
      {"kvm",
       "expose",
       {{"l2 msr", 2}, {"l2 vintr", 1}, {"seen msr", 2}, {"seen vintr", 1}, {"l1 vmrun", 3}}},
      {"kvm",
       "emulate",
       {{"l2 msr", 2}, {"l2 hlt", 1}, {"l2 vintr", 1}, {"seen msr", 2}, {"seen vintr", 1}, {"l1 vmrun", 3}}},
      {"hyperv", "none", {{"l2 msr", 2}, {"l2 hlt", 1}, {"seen msr", 2}, {"seen hlt", 1}, {"l1 vmrun", 3}}},
      {"hyperv", "expose", {{"l2 msr", 2}, {"seen msr", 2}, {"l1 vmrun", 2}}},
      {"hyperv", "emulate", {{"l2 msr", 2}, {"l2 hlt", 1}, {"seen msr", 2}, {"l1 vmrun", 2}}},
  };
  for (const Cell& cell : cells) {
    CAPTURE(cell.style);
    CAPTURE(cell.mode);
    CHECK(iteration_of(cell.style, idle_hlt_mode(cell.mode)) == cell.exits);
  }
}

TEST_CASE("nested: without vls and vgif each turn of L1 takes five exits more") {
  const std::vector<std::string> bare{R"(host.features=["-idle_hlt", "-vls", "-vgif", "-vnmi"])"};
  CHECK(iteration_of("kvm", bare) == PerIteration{{"l2 msr", 2},
                                                  {"l2 hlt", 1},
                                                  {"l2 vintr", 1},
                                                  {"seen msr", 2},
                                                  {"seen hlt", 1},
                                                  {"seen vintr", 1},
                                                  {"l1 vmrun", 4},
                                                  {"l1 vmload", 8},
                                                  {"l1 vmsave", 4},
                                                  {"l1 stgi", 4},
                                                  {"l1 clgi", 4}});
}

TEST_CASE("nested: AVIC of L1 changes no exit of L2, and is off while that runs") {
  const std::vector<std::string> avic{"kvm.avic=true"};
  for (const char* style : {"kvm", "hyperv"}) {
    CAPTURE(style);
    CHECK(iteration_of(style, idle_hlt_mode("none") + avic) == iteration_of(style, idle_hlt_mode("none")));
  }
}

namespace {

/// Kinds and reasons of the events from one exit reason of L2 up to the entry that ends the path.
std::vector<std::string> legs(const Run& run, std::size_t skip) {
  std::vector<std::string> path;
  std::size_t hlts = 0;
  bool inside = false;
  for (const auto& event : run.events) {
    const std::string reason = svm::exit_name_or_hex(event.field[0]);
    if (event.kind == EventKind::kvm_exit && reason == "hlt" && !inside) inside = ++hlts == skip;
    if (!inside) continue;
    switch (event.kind) {
      case EventKind::kvm_exit:
        path.push_back("exit " + reason);
        break;
      case EventKind::kvm_entry:
        path.emplace_back("entry");
        break;
      case EventKind::kvm_nested_vmexit:
        path.push_back("L2->L0 " + reason);
        break;
      case EventKind::kvm_nested_vmexit_inject:
        path.push_back("L0->L1 " + reason);
        break;
      case EventKind::kvm_nested_vmenter:
        path.emplace_back("L0->L2");
        break;
      default:
        continue;
    }
    const bool back_in_l2 = path.back() == "entry" && (path.size() == 3 || path[path.size() - 2] == "L0->L2");
    if (back_in_l2) break;
  }
  return path;
}

}  // namespace

TEST_CASE("nested: the legs of one HLT of L2 with a virtual interrupt pending") {
  using Path = std::vector<std::string>;
  for (const char* style : {"kvm", "hyperv"}) {
    CAPTURE(style);
    const auto run_mode = [&](const char* mode) {
      return run_scenario(
          nested_scenario(style, "idle_hlt_test",
                          idle_hlt_mode(mode) + std::vector<std::string>{"vm.workload.iterations=20"}));
    };
    CHECK(legs(run_mode("none"), 5) ==
          Path{"exit hlt", "L2->L0 hlt", "L0->L1 hlt", "entry", "exit vmrun", "L0->L2", "entry"});
    CHECK(legs(run_mode("emulate"), 5) == Path{"exit hlt", "L2->L0 hlt", "entry"});
    CHECK(legs(run_mode("expose"), 1).empty());
  }
}

TEST_CASE("nested: emulation removes the HLT exits with a pending V_INTR and no other") {
  for (const char* style : {"kvm", "hyperv"}) {
    CAPTURE(style);
    const auto timer = [&](const char* mode) {
      return nested_exits(
          Simulation(
              nested_scenario(style, "lab_timer",
                              idle_hlt_mode(mode) + std::vector<std::string>{"vm.workload.iterations=50"}))
              .run());
    };
    const auto plain = timer("none");
    const auto emulated = timer("emulate");
    const auto exposed = timer("expose");
    // No interrupt is pending at these: they all reach L1, under the name that L1 asked for.
    CHECK(plain.at("seen hlt") == 50);
    CHECK(emulated.at("seen idle-halt") == 50);
    CHECK(emulated.at("l2 hlt") == 50);
    CHECK(exposed.at("seen idle-halt") == 50);
    CHECK(exposed.at("l2 idle-halt") == 50);
  }
}

TEST_CASE("nested: L1's plain HLT intercept wins on a CPU with idle HLT (mainline L1)") {
  const RunResult result = run_iterations("kvm", {R"(host.features=["+idle_hlt"])"}, 100);
  CHECK(nested_exits(result).at("seen hlt") == 100);
  CHECK(nested_exits(result).count("seen idle-halt") == 0);
}

namespace {

/// Exits that L1 sees between L2's OUT to port 11h and that to port 12h.
std::map<std::string, int> l1_window(const Run& run) {
  std::map<std::string, int> counts;
  int outs = 0;
  for (const auto& event : run.events) {
    if (event.kind != EventKind::kvm_nested_vmexit_inject) continue;
    const std::string name = svm::exit_name_or_hex(event.field[0]);
    if (name == "io") ++outs;
    if (name != "io" && outs == 1) ++counts[name];
  }
  return counts;
}

}  // namespace

TEST_CASE("nested: the guests of recordings a1 and b1 as L2 give their exits to a KVM as L1") {
  struct Recording {
    const char* name;
    const char* kind;
    std::vector<std::string> overrides;
    std::map<std::string, int> exits;
  };
  const std::vector<std::string> idle{"host.kernel=6.18", "kvm.nested_idle_hlt=expose",
                                      R"(host.features=["+idle_hlt"])"};
  const std::vector<Recording> recordings{
      {"6.1/a1",
       "lab_selfipi",
       {"host.kernel=6.1"},
       {{"msr", 2000}, {"hlt", 1000}, {"vintr", 1000}, {"npf", 2}}},
      {"6.12/a1",
       "lab_selfipi",
       {"host.kernel=6.12"},
       {{"msr", 2000}, {"hlt", 1000}, {"vintr", 1000}, {"npf", 2}}},
      {"6.18-no-idle-hlt/a1",
       "lab_selfipi",
       {"host.kernel=6.18"},
       {{"msr", 2000}, {"hlt", 1000}, {"vintr", 1000}, {"npf", 2}}},
      {"6.18-idle-hlt/a1", "lab_selfipi", idle, {{"msr", 2000}, {"vintr", 1000}, {"npf", 2}}},
      {"6.12/b1",
       "lab_selfipi_xapic",
       {"host.kernel=6.12", "vm.apic=xapic"},
       {{"npf", 2002}, {"hlt", 1000}, {"vintr", 1000}}},
      {"6.18-idle-hlt/b1",
       "lab_selfipi_xapic",
       idle + std::vector<std::string>{"vm.apic=xapic"},
       {{"npf", 2002}, {"vintr", 1000}}},
  };
  for (const Recording& recording : recordings) {
    CAPTURE(recording.name);
    const Run run = run_scenario(nested_scenario("kvm", recording.kind, recording.overrides));
    CHECK(run.result.failure.empty());
    CHECK(l1_window(run) == recording.exits);
  }
}

TEST_CASE("nested: every run is the same with run-ahead off") {
  const auto events_of = [](Scenario scenario, bool run_ahead) {
    scenario.run.run_ahead = run_ahead;
    return run_scenario(scenario).events;
  };
  struct Case {
    const char* style;
    const char* kind;
    std::vector<std::string> overrides;
  };
  const std::vector<Case> cases{
      {"kvm", "idle_hlt_test", {"vm.workload.iterations=40"}},
      {"hyperv", "idle_hlt_test", {"vm.workload.iterations=40"}},
      {"kvm", "lab_timer", {"vm.workload.iterations=40"}},
      {"hyperv", "lab_timer", {"vm.workload.iterations=40", "host.hz=1000"}},
      {"kvm", "lab_timer", {"vm.workload.iterations=40", "kvm.avic=true", "vm.l1_halt_poll_ns=0"}},
  };
  for (const Case& each : cases) {
    for (const char* mode : {"none", "emulate", "expose"}) {
      CAPTURE(each.style);
      CAPTURE(each.kind);
      CAPTURE(mode);
      const Scenario scenario = nested_scenario(each.style, each.kind, idle_hlt_mode(mode) + each.overrides);
      const auto ahead = events_of(scenario, true);
      const auto slow = events_of(scenario, false);
      REQUIRE(ahead.size() == slow.size());
      CHECK(std::equal(ahead.begin(), ahead.end(), slow.begin(), same_event));
    }
  }
}

}  // namespace svmsim::model::test
