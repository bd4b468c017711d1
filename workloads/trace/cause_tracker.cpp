#include "workloads/trace/cause_tracker.hpp"

#include <algorithm>

#include "svm/exit_code.hpp"
#include "workloads/trace/text_scanner.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::uint64_t hypercall_send_ipi = 10;
constexpr std::size_t max_sources = 16;
constexpr std::size_t max_foreign_threads = 65'536;
constexpr std::size_t max_accepts = 1'048'576;

constexpr std::uint64_t msr_tsc_deadline = 0x6e0;
constexpr std::uint64_t apic_lvtt = 0x320;
constexpr std::uint64_t apic_tmict = 0x380;
constexpr std::uint64_t vmx_hlt = vmx_exit_base + 12;

bool is_halt(std::uint64_t code) {
  return code == svm::exit_code::hlt || code == svm::exit_code::idle_hlt || code == vmx_hlt;
}

bool is_lowest_priority_or_fixed(std::uint64_t icr) {
  return (icr >> 8 & 7U) <= 1;
}

}  // namespace

bool CauseTracker::wants_text(std::string_view event_name) {
  return event_name == "kvm_set_irq" || event_name == "kvm_msi_set_irq" ||
         event_name == "kvm_ioapic_set_irq" || event_name == "kvm_pic_set_irq";
}

std::uint64_t CauseTracker::key_of(int vm, std::uint64_t vcpu, std::uint64_t vector) noexcept {
  return static_cast<std::uint64_t>(vm) << 40 | (vcpu & 0xffff'ffffU) << 8 | (vector & 0xffU);
}

CauseTracker::Vcpu& CauseTracker::vcpu(std::size_t stream) {
  if (stream >= vcpus_.size()) vcpus_.resize(stream + 1);
  return vcpus_[stream];
}

std::size_t CauseTracker::stream_of(int vm, std::uint64_t vcpu) const {
  const auto& streams = threads_.streams();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].vm == vm && streams[i].vcpu >= 0 && static_cast<std::uint64_t>(streams[i].vcpu) == vcpu)
      return i;
  }
  return VcpuThreads::none;
}

CauseTracker::Context& CauseTracker::context_of(const ReadEvent& read, std::size_t stream) {
  if (stream != VcpuThreads::none) return vcpu(stream).context;
  if (foreign_.size() > max_foreign_threads) foreign_.clear();
  return foreign_[read.event.tid];
}

// The IPI of an exit. 6.18 prints it behind what it brought: what was accepted in this exit without a source
// was its doing.
void CauseTracker::ipi(const ReadEvent& read, std::size_t stream, int vector) {
  Context& context = context_of(read, stream);
  Source source;
  source.vector = vector;
  source.line = read.line;
  for (const std::uint64_t key : context.open_accepts) {
    if ((key & 0xffU) != static_cast<std::uint64_t>(vector)) continue;
    const auto found = accepts_.find(key);
    if (found == accepts_.end()) continue;
    Accept& accept = found->second;
    const int vm = static_cast<int>(key >> 40);
    const std::uint64_t target = key >> 8 & 0xffff'ffffU;
    if (accept.learned_timer) {
      const std::size_t at = stream_of(vm, target);
      if (at != VcpuThreads::none) {
        Timer& timer = vcpu(at).timer;
        timer.armed = true;
        timer.learned = false;
        timer.vector = -1;
      }
      accept.learned_timer = false;
    }
    blame(accept, source, vm, stream);
  }
  if (context.sources.size() < max_sources) context.sources.push_back(source);
}

void CauseTracker::blame(Accept& accept, const Source& source, int vm, std::size_t sender) {
  Cause& cause = accept.cause;
  cause.source_line = source.line;
  if (source.kind == SourceKind::ipi) {
    if (sender == VcpuThreads::none) return;
    cause.kind = InterruptCause::ipi;
    accept.sender = sender;
    return;
  }
  cause.kind = source.kind == SourceKind::msi ? InterruptCause::device_msi : InterruptCause::device_line;
  const std::uint64_t accesses = device_accesses_[vm];
  const std::uint64_t id = source.kind == SourceKind::msi
                               ? std::uint64_t{1} << 32 | static_cast<std::uint64_t>(source.vector)
                               : source.id & 0xffff'ffffU;
  std::uint64_t& seen = device_seen_[static_cast<std::uint64_t>(vm) << 40 | id];
  cause.closed_loop = accesses != seen;
  seen = accesses;
}

// Whose IPI it was is said last: the lines before a vCPU's first kvm_entry do not number it.
Cause CauseTracker::settled(Cause cause, std::size_t sender, std::size_t receiver) const {
  if (cause.kind != InterruptCause::ipi || sender == VcpuThreads::none) return cause;
  cause.sender = threads_.streams()[sender].vcpu;
  const VcpuThreads::Stream& one = threads_.streams()[receiver];
  const VcpuThreads::Stream& other = threads_.streams()[sender];
  if (sender == receiver || (one.vm == other.vm && one.vcpu == other.vcpu))
    cause.kind = InterruptCause::self_ipi;
  return cause;
}

bool CauseTracker::timer_fires(Timer& timer, int vector, Cause& cause, bool& learned) {
  if (timer.masked) return false;
  if (timer.known || timer.learned) {
    if (timer.vector != vector) return false;
  } else {
    if (!timer.armed) return false;
    timer.vector = vector;
    timer.learned = true;
    learned = true;
  }
  cause.kind = InterruptCause::lapic_timer;
  cause.source_line = timer.line;
  if (!timer.periodic) {
    timer.armed = false;
    timer.line = 0;
  }
  return true;
}

void CauseTracker::accept(const ReadEvent& read, std::size_t stream) {
  Context& context = context_of(read, stream);
  if (stream != VcpuThreads::none) {
    accept_at(read, threads_.streams()[stream].vm, context, stream, false);
    return;
  }
  // Of a thread of the host: the VM is not said. With several VMs that have such a vCPU it stays open.
  std::vector<int> vms;
  for (const VcpuThreads::Stream& one : threads_.streams()) {
    const bool target = one.vcpu >= 0 && static_cast<std::uint64_t>(one.vcpu) == read.event.field[0];
    if (target && std::find(vms.begin(), vms.end(), one.vm) == vms.end()) vms.push_back(one.vm);
  }
  if (vms.empty()) vms.push_back(0);
  for (const int vm : vms)
    accept_at(read, vm, context, stream, vms.size() > 1);
  context.sources.clear();
}

void CauseTracker::accept_at(const ReadEvent& read, int vm, Context& context, std::size_t sender,
                             bool ambiguous) {
  const std::uint64_t target = read.event.field[0];
  const int vector = static_cast<int>(read.event.field[3] & 0xffU);
  const std::uint64_t key = key_of(vm, target, read.event.field[3]);
  const std::size_t at = stream_of(vm, target);
  if (accepts_.size() > max_accepts) accepts_.clear();
  Accept& accept = accepts_[key];
  accept = Accept{};
  accept.serial = ++serial_;
  const auto best = [&]() -> const Source* {
    for (auto one = context.sources.rbegin(); one != context.sources.rend(); ++one) {
      if (one->kind == SourceKind::line || one->vector == vector || one->other_vector == vector) return &*one;
    }
    return nullptr;
  };
  const Source* const source = ambiguous ? nullptr : best();
  if (source != nullptr) {
    blame(accept, *source, vm, sender);
  } else if (!ambiguous) {
    if (at != VcpuThreads::none) {
      (void)timer_fires(vcpu(at).timer, vector, accept.cause, accept.learned_timer);
    }
    if (sender != VcpuThreads::none && context.open_accepts.size() < max_sources &&
        (accept.cause.kind == InterruptCause::unknown || accept.learned_timer)) {
      context.open_accepts.push_back(key);
    }
  }
  accept.cause.accept_line = read.line;
  if (at != VcpuThreads::none) {
    Vcpu& receiver = vcpu(at);
    receiver.last_accept_key = key;
    receiver.last_accept_line = read.line;
  }
}

void CauseTracker::injection(const ReadEvent& read, std::size_t stream, std::uint64_t token) {
  const VcpuThreads::Stream& owner = threads_.streams()[stream];
  const bool virtualised = read.event.kind == EventKind::kvm_apicv_accept_irq;
  const std::uint64_t vector = read.event.field[virtualised ? 3 : 0];
  Injection one;
  one.token = token;
  const std::uint64_t target =
      virtualised ? read.event.field[0] : static_cast<std::uint64_t>(std::max(owner.vcpu, 0));
  one.key = key_of(owner.vm, target, vector);
  const auto found = accepts_.find(one.key);
  if (found != accepts_.end()) {
    one.serial = found->second.serial;
    one.cause = found->second.cause;
    one.sender = found->second.sender;
  } else {
    // The PIC delivers without the LAPIC: its base is a multiple of eight, so the pin shows in the vector.
    const Pin* pin = nullptr;
    for (std::size_t i = 0; i < pins_.size(); ++i) {
      if (pins_[i].raised && (i & 7U) == (vector & 7U) && (pin == nullptr || pins_[i].line > pin->line)) {
        pin = &pins_[i];
      }
    }
    if (pin != nullptr) {
      one.cause.kind = InterruptCause::device_line;
      one.cause.source_line = pin->line;
      const std::uint64_t accesses = device_accesses_[owner.vm];
      std::uint64_t& seen = device_seen_[static_cast<std::uint64_t>(owner.vm) << 40 | (vector & 7U)];
      one.cause.closed_loop = accesses != seen;
      seen = accesses;
    }
  }
  vcpu(stream).injections.push_back(one);
}

void CauseTracker::settle_injections(std::size_t stream) {
  Vcpu& owner = vcpu(stream);
  for (Injection& one : owner.injections) {
    const auto found = accepts_.find(one.key);
    if (found != accepts_.end() && found->second.serial == one.serial) {
      one.cause = found->second.cause;
      one.sender = found->second.sender;
    }
    findings_.push_back({false, stream, one.token, settled(one.cause, one.sender, stream)});
  }
  owner.injections.clear();
}

void CauseTracker::wakeup(std::size_t stream, std::uint64_t token) {
  settle_wakeup(stream);
  Vcpu& owner = vcpu(stream);
  owner.waking = true;
  owner.wake_token = token;
}

void CauseTracker::settle_wakeup(std::size_t stream) {
  Vcpu& owner = vcpu(stream);
  if (!owner.waking) return;
  owner.waking = false;
  Finding finding;
  finding.wakeup = true;
  finding.stream = stream;
  finding.token = owner.wake_token;
  const auto found = accepts_.find(owner.last_accept_key);
  if (owner.last_accept_line > owner.halted_line && found != accepts_.end()) {
    finding.cause = settled(found->second.cause, found->second.sender, stream);
  } else if (owner.waker_known) {
    finding.cause.kind = InterruptCause::host;
  }
  owner.waker_known = false;
  owner.last_accept_line = 0;  // it has woken somebody: not the next time again
  findings_.push_back(finding);
}

void CauseTracker::timer_write(std::size_t stream, const ReadEvent& read) {
  const TraceEvent& event = read.event;
  if (event.field[0] == 0) return;
  Timer& timer = vcpu(stream).timer;
  if (event.kind == EventKind::kvm_msr) {
    if (event.field[1] != msr_tsc_deadline) return;
    timer.armed = event.field[2] != 0;
    timer.periodic = false;
    timer.line = read.line;
  } else if (event.field[1] == apic_lvtt) {
    timer.known = true;
    timer.vector = static_cast<int>(event.field[2] & 0xffU);
    timer.masked = (event.field[2] >> 16 & 1U) != 0;
    timer.periodic = (event.field[2] >> 17 & 3U) == 1;
  } else if (event.field[1] == apic_tmict) {
    timer.armed = event.field[2] != 0;
    timer.line = read.line;
  }
}

void CauseTracker::device_access(std::size_t stream) {
  if (stream != VcpuThreads::none) ++device_accesses_[threads_.streams()[stream].vm];
}

void CauseTracker::other(const ReadEvent& read, std::size_t stream) {
  if (read.name.substr(0, 4) != "kvm_") return;
  if (read.name == "kvm_fast_mmio") {
    device_access(stream);
    return;
  }
  TextScanner scan(read.text);
  std::uint64_t number = 0;
  if (read.name == "kvm_set_irq") {
    std::uint64_t level = 0;
    if (!scan.literal("gsi ") || !scan.decimal(number) || !scan.literal(" level ") || !scan.decimal(level))
      return;
    Context& context = context_of(read, stream);
    context.sources.erase(std::remove_if(context.sources.begin(), context.sources.end(),
                                         [](const Source& one) { return one.kind == SourceKind::line; }),
                          context.sources.end());
    if (level == 0 || context.sources.size() >= max_sources) return;
    Source source;
    source.kind = SourceKind::line;
    source.line = read.line;
    source.id = number;
    context.sources.push_back(source);
  } else if (read.name == "kvm_msi_set_irq") {
    if (!scan.literal("dst ") || !scan.hex(number) || !scan.literal(" vec ")) return;
    Source source;
    source.kind = SourceKind::msi;
    source.line = read.line;
    TextScanner decimal = scan;
    if (decimal.decimal(number) && decimal.literal(" ") && number < 256)
      source.vector = static_cast<int>(number);
    if (scan.hex(number) && scan.literal(" ") && number < 256) source.other_vector = static_cast<int>(number);
    if (source.vector < 0) source.vector = source.other_vector;
    Context& context = context_of(read, stream);
    if (context.sources.size() < max_sources) context.sources.push_back(source);
  } else if (read.name == "kvm_pic_set_irq") {
    std::uint64_t pin = 0;
    if (!scan.literal("chip ") || !scan.decimal(number) || !scan.literal(" pin ") || !scan.decimal(pin))
      return;
    if (number > 1 || pin > 7) return;
    Pin& one = pins_[number * 8 + pin];
    one.raised = scan.rest().find("masked") == std::string_view::npos;
    one.line = read.line;
    // It is the last event of an injection through a line.
    if (stream == VcpuThreads::none) context_of(read, stream).sources.clear();
  }
}

void CauseTracker::event(const ReadEvent& read, std::size_t stream, std::uint64_t token) {
  const TraceEvent& event = read.event;
  const bool is_vcpu = stream != VcpuThreads::none;
  switch (event.kind) {
    case EventKind::kvm_entry: {
      if (!is_vcpu) return;
      settle_wakeup(stream);
      Context& context = vcpu(stream).context;
      context.sources.clear();
      context.open_accepts.clear();
      return;
    }
    case EventKind::kvm_exit:
      if (!is_vcpu) return;
      settle_injections(stream);
      if (is_halt(event.field[0])) vcpu(stream).halted_line = read.line;
      return;
    case EventKind::kvm_apic_ipi:
      if (is_lowest_priority_or_fixed(event.field[0]))
        ipi(read, stream, static_cast<int>(event.field[0] & 0xffU));
      return;
    case EventKind::kvm_hypercall:
      if (event.field[0] == hypercall_send_ipi) ipi(read, stream, static_cast<int>(event.field[4] & 0xffU));
      return;
    case EventKind::kvm_apicv_accept_irq:
      if (is_vcpu) injection(read, stream, token);
      return;
    case EventKind::kvm_apic_accept_irq:
      accept(read, stream);
      return;
    case EventKind::kvm_apic:
    case EventKind::kvm_msr:
      if (is_vcpu) timer_write(stream, read);
      return;
    case EventKind::kvm_inj_virq:
      if (!is_vcpu || event.field[1] != 0 || event.field[2] != 0) return;  // INTn, or the same once more
      injection(read, stream, token);
      return;
    case EventKind::kvm_vcpu_wakeup:
      if (is_vcpu) {
        wakeup(stream, token);
      }
      return;
    case EventKind::sched_waking: {
      const std::size_t woken = threads_.stream_of_thread(static_cast<std::int32_t>(event.field[0]));
      if (woken != VcpuThreads::none) vcpu(woken).waker_known = true;
      return;
    }
    case EventKind::kvm_pio:
    case EventKind::kvm_mmio:
      device_access(stream);
      return;
    case EventKind::other:
      other(read, stream);
      return;
    default:
      return;
  }
}

void CauseTracker::finish() {
  for (std::size_t i = 0; i < vcpus_.size() && i < threads_.streams().size(); ++i) {
    settle_injections(i);
    settle_wakeup(i);
  }
}

}  // namespace svmsim::workloads
