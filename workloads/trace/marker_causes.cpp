#include "workloads/trace/marker_causes.hpp"

#include <map>
#include <tuple>

#include "workloads/trace/guest_marker.hpp"

namespace svmsim::workloads {

using svm::ActionKind;

namespace {

constexpr std::uint32_t msr_icr = 0x830;
constexpr std::uint32_t msr_self_ipi = 0x83f;
constexpr std::uint64_t apic_page_mask = 0xfff;
constexpr std::uint64_t icr_offset = 0x300;
constexpr std::uint64_t icr2_offset = 0x310;

struct Sent {
  std::uint64_t icr = 0;
  std::uint64_t destination = 0;
};

/// What a write to the APIC sends; false for any other action.
bool sends(const svm::GuestAction& action, std::uint64_t& icr2, Sent& sent) {
  constexpr std::uint64_t self_shorthand = 1U << 18;
  if (action.kind == ActionKind::wrmsr && action.number == msr_icr) {
    sent = {action.operand[0], action.operand[0] >> 32};
    return true;
  }
  if (action.kind == ActionKind::wrmsr && action.number == msr_self_ipi) {
    sent = {(action.operand[0] & 0xffU) | self_shorthand, 0};
    return true;
  }
  if (action.kind != ActionKind::memory_write) return false;
  if ((action.operand[1] & apic_page_mask) == icr2_offset) icr2 = action.operand[0] >> 24;
  if ((action.operand[1] & apic_page_mask) != icr_offset) return false;
  sent = {action.operand[0], icr2};
  return true;
}

bool reaches(const Sent& sent, std::int64_t sender, std::int64_t receiver) {
  const bool logical = (sent.icr >> 11 & 1U) != 0;
  switch (sent.icr >> 18 & 3U) {
    case 1:
      return sender == receiver;
    case 2:
      return true;
    case 3:
      return sender != receiver;
    default:
      return logical || static_cast<std::int64_t>(sent.destination) == receiver ||
             sent.destination == 0xffff'ffffU || sent.destination == 0xffU;
  }
}

}  // namespace

MarkerCauses::MarkerCauses(const Capture& capture, const std::vector<VcpuStream>& streams,
                           const InterruptCauses& causes) {
  std::unordered_map<std::uint32_t, std::pair<int, int>> owner;  // VM and vCPU of an event
  bool any = false;
  for (const VcpuStream& stream : streams) {
    for (const std::uint32_t index : stream.events) {
      const EventKind kind = capture.events[index].kind;
      if (kind != EventKind::svmsim_guest && kind != EventKind::kvm_apicv_accept_irq) continue;
      any = any || kind == EventKind::svmsim_guest;
      owner[index] = {stream.vm, stream.vcpu};
    }
  }
  if (!any) return;
  std::map<std::tuple<int, int, std::uint64_t>, Cause> last;  // by VM, vCPU, vector
  std::map<std::pair<int, int>, std::uint64_t> icr2;
  for (std::uint32_t index = 0; index < capture.events.size(); ++index) {
    const TraceEvent& event = capture.events[index];
    const auto found = owner.find(index);
    if (found == owner.end()) continue;
    const auto [vm, vcpu] = found->second;
    if (event.kind == EventKind::kvm_apicv_accept_irq) {
      last[{vm, static_cast<int>(event.field[0]), event.field[3]}] = causes.of(index);
      continue;
    }
    if (guest_marker::is_interrupt(event)) {
      const auto cause = last.find({vm, vcpu, event.field[2]});
      if (cause == last.end()) continue;
      causes_.emplace(index, cause->second);
      last.erase(cause);
      continue;
    }
    Sent sent;
    if (!sends(guest_marker::action_of(event), icr2[found->second], sent)) continue;
    for (const VcpuStream& stream : streams) {
      if (stream.vm != vm || !reaches(sent, vcpu, stream.vcpu)) continue;
      Cause cause;
      cause.kind = stream.vcpu == vcpu ? InterruptCause::self_ipi : InterruptCause::ipi;
      cause.sender = vcpu;
      cause.source_line = capture.lines[index];
      last[{vm, stream.vcpu, sent.icr & 0xffU}] = cause;
    }
  }
}

}  // namespace svmsim::workloads
