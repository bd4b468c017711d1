#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "workloads/trace/cause_tracker.hpp"
#include "workloads/trace/trace_sink.hpp"
#include "workloads/trace/vcpu_threads.hpp"

namespace svmsim::workloads {

/// What a capture says beyond counts, as far as a diagnosis asks for it. Times are in the unit of the
/// recording's stamps, but for those that kvm_vcpu_wakeup and kvm_halt_poll_ns print, which are ns.
struct DiagnosisFacts {
  struct Spans {
    std::uint64_t count = 0;
    std::uint64_t total = 0;
    std::uint64_t most = 0;
    void add(std::uint64_t span) {
      ++count;
      total += span;
      if (span > most) most = span;
    }
  };
  /// HLT exits, from kvm_exit to the next kvm_entry.
  struct Halts {
    Spans all;
    Spans pending;  ///< without a kvm_vcpu_wakeup: an interrupt was pending, the vCPU went on at once
    Spans polled;   ///< woken while it polled; ns as kvm_vcpu_wakeup prints them
    Spans waited;   ///< blocked; likewise, with the polling before
    std::uint64_t invalid = 0;         ///< of both: "polling invalid"
    std::uint64_t failed_polls = 0;    ///< blocked after polling for a window that kvm_halt_poll_ns told
    std::uint64_t wasted_ns = 0;       ///< the polling of those
    std::uint64_t window_unknown = 0;  ///< blocked, and no event has told the window
    std::uint64_t short_waits = 0;     ///< blocked for no longer than 200 us
  };
  /// kvm_halt_poll_ns.
  struct Window {
    std::uint64_t line = 0;
    std::uint64_t time = 0;
    bool grow = false;
    std::uint64_t now_ns = 0;
    std::uint64_t before_ns = 0;
  };
  struct Windows {
    std::vector<Window> changes;  ///< the first ones
    std::uint64_t grows = 0;
    std::uint64_t shrinks = 0;
    std::uint64_t turns = 0;  ///< a shrink behind a grow, or the reverse
    std::uint64_t most_ns = 0;
    std::optional<std::uint64_t> now_ns;
    bool last_grow = false;
  };
  /// The longest run of exits that left the guest where it stood.
  struct Repeat {
    std::uint64_t code = 0;
    std::uint64_t rip = 0;
    std::uint64_t address = 0;
    std::uint64_t count = 0;
    std::uint64_t first_line = 0;
    std::uint64_t last_line = 0;
    std::uint64_t first_time = 0;
    std::uint64_t last_time = 0;
    std::uint64_t reinjections = 0;  ///< kvm_inj_virq or kvm_inj_exception with [reinjected]
    int vector = -1;                 ///< of the last of them
    bool returns_known = false;      ///< kvm_entry said that it went back to the same rIP
  };
  struct ExitSum {
    std::uint64_t code = 0;
    Spans spans;  ///< count is that of exits that an entry followed
    std::uint64_t exits = 0;
  };
  struct Vcpu {
    int vm = -1;  ///< -1: events of no thread that is known as a vCPU
    int vcpu = -1;
    std::uint64_t first_time = 0;
    std::uint64_t last_time = 0;
    std::uint64_t entries = 0;
    std::uint64_t exits = 0;
    std::uint64_t guest_time = 0;  ///< kvm_entry to kvm_exit
    std::vector<ExitSum> sums;
    Halts halts;
    Windows windows;
    Repeat repeat;
    std::uint64_t deadline_writes = 0;  ///< wrmsr TSC_DEADLINE
    std::uint64_t tmict_writes = 0;
    std::uint64_t icr_writes = 0;
    std::uint64_t eoi_writes = 0;
    std::uint64_t tpr_writes = 0;
    std::uint64_t most_exits_per_ms = 0;
    std::map<std::uint64_t, std::uint64_t> msrs;  ///< kvm_msr by MSR, the first 64 of them
  };
  struct Injection {
    std::uint64_t line = 0;
    int vm = -1;
    int vcpu = -1;
    unsigned vector = 0;
    Cause cause;
    std::optional<std::uint64_t> latency;  ///< from its source to its injection
  };
  struct Latency {
    std::uint64_t count = 0;
    Spans known;
  };

  std::vector<Vcpu> vcpus;
  std::vector<Injection> injections;  ///< the first ones
  std::map<std::string, Latency> causes;
  std::uint64_t accepted = 0;        ///< kvm_apic_accept_irq
  std::uint64_t accepted_apicv = 0;  ///< kvm_apicv_accept_irq
  std::uint64_t inhibits_set = 0;    ///< kvm_apicv_inhibit_changed "set"
  std::uint64_t inhibits_cleared = 0;
  std::map<unsigned, std::uint64_t> inhibit_reasons;  ///< set, by bit
  std::optional<std::uint64_t> inhibits;              ///< at the end
  std::uint64_t x2apic_msrs = 0;
  std::uint64_t hyperv_msrs = 0;  ///< of the SynIC
  std::uint64_t pic_lines = 0;    ///< kvm_pic_set_irq
  std::uint64_t nested = 0;       ///< kvm_nested_*
  std::uint64_t markers = 0;
  /// kvm_userspace_exit by reason, and by errno where that is not 0.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> userspace;
  bool pit_thread = false;
};

/// Collects the facts while a capture streams by, in constant memory.
class DiagnosisTally {
 public:
  DiagnosisTally() : causes_(threads_) {}

  void event(const ReadEvent& read);
  [[nodiscard]] DiagnosisFacts finish();

 private:
  struct State {
    bool in_host = false;  ///< behind a kvm_exit
    bool counts = false;   ///< which came behind a kvm_entry, as perf wants it
    bool entered = false;
    std::uint64_t entry_time = 0;
    std::uint64_t exit_time = 0;
    std::uint64_t exit_code = 0;
    std::uint64_t exit_rip = 0;
    bool woke = false;
    std::uint64_t address = 0;  ///< that the exit faulted at
    std::uint64_t exit_line = 0;
    bool reinjected = false;
    int vector = -1;
    DiagnosisFacts::Repeat run;
    std::optional<std::uint64_t> window_before;  ///< of the halt that a kvm_halt_poll_ns belongs to
    std::uint64_t slot = 0;
    std::uint64_t slot_exits = 0;
  };
  struct Seen {
    std::uint64_t line = 0;
    std::uint64_t time = 0;
    unsigned vector = 0;
  };
  static constexpr std::size_t remembered = 4096;

  std::size_t place(const ReadEvent& read, std::size_t stream);
  void entry(DiagnosisFacts::Vcpu& vcpu, State& state, const ReadEvent& read);
  void exit(DiagnosisFacts::Vcpu& vcpu, State& state, const ReadEvent& read);
  void wakeup(DiagnosisFacts::Vcpu& vcpu, State& state, const TraceEvent& event);
  static void window(DiagnosisFacts::Vcpu& vcpu, State& state, const ReadEvent& read);
  static void stood_still(DiagnosisFacts::Vcpu& vcpu, State& state, const TraceEvent& entry);
  void access(DiagnosisFacts::Vcpu& vcpu, const TraceEvent& event);
  void shared(const ReadEvent& read);
  void take_findings();

  VcpuThreads threads_;
  CauseTracker causes_;
  DiagnosisFacts facts_;
  std::vector<State> states_;
  std::unordered_map<std::uint64_t, std::size_t> places_;  ///< of streams, and of vCPUs without a thread
  std::array<Seen, remembered> seen_{};                    ///< events by number
  std::uint64_t number_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> numbers_;  ///< by line, of what is in seen_
};

}  // namespace svmsim::workloads
