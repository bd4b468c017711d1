#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "svm/guest_action.hpp"
#include "workloads/harness.hpp"
#include "workloads/shared_counters.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::workloads {

/// What retiring a step does besides going on to the next one; bits of ProgramStep::effects.
namespace step_effect {
constexpr std::uint32_t repeat = 1;  ///< again, `repeat` times in all
constexpr std::uint32_t start_watch = 2;
constexpr std::uint32_t stop_watch = 4;
constexpr std::uint32_t leave_if_reached = 8;  ///< to `target` once what the step waits for has happened
constexpr std::uint32_t jump = 16;             ///< to `target`
constexpr std::uint32_t end_iteration = 32;
constexpr std::uint32_t begin_batch = 64;
constexpr std::uint32_t end_batch = 128;
constexpr std::uint32_t handler_return = 256;
constexpr std::uint32_t pv_eoi = 512;         ///< leaves out the next step when KVM has set the PV EOI word
constexpr std::uint32_t add_counter = 1024;   ///< `count` to the counter
constexpr std::uint32_t set_deadline = 2048;  ///< the result plus `count` becomes the next step's value
}  // namespace step_effect

struct ProgramStep {
  svm::GuestAction action;
  std::uint32_t effects = 0;
  std::uint32_t target = 0;
  std::uint64_t repeat = 1;
  std::uint64_t count = 0;     ///< of a wait: runs of the handler, or the counter's value
  bool per_iteration = false;  ///< `count` is for each iteration up to this one
  std::int16_t counter = -1;   ///< index; -1 = the handler of `vector` counts
  std::uint8_t vector = 0;
  std::uint8_t watch = 0;  ///< of start_watch and stop_watch
};

/// A program of one vCPU with every parameter filled in: steps in one array, in the order set-up, batch
/// begin, body, batch end, tear-down, handlers.
struct FlatProgram {
  struct Check {
    std::uint8_t vector = 0;
    std::uint64_t runs = 1;
  };
  static constexpr std::uint32_t no_handler = UINT32_MAX;

  std::vector<ProgramStep> steps;
  std::uint32_t body_begin = 0;
  std::uint32_t body_end = 0;    ///< first step after the body; equals body_begin when the vCPU has none
  std::uint32_t end = 0;         ///< the step after the tear-down: nothing more to do
  std::uint64_t iterations = 1;  ///< of a program without a harness
  bool harnessed = false;
  BatchHarness harness;
  std::array<std::uint32_t, 256> handler{};  ///< first step of each vector's handler, or no_handler
  std::vector<Check> checks;
  std::size_t counters = 0;          ///< how many the VM shares
  std::vector<std::string> watches;  ///< metric names are these with "_cycles" behind
  InitialState initial;
};

/// Runs a FlatProgram. current() and retire() are on the simulator's hot path: no allocation, no look-up.
class ProgramSource final : public WorkloadSource {
 public:
  explicit ProgramSource(FlatProgram program, unsigned vcpu = 0, std::shared_ptr<SharedCounters> memory = {});

  [[nodiscard]] InitialState initial_state() const override { return program_.initial; }
  [[nodiscard]] const svm::GuestAction* current() override {
    return next_ == end_ ? nullptr : &next_->action;
  }
  void retire(std::uint64_t tsc, std::uint64_t result) override {
    (void)tsc;
    if (next_->effects == 0) {
      ++next_;
    } else {
      retire_with_effects(*next_, result);
    }
  }
  void interrupt(std::uint8_t vector, std::uint64_t tsc) override;
  void restart() override;
  const std::vector<unsigned>& retire_shared(std::uint64_t tsc) override;
  [[nodiscard]] std::uint64_t spin_ready() const override;
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t vector) const override;
  void attach(PvMemory& memory) override { pv_ = &memory; }
  [[nodiscard]] Metrics metrics() const override;
  [[nodiscard]] std::string failure() const override;

 private:
  struct Frame {
    const ProgramStep* next;
    std::uint64_t repeated;
    std::uint8_t vector;
  };
  struct Stopwatch {
    std::uint64_t started = 0;
    std::uint64_t cycles = 0;
    std::uint64_t stops = 0;
  };
  enum class Failure : std::uint8_t { none, handler_runs, no_handler };

  void retire_with_effects(const ProgramStep& step, std::uint64_t result);
  void retire_rare(const ProgramStep& step, std::uint64_t result);
  void end_iteration();
  [[nodiscard]] bool reached(const ProgramStep& step) const;
  void return_from_handler();
  [[nodiscard]] const ProgramStep* step_at(std::uint32_t index) const { return &program_.steps[index]; }
  void fail(Failure kind, std::uint8_t vector) noexcept;

  FlatProgram program_;
  std::shared_ptr<SharedCounters> memory_;
  const ProgramStep* next_;
  const ProgramStep* end_;
  std::uint64_t repeated_ = 0;    // how often the current step has retired
  std::uint64_t batch_size_ = 0;  // iterations of the running batch
  std::uint64_t batch_done_ = 0;
  std::uint64_t iterations_ = 0;  // completed, over all batches
  BatchHarness harness_;
  std::vector<Stopwatch> watches_;
  std::vector<std::uint64_t> checked_;  // handler runs at the last iteration's end, per check
  std::array<std::uint64_t, 256> handler_runs_{};
  std::vector<Frame> frames_;
  PvMemory* pv_ = nullptr;
  Failure failure_ = Failure::none;
  std::uint8_t failed_vector_ = 0;
  std::uint64_t failed_runs_ = 0;
  std::uint64_t expected_runs_ = 0;
};

}  // namespace svmsim::workloads
