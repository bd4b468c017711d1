#include "workloads/trace/vcpu_importer.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "svm/exit_code.hpp"

namespace svmsim::workloads {

using svm::ActionKind;
using svm::GuestAction;
namespace exit_code = svm::exit_code;

namespace {

bool is_host_exit(std::uint64_t code) {
  return code == exit_code::intr || code == exit_code::nmi || code == exit_code::smi;
}

}  // namespace

VcpuImporter::VcpuImporter(const Capture& capture, const VcpuStream& stream, const InterruptCauses& causes,
                           Options options)
    : capture_(capture), stream_(stream), interrupt_causes_(causes), options_(options) {
  result_.vm = stream.vm;
  result_.vcpu = stream.vcpu;
  contexts_.emplace_back();
}

const TraceEvent& VcpuImporter::event(std::size_t position) const {
  return capture_.events[stream_.events[position]];
}
std::uint64_t VcpuImporter::line(std::size_t position) const {
  return capture_.lines[stream_.events[position]];
}

const TraceEvent* VcpuImporter::detail(const Group& group, EventKind kind) const {
  for (std::size_t i = group.begin; i < group.end; ++i) {
    if (event(i).kind == kind) return &event(i);
  }
  return nullptr;
}

ReplayVcpu VcpuImporter::import() {
  Group group;
  group.first = true;
  for (std::size_t i = 0; i < stream_.events.size(); ++i) {
    const EventKind kind = event(i).kind;
    if (kind == EventKind::kvm_entry) {
      group.end = i;
      group.next_entry = i;
      process(group);
      group = Group{};
      group.begin = i + 1;
      group.entry = i;
    } else if (kind == EventKind::kvm_exit) {
      // A second exit without an entry between: a kernel whose kvm_entry stands outside the re-enter loop.
      if (group.exit != none) {
        group.end = i;
        process(group);
        group = Group{};
        group.begin = i;
      }
      group.exit = i;
    }
  }
  group.end = stream_.events.size();
  process(group);
  while (contexts_.size() > 1)
    return_from_handler();
  chain_rips(result_);
  return std::move(result_);
}

void VcpuImporter::process(const Group& group) {
  // kvm_pv_eoi tells that the handler wrote its EOI to memory before this exit.
  if (const TraceEvent* eoi = detail(group, EventKind::kvm_pv_eoi);
      eoi != nullptr && contexts_.size() > 1 && contexts_.back().vector == eoi->field[1]) {
    return_from_handler();
  }
  if (group.exit == none) {
    process_without_exit(group);
  } else {
    return_from_acknowledged_handlers(group);
    process_exit(group);
  }
  process_injections(group);
}

void VcpuImporter::note_rip(std::uint64_t rip) {
  if (!started_) result_.initial.rip = rip;
  started_ = true;
}

ReplayItem& VcpuImporter::append(ReplayItem item) {
  is_open_ = false;
  result_.items.push_back(item);
  return result_.items.back();
}

void VcpuImporter::insert(std::size_t at, const ReplayItem& item) {
  result_.items.insert(result_.items.begin() + static_cast<std::ptrdiff_t>(at), item);
  if (work_item_ >= at) ++work_item_;
}

ReplayItem VcpuImporter::inferred(ActionKind kind) {
  ReplayItem item;
  item.flags = replay_flag::inferred | replay_flag::chained;
  item.action.kind = kind;
  item.action.length = default_length(kind, 0);
  return item;
}

// Where exactly IF went off is not recorded: the earliest place is the one at which no interrupt can get lost
// before a HLT.
void VcpuImporter::require_interrupts_off() {
  Context& context = contexts_.back();
  if (contexts_.size() == 1) if_known_ = true;
  if (!context.interrupts_on) return;
  insert(context.resume, inferred(ActionKind::cli));
  context.interrupts_on = false;
}

// IF was on before the current exit's action.
void VcpuImporter::require_interrupts_on() {
  Context& context = contexts_.back();
  if (!context.interrupts_on) {
    if (contexts_.size() == 1 && !if_known_) {
      result_.initial.interrupts_enabled = true;
    } else {
      insert(work_item_, inferred(ActionKind::sti));
    }
  }
  if (contexts_.size() == 1) if_known_ = true;
  context.interrupts_on = true;
  context.resume = result_.items.size();
}

void VcpuImporter::return_from_handler() {
  append(inferred(ActionKind::iret));
  open_at_ = contexts_.back().return_rip;
  is_open_ = true;
  contexts_.pop_back();
  // The interrupt was taken, so IF was on where the handler returns to.
  contexts_.back().interrupts_on = true;
  contexts_.back().resume = result_.items.size();
}

// The return is put off until the guest makes progress: a host interrupt may strike between EOI and IRET.
void VcpuImporter::return_from_acknowledged_handlers(const Group& group) {
  const TraceEvent& exit = event(group.exit);
  const bool stands = group.entry != none && is_host_exit(exit.field[0]) && event(group.entry).has_field(0) &&
                      event(group.entry).field[0] == exit.field[1];
  if (stands) return;
  while (contexts_.size() > 1 && contexts_.back().acknowledged)
    return_from_handler();
}

// The recording begins in the middle of an exit: its details say what the guest had done.
void VcpuImporter::process_without_exit(const Group& group) {
  if (!group.first) {
    if (group.next_entry != none) ++dropped_["kvm_entry without a kvm_exit before it"];
    return;
  }
  ReplayItem item;
  item.flags = replay_flag::partial;
  GuestAction& action = item.action;
  bool found = false;
  if (detail(group, EventKind::kvm_msr) != nullptr || detail(group, EventKind::kvm_apic) != nullptr) {
    const TraceEvent* msr = detail(group, EventKind::kvm_msr);
    found = fill_msr(group, msr == nullptr || msr->field[0] != 0, action);
  } else if (detail(group, EventKind::kvm_pio) != nullptr) {
    fill_io(group, 0, action);
    found = true;
  } else if (detail(group, EventKind::kvm_hypercall) != nullptr) {
    found = fill_action(group, exit_code::vmmcall, item);
  } else if (detail(group, EventKind::kvm_cpuid) != nullptr) {
    found = fill_action(group, exit_code::cpuid, item);
  }
  const bool has_rip = group.next_entry != none && event(group.next_entry).has_field(0);
  if (!found) {
    if (has_rip) note_rip(event(group.next_entry).field[0]);
    return;
  }
  action.length = default_length(action.kind, action.number);
  if (has_rip) action.rip = event(group.next_entry).field[0] - action.length;
  note_rip(action.rip);
  item.line = line(group.begin);
  count_undecidable("the recording begins inside an exit: its kvm_exit is missing");
  append(item);
}

// The interrupt window opened at `rip`.
void VcpuImporter::append_window(const Group& group, std::uint64_t rip) {
  // Behind a HLT that ran in the shadow of STI, or where a handler returned to, the window is open already.
  if (is_open_ && open_at_ == rip) return;
  require_interrupts_off();
  append_work(group);
  ReplayItem sti = inferred(ActionKind::sti);
  sti.flags = replay_flag::inferred;
  sti.action.rip = rip - 2;
  append(sti);
  append(inferred(ActionKind::nop));
  contexts_.back().interrupts_on = true;
  if (!options_.hlt_exits_somewhere) {
    count_undecidable("interrupt windows behind which a HLT without an exit may hide (idle HLT)");
  }
}

void VcpuImporter::append_host_interrupt(const Group& group, ReplayItem item) {
  const std::uint64_t rip = item.action.rip;
  const bool stands = delivery_was_cut(group) || (is_open_ && open_at_ == rip);
  const bool open = is_open_;
  work_item_ = result_.items.size();
  if (!stands) append_work(group);
  item.kind = ReplayKind::host_interrupt;
  append(item);
  is_open_ = open && stands;
}

void VcpuImporter::append_hlt(const Group& group, const ReplayItem& item) {
  // Whoever halts is in no handler any more.
  while (contexts_.size() > 1)
    return_from_handler();
  require_interrupts_off();
  append_work(group);
  ReplayItem sti = inferred(ActionKind::sti);
  sti.flags = replay_flag::inferred;
  sti.action.rip = item.action.rip - sti.action.length;
  append(sti);
  append(item);
  contexts_.back().interrupts_on = true;
  contexts_.back().resume = result_.items.size();
  open_at_ = item.action.next_rip();
  is_open_ = true;
}

void VcpuImporter::note_handler_rip(const Group& group, std::uint64_t rip) {
  if (contexts_.size() == 1 || delivery_was_cut(group)) return;
  // The gate itself is not recorded: the lowest rIP of an exit in the handler stands for it.
  const auto [entry, fresh] = result_.handler_entry.emplace(contexts_.back().vector, rip);
  if (!fresh) entry->second = std::min(entry->second, rip);
}

void VcpuImporter::process_exit(const Group& group) {
  const TraceEvent& exit = event(group.exit);
  const std::uint64_t code = exit.field[0];
  const std::uint64_t rip = exit.field[1];
  note_rip(rip);
  if (code == exit_code::vintr) {
    append_window(group, rip);
    return;
  }
  ReplayItem item;
  item.line = line(group.exit);
  item.exit_code = code;
  item.action.rip = rip;
  if (group.next_entry == none && group.end == stream_.events.size()) item.flags |= replay_flag::open_end;
  if (is_host_exit(code)) {
    note_handler_rip(group, rip);
    append_host_interrupt(group, item);
    return;
  }
  if (code == exit_code::npf) {
    note_handler_rip(group, rip);
    append_npf(group, item);
    return;
  }
  if (!fill_action(group, code, item)) {
    note_handler_rip(group, rip);
    append_work(group);
    item.kind = ReplayKind::opaque;
    item.action.operand[0] = exit.field[2];
    item.action.operand[1] = exit.field[3];
    append(item);
    count_undecidable(fmt::format("exits that svmsim cannot replay: {}", capture_.exit_name(code)));
    return;
  }
  item.exit_code = 0;
  if (exit_is_behind_fastpath(group)) {
    item.action.rip = rip - default_length(item.action.kind, 0);
    if (result_.items.empty()) result_.initial.rip = item.action.rip;
  }
  fill_length(group, item.action);
  if (item.action.kind == ActionKind::hlt) {
    append_hlt(group, item);
    return;
  }
  note_handler_rip(group, item.action.rip);
  append_work(group);
  append(item);
}

void VcpuImporter::push_handler(const Group& group, std::size_t position) {
  const auto vector = static_cast<std::uint8_t>(event(position).field[0]);
  const Cause cause = interrupt_causes_.of(stream_.events[position]);
  ++cause_counts_[std::string{cause_name(cause.kind)}];
  ReplayItem item;
  item.kind = ReplayKind::interrupt;
  item.vector = vector;
  item.cause = cause.kind;
  item.cause_vcpu = cause.kind == InterruptCause::ipi ? cause.sender : -1;
  item.cause_line = cause.accept_line;
  item.source_line = cause.source_line;
  item.line = line(position);
  if (group.next_entry != none && event(group.next_entry).has_field(0)) {
    item.action.rip = event(group.next_entry).field[0];
  } else if (group.exit != none) {
    item.action.rip = event(group.exit).field[1];
  }
  append(item);
  Context& handler = contexts_.emplace_back();
  handler.vector = vector;
  handler.return_rip = item.action.rip;
  handler.resume = result_.items.size();
}

void VcpuImporter::process_injections(const Group& group) {
  for (std::size_t i = group.begin; i < group.end; ++i) {
    const TraceEvent& one = event(i);
    if (one.kind == EventKind::kvm_eoi && contexts_.size() > 1 && contexts_.back().vector == one.field[1]) {
      contexts_.back().acknowledged = true;
    } else if (one.kind == EventKind::kvm_inj_exception) {
      ++dropped_["injected exceptions"];
    } else if (one.kind == EventKind::kvm_inj_virq) {
      // An injection that was cut short, or preempted before VMRUN, comes again: still the same interrupt.
      const bool cut = group.exit != none && delivery_was_cut(group) &&
                       (event(group.exit).field[4] & 0xffU) == one.field[0];
      const bool again = one.has_field(2) ? one.field[2] != 0 : cut;
      if (again) continue;
      if (one.field[1] != 0) {
        ++dropped_["injected software interrupts"];
        continue;
      }
      const bool window = group.exit != none && event(group.exit).field[0] == exit_code::vintr;
      if (!window) require_interrupts_on();
      contexts_.back().resume = result_.items.size();
      push_handler(group, i);
    }
  }
}

}  // namespace svmsim::workloads
