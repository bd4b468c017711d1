#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "workloads/trace/exit_vocabulary.hpp"
#include "workloads/trace/ftrace_reader.hpp"
#include "workloads/trace/ftrace_writer.hpp"
#include "workloads/trace/guest_marker.hpp"
#include "workloads/trace/import.hpp"
#include "workloads/trace/payload_names.hpp"
#include "workloads/trace/trace_writer.hpp"

// What the writers write: the readers get the same events back, and trace-cmd prints the kernel's words.

using namespace svmsim;
using namespace svmsim::workloads;

namespace {

constexpr std::uint64_t dirty = 0xfedc'ba98'7654'3210;

/// An event of every kind, with fields that need their whole width.
std::vector<TraceEvent> all_kinds(KernelGeneration kernel) {
  using Fields = std::array<std::uint64_t, 8>;
  const bool newest = kernel == KernelGeneration::v6_18;
  const std::vector<std::pair<EventKind, Fields>> rows{
      {EventKind::kvm_entry, {dirty, newest ? 0x1234'0000'8000'00b0U : 0, 1}},
      {EventKind::kvm_exit, {0x78, dirty, 1, dirty, 0x1234'5678'8000'00b0, newest ? dirty : 0}},
      {EventKind::kvm_exit, {0x4d, 0x1000, 0, 0, 0}},
      {EventKind::kvm_exit, {0xa6, 0x1000, 0, 0, 0}},
      {EventKind::kvm_exit, {0x401, 0x1000, 0, 0, 0}},
      {EventKind::kvm_exit, {0x8e, 0x1000, 0, 0, 0}},
      {EventKind::kvm_exit, {~std::uint64_t{0}, 0x1000, 0, 0, 0}},
      {EventKind::kvm_exit, {vmx_exit_base + 48, 0x1000, 0x683, 0, 0x8000'00d1}},
      {EventKind::kvm_apic_ipi, {0x000c'40fd, 0xb0}},
      {EventKind::kvm_apic_accept_irq, {0x1f, 1, 1, 0xb0}},
      {EventKind::kvm_apicv_accept_irq, {0, 0, 0, 236}},
      {EventKind::kvm_apic, {1, 0x300, 0xb0'0004'40b0}},
      {EventKind::kvm_apic, {0, 0x110, 7}},
      {EventKind::kvm_msr, {1, 0x830, dirty, 1}},
      {EventKind::kvm_eoi, {0x1f, 176}},
      {EventKind::kvm_eoi, {0, ~std::uint64_t{0}}},
      {EventKind::kvm_pv_eoi, {1, 65}},
      {EventKind::kvm_inj_virq, {0xb0, 1, 1}},
      {EventKind::kvm_inj_virq, {0x20, 0, 0}},
      {EventKind::kvm_inj_exception, {13, 1, 0x18, 1}},
      {EventKind::kvm_inj_exception, {6, 0, 0, 0}},
      {EventKind::kvm_inj_exception, {14, 1, 0, 0}},
      {EventKind::kvm_pio, {1, 0x80, 4, 2, 0x8765'4321}},
      {EventKind::kvm_hypercall, {10, dirty, 2, 3, dirty}},
      {EventKind::kvm_cpuid, {0x8000'000a, 1, 2, 3, 4, 0xffff'ffff, 1, 1}},
      {EventKind::kvm_page_fault, {0x40'0000, dirty, 0x2'0000'0006}},
      {EventKind::kvm_halt_poll_ns, {1, 20000, 10000}},
      {EventKind::kvm_halt_poll_ns, {0, 0, 10000}},
      {EventKind::kvm_vcpu_wakeup, {90'000'000'000, 1, 1}},
      {EventKind::kvm_vcpu_wakeup, {1, 0, 0}},
      {EventKind::kvm_userspace_exit, {5, 0}},
      {EventKind::kvm_fpu, {1}},
      {EventKind::kvm_fpu, {0}},
      {EventKind::sched_switch, {1001, 120, pack_letters("S"), 0, 120}},
      {EventKind::sched_switch, {0, 120, pack_letters("R"), 1001, 119}},
      {EventKind::sched_switch, {1001, 120, pack_letters("R+"), 1002, 98}},
      {EventKind::sched_waking, {1002, 120, 3}},
      {EventKind::sched_wakeup, {1001, 120, 7}},
      {EventKind::cpu_idle, {4294967295, 2}},
      {EventKind::kvm_cr, {1, 4, dirty}},
      {EventKind::kvm_mmio, {2, 4, 0xfee0'0300, dirty}},
      {EventKind::kvm_apicv_inhibit_changed, {9, 1, 0x200}},
      {EventKind::kvm_apicv_inhibit_changed, {8, 0, 0}},
      {EventKind::kvm_avic_incomplete_ipi, {1, 0x40fd, 1, 3}},
      {EventKind::kvm_avic_unaccelerated_access, {0xb0, 1, 1, 0x31}},
      {EventKind::kvm_avic_unaccelerated_access, {0x390, 0, 0, 0}},
      {EventKind::kvm_avic_ga_log, {7, 2}},
      {EventKind::kvm_avic_kick_vcpu_slowpath, {0xff00'0000, 0x440b0, 3}},
      {EventKind::kvm_avic_doorbell, {1, 64}},
      {EventKind::kvm_hv_timer_state, {1}},
      {EventKind::kvm_wait_lapic_expire, {~std::uint64_t{0} - 10}},
      {EventKind::kvm_ple_window_update, {6000, 3000}},
  };
  std::vector<TraceEvent> events;
  std::uint64_t time = 5'000'000'123;
  for (const auto& [kind, fields] : rows) {
    TraceEvent event;
    event.kind = kind;
    event.field = fields;
    event.cpu = static_cast<std::int32_t>(events.size() % 3);
    event.tid = 1001 + event.cpu;
    event.vcpu = 14 - event.cpu;
    event.time = time;
    time += events.size() % 7 == 0 ? 400'000'000U : 17U;  // some need more than 27 bits
    events.push_back(event);
  }
  svm::GuestAction wrmsr;
  wrmsr.kind = svm::ActionKind::wrmsr;
  wrmsr.rip = 0x4004ad;
  wrmsr.length = 2;
  wrmsr.number = 0x80b;
  wrmsr.operand[0] = dirty;
  wrmsr.cycles = 99;
  for (TraceEvent event : {guest_marker::of_action(wrmsr), guest_marker::of_interrupt(0xb0, 0x4004ae)}) {
    event.cpu = 1;
    event.tid = 1002;
    event.vcpu = 13;
    event.time = time++;
    events.push_back(event);
  }
  return events;
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& suffix)
      : path_(std::filesystem::temp_directory_path() /
              ("svmsim-writer-" + std::to_string(std::random_device{}()) + suffix)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code error;
    std::filesystem::remove(path_, error);
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void write_file(const std::string& path, TraceFormat format, KernelGeneration kernel,
                const std::vector<TraceEvent>& events, std::uint64_t tsc_hz = 1'000'000'000) {
  std::ofstream out(path, std::ios::binary);
  TraceWriterOptions options;
  options.kernel = kernel;
  options.tsc_hz = tsc_hz;
  const auto writer = make_trace_writer(format, out, options);
  writer->threads().set(1001, "CPU 0/KVM");
  writer->threads().set(1002, "vcpu1");
  writer->threads().set(1003, "vcpu2");
  for (const TraceEvent& event : events)
    writer->write(event);
  writer->finish();
  REQUIRE(out.good());
}

/// What is no part of a text or record: fields that the kernel generation does not print.
bool same(const TraceEvent& read, const TraceEvent& written, KernelGeneration kernel) {
  if (read.kind != written.kind || read.time != written.time || read.cpu != written.cpu ||
      read.tid != written.tid) {
    return false;
  }
  auto expected = written.field;
  if (kernel != KernelGeneration::v6_18 && written.kind == EventKind::kvm_exit) expected[5] = 0;
  auto got = read.field;
  if (written.kind == EventKind::kvm_apicv_inhibit_changed) got[3] = expected[3] = 0;
  if (written.kind == EventKind::kvm_eoi) {
    got[1] = static_cast<std::uint32_t>(got[1]);
    expected[1] = static_cast<std::uint32_t>(expected[1]);
  }
  return got == expected;
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), got);
  CHECK(::pclose(pipe) == 0);
  return text;
}

bool has_trace_cmd() {
  return std::system("command -v trace-cmd >/dev/null 2>&1") == 0;
}

}  // namespace

TEST_CASE("trace writers: every kind of event comes back from every format and generation") {
  for (const KernelGeneration kernel :
       {KernelGeneration::v6_1, KernelGeneration::v6_12, KernelGeneration::v6_18}) {
    const std::vector<TraceEvent> events = all_kinds(kernel);
    for (const TraceFormat format : {TraceFormat::ftrace, TraceFormat::perf_script, TraceFormat::trace_dat}) {
      CAPTURE(trace_format_name(format));
      const TemporaryFile file(".trace");
      write_file(file.path(), format, kernel, events);
      const TraceFile read = read_trace_file(file.path());
      REQUIRE(read.captures.size() == 1);
      const Capture& capture = read.captures.front();
      for (const Problem& problem : capture.problems)
        FAIL_CHECK(problem.text());
      CHECK(capture.format == (format == TraceFormat::ftrace        ? "tracefs"
                               : format == TraceFormat::perf_script ? "perf script"
                                                                    : "trace.dat"));
      REQUIRE(capture.events.size() == events.size());
      for (std::size_t i = 0; i < events.size(); ++i) {
        CAPTURE(event_text(events[i], kernel));
        CAPTURE(event_text(capture.events[i], kernel));
        CHECK(same(capture.events[i], events[i], kernel));
        // What a text says of the vCPU a record says too.
        if (capture.events[i].vcpu >= 0) CHECK(capture.events[i].vcpu == events[i].vcpu);
      }
      CHECK(capture.threads.comm(1001) == "CPU 0/KVM");
    }
  }
}

TEST_CASE("trace writers: trace.dat of many pages, long gaps and long records") {
  std::mt19937_64 random(7);
  std::vector<TraceEvent> events;
  std::uint64_t time = 1;
  for (int i = 0; i < 20'000; ++i) {
    TraceEvent event;
    event.kind = i % 5 == 0 ? EventKind::kvm_cpuid : EventKind::kvm_entry;
    event.cpu = static_cast<std::int32_t>(random() % 4);
    event.tid = 1001 + event.cpu;
    event.vcpu = event.cpu;
    event.field[0] = random() >> 33;
    event.field[6] = event.kind == EventKind::kvm_cpuid ? 1 : 0;
    event.time = time;
    time += 1 + (i % 1000 == 0 ? std::uint64_t{1} << (random() % 40) : random() % 3000);
    events.push_back(event);
  }
  const TemporaryFile file(".dat");
  {
    std::ofstream out(file.path(), std::ios::binary);
    const auto writer = make_trace_writer(TraceFormat::trace_dat, out, {});
    for (const TraceEvent& event : events)
      writer->write(event);
    TraceEvent other;
    other.cpu = 0;
    other.tid = 77;
    other.time = time;
    writer->write_other(other, "kvm_track_tsc", "vcpu_id 0 masterclock 0");
    writer->write_other(other, "kvm_set_irq", std::string(500, 'x'));
    writer->finish();
  }
  const TraceFile read = read_trace_file(file.path());
  const Capture& capture = read.captures.at(0);
  CHECK(capture.problem_count == 0);
  CHECK(capture.lost_events == 0);
  REQUIRE(capture.events.size() == events.size() + 2);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (!same(capture.events[i], events[i], KernelGeneration::v6_12)) ++wrong;
  }
  CHECK(wrong == 0);
  const TraceEvent& other = capture.events[events.size()];
  CHECK(capture.name_of(other) == "kvm_track_tsc");
  CHECK(capture.other_text_of(other) == "vcpu_id 0 masterclock 0");
  CHECK(capture.other_text_of(capture.events.back()).size() == 500);
}

TEST_CASE("trace writers: a file without events can be opened") {
  const TemporaryFile file(".dat");
  write_file(file.path(), TraceFormat::trace_dat, KernelGeneration::v6_12, {});
  const ImportReport report = import_report_of_files({file.path()});
  CHECK(report.problem_count == 0);
  CHECK(report.events.empty());
  if (has_trace_cmd()) CHECK(output_of("trace-cmd report -i " + file.path() + " 2>&1") == "cpus=1\n");
}

TEST_CASE("trace writers: trace-cmd report prints trace.dat in the kernel's words" *
          doctest::skip(!has_trace_cmd())) {
  for (const KernelGeneration kernel :
       {KernelGeneration::v6_1, KernelGeneration::v6_12, KernelGeneration::v6_18}) {
    const std::vector<TraceEvent> events = all_kinds(kernel);
    const TemporaryFile file(".dat");
    write_file(file.path(), TraceFormat::trace_dat, kernel, events);
    std::istringstream lines(output_of("trace-cmd report -N -t -i " + file.path() + " 2>&1"));
    std::string line;
    REQUIRE(std::getline(lines, line));
    CHECK(line == "cpus=3");
    ThreadNames threads;
    threads.set(1001, "CPU 0/KVM");
    threads.set(1002, "vcpu1");
    for (const TraceEvent& event : events) {
      REQUIRE(std::getline(lines, line));
      const bool marker = event.kind == EventKind::svmsim_guest;
      const std::string name = marker ? "print" : std::string{event_name(event.kind)};
      std::string text = event_text(event, kernel, &threads);
      if (marker) text.insert(0, "tracing_mark_write: ");
      CAPTURE(line);
      const std::size_t at = line.find(name + ": ");
      REQUIRE(at != std::string::npos);
      const std::size_t begin = line.find_first_not_of(' ', at + name.size() + 1);
      std::string printed = line.substr(begin);
      while (!printed.empty() && printed.back() == ' ')
        printed.pop_back();
      while (!text.empty() && text.back() == ' ')
        text.pop_back();
      CHECK(printed == text);
    }
    // With its plugins, as people run it, trace-cmd has words of its own, but finds every field it asks for.
    const std::string plain = output_of("trace-cmd report -i " + file.path() + " 2>&1");
    CHECK(plain.find("FIELD") == std::string::npos);
    CHECK(plain.find("UNKNOWN EVENT") == std::string::npos);
    CHECK(plain.find("Error") == std::string::npos);
    CHECK(plain.find("reason EXIT_HLT rip 0xfedcba9876543210") != std::string::npos);
  }
}

TEST_CASE("trace writers: formats by name and by suffix") {
  CHECK(trace_format_of_path("a/b.dat") == TraceFormat::trace_dat);
  CHECK(trace_format_of_path("b.perf") == TraceFormat::perf_script);
  CHECK(trace_format_of_path("b.txt") == TraceFormat::ftrace);
  CHECK(trace_format_of_path("dat") == TraceFormat::ftrace);
  for (const TraceFormat format : {TraceFormat::ftrace, TraceFormat::perf_script, TraceFormat::trace_dat})
    CHECK(trace_format_of_name(trace_format_name(format)) == format);
  CHECK_FALSE(trace_format_of_name("xml").has_value());
}

TEST_CASE("trace writers: perf script's line") {
  std::ostringstream out;
  TraceWriterOptions options;
  options.kernel = KernelGeneration::v6_12;
  options.fraction_digits = 6;
  {
    const auto writer = make_trace_writer(TraceFormat::perf_script, out, options);
    writer->threads().set(426566, "dbs_load_kernel");
    TraceEvent event;
    event.kind = EventKind::kvm_apic_accept_irq;
    event.tid = 426566;
    event.cpu = 4;
    event.time = 108'229'766'087'000;
    event.field = {0, 0, 0, 236};
    writer->write(event);
    writer->finish();
  }
  CHECK(out.str() ==
        " dbs_load_kernel  426566 [004] 108229.766087:           kvm:kvm_apic_accept_irq: apicid 0 vec 236 "
        "(Fixed|edge)\n");
}

TEST_CASE("guest markers: text and back, foreign marks are left alone") {
  TraceEvent event;
  CHECK(guest_marker::parse("vcpu 2 rip 0x4004ad hlt len=1", event));
  CHECK(event.vcpu == 2);
  CHECK_FALSE(guest_marker::is_interrupt(event));
  CHECK(guest_marker::action_of(event).kind == svm::ActionKind::hlt);
  CHECK(guest_marker::text(event) == "svmsim_guest: vcpu 2 rip 0x4004ad hlt len=1");
  CHECK(guest_marker::parse("vcpu 0 rip 0x4004ae interrupt 0xb0", event));
  CHECK(guest_marker::is_interrupt(event));
  CHECK(event.field[2] == 0xb0);
  for (const char* wrong : {"vcpu 0 rip 0x1", "vcpu 0 rip 0x1 fly", "vcpu 0 rip 0x1 wrmsr 0x80b",
                            "vcpu 0 rip 0x1 interrupt 0x100", "vcpu 0 rip 0x1 hlt len=99", "hlt", ""}) {
    CAPTURE(wrong);
    CHECK_FALSE(guest_marker::parse(wrong, event));
  }
  std::istringstream in(
      "qemu-5659  [007] ....   280.971116: tracing_mark_write: pckbd_kbd_update_irq kbd=0 aux=1\n"
      "qemu-5659  [007] ....   280.971117: tracing_mark_write: svmsim_guest: vcpu 0 rip 0x10 sti len=1\n"
      "qemu-5659  [007] ....   280.971118: tracing_mark_write: svmsim_guest: nonsense\n");
  const TraceFile file = read_trace(in, "t");
  const Capture& capture = file.captures.at(0);
  REQUIRE(capture.events.size() == 2);
  CHECK(capture.events[0].kind == EventKind::other);
  CHECK(capture.events[1].kind == EventKind::svmsim_guest);
  CHECK(capture.problem_count == 1);
}
