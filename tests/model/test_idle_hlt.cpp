// The founding experiment through the whole model: counts, order of events, and where they come from.

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

using workloads::KernelGeneration;
using Exits = std::map<std::string, std::uint64_t>;

std::vector<std::string> recorded(std::string t_trace) {
  return {"host.kernel=6.1", "host.hz=0",
          R"(host.tracepoints=["kvm_entry", "kvm_exit", "kvm_msr", "kvm_pio"])",
          "host.cost.t_trace=" + t_trace};
}

RunResult run(std::vector<std::string> overrides, const std::string& kind = "idle_hlt_test") {
  return Simulation(scenario_of(kind, std::move(overrides))).run();
}

std::vector<std::string> with(std::vector<std::string> overrides, const std::string& more) {
  overrides.push_back(more);
  return overrides;
}

}  // namespace

TEST_CASE("the recorded experiment ends at the published counts in both modes") {
  const RunResult off = run(with(recorded("500"), "kvm.idle_hlt=false"));
  CHECK(exits_of(off) == Exits{{"hlt", 262080}, {"vintr", 262080}, {"msr", 524213}});
  const RunResult on = run(with(recorded("500"), "kvm.idle_hlt=true"));
  CHECK(exits_of(on) == Exits{{"vintr", 262080}, {"msr", 524213}});
  for (const RunResult* result : {&off, &on}) {
    CHECK(metric(*result, "cycles_per_iteration") >= 8192);
    CHECK(metric(*result, "cycles_per_iteration") < 16384);
    CHECK(metric(*result, "last_batch_iterations") == 131072);
  }
}

TEST_CASE("dearer recording ends the mode with more records one doubling earlier") {
  CHECK(metric(run(with(recorded("1300"), "kvm.idle_hlt=false")), "last_batch_iterations") == 65536);
  CHECK(metric(run(with(recorded("1300"), "kvm.idle_hlt=true")), "last_batch_iterations") == 131072);
}

TEST_CASE("without recording the harness goes on for one more doubling") {
  for (const char* mode : {"kvm.idle_hlt=false", "kvm.idle_hlt=true"}) {
    const RunResult result = run({"host.kernel=6.1", mode});
    CHECK(metric(result, "iterations") == 524224);
    CHECK(metric(result, "last_batch_iterations") == 262144);
  }
}

TEST_CASE("the aborted halt costs its parameter and can be switched off") {
  const double with_abort =
      metric(run({"host.kernel=6.1", "host.hz=0", "vm.workload.iterations=1000"}), "cycles_per_iteration");
  const double without =
      metric(run({"host.kernel=6.1", "host.hz=0", "vm.workload.iterations=1000", "host.cost.t_halt_abort=0"}),
             "cycles_per_iteration");
  const Scenario scenario = scenario_of("idle_hlt_test");
  CHECK(with_abort - without == scenario.host.cost.t_halt_abort);
}

TEST_CASE("set-up MSR writes are the parameter and nothing else") {
  for (const unsigned writes : {1U, 7U, 53U}) {
    const RunResult result = run(
        {"host.hz=0", "vm.workload.iterations=10", "vm.workload.setup_msr_writes=" + std::to_string(writes)});
    CHECK(exits_of(result)["msr"] == 20 + writes);
  }
}

TEST_CASE("each iteration holds the capture's lines, contiguous and in order") {
  struct Mode {
    const char* setting;
    int capture;
    std::size_t lines;
  };
  for (const Mode mode : {Mode{"kvm.idle_hlt=true", 1, 11}, Mode{"kvm.idle_hlt=false", 2, 13}}) {
    const std::vector<std::string> golden = capture_lines("01-idle-hlt-ipi-trace.txt", mode.capture);
    REQUIRE(golden.size() == mode.lines);
    for (const auto& generation :
         {std::pair{"6.1", KernelGeneration::v6_1}, std::pair{"6.12", KernelGeneration::v6_12}}) {
      const std::string name = generation.first;
      const KernelGeneration kernel = generation.second;
      CAPTURE(mode.setting);
      CAPTURE(name);
      Simulation simulation(scenario_of("idle_hlt_test", {mode.setting, std::string("host.kernel=") + name,
                                                          "host.hz=0", "vm.workload.iterations=10"}));
      RecordingSink sink;
      simulation.add_sink(sink);
      (void)simulation.run();
      std::vector<std::string> lines;
      for (const auto& event : sink.events) {
        if (event.tid > 0 && workloads::event_name(event.kind).substr(0, 4) == "kvm_")
          lines.push_back(line_of(event, kernel));
      }
      auto position = std::find(lines.begin(), lines.end(), golden.front());
      for (int iteration = 0; iteration < 10; ++iteration) {
        REQUIRE(lines.end() - position >= static_cast<std::ptrdiff_t>(golden.size()));
        CHECK(std::vector<std::string>(position, position + static_cast<std::ptrdiff_t>(golden.size())) ==
              golden);
        position += static_cast<std::ptrdiff_t>(golden.size());
        if (iteration == 9) break;
        // The rest of the EOI exit, and the next ICR exit up to its first detail.
        const std::vector<std::string> between(position, position + 3);
        CHECK(between[0] == "kvm_msr: msr_write 80b = 0x0");
        CHECK(between[1] == "kvm_entry: vcpu 0, rip 0x406a76");
        CHECK(between[2].rfind("kvm_exit: vcpu 0 reason msr rip 0x406a87 info1 0x0000000000000001", 0) == 0);
        position += 3;
      }
    }
  }
}

TEST_CASE("mainline prints the accepted interrupt before the IPI and EVENTINJ at the entry") {
  Simulation simulation(scenario_of(
      "idle_hlt_test", {"host.kernel=6.18", "kvm.avic=false", "host.hz=0", "vm.workload.iterations=1"}));
  RecordingSink sink;
  simulation.add_sink(sink);
  (void)simulation.run();
  std::vector<std::string> lines;
  for (const auto& event : sink.events)
    lines.push_back(line_of(event, KernelGeneration::v6_18));
  const auto accept =
      std::find(lines.begin(), lines.end(), "kvm_apic_accept_irq: apicid 0 vec 176 (Fixed|edge)");
  REQUIRE(accept != lines.end());
  CHECK(*(accept + 1) == "kvm_apic_ipi: dst b0 vec 176 (Fixed|physical|assert|edge|self)");
  CHECK(std::count(lines.begin(), lines.end(),
                   "kvm_entry: vcpu 0, rip 0x4004ae intr_info 0x800000b0 error_code 0x00000000") == 1);
}

TEST_CASE("the kernel selftest reads 0 halt exits with idle HLT and 1000 without") {
  CHECK(metric(run({"kvm.idle_hlt=true"}, "svm_idle_hlt_test"), "halt_exits") == 0);
  CHECK(metric(run({"kvm.idle_hlt=false"}, "svm_idle_hlt_test"), "halt_exits") == 1000);
}

TEST_CASE("kvm.idle_hlt needs the CPU feature alone") {
  CHECK(exits_of(run({"host.profile=zen2", "kvm.idle_hlt=true", "host.hz=0",
                      "vm.workload.iterations=5"}))["hlt"] == 5);
  CHECK(exits_of(run({"host.features=[\"-idle_hlt\"]", "kvm.idle_hlt=true", "host.hz=0",
                      "vm.workload.iterations=5"}))["hlt"] == 5);
  for (const char* kernel : {"host.kernel=6.1", "host.kernel=6.12", "host.kernel=6.18"}) {
    CHECK(
        exits_of(run({kernel, "kvm.idle_hlt=true", "host.hz=0", "vm.workload.iterations=5"})).count("hlt") ==
        0);
  }
}

TEST_CASE("the harness programs of the vmexit suite exit as their instruction says") {
  const std::vector<std::string> few{"host.hz=0", "vm.workload.iterations=100"};
  CHECK(exits_of(run(few, "cpuid")) == Exits{{"cpuid", 100}});
  CHECK(exits_of(run(few, "vmcall")) == Exits{{"hypercall", 100}});
  CHECK(exits_of(run(few, "wrmsr")) == Exits{{"msr", 100}});
  CHECK(exits_of(run(few, "in_kernel_io"))["io"] >= 100);
  CHECK(exits_of(run(few, "user_io"))["io"] == 100);
  for (const char* kind : {"self_ipi_sti_nop", "x2apic_self_ipi_sti_nop"}) {
    const Exits exits = exits_of(run(few, kind));
    CHECK(exits.at("vintr") == 100);
    CHECK(exits.count("hlt") == 0);
  }
  for (const char* kind : {"self_ipi_sti_hlt", "x2apic_self_ipi_sti_hlt"}) {
    CHECK(exits_of(run(with(few, "kvm.idle_hlt=false"), kind)).at("hlt") == 100);
    CHECK(exits_of(run(with(few, "kvm.idle_hlt=true"), kind)).count("hlt") == 0);
  }
}

TEST_CASE("exit counts do not depend on any cost") {
  const Exits plain = exits_of(run({"host.hz=0", "vm.workload.iterations=200"}));
  for (const char* cost : {"host.cost.t_world=1", "host.cost.h_eoi=100000", "host.cost.t_halt_abort=0",
                           "host.cost.t_loop=0", "host.cost.t_irq_deliver=0", "host.cost.h_icr=0"}) {
    CAPTURE(cost);
    CHECK(exits_of(run({"host.hz=0", "vm.workload.iterations=200", cost})) == plain);
  }
}

TEST_CASE("programs of one vCPU run on vCPU 0 alone, parallel ones on all") {
  const std::vector<std::string> two{"host.hz=0", "host.pcpus=2", "vm.vcpus=2", "vm.workload.iterations=10"};
  const RunResult single = run(two, "idle_hlt_test");
  CHECK(single.vcpus[0].stats.exits > 0);
  CHECK(single.vcpus[1].stats.exits == 0);
  CHECK(exits_of(run(two, "cpuid")) == Exits{{"cpuid", 20}});
}

TEST_CASE("an OUT that user space serves exits once, like an IN") {
  CHECK(exits_of(run({"host.hz=0", "vm.workload.iterations=50", "vm.workload.write=true"}, "user_io")) ==
        Exits{{"io", 50}});
}

TEST_CASE("round-trip identities: a guest sees the world switch, perf does not") {
  const Scenario scenario = scenario_of("wrmsr", {"host.hz=0", "vm.workload.iterations=1000"});
  const Costs& cost = scenario.host.cost;
  const RunResult result = Simulation(scenario).run();
  const auto rows = total_exits(result);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].counter.time == 1000 * (cost.t_loop + cost.h_msr));
  CHECK(rows[0].counter.min == rows[0].counter.max);
  const RunResult traced =
      run({"host.hz=0", "vm.workload.iterations=1000",
           R"(host.tracepoints=["kvm_entry", "kvm_exit", "kvm_msr"])", "host.cost.t_trace=500"},
          "wrmsr");
  // kvm_exit and kvm_msr lie between the two stamps; kvm_entry is charged after its own.
  CHECK(total_exits(traced)[0].counter.time == 1000 * (cost.t_loop + cost.h_msr + 2 * 500));
  CHECK(metric(traced, "cycles_per_iteration") - metric(result, "cycles_per_iteration") == 3 * 500);
}

}  // namespace svmsim::model::test
