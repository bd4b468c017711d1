#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "workloads/trace/replay_workload.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::workloads {

/// Replays what one vCPU did. The n-th delivery of a vector runs the n-th recorded handler of that vector,
/// wherever it arrives; once they are used up the last one is run again. What the recording shows as the
/// host's doing (physical interrupts, and virtual ones of unknown cause) is not an action: a driver that
/// wants it asks for what is due before the current action. Opaque exits are skipped. Cycles are scaled from
/// the recording's TSC to the host's.
class ReplaySource final : public WorkloadSource {
 public:
  /// `tsc_hz` is the host's frequency; 0 takes the recording's, so that cycles stay as they are.
  ReplaySource(const ReplayWorkload& workload, std::size_t vcpu_index, std::uint64_t tsc_hz = 0);

  [[nodiscard]] InitialState initial_state() const override { return initial_; }
  [[nodiscard]] const svm::GuestAction* current() override {
    return position_ == main_end_ ? nullptr : &steps_[position_].action;
  }
  void retire(std::uint64_t tsc, std::uint64_t result) override {
    (void)tsc;
    (void)result;
    ++retired_;
    if (steps_[position_].returns && !frames_.empty()) {
      position_ = frames_.back();
      frames_.pop_back();
    } else {
      ++position_;
    }
  }
  void interrupt(std::uint8_t vector, std::uint64_t tsc) override;
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t vector) const override { return entries_[vector]; }
  [[nodiscard]] Metrics metrics() const override;
  [[nodiscard]] std::string failure() const override;

  /// Kernel generation of the recording, which a replay under recorded settings takes.
  [[nodiscard]] KernelGeneration kernel() const noexcept { return kernel_; }
  /// The recording begins inside the exit of the first action: its kvm_exit is not there to compare with.
  [[nodiscard]] bool first_is_partial() const noexcept { return first_is_partial_; }
  /// The current action's exit is only partly recorded: the first one (see above), or one at which the
  /// recording ends.
  [[nodiscard]] bool current_is_partial() const noexcept {
    return position_ != main_end_ && (steps_[position_].flags & replay_flag::partial) != 0;
  }
  [[nodiscard]] bool current_is_open_end() const noexcept {
    return position_ != main_end_ && (steps_[position_].flags & replay_flag::open_end) != 0;
  }
  /// Line of the recording that the current action comes from; 0 when it left no line.
  [[nodiscard]] std::uint64_t current_line() const noexcept {
    return position_ == main_end_ ? 0 : steps_[position_].line;
  }

  /// A physical interrupt that the recording has before the current action and that was not taken yet. Takes
  /// it.
  bool take_host_interrupt() override;
  /// Likewise a virtual interrupt whose cause is not in the recording: the driver is to send it to the vCPU's
  /// LAPIC.
  std::optional<std::uint8_t> take_external_interrupt() override;
  [[nodiscard]] bool has_external_causes() const override { return !causes_.empty(); }
  [[nodiscard]] bool begins_inside_exit() const override { return first_is_partial_; }

 private:
  struct Step {
    svm::GuestAction action;
    std::uint64_t line = 0;
    std::uint32_t external = 0;  ///< first of the external causes before it, in causes_
    std::uint32_t external_count = 0;
    std::uint8_t flags = 0;
    bool returns = false;
  };
  struct ExternalCause {
    bool host = false;
    std::uint8_t vector = 0;
    bool taken = false;
  };
  /// Handlers of one vector: first steps, in the order of the recording.
  struct Handlers {
    std::vector<std::uint32_t> begin;
    std::size_t next = 0;
  };

  friend class ReplayLayout;

  InitialState initial_;
  KernelGeneration kernel_ = KernelGeneration::v6_12;
  std::vector<Step> steps_;  ///< the main stream, then one handler after the other
  std::vector<ExternalCause> causes_;
  std::array<Handlers, 256> handlers_;
  std::array<std::uint64_t, 256> entries_{};
  std::vector<std::uint32_t> frames_;
  std::uint32_t position_ = 0;
  std::uint32_t main_end_ = 0;
  std::uint32_t bare_return_ = 0;  ///< an iret for vectors without a handler
  std::uint64_t retired_ = 0;
  std::uint64_t interrupts_ = 0;
  std::uint64_t repeated_handlers_ = 0;
  std::uint64_t opaque_ = 0;
  int unhandled_vector_ = -1;
  bool first_is_partial_ = false;
};

/// Source of vCPU `vcpu_index` (the order of the file). Throws UserError when there is none.
[[nodiscard]] std::unique_ptr<ReplaySource> make_replay(const ReplayWorkload& workload,
                                                        std::size_t vcpu_index, std::uint64_t tsc_hz = 0);

}  // namespace svmsim::workloads
