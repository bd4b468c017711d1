#include "workloads/trace/event.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::array<std::string_view, 28> names{
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
    "kvm_hv_timer_state",
    "kvm_wait_lapic_expire",
    "other",
};
static_assert(names.size() == static_cast<std::size_t>(EventKind::other) + 1);

}  // namespace

std::string_view event_name(EventKind kind) {
  return names[static_cast<std::size_t>(kind)];
}

std::optional<EventKind> event_kind_of(std::string_view name) {
  // "other" is our word, not an event's.
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    if (names[i] == name) return static_cast<EventKind>(i);
  }
  return std::nullopt;
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
