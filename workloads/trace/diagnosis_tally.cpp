#include "workloads/trace/diagnosis_tally.hpp"

#include <algorithm>

#include "svm/exit_code.hpp"
#include "workloads/trace/exit_vocabulary.hpp"

namespace svmsim::workloads {

using Vcpu = DiagnosisFacts::Vcpu;

namespace {

constexpr std::size_t most_windows = 64;
constexpr std::size_t most_injections = 32;
constexpr std::size_t most_msrs = 64;
constexpr std::uint64_t short_wait_ns = 200'000;  // kvm.halt_poll_ns of x86

constexpr std::uint64_t msr_tsc_deadline = 0x6e0;
constexpr std::uint64_t apic_tpr = 0x80;
constexpr std::uint64_t apic_eoi = 0xb0;
constexpr std::uint64_t apic_icr = 0x300;
constexpr std::uint64_t apic_tmict = 0x380;

bool is_halt(std::uint64_t code) {
  constexpr std::uint64_t vmx_hlt = vmx_exit_base + 12;
  return code == svm::exit_code::hlt || code == svm::exit_code::idle_hlt || code == vmx_hlt;
}

/// Exits that the guest had no part in: it goes on where it was.
bool is_of_host(std::uint64_t code) {
  constexpr std::uint64_t vmx_external_interrupt = vmx_exit_base + 1;
  constexpr std::uint64_t vmx_interrupt_window = vmx_exit_base + 7;
  constexpr std::uint64_t vmx_preemption_timer = vmx_exit_base + 52;
  return code == svm::exit_code::intr || code == svm::exit_code::nmi || code == svm::exit_code::smi ||
         code == svm::exit_code::vintr || code == vmx_external_interrupt || code == vmx_interrupt_window ||
         code == vmx_preemption_timer;
}

DiagnosisFacts::ExitSum& sum_of(Vcpu& vcpu, std::uint64_t code) {
  for (DiagnosisFacts::ExitSum& sum : vcpu.sums) {
    if (sum.code == code) return sum;
  }
  constexpr std::size_t most = 4096;
  if (vcpu.sums.size() < most) {
    vcpu.sums.emplace_back();
    vcpu.sums.back().code = code;
  }
  return vcpu.sums.back();
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

}  // namespace

// Where an event is counted: its stream, or, when no thread is known to be a vCPU, the vCPU that it names.
std::size_t DiagnosisTally::place(const ReadEvent& read, std::size_t stream) {
  constexpr std::uint64_t loose = std::uint64_t{1} << 62;
  // A recording of nothing but polling windows has a stream without a number, and several vCPUs in it.
  const bool named = read.event.kind == EventKind::kvm_halt_poll_ns && read.event.vcpu >= 0;
  const bool known = stream != VcpuThreads::none && !(named && threads_.streams()[stream].vcpu < 0);
  const std::uint64_t key = known ? stream : loose + static_cast<std::uint32_t>(read.event.vcpu);
  const auto [found, fresh] = places_.try_emplace(key, facts_.vcpus.size());
  if (fresh) {
    facts_.vcpus.emplace_back();
    states_.emplace_back();
    Vcpu& vcpu = facts_.vcpus.back();
    vcpu.vcpu = read.event.vcpu;
    vcpu.first_time = read.event.time;
  }
  return found->second;
}

void DiagnosisTally::event(const ReadEvent& read) {
  const TraceEvent& event = read.event;
  const std::size_t stream = threads_.assign(event, read.tgid);
  Seen& seen = seen_[number_ % remembered];
  if (number_ >= remembered) numbers_.erase(seen.line);
  seen = {read.line, event.time, static_cast<unsigned>(event.field[0])};
  if (event.kind == EventKind::kvm_apicv_accept_irq) seen.vector = static_cast<unsigned>(event.field[3]);
  numbers_[read.line] = number_;
  causes_.event(read, stream, number_++);
  take_findings();
  shared(read);
  const bool loose = event.kind == EventKind::kvm_vcpu_wakeup || event.kind == EventKind::kvm_halt_poll_ns;
  if (stream == VcpuThreads::none && !loose) return;
  const std::size_t at = place(read, stream);
  Vcpu& vcpu = facts_.vcpus[at];
  State& state = states_[at];
  vcpu.last_time = std::max(vcpu.last_time, event.time);
  switch (event.kind) {
    case EventKind::kvm_entry:
      entry(vcpu, state, read);
      break;
    case EventKind::kvm_exit:
      exit(vcpu, state, read);
      break;
    case EventKind::kvm_page_fault:
      state.address = event.field[1];
      break;
    case EventKind::kvm_inj_virq:
      if (event.has_field(2) && event.field[2] != 0) {
        state.reinjected = true;
        state.vector = static_cast<int>(event.field[0]);
      }
      break;
    case EventKind::kvm_inj_exception:
      if (event.has_field(3) && event.field[3] != 0) {
        state.reinjected = true;
        state.vector = static_cast<int>(event.field[0]);
      }
      break;
    case EventKind::kvm_vcpu_wakeup:
      wakeup(vcpu, state, event);
      break;
    case EventKind::kvm_halt_poll_ns:
      window(vcpu, state, read);
      break;
    case EventKind::kvm_msr:
    case EventKind::kvm_apic:
      access(vcpu, event);
      break;
    default:
      break;
  }
}

void DiagnosisTally::entry(Vcpu& vcpu, State& state, const ReadEvent& read) {
  const TraceEvent& event = read.event;
  ++vcpu.entries;
  if (state.in_host && event.time >= state.exit_time) {
    const std::uint64_t span = event.time - state.exit_time;
    if (state.counts) sum_of(vcpu, state.exit_code).spans.add(span);
    if (state.counts && is_halt(state.exit_code)) {
      vcpu.halts.all.add(span);
      if (!state.woke) vcpu.halts.pending.add(span);
    }
    stood_still(vcpu, state, event);
  }
  state.in_host = false;
  state.entered = true;
  state.entry_time = event.time;
  state.woke = false;
  state.reinjected = false;
}

// The same exit, at the same rIP and address, that went back there: nothing has moved.
void DiagnosisTally::stood_still(Vcpu& vcpu, State& state, const TraceEvent& entry) {
  DiagnosisFacts::Repeat& run = state.run;
  const bool returns = !entry.has_field(0) || entry.field[0] == state.exit_rip;
  if (!returns) {
    run = {};
    return;
  }
  if (is_of_host(state.exit_code)) return;  // says nothing of the guest's own way
  const bool same = run.count != 0 && run.code == state.exit_code && run.rip == state.exit_rip &&
                    run.address == state.address;
  if (!same) {
    run = {};
    run.code = state.exit_code;
    run.rip = state.exit_rip;
    run.address = state.address;
    run.first_line = state.exit_line;
    run.first_time = state.exit_time;
  }
  ++run.count;
  run.last_line = state.exit_line;
  run.last_time = state.exit_time;
  run.returns_known = entry.has_field(0);
  if (state.reinjected) {
    ++run.reinjections;
    run.vector = state.vector;
  }
  if (run.count > vcpu.repeat.count) vcpu.repeat = run;
}

void DiagnosisTally::exit(Vcpu& vcpu, State& state, const ReadEvent& read) {
  const TraceEvent& event = read.event;
  ++vcpu.exits;
  ++sum_of(vcpu, event.field[0]).exits;
  if (state.entered && !state.in_host && event.time >= state.entry_time)
    vcpu.guest_time += event.time - state.entry_time;
  state.in_host = true;
  state.counts = state.entered;
  state.exit_time = event.time;
  state.exit_code = event.field[0];
  state.exit_rip = event.field[1];
  state.exit_line = read.line;
  state.address = event.field[3];
  if (read.time_base == TimeBase::microseconds || read.time_base == TimeBase::nanoseconds) {
    constexpr std::uint64_t slot_ns = 1'000'000;
    const std::uint64_t slot = event.time / slot_ns;
    if (slot != state.slot) state.slot_exits = 0;
    state.slot = slot;
    vcpu.most_exits_per_ms = std::max(vcpu.most_exits_per_ms, ++state.slot_exits);
  }
}

void DiagnosisTally::wakeup(Vcpu& vcpu, State& state, const TraceEvent& event) {
  DiagnosisFacts::Halts& halts = vcpu.halts;
  const std::uint64_t ns = event.field[0];
  state.woke = true;
  if (event.has_field(2) && event.field[2] == 0) ++halts.invalid;
  if (event.field[1] == 0) {
    halts.polled.add(ns);
    state.window_before.reset();
    return;
  }
  halts.waited.add(ns);
  if (ns <= short_wait_ns) ++halts.short_waits;
  // kvm_halt_poll_ns of this halt comes before its kvm_vcpu_wakeup: the window that was polled is the old
  // one.
  const std::optional<std::uint64_t> window = state.window_before ? state.window_before : vcpu.windows.now_ns;
  state.window_before.reset();
  if (!window) ++halts.window_unknown;
  const std::uint64_t polled = window.value_or(0);
  if (polled == 0) return;
  ++halts.failed_polls;
  halts.wasted_ns += std::min(polled, ns);
}

void DiagnosisTally::window(Vcpu& vcpu, State& state, const ReadEvent& read) {
  const auto& f = read.event.field;
  const bool grow = f[0] != 0;
  DiagnosisFacts::Windows& windows = vcpu.windows;
  if (!windows.now_ns && vcpu.halts.window_unknown != 0) {
    // Every change is an event, so before the first one the window was what the first one found.
    if (f[2] != 0) {
      vcpu.halts.failed_polls += vcpu.halts.window_unknown;
      vcpu.halts.wasted_ns += vcpu.halts.window_unknown * f[2];
    }
    vcpu.halts.window_unknown = 0;
  }
  state.window_before = f[2];
  if (windows.changes.size() < most_windows)
    windows.changes.push_back({read.line, read.event.time, grow, f[1], f[2]});
  if (windows.grows + windows.shrinks != 0 && grow != windows.last_grow) ++windows.turns;
  ++(grow ? windows.grows : windows.shrinks);
  windows.last_grow = grow;
  windows.now_ns = f[1];
  windows.most_ns = std::max({windows.most_ns, f[1], f[2]});
}

void DiagnosisTally::access(Vcpu& vcpu, const TraceEvent& event) {
  const auto& f = event.field;
  const bool write = f[0] != 0;
  if (event.kind == EventKind::kvm_apic) {
    if (!write) return;
    if (f[1] == apic_icr) ++vcpu.icr_writes;
    if (f[1] == apic_eoi) ++vcpu.eoi_writes;
    if (f[1] == apic_tpr) ++vcpu.tpr_writes;
    if (f[1] == apic_tmict) ++vcpu.tmict_writes;
    return;
  }
  constexpr std::uint64_t x2apic_first = 0x800;
  constexpr std::uint64_t x2apic_last = 0x8ff;
  constexpr std::uint64_t synic_first = 0x4000'0080;
  constexpr std::uint64_t synic_last = 0x4000'009f;
  const std::uint64_t msr = f[1];
  if (msr >= x2apic_first && msr <= x2apic_last) ++facts_.x2apic_msrs;
  if (msr >= synic_first && msr <= synic_last) ++facts_.hyperv_msrs;
  if (write && msr == msr_tsc_deadline) ++vcpu.deadline_writes;
  const auto found = vcpu.msrs.find(msr);
  if (found != vcpu.msrs.end()) {
    ++found->second;
  } else if (vcpu.msrs.size() < most_msrs) {
    vcpu.msrs.emplace(msr, 1);
  }
}

// What is of no single vCPU.
void DiagnosisTally::shared(const ReadEvent& read) {
  const TraceEvent& event = read.event;
  switch (event.kind) {
    case EventKind::kvm_apic_accept_irq:
      ++facts_.accepted;
      break;
    case EventKind::kvm_apicv_accept_irq:
      ++facts_.accepted_apicv;
      break;
    case EventKind::kvm_apicv_inhibit_changed:
      facts_.inhibits = event.field[2];
      if (event.field[1] == 0) {
        ++facts_.inhibits_cleared;
      } else {
        ++facts_.inhibits_set;
        ++facts_.inhibit_reasons[static_cast<unsigned>(event.field[0] & 63U)];
      }
      break;
    case EventKind::svmsim_guest:
      ++facts_.markers;
      break;
    case EventKind::kvm_userspace_exit: {
      constexpr std::size_t most_reasons = 256;
      const auto key = std::make_pair(event.field[1] != 0 ? 0 : event.field[0], event.field[1]);
      if (facts_.userspace.size() < most_reasons || facts_.userspace.count(key) != 0) ++facts_.userspace[key];
      break;
    }
    case EventKind::other:
      if (starts_with(read.name, "kvm_nested_")) ++facts_.nested;
      if (read.name == "kvm_pic_set_irq") ++facts_.pic_lines;
      break;
    default:
      break;
  }
  if (!facts_.pit_thread && starts_with(read.comm, "kvm-pit/")) facts_.pit_thread = true;
}

void DiagnosisTally::take_findings() {
  for (const CauseTracker::Finding& finding : causes_.findings()) {
    if (finding.wakeup) continue;
    DiagnosisFacts::Latency& latency = facts_.causes[std::string{cause_name(finding.cause.kind)}];
    ++latency.count;
    const Seen& injected = seen_[finding.token % remembered];
    const bool known = number_ - finding.token <= remembered;
    DiagnosisFacts::Injection row;
    row.cause = finding.cause;
    const std::uint64_t from =
        finding.cause.source_line != 0 ? finding.cause.source_line : finding.cause.accept_line;
    const auto source = numbers_.find(from);
    // A timer's source is where it was armed, which says nothing of how long its interrupt took.
    const bool timer = finding.cause.kind == InterruptCause::lapic_timer;
    if (known && !timer && source != numbers_.end()) {
      const Seen& first = seen_[source->second % remembered];
      if (injected.time >= first.time) {
        row.latency = injected.time - first.time;
        latency.known.add(*row.latency);
      }
    }
    if (!known || facts_.injections.size() >= most_injections) continue;
    const VcpuThreads::Stream& stream = threads_.streams()[finding.stream];
    row.line = injected.line;
    row.vector = injected.vector;
    row.vm = stream.vm;
    row.vcpu = stream.vcpu;
    facts_.injections.push_back(row);
  }
  causes_.findings().clear();
}

DiagnosisFacts DiagnosisTally::finish() {
  causes_.finish();
  take_findings();
  for (const auto& [key, at] : places_) {
    const auto& streams = threads_.streams();
    if (key >= streams.size()) continue;
    facts_.vcpus[at].vm = streams[key].vm;
    if (streams[key].vcpu >= 0) facts_.vcpus[at].vcpu = streams[key].vcpu;
  }
  return std::move(facts_);
}

}  // namespace svmsim::workloads
