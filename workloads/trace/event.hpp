#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace svmsim::workloads {

/// Kinds of trace event that svmsim models or reads. Names are the kernel's (arch/x86/kvm/trace.h,
/// include/trace/events). The comment names the meaning of TraceEvent::field by index.
enum class EventKind : std::uint8_t {
  kvm_entry,             ///< rip, EVENTINJ (low 32 vector word, high 32 error code), immediate_exit
  kvm_exit,              ///< exit code, rip, info1, info2, EXITINTINFO (as kvm_entry), requests
  kvm_apic_ipi,          ///< icr_low, dest
  kvm_apic_accept_irq,   ///< apicid, delivery mode (0 Fixed .. 7 ExtINT), trigger mode (1 level), vector
  kvm_apicv_accept_irq,  ///< as kvm_apic_accept_irq
  kvm_apic,              ///< 1 write, register offset (0x300), value
  kvm_msr,               ///< 1 write, msr, value, 1 exception
  kvm_eoi,               ///< apicid, vector
  kvm_pv_eoi,            ///< apicid, vector
  kvm_inj_virq,          ///< vector, 1 soft, 1 reinjected
  kvm_inj_exception,     ///< vector, 1 has error, error code, 1 reinjected
  kvm_pio,               ///< 1 write, port, size, count, value
  kvm_hypercall,         ///< nr, a0, a1, a2, a3
  kvm_cpuid,             ///< leaf, subleaf, eax, ebx, ecx, edx, 1 found, 1 used max basic
  kvm_page_fault,        ///< rip, address, error code
  kvm_halt_poll_ns,      ///< 1 grow, new, old
  kvm_vcpu_wakeup,       ///< ns, 1 waited, 1 valid
  kvm_userspace_exit,    ///< reason, errno (positive; 0 = none)
  kvm_fpu,               ///< 1 load
  sched_switch,  ///< prev tid, prev prio, prev state (ASCII, first letter lowest), next tid, next prio
  sched_waking,  ///< tid, prio, target cpu
  sched_wakeup,  ///< tid, prio, target cpu
  cpu_idle,      ///< state (4294967295 = exit), cpu
  kvm_cr,        ///< 1 write, control register, value
  kvm_mmio,      ///< 0 unsatisfied read, 1 read, 2 write; bytes, guest physical address, value
  kvm_apicv_inhibit_changed,      ///< reason (bit number), 1 set, inhibits, 1 names were printed
  kvm_avic_incomplete_ipi,        ///< icrh, icrl, id, index
  kvm_avic_unaccelerated_access,  ///< register offset, 1 trap, 1 write, vector
  kvm_avic_ga_log,                ///< VM id, vCPU id
  kvm_avic_kick_vcpu_slowpath,    ///< icrh, icrl, index
  kvm_avic_doorbell,              ///< vCPU id, host APIC id
  kvm_hv_timer_state,             ///< 1 hv timer in use
  kvm_wait_lapic_expire,          ///< guest TSC minus deadline, two's complement
  kvm_ple_window_update,          ///< new, old
  svmsim_guest,                   ///< what a guest did without an exit (guest_marker.hpp)
  kvm_nested_vmenter,        ///< rip, vmcb, nested rip, int_ctl, EVENTINJ, nested_ctl, nested_cr3, guest cr3
  kvm_nested_vmexit,         ///< as kvm_exit
  kvm_nested_vmexit_inject,  ///< exit code, info1, info2, EXITINTINFO (as kvm_entry)
  kvm_nested_intr_vmexit,    ///< rip
  other,  ///< an event nobody here knows; name and text as read (TraceEvent::field: see Capture)
};

/// One line of a trace, as read or as simulated. Sorted by time, then file order.
struct TraceEvent {
  std::uint64_t time = 0;  ///< in a simulation TSC cycles; in a file the clock's unit (see TraceFile)
  EventKind kind = EventKind::other;
  std::uint8_t absent = 0;  ///< bit i: the text does not say field[i] (an older kernel's shorter form)
  std::int32_t cpu = -1;    ///< pCPU; -1 unknown
  std::int32_t tid = -1;    ///< host thread; -1 unknown
  std::int32_t vcpu = -1;   ///< vCPU index; -1 unknown
  std::array<std::uint64_t, 8> field{};

  [[nodiscard]] bool has_field(unsigned index) const noexcept { return ((absent >> index) & 1U) == 0; }
};

/// The kernel's event name ("kvm_entry").
[[nodiscard]] std::string_view event_name(EventKind kind);

/// The kind of an event name without its system ("kvm_entry"); nothing for a name that svmsim does not know.
[[nodiscard]] std::optional<EventKind> event_kind_of(std::string_view name);
/// The same for the readers of recordings: nothing for events that are written and not read, those of nested
/// guests, whose older forms differ and which replay has no use for.
[[nodiscard]] std::optional<EventKind> readable_event_kind_of(std::string_view name);

/// Names of host threads (the kernel's comm), for the prefix of a line and the text of sched events.
class ThreadNames {
 public:
  void set(std::int32_t tid, std::string_view comm);
  /// "<...>" for an unknown thread, as the kernel prints it.
  [[nodiscard]] std::string_view comm(std::int32_t tid) const;
  [[nodiscard]] const std::map<std::int32_t, std::string>& all() const noexcept { return names_; }

 private:
  std::map<std::int32_t, std::string> names_;
};

}  // namespace svmsim::workloads
