#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/workloads/program_driver.hpp"

using namespace svmsim;
using namespace svmsim::workloads;
using svmsim::workloads::test::drive;

namespace {

using Lines = std::vector<std::string>;

Lines logged(const WorkloadSpec& spec, unsigned vcpus = 1) {
  auto driver = drive(spec, vcpus);
  driver.logging = true;
  driver.run(10'000);
  for (unsigned vcpu = 0; vcpu < vcpus; ++vcpu) {
    CHECK(driver.ended(vcpu));
    CHECK(driver.source(vcpu).failure() == "");
  }
  return driver.log;
}

WorkloadSpec once(const std::string& kind) {
  return {kind, {{"iterations", std::int64_t{1}}}};
}

}  // namespace

TEST_CASE("the built-in programs are there, in alphabetical order, each with a description") {
  std::vector<std::string> names;
  for (const ProgramInfo& info : builtin_programs()) {
    names.push_back(info.name);
    CHECK(info.doc != "");
    CHECK(info.source != "");
    for (const ProgramParameter& parameter : info.parameters)
      CHECK(parameter.doc != "");
  }
  CHECK(std::is_sorted(names.begin(), names.end()));
  for (const char* name : {"cpuid", "idle_hlt_test", "in_kernel_io", "lab_selfipi", "ping_pong",
                           "self_ipi_sti_hlt", "self_ipi_sti_nop", "svm_idle_hlt_test", "user_io", "vmcall",
                           "wrmsr", "x2apic_self_ipi_sti_hlt", "x2apic_self_ipi_sti_nop"}) {
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  }
}

TEST_CASE("idle_hlt_test does what the thread's guest does, at the published addresses") {
  WorkloadSpec spec = once("idle_hlt_test");
  spec.parameters["setup_msr_writes"] = std::int64_t{2};
  CHECK(logged(spec) == Lines{
                            "406a87 wrmsr 80f=1ff",
                            "406a87 wrmsr 80f=1ff",
                            "406a89 rdtsc",
                            "400490 cli",
                            "400491 rdtsc",
                            "406a87 wrmsr 830=b0000440b0",
                            "4004a4 rdtsc",
                            "4004ac sti",
                            "4004ad hlt",
                            "400440 interrupt b0",
                            "400440 rdtsc",
                            "406a74 wrmsr 80b=0",
                            "400450 rdtsc",
                            "400452 iret",
                            "4004ae compute",
                            "4004b2 rdtsc",
                        });
  auto source = make_program(spec, 0, 1);
  CHECK(source->initial_state().rip == 0x406a87);
  CHECK(source->initial_state().interrupts_enabled);
  CHECK(source->handler_entry(0xb0) == 0x400440);
  CHECK(source->handler_entry(0xb1) == 0);
}

TEST_CASE("idle_hlt_test makes 53 MSR writes before its loop and two in each iteration") {
  WorkloadSpec spec{"idle_hlt_test", {{"iterations", std::int64_t{7}}}};
  const Lines lines = logged(spec);
  const auto writes = std::count_if(lines.begin(), lines.end(),
                                    [](const std::string& line) { return line.find("wrmsr") < 20; });
  CHECK(writes == 53 + 2 * 7);
}

TEST_CASE("the self-IPI programs differ in the register and in what follows STI") {
  const Lines nop = logged(once("self_ipi_sti_nop"));
  CHECK(nop == Lines{"406a87 wrmsr 80f=1ff", "406a89 rdtsc", "400490 cli", "400491 rdtsc",
                     "406a87 wrmsr 830=b0000440b0", "4004a4 rdtsc", "4004ac sti", "4004ad nop",
                     "400440 interrupt b0", "400440 rdtsc", "406a74 wrmsr 80b=0", "400450 rdtsc",
                     "400452 iret", "4004ae compute", "4004b2 rdtsc"});
  const auto with = [&nop](const std::string& ipi, const std::string& last) {
    Lines lines = nop;
    lines[4] = "406a87 wrmsr " + ipi;
    lines[7] = "4004ad " + last;
    return lines;
  };
  CHECK(logged(once("self_ipi_sti_hlt")) == with("830=b0000440b0", "hlt"));
  CHECK(logged(once("x2apic_self_ipi_sti_nop")) == with("83f=b0", "nop"));
  CHECK(logged(once("x2apic_self_ipi_sti_hlt")) == with("83f=b0", "hlt"));
}

TEST_CASE("the single-instruction programs") {
  WorkloadSpec cpuid = once("cpuid");
  CHECK(logged(cpuid) == Lines{"100000 rdtsc", "400480 cpuid 0.0", "400482 rdtsc"});
  cpuid.parameters["leaf"] = std::int64_t{0x40000000};
  CHECK(logged(cpuid)[1] == "400480 cpuid 40000000.0");
  CHECK(logged(once("vmcall"))[1] == "400480 vmmcall 0 0 0 0 0");
  CHECK(logged(once("wrmsr"))[1] == "400480 wrmsr 277=7040600070406");
  CHECK(logged(once("user_io")) == Lines{"100000 rdtsc", "400480 in4 1234", "400481 rdtsc"});
  WorkloadSpec port = once("in_kernel_io");
  CHECK(logged(port)[1] == "400480 in1 4d0");
  port.parameters["write"] = true;
  CHECK(logged(port) == Lines{"100000 rdtsc", "400480 out1 4d0=0", "400481 rdtsc"});
}

TEST_CASE("svm_idle_hlt_test makes its rounds and has the host read halt_exits") {
  CHECK(program_info("svm_idle_hlt_test").report_statistics == std::vector<std::string>{"halt_exits"});
  auto driver = drive({"svm_idle_hlt_test", {}});
  driver.logging = true;
  driver.run();
  CHECK(driver.ended());
  CHECK(driver.source().failure() == "");
  CHECK(std::count(driver.log.begin(), driver.log.end(), "402044 hlt") == 1000);
  CHECK(driver.metrics()["iterations"] == 1000);
  CHECK(driver.log[1] == "402040 cli");
  CHECK(driver.log[2] == "402041 wrmsr 830=440b0");
  CHECK(driver.log[3] == "402043 sti");
}

TEST_CASE("lab_selfipi is the guest of the recordings") {
  WorkloadSpec spec = once("lab_selfipi");
  const Lines self = logged(spec);
  CHECK(self ==
        Lines{
            "100553 wrmsr 80f=1ff", "10056f wrmsr 83e=b",  "10057b wrmsr 832=40040", "100561 wrmsr 808=0",
            "10052a out1 11=0",     "1009aa cli",          "1009e8 wrmsr 830=44041", "1009c2 sti",
            "1009c3 hlt",           "100260 interrupt 41", "100260 compute",         "100276 read8 8008",
            "100279 write8 8008=0", "1002cb wrmsr 80b=0",  "1002cd compute",         "1002d1 iret",
            "1009c4 cli",           "1009c5 compute",      "100543 out1 12=0",       "100545 out1 10=0",
        });
  spec.parameters["physical"] = true;
  Lines physical = self;
  physical[6] = "100144 wrmsr 830=41";
  CHECK(logged(spec) == physical);

  const InitialState initial = make_program(spec, 0, 1)->initial_state();
  CHECK(initial.gdt_base + initial.code_selector == 0x5008);
  CHECK(initial.absent_pages == std::vector<std::uint64_t>{0x5000, 0x8000});
  CHECK_FALSE(initial.interrupts_enabled);
  CHECK(initial.apic_svr == 0xff);
}

TEST_CASE("ping_pong halts on both sides until the other's IPI is there") {
  auto driver = drive({"ping_pong", {{"rounds", std::int64_t{5}}}}, 2);
  driver.logging = true;
  driver.run(10'000);
  CHECK(driver.ended(0));
  CHECK(driver.ended(1));
  CHECK(driver.metrics(0)["iterations"] == 5);
  CHECK(driver.metrics(1)["iterations"] == 5);
  // The driver lets a CPU run until it halts, so every round blocks both; vCPU 1 never waits in the last one.
  CHECK(driver.halts(0) == 5);
  CHECK(driver.halts(1) == 4);
  CHECK(std::count(driver.log.begin(), driver.log.end(), "100144 wrmsr 830=100000041") == 5);
  CHECK(std::count(driver.log.begin(), driver.log.end(), "100144 wrmsr 830=41") == 5);
  CHECK(make_program({"ping_pong", {}}, 0, 2)->initial_state().apic_svr == 0x1ff);
  CHECK_THROWS_WITH_AS((void)make_program({"ping_pong", {}}, 0, 1),
                       "vcpus: is 1, but ping_pong needs 2 (did you mean 2?)", UserError);
}

TEST_CASE("a vCPU beyond those of the program has nothing to do") {
  auto source = make_program({"ping_pong", {}}, 2, 3);
  CHECK(source->current() == nullptr);
  CHECK(source->metrics().empty());
}
