// IPIs of every kind through the model: who gets them, in which order, and what exits they cost.

#include <doctest/doctest.h>

#include "tests/model/program_run.hpp"

namespace svmsim::model::test {

namespace {

// Four vCPUs that compute; vCPU 0 writes the ICR once.
std::string sender(const std::string& icr, const std::string& handlers = "") {
  return R"(
vcpus = 4
[initial]
apic_svr = 0x1ff
interrupts_enabled = true
[[vcpu]]
vcpu = 0
setup = [
  { do = "compute", cycles = 200000 },
  { do = "wrmsr", msr = 0x830, value = )" +
         icr + R"( },
  { do = "compute", cycles = 200000 },
]
[[vcpu]]
vcpu = "others"
setup = [ { do = "compute", cycles = 600000 } ]
[[handler]]
vector = 0x41
actions = [ { do = "wrmsr", msr = 0x80b, value = 0 }, { do = "iret" } ]
[[handler]]
vector = 2
actions = [ { do = "compute", cycles = 100 }, { do = "iret" } ]
)" + handlers;
}

std::vector<unsigned> targets_of(const Run& run) {
  std::vector<unsigned> targets;
  for (const auto& event : run.events)
    if (event.kind == workloads::EventKind::kvm_apic_accept_irq)
      targets.push_back(static_cast<unsigned>(event.field[0]));
  return targets;
}

}  // namespace

TEST_CASE("an ICR write reaches whom its destination names, in index order") {
  using Targets = std::vector<unsigned>;
  CHECK(targets_of(run(sender("0x2_0000_0041"), 4)) == Targets{2});                    // physical
  CHECK(targets_of(run(sender("\"0xffffffff00000041\""), 4)) == Targets{0, 1, 2, 3});  // broadcast
  CHECK(targets_of(run(sender("0xa_0000_0841"), 4)) == Targets{1, 3});                 // logical, cluster 0
  CHECK(targets_of(run(sender("0x1000f_0000_0841"), 4)).empty());                      // cluster 1: nobody
  CHECK(targets_of(run(sender("0x44041"), 4)) == Targets{0});                          // shorthands
  CHECK(targets_of(run(sender("0x84041"), 4)) == Targets{0, 1, 2, 3});
  CHECK(targets_of(run(sender("0xc4041"), 4)) == Targets{1, 2, 3});
}

TEST_CASE("lowest priority picks by vector hashing, or the one that got the fewest") {
  // Vector 41h = 65 among vCPUs 0 to 3: 65 mod 4 = 1.
  CHECK(targets_of(run(sender("0xf_0000_0941"), 4)) == std::vector<unsigned>{1});
  CHECK(targets_of(run(sender("0xf_0000_0941"), 4, {"kvm.vector_hashing=false"})) ==
        std::vector<unsigned>{0});
  const Run result = run(sender("0xf_0000_0941"), 4);
  CHECK(result.lines(workloads::EventKind::kvm_apic_accept_irq) ==
        std::vector<std::string>{"kvm_apic_accept_irq: apicid 1 vec 65 (LowPrio|edge)"});
  CHECK(result.exits_of_vcpu(1) == "interrupt 1, msr 1");
}

TEST_CASE("a fixed IPI costs the sender one msr exit and a running target one interrupt exit and its EOI") {
  const Run result = run(sender("0x2_0000_0041"), 4);
  CHECK(result.exits_of_vcpu(0) == "msr 1");
  CHECK(result.exits_of_vcpu(2) == "interrupt 1, msr 1");
  CHECK(result.exits_of_vcpu(1).empty());
}

TEST_CASE("an NMI is taken with interrupts off, and its IRET opens the window") {
  const Run result = run(sender("0x2_0000_0400"), 4, {"kvm.vnmi=false"});
  CHECK(result.lines(workloads::EventKind::kvm_apic_ipi) ==
        std::vector<std::string>{"kvm_apic_ipi: dst 2 vec 0 (NMI|physical|de-assert|edge|dst)"});
  CHECK(result.exits_of_vcpu(2) == "interrupt 1, iret 1");
  CHECK(result.result.vcpus[2].stats.nmi_injections == 1);
  CHECK(result.result.vcpus[2].stats.nmi_window_exits == 1);
  CHECK(result.result.failure.empty());
}

TEST_CASE("virtual NMI needs no IRET exit") {
  const Run result = run(sender("0x2_0000_0400"), 4, {"host.features=[\"+vnmi\"]"});
  CHECK(result.exits_of_vcpu(2) == "interrupt 1");
  CHECK(result.result.vcpus[2].stats.nmi_injections == 1);
  // 6.1 does not know it.
  CHECK(run(sender("0x2_0000_0400"), 4, {"host.features=[\"+vnmi\"]", "host.kernel=6.1"}).exits_of_vcpu(2) ==
        "interrupt 1, iret 1");
}

namespace {

// vCPU 0 sends itself NMIs with IF = 0 from a handler of one: they wait for its IRET.
std::string nmi_storm(unsigned nmis) {
  std::string text = R"(
setup = [
  { do = "wrmsr", msr = 0x80f, value = 0x1ff },
  { do = "int_nmi_goes_here" },
  { do = "compute", cycles = 1000 },
]
[[handler]]
vector = 2
actions = [
  { do = "compute", cycles = 100 },
  { do = "iret" },
]
)";
  std::string sends;
  for (unsigned i = 0; i < nmis; ++i)
    sends += "{ do = \"wrmsr\", msr = 0x830, value = 0x400 },";
  text.replace(text.find("{ do = \"int_nmi_goes_here\" },"), 29, sends);
  return text;
}

}  // namespace

TEST_CASE("self-NMIs one after the other are injected one by one") {
  const Run result = run(nmi_storm(3), 1, {"kvm.vnmi=false", "host.kernel=6.12"});
  // SVR and three ICR writes; each NMI is injected at the next entry, so that its handler runs before the
  // next write.
  CHECK(result.exits_of_vcpu(0) == "iret 3, msr 4");
  CHECK(result.result.vcpus[0].stats.nmi_injections == 3);
}

TEST_CASE("a second NMI waits for the IRET of the first, a third is lost in it") {
  // vCPU 1 gets three NMIs while the first one's handler runs: one in service, one behind it.
  const std::string text = R"(
vcpus = 2
[initial]
apic_svr = 0x1ff
[[vcpu]]
vcpu = 0
setup = [
  { do = "compute", cycles = 200000 },
  { do = "wrmsr", msr = 0x830, value = 0x1_0000_0400 },
  { do = "compute", cycles = 100000 },
  { do = "wrmsr", msr = 0x830, value = 0x1_0000_0400 },
  { do = "compute", cycles = 100000 },
  { do = "wrmsr", msr = 0x830, value = 0x1_0000_0400 },
]
[[vcpu]]
vcpu = 1
setup = [ { do = "compute", cycles = 3000000 } ]
[[handler]]
vector = 2
actions = [ { do = "compute", cycles = 600000 }, { do = "iret" } ]
)";
  const Run result = run(text, 2, {"kvm.vnmi=false"});
  CHECK(result.result.vcpus[1].stats.nmi_injections == 2);
  // Three kicks; the first IRET ends in the single step that lets the second NMI in.
  CHECK(result.exits_of_vcpu(1) == "DB excp 1, interrupt 3, iret 2");
  const Run with_vnmi = run(text, 2, {"host.features=[\"+vnmi\"]"});
  CHECK(with_vnmi.result.vcpus[1].stats.nmi_injections == 2);
  CHECK(with_vnmi.exits_of_vcpu(1) == "interrupt 3");
}

TEST_CASE("an NMI wakes a vCPU that halts with interrupts off") {
  const std::string text = R"(
vcpus = 2
[initial]
apic_svr = 0x1ff
[[vcpu]]
vcpu = 0
setup = [ { do = "compute", cycles = 900000 }, { do = "wrmsr", msr = 0x830, value = 0x1_0000_0400 } ]
[[vcpu]]
vcpu = 1
setup = [ { do = "hlt" }, { do = "compute", cycles = 1000 } ]
[[handler]]
vector = 2
actions = [ { do = "compute", cycles = 100 }, { do = "iret" } ]
)";
  const Run result = run(text, 2, {"kvm.vnmi=false"});
  CHECK(result.result.failure.empty());
  CHECK(result.exits_of_vcpu(1) == "idle-halt 1, iret 1");
}

TEST_CASE("INIT and SIPI start a vCPU that waits for them, and INIT begins it anew") {
  const auto program = [](const std::string& sends) {
    return R"(
vcpus = 2
[initial]
wait_for_sipi = true
[[vcpu]]
vcpu = 0
setup = [
  { do = "wrmsr", msr = 0x80f, value = 0x1ff },
  )" + sends +
           R"(
  { do = "compute", cycles = 3000000 },
]
[[vcpu]]
vcpu = 1
setup = [ { do = "cpuid" }, { do = "compute", cycles = 1000000 }, { do = "cpuid" } ]
)";
  };
  const std::string init = R"({ do = "wrmsr", msr = 0x830, value = 0x1_0000_4500 },)";
  const std::string sipi = R"({ do = "wrmsr", msr = 0x830, value = 0x1_0000_4608 },)";
  const std::string pause = R"({ do = "compute", cycles = 300000 },)";

  const Run started = run(program(init + pause + sipi + sipi), 2);
  CHECK(started.result.failure.empty());
  CHECK(started.exits_of_vcpu(1) == "cpuid 2");  // the second SIPI finds it running: dropped
  const Run never = run(program(sipi), 2);
  CHECK(never.exits_of_vcpu(1).empty());
  CHECK(never.result.failure.find("waits for a SIPI") != std::string::npos);
  const Run again = run(program(init + sipi + pause + init + pause + sipi), 2);
  CHECK(again.result.failure.empty());
  CHECK(again.exits_of_vcpu(1) == "cpuid 3, interrupt 1");  // one of the first life, two of the second
}

TEST_CASE("an SMI is one RSM exit of the target") {
  const Run result = run(sender("0x2_0000_0200"), 4);
  CHECK(result.exits_of_vcpu(2) == "interrupt 1, rsm 1");
  CHECK(result.result.failure.empty());
}

TEST_CASE("fastpaths: 6.12 takes fixed physical unicasts, 6.18 every unicast and the self shorthand") {
  // kvm_apic_ipi before or behind kvm_apic_accept_irq tells mainline's fastpath from the slow path.
  const auto delivered_first = [](const std::string& icr, const std::string& kernel) {
    const Run result = run(sender(icr), 4, {"host.kernel=" + kernel, "kvm.vnmi=false", "kvm.avic=false"});
    for (const auto& event : result.events) {
      if (event.kind == workloads::EventKind::kvm_apic_accept_irq) return true;
      if (event.kind == workloads::EventKind::kvm_apic_ipi) return false;
    }
    return false;
  };
  CHECK(delivered_first("0x2_0000_0041", "6.18"));
  CHECK(delivered_first("0x2_0000_0400", "6.18"));  // NMI
  CHECK(delivered_first("0xa_0000_0841", "6.18"));
  CHECK(delivered_first("0x44041", "6.18"));
  CHECK_FALSE(delivered_first("0xc4041", "6.18"));
  CHECK_FALSE(delivered_first("0x2_0000_0041", "6.12"));
}

}  // namespace svmsim::model::test
