#include "model/stats/busy_reason.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "svm/exit_code.hpp"

namespace svmsim::model {

namespace {

struct Totals {
  double guest = 0;
  double host = 0;
  double poll = 0;
  double all = 0;
  std::uint64_t timers = 0;
  std::uint64_t halts = 0;
  std::uint64_t halt_handling = 0;
};

Totals totals(const RunResult& result, std::uint64_t others) {
  Totals sum;
  for (const PcpuResult& pcpu : result.pcpus) {
    // A pCPU that never ran a vCPU says nothing about them.
    if (pcpu.guest_cycles == 0 && pcpu.poll_cycles == 0) continue;
    sum.guest += static_cast<double>(pcpu.guest_cycles);
    sum.host += static_cast<double>(pcpu.host_cycles);
    sum.poll += static_cast<double>(pcpu.poll_cycles);
    sum.all += static_cast<double>(result.sim_cycles);
    sum.timers += pcpu.timer_interrupts;
  }
  // The sleeps of host threads end by timers, too.
  for (const TaskResult& task : result.tasks)
    others += task.wakeup_latency.count();
  sum.timers -= std::min(sum.timers, others);
  const ExitCounter halts = halt_split(total_exits(result));
  sum.halts = halts.count;
  sum.halt_handling = halts.handling();
  return sum;
}

}  // namespace

ExitCounter halt_split(const std::vector<ExitStats::Row>& exits) {
  ExitCounter sum;
  for (const ExitStats::Row& row : exits) {
    if (row.code == svm::exit_code::hlt || row.code == svm::exit_code::idle_hlt) sum += row.counter;
  }
  return sum;
}

std::string busy_reason(const RunResult& result, std::uint64_t device_interrupts) {
  constexpr double idle_guest = 0.2;  // share of guest mode below which guests count as idle
  constexpr double busy_host = 0.1;   // share of the host from which it counts as busy
  const Totals sum = totals(result, device_interrupts);
  if (sum.all == 0 || result.vcpus.empty()) return {};
  const double host_share = (sum.host + sum.poll) / sum.all;
  if (sum.guest / sum.all >= idle_guest || host_share < busy_host) return {};
  const double seconds = static_cast<double>(result.sim_cycles) / static_cast<double>(result.tsc_hz);
  const double per_vcpu = seconds * static_cast<double>(result.vcpus.size());
  const double percent = 100.0;
  if (sum.poll >= sum.host) {
    return fmt::format(
        "polling saturation: {:.0f} % of the busy time of idle guests' pCPUs is halt polling "
        "(kvm.halt_poll_ns)",
        percent * sum.poll / (sum.poll + sum.host + sum.guest));
  }
  // A guest's timer that wakes it for next to nothing, again and again.
  const bool by_timers = 2 * sum.timers >= sum.halts && sum.timers != 0;
  if (by_timers) {
    return fmt::format(
        "timer storm: {:.0f} timer interrupts a second and vCPU keep {:.0f} % of the idle guests' pCPUs busy",
        static_cast<double>(sum.timers) / per_vcpu, percent * host_share);
  }
  return fmt::format(
      "halt storm: {:.0f} halts a second and vCPU keep {:.0f} % of the idle guests' pCPUs busy with halting "
      "and "
      "waking",
      static_cast<double>(sum.halts) / per_vcpu, percent * host_share);
}

}  // namespace svmsim::model
