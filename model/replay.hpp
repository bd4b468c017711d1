#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/simulation.hpp"
#include "workloads/trace/replay_workload.hpp"

namespace svmsim::model {

/// Imports capture `capture` (1-based; 0 = the only one, or all captures for the report) of a recording,
/// which may lie in several files (workloads::open_traces), and writes the workload to `output` unless that
/// is empty; without it the files are streamed in constant memory. `options` is a JSON object: window_from,
/// window_to ("event:text"), from, to (seconds or "line:N"), isa ("svm", "vmx": of bare numbers),
/// world_switch_cycles, tsc_hz. Returns the import report as JSON. Throws TraceError.
[[nodiscard]] std::string import_trace_json(const std::vector<std::string>& paths, const std::string& output,
                                            int capture, const std::string& options);

/// Replays a trace, or a workload file, under the settings it was recorded with, and with `overrides`
/// ("--set" strings) as changed; `trace` receives the events of the last of both runs unless it is empty.
/// Returns JSON: capture, recorded, settings, as_recorded, changed (or null), fidelity, undecidable, problems
/// (lines that cannot be read), problem_count. Throws TraceError, UserError.
[[nodiscard]] std::string replay_json(const std::string& path, int capture,
                                      const std::vector<std::string>& overrides, const std::string& trace,
                                      const Progress& progress = {});

/// The recorded workload of a file, for a host: a workload file as it is, or the capture of a trace with that
/// host's world switch taken off the guest's work. Throws TraceError when the file holds several captures and
/// none is chosen, when there is no such capture, and when the capture is refused (another ISA, no entries
/// and exits).
[[nodiscard]] workloads::ReplayWorkload load_replay(const std::string& path, int capture,
                                                    const HostConfig& host);

/// Sources for VMs whose workload is a trace: VmConfig::trace names a file; the n-th VM with the same file
/// replays its n-th recorded VM. Loads every file once.
class TraceSources {
 public:
  [[nodiscard]] std::unique_ptr<workloads::WorkloadSource> make(const Scenario& scenario, unsigned vm_index,
                                                                unsigned vcpu);

 private:
  std::vector<std::pair<std::string, workloads::ReplayWorkload>> files_;
};

}  // namespace svmsim::model
