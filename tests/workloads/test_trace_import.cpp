#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "svm/exit_code.hpp"
#include "tests/workloads/test_trace_machine.hpp"
#include "workloads/trace/ftrace_reader.hpp"
#include "workloads/trace/import.hpp"

using namespace svmsim;
using namespace svmsim::workloads;
using svm::ActionKind;

namespace {

std::string data_path(const std::string& name) {
  return std::string{SVMSIM_SOURCE_DIR} + "/tests/data/" + name;
}

ImportOptions barrier_window() {
  ImportOptions options;
  options.window_from = EventPattern::parse("kvm_pio:at 0x11");
  options.window_to = EventPattern::parse("kvm_pio:at 0x12");
  return options;
}

ImportResult import_text(const std::string& text, const ImportOptions& options = {}) {
  std::istringstream in(text);
  const TraceFile file = read_trace(in, "t.txt");
  REQUIRE(file.captures.size() == 1);
  REQUIRE(file.captures[0].problem_count == 0);
  return import_capture(file.captures[0], options);
}

/// One line per item, in short words, for comparison.
std::string summary(const ReplayVcpu& vcpu) {
  std::ostringstream out;
  out << std::hex;
  for (const ReplayItem& item : vcpu.items) {
    const svm::GuestAction& a = item.action;
    switch (item.kind) {
      case ReplayKind::interrupt:
        out << "interrupt " << unsigned{item.vector} << "@" << a.rip << "; ";
        continue;
      case ReplayKind::host_interrupt:
        out << "host@" << a.rip << "; ";
        continue;
      case ReplayKind::opaque:
        out << "opaque " << item.exit_code << "@" << a.rip << "; ";
        continue;
      case ReplayKind::action:
        break;
    }
    switch (a.kind) {
      case ActionKind::compute:
        continue;
      case ActionKind::nop:
        out << "nop";
        break;
      case ActionKind::cli:
        out << "cli";
        break;
      case ActionKind::sti:
        out << "sti";
        break;
      case ActionKind::hlt:
        out << "hlt";
        break;
      case ActionKind::iret:
        out << "iret; ";
        continue;
      case ActionKind::wrmsr:
        out << "wrmsr " << a.number << "=" << a.operand[0];
        break;
      case ActionKind::rdmsr:
        out << "rdmsr " << a.number;
        break;
      case ActionKind::in:
        out << "in " << a.number;
        break;
      case ActionKind::out:
        out << "out " << a.number << "=" << a.operand[0];
        break;
      case ActionKind::cpuid:
        out << "cpuid " << a.number;
        break;
      case ActionKind::vmmcall:
        out << "vmmcall " << a.number;
        break;
      case ActionKind::memory_read:
        out << "read " << a.operand[1];
        break;
      case ActionKind::memory_write:
        out << "write " << a.operand[1];
        break;
      default:
        out << "?";
        break;
    }
    out << "@" << a.rip << "; ";
  }
  return out.str();
}

Counts replay_counts(const ReplayWorkload& workload, bool idle_hlt) {
  ReplaySource source(workload, 0);
  TinyMachine machine(source, idle_hlt);
  machine.run();
  CHECK_FALSE(machine.stuck);
  CHECK(machine.rip_errors.empty());
  CHECK(source.failure().empty());
  return machine.counts;
}

using Exits = std::vector<TinyMachine::Exit>;

Exits replay_exits(const ReplayWorkload& workload, bool idle_hlt) {
  ReplaySource source(workload, 0);
  TinyMachine machine(source, idle_hlt);
  machine.run();
  CHECK(machine.rip_errors.empty());
  return machine.exits;
}

const std::string kvm_exit_tail =
    " info1 0x0000000000000000 info2 0x0000000000000000 intr_info 0x00000000 error_code 0x00000000\n";
const std::string kvm_write_tail =
    " info1 0x0000000000000001 info2 0x0000000000000000 intr_info 0x00000000 error_code 0x00000000\n";

}  // namespace

TEST_CASE("trace import: the idle-HLT thread's capture without the intercept") {
  const TraceFile file = read_trace_file(data_path("01-idle-hlt-ipi-trace.txt"));
  const ImportResult result = import_capture(file.captures.at(1));
  REQUIRE(result.workload.vcpus.size() == 1);
  const ReplayVcpu& vcpu = result.workload.vcpus[0];
  CHECK(
      summary(vcpu) ==
      "wrmsr 830=b0000440b0@406a87; sti@4004ac; hlt@4004ad; interrupt b0@4004ae; wrmsr 80b=0@406a74; iret; ");
  CHECK_FALSE(vcpu.initial.interrupts_enabled);
  CHECK(vcpu.initial.rip == 0x406a87);
  CHECK(vcpu.items.front().has(replay_flag::partial));
  CHECK(vcpu.items[6].has(replay_flag::open_end));
  // us stamps: kvm_entry 631 to kvm_exit 632 is known, 632 to 632 is not.
  CHECK(vcpu.items[1].action.cycles == 1000);
  CHECK_FALSE(vcpu.items[1].has(replay_flag::unknown_time));
  CHECK(result.report.causes == Counts{{"self_ipi", 1}});
  CHECK(vcpu.items[4].cause == InterruptCause::self_ipi);
  CHECK(vcpu.items[4].cause_line == 16);
  CHECK(result.report.exits == Counts{{"hlt", 1}, {"msr", 1}, {"vintr", 1}});
  CHECK(result.report.undecidable.count(
            "interrupt windows behind which a HLT without an exit may hide (idle HLT)") == 0);

  const Exits expected{{"hlt", 0x4004ad}, {"vintr", 0x4004ae}, {"msr", 0x406a74}};
  CHECK(replay_exits(result.workload, false) == expected);
}

TEST_CASE("trace import: the idle-HLT thread's capture with the intercept, and one replayed as the other") {
  const TraceFile file = read_trace_file(data_path("01-idle-hlt-ipi-trace.txt"));
  const ImportResult with = import_capture(file.captures.at(0));
  CHECK(
      summary(with.workload.vcpus.at(0)) ==
      "wrmsr 830=b0000440b0@406a87; sti@4004ac; nop@4004ad; interrupt b0@4004ae; wrmsr 80b=0@406a74; iret; ");
  CHECK(with.report.undecidable.at(
            "interrupt windows behind which a HLT without an exit may hide (idle HLT)") == 1);
  CHECK(with.workload.vcpus[0].items[5].has(replay_flag::unknown_time));

  const Exits expected{{"vintr", 0x4004ae}, {"msr", 0x406a74}};
  CHECK(replay_exits(with.workload, true) == expected);
  CHECK(replay_exits(import_capture(file.captures.at(1)).workload, true) == expected);
}

TEST_CASE("trace import: excerpts of the recordings, whole and inside the window") {
  struct Golden {
    std::string file;
    KernelGeneration kernel;
    Counts exits;
    Counts inside;
    std::uint64_t self_ipis;
  };
  const std::vector<Golden> all{
      {"kvm-6.12-a1-excerpt.txt",
       KernelGeneration::v6_12,
       {{"hlt", 6}, {"interrupt", 1}, {"io", 3}, {"msr", 18}, {"npf", 9}, {"vintr", 6}},
       {{"hlt", 6}, {"interrupt", 1}, {"msr", 12}, {"npf", 2}, {"vintr", 6}},
       6},
      {"kvm-6.1-a2-excerpt.txt",
       KernelGeneration::v6_1,
       {{"hlt", 5}, {"interrupt", 1}, {"io", 3}, {"msr", 16}, {"npf", 9}, {"vintr", 5}},
       {{"hlt", 5}, {"interrupt", 1}, {"msr", 10}, {"npf", 2}, {"vintr", 5}},
       5},
  };
  for (const Golden& golden : all) {
    CAPTURE(golden.file);
    const TraceFile file = read_trace_file(data_path(golden.file));
    ImportOptions given;
    given.kernel = golden.kernel;
    const ImportResult whole = import_capture(file.captures.at(0), given);
    CHECK(whole.report.exits == golden.exits);
    REQUIRE(whole.report.vcpus.size() == 1);
    CHECK(whole.report.vcpus[0].exits == golden.exits);
    CHECK(whole.report.causes == Counts{{"self_ipi", golden.self_ipis}});
    CHECK(replay_counts(whole.workload, false) == golden.exits);

    ImportOptions window = barrier_window();
    window.kernel = golden.kernel;
    const ImportResult inside = import_capture(file.captures.at(0), window);
    CHECK(inside.report.exits == golden.inside);
    CHECK(inside.report.vcpus.at(0).exits == golden.inside);
    CHECK(inside.report.events.at("kvm_exit") == inside.report.captures.at(0).exits);
    CHECK(replay_counts(inside.workload, false) == golden.inside);
  }
}

TEST_CASE("trace import: 6.1 prints kvm_exit behind its fastpath, with the next rIP") {
  const TraceFile file = read_trace_file(data_path("kvm-6.1-a2-excerpt.txt"));
  const ImportResult result = import_capture(file.captures.at(0), barrier_window());
  CHECK(result.report.kernel == KernelGeneration::v6_1);
  CHECK(result.report.kernel_certain);
  const std::string text = summary(result.workload.vcpus.at(0));
  CHECK(text.rfind("wrmsr 830=41@100144; sti@1009c2; hlt@1009c3; interrupt 41@1009c4; read 8008@100276; "
                   "wrmsr 80b=0@1002cb; iret; cli@1009c4; ",
                   0) == 0);
  // A host interrupt between EOI and IRET is still in the handler.
  CHECK(text.find("wrmsr 80b=0@1002cb; host@1002cd; iret; cli@1009c4; wrmsr 830=41@100144; ") !=
        std::string::npos);
  const ReplayVcpu& vcpu = result.workload.vcpus[0];
  CHECK(vcpu.initial.gdt_base == 0x5000);
  CHECK(vcpu.initial.code_selector == 8);
  CHECK(vcpu.initial.absent_pages == std::vector<std::uint64_t>{0x5000, 0x8000});
  CHECK(vcpu.handler_entry.at(0x41) == 0x100276);
}

TEST_CASE("trace import: the generation is inferred from format and order") {
  const std::string exit = " 1.000001: kvm_exit: vcpu 0 reason msr rip 0x10" + kvm_write_tail;
  const std::string entry = " 1.000000: kvm_entry: vcpu 0, rip 0x10\n";
  const auto guess = [](const std::string& text) { return import_text(text).report; };
  const ImportReport unknown = guess(entry + exit);
  CHECK(unknown.kernel == KernelGeneration::v6_12);
  CHECK_FALSE(unknown.kernel_certain);
  CHECK(guess(" 1.000000: kvm_entry: vcpu 0, rip 0x10 intr_info 0x00000000 error_code 0x00000000\n").kernel ==
        KernelGeneration::v6_18);
  CHECK(guess(entry +
              " 1.000001: kvm_exit: vcpu 0 reason hlt rip 0x10 info1 0x0 info2 0x0 intr_info 0x0 error_code "
              "0x0 requests 0x0000000000000000\n")
            .kernel == KernelGeneration::v6_18);
  CHECK(guess(entry + " 1.000001: kvm_msr: msr_write 830 = 0x41\n" + exit).kernel == KernelGeneration::v6_1);
  const std::string ipi = " 1.000002: kvm_apic_ipi: dst 0 vec 65 (Fixed|physical|assert|edge|self)\n";
  const std::string accept = " 1.000002: kvm_apic_accept_irq: apicid 0 vec 65 (Fixed|edge)\n";
  CHECK(guess(entry + exit + accept + ipi).kernel == KernelGeneration::v6_18);
  CHECK_FALSE(guess(entry + exit + ipi + accept).kernel_certain);
  const std::string inhibit = " 1.000000: kvm_apicv_inhibit_changed: set reason=2, inhibits=0x4";
  CHECK(guess(inhibit + "\n" + entry + exit).kernel == KernelGeneration::v6_1);
  CHECK(guess(inhibit + " ABSENT\n" + entry + exit).kernel_certain);
  ImportOptions given;
  given.kernel = KernelGeneration::v6_1;
  CHECK(import_text(entry + exit, given).report.kernel == KernelGeneration::v6_1);
}

TEST_CASE("trace import: guest work is entry to exit less the world switch, and unknown is not zero") {
  const std::string text =
      " 1.000000000: kvm_entry: vcpu 0, rip 0x10\n"
      " 1.000000900: kvm_exit: vcpu 0 reason cpuid rip 0x20" +
      kvm_exit_tail +
      " 1.000001000: kvm_entry: vcpu 0, rip 0x22\n"
      " 1.000001100: kvm_exit: vcpu 0 reason cpuid rip 0x30" +
      kvm_exit_tail +
      " 1.000001200: kvm_entry: vcpu 0, rip 0x32\n"
      " 1.000001200: kvm_exit: vcpu 0 reason cpuid rip 0x40" +
      kvm_exit_tail;
  ImportOptions options;
  options.tsc_hz = 2'000'000'000;
  options.world_switch_cycles = 400;
  const ImportResult result = import_text(text, options);
  const auto& items = result.workload.vcpus.at(0).items;
  REQUIRE(items.size() == 6);
  CHECK(items[0].action.cycles == 1400);
  CHECK(items[2].action.cycles == 0);
  CHECK_FALSE(items[2].has(replay_flag::unknown_time));
  CHECK(items[4].has(replay_flag::unknown_time));
  CHECK(items[1].has(replay_flag::no_operand));
  CHECK(items[1].action.length == 2);
  CHECK(result.report.undecidable.at("durations of guest work that the time stamps do not tell") == 1);

  // Without any time stamp nothing is known.
  const ImportResult timeless =
      import_text("kvm_entry: vcpu 0, rip 0x10\nkvm_exit: vcpu 0 reason cpuid rip 0x20" + kvm_exit_tail);
  CHECK(timeless.workload.vcpus.at(0).items.at(0).has(replay_flag::unknown_time));
}

TEST_CASE("trace import: each exit becomes its instruction") {
  const std::string text = " 1.000001: kvm_exit: vcpu 0 reason msr rip 0x10" + kvm_exit_tail +
                           " 1.000001: kvm_msr: msr_read 1b = 0xfee00900\n"
                           " 1.000002: kvm_entry: vcpu 0, rip 0x12\n"
                           " 1.000003: kvm_exit: vcpu 0 reason io rip 0x20 info1 0x0000000000110010 info2 "
                           "0x0000000000000022 intr_info "
                           "0x00000000 error_code 0x00000000\n"
                           " 1.000003: kvm_pio: pio_write at 0x11 size 1 count 1 val 0x7 \n"
                           " 1.000004: kvm_entry: vcpu 0, rip 0x22\n"
                           " 1.000005: kvm_exit: vcpu 0 reason io rip 0x30 info1 0x000000000cfc0041 info2 "
                           "0x0000000000000031 intr_info "
                           "0x00000000 error_code 0x00000000\n"
                           " 1.000006: kvm_entry: vcpu 0, rip 0x31\n"
                           " 1.000007: kvm_exit: vcpu 0 reason cpuid rip 0x40" +
                           kvm_exit_tail +
                           " 1.000007: kvm_cpuid: func d idx 1 rax 0 rbx 0 rcx 0 rdx 0, cpuid entry found\n"
                           " 1.000008: kvm_entry: vcpu 0, rip 0x42\n"
                           " 1.000009: kvm_exit: vcpu 0 reason hypercall rip 0x50" +
                           kvm_exit_tail +
                           " 1.000009: kvm_hypercall: nr 0xb a0 0x1 a1 0x2 a2 0x3 a3 0x4\n"
                           " 1.000010: kvm_entry: vcpu 0, rip 0x53\n"
                           " 1.000011: kvm_exit: vcpu 0 reason npf rip 0x60 info1 0x0000000100000006 info2 "
                           "0x00000000000a1234 intr_info "
                           "0x00000000 error_code 0x00000000\n"
                           " 1.000012: kvm_entry: vcpu 0, rip 0x60\n"
                           " 1.000013: kvm_exit: vcpu 0 reason npf rip 0x61 info1 0x0000000100000004 info2 "
                           "0x00000000000a1ff0 intr_info "
                           "0x00000000 error_code 0x00000000\n"
                           " 1.000014: kvm_entry: vcpu 0, rip 0x61\n"
                           " 1.000015: kvm_exit: vcpu 0 reason wbinvd rip 0x70" +
                           kvm_exit_tail +
                           " 1.000016: kvm_entry: vcpu 0, rip 0x72\n"
                           " 1.000017: kvm_exit: vcpu 0 reason interrupt rip 0x80" +
                           kvm_exit_tail + " 1.000018: kvm_entry: vcpu 0, rip 0x80\n";
  const ImportResult result = import_text(text);
  const ReplayVcpu& vcpu = result.workload.vcpus.at(0);
  CHECK(summary(vcpu) ==
        "rdmsr 1b@10; out 11=7@20; in cfc@30; cpuid d@40; vmmcall b@50; write a1234@60; read a1ff0@61; "
        "opaque 89@70; "
        "host@80; ");
  CHECK(vcpu.items[5].action.size == 4);
  CHECK(vcpu.items[5].action.length == 1);
  CHECK(vcpu.items[7].action.operand[0] == 1);
  CHECK(vcpu.items[9].action.operand[3] == 4);
  CHECK(vcpu.initial.absent_pages == std::vector<std::uint64_t>{0xa1000});
  CHECK(result.report.undecidable.at(
            "npf exits at a page that had faulted before: why it was absent again") == 1);
  CHECK(result.report.undecidable.at("exits that svmsim cannot replay: wbinvd") == 1);
}

TEST_CASE("trace import: IF rules") {
  const std::string ipi = " 1.000001: kvm_exit: vcpu 0 reason msr rip 0x10" + kvm_write_tail +
                          " 1.000001: kvm_apic_ipi: dst 0 vec 65 (Fixed|physical|assert|edge|self)\n"
                          " 1.000001: kvm_apic_accept_irq: apicid 0 vec 65 (Fixed|edge)\n"
                          " 1.000001: kvm_msr: msr_write 830 = 0x44041\n";
  const std::string eoi = " 1.000004: kvm_exit: vcpu 0 reason msr rip 0x90" + kvm_write_tail +
                          " 1.000004: kvm_eoi: apicid 0 vector 65\n"
                          " 1.000004: kvm_msr: msr_write 80b = 0x0\n"
                          " 1.000005: kvm_entry: vcpu 0, rip 0x92\n";
  const std::string inject = " 1.000002: kvm_inj_virq: IRQ 0x41\n";

  SUBCASE("an injection right behind the exit: IF was on from the beginning") {
    const ImportResult r = import_text(ipi + inject + " 1.000003: kvm_entry: vcpu 0, rip 0x12\n" + eoi);
    CHECK(r.workload.vcpus[0].initial.interrupts_enabled);
    CHECK(summary(r.workload.vcpus[0]) == "wrmsr 830=44041@10; interrupt 41@12; wrmsr 80b=0@90; iret; ");
    CHECK(replay_counts(r.workload, false) == Counts{{"msr", 2}});
  }
  SUBCASE(
      "a window without HLT: STI two bytes before, one instruction in its shadow; CLI behind the last proof "
      "of IF") {
    const std::string window =
        " 1.000002: kvm_entry: vcpu 0, rip 0x12\n 1.000002: kvm_exit: vcpu 0 reason vintr rip 0x32" +
        kvm_exit_tail + inject + " 1.000003: kvm_entry: vcpu 0, rip 0x32\n";
    const ImportResult r = import_text(ipi + window + eoi + ipi + window + eoi);
    CHECK_FALSE(r.workload.vcpus[0].initial.interrupts_enabled);
    CHECK(summary(r.workload.vcpus[0]) ==
          "wrmsr 830=44041@10; sti@30; nop@31; interrupt 41@32; wrmsr 80b=0@90; iret; cli@32; wrmsr "
          "830=44041@10; "
          "sti@30; nop@31; interrupt 41@32; wrmsr 80b=0@90; iret; ");
    CHECK(replay_counts(r.workload, false) == Counts{{"msr", 4}, {"vintr", 2}});
  }
  SUBCASE("IF off in the handler, and the window opens with its IRET") {
    const std::string again = " 1.000005: kvm_exit: vcpu 0 reason vintr rip 0x32" + kvm_exit_tail + inject +
                              " 1.000006: kvm_entry: vcpu 0, rip 0x32\n";
    const std::string in_handler = " 1.000003: kvm_exit: vcpu 0 reason msr rip 0x80" + kvm_write_tail +
                                   " 1.000003: kvm_apic_ipi: dst 0 vec 65 (Fixed|physical|assert|edge|self)\n"
                                   " 1.000003: kvm_apic_accept_irq: apicid 0 vec 65 (Fixed|edge)\n"
                                   " 1.000003: kvm_msr: msr_write 830 = 0x44041\n"
                                   " 1.000003: kvm_entry: vcpu 0, rip 0x82\n";
    const ImportResult r = import_text(ipi +
                                       " 1.000002: kvm_entry: vcpu 0, rip 0x12\n"
                                       " 1.000002: kvm_exit: vcpu 0 reason vintr rip 0x32" +
                                       kvm_exit_tail + inject + " 1.000003: kvm_entry: vcpu 0, rip 0x32\n" +
                                       in_handler + eoi + again + eoi);
    CHECK(summary(r.workload.vcpus[0]) ==
          "wrmsr 830=44041@10; sti@30; nop@31; interrupt 41@32; wrmsr 830=44041@80; wrmsr 80b=0@90; iret; "
          "interrupt 41@32; wrmsr 80b=0@90; iret; ");
    CHECK(replay_counts(r.workload, false) == Counts{{"msr", 4}, {"vintr", 2}});
  }
  SUBCASE("HLT runs in the shadow of STI, also when it blocks and the interrupt is injected at its wake-up") {
    const ImportResult r =
        import_text(" 1.000001: kvm_exit: vcpu 0 reason hlt rip 0x50" + kvm_exit_tail +
                    " 1.000900: kvm_inj_virq: IRQ 0xec\n 1.000901: kvm_entry: vcpu 0, rip 0x51\n" +
                    " 1.000904: kvm_exit: vcpu 0 reason msr rip 0x90" + kvm_write_tail +
                    " 1.000904: kvm_eoi: apicid 0 vector 236\n 1.000904: kvm_msr: msr_write 80b = 0x0\n"
                    " 1.000905: kvm_entry: vcpu 0, rip 0x92\n"
                    " 1.000906: kvm_exit: vcpu 0 reason msr rip 0x40" +
                    kvm_write_tail +
                    " 1.000906: kvm_msr: msr_write 6e0 = 0x1234\n 1.000907: kvm_entry: vcpu 0, rip 0x42\n"
                    " 1.000908: kvm_exit: vcpu 0 reason hlt rip 0x50" +
                    kvm_exit_tail);
    CHECK(
        summary(r.workload.vcpus[0]) ==
        "sti@4f; hlt@50; interrupt ec@51; wrmsr 80b=0@90; iret; cli@51; wrmsr 6e0=1234@40; sti@4f; hlt@50; ");
    CHECK(r.report.causes == Counts{{"unknown", 1}});
    CHECK(replay_counts(r.workload, false) == Counts{{"hlt", 2}, {"msr", 2}});
  }
  SUBCASE("a host interrupt behind HLT does not hide that the window was open") {
    const ImportResult r = import_text(
        ipi + " 1.000002: kvm_entry: vcpu 0, rip 0x12\n 1.000002: kvm_exit: vcpu 0 reason hlt rip 0x31" +
        kvm_exit_tail +
        " 1.000002: kvm_entry: vcpu 0, rip 0x32\n 1.000002: kvm_exit: vcpu 0 reason interrupt rip 0x32" +
        kvm_exit_tail +
        " 1.000002: kvm_entry: vcpu 0, rip 0x32\n 1.000002: kvm_exit: vcpu 0 reason vintr rip 0x32" +
        kvm_exit_tail + inject + " 1.000003: kvm_entry: vcpu 0, rip 0x32\n" + eoi);
    CHECK(summary(r.workload.vcpus[0]) ==
          "wrmsr 830=44041@10; sti@30; hlt@31; host@32; interrupt 41@32; wrmsr 80b=0@90; iret; ");
  }
  SUBCASE("CLI stands behind the last proof of IF, not before the action that shows it is off") {
    const std::string cpuid = " 1.000006: kvm_exit: vcpu 0 reason cpuid rip 0x20" + kvm_exit_tail +
                              " 1.000006: kvm_entry: vcpu 0, rip 0x22\n";
    const std::string halt =
        " 1.000002: kvm_entry: vcpu 0, rip 0x12\n 1.000002: kvm_exit: vcpu 0 reason hlt rip 0x31" +
        kvm_exit_tail + " 1.000002: kvm_entry: vcpu 0, rip 0x32\n";
    const std::string window = " 1.000002: kvm_exit: vcpu 0 reason vintr rip 0x32" + kvm_exit_tail + inject +
                               " 1.000003: kvm_entry: vcpu 0, rip 0x32\n";
    const ImportResult r = import_text(ipi + halt + window + eoi + cpuid + ipi + halt + window + eoi);
    CHECK(summary(r.workload.vcpus[0]) ==
          "wrmsr 830=44041@10; sti@30; hlt@31; interrupt 41@32; wrmsr 80b=0@90; iret; cli@32; cpuid 0@20; "
          "wrmsr 830=44041@10; sti@30; hlt@31; interrupt 41@32; wrmsr 80b=0@90; iret; ");
  }
  SUBCASE("a window that opens further on than behind the HLT is one of its own") {
    const ImportResult r = import_text(
        ipi + " 1.000002: kvm_entry: vcpu 0, rip 0x12\n 1.000002: kvm_exit: vcpu 0 reason hlt rip 0x31" +
        kvm_exit_tail +
        " 1.000002: kvm_entry: vcpu 0, rip 0x32\n 1.000002: kvm_exit: vcpu 0 reason vintr rip 0x40" +
        kvm_exit_tail + inject + " 1.000003: kvm_entry: vcpu 0, rip 0x40\n" + eoi);
    CHECK(summary(r.workload.vcpus[0]) ==
          "wrmsr 830=44041@10; sti@30; hlt@31; cli@32; sti@3e; nop@3f; interrupt 41@40; wrmsr 80b=0@90; "
          "iret; ");
  }
  SUBCASE("a handler that writes its EOI to memory has returned before the exit that shows it") {
    const ImportResult r =
        import_text(ipi + inject +
                    " 1.000003: kvm_entry: vcpu 0, rip 0x12\n"
                    " 1.000004: kvm_exit: vcpu 0 reason cpuid rip 0x60" +
                    kvm_exit_tail +
                    " 1.000004: kvm_pv_eoi: apicid 0 vector 65\n 1.000005: kvm_entry: vcpu 0, rip 0x62\n");
    CHECK(summary(r.workload.vcpus[0]) == "wrmsr 830=44041@10; interrupt 41@12; iret; cpuid 0@60; ");
  }
  SUBCASE("a nested interrupt returns into the handler that it struck behind its EOI") {
    const std::string eoi_and_injection = " 1.000004: kvm_exit: vcpu 0 reason msr rip 0x90" + kvm_write_tail +
                                          " 1.000004: kvm_eoi: apicid 0 vector 65\n"
                                          " 1.000004: kvm_msr: msr_write 80b = 0x0\n" +
                                          inject + " 1.000005: kvm_entry: vcpu 0, rip 0x92\n";
    const ImportResult r =
        import_text(ipi + inject + " 1.000003: kvm_entry: vcpu 0, rip 0x12\n" + eoi_and_injection + eoi);
    CHECK(summary(r.workload.vcpus[0]) ==
          "wrmsr 830=44041@10; interrupt 41@12; sti@90; wrmsr 80b=0@90; interrupt 41@92; wrmsr 80b=0@90; "
          "iret; iret; ");
  }
}

TEST_CASE("trace import: an injection that is preempted or cut short comes again and is one interrupt") {
  const std::string head = " 1.000001: kvm_exit: vcpu 0 reason hlt rip 0x50" + kvm_exit_tail +
                           " 1.000002: kvm_inj_virq: IRQ 0x41\n";
  const std::string cut =
      " 1.000003: kvm_entry: vcpu 0, rip 0x51\n"
      " 1.000004: kvm_exit: vcpu 0 reason npf rip 0x51 info1 0x0000000100000004 info2 0x0000000000006410 "
      "intr_info "
      "0x80000041 error_code 0x00000000\n"
      " 1.000005: kvm_inj_virq: IRQ 0x41 [reinjected]\n 1.000006: kvm_entry: vcpu 0, rip 0x51\n";
  const ImportResult preempted = import_text(
      head + " 1.000002: kvm_inj_virq: IRQ 0x41 [reinjected]\n 1.000003: kvm_entry: vcpu 0, rip 0x51\n");
  CHECK(summary(preempted.workload.vcpus[0]) == "sti@4f; hlt@50; interrupt 41@51; iret; ");
  const ImportResult result = import_text(head + cut);
  CHECK(summary(result.workload.vcpus[0]) == "sti@4f; hlt@50; interrupt 41@51; iret; ");
  // 0x6410 = 16 * 41h into a table at 0x6000: the IDT, not the GDT.
  CHECK(result.workload.vcpus[0].initial.idt_base == 0x6000);
  CHECK(result.workload.vcpus[0].initial.absent_pages == std::vector<std::uint64_t>{0x6000});

  // 5.18 and older do not print [reinjected]: EXITINTINFO says it.
  const ImportResult old = import_text(" 1.000001: kvm_exit: vcpu 0 reason hlt rip 0x50" + kvm_exit_tail +
                                       " 1.000002: kvm_inj_virq: irq 65\n"
                                       " 1.000003: kvm_entry: vcpu 0, rip 0x51\n"
                                       " 1.000004: kvm_exit: vcpu 0 reason npf rip 0x51 info1 "
                                       "0x0000000100000004 info2 0x0000000000006410 intr_info "
                                       "0x80000041 error_code 0x00000000\n 1.000005: kvm_inj_virq: irq 65\n "
                                       "1.000006: kvm_entry: vcpu 0, rip 0x51\n");
  CHECK(summary(old.workload.vcpus[0]) == "sti@4f; hlt@50; interrupt 41@51; iret; ");
}

TEST_CASE("trace import: streams by thread, causes across vCPUs, two VMs") {
  const auto on = [](int tid, const std::string& rest) {
    return "           vcpu-" + std::to_string(tid) + " [000]     1.000001: " + rest + "\n";
  };
  const std::string tail = kvm_exit_tail.substr(0, kvm_exit_tail.size() - 1);
  const std::string write_tail = kvm_write_tail.substr(0, kvm_write_tail.size() - 1);
  const ImportResult result = import_text(
      on(11, "kvm_entry: vcpu 1, rip 0x10") + on(10, "kvm_entry: vcpu 0, rip 0x10") +
      on(11, "kvm_exit: vcpu 1 reason hlt rip 0x50" + tail) +
      on(10, "kvm_exit: vcpu 0 reason msr rip 0x10" + write_tail) +
      on(10, "kvm_apic_accept_irq: apicid 1 vec 65 (Fixed|edge)") +
      on(10, "kvm_apic_ipi: dst 1 vec 65 (Fixed|physical|de-assert|edge|dst)") +
      on(10, "kvm_msr: msr_write 830 = 0x100000041") + on(10, "kvm_entry: vcpu 0, rip 0x12") +
      on(11, "kvm_inj_virq: IRQ 0x41") + on(11, "kvm_entry: vcpu 1, rip 0x51") +
      on(99, "kvm_apic_accept_irq: apicid 1 vec 80 (Fixed|edge)") +
      on(11, "kvm_exit: vcpu 1 reason interrupt rip 0x60" + tail) + on(11, "kvm_inj_virq: IRQ 0x50") +
      on(11, "kvm_entry: vcpu 1, rip 0x60") + on(20, "kvm_entry: vcpu 0, rip 0x10") +
      on(20, "kvm_exit: vcpu 0 reason hlt rip 0x50" + tail));
  REQUIRE(result.workload.vcpus.size() == 3);
  CHECK(result.report.vcpus[0].vm == "vm0");
  CHECK(result.report.vcpus[1].vcpu == 1);
  CHECK(result.report.vcpus[2].vm == "vm1");
  CHECK(result.report.vcpus[1].exits == Counts{{"hlt", 1}, {"interrupt", 1}});
  CHECK(result.report.causes == Counts{{"ipi", 1}, {"unknown", 1}});
  for (const ReplayItem& item : result.workload.vcpus[1].items) {
    if (item.kind != ReplayKind::interrupt || item.vector != 0x41) continue;
    CHECK(item.cause_vcpu == 0);
    CHECK(item.cause_line == 5);
  }
}

TEST_CASE("trace import: report as JSON, foreign ISA, missing window, starts and ends inside an exit") {
  const TraceFile file = read_trace_file(data_path("01-idle-hlt-ipi-trace.txt"));
  const auto json = nlohmann::json::parse(to_json(import_report(file)));
  CHECK(json["format"] == "stripped");
  CHECK(json["isa"] == "svm");
  CHECK(json["lines"] == 27);
  CHECK(json["exits"] == nlohmann::json{{"hlt", 1}, {"msr", 2}, {"vintr", 2}});
  CHECK(json["events"]["kvm_entry"] == 5);
  CHECK(json["causes"] == nlohmann::json{{"self_ipi", 2}});
  CHECK(json["refused"].is_null());
  CHECK(json["captures"].size() == 2);
  CHECK(json["captures"][1]["title"] == "without idle HLT intercept");
  CHECK(json["vcpus"].size() == 2);
  CHECK(json["vcpus"][0]["exits"]["vintr"] == 1);
  CHECK(json["unknown"].empty());
  CHECK(json["problems"].empty());
  CHECK(json["kernel"]["generation"] == "6.12");
  CHECK(to_text(import_report(file)).find("         2  vintr") != std::string::npos);
  CHECK(to_json(import_report(file)) == to_json(import_report(file)));

  const ImportResult vmx =
      import_text("kvm_entry: vcpu 0, rip 0x1\nkvm_exit: reason EPT_VIOLATION rip 0x5 info 683 800000d1\n");
  CHECK(vmx.report.isa == "vmx");
  CHECK_FALSE(vmx.report.refused.has_value());
  REQUIRE(vmx.report.no_workload.has_value());
  CHECK(vmx.report.exits == Counts{{"EPT_VIOLATION", 1}});
  CHECK(vmx.workload.vcpus.empty());

  const ImportResult no_vcpu = import_text("kvm_eoi: apicid 0 vector 65\n");
  CHECK(no_vcpu.report.no_workload.has_value());

  CHECK_THROWS_AS((void)import_capture(file.captures[0], barrier_window()), UserError);
  CHECK_THROWS_AS((void)EventPattern::parse("kvm_pio"), UserError);
}
