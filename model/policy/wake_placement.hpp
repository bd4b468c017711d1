#pragma once

#include <cstdint>

#include "model/policy/cpu_set.hpp"

namespace svmsim::model {

/// Where the pCPUs of a host stand: cache domains of `llc` neighbours, SMT siblings side by side.
struct CpuTopology {
  unsigned cpus = 1;
  unsigned llc = 8;      ///< pCPUs that share a last-level cache
  unsigned threads = 1;  ///< SMT threads of a core

  [[nodiscard]] unsigned llc_begin(unsigned cpu) const noexcept { return cpu / llc * llc; }
  [[nodiscard]] unsigned llc_end(unsigned cpu) const noexcept {
    const unsigned end = llc_begin(cpu) + llc;
    return end < cpus ? end : cpus;
  }
  [[nodiscard]] bool share_cache(unsigned a, unsigned b) const noexcept { return a / llc == b / llc; }
};

/// What a waking thread's placement depends on.
struct WakeRequest {
  unsigned previous = 0;            ///< where it ran last
  unsigned waker = CpuSet::none;    ///< the pCPU that wakes it
  unsigned recent = CpuSet::none;   ///< where it ran before `previous`
  std::uint64_t previous_load = 0;  ///< runnable weight there
  std::uint64_t waker_load = 0;     ///< runnable weight at the waker
  std::uint64_t weight = 0;         ///< of the thread
  const CpuSet* allowed = nullptr;  ///< its affinity; nullptr = every pCPU
};

/// select_task_rq_fair (kernel/sched/fair.c): wake_affine chooses between the previous and the waking pCPU,
/// select_idle_sibling then looks for an idle one that shares its cache. `idle` holds the pCPUs that run
/// nothing; one that polls for a halted vCPU runs that and is not among them. `idle_cores` holds the first
/// thread of each core that is idle as a whole.
///
/// Left out: wake_wide, SIS_UTIL's bound on the search, asymmetric capacities, NUMA.
[[nodiscard]] inline unsigned select_cpu(const WakeRequest& request, const CpuTopology& topology,
                                         const CpuSet& idle, const CpuSet& idle_cores) {
  const auto allowed = [&](unsigned cpu) {
    return cpu != CpuSet::none && (request.allowed == nullptr || request.allowed->has(cpu));
  };
  unsigned target = request.previous;
  if (!allowed(target)) target = request.allowed->first(0, topology.cpus);
  if (allowed(request.waker) && request.waker != target) {
    if (idle.has(request.waker) && topology.share_cache(request.waker, target)) {
      if (!idle.has(target)) target = request.waker;
    } else if (!idle.has(target)) {
      // wake_affine_weight, in favour of where it was (WA_BIAS at an imbalance of 117 %).
      constexpr std::uint64_t here = 100;
      constexpr std::uint64_t there = 108;
      if ((request.waker_load + request.weight) * here < request.previous_load * there)
        target = request.waker;
    }
  }
  if (idle.has(target)) return target;
  const unsigned previous = request.previous;
  if (allowed(previous) && topology.share_cache(previous, target) && idle.has(previous)) return previous;
  const unsigned recent = request.recent;
  if (allowed(recent) && topology.share_cache(recent, target) && idle.has(recent)) return recent;
  const unsigned begin = topology.llc_begin(target);
  const unsigned end = topology.llc_end(target);
  if (topology.threads > 1) {
    const unsigned core = idle_cores.first_around(target, begin, end, request.allowed);
    if (core != CpuSet::none) return core;
  }
  const unsigned found = idle.first_around(target, begin, end, request.allowed);
  return found != CpuSet::none ? found : target;
}

}  // namespace svmsim::model
