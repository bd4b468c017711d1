#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "workloads/trace/import.hpp"
#include "workloads/trace/line_parser.hpp"
#include "workloads/trace/report_builder.hpp"

// The grammar of recordings: prefixes, folded lines, tables, causes, several VMs, cuts.

using namespace svmsim;
using namespace svmsim::workloads;

namespace {

ImportReport report_of(const std::string& text, const ImportOptions& options = {}) {
  std::istringstream in(text);
  ReportBuilder builder("t.txt", options);
  make_text_reader(in, "t.txt")->read(builder);
  return builder.take();
}

const std::string entry0 = ": kvm_entry: vcpu 0, rip 0x1\n";

std::string exit_line(int vcpu, const std::string& reason) {
  return ": kvm_exit: vcpu " + std::to_string(vcpu) + " reason " + reason +
         " rip 0x5 info1 0x0 info2 0x0 intr_info 0x00000000 error_code 0x00000000\n";
}

}  // namespace

TEST_CASE("trace prefixes: thread, process, CPU, time") {
  struct Form {
    const char* line;
    LineShape shape;
    const char* comm;
    int tid;
    int tgid;
    int cpu;
    TimeBase base;
    std::uint64_t time;
  };
  const std::vector<Form> forms{
      {"       CPU 0/KVM-4201    [001] d..2.  1000.000125: kvm_fpu: load", LineShape::ftrace, "CPU 0/KVM",
       4201, -1, 1, TimeBase::microseconds, 1000000125000},
      {"> >  qemu-kvm-4201 (   4200) [013] d... 10.000000125: kvm_fpu: load", LineShape::ftrace, "qemu-kvm",
       4201, 4200, 13, TimeBase::nanoseconds, 10000000125},
      {" a-b 7-4201 (-------) [001] .... 5: kvm_fpu: load", LineShape::ftrace, "a-b 7", 4201, -1, 1,
       TimeBase::counter, 5},
      {" fc_vcpu 1 4201 [001]   770.850287:   kvm:kvm_fpu: load", LineShape::perf, "fc_vcpu 1", 4201, -1, 1,
       TimeBase::microseconds, 770850287000},
      {" CPU 0/KVM 4200/4201 [001]   770.850287:   kvm:kvm_fpu: load", LineShape::perf, "CPU 0/KVM", 4201,
       4200, 1, TimeBase::microseconds, 770850287000},
      {" qemu 4201   770.850287123:   kvm:kvm_fpu: load", LineShape::perf, "qemu", 4201, -1, -1,
       TimeBase::nanoseconds, 770850287123},
      {"    [001]   770.850287:  kvm:kvm_fpu: load", LineShape::perf, "", -1, -1, 1, TimeBase::microseconds,
       770850287000},
      {"2022-04-22 17:39:26.535148  exe-7  [006] .... 410259.258828: kvm_fpu: load", LineShape::ftrace, "exe",
       7, -1, 6, TimeBase::microseconds, 410259258828000},
      {"  kvm_fpu:             load", LineShape::stripped, "", -1, -1, -1, TimeBase::none, 0},
      {"kvm_fpu  load", LineShape::stripped, "", -1, -1, -1, TimeBase::none, 0},
  };
  for (const Form& form : forms) {
    CAPTURE(form.line);
    const ParsedLine line = parse_line(form.line);
    CHECK(line.shape == form.shape);
    CHECK(line.event == "kvm_fpu");
    CHECK(line.text == "load");
    CHECK(line.comm == form.comm);
    CHECK(line.tid == form.tid);
    CHECK(line.tgid == form.tgid);
    CHECK(line.cpu == form.cpu);
    CHECK(line.time_base == form.base);
    CHECK(line.time == form.time);
  }
  CHECK(parse_line("2022-04-22 17:39:26.535148").shape == LineShape::clock);
  CHECK(parse_line("exe-7 [006] .... 410259.258828:").shape == LineShape::prefix_only);
  CHECK(parse_line("As one can see: the exits are gone").shape == LineShape::unrecognised);
}

TEST_CASE("trace text: lines that mailers folded are joined, and prose is not") {
  const ImportReport report = report_of(
      "> CPU-5 [034] 1.000001: kvm_exit: reason\n"
      "> EPT_VIOLATION rip 0x5 info 683 800000d1\n"
      "> CPU-5 [034] 1.000002: kvm_inj_virq: IRQ 0xd1\n"
      "> [reinjected]\n"
      "> CPU-5 [034] 1.000003:\n"
      ">  kvm_entry: vcpu 0, rip 0x5\n"
      "So the guest never gets anywhere.\n");
  CHECK(report.events == Counts{{"kvm_entry", 1}, {"kvm_exit", 1}, {"kvm_inj_virq", 1}});
  CHECK(report.exits == Counts{{"EPT_VIOLATION", 1}});
  CHECK(report.problem_count == 0);
  CHECK(report.causes.empty());  // reinjected: the same interrupt once more
  CHECK(report.dropped.at("lines that are no event and no row of a table") == 1);
  REQUIRE(report.notes.size() == 4);
  CHECK(report.notes[0].find("t.txt:2: joined") == 0);
  CHECK(report.notes[3].find("t.txt:7: left out") == 0);
}

TEST_CASE("trace text: LOST markers, unknown events and reasons are counted") {
  const ImportReport report = report_of(
      "cpus=2\nCPU:3 [LOST 123 EVENTS]\nCPU:1 [EVENTS DROPPED]\n a-5 [0] 1.000001" + exit_line(0, "warp") +
      " a-5 [0] 1.000001: rcu_utilization: Start\n a-5 [0] 1.000002: kvm_exit: vcpu x\n");
  CHECK(report.lost_events == 124);  // a marker without a number stands for at least one
  CHECK(report.unknown.at("exit reason warp") == 1);
  CHECK(report.unknown.at("rcu_utilization") == 1);
  CHECK(report.exits == Counts{{"warp", 1}});
  CHECK(report.isa == "unknown");
  REQUIRE(report.problems.size() == 1);
  CHECK(report.problems[0].line == 6);
}

TEST_CASE("trace exits: four vocabularies, one name; flag words; numbers only with an ISA") {
  const auto name = [](const std::string& reason) {
    return report_of("kvm_exit: reason " + reason + " rip 0x5 info 0 0\n").exits.begin()->first;
  };
  CHECK(name("npf") == "npf");
  CHECK(name("EXIT_NPF") == "npf");
  CHECK(name("EXIT_EXCP_GP") == "GP excp");
  CHECK(name("EXIT_INTR") == "interrupt");
  CHECK(name("DE excp") == "DE excp");
  CHECK(name("UNKNOWN (166)") == "idle-halt");
  CHECK(name("0xa6") == "idle-halt");
  CHECK(name("EPT_VIOLATION FAILED_VMENTRY") == "EPT_VIOLATION");
  CHECK(name("PENDING_INTERRUPT") == "INTERRUPT_WINDOW");
  CHECK(name("EXIT_REASON_HLT") == "HLT");
  CHECK(name("DABT_LOW") == "DABT_LOW");
  const std::string table =
      "reason: count sum(us) min(us) avg(us) max(us)\n12: 182 29145513 58 160140 500054\n";
  CHECK(report_of(table).exits == Counts{{"12", 182}});
  CHECK(report_of(table).isa == "unknown");
  ImportOptions vmx;
  vmx.isa = Isa::vmx;
  CHECK(report_of(table, vmx).exits == Counts{{"HLT", 182}});
  CHECK(report_of(table, vmx).isa == "vmx");
}

TEST_CASE("trace tables: rows, totals that do not fit, foreign ISAs, statistics") {
  const ImportReport folded = report_of(
      "  VM-EXIT    Samples  Samples%     Time%    Min Time    Max Time   Avg time\n"
      "PF excp    5417390    90.01%    16.31%      0.69us    159.60us\n1.08us ( +-   0.02% )\n\n"
      "Total Samples:5417391, Total events handled time:2.00us.\n");
  CHECK(folded.format == "perf kvm stat");
  CHECK(folded.isa == "svm");
  CHECK(folded.exits == Counts{{"PF excp", 5417390}});
  REQUIRE(folded.tables.size() == 1);
  CHECK(folded.tables[0].rows[0].mean_ns == doctest::Approx(1080));
  CHECK(folded.tables[0].total_time_ns == doctest::Approx(2000));
  REQUIRE(folded.notes.size() == 1);
  CHECK(folded.notes[0].find("rows are missing") != std::string::npos);
  CHECK(folded.no_workload.has_value());
  CHECK_FALSE(folded.refused.has_value());

  const ImportReport arm = report_of(
      "Event name  Samples   Sample%    Time (ns)     Time%   Max Time (ns)   Min Time (ns)  Mean Time (ns)\n"
      "DABT_LOW   26968     54.00%    2003031800    40.00%     3361400         27600          74274\n");
  CHECK(arm.isa == "arm64");
  CHECK(arm.refused.has_value());
  CHECK(arm.tables[0].rows[0].max_ns == 3361400);
  CHECK(arm.tables[0].rows[0].min_ns == 27600);

  const ImportReport stat = report_of(
      " Event                                         Total %Total CurAvg/s\n"
      " kvm_exit                                     238130    8.3     4419\n"
      "   kvm_exit(npf)                              124281   52.2     2374\n"
      " kvm_entry                                    238130    8.3     4419\n");
  CHECK(stat.format == "kvm_stat");
  CHECK(stat.events == Counts{{"kvm_entry", 238130}, {"kvm_exit", 238130}});
  CHECK(stat.exits == Counts{{"npf", 124281}});
  CHECK(stat.isa == "svm");

  const ImportReport statistics =
      report_of("/sys/kernel/debug/kvm/halt_exits:12\nexits: 30\nmmio_exits 4\nnice 5\n");
  CHECK(statistics.format == "kvm statistics");
  REQUIRE(statistics.tables.size() == 1);
  CHECK(statistics.tables[0].rows.size() == 3);
  CHECK(statistics.tables[0].rows[1].count == 30);
  CHECK(statistics.dropped.at("lines that are no event and no row of a table") == 1);
}

TEST_CASE("trace pairing: as perf does it, and without a time base there are no durations") {
  const auto line = [](const char* time, const std::string& rest) {
    return " a-5 [0] " + std::string{time} + rest;
  };
  const ImportReport report =
      report_of(line("1.000001", exit_line(0, "msr")) + line("1.000002", entry0) +
                line("1.000010", exit_line(0, "hlt")) + line("1.000013", exit_line(0, "npf")) +
                line("1.000018", entry0) + line("1.000018", entry0) + line("1.000020", exit_line(0, "io")));
  CHECK(report.exits == Counts{{"hlt", 1}, {"io", 1}, {"msr", 1}, {"npf", 1}});
  REQUIRE(report.durations.has_value());
  REQUIRE(report.durations->size() == 1);
  CHECK(report.durations->at("npf").total_ns == 5000);
  CHECK(report.unpaired.before_first_entry == 1);
  CHECK(report.unpaired.overwritten == 1);
  CHECK(report.unpaired.entry_alone == 1);
  CHECK(report.unpaired.open == 1);
  CHECK_FALSE(
      report_of("kvm_entry: vcpu 0\nkvm_exit: reason hlt rip 0x5 info 0 0\nkvm_entry: vcpu 0\n").durations);
  CHECK_FALSE(report_of("5" + entry0 + "8" + exit_line(0, "hlt") + "9" + entry0).durations);
}

TEST_CASE("trace VMs: by process, by repeated vCPU numbers, never by the order of lines") {
  const auto run = [](int tid, int vcpu, const std::string& process = "") {
    return " q-" + std::to_string(tid) + process + " [0] 1.000001: kvm_entry: vcpu " + std::to_string(vcpu) +
           ", rip 0x1\n q-" + std::to_string(tid) + process + " [0] 1.000001" + exit_line(vcpu, "hlt");
  };
  const auto vms = [](const ImportReport& report) {
    std::string text;
    for (const ImportReport::Vcpu& one : report.vcpus)
      text += one.vm + "/" + std::to_string(one.vcpu) + "=" + std::to_string(one.exits.at("hlt")) + " ";
    return text;
  };
  // vCPU 1 has the lower thread id: still one VM.
  CHECK(vms(report_of(run(471, 0) + run(470, 1))) == "vm0/0=1 vm0/1=1 ");
  const std::string two = run(100, 0) + run(200, 0) + run(201, 1) + run(101, 1) + run(101, 1);
  const ImportReport report = report_of(two);
  CHECK(vms(report) == "vm0/0=1 vm0/1=2 vm1/0=1 vm1/1=1 ");
  CHECK_FALSE(report.vm_evidence.empty());
  CHECK(vms(report_of(run(9, 0, " (7)") + run(5, 1, " (4)"))) == "vm0/0=1 vm1/1=1 ");
  // gVisor: one thread runs two vCPUs in turn, another one of them too.
  CHECK(vms(report_of(run(7, 0) + run(7, 1) + run(8, 1))) == "vm0/0=1 vm0/1=2 ");
}

TEST_CASE("trace causes: timer, message, line, PIC, IPI in both orders, and what stays unknown") {
  const auto causes = [](const std::string& text) { return report_of(text).causes; };
  const auto on = [](int tid, const std::string& rest) {
    return " a-" + std::to_string(tid) + " [0] 1.000001: " + rest + "\n";
  };
  const std::string enter = on(5, "kvm_entry: vcpu 0, rip 0x1");
  const std::string leave = on(5, "kvm_exit: reason interrupt rip 0x5 info 0 0");
  const std::string accept = on(5, "kvm_apic_accept_irq: apicid 0 vec 64 (Fixed|edge)");
  const std::string inject = on(5, "kvm_inj_virq: IRQ 0x40");
  CHECK(causes(enter + leave + accept + inject + enter) == Counts{{"unknown", 1}});
  // Armed, LVTT not recorded: the vector is learned.
  const std::string arm = on(5, "kvm_msr: msr_write 6e0 = 0x92b0d");
  CHECK(causes(enter + leave + arm + enter + leave + accept + inject + enter) == Counts{{"lapic_timer", 1}});
  // LVTT says another vector.
  const std::string lvtt = on(5, "kvm_apic: apic_write APIC_LVTT = 0x400ec");
  CHECK(causes(enter + leave + lvtt + arm + enter + leave + accept + inject + enter) ==
        Counts{{"unknown", 1}});
  // 6.18: the acceptance stands before its IPI, and must not be taken for the timer's.
  const std::string ipi = on(5, "kvm_apic_ipi: dst 0 vec 64 (Fixed|physical|assert|edge|dst)");
  CHECK(causes(enter + leave + arm + enter + leave + accept + ipi + inject + enter) ==
        Counts{{"self_ipi", 1}});
  CHECK(causes(enter + leave + ipi + accept + inject + enter) == Counts{{"self_ipi", 1}});
  // Another vCPU's IPI; the receiver injects before the sender has printed it.
  const std::string other =
      on(6, "kvm_entry: vcpu 1, rip 0x1") + on(6, "kvm_exit: reason msr rip 0x5 info 0 0");
  const std::string late = on(6, "kvm_apic_accept_irq: apicid 0 vec 64 (Fixed|edge)") + inject +
                           on(6, "kvm_apic_ipi: dst 0 vec 64 (Fixed|physical|assert|edge|dst)") + enter +
                           leave;
  CHECK(causes(enter + leave + other + late) == Counts{{"ipi", 1}});
  // A message: 65 decimal and 41 hexadecimal are the same vector in two kernels' texts.
  for (const char* vector : {"65", "41"}) {
    const std::string msi =
        on(9, "kvm_msi_set_irq: dst 0 vec " + std::string{vector} + " (Fixed|physical|edge)");
    const ImportReport report =
        report_of(enter + leave + msi + on(9, "kvm_apic_accept_irq: apicid 0 vec 65 (Fixed|edge)") +
                  on(5, "kvm_inj_virq: IRQ 0x41") + enter);
    CHECK(report.causes == Counts{{"device_msi", 1}});
    CHECK(report.coverage.at("device_interrupts_open_loop") == 1);
  }
  // A line, after the guest has asked for it.
  const ImportReport line =
      report_of(enter + leave + on(5, "kvm_pio: pio_write at 0x3f8 size 1 count 1 val 0x40 ") + enter +
                leave + on(5, "kvm_set_irq: gsi 4 level 1 source 0") + accept + inject + enter);
  CHECK(line.causes == Counts{{"device_line", 1}});
  CHECK(line.coverage.at("device_interrupts_closed_loop") == 1);
  // The PIC: no LAPIC accepts it, but pin 4 shows in vector 34h.
  CHECK(causes(enter + leave + on(9, "kvm_set_irq: gsi 4 level 1 source 0") +
               on(9, "kvm_pic_set_irq: chip 0 pin 4 (edge)") + on(5, "kvm_inj_virq: irq 52") + enter) ==
        Counts{{"device_line", 1}});
  // Two VMs have such a vCPU: a thread of the host does not say which one it is for.
  const std::string twins = on(5, "kvm_entry: vcpu 0, rip 0x1") + on(6, "kvm_entry: vcpu 0, rip 0x1");
  CHECK(causes(twins + on(9, "kvm_msi_set_irq: dst 0 vec 64 (Fixed|physical|edge)") +
               on(9, "kvm_apic_accept_irq: apicid 0 vec 64 (Fixed|edge)") + leave + inject + enter) ==
        Counts{{"unknown", 1}});
}

TEST_CASE("trace wake-ups: their causes and how the halts ended") {
  const auto on = [](int tid, const std::string& rest) {
    return " a-" + std::to_string(tid) + " [0] 1.000001: " + rest + "\n";
  };
  const std::string enter = on(5, "kvm_entry: vcpu 0, rip 0x1");
  const std::string halt = on(5, "kvm_exit: reason hlt rip 0x5 info 0 0");
  const std::string wake = on(5, "kvm_vcpu_wakeup: wait time 100 ns, polling valid");
  const std::string poll = on(5, "kvm_vcpu_wakeup: poll time 50 ns, polling invalid");
  const ImportReport report = report_of(
      enter + halt + wake + enter + halt + poll + enter + halt +
      " <idle>-0 [0] 1.000001: sched_waking: comm=a pid=5 prio=120 target_cpu=000\n" + wake + enter + halt +
      on(5, "kvm_msr: msr_write 6e0 = 0x1") + wake +
      on(5, "kvm_apic_accept_irq: apicid 0 vec 64 (Fixed|edge)") + on(5, "kvm_inj_virq: IRQ 0x40") + enter);
  CHECK(report.wakeups == Counts{{"host", 1}, {"lapic_timer", 1}, {"unknown", 2}});
  CHECK(report.polling ==
        Counts{{"blocked", 3}, {"poll_succeeded_invalid", 1}, {"poll_ns", 50}, {"wait_ns", 300}});
  CHECK(report.coverage.at("wakeups") == 4);
  CHECK(report.coverage.at("wakeups_explained") == 2);
}

TEST_CASE("trace cuts: by line, by time, by window; the window's rims stay outside") {
  const std::string text = " 1.000001" + entry0 + " 1.000002" + exit_line(0, "io") +
                           " 1.000003: kvm_pio: pio_write at 0x11 size 1 count 1 val 0x0 \n 1.000004" +
                           entry0 + " 1.000005" + exit_line(0, "hlt") + " 1.000006" + entry0 + " 1.000007" +
                           exit_line(0, "io") +
                           " 1.000008: kvm_pio: pio_write at 0x12 size 1 count 1 val 0x0 \n 1.000009" +
                           entry0 + " 1.000010" + exit_line(0, "msr");
  ImportOptions window;
  window.window_from = EventPattern::parse("kvm_pio:at 0x11");
  window.window_to = EventPattern::parse("kvm_pio:at 0x12");
  const ImportReport inside = report_of(text, window);
  CHECK(inside.exits == Counts{{"hlt", 1}});
  CHECK(inside.events == Counts{{"kvm_entry", 2}, {"kvm_exit", 1}});
  CHECK(inside.durations->at("hlt").total_ns == 1000);
  ImportOptions lines;
  lines.from = CutPoint::parse("line:4", "--from");
  lines.to = CutPoint::parse("1.000010", "--to");
  const ImportReport cut = report_of(text, lines);
  CHECK(cut.exits == Counts{{"hlt", 1}, {"io", 1}});
  CHECK(cut.dropped.at("events outside --from and --to") == 4);
  window.window_to = EventPattern::parse("kvm_pio:at 0x13");
  CHECK_THROWS_AS((void)report_of(text, window), UserError);
  for (const char* wrong : {"", "x", "line:", "1.2.3", "1.0000000001", "-1"}) {
    CHECK_THROWS_AS((void)CutPoint::parse(wrong, "--from"), UserError);
  }
}

TEST_CASE("trace scheduling: running, waiting for a CPU and sleeping are told apart") {
  const auto at = [](int us, const std::string& rest) {
    return " a-5 [0] 1.0000" + std::to_string(us) + ": " + rest + "\n";
  };
  const auto to = [](const char* prev, const char* state, const char* next) {
    return std::string{"sched_switch: prev_comm=a prev_pid="} + prev + " prev_prio=120 prev_state=" + state +
           " ==> next_comm=b next_pid=" + next + " next_prio=120";
  };
  const std::string wake = "sched_waking: comm=a pid=5 prio=120 target_cpu=000";
  const ImportReport report =
      report_of(at(10, "kvm_entry: vcpu 0, rip 0x1") + at(20, to("7", "S", "5")) +
                at(25, to("5", "R+", "7")) + at(29, to("7", "S", "5")) + at(40, to("5", "S", "7")) +
                at(60, wake) + at(63, to("7", "S", "5")) + at(70, to("5", "R", "7")));
  REQUIRE(report.vcpus.size() == 1);
  const SchedSums& sums = report.vcpus[0].sched;
  CHECK(sums.preempted == 2);
  CHECK(sums.blocked == 1);
  CHECK(sums.run_time == 23000);
  CHECK(sums.queue_time == 7000);
  CHECK(sums.block_time == 20000);
}
