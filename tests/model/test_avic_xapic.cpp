// AVIC for a guest in xAPIC mode: its column of the table of kvm-software.md 1.9, the logical ID table, and
// the inhibits that only such a guest can bring about.

#include <doctest/doctest.h>

#include "tests/model/avic_fixture.hpp"

namespace svmsim::model::test {

namespace {

using workloads::EventKind;

constexpr GuestApic x1 = GuestApic::xapic;
constexpr std::uint64_t soon = 50'000;
constexpr std::uint64_t late = 2'000'000;
using Lines = std::vector<std::string>;

AvicRun run_xavic(const GuestProgram& program, unsigned vcpus, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), "vm.apic=\"xapic\"");
  return run_avic(program, vcpus, std::move(overrides));
}

std::string read(unsigned offset) {
  char text[90];
  std::snprintf(text, sizeof text, "{ do = \"memory_read\", address = 0x%x, size = 4 },\n",
                0xfee00000U + offset);
  return text;
}

}  // namespace

TEST_CASE(
    "xAVIC: an IPI to a running target costs nothing but the first touch of the APIC page, once for a VM") {
  const GuestProgram program(
      x1,
      {compute(soon) + send(x1, 1, 0x41) + compute(soon) + send(x1, 1, 0x51) + compute(late), compute(late)},
      {0x41, 0x51});
  const AvicRun run = run_xavic(program, 2);
  CHECK(run.exits(0) == "npf 1");
  CHECK(run.exits(1).empty());
  CHECK(run.result.ipi_latency.count() == 2);
  CHECK(run.result.failure.empty());
  // Without AVIC: ICR2 and ICR, and the EOI.
  const AvicRun without = run_xavic(program, 2, {"kvm.avic=false"});
  CHECK(without.exits(0) == "npf 4");
  CHECK(without.exits(1) == "interrupt 2, npf 2");
}

TEST_CASE("xAVIC: blocked and polling targets, messages that are not fixed, EOI of a level interrupt") {
  const std::string wait = halt_until(0x41);
  const GuestProgram blocked(x1, {compute(late) + send(x1, 1, 0x41) + compute(late), wait});
  const AvicRun run = run_xavic(blocked, 2, {"kvm.halt_poll_ns=0"});
  CHECK(run.exits(0) == "avic_incomplete_ipi 1, npf 1");
  CHECK(run.texts(EventKind::kvm_avic_incomplete_ipi) ==
        Lines{"vcpu=0, icrh:icrl=0x01000000:00000041, id=1, index=1"});
  CHECK(run.exits(1) == "idle-halt 1");

  const GuestProgram polling(
      x1,
      {compute(20'000) + send(x1, 1, 0x41) + compute(150'000) + send(x1, 1, 0x51) + compute(late),
       wait + halt_until(0x51)},
      {0x41, 0x51});
  const AvicRun polled = run_xavic(polling, 2, {"kvm.halt_poll_ns_grow_start=100000"});
  CHECK(polled.exits(0) == "avic_incomplete_ipi 1, npf 1");
  CHECK(polled.result.vcpus[1].stats.halt_successful_poll == 1);

  const GuestProgram level(x1, {compute(soon) + send(x1, 1, 0xc041) + compute(late), compute(late)});
  const AvicRun second = run_xavic(level, 2);
  CHECK(second.exits(0) == "avic_incomplete_ipi 1, npf 1");
  CHECK(second.exits(1) == "avic_unaccelerated_access 1");
  CHECK(second.texts(EventKind::kvm_eoi) == Lines{"apicid 1 vector 65"});
}

TEST_CASE("xAVIC: register accesses of one vCPU, each with its exits") {
  struct Row {
    std::string actions;
    std::string exits;
  };
  const Row rows[] = {
      {apic_write(x1, 0x80, "0x30"), "npf 1"},  // TPR
      {"{ do = \"mov_to_cr8\", value = 5 },\n", ""},
      {send(x1, 0, 0x44041), "npf 1"},                                           // self
      {apic_write(x1, 0x380, "0"), "avic_unaccelerated_access 1, npf 1"},        // TMICT
      {apic_write(x1, 0x320, "0x10041"), "avic_unaccelerated_access 1, npf 1"},  // LVTT
      {read(0x20), "npf 1"},
      {read(0x390), "avic_unaccelerated_access 1, npf 1"},                // TMCCT, a fault
      {apic_write(x1, 0x30, "0"), "avic_unaccelerated_access 1, npf 1"},  // version, a fault
  };
  for (const Row& row : rows) {
    CAPTURE(row.actions);
    const GuestProgram program(x1, {row.actions + compute(soon)});
    const AvicRun run = run_xavic(program, 1);
    CHECK(run.exits(0) == row.exits);
    CHECK(run.result.failure.empty());
  }
}

TEST_CASE("xAVIC: LDR writes trap and fill the logical ID table, which flat IPIs then use without an exit") {
  const std::string ldr0 = apic_write(x1, 0xd0, "0x1000000");
  const std::string ldr1 = apic_write(x1, 0xd0, "0x2000000");
  const GuestProgram program(
      x1, {ldr0 + compute(soon) + send(x1, 2, 0x841) + compute(late), ldr1 + compute(late)});
  const AvicRun run = run_xavic(program, 2);
  CHECK(run.exits(0) == "avic_unaccelerated_access 1, npf 1");
  CHECK(run.exits(1).find("avic_unaccelerated_access 1") != std::string::npos);
  CHECK(run.result.ipi_latency.count() == 1);
  CHECK(run.result.apicv_inhibits.empty());
  // A logical destination of nobody is KVM's: id 2.
  const GuestProgram nobody(x1, {ldr0 + send(x1, 0x10, 0x841) + compute(soon)});
  CHECK(run_xavic(nobody, 1).texts(EventKind::kvm_avic_incomplete_ipi) ==
        Lines{"vcpu=0, icrh:icrl=0x10000000:00000841, id=2, index=4"});
}

TEST_CASE("xAVIC: a changed APIC ID and shared logical IDs inhibit AVIC until they are gone") {
  const GuestProgram id(
      x1, {compute(soon) + apic_write(x1, 0x20, "0x5000000") + compute(soon) + apic_write(x1, 0x20, "0") +
               compute(soon) + send(x1, 1, 0x41) + compute(late),
           compute(2 * late)});
  const AvicRun run = run_xavic(id, 2);
  REQUIRE(run.inhibit("apic_id_modified") != nullptr);
  CHECK(run.inhibit("apic_id_modified")->count == 1);
  // The page is mapped, unmapped with the inhibit, emulated meanwhile, and mapped again.
  CHECK(run.exits(0) == "avic_unaccelerated_access 1, npf 3");
  CHECK(run.exits(1) == "interrupt 2");
  CHECK(run.result.ipi_latency.count() == 1);
  CHECK(run.result.failure.empty());

  const GuestProgram ldr(x1, {apic_write(x1, 0xd0, "0x1000000") + compute(2 * late),
                              compute(soon) + apic_write(x1, 0xd0, "0x1000000") + compute(late)});
  const AvicRun aliased = run_xavic(ldr, 2);
  REQUIRE(aliased.inhibit("logical_id_aliased") != nullptr);
  CHECK(aliased.result.advice.size() == 1);
}

TEST_CASE("xAVIC: two APICs with one ID inhibit AVIC, until the ID is changed back") {
  const GuestProgram program(
      x1, {compute(soon) + apic_write(x1, 0x20, "0x1000000") + compute(soon) + apic_write(x1, 0x20, "0") +
               compute(soon) + send(x1, 1, 0x41) + compute(late),
           compute(2 * late)});
  const AvicRun run = run_xavic(program, 2);
  REQUIRE(run.inhibit("physical_id_aliased") != nullptr);
  CHECK(run.inhibit("physical_id_aliased")->count == 1);
  CHECK(run.inhibit("physical_id_aliased")->time_cycles < run.result.sim_cycles);
  CHECK(run.exits(1).find("npf") ==
        std::string::npos);  // AVIC is in use again: the IPI and its EOI exit nowhere
  CHECK(run.result.ipi_latency.count() == 1);
}

TEST_CASE("ExtINT under AVIC: a window that inhibits it, for the VM, until the interrupt has been injected") {
  // LINT0 as ExtINT; the legacy controller interrupts while IF = 0.
  const GuestProgram program(
      GuestApic::x2apic, {apic_write(GuestApic::x2apic, 0x350, "0x700") + plain("cli") + compute(400'000) +
                              plain("sti") + compute(late),
                          compute(2 * late)});
  for (const char* kernel : {"6.12", "6.18"}) {
    CAPTURE(std::string(kernel));
    const std::string json =
        R"({"vm": [{"workload": {"kind": ")" + program.path() +
        R"("}, "device": [{"kind": "ext_int", "vector": 65, "first": "50us", "count": 1}]}]})";
    const Scenario scenario = load_scenario(ScenarioSource::from_json(json),
                                            {"host.pcpus=2", "vm.vcpus=2", "vm.pin=[0, 1]", "host.hz=0",
                                             "kvm.avic=true", std::string("host.kernel=") + kernel});
    const AvicRun run = run_avic(scenario);
    REQUIRE(run.inhibit("irqwin") != nullptr);
    CHECK(run.inhibit("irqwin")->count == 1);
    // 6.18 allows AVIC again when it injects, and the request for that cancels the entry.
    CHECK(run.texts(EventKind::kvm_inj_virq) ==
          (std::string(kernel) == "6.18" ? Lines{"IRQ 0x41", "IRQ 0x41 [reinjected]"} : Lines{"IRQ 0x41"}));
    CHECK(run.exits(0).find("vintr 1") != std::string::npos);
    CHECK(run.exits(1) == "interrupt 2");  // inhibited, and allowed again
    const auto changes = run.texts(EventKind::kvm_apicv_inhibit_changed);
    REQUIRE(changes.size() >= 2);
    CHECK(changes.front() == "set reason=8, inhibits=0x100 IRQWIN");
    CHECK(changes.back() == "cleared reason=8, inhibits=0x0");
    CHECK(run.result.failure.empty());
  }
}

}  // namespace svmsim::model::test
