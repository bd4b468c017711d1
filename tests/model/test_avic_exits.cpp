// What each guest action costs in exits under AVIC: the table of kvm-software.md 1.9, its AVIC columns.

#include <doctest/doctest.h>

#include "tests/model/avic_fixture.hpp"

namespace svmsim::model::test {

namespace {

using workloads::EventKind;

constexpr GuestApic x2 = GuestApic::x2apic;
constexpr std::uint64_t soon = 50'000;
constexpr std::uint64_t late = 2'000'000;  // longer than anything that is under way
using Lines = std::vector<std::string>;

/// One vCPU that does `actions` and nothing else.
AvicRun alone(const std::string& actions, std::vector<std::string> overrides = {}, bool interrupts = true) {
  const GuestProgram program(x2, {actions}, {0x41, 0x51}, interrupts);
  return run_avic(program, 1, std::move(overrides));
}

}  // namespace

TEST_CASE("x2AVIC: an IPI to a target in guest mode exits nowhere, and its EOI does not either") {
  const GuestProgram program(x2, {compute(soon) + send(x2, 1, 0x41) + compute(late), compute(late)});
  for (const char* kernel : {"6.1", "6.12", "6.18"}) {
    CAPTURE(std::string(kernel));
    const AvicRun run = run_avic(program, 2, {std::string("host.kernel=") + kernel});
    CHECK(run.exits(0).empty());
    CHECK(run.exits(1).empty());
    CHECK(run.result.failure.empty());
    CHECK(run.result.ipi_latency.count() == 1);
    CHECK(run.count(EventKind::kvm_apic_accept_irq) == 0);
  }
}

TEST_CASE("x2AVIC: an IPI to a blocked target exits once, with id 1, and wakes it") {
  const GuestProgram program(x2, {compute(late) + send(x2, 1, 0x41) + compute(late), halt_until(0x41)});
  for (const char* idle_hlt : {"true", "false"}) {
    const AvicRun run = run_avic(program, 2, {"kvm.halt_poll_ns=0", std::string("kvm.idle_hlt=") + idle_hlt});
    CHECK(run.exits(0) == "avic_incomplete_ipi 1");
    CHECK(run.exits(1) == (std::string(idle_hlt) == "true" ? "idle-halt 1" : "hlt 1"));
    CHECK(run.texts(EventKind::kvm_avic_incomplete_ipi) ==
          Lines{"vcpu=0, icrh:icrl=0x00000001:00000041, id=1, index=1"});
    // The hardware has set the IRR bit: KVM accepts nothing, it only wakes.
    CHECK(run.count(EventKind::kvm_apic_accept_irq) == 0);
    CHECK(run.texts(EventKind::kvm_apicv_accept_irq) == Lines{"apicid 1 vec 65 (Fixed|edge)"});
    CHECK(run.count(EventKind::kvm_avic_doorbell) == 0);
    CHECK(run.count(EventKind::kvm_avic_kick_vcpu_slowpath) == 0);
    CHECK(run.count(EventKind::kvm_inj_virq) == 0);
    CHECK(run.result.vcpus[1].stats.halt_wakeup == 1);
    CHECK(run.result.failure.empty());
  }
}

TEST_CASE("x2AVIC: an IPI to a halt-polling target exits nowhere on the sender, and ends the polling") {
  // The first halt blocks and makes a window; the IPI of the second comes while it polls.
  const GuestProgram program(
      x2,
      {compute(20'000) + send(x2, 1, 0x41) + compute(150'000) + send(x2, 1, 0x51) + compute(late),
       halt_until(0x41) + halt_until(0x51)},
      {0x41, 0x51});
  const AvicRun run = run_avic(program, 2, {"kvm.halt_poll_ns_grow_start=100000"});
  CHECK(run.exits(0) == "avic_incomplete_ipi 1");
  CHECK(run.exits(1) == "idle-halt 2");
  CHECK(run.result.vcpus[1].stats.halt_attempted_poll == 1);
  CHECK(run.result.vcpus[1].stats.halt_successful_poll == 1);
  CHECK(run.count(EventKind::kvm_apicv_accept_irq) == 1);
  CHECK(run.result.failure.empty());
}

TEST_CASE(
    "x2AVIC: an IPI to a preempted target exits with id 1, wakes nobody, and is there at its next entry") {
  // Two vCPUs share a pCPU; the one that computes is preempted by the tick.
  const GuestProgram program(x2,
                             {compute(40'000'000), compute(30'000'000) + send(x2, 0, 0x41) +
                                                       send(x2, 0, 0x51) + compute(30'000'000)},
                             {0x41, 0x51});
  const AvicRun run = run_avic(program, 2, {"host.pcpus=1", "host.hz=1000", "vm.pin=[0, 0]"});
  CHECK(run.texts(EventKind::kvm_avic_incomplete_ipi).size() == 2);
  for (const std::string& text : run.texts(EventKind::kvm_avic_incomplete_ipi))
    CHECK(text.find("id=1, index=0") != std::string::npos);
  CHECK(run.result.vcpus[0].stats.halt_wakeup == 0);
  CHECK(run.count(EventKind::kvm_avic_doorbell) == 0);
  CHECK(run.result.ipi_latency.count() == 2);
  CHECK(run.result.failure.empty());
}

TEST_CASE("x2AVIC: with enable_ipiv off every IPI but one to the sender itself exits with id 1") {
  const GuestProgram program(x2,
                             {compute(soon) + send(x2, 1, 0x41) + compute(soon) + send(x2, 0, 0x44041) +
                                  compute(soon) + send(x2, 1, 0x51) + compute(late),
                              compute(late)},
                             {0x41, 0x51});
  const auto check = [&](const AvicRun& run) {
    CHECK(run.exits(0) == "avic_incomplete_ipi 2");
    CHECK(run.exits(1).empty());
    CHECK(run.texts(EventKind::kvm_avic_doorbell) == Lines{"vcpuid=1, apicid=1", "vcpuid=1, apicid=1"});
    CHECK(run.result.ipi_latency.count() == 3);
    CHECK(run.result.failure.empty());
  };
  check(run_avic(program, 2, {"kvm.enable_ipiv=false"}));
  // 6.18 forces it on family 17h, where x2AVIC is not a feature; older kernels do not.
  const std::vector<std::string> zen2{"host.profile=zen2", "host.features=[\"+x2avic\"]"};
  std::vector<std::string> newer = zen2;
  newer.emplace_back("host.kernel=6.18");
  check(run_avic(program, 2, newer));
  CHECK(run_avic(program, 2, zen2).exits(0).empty());
}

TEST_CASE("x2AVIC: NMI and level IPIs exit with id 0 and are KVM's, which sets no IRR bit twice") {
  const GuestProgram nmi(x2, {compute(soon) + send(x2, 1, 0x4400) + compute(late), compute(late)}, {2});
  const AvicRun run = run_avic(nmi, 2, {"kvm.vnmi=false"});
  CHECK(run.exits(0) == "avic_incomplete_ipi 1");
  CHECK(run.texts(EventKind::kvm_avic_incomplete_ipi) ==
        Lines{"vcpu=0, icrh:icrl=0x00000001:00004400, id=0, index=0"});
  CHECK(run.texts(EventKind::kvm_apic_ipi) == Lines{"dst 1 vec 0 (NMI|physical|assert|edge|dst)"});
  CHECK(run.result.vcpus[1].stats.nmi_injections == 1);

  // A level IPI: its EOI traps, and finds the TMR bit that KVM has set.
  const GuestProgram level(x2, {compute(soon) + send(x2, 1, 0xc041) + compute(late), compute(late)});
  const AvicRun second = run_avic(level, 2);
  CHECK(second.exits(0) == "avic_incomplete_ipi 1");
  CHECK(second.exits(1) == "avic_unaccelerated_access 1");
  CHECK(second.texts(EventKind::kvm_avic_unaccelerated_access) ==
        Lines{"vcpu=1, offset=0xb0(APIC_EOI), trap, write, vec=0x41"});
  CHECK(second.texts(EventKind::kvm_eoi) == Lines{"apicid 1 vector 65"});
  CHECK(second.texts(EventKind::kvm_avic_doorbell) == Lines{"vcpuid=1, apicid=1"});
  CHECK(second.result.failure.empty());
  // Whether the hardware has cleared the ISR bit before is open (12.7); KVM ends the interrupt either way.
  CHECK(run_avic(level, 2, {"host.knobs.level_eoi_clears_isr=false"}).exits(1) ==
        "avic_unaccelerated_access 1");
}

TEST_CASE(
    "x2AVIC: the EOI of a level interrupt that was taken inside a handler ends that one, not the outer one") {
  // vCPU 1 takes 41h, whose handler lets C0h in; then one more 41h shows that nothing is left in service.
  const std::string handler = plain("sti") + compute(400'000) + apic_write(x2, 0xb0, "0");
  const GuestProgram program(x2,
                             {compute(soon) + send(x2, 1, 0x41) + compute(100'000) + send(x2, 1, 0xc0c0) +
                                  compute(late) + send(x2, 1, 0x41) + compute(late),
                              compute(3 * late)},
                             {0x41, 0xc0}, true, handler);
  for (const char* clears : {"true", "false"}) {  // 12.7: whether the hardware has cleared the ISR bit
    CAPTURE(std::string(clears));
    const AvicRun run = run_avic(program, 2, {std::string("host.knobs.level_eoi_clears_isr=") + clears});
    CHECK(run.exits(1) == "avic_unaccelerated_access 1");
    CHECK(run.texts(EventKind::kvm_eoi) == Lines{"apicid 1 vector 192"});
    CHECK(run.result.ipi_latency.count() == 3);
    CHECK(run.result.failure.empty());
  }
}

TEST_CASE("x2AVIC: invalid targets and vectors: ids 2 and 4") {
  const GuestProgram program(x2, {send(x2, 7, 0x41) + send(x2, 0, 0x5) + compute(soon)});
  const AvicRun run = run_avic(program, 1);
  CHECK(run.exits(0) == "avic_incomplete_ipi 2");
  CHECK(run.texts(EventKind::kvm_avic_incomplete_ipi) ==
        Lines{"vcpu=0, icrh:icrl=0x00000007:00000041, id=2, index=7",
              "vcpu=0, icrh:icrl=0x00000000:00000005, id=4, index=0"});
  // KVM sends again what no target was found for, and ignores the illegal vector.
  CHECK(run.texts(EventKind::kvm_apic_ipi) == Lines{"dst 7 vec 65 (Fixed|physical|de-assert|edge|dst)"});
  CHECK(run.count(EventKind::kvm_apic_accept_irq) == 0);
}

TEST_CASE("x2AVIC: broadcasts and shorthands ring those that run and exit once for all that do not") {
  const std::string wait = halt_until(0x41);
  const GuestProgram all_run(x2, {compute(soon) + send(x2, 0, 0xc0041) + compute(late), compute(late),
                                  compute(late), compute(late)});
  const AvicRun running = run_avic(all_run, 4);
  for (unsigned vcpu = 0; vcpu < 4; ++vcpu)
    CHECK(running.exits(vcpu).empty());
  CHECK(running.result.ipi_latency.count() == 3);

  const GuestProgram two_sleep(
      x2, {compute(late) + send(x2, 0, 0xc0041) + compute(late), wait, compute(4 * late), wait});
  const AvicRun run = run_avic(two_sleep, 4, {"kvm.halt_poll_ns=0"});
  CHECK(run.exits(0) == "avic_incomplete_ipi 1");
  CHECK(run.exits(2).empty());
  CHECK(run.texts(EventKind::kvm_avic_incomplete_ipi) ==
        Lines{"vcpu=0, icrh:icrl=0x00000000:000c0041, id=1, index=1"});
  CHECK(run.texts(EventKind::kvm_avic_kick_vcpu_slowpath) == Lines{"icrh:icrl=0x000000:000c0041, index=1"});
  // KVM does not know who was not running: it finishes the delivery to all three.
  CHECK(run.count(EventKind::kvm_apicv_accept_irq) == 3);
  CHECK(run.texts(EventKind::kvm_avic_doorbell) == Lines{"vcpuid=2, apicid=2"});
  CHECK(run.result.ipi_latency.count() == 3);
  CHECK(run.result.failure.empty());
}

TEST_CASE(
    "x2AVIC: several logical targets: 6.12 finds them by the table's arithmetic, 6.1 in the slow loop") {
  const std::string wait = halt_until(0x41);
  const GuestProgram program(x2, {compute(late) + send(x2, 0x6, 0x841) + compute(late), wait, wait});
  for (const char* kernel : {"6.1", "6.12", "6.18"}) {
    CAPTURE(std::string(kernel));
    const AvicRun run = run_avic(program, 3, {"kvm.halt_poll_ns=0", std::string("host.kernel=") + kernel});
    CHECK(run.exits(0) == "avic_incomplete_ipi 1");
    CHECK(run.count(EventKind::kvm_avic_kick_vcpu_slowpath) == (std::string(kernel) == "6.1" ? 1U : 0U));
    CHECK(run.count(EventKind::kvm_apicv_accept_irq) == 2);
    CHECK(run.result.failure.empty());
  }
}

TEST_CASE("x2AVIC: an interrupt that comes while IF = 0 needs no window") {
  const GuestProgram program(x2, {compute(soon) + send(x2, 1, 0x41) + compute(late),
                                  plain("cli") + compute(late) + plain("sti") + compute(soon)});
  const AvicRun run = run_avic(program, 2);
  CHECK(run.exits(0).empty());
  CHECK(run.exits(1).empty());
  CHECK(run.result.ipi_latency.count() == 1);
}

TEST_CASE("x2AVIC: register accesses of one vCPU, each with its exits") {
  struct Row {
    std::string actions;
    std::string exits;
  };
  const Row rows[] = {
      {apic_write(x2, 0x80, "0x30"), ""},  // TPR
      {"{ do = \"mov_to_cr8\", value = 5 },\n", ""},
      {apic_write(x2, 0x3f0, "0x41"), "msr 1"},                           // SELF_IPI
      {send(x2, 0, 0x44041), ""},                                         // shorthand self
      {"{ do = \"wrmsr\", msr = 0x6e0, value = 0 },\n", "msr 1"},         // TSC_DEADLINE
      {apic_write(x2, 0x380, "0"), "avic_unaccelerated_access 1"},        // TMICT
      {apic_write(x2, 0x3e0, "3"), "avic_unaccelerated_access 1"},        // TDCR
      {apic_write(x2, 0x320, "0x10041"), "msr 1"},                        // LVTT
      {apic_write(x2, 0x370, "0x100fe"), "avic_unaccelerated_access 1"},  // LVTERR
      {apic_write(x2, 0xf0, "0x1ff"), "avic_unaccelerated_access 1"},     // SVR
      {"{ do = \"rdmsr\", msr = 0x80f },\n", ""},
      {"{ do = \"rdmsr\", msr = 0x839 },\n", "avic_unaccelerated_access 1"},  // TMCCT, a fault
      {"{ do = \"rdmsr\", msr = 0x811 },\n", "msr 1"},                        // not passed through
  };
  for (const Row& row : rows) {
    CAPTURE(row.actions);
    const AvicRun run = alone(row.actions + compute(soon), {"run.duration=10ms"});
    CHECK(run.exits(0) == row.exits);
  }
}

TEST_CASE("x2AVIC: HLT with nothing pending exits") {
  const AvicRun run = alone(plain("hlt"), {"run.duration=10ms"});
  CHECK(run.result.vcpus[0].stats.halt_exits == 1);
  CHECK(run.texts(EventKind::kvm_exit).size() == 1);
  CHECK(run.texts(EventKind::kvm_exit)[0].find("reason idle-halt") != std::string::npos);
}

TEST_CASE("x2AVIC: HLT with an interrupt pending: one hlt exit without idle HLT, none with it") {
  const std::string body = plain("cli") + send(x2, 0, 0x44041) + plain("sti") + plain("hlt") + compute(100);
  const AvicRun with = alone(body);
  CHECK(with.exits(0).empty());
  CHECK(with.result.failure.empty());
  const AvicRun without = alone(body, {"kvm.idle_hlt=false"});
  CHECK(without.exits(0) == "hlt 1");
  CHECK(without.result.failure.empty());
}

TEST_CASE("x2AVIC: a halt with IF = 0 is woken by nothing that IF masks") {
  const GuestProgram program(
      x2, {compute(late) + send(x2, 1, 0x41) + compute(late), plain("cli") + plain("hlt")});
  const AvicRun run = run_avic(program, 2, {"run.duration=20ms"});
  CHECK(run.exits(0) == "avic_incomplete_ipi 1");
  CHECK(run.result.vcpus[1].stats.halt_exits == 1);
  CHECK(run.result.ipi_latency.count() == 0);
}

TEST_CASE("the open question of the founding thread: idle_hlt_test with x2AVIC, 1000 iterations") {
  for (const bool idle_hlt : {true, false}) {
    const Scenario scenario = avic_scenario(
        "idle_hlt_test", 1,
        {"vm.workload.iterations=1000", std::string("kvm.idle_hlt=") + (idle_hlt ? "true" : "false")});
    const AvicRun run = run_avic(scenario);
    // The set-up's 53 SVR writes are traps; the loop's ICR and EOI writes do not exit.
    CHECK(run.exits(0) ==
          (idle_hlt ? "avic_unaccelerated_access 53" : "avic_unaccelerated_access 53, hlt 1000"));
    CHECK(metric(run.result, "iterations") == 1000);
    CHECK(run.result.failure.empty());
  }
}

TEST_CASE(
    "hybrid AVIC: an x2APIC guest without x2AVIC writes its ICR with an exit, and the target takes none") {
  const GuestProgram program(x2, {compute(soon) + send(x2, 1, 0x41) + compute(late), compute(late)});
  const AvicRun run = run_avic(program, 2, {"host.features=[\"-x2avic\"]"});
  CHECK(run.exits(0) == "msr 1");
  CHECK(run.exits(1) == "msr 1");  // the EOI
  CHECK(run.texts(EventKind::kvm_avic_doorbell) == Lines{"vcpuid=1, apicid=1"});
  CHECK(run.count(EventKind::kvm_inj_virq) == 0);
  CHECK(run.result.failure.empty());
}

TEST_CASE(
    "x2AVIC: PV_SEND_IPI is one hypercall on the sender and nothing on a running target; the advice says "
    "so") {
  const std::string call = "{ do = \"vmmcall\", number = 10, arguments = [2, 0, 0, 0x41] },\n";
  const GuestProgram running(x2, {compute(soon) + call + compute(late), compute(late)});
  const AvicRun run = run_avic(running, 2);
  CHECK(run.exits(0) == "hypercall 1");
  CHECK(run.exits(1).empty());
  CHECK(run.texts(EventKind::kvm_avic_doorbell) == Lines{"vcpuid=1, apicid=1"});
  REQUIRE(run.result.advice.size() == 1);
  CHECK(run.result.advice[0].id == "avic-ipis-by-hypercall");
  const GuestProgram blocked(x2, {compute(late) + call + compute(late), halt_until(0x41)});
  const AvicRun second = run_avic(blocked, 2, {"kvm.halt_poll_ns=0"});
  CHECK(second.exits(0) == "hypercall 1");
  CHECK(second.exits(1) == "idle-halt 1");
  CHECK(second.count(EventKind::kvm_avic_doorbell) == 0);
  CHECK(second.result.failure.empty());
}

TEST_CASE("x2AVIC: PAUSE loops and host interrupts cost what they cost without AVIC") {
  const AvicRun pauses = alone("{ do = \"pause\", repeat = 3002 },\n" + compute(soon));
  CHECK(pauses.exits(0) == "pause 1");
  const AvicRun ticks = alone(compute(27'000'000), {"host.hz=1000"});  // 10 ms
  CHECK(ticks.exits(0).rfind("interrupt ", 0) == 0);
}

TEST_CASE("kvm.avic: off by default on 6.1 and 6.12, auto on 6.18") {
  CHECK_FALSE(scenario_of("cpuid").kvm.avic);
  CHECK_FALSE(scenario_of("cpuid", {"host.kernel=6.1"}).kvm.avic);
  CHECK(scenario_of("cpuid", {"host.kernel=6.18"}).kvm.avic);
  CHECK_FALSE(scenario_of("cpuid", {"host.kernel=6.18", "kvm.avic=false"}).kvm.avic);
  CHECK_FALSE(scenario_of("cpuid", {"host.kernel=6.18", "host.features=[\"-x2avic\"]"}).kvm.avic);
  CHECK_FALSE(scenario_of("cpuid", {"host.kernel=6.18", "host.profile=zen2"}).kvm.avic);
  // x2AVIC on a CPU that is no Zen 4 is not enough.
  CHECK_FALSE(scenario_of("cpuid", {"host.kernel=6.18", "host.profile=zen2", "host.features=[\"+x2avic\"]"})
                  .kvm.avic);
}

}  // namespace svmsim::model::test
