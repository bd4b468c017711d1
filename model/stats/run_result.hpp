#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/stats/exit_stats.hpp"
#include "model/stats/latency_stats.hpp"
#include "model/stats/nested_stats.hpp"
#include "model/stats/vcpu_stats.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::model {

struct VcpuResult {
  std::string vm;
  unsigned vcpu = 0;
  std::vector<ExitStats::Row> exits;
  VcpuStats stats;
  std::vector<NestedStats::Row> nested;  ///< exits by level, of a guest hypervisor
};

struct PcpuResult {
  unsigned pcpu = 0;
  std::uint64_t guest_cycles = 0;
  std::uint64_t host_cycles = 0;
  std::uint64_t poll_cycles = 0;
  std::uint64_t task_cycles = 0;                                   ///< threads other than vCPUs
  std::vector<std::pair<std::string, std::uint64_t>> idle_cycles;  ///< by idle state
  std::uint64_t context_switches = 0;
  std::uint64_t timer_interrupts = 0;  ///< expired host timers; without the tick
};

/// A host thread beside the vCPUs.
struct TaskResult {
  std::string name;
  std::int32_t tid = 0;
  std::uint64_t run_cycles = 0;
  std::uint64_t loops = 0;
  LatencyStats wakeup_latency;  ///< end of a sleep to the first instruction
};

struct ApicvInhibit {
  std::string vm;
  std::string reason;
  std::uint64_t count = 0;
  std::uint64_t time_cycles = 0;
};

struct Advice {
  std::string id;
  std::string text;
  std::string setting;
};

/// What a run gives: plain values, times in TSC cycles. Nanoseconds are made once, in to_json() and
/// perf_table().
struct RunResult {
  std::string version;        ///< of svmsim
  std::string scenario_json;  ///< resolved_json() of the scenario
  std::uint64_t tsc_hz = 1000000000;
  std::uint64_t sim_cycles = 0;  ///< simulated time that the statistics cover
  double wall_time_s = 0.0;      ///< the only value that may differ between two runs
  std::vector<VcpuResult> vcpus;
  std::vector<PcpuResult> pcpus;
  std::vector<TaskResult> tasks;
  std::uint64_t migrations = 0;  ///< threads moved between pCPUs
  LatencyStats wakeup_latency;
  LatencyStats ipi_latency;
  std::vector<ApicvInhibit> apicv_inhibits;
  std::vector<Advice> advice;
  std::string busy_reason;  ///< why the host is busy while guests are idle; "" = it is not
  std::string workload_kind;
  workloads::Metrics metrics;
  std::string failure;  ///< why a workload ended early; "" = it did not
};

/// Exits over all vCPUs, in the order of the exit table.
[[nodiscard]] std::vector<ExitStats::Row> total_exits(const RunResult& result);

/// The result as JSON text (schema 1), as `svmsim run --json` writes it.
[[nodiscard]] std::string to_json(const RunResult& result);

}  // namespace svmsim::model
