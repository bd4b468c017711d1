#include "model/calibration/experiment.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/config/loader.hpp"
#include "model/simulation.hpp"
#include "svm/exit_code.hpp"
#include "workloads/program_spec.hpp"

namespace svmsim::model::calibration {

namespace {

using Json = nlohmann::ordered_json;

// Goals of the doubling harness. The last batch gives the cycles of an iteration; the mean of an exit reason
// is over all of them and over what comes before, so that a table needs a longer run (settle()).
constexpr std::int64_t round_trip_goal = std::int64_t{1} << 18;
constexpr std::int64_t exit_time_goal = std::int64_t{1} << 19;
constexpr std::int64_t longest_goal = std::int64_t{1} << 25;
constexpr double settled = 2e-4;  ///< relative change of a mean by a run twice as long

bool is_scenario_file(const std::string& workload) {
  return workload.size() > 5 && workload.substr(workload.size() - 5) == ".toml";
}

/// The profile as a scenario anywhere can name it.
std::string absolute_profile(const std::string& profile) {
  const auto names = builtin_profile_names();
  if (std::find(names.begin(), names.end(), profile) != names.end()) return profile;
  std::error_code ignored;
  const auto path = std::filesystem::absolute(profile, ignored);
  return ignored ? profile : path.string();
}

std::vector<std::string> overrides_of(const Setup& setup, MeasurementKind kind) {
  std::vector<std::string> overrides{"host.profile=" + Json(absolute_profile(setup.profile)).dump()};
  if (kind == MeasurementKind::exit_time)
    overrides.push_back("host.tracepoints=" + Json(setup.events).dump());
  overrides.insert(overrides.end(), setup.overrides.begin(), setup.overrides.end());
  return overrides;
}

/// A program alone on its host: a pCPU for each vCPU, no tick.
Scenario program_scenario(const std::string& program, MeasurementKind kind, const Setup& setup) {
  const workloads::ProgramInfo info = workloads::program_info(program);
  const unsigned vcpus = std::max(1U, info.vcpus);
  Json vm;
  vm["vcpus"] = vcpus;
  vm["pin"] = Json::array();
  for (unsigned i = 0; i < vcpus; ++i)
    vm["pin"].push_back(i);
  vm["workload"]["kind"] = program;
  for (const workloads::ProgramParameter& parameter : info.parameters) {
    if (parameter.name == "goal")
      vm["workload"]["goal"] = kind == MeasurementKind::round_trip ? round_trip_goal : exit_time_goal;
  }
  Json scenario;
  scenario["host"] = {{"pcpus", vcpus}, {"hz", 0}};
  scenario["vm"] = Json::array({vm});
  return load_scenario(ScenarioSource::from_json(scenario.dump()), overrides_of(setup, kind));
}

Scenario scenario_of(const std::string& workload, MeasurementKind kind, const Setup& setup) {
  Scenario scenario = is_scenario_file(workload)
                          ? load_scenario(ScenarioSource::from_file(workload), overrides_of(setup, kind))
                          : program_scenario(workload, kind, setup);
  scenario.host.tsc_hz = setup.tsc_hz;
  return scenario;
}

double round_trip(const RunResult& result) {
  for (const auto& [name, value] : result.metrics) {
    if (name == "cycles_per_iteration") return value;
  }
  return -1.0;
}

double exit_time(const RunResult& result, std::uint64_t code) {
  for (const ExitStats::Row& row : total_exits(result)) {
    if (row.code == code)
      return static_cast<double>(row.counter.time) / static_cast<double>(row.counter.count);
  }
  return -1.0;
}

}  // namespace

Experiments::Experiments(const std::vector<Measurement>& measurements, const Setup& setup) {
  for (std::size_t i = 0; i < measurements.size(); ++i) {
    const Measurement& measurement = measurements[i];
    names_.push_back(measurement.name);
    const auto same =
        std::find_if(runs_to_make_.begin(), runs_to_make_.end(), [&measurement](const Run& run) {
          return run.workload == measurement.workload && run.kind == measurement.kind;
        });
    if (same != runs_to_make_.end()) {
      same->members.push_back(i);
      continue;
    }
    runs_to_make_.push_back({measurement.workload,
                             measurement.kind,
                             scenario_of(measurement.workload, measurement.kind, setup),
                             {i}});
  }
}

void Experiments::settle(const Costs& costs) {
  for (std::size_t i = 0; i < runs_to_make_.size(); ++i) {
    Run& run = runs_to_make_[i];
    auto& parameters = run.scenario.vms.front().workload.parameters;
    if (run.kind != MeasurementKind::exit_time || is_scenario_file(run.workload) ||
        parameters.find("goal") == parameters.end()) {
      continue;
    }
    std::vector<double> now(names_.size());
    std::vector<double> longer(names_.size());
    predict_run(i, costs, now);
    for (std::int64_t goal = 2 * exit_time_goal; goal <= longest_goal; goal *= 2) {
      parameters["goal"] = goal;
      predict_run(i, costs, longer);
      const bool done = std::all_of(run.members.begin(), run.members.end(), [&](std::size_t member) {
        return std::abs(longer[member] - now[member]) <= settled * std::abs(longer[member]);
      });
      if (done) break;
      now = longer;
    }
  }
}

void Experiments::predict_run(std::size_t run, const Costs& costs, std::vector<double>& result) {
  if (heartbeat_) heartbeat_();
  const Run& one = runs_to_make_[run];
  Scenario scenario = one.scenario;
  scenario.host.cost = costs;
  Simulation simulation(std::move(scenario));
  const RunResult outcome = simulation.run();
  ++runs_;
  if (!outcome.failure.empty())
    throw UserError(Problem{"", 0, one.workload, "the workload fails: " + outcome.failure, ""});
  for (const std::size_t i : one.members) {
    const auto code = svm::exit_code_of(names_[i]);
    result[i] = one.kind == MeasurementKind::round_trip
                    ? round_trip(outcome)
                    : exit_time(outcome, code.value_or(~std::uint64_t{0}));
  }
}

std::vector<double> Experiments::predict(const Costs& costs) {
  std::vector<double> result(names_.size(), -1.0);
  for (std::size_t run = 0; run < runs_to_make_.size(); ++run)
    predict_run(run, costs, result);
  return result;
}

}  // namespace svmsim::model::calibration
