#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "workloads/trace/capture_tally.hpp"
#include "workloads/trace/table_words.hpp"

// From the counts of a capture to its report.

namespace svmsim::workloads {

namespace {

/// systemtap and bpftrace print bare numbers, whose ISA only the user knows.
std::optional<KnownExit> known_row(const std::string& name, Isa numbers) {
  const std::optional<std::uint64_t> number = table_words::whole_number(name);
  return known_exit(number ? fmt::format("0x{:x}", *number) : name, numbers);
}

}  // namespace

void CaptureTally::sum(ImportReport& report, const Counts& counts) const {
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    if (counts.events[kind] != 0)
      report.events[std::string{event_name(static_cast<EventKind>(kind))}] += counts.events[kind];
  }
  for (std::size_t i = 0; i < counts.others.size(); ++i) {
    if (counts.others[i] != 0) report.events[other_names_[i]] += counts.others[i];
  }
  for (const ExitCount& one : counts.exits) {
    const std::string name = names_.exit_name(one.code);
    if (one.count != 0) report.exits[name] += one.count;
    if (one.spans.count == 0 || !report.durations) continue;
    Durations& all = (*report.durations)[name];
    all.min_ns = all.samples == 0 ? one.spans.least : std::min(all.min_ns, one.spans.least);
    all.max_ns = std::max(all.max_ns, one.spans.most);
    all.samples += one.spans.count;
    all.total_ns += one.spans.total;
  }
  std::uint64_t injections = 0;
  std::uint64_t wakeups = 0;
  for (std::size_t kind = 0; kind < cause_kinds; ++kind) {
    const std::string name{cause_name(static_cast<InterruptCause>(kind))};
    if (counts.causes[kind] != 0) report.causes[name] += counts.causes[kind];
    if (counts.wakeups[kind] != 0) report.wakeups[name] += counts.wakeups[kind];
    injections += counts.causes[kind];
    wakeups += counts.wakeups[kind];
  }
  constexpr auto unknown = static_cast<std::size_t>(InterruptCause::unknown);
  const auto cover = [&](const char* name, std::uint64_t value) {
    if (value != 0) report.coverage[name] += value;
  };
  cover("injections", injections);
  cover("injections_explained", injections - counts.causes[unknown]);
  cover("wakeups", wakeups);
  cover("wakeups_explained", wakeups - counts.wakeups[unknown]);
  cover("device_interrupts_open_loop", counts.open_loop);
  cover("device_interrupts_closed_loop", counts.closed_loop);
  const auto polling = [&](const char* name, std::uint64_t value) {
    if (value != 0) report.polling[name] += value;
  };
  polling("poll_succeeded", counts.polls[0]);
  polling("poll_succeeded_invalid", counts.polls[1]);
  polling("blocked", counts.polls[2]);
  polling("blocked_invalid", counts.polls[3]);
  polling("poll_ns", counts.poll_ns);
  polling("wait_ns", counts.wait_ns);
  report.unpaired.before_first_entry += counts.unpaired.before_first_entry;
  report.unpaired.overwritten += counts.unpaired.overwritten;
  report.unpaired.entry_alone += counts.unpaired.entry_alone;
}

void CaptureTally::fill_tables(ImportReport& report) const {
  for (const StatTable& table : tables_) {
    std::uint64_t rows = 0;
    for (const StatRow& row : table.rows) {
      if (!row.count) continue;
      const bool exit_child = row.parent == "kvm_exit" || row.parent == "kvm_userspace_exit";
      if (table.content == TableContent::exits) {
        const auto known = known_row(row.name, options_.isa.value_or(Isa::unknown));
        const std::string name = known && (known->isa == Isa::svm || known->isa == Isa::vmx)
                                     ? names_.exit_name(known->code)
                                     : row.name;
        report.exits[name] += *row.count;
        rows += *row.count;
        if (!known) report.unknown["exit reason " + row.name] += *row.count;
      } else if (table.content == TableContent::events && row.parent.empty()) {
        report.events[row.name] += *row.count;
      } else if (table.content == TableContent::events && exit_child && row.parent == "kvm_exit") {
        const std::size_t open = row.name.find('(');
        const std::string name = row.name.substr(open + 1, row.name.size() - open - 2);
        const auto known = known_exit(name);
        report.exits[known && known->code != 0 ? names_.exit_name(known->code) : name] += *row.count;
        if (!known) report.unknown["exit reason " + name] += *row.count;
      }
    }
    const auto note = [&](std::string text) {
      report.notes.push_back(Problem{report.source, table.first_line, "", std::move(text), ""}.text());
    };
    if (table.content == TableContent::exits && table.total_count && *table.total_count != rows) {
      note(fmt::format("the table's total says {} samples, its rows sum to {}: rows are missing",
                       *table.total_count, rows));
    }
    report.tables.push_back(table);
  }
}

void CaptureTally::fill_isa(ImportReport& report) const {
  std::map<Isa, std::string> seen;
  const auto see = [&](Isa isa, const std::string& name) {
    if (isa != Isa::unknown) seen.try_emplace(isa, name);
  };
  std::set<std::string> names;
  for (const auto& [name, count] : report.exits)
    names.insert(name);
  for (const std::uint64_t code : codes_)
    names.insert(names_.exit_name(code));
  for (const std::string& name : names) {
    // A number says nothing by itself, and "UNKNOWN" is every tool's.
    if (const auto known = known_exit(name, Isa::unknown)) see(known->isa, name);
  }
  for (const StatTable& table : tables_) {
    if (table.isa) see(*table.isa, table.format + " says so");
    if (table.content != TableContent::other) continue;
    for (const StatRow& row : table.rows) {
      if (const auto known = known_exit(row.name, Isa::unknown)) see(known->isa, row.name);
    }
  }
  for (const auto& [name, count] : report.events) {
    if (name == "kvm_irq_line" || name == "kvm_get_timer_map" || name == "kvm_timer_update_irq" ||
        name == "kvm_arm_set_dreg32") {
      see(Isa::arm64, name);
    }
  }
  bool numbers = false;
  for (const std::string& name : names)
    numbers = numbers || name.rfind("0x", 0) == 0;
  if (seen.size() == 1) {
    report.isa = isa_name(seen.begin()->first);
    report.isa_evidence = seen.begin()->second;
  } else if (seen.size() > 1) {
    report.isa = "mixed";
    report.isa_evidence = fmt::format("{} and {} are of two", seen.begin()->second, seen.rbegin()->second);
  } else if (options_.isa && *options_.isa != Isa::unknown) {
    report.isa = isa_name(*options_.isa);
    report.isa_evidence = "given by the user";
  } else {
    report.isa = numbers ? "svm" : "unknown";
    report.isa_evidence = numbers ? "exit codes without a name, printed as SVM's are" : "nothing tells";
  }
}

// `refused`: nothing of it can be used. `no_workload`: counts, but nothing to replay.
void CaptureTally::judge(ImportReport& report, bool has_events) const {
  std::string foreign;
  for (const auto& [name, count] : report.exits) {
    const auto known = known_exit(name, Isa::unknown);
    if (known && (known->isa == Isa::arm64 || known->isa == Isa::riscv) && foreign.empty()) foreign = name;
  }
  if (!foreign.empty() && (report.isa == "arm64" || report.isa == "riscv")) {
    report.refused = fmt::format(
        "the exit reasons are those of {} (\"{}\"): they stay as they are, since x86 has none "
        "of them",
        report.isa, foreign);
  } else if (!has_events && !tables_.empty()) {
    const bool other = std::all_of(tables_.begin(), tables_.end(), [](const StatTable& table) {
      return table.content == TableContent::other;
    });
    if (other && report.format == "perf top") {
      report.refused = "perf top shows shares of samples, not counts";
    } else if (other) {
      report.refused = fmt::format("{} counts no event of KVM: \"{}\"", report.format,
                                   tables_.front().rows.empty() ? "" : tables_.front().rows.front().name);
    }
  }
  if (report.refused) {
    report.no_workload = report.refused;
  } else if (!has_events && !tables_.empty()) {
    report.no_workload = "a table has counts, but no order and no causes";
  } else if (report.isa == "vmx" || report.isa == "mixed") {
    const auto vmx = std::find_if(report.exits.begin(), report.exits.end(), [](const auto& one) {
      const auto known = known_exit(one.first, Isa::unknown);
      return known && known->isa == Isa::vmx;
    });
    report.no_workload = fmt::format("the exit reasons are those of VMX (\"{}\"), not of SVM",
                                     vmx == report.exits.end() ? report.isa_evidence : vmx->first);
  } else if (report.vcpus.empty()) {
    report.no_workload = "there is no kvm_entry or kvm_exit that says which vCPU it belongs to";
  } else if (report.events.empty()) {
    report.no_workload = "the window holds no event";
  }
}

ImportReport CaptureTally::finish(const std::string& source, std::string_view format,
                                  std::uint64_t line_count, bool& window_missed) {
  causes_.finish();
  take_findings();
  ImportReport report;
  report.source = source;
  report.format = format;
  report.lines = line_count;
  report.time_base = time_base_;
  report.lost_events = lost_;
  report.unknown = unknown_;
  report.dropped = dropped_;
  report.problems = problems_;
  report.problem_count = problem_count_;
  report.notes = notes_;
  if (time_base_ == TimeBase::microseconds || time_base_ == TimeBase::nanoseconds) report.durations.emplace();
  if (!windowed_) sum(report, host_);
  const auto& streams = threads_.streams();
  std::map<std::pair<int, int>, ImportReport::Vcpu> by_vcpu;
  vcpus_.resize(streams.size());
  bool inside_any = false;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const Vcpu& one = vcpus_[i];
    if (windowed_ && one.state != WindowState::behind) continue;
    inside_any = true;
    sum(report, one.counts);
    if (one.exit_open && !windowed_) ++report.unpaired.open;
    const bool runs =
        streams[i].vcpu >= 0 || one.counts.events[static_cast<std::size_t>(EventKind::kvm_exit)] +
                                        one.counts.events[static_cast<std::size_t>(EventKind::kvm_entry)] !=
                                    0;
    if (!runs) continue;
    ImportReport::Vcpu& vcpu = by_vcpu[{streams[i].vm, std::max(streams[i].vcpu, 0)}];
    vcpu.vm = fmt::format("vm{}", streams[i].vm);
    vcpu.vcpu = std::max(streams[i].vcpu, 0);
    const SchedSums sched = sched_.sums(i);
    vcpu.sched.preempted += sched.preempted;
    vcpu.sched.blocked += sched.blocked;
    vcpu.sched.run_time += sched.run_time;
    vcpu.sched.queue_time += sched.queue_time;
    vcpu.sched.block_time += sched.block_time;
    for (const ExitCount& exit : one.counts.exits) {
      if (exit.count != 0) vcpu.exits[names_.exit_name(exit.code)] += exit.count;
    }
  }
  report.sched_known = sched_.seen() && report.durations.has_value();
  for (auto& [key, vcpu] : by_vcpu)
    report.vcpus.push_back(std::move(vcpu));
  window_missed = windowed_ && !inside_any && events_ != 0;
  for (std::size_t i = 0; i < other_names_.size(); ++i) {
    // Inside a window only what lies there is unknown.
    const auto found = report.events.find(other_names_[i]);
    if (found != report.events.end()) report.unknown[other_names_[i]] += found->second;
  }
  for (const std::string& reason : names_.foreign_exits) {
    const auto found = report.exits.find(reason);
    if (found != report.exits.end()) report.unknown["exit reason " + reason] += found->second;
  }
  if (threads_.overflow()) {
    report.notes.push_back(
        fmt::format("{}: more than {} vCPUs; the events of the others count for the whole only", source,
                    VcpuThreads::max_streams));
  }
  if (threads_.vm_count() > 1) report.vm_evidence = threads_.evidence();
  fill_tables(report);
  fill_isa(report);
  const GenerationGuess guess = probe_.guess();
  report.kernel = options_.kernel.value_or(guess.kernel);
  report.kernel_certain = options_.kernel.has_value() || guess.certain;
  report.kernel_evidence = options_.kernel ? "given by the user" : guess.evidence;
  ImportReport::CaptureSummary summary{title_, first_line_, line_count, 0, 0};
  for (const auto& [name, count] : report.events)
    summary.events += count;
  for (const auto& [name, count] : report.exits)
    summary.exits += count;
  report.captures.push_back(std::move(summary));
  judge(report, events_ != 0);
  return report;
}

}  // namespace svmsim::workloads
