#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/config/scenario.hpp"
#include "model/event_sink.hpp"
#include "model/stats/run_result.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::model {

/// Makes the workload of a vCPU: VM by index, vCPU by index in it.
using SourceFactory = std::function<std::unique_ptr<workloads::WorkloadSource>(
    const VmConfig& vm, unsigned vm_index, unsigned vcpu)>;

/// Called now and then during a run with the simulated time in ns, and with the share done (0..1), or -1 when
/// the run has no known end. May throw to stop the run; the exception reaches the caller of Simulation::run.
using Progress = std::function<void(std::uint64_t simulated_ns, double share)>;

/// One simulation of a scenario: the facade of the model, without SystemC. Objects may exist side by side;
/// run() of two at the same time needs two processes (SystemC's context is global).
class Simulation {
 public:
  explicit Simulation(Scenario scenario);
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;
  ~Simulation();

  [[nodiscard]] const Scenario& scenario() const noexcept { return scenario_; }

  /// Replaces the scenario's workloads, for replays and tests.
  void set_source_factory(SourceFactory factory) { factory_ = std::move(factory); }
  /// The sink must outlive run().
  void add_sink(EventSink& sink) { sinks_.push_back(&sink); }
  /// Writes a VCD file of the run (model/waveform.hpp); run-ahead is off then, which changes no result.
  void set_waveform(std::string path) { waveform_ = std::move(path); }
  /// Events of kind svmsim_guest for what leaves no exit (model/marking_source.hpp); they change no result.
  void set_markers(bool markers) noexcept { markers_ = markers; }
  void set_progress(Progress progress) { progress_ = std::move(progress); }

  /// Host threads of the scenario and their names, for trace writers.
  [[nodiscard]] std::vector<std::pair<std::int32_t, std::string>> threads() const;

  /// Runs until the workload ends or the duration is over. Each call builds a new machine and gives the same
  /// result. Throws UserError when the workload needs what is not modelled, InternalError for a bug of ours.
  [[nodiscard]] RunResult run();

 private:
  Scenario scenario_;
  SourceFactory factory_;
  std::vector<EventSink*> sinks_;
  std::string waveform_;
  bool markers_ = false;
  Progress progress_;
};

}  // namespace svmsim::model
