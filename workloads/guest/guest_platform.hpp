#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "workloads/guest/apic_driver.hpp"
#include "workloads/program_spec.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::workloads {

/// What guest code takes, in TSC cycles of guest time. A cost profile gives them.
struct GuestCosts {
  std::uint64_t call = 0;         ///< smp_call_function_*() from its caller to the first APIC access
  std::uint64_t call_target = 0;  ///< the same for each target: locking its csd, putting it on the queue
  std::uint64_t handler = 0;      ///< a call-function vector from its first instruction to the callback
  std::uint64_t spin_turn = 1;    ///< one turn of a loop around PAUSE
  std::uint64_t line = 1;         ///< a store by one CPU becomes visible to another
};

/// The machine as a modelled guest kernel finds it.
struct GuestPlatform {
  ApicDriverConfig apic;  ///< of all vCPUs
  bool pv_eoi = false;
  bool steal_time = false;
  bool pv_sched_yield = false;  ///< and what the guest wants besides it: no REALTIME hint, steal time
  std::uint64_t tsc_hz = 1'000'000'000;
  GuestCosts costs;
};

/// A guest kernel with what runs on it: the sources of all vCPUs of one VM, which share memory.
class GuestVm {
 public:
  GuestVm() = default;
  GuestVm(const GuestVm&) = delete;
  GuestVm& operator=(const GuestVm&) = delete;
  virtual ~GuestVm() = default;

  /// The source of one vCPU; at most one for each. It may outlive the GuestVm.
  [[nodiscard]] virtual std::unique_ptr<WorkloadSource> source(unsigned vcpu) = 0;
};

/// Workloads of this kind, in alphabetical order; builtin_programs() has them too.
[[nodiscard]] const std::vector<ProgramInfo>& guest_workloads();
[[nodiscard]] bool is_guest_workload(const std::string& kind);

/// Throws UserError when the spec is invalid, or does not fit the platform.
[[nodiscard]] std::unique_ptr<GuestVm> make_guest_vm(const WorkloadSpec& spec, const GuestPlatform& platform);

}  // namespace svmsim::workloads
