#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "svm/user_error.hpp"
#include "workloads/kernel_generation.hpp"
#include "workloads/trace/capture.hpp"
#include "workloads/trace/replay_workload.hpp"
#include "workloads/trace/sched_tracker.hpp"
#include "workloads/trace/stat_table.hpp"
#include "workloads/trace/trace_reader.hpp"
#include "workloads/trace/vcpu_stream.hpp"

namespace svmsim::workloads {

/// Where `--from` and `--to` cut: a line, or a time of the recording.
struct CutPoint {
  bool by_line = false;
  std::uint64_t line = 0;
  std::uint64_t time_ns = 0;
  std::uint64_t counter = 0;  ///< the same number for a capture whose clock is a bare counter

  /// "line:1200", "10.711766" (seconds as printed) or a bare counter. Throws UserError.
  [[nodiscard]] static CutPoint parse(std::string_view text, const std::string& option);
};

struct ImportOptions {
  std::uint64_t tsc_hz = 1'000'000'000;     ///< unit of the workload's cycles
  std::uint64_t world_switch_cycles = 0;    ///< taken off every span from kvm_entry to kvm_exit
  std::optional<KernelGeneration> kernel;   ///< overrides what the text says
  std::optional<EventPattern> window_from;  ///< both or none; see cut_window()
  std::optional<EventPattern> window_to;
  std::optional<CutPoint> from;  ///< the first event that counts
  std::optional<CutPoint> to;    ///< the first event that counts no more
  std::optional<Isa> isa;        ///< of numbers without names, where the text does not say it
};

using Counts = std::map<std::string, std::uint64_t>;

/// kvm_entry and kvm_exit lines without their other half.
struct Unpaired {
  std::uint64_t before_first_entry = 0;  ///< exits of a thread before its first kvm_entry
  std::uint64_t overwritten = 0;         ///< exits that another exit followed
  std::uint64_t entry_alone = 0;         ///< entries that no exit came before, but for a thread's first
  std::uint64_t open = 0;                ///< exits at which the recording ends
};

/// Time from kvm_exit to the next kvm_entry.
struct Durations {
  std::uint64_t samples = 0;
  std::uint64_t total_ns = 0;
  std::uint64_t min_ns = 0;
  std::uint64_t max_ns = 0;
};

/// What an import found, kept, left out and could not know.
struct ImportReport {
  struct Vcpu {
    std::string vm;  ///< "vm0"
    int vcpu = 0;
    Counts exits;
    SchedSums sched;  ///< of the whole recording; in ns where the time base is known
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
  bool sched_known =
      false;        ///< the recording has sched_switch and a time base, so Vcpu::sched means something
  Counts unknown;   ///< texts that nobody here knows
  Counts causes;    ///< injected interrupts by kind of cause
  Counts wakeups;   ///< kvm_vcpu_wakeup by kind of cause
  Counts coverage;  ///< how many of them are explained, and which device loops are closed
  Counts polling;   ///< outcomes of kvm_vcpu_wakeup, with the time where it is known
  std::optional<std::string> refused;      ///< why nothing of it can be used: it stays opaque
  std::optional<std::string> no_workload;  ///< why it cannot be replayed; what it counts stands
  std::string isa_evidence;
  TimeBase time_base = TimeBase::none;
  std::string vm_evidence;  ///< how several VMs were told apart
  /// By exit reason; nothing where the recording has no time in a known unit.
  std::optional<std::map<std::string, Durations>> durations;
  Unpaired unpaired;
  std::vector<StatTable> tables;
  std::vector<std::string> notes;  ///< "FILE:LINE: sentence": what was joined, dropped, or odd
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
  ReplayWorkload workload;  ///< without vCPUs when there is none to be had
  ImportReport report;
};

/// Recovers what the guests of a capture did. A capture of another ISA, or without kvm_entry and kvm_exit, is
/// `no_workload` in the report. Throws UserError when a window is asked for and no vCPU has both marks.
[[nodiscard]] ImportResult import_capture(const Capture& capture, const ImportOptions& options = {});

/// The report on a whole file: the sums over its captures, each imported with the same options.
[[nodiscard]] ImportReport import_report(const TraceFile& file, const ImportOptions& options = {});
/// The sum of reports on the captures of one file.
[[nodiscard]] ImportReport merge_reports(std::vector<ImportReport> reports, const std::string& source,
                                         std::uint64_t line_count);
/// The same straight from the files (open_traces()), in constant memory, with their tables. `capture` 0 =
/// all.
[[nodiscard]] ImportReport import_report_of_files(const std::vector<std::string>& paths,
                                                  const ImportOptions& options = {}, int capture = 0,
                                                  const ReadOptions& reading = {});

/// JSON with keys in a fixed order and counts by name.
[[nodiscard]] std::string to_json(const ImportReport& report);
/// A page for a person.
[[nodiscard]] std::string to_text(const ImportReport& report);

}  // namespace svmsim::workloads
