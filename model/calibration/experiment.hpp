#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/calibration/measurement.hpp"
#include "model/config/profile.hpp"
#include "model/config/scenario.hpp"

namespace svmsim::model::calibration {

/// How the measured runs were set up.
struct Setup {
  std::string profile;                 ///< name or path
  std::uint64_t tsc_hz = 0;            ///< of the measured host
  std::vector<std::string> events;     ///< what was recorded while the tables were made, each at t_trace
  std::vector<std::string> overrides;  ///< "--set" strings for every run
};

/// The measurements again, as the model has them under given costs: each workload is run once, with recording
/// for tables and without for microbenchmarks. So the composition of an exit stands in the model alone, and
/// what a fit needs of it are differences between runs.
class Experiments {
 public:
  /// Throws UserError when a workload cannot be run.
  Experiments(const std::vector<Measurement>& measurements, const Setup& setup);

  /// Called before each run; may throw.
  void set_heartbeat(std::function<void()> heartbeat) { heartbeat_ = std::move(heartbeat); }

  /// Makes the runs behind tables so long that means do not depend on their length any more: what the guest
  /// does once, at its start, is next to nothing in a real table.
  void settle(const Costs& costs);

  /// Cycles of each measurement; negative where its run has no such exit or figure. Throws UserError when a
  /// run fails.
  [[nodiscard]] std::vector<double> predict(const Costs& costs);

  /// Runs made so far.
  [[nodiscard]] std::uint64_t runs() const noexcept { return runs_; }

  /// Runs of `indexes` alone, into the other elements of `result`.
  void predict_run(std::size_t run, const Costs& costs, std::vector<double>& result);
  [[nodiscard]] std::size_t run_count() const noexcept { return runs_to_make_.size(); }
  /// Indexes of the measurements that a run gives.
  [[nodiscard]] const std::vector<std::size_t>& members(std::size_t run) const {
    return runs_to_make_[run].members;
  }

 private:
  struct Run {
    std::string workload;
    MeasurementKind kind = MeasurementKind::round_trip;
    Scenario scenario;
    std::vector<std::size_t> members;
  };

  std::vector<Run> runs_to_make_;
  std::vector<std::string> names_;  ///< of the measurements
  std::uint64_t runs_ = 0;
  std::function<void()> heartbeat_;
};

}  // namespace svmsim::model::calibration
