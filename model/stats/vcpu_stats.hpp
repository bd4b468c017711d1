#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/stats/log_histogram.hpp"

// The one declaration of the per-vCPU statistics: X(name, unit, sentence). Names are those of KVM's binary
// statistics (virt/kvm/kvm_main.c, arch/x86/kvm/x86.c). What this version cannot count is not listed.
#define SVMSIM_VCPU_COUNTERS(X)                                                               \
  X(exits, "", "Exits from the guest, with those that a fastpath completes.")                 \
  X(halt_exits, "", "Intercepted HLT instructions, also those that did not block.")           \
  X(irq_exits, "", "Exits for a physical interrupt.")                                         \
  X(irq_window_exits, "", "Exits because the guest can take an interrupt now (vintr).")       \
  X(io_exits, "", "Exits for IN or OUT.")                                                     \
  X(mmio_exits, "", "Accesses to memory that is not there, completed by user space.")         \
  X(host_state_reload, "",                                                                    \
    "Entries that had to load the guest's state first: after a switch or user space.")        \
  X(hypercalls, "", "Hypercalls that KVM handles.")                                           \
  X(preemption_reported, "",                                                                  \
    "Preemptions that the steal-time page shows: the exit before was an interrupt's.")        \
  X(preemption_other, "", "Preemptions behind any other exit.")                               \
  X(directed_yield_attempted, "", "Attempts to give the pCPU to another vCPU of the VM.")     \
  X(directed_yield_successful, "", "Attempts of that kind that let the other vCPU run.")      \
  X(irq_injections, "", "Interrupts injected at VMRUN.")                                      \
  X(nmi_window_exits, "", "Exits for the IRET of an NMI handler (iret).")                     \
  X(nmi_injections, "", "NMIs injected at VMRUN, or given to virtual NMI.")                   \
  X(req_event, "", "Entries that looked for events to inject.")                               \
  X(nested_run, "", "VMRUNs of the guest that entered its own guest.")                        \
  X(nested_idle_hlt, "", "HLTs of L2 that L0 completed by emulating the idle-HLT intercept.") \
  X(signal_exits, "", "Returns to user space because of a signal.")                           \
  X(halt_attempted_poll, "", "Halts that polled before blocking.")                            \
  X(halt_successful_poll, "", "Halts that ended without the thread being scheduled out.")     \
  X(halt_poll_invalid, "", "Wake-ups from polling that had no reason; never on x86.")         \
  X(halt_wakeup, "", "Times another context woke the blocked thread.")                        \
  X(halt_poll_success_ns, "ns", "Time spent polling in halts that polling ended.")            \
  X(halt_poll_fail_ns, "ns", "Time spent polling in halts that had to block after it.")       \
  X(halt_wait_ns, "ns", "Time blocked in halts, from the end of polling.")

#define SVMSIM_VCPU_HISTOGRAMS(X)                                                   \
  X(halt_poll_success_hist, "ns", "Lengths of successful polls, by powers of two.") \
  X(halt_poll_fail_hist, "ns", "Lengths of failed polls, by powers of two.")        \
  X(halt_wait_hist, "ns", "Lengths of waits, by powers of two.")

namespace svmsim::model {

/// Statistics of one vCPU. A plain value: the statistics of a window are a difference of two.
struct VcpuStats {
#define SVMSIM_FIELD(name, unit, doc) std::uint64_t name = 0;
  SVMSIM_VCPU_COUNTERS(SVMSIM_FIELD)
#undef SVMSIM_FIELD
#define SVMSIM_FIELD(name, unit, doc) LogHistogram name;
  SVMSIM_VCPU_HISTOGRAMS(SVMSIM_FIELD)
#undef SVMSIM_FIELD

  VcpuStats& operator-=(const VcpuStats& other) noexcept {
#define SVMSIM_FIELD(name, unit, doc) name -= other.name;
    SVMSIM_VCPU_COUNTERS(SVMSIM_FIELD)
    SVMSIM_VCPU_HISTOGRAMS(SVMSIM_FIELD)
#undef SVMSIM_FIELD
    return *this;
  }
  VcpuStats& operator+=(const VcpuStats& other) noexcept {
#define SVMSIM_FIELD(name, unit, doc) name += other.name;
    SVMSIM_VCPU_COUNTERS(SVMSIM_FIELD)
    SVMSIM_VCPU_HISTOGRAMS(SVMSIM_FIELD)
#undef SVMSIM_FIELD
    return *this;
  }
  [[nodiscard]] friend VcpuStats operator-(VcpuStats a, const VcpuStats& b) noexcept {
    return a -= b;
  }
};

struct VcpuStatInfo {
  std::string_view name;
  std::string_view unit;  ///< "" for a count
  std::string_view doc;
  std::uint64_t VcpuStats::*counter = nullptr;   ///< of a number
  LogHistogram VcpuStats::*histogram = nullptr;  ///< of a histogram
};

/// All statistics, in order.
[[nodiscard]] const std::vector<VcpuStatInfo>& vcpu_stat_table();

}  // namespace svmsim::model
