// The sub-tests of kvm-unit-tests' vmexit of one vCPU without a timer, and the guests of the lab's h
// recordings: how often KVM sees each exit.

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "tests/model/model_fixture.hpp"

namespace svmsim::model::test {

namespace {

using Exits = std::map<std::string, std::uint64_t>;

constexpr std::uint64_t rounds = 100;

Exits run(const std::string& kind, std::vector<std::string> overrides) {
  Simulation simulation(scenario_of(kind, std::move(overrides)));
  const RunResult result = simulation.run();
  CHECK(result.failure.empty());
  return exits_of(result);
}

Exits vmexit(const std::string& kind, const std::string& idle_hlt) {
  return run(kind, {"host.kernel=6.12", "host.hz=0", "vm.workload.iterations=" + std::to_string(rounds),
                    "kvm.idle_hlt=" + idle_hlt});
}

/// A guest between OUT 11h and OUT 12h, as the lab's; its exits inside that window.
Exits lab(const std::string& body, const std::string& more = "", const std::string& teardown = "") {
  const auto path = std::filesystem::temp_directory_path() / "svmsim_test_vmexit.toml";
  std::ofstream(path) << "name = \"lab_h\"\ndoc = \"a guest of the lab\"\n"
                      << "setup = [ { do = \"wrmsr\", msr = 0x80f, value = 0x1ff }, "
                      << "{ do = \"out\", port = 0x11, value = 0 } ]\n"
                      << "body = [ " << body << " ]\n"
                      << "teardown = [ " << teardown << " { do = \"out\", port = 0x12, value = 0 } ]\n"
                      << "[repeat]\ncount = 1000\n"
                      << more;
  Simulation simulation(scenario_of(path.string(), {"host.profile=lab", "host.kernel=6.12", "host.hz=0"}));
  RecordingSink sink;
  simulation.add_sink(sink);
  CHECK(simulation.run().failure.empty());
  std::filesystem::remove(path);
  Exits exits;
  bool inside = false;
  for (const auto& event : sink.events) {
    if (event.kind == workloads::EventKind::kvm_pio && event.field[1] == 0x12) break;
    if (event.kind == workloads::EventKind::kvm_exit && inside)
      ++exits[svm::exit_name_or_hex(event.field[0])];
    if (event.kind == workloads::EventKind::kvm_pio && event.field[1] == 0x11) inside = true;
  }
  // The exit of OUT 12h itself.
  if (--exits["io"] == 0) exits.erase("io");
  return exits;
}

}  // namespace

TEST_CASE("the sub-tests of vmexit exit as KVM makes them") {
  struct Row {
    const char* kind;
    Exits exits;
  };
  const std::vector<Row> rows{
      {"cpuid", {{"cpuid", rounds}}},
      {"vmcall", {{"hypercall", rounds}}},
      // V_INTR_MASKING makes CR8 the guest's own while it masks nothing that waits.
      {"mov_from_cr8", {}},
      {"mov_to_cr8", {}},
      // The first access gives the guest its debug registers until the next exit, which never comes.
      {"mov_dr", {{"write_dr7", 1}}},
      {"wbinvd", {{"wbinvd", rounds}}},
      {"invd", {{"invd", rounds}}},
      {"inl_from_pmtimer", {{"io", rounds}}},
      {"inl_from_qemu", {{"io", rounds}}},
      {"inl_from_kernel", {{"io", rounds}}},
      {"outl_to_kernel", {{"io", rounds}}},
      {"wr_kernel_gs_base", {}},
      {"wr_tsc_adjust_msr", {{"msr", rounds}}},
      {"rd_tsc_adjust_msr", {{"msr", rounds}}},
      {"wr_ibrs_msr", {}},
      {"wr_ibpb_msr", {}},
      // WP is neither TS nor MP: the selective intercept takes it.
      {"toggle_cr0_wp", {{"cr0_sel_write", 2 * rounds}}},
      {"toggle_cr4_pge", {{"write_cr4", 2 * rounds}}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.kind);
    CHECK(vmexit(row.kind, "true") == row.exits);
  }
}

TEST_CASE("a CR8 write exits when it unmasks what waits, once a round") {
  // ICR and EOI, and the SVR of the set-up.
  const std::uint64_t msrs = 2 * rounds + 1;
  for (const std::string sender : {"", "x2apic_"}) {
    CAPTURE(sender);
    CHECK(vmexit(sender + "self_ipi_tpr", "true") == Exits{{"msr", msrs}, {"write_cr8", rounds}});
    CHECK(vmexit(sender + "self_ipi_tpr_sti_nop", "true") ==
          Exits{{"msr", msrs}, {"vintr", rounds}, {"write_cr8", rounds}});
    CHECK(vmexit(sender + "self_ipi_tpr_sti_hlt", "true") ==
          Exits{{"msr", msrs}, {"vintr", rounds}, {"write_cr8", rounds}});
    CHECK(vmexit(sender + "self_ipi_tpr_sti_hlt", "false") ==
          Exits{{"hlt", rounds}, {"msr", msrs}, {"vintr", rounds}, {"write_cr8", rounds}});
  }
}

TEST_CASE("a debug register access exits once after every other exit") {
  Exits exits = run("mov_dr", {"host.kernel=6.12", "host.hz=1000", "vm.workload.iterations=3000000"});
  CHECK(exits["interrupt"] >= 5);
  CHECK(exits["write_dr7"] == exits["interrupt"] + 1);
  CHECK(exits.size() == 2);
}

TEST_CASE("single instructions exit as in the lab's h recordings") {
  // `trace_window` of counts.json, without the recording host's interrupts and the first touches of pages.
  const std::string x2apic_window =
      "[[handler]]\nvector = 0x41\nactions = [ { do = \"wrmsr\", msr = 0x80b, value = 0 }, { do = \"iret\" } "
      "]\n"
      "[[check]]\nvector = 0x41\nruns = 1\n";
  CHECK(lab("{ do = \"cpuid\", leaf = 0 }") == Exits{{"cpuid", 1000}});
  CHECK(lab("{ do = \"mov_from_cr\", cr = 0 }, { do = \"mov_to_cr\", cr = 0, value = 0x80010009 }, "
            "{ do = \"mov_to_cr\", cr = 0, value = 0x80010001 }, "
            "{ do = \"mov_from_cr\", cr = 3 }, { do = \"mov_to_cr\", cr = 3, value = 0x1000 }, "
            "{ do = \"mov_from_cr\", cr = 4 }, { do = \"mov_to_cr\", cr = 4, value = 0x24 }") ==
        Exits{{"read_cr4", 1000}, {"write_cr4", 1000}});
  CHECK(lab("{ do = \"mov_to_cr8\", value = 3 }") == Exits{});
  CHECK(lab("{ do = \"in\", port = 0x61 }") == Exits{{"io", 1000}});
  CHECK(lab("{ do = \"out\", port = 0x80, value = 1 }") == Exits{{"io", 1000}});
  CHECK(lab("{ do = \"rdmsr\", msr = 0x10 }") == Exits{{"msr", 1000}});
  CHECK(lab("{ do = \"cli\" }, { do = \"wrmsr\", msr = 0x830, value = 0x44041 }, { do = \"compute\", cycles "
            "= 60 }, "
            "{ do = \"sti\" }, { do = \"nop\" }, { do = \"cli\" }",
            x2apic_window) == Exits{{"msr", 2000}, {"vintr", 1000}});
  CHECK(lab("{ do = \"vmmcall\", number = 1 }") == Exits{{"hypercall", 1000}});
  CHECK(lab("{ do = \"wbinvd\" }, { do = \"invlpg\", address = 0x100000 }") == Exits{{"wbinvd", 1000}});
  CHECK(lab("{ do = \"wrmsr\", msr = 0x277, value = 0x0007040600070406 }") == Exits{{"msr", 1000}});
  CHECK(lab("{ do = \"rdmsr\", msr = 0x802 }") == Exits{{"msr", 1000}});
  CHECK(lab("{ do = \"wrmsr\", msr = 0x808, value = 0x30 }", "",
            "{ do = \"wrmsr\", msr = 0x808, value = 0 },") == Exits{{"msr", 1001}});
  CHECK(lab("{ do = \"memory_read\", address = 0xfee00020, size = 4 }") == Exits{{"npf", 1000}});
  CHECK(lab("{ do = \"memory_write\", address = 0xfe000000, size = 4, value = 1 }",
            "[initial]\nmmio_pages = [0xfe000000]\n") == Exits{{"npf", 1000}});
}

TEST_CASE("a nested page fault of a page without memory has the reserved bit, and user space completes it") {
  const auto path = std::filesystem::temp_directory_path() / "svmsim_test_mmio.toml";
  std::ofstream(path) << "name = \"mmio\"\ndoc = \"one read\"\n"
                      << "body = [ { do = \"memory_read\", address = 0xfe000008, size = 4, rip = 0x1000 } ]\n"
                      << "[initial]\nmmio_pages = [0xfe000000]\n";
  Simulation simulation(scenario_of(path.string(), {"host.kernel=6.12", "host.hz=0"}));
  RecordingSink sink;
  simulation.add_sink(sink);
  const RunResult result = simulation.run();
  std::filesystem::remove(path);
  CHECK(result.vcpus.at(0).stats.mmio_exits == 1);
  std::vector<std::string> lines;
  for (const auto& event : sink.events) {
    const std::string line = line_of(event, workloads::KernelGeneration::v6_12);
    if (line.rfind("kvm_", 0) == 0) lines.push_back(line);
  }
  REQUIRE(lines.size() >= 9);
  CHECK(lines[1].rfind("kvm_exit: vcpu 0 reason npf rip 0x1000 info1 0x000000010000000d "
                       "info2 0x00000000fe000008",
                       0) == 0);
  CHECK(lines[2] == "kvm_page_fault: vcpu 0 rip 0x1000 address 0x00000000fe000008 error_code 0x10000000d");
  CHECK(lines[3] == "kvm_mmio: mmio unsatisfied-read len 4 gpa 0xfe000008 val 0x0");
  CHECK(lines[4] == "kvm_fpu: unload");
  CHECK(lines[5] == "kvm_userspace_exit: reason KVM_EXIT_MMIO (6)");
  CHECK(lines[6] == "kvm_fpu: load");
  CHECK(lines[7] == "kvm_mmio: mmio read len 4 gpa 0xfe000008 val 0xffffffff");
}

}  // namespace svmsim::model::test
