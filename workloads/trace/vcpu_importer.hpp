#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "workloads/trace/interrupt_causes.hpp"
#include "workloads/trace/replay_workload.hpp"
#include "workloads/trace/vcpu_stream.hpp"

namespace svmsim::workloads {

/// Turns the events of one vCPU into what its guest did. All events from one kvm_entry to the next belong to
/// one exit, whichever side of kvm_exit the kernel prints them on. The rules, in the order in which they are
/// tried:
///
///  Exits. msr, io, cpuid, hypercall, hlt, idle-halt, pause, rdtsc become their instruction; npf becomes a
///  memory access at EXITINFO2, or nothing when it cut an injection short (EXITINTINFO valid: the GDT's page
///  was absent); interrupt, nmi and smi are the host's; vintr is nothing, since it follows from IF and the
///  shadow; all others stay opaque. Handlers. kvm_inj_virq starts a handler; one that is [reinjected]
///  continues the one before. A handler ends with the EOI of its vector, or without one at the guest's next
///  HLT, or before the exit at which kvm_pv_eoi is seen; iret follows at once. IF. Off at the beginning and
///  in handlers. A vintr exit at R without a HLT directly before R: STI at R-2 and one instruction in its
///  shadow at R-1. A HLT: STI directly before, so that it runs in the shadow. An injection without vintr: IF
///  was on. Where IF must have gone off again, CLI stands directly behind the last point at which it was
///  surely on. Work. The time from kvm_entry to the exit's first event, less the world switch, not below 0.
///  No or equal time stamps: 0, flagged unknown.
class VcpuImporter {
 public:
  struct Options {
    std::uint64_t tsc_hz = 1'000'000'000;
    std::uint64_t world_switch_cycles = 0;
    KernelGeneration kernel = KernelGeneration::v6_12;
    bool hlt_exits_somewhere = false;  ///< the capture has hlt exits, so a HLT cannot hide
  };

  VcpuImporter(const Capture& capture, const VcpuStream& stream, const InterruptCauses& causes,
               Options options);

  [[nodiscard]] ReplayVcpu import();

  /// What the recording hides, with counts; valid after import().
  [[nodiscard]] const std::map<std::string, std::uint64_t>& undecidable() const noexcept {
    return undecidable_;
  }
  /// What was left out of the workload and why.
  [[nodiscard]] const std::map<std::string, std::uint64_t>& dropped() const noexcept { return dropped_; }
  [[nodiscard]] const std::map<std::string, std::uint64_t>& causes() const noexcept { return cause_counts_; }

 private:
  static constexpr std::size_t none = SIZE_MAX;

  /// What happened between two entries. Positions are indices into the stream's events.
  struct Group {
    std::size_t begin = 0;
    std::size_t end = 0;       ///< one behind the last event, without the closing entry
    std::size_t entry = none;  ///< kvm_entry before it
    std::size_t exit = none;
    std::size_t next_entry = none;
    bool first = false;
  };
  /// The stream itself, or a handler that interrupted it.
  struct Context {
    std::size_t resume = 0;  ///< item behind the last point at which IF was surely on
    bool interrupts_on = false;
    bool acknowledged = false;     ///< handler: its EOI is written; it returns before the next progress
    std::uint64_t return_rip = 0;  ///< handler: the interrupted rIP
    std::uint8_t vector = 0;
  };

  [[nodiscard]] const TraceEvent& event(std::size_t position) const;
  [[nodiscard]] std::uint64_t line(std::size_t position) const;
  [[nodiscard]] const TraceEvent* detail(const Group& group, EventKind kind) const;
  [[nodiscard]] bool delivery_was_cut(const Group& group) const;

  void process(const Group& group);
  void process_without_exit(const Group& group);
  void process_exit(const Group& group);
  void process_injections(const Group& group);
  void append_npf(const Group& group, ReplayItem item);
  void append_window(const Group& group, std::uint64_t rip);
  void append_host_interrupt(const Group& group, ReplayItem item);
  void append_hlt(const Group& group, const ReplayItem& item);
  void note_handler_rip(const Group& group, std::uint64_t rip);
  [[nodiscard]] bool exit_is_behind_fastpath(const Group& group) const;
  bool fill_action(const Group& group, std::uint64_t code, ReplayItem& item);
  bool fill_msr(const Group& group, bool write, svm::GuestAction& action);
  void fill_io(const Group& group, std::uint64_t info, svm::GuestAction& action);
  void fill_length(const Group& group, svm::GuestAction& action) const;

  [[nodiscard]] std::uint64_t work_cycles(const Group& group, bool& known) const;
  void append_work(const Group& group);
  ReplayItem& append(ReplayItem item);
  [[nodiscard]] static ReplayItem inferred(svm::ActionKind kind);
  void insert(std::size_t at, const ReplayItem& item);
  void require_interrupts_on();
  void require_interrupts_off();
  void push_handler(const Group& group, std::size_t position);
  void return_from_handler();
  void return_from_acknowledged_handlers(const Group& group);
  void note_rip(std::uint64_t rip);
  void count_undecidable(const std::string& what) { ++undecidable_[what]; }

  const Capture& capture_;
  const VcpuStream& stream_;
  const InterruptCauses& interrupt_causes_;
  Options options_;
  ReplayVcpu result_;
  std::vector<Context> contexts_;
  std::size_t work_item_ = 0;  ///< where the work before the current exit begins
  std::uint64_t open_at_ = 0;  ///< rIP at which an interrupt window would be open without further ado
  bool is_open_ =
      false;  ///< open_at_ holds: nothing but host interrupts came since a HLT or a handler's return
  bool if_known_ = false;  ///< the recording has told something about IF outside handlers
  bool started_ = false;
  std::map<std::uint64_t, std::uint64_t> touched_;  ///< faults by page
  std::map<std::string, std::uint64_t> undecidable_;
  std::map<std::string, std::uint64_t> dropped_;
  std::map<std::string, std::uint64_t> cause_counts_;
};

}  // namespace svmsim::workloads
