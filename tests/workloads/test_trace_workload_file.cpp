#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "workloads/trace/ftrace_reader.hpp"
#include "workloads/trace/import.hpp"
#include "workloads/trace/replay_source.hpp"
#include "workloads/trace/workload_file.hpp"

using namespace svmsim;
using namespace svmsim::workloads;
using svm::ActionKind;

namespace {

std::string data_path(const std::string& name) {
  return std::string{SVMSIM_SOURCE_DIR} + "/tests/data/" + name;
}

std::string written(const ReplayWorkload& workload) {
  std::ostringstream out;
  write_workload(out, workload);
  return out.str();
}

ReplayWorkload read_back(const std::string& text) {
  std::istringstream in(text);
  return read_workload(in, "w.txt");
}

bool same(const ReplayItem& a, const ReplayItem& b) {
  const auto fields = [](const ReplayItem& i) {
    return std::tuple(i.kind, i.flags, i.vector, i.cause, i.cause_vcpu, i.cause_line, i.line, i.exit_code,
                      i.action.kind, i.action.length, i.action.cpl, i.action.size, i.action.number,
                      i.action.rip, i.action.cycles, i.action.operand);
  };
  return fields(a) == fields(b);
}

bool same(const ReplayWorkload& a, const ReplayWorkload& b) {
  if (a.source != b.source || a.title != b.title || a.kernel != b.kernel || a.tsc_hz != b.tsc_hz ||
      a.time_base != b.time_base || a.vcpus.size() != b.vcpus.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.vcpus.size(); ++i) {
    const ReplayVcpu& x = a.vcpus[i];
    const ReplayVcpu& y = b.vcpus[i];
    if (x.vm != y.vm || x.vcpu != y.vcpu || x.handler_entry != y.handler_entry ||
        x.items.size() != y.items.size() || x.initial.rip != y.initial.rip ||
        x.initial.interrupts_enabled != y.initial.interrupts_enabled ||
        x.initial.gdt_base != y.initial.gdt_base || x.initial.idt_base != y.initial.idt_base ||
        x.initial.code_selector != y.initial.code_selector ||
        x.initial.absent_pages != y.initial.absent_pages) {
      return false;
    }
    for (std::size_t k = 0; k < x.items.size(); ++k) {
      if (!same(x.items[k], y.items[k])) return false;
    }
  }
  return true;
}

const std::string head = "svmsim-workload 1\nkernel 6.12\ntsc_hz 1000000000\ntime nanoseconds\n";

std::vector<Problem> problems_of(const std::string& text) {
  try {
    (void)read_back(text);
  } catch (const TraceError& error) {
    return error.problems();
  }
  return {};
}

}  // namespace

TEST_CASE("trace workload file: imports survive a round trip exactly") {
  for (const char* const name :
       {"01-idle-hlt-ipi-trace.txt", "kvm-6.12-a1-excerpt.txt", "kvm-6.1-a2-excerpt.txt"}) {
    CAPTURE(name);
    const TraceFile file = read_trace_file(data_path(name));
    for (const Capture& capture : file.captures) {
      ReplayWorkload workload = import_capture(capture).workload;
      const std::string text = written(workload);
      const ReplayWorkload back = read_back(text);
      CHECK(same(workload, back));
      CHECK(written(back) == text);
    }
  }
}

TEST_CASE("trace workload file: what it looks like") {
  const TraceFile file = read_trace_file(data_path("01-idle-hlt-ipi-trace.txt"));
  ReplayWorkload workload = import_capture(file.captures.at(1)).workload;
  workload.source = "01.txt";
  CHECK(written(workload) ==
        "svmsim-workload 1\n"
        "source 01.txt\n"
        "title without idle HLT intercept\n"
        "kernel 6.12\n"
        "tsc_hz 1000000000\n"
        "time microseconds\n"
        "idle_hlt no\n"
        "vcpu 0 0\n"
        "initial rip=0x406a87 if=0 gdt=0x0 idt=0x0 cs=8\n"
        "handler 0xb0 0x406a74\n"
        "wrmsr 0x830 0xb0000440b0 rip=0x406a87 line=15 partial\n"
        "compute 1000\n"
        "sti rip=0x4004ac inferred\n"
        "hlt rip=0x4004ad line=20\n"
        "interrupt 0xb0 rip=0x4004ae cause=self_ipi accepted=16 source=15 line=23\n"
        "  compute 1000\n"
        "  wrmsr 0x80b 0x0 rip=0x406a74 line=25 open_end\n"
        "  iret inferred\n"
        "end\n");
}

TEST_CASE("trace workload file: comments, indentation and decimal numbers are free; rIPs chain") {
  const ReplayWorkload workload = read_back(head +
                                            "# edited by hand\n"
                                            "vcpu 0 3\n"
                                            "initial rip=4096 if=1   # decimal is fine\n"
                                            "   compute 10\n"
                                            "\tcpuid 1 0 rip=0x2000 len=3\n"
                                            "compute 5\n"
                                            "end\n");
  const ReplayVcpu& vcpu = workload.vcpus.at(0);
  CHECK(vcpu.vcpu == 3);
  CHECK(vcpu.initial.interrupts_enabled);
  REQUIRE(vcpu.items.size() == 3);
  CHECK(vcpu.items[0].action.rip == 4096);
  CHECK(vcpu.items[1].action.length == 3);
  CHECK(vcpu.items[2].action.rip == 0x2003);
}

TEST_CASE("trace workload file: all problems at once, with line and nearest word") {
  const std::vector<Problem> problems = problems_of(
      "svmsim-workload 1\nkernel 7\ntsc_hz 0\nvcpu 0 0\ncompute banana\nwrmrs 0x10 1 rip=0x1\nwrmsr 0x10 1 "
      "ripp=0x1\n"
      "hlt rip=0x1 len=16\ninterrupt 0x100 rip=1\nopaque 0x89\ninterrupt 0x41 rip=0x1 cause=aliens\nout "
      "0x11\nend\n");
  REQUIRE(problems.size() == 11);
  CHECK(problems[0].text() == "w.txt:2: kernel: must be 6.1, 6.12 or 6.18");
  CHECK(problems[1].line == 3);
  CHECK(problems[2].text() == "w.txt:5: compute: \"banana\" is no number");
  CHECK(problems[3].nearest == "wrmsr");
  CHECK(problems[3].line == 6);
  CHECK(problems[4].nearest == "rip");
  CHECK(problems[5].text() == "w.txt:8: len: 16 is above 15");
  CHECK(problems[6].line == 9);
  CHECK(problems[7].message == "rip= is missing");
  CHECK(problems[8].message ==
        "must be unknown, self_ipi, ipi, lapic_timer, device_line, device_msi or host");
  CHECK(problems[9].message == "argument 2 is missing");
  CHECK(problems[10].line == 13);

  CHECK(problems_of("svmsim-workload 2\n").at(0).message == "only version 1 of the format is known");
  CHECK(problems_of("hello\n").at(0).line == 1);
  CHECK(problems_of("").size() == 1);
  CHECK(problems_of(head + "vcpu 0 0\nhlt rip=0x1\n").at(0).message == "the file ends inside a vCPU");
  CHECK(problems_of(head + "vcpu 0 0\ninterrupt 1 rip=0x1\nend\n").at(0).message ==
        "an interrupt of this vCPU has no iret");
}

TEST_CASE("trace workload file: any workload survives a round trip") {
  CHECK(rc::check("workload file round trip", [] {
    ReplayWorkload workload;
    workload.kernel =
        *rc::gen::element(KernelGeneration::v6_1, KernelGeneration::v6_12, KernelGeneration::v6_18);
    workload.tsc_hz = *rc::gen::inRange<std::uint64_t>(1, 5'000'000'000);
    workload.time_base = *rc::gen::element(TimeBase::none, TimeBase::microseconds, TimeBase::counter);
    ReplayVcpu& vcpu = workload.vcpus.emplace_back();
    vcpu.initial.rip = *rc::gen::arbitrary<std::uint64_t>();
    const int count = *rc::gen::inRange(0, 30);
    int depth = 0;
    for (int i = 0; i < count; ++i) {
      ReplayItem item;
      item.kind = *rc::gen::element(ReplayKind::action, ReplayKind::action, ReplayKind::interrupt,
                                    ReplayKind::host_interrupt, ReplayKind::opaque);
      item.line = *rc::gen::arbitrary<std::uint32_t>();
      item.flags = static_cast<std::uint8_t>(*rc::gen::arbitrary<std::uint8_t>() & 0x7f);
      item.action.rip = *rc::gen::arbitrary<std::uint64_t>();
      if (item.kind == ReplayKind::action) {
        item.action.kind = static_cast<ActionKind>(*rc::gen::inRange(0, 18));
        if (item.action.kind == ActionKind::iret && depth == 0) item.action.kind = ActionKind::nop;
        if (item.action.kind == ActionKind::iret) --depth;
        item.action.length = *rc::gen::inRange<std::uint8_t>(0, 16);
        item.action.cpl = *rc::gen::inRange<std::uint8_t>(0, 4);
        item.action.cycles = *rc::gen::arbitrary<std::uint64_t>();
        if (item.action.kind == ActionKind::wrmsr || item.action.kind == ActionKind::in) {
          item.action.number = *rc::gen::arbitrary<std::uint32_t>();
        }
        if (item.action.kind == ActionKind::wrmsr)
          item.action.operand[0] = *rc::gen::arbitrary<std::uint64_t>();
      } else if (item.kind == ReplayKind::interrupt) {
        item.vector = *rc::gen::arbitrary<std::uint8_t>();
        item.cause = InterruptCause::ipi;
        item.cause_vcpu = *rc::gen::inRange(0, 100);
        ++depth;
      } else {
        item.exit_code = *rc::gen::arbitrary<std::uint64_t>();
      }
      vcpu.items.push_back(item);
    }
    for (; depth > 0; --depth) {
      ReplayItem iret;
      iret.action.kind = ActionKind::iret;
      iret.flags = replay_flag::chained;
      vcpu.items.push_back(iret);
    }
    chain_rips(vcpu);
    const std::string text = written(workload);
    RC_ASSERT(same(workload, read_back(text)));
  }));
}

TEST_CASE("trace workload file: on disk, and told from a trace") {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "svmsim_workload_test.txt";
  const TraceFile file = read_trace_file(data_path("01-idle-hlt-ipi-trace.txt"));
  const ReplayWorkload workload = import_capture(file.captures.at(1)).workload;
  write_workload_file(path.string(), workload);
  CHECK(is_workload_file(path.string()));
  CHECK_FALSE(is_workload_file(data_path("01-idle-hlt-ipi-trace.txt")));
  CHECK(same(workload, read_workload_file(path.string())));
  std::filesystem::remove(path);
  CHECK_THROWS_AS((void)read_workload_file(path.string()), TraceError);
  CHECK_THROWS_AS(write_workload_file("/no/such/directory/w", workload), TraceError);
}

TEST_CASE("trace replay source: handlers run in the order of their vector, wherever the interrupt arrives") {
  const ReplayWorkload workload =
      read_back(head +
                "vcpu 0 0\ninitial rip=0x1000 if=1\nhandler 0x41 0x9000\nhandler 0x50 0xa000\n"
                "cpuid 0 0 rip=0x1000\n"
                "interrupt 0x41 rip=0x1002\n  wrmsr 0x80b 0 rip=0x9000\n  iret\n"
                "compute 7\n"
                "host 0x60 rip=0x1003\n"
                "interrupt 0x50 rip=0x1003\n  compute 3\n  interrupt 0x41 rip=0xa000 cause=self_ipi\n"
                "    rdmsr 0x10 rip=0x9000\n    iret\n  iret\n"
                "cpuid 1 0 rip=0x1004\n"
                "end\n");
  ReplaySource source(workload, 0, 2'000'000'000);
  CHECK(source.kernel() == KernelGeneration::v6_12);
  CHECK_FALSE(source.first_is_partial());
  CHECK(source.handler_entry(0x41) == 0x9000);
  REQUIRE(source.current() != nullptr);
  CHECK(source.current()->kind == ActionKind::cpuid);
  // Early: the first handler of 0x41, then back to the same action.
  source.interrupt(0x41, 0);
  CHECK(source.current()->kind == ActionKind::wrmsr);
  source.retire(0, 0);
  CHECK(source.current()->kind == ActionKind::iret);
  source.retire(0, 0);
  CHECK(source.current()->kind == ActionKind::cpuid);
  CHECK(source.current()->number == 0);
  source.retire(0, 0);
  // The first 0x41 has no known cause, so a driver may be asked to send it; then the second is nested in
  // 0x50.
  CHECK(source.take_external_interrupt() == std::uint8_t{0x41});
  CHECK_FALSE(source.take_external_interrupt().has_value());
  CHECK(source.current()->kind == ActionKind::compute);
  source.retire(0, 0);
  CHECK(source.current()->cycles == 14);  // twice the frequency
  source.retire(0, 0);
  CHECK_FALSE(source.take_external_interrupt().has_value());  // the host interrupt stands before it
  CHECK(source.take_host_interrupt());
  CHECK_FALSE(source.take_host_interrupt());
  CHECK(source.take_external_interrupt() == std::uint8_t{0x50});
  source.interrupt(0x50, 0);
  CHECK(source.current()->cycles == 6);
  source.interrupt(0x41, 0);
  CHECK(source.current()->kind == ActionKind::rdmsr);
  source.retire(0, 0);
  source.retire(0, 0);
  CHECK(source.current()->kind == ActionKind::compute);
  source.retire(0, 0);
  CHECK(source.current()->kind == ActionKind::iret);
  source.retire(0, 0);
  source.retire(0, 0);
  CHECK(source.current()->number == 1);
  // A third 0x41 repeats the last handler; a vector without one is reported.
  source.interrupt(0x41, 0);
  CHECK(source.current()->kind == ActionKind::rdmsr);
  source.retire(0, 0);
  source.retire(0, 0);
  CHECK(source.failure().empty());
  source.interrupt(0x99, 0);
  CHECK(source.current()->kind == ActionKind::iret);
  source.retire(0, 0);
  CHECK(source.failure() == "interrupt 0x99 arrived, of which the recording has no handler");
  CHECK(source.current()->number == 1);
  source.retire(0, 0);
  CHECK(source.current() == nullptr);
  CHECK_FALSE(source.take_host_interrupt());
  CHECK_THROWS_AS((void)make_replay(workload, 1), UserError);
}
