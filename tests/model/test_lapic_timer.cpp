// The emulated local APIC timer: when it fires, what it costs in exits, and how KVM's advance learns.

#include <doctest/doctest.h>

#include "tests/model/program_run.hpp"

namespace svmsim::model::test {

namespace {

const std::string handler = R"(
[[handler]]
vector = 0xef
actions = [ { do = "rdtsc", rip = 0x400420 }, { do = "wrmsr", msr = 0x80b, value = 0 }, { do = "iret" } ]
)";

// In lab's profile a cycle is a nanosecond, like a tick of the APIC's bus.
std::string surroundings() {
  return "[initial]\napic_svr = 0x1ff\ninterrupts_enabled = true\n" + handler;
}

Run timer(const std::string& actions, std::vector<std::string> overrides = {}) {
  overrides.emplace_back("host.profile=lab");
  return run("setup = [\n" + actions + "\n]\n" + surroundings(), 1, std::move(overrides));
}

// TSC of each delivery of the timer's vector: the time of the entry that injects it.
std::vector<std::uint64_t> deliveries(const Run& run) {
  std::vector<std::uint64_t> times;
  for (const auto& event : run.events)
    if (event.kind == workloads::EventKind::kvm_inj_virq) times.push_back(event.time);
  return times;
}

constexpr const char* one_shot = "{ do = \"wrmsr\", msr = 0x832, value = 0xef },";
constexpr const char* periodic = "{ do = \"wrmsr\", msr = 0x832, value = 0x200ef },";
constexpr const char* tsc_deadline = "{ do = \"wrmsr\", msr = 0x832, value = 0x400ef },";
constexpr const char* divide_by_1 = "{ do = \"wrmsr\", msr = 0x83e, value = 0xb },";

}  // namespace

TEST_CASE("a timer that fires in guest mode is one interrupt exit and the handler's EOI") {
  const Run result = timer(std::string(one_shot) + divide_by_1 +
                           "{ do = \"wrmsr\", msr = 0x838, value = 100000 },"
                           "{ do = \"compute\", cycles = 300000 },");
  CHECK(result.exits_of_vcpu(0) == "interrupt 1, msr 4");
  CHECK(deliveries(result).size() == 1);
}

TEST_CASE("every divider stretches the count") {
  const std::vector<std::pair<std::string, std::uint64_t>> dividers{
      {"0x0", 2}, {"0x1", 4}, {"0x2", 8}, {"0x3", 16}, {"0x8", 32}, {"0x9", 64}, {"0xa", 128}, {"0xb", 1}};
  std::uint64_t first = 0;
  for (const auto& [code, divider] : dividers) {
    const Run result = timer(std::string(one_shot) + "{ do = \"wrmsr\", msr = 0x83e, value = " + code +
                             " }, { do = \"wrmsr\", msr = 0x838, value = 10000 },"
                             "{ do = \"compute\", cycles = 2000000 },");
    REQUIRE(deliveries(result).size() == 1);
    const std::uint64_t base = deliveries(result)[0] - 10000 * divider;
    if (first == 0) first = base;
    CHECK(base == first);
  }
}

TEST_CASE("a periodic timer fires until its count is 0, no more often than every 200 us") {
  const auto ticks = [](const std::string& count) {
    return deliveries(timer(std::string(periodic) + divide_by_1 +
                            "{ do = \"wrmsr\", msr = 0x838, value = " + count +
                            " }, { do = \"compute\", cycles = 1850000 },"
                            "{ do = \"wrmsr\", msr = 0x838, value = 0 },"
                            "{ do = \"compute\", cycles = 1000000 },"))
        .size();
  };
  CHECK(ticks("500000") == 3);
  CHECK(ticks("1000") == 9);
}

TEST_CASE("mode changes: to and from TSC deadline the timer is cancelled, one-shot and periodic keep it") {
  const auto fires = [](const std::string& change) {
    return deliveries(timer(std::string(one_shot) + divide_by_1 +
                            "{ do = \"wrmsr\", msr = 0x838, value = 500000 }," + change +
                            "{ do = \"compute\", cycles = 1400000 },"))
        .size();
  };
  CHECK(fires("") == 1);
  CHECK(fires(tsc_deadline) == 0);
  CHECK(fires(periodic) == 2);
  CHECK(fires("{ do = \"wrmsr\", msr = 0x832, value = 0x100ef },") == 0);  // masked
  const auto deadline = [](const std::string& change) {
    return deliveries(timer(tsc_deadline + std::string("{ do = \"arm_deadline\", delay = 500000 },") +
                            change + "{ do = \"compute\", cycles = 1400000 },"))
        .size();
  };
  CHECK(deadline("") == 1);
  CHECK(deadline(one_shot) == 0);
  CHECK(deadline("{ do = \"wrmsr\", msr = 0x6e0, value = 0 },") == 0);
  CHECK(deadline("{ do = \"arm_deadline\", delay = 600000 },") == 1);
}

TEST_CASE("an expiry that is pending when the divider or the mode is written is kept, whenever that is") {
  // The timer expires about the time of the second write: before it, while it is handled, or behind it.
  for (const char* write : {"{ do = \"wrmsr\", msr = 0x83e, value = 0 },",           // TDCR: divide by 2
                            "{ do = \"wrmsr\", msr = 0x832, value = 0x200ef },"}) {  // LVTT: periodic
    unsigned during = 0;
    for (unsigned count = 1500; count < 6000; count += 10) {
      CAPTURE(std::string(write));
      CAPTURE(count);
      const Run result =
          timer(std::string(one_shot) + divide_by_1 +
                "{ do = \"wrmsr\", msr = 0x838, value = " + std::to_string(count) +
                " }, { do = \"compute\", cycles = 2000 }," + write + "{ do = \"compute\", cycles = 50000 },");
      CHECK(deliveries(result).size() == 1);
      const std::string exits = result.exits_of_vcpu(0);
      during += exits == "msr 5" ? 1U : 0U;  // it was never met in guest mode
    }
    CHECK(during > 0);
  }
}

TEST_CASE("a deadline that has passed fires at once; the write costs one exit, mainline's by fastpath") {
  for (const char* kernel : {"6.1", "6.12", "6.18"}) {
    CAPTURE(std::string(kernel));
    const Run result = timer(std::string(tsc_deadline) + "{ do = \"arm_deadline\", delay = 0 }," +
                                 "{ do = \"compute\", cycles = 10000 },",
                             {std::string("host.kernel=") + kernel});
    CHECK(result.exits_of_vcpu(0) == "msr 3");
    CHECK(deliveries(result).size() == 1);
  }
}

TEST_CASE("a halted guest wakes for its timer, polling or blocked, also with interrupts off") {
  const std::string wait = std::string(tsc_deadline) +
                           "{ do = \"arm_deadline\", delay = 100000 }, { do = \"hlt\" },"
                           "{ do = \"compute\", cycles = 1000 },";
  for (const char* poll : {"kvm.halt_poll_ns=0", "kvm.halt_poll_ns=200000"}) {
    const Run result = timer(wait, {poll, "kvm.idle_hlt=false"});
    CHECK(result.exits_of_vcpu(0) == "hlt 1, msr 3");
    CHECK(result.result.failure.empty());
    CHECK(result.result.vcpus[0].stats.halt_wakeup == 1);
  }
  // With IF = 0 the expiry ends the wait, but the guest goes on sleeping.
  const Run off = timer(std::string(tsc_deadline) +
                            "{ do = \"cli\" }, { do = \"arm_deadline\", delay = 100000 }, { do = \"hlt\" },",
                        {"kvm.idle_hlt=false"});
  CHECK(off.result.failure.find("halted") != std::string::npos);
  CHECK(deliveries(off).empty());
}

namespace {

// Forty deadlines, each waited for in guest mode; the differences that kvm_wait_lapic_expire shows.
std::vector<std::int64_t> lateness(std::vector<std::string> overrides) {
  const std::string text =
      "body = [ { do = \"arm_deadline\", delay = 100000 }, { do = \"compute\", cycles = 150000 } ]\nsetup = "
      "[ " +
      std::string(tsc_deadline) + " ]\n[repeat]\ncount = 40\n" + surroundings();
  overrides.emplace_back("host.profile=lab");
  std::vector<std::int64_t> deltas;
  for (const auto& event : run(text, 1, std::move(overrides)).events)
    if (event.kind == workloads::EventKind::kvm_wait_lapic_expire)
      deltas.push_back(static_cast<std::int64_t>(event.field[0]));
  return deltas;
}

}  // namespace

TEST_CASE("the timer advance learns by an eighth of the difference and ends near the deadline") {
  const std::vector<std::int64_t> deltas = lateness({});
  REQUIRE(deltas.size() == 40);
  CHECK(deltas[0] > 0);
  const std::int64_t last = deltas.back();
  CHECK(last < deltas[0]);
  CHECK(std::abs(last) < 1000);
  // Late by d: the next one comes d / 8 ns earlier (a cycle is a nanosecond).
  CHECK(deltas[11] == deltas[10] - deltas[10] / 8);
  CHECK(lateness({"kvm.lapic_timer_advance=false"}).empty());
}

TEST_CASE("an interrupt that would come early waits for its deadline before VMRUN") {
  // The first deadline meets an advance of 1000 ns and a host that takes less time than that.
  const std::string text =
      "setup = [ " + std::string(tsc_deadline) +
      R"({ do = "arm_deadline", delay = 100000 }, { do = "compute", cycles = 300000 } ])" + "\n" +
      surroundings();
  const Run result = run(text, 1,
                         {"host.profile=lab", "host.cost.t_timer_irq=0", "host.cost.h_inject=0",
                          "host.cost.h_accept_irq=0", "host.cost.t_world=100"});
  std::uint64_t armed = 0;
  for (const auto& event : result.events) {
    if (event.kind == workloads::EventKind::kvm_msr && event.field[1] == 0x6e0) armed = event.field[2];
    if (event.kind == workloads::EventKind::kvm_wait_lapic_expire) {
      CHECK(static_cast<std::int64_t>(event.field[0]) < 0);
      CHECK(event.time < armed);
    }
  }
  // It is delivered not a cycle before the deadline.
  bool injected = false;
  for (const auto& event : result.events) {
    if (event.kind == workloads::EventKind::kvm_inj_virq) injected = true;
    if (injected && event.kind == workloads::EventKind::kvm_exit) {
      CHECK(event.time > armed);
      break;
    }
  }
}

TEST_CASE("the vmexit sub-tests with timer and IPI: exits of each round") {
  for (const char* kernel : {"6.1", "6.12", "6.18"}) {
    CAPTURE(std::string(kernel));
    const auto run_of = [&](const std::string& kind, unsigned vcpus, const std::string& advance) {
      return run_scenario(
          scenario_of(kind, {"vm.workload.iterations=100", "host.hz=0", std::string("host.kernel=") + kernel,
                             "host.pcpus=" + std::to_string(vcpus), "vm.vcpus=" + std::to_string(vcpus),
                             "kvm.idle_hlt=false", "kvm.avic=false", "kvm.lapic_timer_advance=" + advance}));
    };
    // SVR and LVTT; then the deadline and the EOI of each round, and a host timer interrupt in guest mode.
    CHECK(run_of("tscdeadline", 1, "false").exits_of_vcpu(0) == "interrupt 100, msr 202");
    // 3000 cycles are no more than the first advance: the write itself makes the interrupt pending.
    const Run early = run_of("tscdeadline", 1, "true");
    CHECK(early.result.failure.empty());
    CHECK(early.exits_of_vcpu(0) != "interrupt 100, msr 202");
    CHECK(run_of("tscdeadline_immed", 1, "true").exits_of_vcpu(0) == "msr 202");
    for (const char* kind : {"ipi", "ipi_halt"}) {
      const Run result = run_of(kind, 2, "true");
      CHECK(result.result.failure.empty());
      // One ICR write each, and the one that ends the target's idle loop.
      CHECK(result.exits_of_vcpu(0) == "msr 101");
    }
    // The target of ipi_halt halts before each IPI; its EOIs are its only MSR accesses.
    CHECK(run_of("ipi_halt", 2, "true").exits_of_vcpu(1) == "hlt 101, msr 101");
  }
}

}  // namespace svmsim::model::test
