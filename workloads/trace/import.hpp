#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "svm/user_error.hpp"
#include "workloads/kernel_generation.hpp"
#include "workloads/trace/capture.hpp"
#include "workloads/trace/replay_workload.hpp"
#include "workloads/trace/vcpu_stream.hpp"

namespace svmsim::workloads {

struct ImportOptions {
  std::uint64_t tsc_hz = 1'000'000'000;     ///< unit of the workload's cycles
  std::uint64_t world_switch_cycles = 0;    ///< taken off every span from kvm_entry to kvm_exit
  std::optional<KernelGeneration> kernel;   ///< overrides what the text says
  std::optional<EventPattern> window_from;  ///< both or none; see cut_window()
  std::optional<EventPattern> window_to;
};

using Counts = std::map<std::string, std::uint64_t>;

/// What an import found, kept, left out and could not know.
struct ImportReport {
  struct Vcpu {
    std::string vm;  ///< "vm0"
    int vcpu = 0;
    Counts exits;
  };
  struct CaptureSummary {
    std::string title;
    std::uint64_t first_line = 0;
    std::uint64_t lines = 0;
    std::uint64_t events = 0;
    std::uint64_t exits = 0;
  };

  std::string source;
  std::string format;
  std::string isa;  ///< "svm", "vmx", or "unknown"
  std::uint64_t lines = 0;
  std::uint64_t lost_events = 0;
  Counts events;  ///< by name; inside the window where there is one
  Counts exits;   ///< kvm_exit lines by reason
  std::vector<Vcpu> vcpus;
  Counts unknown;                      ///< texts that nobody here knows
  Counts causes;                       ///< injected interrupts by kind of cause
  std::optional<std::string> refused;  ///< why there is no workload
  std::vector<CaptureSummary> captures;
  std::vector<Problem> problems;
  std::uint64_t problem_count = 0;  ///< problems may hold only the first ones
  Counts undecidable;               ///< what the recording hides
  Counts dropped;                   ///< what the workload leaves out
  KernelGeneration kernel = KernelGeneration::v6_12;
  bool kernel_certain = false;
  std::string kernel_evidence;
};

struct ImportResult {
  ReplayWorkload workload;  ///< without vCPUs when refused
  ImportReport report;
};

/// Recovers what the guests of a capture did. A capture of another ISA, or without kvm_entry and kvm_exit, is
/// refused in the report. Throws UserError when a window is asked for and no vCPU has both marks.
[[nodiscard]] ImportResult import_capture(const Capture& capture, const ImportOptions& options = {});

/// The report on a whole file: the sums over its captures, each imported with the same options.
[[nodiscard]] ImportReport import_report(const TraceFile& file, const ImportOptions& options = {});

/// JSON with keys in a fixed order and counts by name.
[[nodiscard]] std::string to_json(const ImportReport& report);
/// A page for a person.
[[nodiscard]] std::string to_text(const ImportReport& report);

}  // namespace svmsim::workloads
