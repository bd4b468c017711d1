#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workloads/trace/cause_tracker.hpp"
#include "workloads/trace/generation_probe.hpp"
#include "workloads/trace/import.hpp"
#include "workloads/trace/sched_tracker.hpp"
#include "workloads/trace/trace_sink.hpp"
#include "workloads/trace/vcpu_threads.hpp"

namespace svmsim::workloads {

/// Counts one capture, event by event, for the import report: events, exits, causes, durations. With a window
/// it counts each vCPU from the kvm_entry after the first mark; what may still prove to lie behind the last
/// kvm_exit before the second mark is held back until the next kvm_exit.
///
/// Durations are perf's: a kvm_exit opens, the next kvm_entry of the same thread closes, a second kvm_exit
/// overwrites the first, and exits before a thread's first kvm_entry do not count.
class CaptureTally {
 public:
  CaptureTally(const ImportOptions& options, std::string_view title, std::uint64_t first_line,
               const TraceNames& names);

  void event(const ReadEvent& read);
  void table(const StatTable& table);
  void note(const std::string& source, const ReadNote& note);
  /// The capture's report. `window_missed` becomes true when a window was asked for and no vCPU has it.
  [[nodiscard]] ImportReport finish(const std::string& source, std::string_view format,
                                    std::uint64_t line_count, bool& window_missed);

 private:
  enum class WindowState : std::uint8_t { before, waits_for_entry, inside, behind };
  struct Spans {
    std::uint64_t count = 0;
    std::uint64_t total = 0;
    std::uint64_t least = UINT64_MAX;
    std::uint64_t most = 0;
  };
  struct ExitCount {
    std::uint64_t code = 0;
    std::uint64_t count = 0;
    Spans spans;
  };
  static constexpr std::size_t kinds = static_cast<std::size_t>(EventKind::other) + 1;
  static constexpr std::size_t cause_kinds = static_cast<std::size_t>(InterruptCause::host) + 1;
  struct Counts {
    std::array<std::uint64_t, kinds> events{};
    std::vector<std::uint64_t> others;  ///< by index into other_names_
    std::vector<ExitCount> exits;
    std::array<std::uint64_t, cause_kinds> causes{};
    std::array<std::uint64_t, cause_kinds> wakeups{};
    std::uint64_t open_loop = 0;
    std::uint64_t closed_loop = 0;
    std::array<std::uint64_t, 4> polls{};  ///< poll valid, poll invalid, wait valid, wait invalid
    std::uint64_t poll_ns = 0;
    std::uint64_t wait_ns = 0;
    Unpaired unpaired;
  };
  enum class What : std::uint8_t { event, other, exit, span, cause, wakeup, poll, unpaired };
  /// Something counted that may still be taken back.
  struct Held {
    What what = What::event;
    std::uint8_t a = 0;
    std::uint64_t b = 0;
    std::uint64_t c = 0;
  };
  struct Vcpu {
    WindowState state = WindowState::before;
    Counts counts;
    std::vector<Held> held;
    std::uint64_t entries = 0;
    bool exit_open = false;
    std::uint64_t exit_code = 0;
    std::uint64_t exit_time = 0;
  };

  [[nodiscard]] bool outside_cut(const ReadEvent& read) const;
  Vcpu& vcpu(std::size_t stream);
  void put(Vcpu& vcpu, const Held& held);
  static void add(Counts& counts, const Held& held);
  static ExitCount& exit_count(Counts& counts, std::uint64_t code);
  void pair(Vcpu& vcpu, const ReadEvent& read);
  void move_window(Vcpu& vcpu, const ReadEvent& read);
  [[nodiscard]] bool matches(const EventPattern& pattern, const ReadEvent& read) const;
  void take_findings();
  [[nodiscard]] std::uint64_t other_index(std::string_view name);
  void sum(ImportReport& report, const Counts& counts) const;
  void fill_isa(ImportReport& report) const;
  void fill_tables(ImportReport& report) const;
  void judge(ImportReport& report, bool has_events) const;

  const ImportOptions& options_;
  const TraceNames& names_;
  std::string title_;
  std::uint64_t first_line_;
  bool windowed_;
  VcpuThreads threads_;
  CauseTracker causes_;
  GenerationProbe probe_;
  SchedTracker sched_;
  std::vector<Vcpu> vcpus_;
  Counts host_;  ///< of threads that run no guest
  std::vector<std::string> other_names_;
  std::map<std::string, std::size_t, std::less<>> other_index_;
  std::size_t last_other_ = SIZE_MAX;
  std::map<std::string, std::uint64_t> unknown_;
  std::map<std::string, std::uint64_t> dropped_;
  std::vector<Problem> problems_;
  std::uint64_t problem_count_ = 0;
  std::vector<std::string> notes_;
  std::uint64_t unrecognised_ = 0;
  std::uint64_t lost_ = 0;
  std::vector<StatTable> tables_;
  std::uint64_t events_ = 0;
  std::vector<std::uint64_t> codes_;  ///< exit codes met, also outside the window: they tell the ISA
  TimeBase time_base_ = TimeBase::none;
};

}  // namespace svmsim::workloads
