#include "workloads/trace/replay_workload.hpp"

#include <array>

namespace svmsim::workloads {

using svm::ActionKind;

std::string_view kernel_name(KernelGeneration kernel) {
  switch (kernel) {
    case KernelGeneration::v6_1:
      return "6.1";
    case KernelGeneration::v6_12:
      return "6.12";
    case KernelGeneration::v6_18:
      return "6.18";
  }
  return "";
}

namespace {

constexpr std::array<std::string_view, 7> cause_names{"unknown",     "self_ipi",   "ipi", "lapic_timer",
                                                      "device_line", "device_msi", "host"};

}  // namespace

std::string_view cause_name(InterruptCause cause) {
  return cause_names[static_cast<std::size_t>(cause)];
}

std::optional<InterruptCause> cause_of_name(std::string_view name) {
  for (std::size_t i = 0; i < cause_names.size(); ++i) {
    if (cause_names[i] == name) return static_cast<InterruptCause>(i);
  }
  return std::nullopt;
}

std::uint8_t default_length(ActionKind kind, std::uint32_t number) noexcept {
  switch (kind) {
    case ActionKind::compute:
    case ActionKind::memory_read:
    case ActionKind::memory_write:
      return 0;
    case ActionKind::nop:
    case ActionKind::cli:
    case ActionKind::sti:
    case ActionKind::hlt:
      return 1;
    case ActionKind::in:
    case ActionKind::out:
      return number > 0xff ? 1 : 2;  // a port above FFh comes from DX
    case ActionKind::pause:
    case ActionKind::cpuid:
    case ActionKind::rdtsc:
    case ActionKind::rdmsr:
    case ActionKind::wrmsr:
    case ActionKind::iret:
      return 2;
    case ActionKind::vmmcall:
    case ActionKind::mov_from_cr8:
    case ActionKind::mov_to_cr8:
      return 3;
    default:
      return 0;
  }
}

void chain_rips(ReplayVcpu& vcpu) {
  std::vector<std::uint64_t> interrupted;
  std::uint64_t rip = vcpu.initial.rip;
  for (ReplayItem& item : vcpu.items) {
    if (item.kind == ReplayKind::interrupt) {
      interrupted.push_back(item.action.rip);
      const auto entry = vcpu.handler_entry.find(item.vector);
      rip = entry == vcpu.handler_entry.end() ? item.action.rip : entry->second;
      continue;
    }
    if (item.has(replay_flag::chained)) item.action.rip = rip;
    rip = item.kind == ReplayKind::action ? item.action.next_rip() : item.action.rip;
    if (item.kind == ReplayKind::action && item.action.kind == ActionKind::iret && !interrupted.empty()) {
      rip = interrupted.back();
      interrupted.pop_back();
    }
  }
}

}  // namespace svmsim::workloads
