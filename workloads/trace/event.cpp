#include "workloads/trace/event.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(EventKind::other) + 1> names{
    "kvm_entry",
    "kvm_exit",
    "kvm_apic_ipi",
    "kvm_apic_accept_irq",
    "kvm_apicv_accept_irq",
    "kvm_apic",
    "kvm_msr",
    "kvm_eoi",
    "kvm_pv_eoi",
    "kvm_inj_virq",
    "kvm_inj_exception",
    "kvm_pio",
    "kvm_hypercall",
    "kvm_cpuid",
    "kvm_page_fault",
    "kvm_halt_poll_ns",
    "kvm_vcpu_wakeup",
    "kvm_userspace_exit",
    "kvm_fpu",
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "cpu_idle",
    "kvm_cr",
    "kvm_mmio",
    "kvm_apicv_inhibit_changed",
    "kvm_avic_incomplete_ipi",
    "kvm_avic_unaccelerated_access",
    "kvm_avic_ga_log",
    "kvm_avic_kick_vcpu_slowpath",
    "kvm_avic_doorbell",
    "kvm_hv_timer_state",
    "kvm_wait_lapic_expire",
    "kvm_ple_window_update",
    "svmsim_guest",
    "kvm_nested_vmenter",
    "kvm_nested_vmexit",
    "kvm_nested_vmexit_inject",
    "kvm_nested_intr_vmexit",
    "other",
};
static_assert(names.size() == static_cast<std::size_t>(EventKind::other) + 1);

/// The kinds sorted by the length of their names; those of length n are kinds[first[n]] to kinds[first[n +
/// 1]].
struct ByLength {
  std::array<std::uint8_t, names.size()> kinds{};
  std::array<std::uint8_t, 48> first{};
};

constexpr ByLength sort_by_length() {
  ByLength sorted;
  std::uint8_t at = 0;
  for (std::size_t length = 0; length < sorted.first.size(); ++length) {
    sorted.first[length] = at;
    // "other" is our word, not an event's.
    for (std::size_t kind = 0; kind + 1 < names.size(); ++kind) {
      if (names[kind].size() == length) sorted.kinds[at++] = static_cast<std::uint8_t>(kind);
    }
  }
  return sorted;
}
constexpr ByLength by_length = sort_by_length();
static_assert(by_length.first.back() == names.size() - 1, "a name is longer than the table");

}  // namespace

std::string_view event_name(EventKind kind) {
  return names[static_cast<std::size_t>(kind)];
}

std::optional<EventKind> event_kind_of(std::string_view name) {
  // Every line of a trace comes by here.
  if (name.size() >= by_length.first.size() - 1) return std::nullopt;
  for (std::size_t i = by_length.first[name.size()]; i < by_length.first[name.size() + 1]; ++i) {
    const std::uint8_t kind = by_length.kinds[i];
    if (names[kind] == name) return static_cast<EventKind>(kind);
  }
  return std::nullopt;
}

std::optional<EventKind> readable_event_kind_of(std::string_view name) {
  const std::optional<EventKind> kind = event_kind_of(name);
  if (kind && *kind >= EventKind::kvm_nested_vmenter && *kind <= EventKind::kvm_nested_intr_vmexit)
    return std::nullopt;
  return kind;
}

void ThreadNames::set(std::int32_t tid, std::string_view comm) {
  const auto found = names_.find(tid);
  if (found == names_.end()) {
    names_.emplace(tid, comm);
  } else if (found->second != comm) {
    found->second.assign(comm);
  }
}

std::string_view ThreadNames::comm(std::int32_t tid) const {
  const auto found = names_.find(tid);
  return found == names_.end() ? std::string_view{"<...>"} : std::string_view{found->second};
}

}  // namespace svmsim::workloads
