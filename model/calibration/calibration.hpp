#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/calibration/measurement.hpp"
#include "model/config/profile.hpp"

namespace svmsim::model::calibration {

/// What is asked of a calibration.
struct Request {
  std::string profile;              ///< built-in name, or path of a file: where the fit starts
  std::vector<std::string> inputs;  ///< see read_measurements()
  std::vector<std::string> keep;    ///< costs that are known: "t_loop" (the profile's value) or "t_loop=250"
  std::vector<std::string> events;  ///< recorded while the tables were made; perf's own by default
  std::vector<std::string> overrides;  ///< "--set" strings for every simulation
  std::uint64_t tsc_hz = 0;            ///< of the measured host; 0 = the profile's
  double error_pct = 0.0;              ///< standard error of every measurement, on top of what its text says
  std::string name;                    ///< of the new profile; "" = the old one's with "-fitted"
};

/// The events that `perf kvm stat record` records.
[[nodiscard]] std::vector<std::string> perf_kvm_stat_events();

/// How much the measurements say about a cost.
enum class Finding : std::uint8_t {
  identified,  ///< by themselves they determine it to a standard error of 2 %
  given,       ///< the same, once the conventional costs have the profile's values
  uncertain,   ///< as `given`, to 50 %
  sum,         ///< only in a sum with others, which is divided in the profile's proportions
  assumed,     ///< not at all, or it is kept: the profile's value
};
[[nodiscard]] std::string_view finding_name(Finding finding);

struct FittedCost {
  std::string name;
  std::int64_t before = 0;
  std::int64_t value = 0;
  Finding finding = Finding::assumed;
  double error_pct = -1.0;  ///< one standard error; negative where nothing determines the cost
  bool kept = false;        ///< by the request
  bool convention = false;  ///< kept because the measurements cannot tell it from what always comes with it
  bool at_bound = false;    ///< the measurements ask for less than the least value
  std::string source;
};

using Terms = std::vector<std::pair<std::string, double>>;  ///< costs with their factors

/// "t_loop + h_cpuid + 2 t_trace".
[[nodiscard]] std::string terms_text(const Terms& terms);

/// What a measurement says about costs that it cannot tell apart.
struct MeasuredSum {
  Terms terms;
  double cycles = 0.0;
  std::string place;
};

/// One singular value of the Jacobian in units of the measurements' errors and the costs' values: 1 / value
/// is the standard error of that combination.
struct Direction {
  double singular_value = 0.0;
  Terms combination;  ///< of relative changes
};

struct ComparedMeasurement {
  Measurement measurement;
  double before = 0.0;     ///< cycles, predicted with the profile
  double predicted = 0.0;  ///< cycles, predicted with the fitted costs
  double error_cycles = 0.0;
};

struct Calibration {
  std::string profile;
  std::vector<std::string> inputs;
  std::vector<std::string> events;
  Profile fitted;
  std::vector<ComparedMeasurement> measurements;
  std::vector<UnusedLine> unused;
  std::vector<FittedCost> costs;  ///< in order of declaration
  std::vector<MeasuredSum> sums;
  std::vector<Direction> directions;  ///< by falling singular value
  double threshold = 0.0;             ///< singular values from here on are called identified
  double chi_square = 0.0;
  std::int64_t degrees_of_freedom = 0;
  std::uint64_t simulations = 0;
};

/// Fits the costs of a profile to measurements of a host. Throws UserError when the input is wrong or
/// identifies no cost, by the names of the sums that it does give; TraceError when a file cannot be read.
/// `heartbeat` is called before each simulation and may throw.
[[nodiscard]] Calibration calibrate(const Request& request, const std::function<void()>& heartbeat = {});

/// The report as JSON text, the new profile's TOML in it.
[[nodiscard]] std::string to_json(const Calibration& calibration);

/// calibrate() for Python. `options` is a JSON object: keep, events, set (lists of strings), tsc_hz,
/// error_pct, name.
[[nodiscard]] std::string calibrate_json(const std::string& profile, const std::vector<std::string>& inputs,
                                         const std::string& options,
                                         const std::function<void()>& heartbeat = {});

}  // namespace svmsim::model::calibration
