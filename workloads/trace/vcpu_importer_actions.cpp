#include "apic/apic_registers.hpp"
#include "svm/exit_code.hpp"
#include "workloads/trace/vcpu_importer.hpp"

// What the events of one exit say about the guest's action.

namespace svmsim::workloads {

using svm::ActionKind;
using svm::GuestAction;
namespace exit_code = svm::exit_code;

namespace {

constexpr std::uint64_t page_mask = ~std::uint64_t{0xfff};
constexpr std::uint64_t event_valid = std::uint64_t{1} << 31;
constexpr std::uint64_t npf_write = 2;

}  // namespace

bool VcpuImporter::fill_msr(const Group& group, bool write, GuestAction& action) {
  action.kind = write ? ActionKind::wrmsr : ActionKind::rdmsr;
  if (const TraceEvent* msr = detail(group, EventKind::kvm_msr)) {
    action.number = static_cast<std::uint32_t>(msr->field[1]);
    if (write) action.operand[0] = msr->field[2];
    return true;
  }
  // A capture may end before kvm_msr, or not record it: an x2APIC register shows in kvm_apic as well.
  if (const TraceEvent* apic = detail(group, EventKind::kvm_apic)) {
    action.number = apic::x2apic_msr(static_cast<std::uint32_t>(apic->field[1]));
    if (write) action.operand[0] = apic->field[2];
    return true;
  }
  if (detail(group, EventKind::kvm_eoi) != nullptr) {
    action.number = apic::msr_x2apic_eoi;
    return true;
  }
  return false;
}

// EXITINFO1 of IOIO: bit 0 IN, bits 6:4 the operand size, bits 31:16 the port. APM vol. 2, 15.10.2.
void VcpuImporter::fill_io(const Group& group, std::uint64_t info, GuestAction& action) {
  const TraceEvent* pio = detail(group, EventKind::kvm_pio);
  const bool write = pio != nullptr ? pio->field[0] != 0 : (info & 1U) == 0;
  action.kind = write ? ActionKind::out : ActionKind::in;
  action.number = static_cast<std::uint32_t>(pio != nullptr ? pio->field[1] : info >> 16 & 0xffffU);
  action.size = static_cast<std::uint8_t>(pio != nullptr ? pio->field[2] : info >> 4 & 7U);
  if (write && pio != nullptr) action.operand[0] = pio->field[4];
}

void VcpuImporter::fill_length(const Group& group, GuestAction& action) const {
  action.length = default_length(action.kind, action.number);
  if (action.length == 0 || group.next_entry == none || !event(group.next_entry).has_field(0)) return;
  constexpr std::uint64_t longest_instruction = 15;
  const std::uint64_t next = event(group.next_entry).field[0];
  if (next > action.rip && next - action.rip <= longest_instruction) {
    action.length = static_cast<std::uint8_t>(next - action.rip);
  }
}

bool VcpuImporter::fill_action(const Group& group, std::uint64_t code, ReplayItem& item) {
  GuestAction& action = item.action;
  const std::uint64_t info1 = group.exit == none ? 0 : event(group.exit).field[2];
  switch (code) {
    case exit_code::msr:
      return fill_msr(group, (info1 & 1U) != 0, action);
    case exit_code::ioio:
      fill_io(group, info1, action);
      return true;
    case exit_code::hlt:
    case exit_code::idle_hlt:
      action.kind = ActionKind::hlt;
      return true;
    case exit_code::pause:
      action.kind = ActionKind::pause;
      return true;
    case exit_code::rdtsc:
      action.kind = ActionKind::rdtsc;
      return true;
    case exit_code::cpuid:
      action.kind = ActionKind::cpuid;
      if (const TraceEvent* cpuid = detail(group, EventKind::kvm_cpuid)) {
        action.number = static_cast<std::uint32_t>(cpuid->field[0]);
        action.operand[0] = cpuid->field[1];
      } else {
        item.flags |= replay_flag::no_operand;
        count_undecidable("CPUID leaves, since kvm_cpuid was not recorded");
      }
      return true;
    case exit_code::vmmcall:
      action.kind = ActionKind::vmmcall;
      if (const TraceEvent* call = detail(group, EventKind::kvm_hypercall)) {
        action.number = static_cast<std::uint32_t>(call->field[0]);
        for (std::size_t i = 0; i < 4; ++i)
          action.operand[i] = call->field[i + 1];
      } else {
        item.flags |= replay_flag::no_operand;
        count_undecidable("hypercall numbers, since kvm_hypercall was not recorded");
      }
      return true;
    default:
      return false;
  }
}

bool VcpuImporter::delivery_was_cut(const Group& group) const {
  const TraceEvent& exit = event(group.exit);
  return exit.has_field(4) && (exit.field[4] & event_valid) != 0;
}

void VcpuImporter::append_npf(const Group& group, ReplayItem item) {
  const TraceEvent& exit = event(group.exit);
  const std::uint64_t address = exit.has_field(3) ? exit.field[3] : 0;
  if (delivery_was_cut(group)) {
    // Delivery reads the gate (16 bytes a vector in long mode) and the descriptor of the handler's code
    // segment.
    const std::uint64_t gate = (exit.field[4] & 0xffU) * 16;
    if (((address - gate) & ~page_mask) == 0) {
      result_.initial.idt_base = address - gate;
    } else {
      result_.initial.gdt_base = address & page_mask;
      result_.initial.code_selector = static_cast<std::uint16_t>(address & 0xff8U);
    }
    if (touched_[address & page_mask]++ == 0) result_.initial.absent_pages.push_back(address & page_mask);
    return;
  }
  append_work(group);
  GuestAction& action = item.action;
  item.exit_code = 0;
  action.kind = (exit.field[2] & npf_write) != 0 ? ActionKind::memory_write : ActionKind::memory_read;
  action.operand[1] = address;
  action.size = 1;
  if (const TraceEvent* apic = detail(group, EventKind::kvm_apic)) {
    item.flags |= replay_flag::mmio;
    action.size = 4;
    action.kind = apic->field[0] != 0 ? ActionKind::memory_write : ActionKind::memory_read;
    if (apic->field[0] != 0) action.operand[0] = apic->field[2];
  } else {
    item.flags |= replay_flag::fault;
    if (touched_[address & page_mask]++ == 0) {
      result_.initial.absent_pages.push_back(address & page_mask);
    } else {
      count_undecidable("npf exits at a page that had faulted before: why it was absent again");
    }
  }
  append(item);
}

// 6.1 prints kvm_exit behind its WRMSR fastpath, when rIP is already the next instruction's.
bool VcpuImporter::exit_is_behind_fastpath(const Group& group) const {
  if (event(group.exit).field[0] != exit_code::msr) return false;
  for (std::size_t i = group.begin; i < group.exit; ++i) {
    if (event(i).kind == EventKind::kvm_msr) return true;
  }
  return false;
}

std::uint64_t VcpuImporter::work_cycles(const Group& group, bool& known) const {
  known = false;
  if (group.entry == none || !capture_.has_time()) return 0;
  // On 6.1 the events of a fastpath stand before kvm_exit: the first of them ends the guest's time.
  std::size_t left = group.exit;
  for (std::size_t i = group.begin; i < group.exit; ++i) {
    const EventKind kind = event(i).kind;
    if (kind == EventKind::kvm_apic_ipi || kind == EventKind::kvm_apic_accept_irq ||
        kind == EventKind::kvm_apic || kind == EventKind::kvm_msr) {
      left = i;
      break;
    }
  }
  const std::uint64_t entered_ns = event(group.entry).time;
  const std::uint64_t left_ns = event(left).time;
  if (left_ns <= entered_ns) return 0;
  constexpr std::uint64_t giga = 1'000'000'000;
  const std::uint64_t ns = left_ns - entered_ns;
  const std::uint64_t cycles = ns / giga * options_.tsc_hz + (ns % giga * options_.tsc_hz + giga / 2) / giga;
  known = true;
  return cycles > options_.world_switch_cycles ? cycles - options_.world_switch_cycles : 0;
}

void VcpuImporter::append_work(const Group& group) {
  work_item_ = result_.items.size();
  bool known = false;
  ReplayItem item;
  item.flags = replay_flag::chained;
  item.action.kind = ActionKind::compute;
  item.action.cycles = work_cycles(group, known);
  if (!known) {
    item.flags |= replay_flag::unknown_time;
    count_undecidable("durations of guest work that the time stamps do not tell");
  }
  append(item);
}

}  // namespace svmsim::workloads
