#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <boost/iostreams/device/file.hpp>
#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <doctest/doctest.h>

#include "svm/exit_code.hpp"
#include "workloads/trace/avic_payload.hpp"
#include "workloads/trace/ftrace_reader.hpp"
#include "workloads/trace/ftrace_writer.hpp"
#include "workloads/trace/line_parser.hpp"

using namespace svmsim;
using namespace svmsim::workloads;

namespace {

std::string data_path(const std::string& name) {
  return std::string{SVMSIM_SOURCE_DIR} + "/tests/data/" + name;
}

TraceFile read_text(const std::string& text, const ReadOptions& options = {}) {
  std::istringstream in(text);
  return read_trace(in, "t.txt", options);
}

TraceEvent one_event(const std::string& line) {
  const TraceFile file = read_text(line + "\n");
  REQUIRE(file.captures.size() == 1);
  REQUIRE(file.captures[0].problems.empty());
  REQUIRE(file.captures[0].events.size() == 1);
  return file.captures[0].events[0];
}

std::string trim_right(std::string text) {
  while (!text.empty() && text.back() == ' ')
    text.pop_back();
  return text;
}

/// Every known event of a file, written again, is the text that was read.
std::size_t check_round_trip(const std::string& path, KernelGeneration kernel) {
  const TraceFile file = read_trace_file(path);
  std::vector<std::string> lines(1);
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  std::size_t checked = 0;
  for (const Capture& capture : file.captures) {
    CHECK(capture.problem_count == 0);
    for (std::size_t i = 0; i < capture.events.size(); ++i) {
      const TraceEvent& event = capture.events[i];
      if (event.kind == EventKind::other) continue;
      const std::string& line = lines.at(capture.lines[i]);
      const ParsedLine parsed = parse_line(line);
      CHECK(parsed.event == event_name(event.kind));
      CHECK(trim_right(event_text(event, kernel, &capture.threads)) == parsed.text);
      ++checked;
    }
  }
  return checked;
}

}  // namespace

TEST_CASE("trace events: kernel names map both ways") {
  CHECK(event_name(EventKind::kvm_entry) == "kvm_entry");
  CHECK(event_kind_of("kvm_apicv_accept_irq") == EventKind::kvm_apicv_accept_irq);
  CHECK(event_kind_of("sched_wakeup") == EventKind::sched_wakeup);
  CHECK_FALSE(event_kind_of("kvm_track_tsc").has_value());
  CHECK_FALSE(event_kind_of("other").has_value());
  for (unsigned i = 0; i < static_cast<unsigned>(EventKind::other); ++i) {
    const auto kind = static_cast<EventKind>(i);
    CHECK(event_kind_of(event_name(kind)) == kind);
  }
}

TEST_CASE("trace text: AVIC's events, written as the kernel prints them and read back") {
  struct Row {
    EventKind kind;
    std::int32_t vcpu;
    std::array<std::uint64_t, 8> field;
    const char* text;
  };
  const std::vector<Row> rows{
      {EventKind::kvm_apicv_inhibit_changed, -1, {9, 1, 0x200, 1}, "set reason=9, inhibits=0x200 PIT_REINJ"},
      {EventKind::kvm_apicv_inhibit_changed, -1, {8, 0, 0}, "cleared reason=8, inhibits=0x0"},
      {EventKind::kvm_apicv_inhibit_changed,
       -1,
       {8, 1, 0x4302, 1},
       "set reason=8, inhibits=0x4302 HYPERV|IRQWIN|PIT_REINJ|0x4000"},
      {EventKind::kvm_avic_incomplete_ipi,
       3,
       {0x1, 0x40fd, 1, 1},
       "vcpu=3, icrh:icrl=0x00000001:000040fd, id=1, index=1"},
      {EventKind::kvm_avic_unaccelerated_access,
       0,
       {0xb0, 1, 1, 0x31},
       "vcpu=0, offset=0xb0(APIC_EOI), trap, write, vec=0x31"},
      {EventKind::kvm_avic_unaccelerated_access,
       0,
       {0x390, 0, 0, 0},
       "vcpu=0, offset=0x390(APIC_TMCCT), fault, read, vec=0x0"},
      {EventKind::kvm_avic_ga_log, -1, {7, 2}, "vmid=7, vcpuid=2"},
      {EventKind::kvm_avic_kick_vcpu_slowpath,
       -1,
       {0xff000000, 0x440b0, 3},
       "icrh:icrl=0xff000000:000440b0, index=3"},
      {EventKind::kvm_avic_kick_vcpu_slowpath, -1, {0, 0xc00fd, 0}, "icrh:icrl=0x000000:000c00fd, index=0"},
      {EventKind::kvm_avic_doorbell, -1, {1, 64}, "vcpuid=1, apicid=64"},
  };
  for (const Row& row : rows) {
    TraceEvent event;
    event.kind = row.kind;
    event.vcpu = row.vcpu;
    event.field = row.field;
    CHECK(event_text(event, KernelGeneration::v6_12) == row.text);
    TraceEvent read;
    read.kind = row.kind;
    CHECK(payload::parse_avic(row.text, read));
    CHECK(read.field == row.field);
    CHECK(read.vcpu == row.vcpu);
    // Cut short it is refused, but for the names, which follow from the number.
    const std::string text = row.text;
    for (std::size_t length = 0; length < text.find_last_of("=") + 1; ++length)
      CHECK_FALSE(payload::parse_avic(text.substr(0, length), read));
  }
  TraceEvent inhibit;
  inhibit.kind = EventKind::kvm_apicv_inhibit_changed;
  inhibit.field = {9, 1, 0x200};
  CHECK(event_text(inhibit, KernelGeneration::v6_1) == "set reason=9, inhibits=0x200");
  TraceEvent newer;
  newer.kind = EventKind::kvm_avic_ga_log;
  CHECK(payload::parse_avic("vmid=7, vcpuindex=2", newer));
  CHECK(newer.field[1] == 2);
}

TEST_CASE("trace writer: texts of the kernel generations") {
  TraceEvent entry;
  entry.kind = EventKind::kvm_entry;
  entry.vcpu = 0;
  entry.field = {0x406a89, 0x0000000080000041};
  CHECK(event_text(entry, KernelGeneration::v6_1) == "vcpu 0, rip 0x406a89");
  CHECK(event_text(entry, KernelGeneration::v6_12) == "vcpu 0, rip 0x406a89");
  CHECK(event_text(entry, KernelGeneration::v6_18) ==
        "vcpu 0, rip 0x406a89 intr_info 0x80000041 error_code 0x00000000");
  entry.field[2] = 1;
  CHECK(event_text(entry, KernelGeneration::v6_12) == "vcpu 0, rip 0x406a89[immediate exit]");

  TraceEvent exit;
  exit.kind = EventKind::kvm_exit;
  exit.vcpu = 3;
  exit.field = {svm::exit_code::idle_hlt, 0x1009c3, 1, 2, 0x0000000500000041, 0x4000};
  CHECK(event_text(exit, KernelGeneration::v6_12) ==
        "vcpu 3 reason idle-halt rip 0x1009c3 info1 0x0000000000000001 info2 0x0000000000000002 intr_info "
        "0x00000041 "
        "error_code 0x00000005");
  CHECK(event_text(exit, KernelGeneration::v6_18) ==
        "vcpu 3 reason idle-halt rip 0x1009c3 info1 0x0000000000000001 info2 0x0000000000000002 intr_info "
        "0x00000041 "
        "error_code 0x00000005 requests 0x0000000000004000");

  TraceEvent eoi;
  eoi.kind = EventKind::kvm_eoi;
  eoi.field = {0, UINT64_MAX};
  CHECK(event_text(eoi, KernelGeneration::v6_12) == "apicid 0 vector -1");

  TraceEvent user;
  user.kind = EventKind::kvm_userspace_exit;
  user.field = {2, 0};
  CHECK(event_text(user, KernelGeneration::v6_12) == "reason KVM_EXIT_IO (2)");
  user.field = {0, 4};
  CHECK(event_text(user, KernelGeneration::v6_12) == "reason restart (4)");
  user.field = {0, 14};
  CHECK(event_text(user, KernelGeneration::v6_12) == "reason error (14)");
}

TEST_CASE("trace writer: the lines of real captures, written from what was read") {
  CHECK(check_round_trip(data_path("01-idle-hlt-ipi-trace.txt"), KernelGeneration::v6_12) == 24);
  CHECK(check_round_trip(data_path("kvm-6.12-a1-excerpt.txt"), KernelGeneration::v6_12) > 160);
  CHECK(check_round_trip(data_path("kvm-6.1-a2-excerpt.txt"), KernelGeneration::v6_1) > 150);
}

TEST_CASE("trace writer: prefix, header, rounding") {
  std::ostringstream out;
  {
    FtraceWriter writer(out, KernelGeneration::v6_12, 2'000'000'000);
    writer.threads().set(182, "vcpu0");
    TraceEvent entry;
    entry.kind = EventKind::kvm_entry;
    entry.time = 2'000'000'999;  // 1 s and 499.5 ns: half up to 500 ns, which is half up to 1 us
    entry.cpu = 2;
    entry.tid = 182;
    entry.vcpu = 0;
    entry.field = {0x4004ae};
    writer.write(entry);
    entry.tid = 7;
    entry.time = 998;
    writer.write(entry);
    entry.tid = -1;
    entry.cpu = -1;
    writer.write_other(entry, "kvm_track_tsc", "vcpu_id 0");
  }
  const std::string text = out.str();
  CHECK(text.rfind("# tracer: nop\n#\n", 0) == 0);
  CHECK(text.find("\n           vcpu0-182     [002] d....     1.000001: kvm_entry: vcpu 0, rip 0x4004ae\n") !=
        std::string::npos);
  CHECK(text.find("\n           <...>-7       [002] d....     0.000000: kvm_entry: vcpu 0, rip 0x4004ae\n") !=
        std::string::npos);
  CHECK(text.find("\n     0.000000: kvm_track_tsc: vcpu_id 0\n") != std::string::npos);

  CHECK(tsc_to_ns(5, 2'000'000'000) == 3);
  CHECK(tsc_to_ns(4, 2'000'000'000) == 2);
  CHECK(tsc_to_ns(0xffff'ffff'ffff, 4'000'000'000) == 70368744177664);

  std::ostringstream nine;
  {
    FtraceWriter writer(nine, KernelGeneration::v6_12, 1'000'000'000, 9);
    TraceEvent idle;
    idle.kind = EventKind::cpu_idle;
    idle.cpu = 1;
    idle.tid = 0;
    idle.time = 5677250697;
    idle.field = {4294967295, 1};
    writer.write(idle);
  }
  CHECK(nine.str().find(
            "          <idle>-0       [001] .....     5.677250697: cpu_idle: state=4294967295 cpu_id=1\n") !=
        std::string::npos);
}

TEST_CASE("trace reader: number bases of the same vector") {
  const TraceEvent ipi =
      one_event(" 220.696238: kvm_apic_ipi: dst b0 vec 176 (Fixed|physical|assert|edge|self)");
  CHECK(ipi.field[1] == 0xb0);
  CHECK(ipi.field[0] == 0x440b0);
  const TraceEvent accept = one_event(" 220.696238: kvm_apic_accept_irq: apicid 1f vec 176 (LowPrio|level)");
  CHECK(accept.field[0] == 0x1f);
  CHECK(accept.field[1] == 1);
  CHECK(accept.field[2] == 1);
  CHECK(accept.field[3] == 0xb0);
  CHECK(one_event(" 220.696239: kvm_inj_virq: IRQ 0xb0").field[0] == 0xb0);
  const TraceEvent old = one_event(" 220.696239: kvm_inj_virq: irq 176");
  CHECK(old.field[0] == 0xb0);
  CHECK_FALSE(old.has_field(2));
  const TraceEvent soft = one_event(" 220.696239: kvm_inj_virq: Soft/INTn 0x20 [reinjected]");
  CHECK(soft.field == std::array<std::uint64_t, 8>{0x20, 1, 1});
  CHECK(one_event(" 220.696240: kvm_eoi: apicid 10 vector 176").field ==
        std::array<std::uint64_t, 8>{0x10, 176});
  CHECK(one_event(" 1.000000: kvm_msr: msr_write 830 = 0xb0000440b0 (#GP)").field ==
        std::array<std::uint64_t, 8>{1, 0x830, 0xb0000440b0, 1});
}

TEST_CASE("trace reader: prefix forms") {
  const std::string payload = "vcpu 0, rip 0x4004ae";
  struct Form {
    std::string line;
    std::int32_t tid;
    std::int32_t cpu;
    std::uint64_t time;
    std::string comm;
  };
  const std::vector<Form> forms{
      {"           vcpu0-182     [002] d....     1.000001: kvm_entry: " + payload, 182, 2, 1000001000,
       "vcpu0"},
      {"           vcpu0-182     [002] d..1  1.000001: kvm_entry: " + payload, 182, 2, 1000001000, "vcpu0"},
      {"       CPU 0/KVM-4201  [003]     5.677242900: kvm_entry:            " + payload, 4201, 3, 5677242900,
       "CPU 0/KVM"},
      {"  a-1 b[2]-77  [001] 5.5: kvm_entry: " + payload, 77, 1, 5500000000, "a-1 b[2]"},
      {"            bash-1977  ( 1970) [000] .... 17284.993652: kvm_entry: " + payload, 1977, 0,
       17284993652000, "bash"},
      {"> >   dirty_log_test-29003 [001] 184503.384328: kvm_entry:   " + payload, 29003, 1, 184503384328000,
       "dirty_log_test"},
      {" dbs_load_kernel 426566 [004] 108229.766087: kvm:kvm_entry: " + payload, 426566, 4, 108229766087000,
       "dbs_load_kernel"},
      {" CPU 1/KVM 42/43 [004] 108229.766087: kvm:kvm_entry: " + payload, 43, 4, 108229766087000,
       "CPU 1/KVM"},
      {" 220.696238: kvm_entry: " + payload, -1, -1, 220696238000, ""},
      {"kvm_entry            " + payload, -1, -1, 0, ""},
      {"  kvm_entry:            " + payload, -1, -1, 0, ""},
      {"           vcpu0-182     [002] d....  123456789012: kvm_entry: " + payload, 182, 2, 123456789012,
       "vcpu0"},
      {"           vcpu0-182     [002] kvm_entry: " + payload, 182, 2, 0, "vcpu0"},
  };
  for (const Form& form : forms) {
    CAPTURE(form.line);
    for (const char* end : {"", "\r"}) {
      const TraceFile file = read_text(form.line + end + "\n");
      const Capture& capture = file.captures.at(0);
      REQUIRE(capture.events.size() == 1);
      const TraceEvent& event = capture.events[0];
      CHECK(event.kind == EventKind::kvm_entry);
      CHECK(event.field[0] == 0x4004ae);
      CHECK(event.vcpu == 0);
      CHECK(event.tid == form.tid);
      CHECK(event.cpu == form.cpu);
      CHECK(event.time == form.time);
      if (form.tid >= 0) CHECK(capture.threads.comm(form.tid) == form.comm);
    }
  }
}

TEST_CASE("trace reader: older and newer texts") {
  const TraceEvent bare = one_event(" 1.000000: kvm_entry: vcpu 1");
  CHECK(bare.vcpu == 1);
  CHECK_FALSE(bare.has_field(0));
  CHECK(
      one_event(" 1.000000: kvm_entry: vcpu 1, rip 0x5 intr_info 0x80000041 error_code 0x00000000 [imm exit]")
          .field == std::array<std::uint64_t, 8>{5, 0x80000041, 1});
  CHECK(one_event(" 1.000000: kvm_entry: vcpu 1, rip 0x5[immediate exit]").field[2] == 1);

  const TraceEvent old = one_event(" 1.000000: kvm_exit: reason hlt rip 0x5 info 1f 20");
  CHECK(old.vcpu == -1);
  CHECK(old.field == std::array<std::uint64_t, 8>{svm::exit_code::hlt, 5, 0x1f, 0x20});
  CHECK(old.has_field(2));
  CHECK_FALSE(old.has_field(4));
  const TraceEvent plugin = one_event("kvm_exit:             reason EXIT_IOIO rip 0x7ffbb280 info 0 0");
  CHECK(plugin.field[0] == svm::exit_code::ioio);
  CHECK(one_event("kvm_exit: reason UNKNOWN (166) rip 0x5 info 0 0").field[0] == svm::exit_code::idle_hlt);
  CHECK(one_event("kvm_exit: reason 0x8e rip 0x5 info 0 0").field[0] == 0x8e);
  const TraceEvent blank = one_event(
      "kvm_exit: vcpu 2 reason PF excp rip 0x5 info1 0x0000000000000002 info2 0x0000000000001000 intr_info "
      "0x80000041 "
      "error_code 0x00000003 requests 0x0000000000004000 [guest] newkey 7");
  CHECK(blank.field == std::array<std::uint64_t, 8>{svm::exit_code::exception(14), 5, 2, 0x1000,
                                                    0x0000000380000041, 0x4000});
  CHECK(blank.vcpu == 2);

  const TraceFile foreign = read_text("kvm_exit: reason EPT_VIOLATION rip 0x5 info 683 800000d1\n");
  const Capture& capture = foreign.captures[0];
  CHECK(capture.exit_name(capture.events[0].field[0]) == "EPT_VIOLATION");
  CHECK(capture.events[0].field[0] == vmx_exit_base + 48);
  const TraceFile nobody = read_text("kvm_exit: reason WARP_DRIVE rip 0x5 info 683 800000d1\n");
  CHECK(nobody.captures[0].exit_name(nobody.captures[0].events[0].field[0]) == "WARP_DRIVE");
  CHECK(nobody.captures[0].unknown.at("exit reason WARP_DRIVE") == 1);

  const TraceEvent fault = one_event("kvm_page_fault: address 7fc036d000 error_code 582");
  CHECK(fault.field[1] == 0x7fc036d000);
  CHECK_FALSE(fault.has_field(0));
  CHECK(one_event("sched_wakeup: comm=a b pid=8 prio=120 success=1 target_cpu=013").field ==
        std::array<std::uint64_t, 8>{8, 120, 13});
  CHECK(
      one_event("kvm_cpuid: func 0 idx 0 rax d rbx 68747541 rcx 444d4163 rdx 69746e65, cpuid entry not found")
          .field == std::array<std::uint64_t, 8>{0, 0, 0xd, 0x68747541, 0x444d4163, 0x69746e65, 0});
  CHECK(one_event("kvm_vcpu_wakeup: poll time 1234 ns, polling valid").field ==
        std::array<std::uint64_t, 8>{1234, 0, 1});
  CHECK(one_event("kvm_halt_poll_ns: vcpu 0: halt_poll_ns 0 (shrink 10000)").field ==
        std::array<std::uint64_t, 8>{0, 0, 10000});
  CHECK(one_event("kvm_inj_exception: #PF (0x2) [reinjected]").field ==
        std::array<std::uint64_t, 8>{14, 1, 2, 1});
}

TEST_CASE("trace reader: several captures, comments, lost events, unknown events in order") {
  const TraceFile file = read_trace_file(data_path("01-idle-hlt-ipi-trace.txt"));
  REQUIRE(file.captures.size() == 2);
  CHECK(file.line_count == 27);
  CHECK(file.captures[0].title == "with idle HLT intercept");
  CHECK(file.captures[1].title == "without idle HLT intercept");
  CHECK(file.captures[0].first_line == 2);
  CHECK(file.captures[1].first_line == 14);
  CHECK(file.captures[0].events.size() == 11);
  CHECK(file.captures[1].events.size() == 13);
  CHECK(file.captures[0].lines.front() == 3);
  CHECK(file.captures[0].format == "stripped");
  CHECK(file.captures[0].time_base == TimeBase::microseconds);

  const TraceFile excerpt = read_trace_file(data_path("kvm-6.12-a1-excerpt.txt"));
  const Capture& capture = excerpt.captures.at(0);
  CHECK(capture.format == "trace-cmd report");
  CHECK(capture.time_base == TimeBase::nanoseconds);
  CHECK(capture.unknown.at("kvm_unmap_hva_range") == 1);
  CHECK(capture.unknown.at("kvm_update_master_clock") == 1);
  CHECK(capture.threads.comm(182) == "vcpu0");
  CHECK(capture.unrecognised_lines == 0);
  for (std::size_t i = 0; i < capture.events.size(); ++i) {
    if (capture.events[i].kind != EventKind::other) continue;
    if (capture.name_of(capture.events[i]) == "kvm_unmap_hva_range") {
      CHECK(capture.other_text_of(capture.events[i]) ==
            "mmu notifier unmap range: 0x007fc03e8f2000 -- 0x007fc03e8f3000");
    }
  }

  const TraceFile lost = read_text(
      "# tracer: nop\n#\n"
      "   a-1   [000] d....     1.000000: kvm_entry: vcpu 0, rip 0x1\n"
      "CPU:3 [LOST 123 EVENTS]\n"
      "this is prose\n"
      "Note: so is this\n"
      "   a-1   [000] .....     1.000000: kvm_track_tsc: vcpu_id 0\n");
  CHECK(lost.captures[0].lost_events == 123);
  CHECK(lost.captures[0].format == "tracefs");
  CHECK(lost.captures[0].events.size() == 2);
  CHECK(lost.captures[0].unrecognised_lines == 2);
  CHECK(lost.captures[0].unknown.at("kvm_track_tsc") == 1);
  CHECK(lost.captures[0].unknown.at("line: this is prose") == 1);
}

TEST_CASE("trace reader: an unreadable line is a problem with its place, and reading goes on") {
  const TraceFile file = read_text(
      " 1.000000: kvm_entry: vcpu 0, rip 0x1\n"
      " 1.000001: kvm_exit: vcpu 0 reason hlt rip banana\n"
      " 1.000002: kvm_msr: msr_write xyz = 0x1\n"
      " 1.000003: kvm_entry: vcpu 0, rip 0x2\n");
  const Capture& capture = file.captures[0];
  CHECK(capture.events.size() == 2);
  REQUIRE(capture.problems.size() == 2);
  CHECK(capture.problem_count == 2);
  CHECK(capture.problems[0].text() ==
        "t.txt:2: kvm_exit: cannot read \"vcpu 0 reason hlt rip banana\" (expected [vcpu N ]reason NAME rip "
        "0xX[ info1 "
        "0xX info2 0xX intr_info 0xX error_code 0xX])");
  CHECK(capture.problems[1].line == 3);

  ReadOptions options;
  options.max_problems = 1;
  std::string many;
  for (int i = 0; i < 5; ++i)
    many += " 1.000001: kvm_exit: nonsense\n";
  const TraceFile bounded = read_text(many + " 1.000003: kvm_entry: vcpu 0, rip 0x2\n", options);
  CHECK(bounded.captures[0].problems.size() == 1);
  CHECK(bounded.captures[0].problem_count == 5);
}

TEST_CASE("trace reader: a file without a single event is refused with its first line") {
  try {
    (void)read_text("\n\nhello world\n# nothing\n");
    FAIL("not refused");
  } catch (const TraceError& error) {
    REQUIRE(error.problems().size() == 1);
    CHECK(error.problems()[0].source == "t.txt");
    CHECK(error.problems()[0].line == 3);
    CHECK(error.problems()[0].message.find("\"hello world\"") != std::string::npos);
  }
  CHECK_THROWS_AS((void)read_text(""), TraceError);
  CHECK_THROWS_AS((void)read_trace_file(data_path("no-such-file")), TraceError);
  CHECK_THROWS_AS((void)read_trace_file(data_path("")), TraceError);
}

TEST_CASE("trace reader: garbage of every kind never crashes and never invents events") {
  std::string text(3 << 20, 'x');  // one line of three megabytes
  text += "\n 1.000000: kvm_entry: vcpu 0, rip 0x1\n";
  text += std::string(" 1.000000: kvm_\0entry: vcpu\n", 28);
  text += " 1.000000: kvm_entry: vcpu \xff\xfe, rip 0x1\n";
  text += " 99999999999999999999.000000: kvm_entry: vcpu 0\n";
  text += " 1.000000: kvm_entry: vcpu 99999999999, rip 0x1\n";
  text += " 1.000000: kvm_entry: vcpu 0, rip 0x11111111111111111\n";
  text += " 1.000000: kvm_exit: vcpu 0 reason  rip 0x1\n";
  text += " 1.000000: kvm_apic_ipi: dst 0 vec 999 (Fixed|physical|assert|edge|self)\n";
  text += " 1.000000: kvm_exit: vcpu 0 reason hlt rip 0x1 info1";
  const TraceFile file = read_text(text);
  const Capture& capture = file.captures[0];
  CHECK(capture.events.size() == 1);
  CHECK(capture.problem_count == 7);
  for (const Problem& problem : capture.problems) {
    for (const char c : problem.message)
      CHECK((static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f));
  }

  // Mutations of real lines: nothing may throw but TraceError.
  std::ifstream in(data_path("kvm-6.12-a1-excerpt.txt"));
  std::stringstream all;
  all << in.rdbuf();
  const std::string good = all.str();
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string bad = good.substr(0, 4000 + random() % 4000);
    for (int i = 0; i < 40; ++i) {
      const std::size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(random() & 0xff);
          break;
        case 1:
          bad.erase(at, random() % 8);
          break;
        case 2:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 30));
          break;
        default:
          bad.insert(at, "\n");
          break;
      }
    }
    try {
      const TraceFile mutated = read_text(bad);
      for (const Capture& one : mutated.captures)
        CHECK(one.events.size() == one.lines.size());
    } catch (const TraceError&) {
    }
  }
}

TEST_CASE("trace reader: gzip, damaged gzip, a bomb") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / "svmsim_trace_test";
  std::filesystem::create_directories(directory);
  const std::string packed = (directory / "a.gz").string();
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text += " 1.000000: kvm_entry: vcpu 0, rip 0x" + std::to_string(i) + "\n";
  const auto pack = [&](const std::string& path) {
    boost::iostreams::filtering_ostream out;
    out.push(boost::iostreams::gzip_compressor());
    out.push(boost::iostreams::file_sink(path, std::ios::binary));
    out << text;
  };
  pack(packed);
  CHECK(read_trace_file(packed).captures.at(0).events.size() == 2000);

  std::ifstream in(packed, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  const std::string whole = bytes.str();
  const std::string half = (directory / "half.gz").string();
  std::ofstream(half, std::ios::binary) << whole.substr(0, whole.size() / 2);
  try {
    const TraceFile file = read_trace_file(half);
    CHECK(file.captures.at(0).problem_count >= 1);
    CHECK(file.captures.at(0).problems.back().message.find("gzip") != std::string::npos);
  } catch (const TraceError& error) {
    CHECK(std::string{error.what()}.find("gzip") != std::string::npos);
  }

  text.assign(70 << 20, '\n');
  text += " 1.000000: kvm_entry: vcpu 0, rip 0x1\n";
  const std::string bomb = (directory / "bomb.gz").string();
  pack(bomb);
  try {
    (void)read_trace_file(bomb);
    FAIL("a bomb was unpacked");
  } catch (const TraceError& error) {
    CHECK(std::string{error.what()}.find("unpacks to more than") != std::string::npos);
  }
  std::filesystem::remove_all(directory);
}
