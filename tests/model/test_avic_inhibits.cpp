// Why KVM does not use AVIC, each reason from a scenario, with its toggling and its name in the results
// (kvm-software.md 6.4).

#include <doctest/doctest.h>

#include "tests/model/avic_fixture.hpp"

namespace svmsim::model::test {

namespace {

using workloads::EventKind;

constexpr GuestApic x2 = GuestApic::x2apic;
constexpr std::uint64_t soon = 50'000;
constexpr std::uint64_t late = 2'000'000;

/// vCPU 0 interrupts vCPU 1 once, both in guest mode.
std::string sender() {
  return compute(soon) + send(x2, 1, 0x41) + compute(late);
}

}  // namespace

TEST_CASE("inhibits that hold from the start: the IPI takes the way of a guest without AVIC") {
  const GuestProgram program(x2, {sender(), compute(late)});
  struct Row {
    std::vector<std::string> overrides;
    std::string reason;
  };
  const Row rows[] = {
      {{"vm.pit=\"delay\""}, "pit_reinj"},
      {{"vm.apicv_inhibits=[\"sev\"]"}, "sev"},
      {{"vm.apicv_inhibits=[\"hyperv\"]"}, "hyperv"},
      {{"vm.apicv_inhibits=[\"blockirq\"]"}, "blockirq"},
      {{"vm.apicv_inhibits=[\"nested\"]"}, "nested"},
      {{"kvm.avic_x2apic_inhibit=true"}, "x2apic"},
      {{"kvm.avic=false"}, "disabled"},
      {{"host.features=[\"-avic\", \"-x2avic\"]"}, "disabled"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.reason);
    const AvicRun run = run_avic(program, 2, row.overrides);
    CHECK(run.exits(0) == "msr 1");
    CHECK(run.exits(1) == "interrupt 1, msr 1");
    REQUIRE(run.result.apicv_inhibits.size() == 1);
    CHECK(run.result.apicv_inhibits[0].vm == "vm0");
    CHECK(run.result.apicv_inhibits[0].reason == row.reason);
    CHECK(run.result.apicv_inhibits[0].count == 1);
    CHECK(run.result.apicv_inhibits[0].time_cycles == run.result.sim_cycles);
    CHECK(run.count(EventKind::kvm_apicv_accept_irq) == 0);
    const bool told = row.overrides[0] != "kvm.avic=false";
    CHECK(run.result.advice.size() == (told ? 1U : 0U));
    if (told && row.reason != "disabled") CHECK(run.result.advice[0].id == "avic-inhibited-" + row.reason);
  }
  for (const char* pit : {"none", "discard"}) {
    const AvicRun run = run_avic(program, 2, {std::string("vm.pit=\"") + pit + "\""});
    CHECK(run.exits(0).empty());
    CHECK(run.result.apicv_inhibits.empty());
    CHECK(run.result.advice.empty());
  }
}

TEST_CASE("the rule of 2021 also looks at SVM in the guest") {
  const GuestProgram program(x2, {sender(), compute(late)});
  const AvicRun run = run_avic(program, 2, {"kvm.avic_x2apic_inhibit=true", "kvm.nested=true"});
  CHECK(run.inhibit("x2apic") != nullptr);
  CHECK(run.inhibit("nested") != nullptr);
  CHECK(run_avic(program, 2, {"kvm.nested=true"}).result.apicv_inhibits.empty());
}

TEST_CASE("a moved APIC page inhibits AVIC for good, and every vCPU leaves guest mode for it") {
  // 1Bh: enabled, x2APIC, at another page.
  const GuestProgram program(
      x2, {compute(soon) + "{ do = \"wrmsr\", msr = 0x1b, value = 0xfed00d00 },\n" + compute(late) +
               "{ do = \"wrmsr\", msr = 0x1b, value = 0xfee00d00 },\n" + compute(late) + send(x2, 1, 0x41) +
               compute(late),
           compute(4 * late)});
  const AvicRun run = run_avic(program, 2);
  const ApicvInhibit* inhibit = run.inhibit("apic_base_modified");
  REQUIRE(inhibit != nullptr);
  CHECK(inhibit->count == 1);
  CHECK(run.exits(1) == "interrupt 2, msr 1");  // the change, and the IPI; its EOI
  CHECK(run.exits(0) == "msr 3");
  const auto texts = run.texts(EventKind::kvm_apicv_inhibit_changed);
  REQUIRE_FALSE(texts.empty());
  CHECK(texts[0] == "set reason=6, inhibits=0x40 APIC_BASE_MODIFIED");
}

TEST_CASE("a vCPU whose APIC is disabled does without AVIC, and has it again when the APIC is back") {
  // As xAPIC, and then as x2APIC.
  const std::string off_and_on = "{ do = \"wrmsr\", msr = 0x1b, value = 0xfee00100 },\n" + compute(soon) +
                                 "{ do = \"wrmsr\", msr = 0x1b, value = 0xfee00900 },\n" + compute(soon) +
                                 "{ do = \"wrmsr\", msr = 0x1b, value = 0xfee00d00 },\n" + compute(soon);
  const GuestProgram program(
      x2, {compute(soon) + off_and_on + send(x2, 1, 0x41) + compute(late), compute(2 * late)});
  const AvicRun run = run_avic(program, 2);
  CHECK(run.exits(0) == "msr 3");
  CHECK(run.exits(1).empty());
  CHECK(run.result.apicv_inhibits.empty());
  CHECK(run.result.ipi_latency.count() == 1);
  CHECK(run.result.failure.empty());
}

TEST_CASE(
    "what was pending when AVIC is inhibited is injected, and what is pending when it is back delivered") {
  // vCPU 1 has IF = 0 while the page moves: the vector in the backing page must reach the emulated APIC.
  const GuestProgram program(x2, {compute(soon) + send(x2, 1, 0x41) + compute(soon) +
                                      "{ do = \"wrmsr\", msr = 0x1b, value = 0xfed00d00 },\n" + compute(late),
                                  plain("cli") + compute(late) + plain("sti") + compute(late)});
  const AvicRun run = run_avic(program, 2);
  CHECK(run.exits(1) == "interrupt 1, msr 1, vintr 1");
  CHECK(run.texts(EventKind::kvm_inj_virq) == std::vector<std::string>{"IRQ 0x41"});
  CHECK(run.result.failure.empty());
  // With the module on, every interrupt window of an inhibited VM sets and clears its reason too (6.12).
  const ApicvInhibit* window = run.inhibit("irqwin");
  REQUIRE(window != nullptr);
  CHECK(window->count == 1);
}

TEST_CASE("a VM with more vCPUs than the physical ID table can name: 6.18 does without AVIC, others refuse") {
  const auto scenario = [](unsigned vcpus, const char* kernel, const char* features) {
    return avic_scenario("cpuid", vcpus,
                         {"host.pcpus=1", std::string("host.features=[") + features + "]", "run.duration=1ms",
                          "vm.workload.iterations=1", std::string("host.kernel=") + kernel});
  };
  const AvicRun run = run_avic(scenario(256, "6.18", "\"-x2avic\""));
  REQUIRE(run.inhibit("physical_id_too_big") != nullptr);
  CHECK(run_avic(scenario(255, "6.18", "\"-x2avic\"")).inhibit("physical_id_too_big") == nullptr);
  for (const char* kernel : {"6.1", "6.12"}) {
    CAPTURE(std::string(kernel));
    CHECK_NOTHROW(static_cast<void>(scenario(255, kernel, "\"-x2avic\"")));
    CHECK_THROWS_WITH_AS(static_cast<void>(scenario(256, kernel, "\"-x2avic\"")),
                         doctest::Contains("ID above 254"), UserError);
    CHECK_NOTHROW(static_cast<void>(scenario(512, kernel, "\"+x2avic\"")));
    CHECK_THROWS_WITH_AS(static_cast<void>(scenario(513, kernel, "\"+x2avic\"")),
                         doctest::Contains("ID above 511"), UserError);
  }
}

TEST_CASE("inhibits count from the end of the warm-up") {
  const GuestProgram program(x2, {compute(10'000'000), compute(10'000'000)});
  const AvicRun run = run_avic(program, 2, {"vm.pit=\"delay\"", "run.warmup=1ms", "run.duration=3ms"});
  REQUIRE(run.inhibit("pit_reinj") != nullptr);
  CHECK(run.inhibit("pit_reinj")->time_cycles == run.result.sim_cycles);
}

}  // namespace svmsim::model::test
