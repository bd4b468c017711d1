// Advice: AVIC is enabled and the IPIs leave the guest all the same (the founding thread's confusion).

#include <doctest/doctest.h>

#include "model/advice.hpp"
#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

std::vector<std::string> ids(const std::vector<Advice>& advice) {
  std::vector<std::string> result;
  for (const Advice& one : advice)
    result.push_back(one.id);
  return result;
}

std::vector<Advice> advise(const VmFacts& facts, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), "kvm.avic=true");
  const Scenario scenario = scenario_of("cpuid", overrides);
  return avic_advice(scenario, scenario.vms[0], facts);
}

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("no advice without AVIC, and none where it works") {
  VmFacts facts;
  facts.run_cycles = 1000;
  facts.hypercall_ipis = 10;
  facts.icr_exits = 10;
  CHECK(ids(advise(facts, {"kvm.avic=false"})).empty());
  facts.hypercall_ipis = 0;
  CHECK(ids(advise(facts)).empty());
  facts.incomplete_ipis = 4;  // targets that sleep
  CHECK(ids(advise(facts)).empty());
}

TEST_CASE("IPIs by hypercall, by ICR exits without x2AVIC, and by incomplete IPIs without enable_ipiv") {
  VmFacts facts;
  facts.run_cycles = 1000;
  facts.hypercall_ipis = 10;
  const std::vector<Advice> advice = advise(facts);
  REQUIRE(ids(advice) == Ids{"avic-ipis-by-hypercall"});
  CHECK(advice[0].text.find("10 IPIs left the guest as PV_SEND_IPI hypercalls") != std::string::npos);
  CHECK(advice[0].setting == "vm.pv without \"send_ipi\"");
  facts = {};
  facts.icr_exits = 3;
  CHECK(ids(advise(facts, {"host.features=[\"-x2avic\"]"})) == Ids{"avic-hybrid"});
  facts = {};
  facts.incomplete_ipis = 3;
  facts.ipi_virtualization = false;
  CHECK(advise(facts, {"kvm.enable_ipiv=false"})[0].setting == "kvm.enable_ipiv = true");
  const std::vector<Advice> family_17h = advise(facts, {"host.profile=zen2", "host.kernel=6.18"});
  REQUIRE(ids(family_17h) == Ids{"avic-ipiv-off"});
  CHECK(family_17h[0].text.find("erratum 1235") != std::string::npos);
}

TEST_CASE("each inhibit is named, with its share of the time and what changes it") {
  VmFacts facts;
  facts.run_cycles = 1000;
  facts.hypercall_ipis = 10;
  for (std::size_t i = 0; i < ApicvInhibits::reasons; ++i) {
    const auto reason = static_cast<ApicvInhibitReason>(i);
    if (reason == ApicvInhibitReason::disabled || reason == ApicvInhibitReason::absent) continue;
    facts.inhibits = {{reason, 2, 755}};
    const std::vector<Advice> advice = advise(facts);
    // What the guest does instead of AVIC's IPIs is no mistake while AVIC is not used.
    REQUIRE(advice.size() == 1);
    CHECK(advice[0].id == "avic-inhibited-" + std::string(inhibit_name(reason)));
    CHECK(advice[0].text.find("inhibited for 76 % of the time") != std::string::npos);
    CHECK(advice[0].text.find("2 times") != std::string::npos);
    CHECK_FALSE(advice[0].setting.empty());
  }
  facts.inhibits = {{ApicvInhibitReason::pit_reinj, 1, 1000}};
  CHECK(advise(facts)[0].setting == "vm.pit = \"discard\"");
  // One that takes no time is no inhibit worth a word, unless it is a window, whose changes are what costs.
  facts.inhibits = {{ApicvInhibitReason::logical_id_aliased, 1, 1}};
  CHECK(ids(advise(facts)) == Ids{"avic-ipis-by-hypercall"});
  facts.inhibits = {{ApicvInhibitReason::irqwin, 500, 1}};
  CHECK(ids(advise(facts)) == Ids{"avic-inhibited-irqwin", "avic-ipis-by-hypercall"});
}

TEST_CASE("a CPU without AVIC is said to have none") {
  CHECK(ids(advise({}, {"host.features=[\"-avic\", \"-x2avic\"]"})) == Ids{"avic-absent"});
}

}  // namespace svmsim::model::test
