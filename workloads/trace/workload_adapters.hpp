#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "workloads/trace/replay_workload.hpp"

namespace svmsim::workloads {

// What can be made of recorded workloads. Each throws UserError when it is asked for something impossible.

/// Every vCPU does its work `times` times, one after the other. Where a round ends with another IF than the
/// workload begins with, a cli or sti that the guest does not have stands between (inferred).
void repeat_workload(ReplayWorkload& workload, std::uint64_t times);

/// Guest work takes `factor` times as long: every cycle count, and every point of absolute timing. What the
/// host does is not in a workload and stays as it is.
void scale_workload(ReplayWorkload& workload, double factor);

/// What slice_workload() keeps.
struct WorkloadSlice {
  std::optional<int> vm;
  std::optional<int> vcpu;             ///< of each VM that is kept
  std::uint64_t from_line = 0;         ///< the first line of the recording that is kept
  std::uint64_t to_line = UINT64_MAX;  ///< the first one that is not
  std::uint64_t from_ns = 0;           ///< guest work of each vCPU that is left out at its beginning
  std::uint64_t to_ns = UINT64_MAX;    ///< guest work from which nothing more is kept
};

/// Keeps a part. A cut never goes through the handler of an interrupt: it is kept where its interrupt is. IF
/// at the beginning of what is kept follows from what was left out before. Kept VMs and vCPUs are numbered
/// anew, and so are the senders of IPIs; an interrupt whose sender is not kept becomes one of unknown cause.
void slice_workload(ReplayWorkload& workload, const WorkloadSlice& slice);

/// The VMs of several workloads beside each other, numbered in their order; cycles in the unit of the first.
/// They must be of the same kernel generation and intercept of HLT, since a replay has only one of each.
[[nodiscard]] ReplayWorkload merge_workloads(std::vector<ReplayWorkload> workloads);

/// What a workload holds, as JSON: source, kernel, vcpus (each with vm, vcpu, items, guest_work_ns, actions,
/// interrupts by cause, host_interrupts, opaque).
[[nodiscard]] std::string workload_summary_json(const ReplayWorkload& workload);

/// One operation on files: {"do": "show" | "repeat" | "scale" | "slice" | "merge", "times", "factor", "vm",
/// "vcpu", "from", "to"}; from and to are "line:N" or "<number> ns|us|ms|s" of guest work ("10ms"). Writes
/// `output` unless it is empty, packed when its name ends in .gz or .zst; returns the summary of the result.
/// Throws TraceError, UserError.
[[nodiscard]] std::string adapt_workload_files(const std::vector<std::string>& paths,
                                               const std::string& output, const std::string& operation_json);

}  // namespace svmsim::workloads
