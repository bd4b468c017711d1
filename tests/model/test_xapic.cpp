// The emulated local APIC by memory-mapped registers, its modes, and interrupts of devices.

#include <algorithm>

#include <doctest/doctest.h>

#include "svm/user_error.hpp"
#include "tests/model/program_run.hpp"

namespace svmsim::model::test {

namespace {

using workloads::EventKind;
using Lines = std::vector<std::string>;

std::string write(const std::string& address, const std::string& value) {
  return "{ do = \"memory_write\", address = " + address + ", value = " + value +
         ", size = 4, length = 6 },\n";
}

const std::string handlers = R"(
[[handler]]
vector = 0x41
actions = [
  { do = "memory_write", address = 0xfee000b0, value = 0, size = 4, length = 6 },
  { do = "iret" },
]
)";

std::string two_vcpus(const std::string& sender, const std::string& target_setup = "") {
  return "vcpus = 2\n[initial]\napic_svr = 0x1ff\ninterrupts_enabled = true\n[[vcpu]]\nvcpu = 0\nsetup = [\n"
         "{ do = \"compute\", cycles = 200000 },\n" +
         sender + "]\n[[vcpu]]\nvcpu = 1\nsetup = [\n" + target_setup +
         "{ do = \"compute\", cycles = 800000 },\n]\n" + handlers;
}

std::vector<unsigned> accepted(const Run& run) {
  std::vector<unsigned> ids;
  for (const auto& event : run.events)
    if (event.kind == EventKind::kvm_apic_accept_irq) ids.push_back(static_cast<unsigned>(event.field[0]));
  return ids;
}

Run xapic(const std::string& text, unsigned vcpus, std::vector<std::string> overrides = {}) {
  overrides.emplace_back("vm.apic=xapic");
  return run(text, vcpus, std::move(overrides));
}

}  // namespace

TEST_CASE("an xAPIC unicast costs two npf exits, and the target an interrupt exit and one for the EOI") {
  const Run result = xapic(two_vcpus(write("0xfee00310", "0x1000000") + write("0xfee00300", "0x41")), 2);
  CHECK(result.exits_of_vcpu(0) == "npf 2");
  CHECK(result.exits_of_vcpu(1) == "interrupt 1, npf 1");
  CHECK(result.lines(EventKind::kvm_apic) == Lines{"kvm_apic: apic_write APIC_ICR2 = 0x1000000",
                                                   "kvm_apic: apic_write APIC_ICR = 0x41",
                                                   "kvm_apic: apic_write APIC_EOI = 0x0"});
}

TEST_CASE("logical destinations follow LDR and DFR as the guest writes them") {
  const std::string flat = write("0xfee000d0", "0x2000000");  // logical ID 2
  const auto targets = [&](const std::string& setup, const std::string& destination) {
    return accepted(
        xapic(two_vcpus(write("0xfee00310", destination) + write("0xfee00300", "0x841"), setup), 2));
  };
  CHECK(targets("", "0x2000000").empty());
  CHECK(targets(flat, "0x2000000") == std::vector<unsigned>{1});
  CHECK(targets(flat, "0x4000000").empty());
  CHECK(targets(write("0xfee000d0", "0x12000000") + write("0xfee000e0", "0x0fffffff"), "0x12000000") ==
        std::vector<unsigned>{1});
  CHECK(targets(flat, "0xff000000") == std::vector<unsigned>{0, 1});
}

TEST_CASE("APIC_BASE moves the APIC to x2APIC mode and not back; its page then reads as ones") {
  const std::string text = R"(
setup = [
  { do = "rdmsr", msr = 0x1b },
  { do = "memory_read", address = 0xfee00030, size = 4, length = 2 },
  { do = "wrmsr", msr = 0x1b, value = 0xfee00d00 },
  { do = "memory_read", address = 0xfee00030, size = 4, length = 2 },
  { do = "rdmsr", msr = 0x803 },
  { do = "wrmsr", msr = 0x80f, value = 0x1ff },
]
)";
  const Run result = xapic(text, 1);
  CHECK(result.exits_of_vcpu(0) == "msr 4, npf 2");
  CHECK(result.lines(EventKind::kvm_msr) ==
        Lines{"kvm_msr: msr_read 1b = 0xfee00900", "kvm_msr: msr_write 1b = 0xfee00d00",
              "kvm_msr: msr_read 803 = 0x50014", "kvm_msr: msr_write 80f = 0x1ff"});
  CHECK(result.lines(EventKind::kvm_mmio) ==
        Lines{"kvm_mmio: mmio read len 4 gpa 0xfee00030 val 0x50014",
              "kvm_mmio: mmio read len 4 gpa 0xfee00030 val 0xffffffff"});
  // A read is traced by the APIC before the emulator, in xAPIC mode alone.
  CHECK(result.lines(EventKind::kvm_apic) == Lines{"kvm_apic: apic_read APIC_LVR = 0x50014",
                                                   "kvm_apic: apic_read APIC_LVR = 0x50014",
                                                   "kvm_apic: apic_write APIC_SPIV = 0x1ff"});
  const Run back =
      run("setup = [ { do = \"wrmsr\", msr = 0x1b, value = 0xfee00900 } ]\n[[handler]]\n"
          "vector = 13\nactions = [ { do = \"iret\" } ]\n",
          1, {"run.duration=50us"});
  CHECK(back.lines(EventKind::kvm_msr)[0] == "kvm_msr: msr_write 1b = 0xfee00900 (#GP)");
}

TEST_CASE("the lab's xAPIC guest gives the lines of recording b1") {
  const Run result = run_scenario(
      scenario_of("lab_selfipi_xapic", {"host.profile=lab", "vm.apic=xapic", "host.kernel=6.12", "host.hz=0",
                                        "kvm.idle_hlt=false", "vm.workload.iterations=3"}));
  Lines lines;
  for (const auto& event : result.events)
    if (event.tid > 0 && workloads::event_name(event.kind).substr(0, 4) == "kvm_")
      lines.push_back(line_of(event, workloads::KernelGeneration::v6_12));
  // The recording's emulated CPU leaves P of the error code clear; hardware sets it with RSV (APM vol.
  // 2, 8.4.2).
  const Lines golden{
      "kvm_page_fault: vcpu 0 rip 0x1009bc address 0x00000000fee00300 error_code 0x10000000f",
      "kvm_mmio: mmio write len 4 gpa 0xfee00300 val 0x44041",
      "kvm_apic: apic_write APIC_ICR = 0x44041",
      "kvm_apic_ipi: dst 0 vec 65 (Fixed|physical|assert|edge|self)",
      "kvm_apic_accept_irq: apicid 0 vec 65 (Fixed|edge)",
      "kvm_entry: vcpu 0, rip 0x1009c2",
      "kvm_exit: vcpu 0 reason hlt rip 0x1009c3 info1 0x0000000000000000 info2 0x0000000000000000 intr_info "
      "0x00000000 error_code 0x00000000",
      "kvm_entry: vcpu 0, rip 0x1009c4",
      "kvm_exit: vcpu 0 reason vintr rip 0x1009c4 info1 0x0000000000000000 info2 0x0000000000000000 "
      "intr_info "
      "0x00000000 error_code 0x00000000",
      "kvm_inj_virq: IRQ 0x41",
      "kvm_entry: vcpu 0, rip 0x1009c4",
      "kvm_exit: vcpu 0 reason npf rip 0x1002dd info1 0x000000010000000f info2 0x00000000fee000b0 intr_info "
      "0x00000000 error_code 0x00000000",
      "kvm_page_fault: vcpu 0 rip 0x1002dd address 0x00000000fee000b0 error_code 0x10000000f",
      "kvm_mmio: mmio write len 4 gpa 0xfee000b0 val 0x0",
      "kvm_apic: apic_write APIC_EOI = 0x0",
      "kvm_eoi: apicid 0 vector 65",
      "kvm_entry: vcpu 0, rip 0x1002e3"};
  // The last iteration: the first one touches its pages.
  const auto last = std::find(lines.rbegin(), lines.rend(), golden.front());
  REQUIRE(last != lines.rend());
  const auto begin = last.base() - 1;
  REQUIRE(lines.end() - begin >= static_cast<std::ptrdiff_t>(golden.size()));
  CHECK(Lines(begin, begin + static_cast<std::ptrdiff_t>(golden.size())) == golden);
}

TEST_CASE("the x2APIC registers do not exist in xAPIC mode, nor for a fastpath") {
  for (const char* kernel : {"host.kernel=6.12", "host.kernel=6.18"}) {
    const Run result = xapic(
        "setup = [ { do = \"wrmsr\", msr = 0x830, value = 0x41 } ]\n[[handler]]\nvector = 13\n"
        "actions = [ { do = \"iret\" } ]\n",
        1, {"run.duration=20us", kernel});
    REQUIRE(!result.lines(EventKind::kvm_msr).empty());
    CHECK(result.lines(EventKind::kvm_msr)[0] == "kvm_msr: msr_write 830 = 0x41 (#GP)");
    CHECK(result.lines(EventKind::kvm_apic_ipi).empty());
  }
}

namespace {

const std::string computes = R"(
[initial]
apic_svr = 0x1ff
interrupts_enabled = true
)";

const std::string x2apic_handlers = R"(
[[handler]]
vector = 0x41
actions = [ { do = "out", port = 0x99, value = 0 }, { do = "wrmsr", msr = 0x80b, value = 0 }, { do = "iret" } ]
)";

Run with_device(const std::string& text, unsigned vcpus, const std::string& device,
                std::vector<std::string> more = {}) {
  const ProgramFile file(text);
  const std::string scenario = R"({"host": {"hz": 0, "pcpus": 2}, "vm": [{"vcpus": )" +
                               std::to_string(vcpus) + R"(, "device": [)" + device +
                               R"(], "workload": {"kind": ")" + file.path() + R"("}}]})";
  return run_scenario(load_scenario(ScenarioSource::from_json(scenario), more));
}

}  // namespace

TEST_CASE("an MSI is a host interrupt and one of the guest") {
  const std::string text =
      "vcpus = 2\nparallel = true\nsetup = [ { do = \"compute\", cycles = 1000000 } ]\n" + computes +
      x2apic_handlers;
  const std::string device =
      R"({"kind": "msi", "vector": 65, "destination": 1, "first": "100us", "count": 2, "period": "50us", "pcpu": 0})";
  const Run result = with_device(text, 2, device);
  CHECK(result.lines(EventKind::kvm_apic_accept_irq) ==
        Lines{"kvm_apic_accept_irq: apicid 1 vec 65 (Fixed|edge)",
              "kvm_apic_accept_irq: apicid 1 vec 65 (Fixed|edge)"});
  // vCPU 0 leaves guest mode for the host's interrupts, vCPU 1 for the kicks.
  CHECK(result.exits_of_vcpu(0) == "interrupt 2");
  CHECK(result.exits_of_vcpu(1) == "interrupt 2, io 2, msr 2");
}

namespace {

// Pin 4 of the I/O APIC to vector 41h of APIC 0; `entry` has the trigger bit.
std::string io_apic_guest(const std::string& entry, const std::string& handler_start) {
  return "setup = [\n" + write("0xfec00000", "0x19") + write("0xfec00010", "0") +
         write("0xfec00000", "0x18") + write("0xfec00010", entry) +
         "{ do = \"compute\", cycles = 2000000 },\n]\n" + computes +
         "[[handler]]\nvector = 0x41\nactions = [ " + handler_start +
         "{ do = \"wrmsr\", msr = 0x80b, value = 0 }, { do = \"iret\" } ]\n";
}

}  // namespace

TEST_CASE("a pulse at the I/O APIC is one edge interrupt, a level one comes again until it is acknowledged") {
  const auto interrupts = [](const Run& run) { return run.lines(EventKind::kvm_inj_virq).size(); };
  const std::string edge = R"({"kind": "line", "pin": 4, "first": "200us", "count": 1})";
  const std::string level =
      R"({"kind": "line", "pin": 4, "level": true, "ack_port": 153, "first": "200us", "count": 1})";
  CHECK(interrupts(with_device(io_apic_guest("0x41", ""), 1, edge)) == 1);
  const std::string ack = "{ do = \"out\", port = 0x99, value = 0 }, ";
  const Run acknowledged = with_device(io_apic_guest("0x8041", ack), 1, level);
  CHECK(interrupts(acknowledged) == 1);
  CHECK(acknowledged.lines(EventKind::kvm_apic_accept_irq) ==
        Lines{"kvm_apic_accept_irq: apicid 0 vec 65 (Fixed|level)"});
  // Without the device's port the line stays up, and each EOI brings the next interrupt.
  CHECK(interrupts(with_device(io_apic_guest("0x8041", ""), 1, level, {"run.duration=500us"})) > 5);
  // Masked: nothing.
  CHECK(interrupts(with_device(io_apic_guest("0x10041", ""), 1, edge)) == 0);
}

TEST_CASE("ExtINT passes LINT0 of the first vCPU, opens a window while IF = 0, and needs no EOI") {
  const std::string text = R"(
setup = [
  { do = "compute", cycles = 1000000 },
  { do = "sti" },
  { do = "compute", cycles = 100000 },
]
[initial]
apic_svr = 0x1ff
[[handler]]
vector = 0x20
actions = [ { do = "compute", cycles = 10 }, { do = "iret" } ]
)";
  const std::string device = R"({"kind": "ext_int", "vector": 32, "first": "100us", "count": 1, "pcpu": 1})";
  const Run result = with_device(text, 1, device);
  CHECK(result.exits_of_vcpu(0) == "interrupt 1, vintr 1");
  CHECK(result.lines(EventKind::kvm_inj_virq) == Lines{"kvm_inj_virq: IRQ 0x20"});
}

TEST_CASE("devices that cannot work are refused") {
  const auto problem = [](const std::string& device) {
    try {
      (void)load_scenario(ScenarioSource::from_json(R"({"vm": [{"device": [)" + device +
                                                    R"(], "workload": {"kind": "vmcall"}}]})"),
                          {});
    } catch (const UserError& error) {
      return error.problems().front().path;
    }
    return std::string();
  };
  CHECK(problem(R"({"kind": "msi", "pcpu": 3})") == "vm.vm0.device[0].pcpu");
  CHECK(problem(R"({"kind": "line", "level": true})") == "vm.vm0.device[0].level");
  CHECK(problem(R"({"knid": "msi"})") == "vm.vm0.device[0].knid");
  CHECK(problem(R"({"kind": "msi"})").empty());
}

}  // namespace svmsim::model::test
