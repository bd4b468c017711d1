#include "model/calibration/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "model/calibration/findings.hpp"
#include "model/config/parameters.hpp"

namespace svmsim::model::calibration {

using Eigen::Index;
using Eigen::VectorXd;
using Indexes = std::vector<Index>;

namespace {

bool contains(const Indexes& all, Index one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

/// The costs that the request keeps, and their values put into `x`.
Indexes read_kept(const Request& request, const CostVector& vector, VectorXd& x,
                  std::vector<Problem>& problems) {
  Indexes kept;
  for (const std::string& text : request.keep) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const Index j = vector.index(name);
    if (j < 0) {
      problems.push_back({"", 0, "--keep", fmt::format("{} is no cost in cycles", name),
                          nearest_name(name, vector.names())});
      continue;
    }
    kept.push_back(j);
    if (equals == std::string::npos) continue;
    const std::string number = text.substr(equals + 1);
    const bool digits =
        !number.empty() && number.size() <= 10 && number.find_first_not_of("0123456789") == std::string::npos;
    const double value = digits ? static_cast<double>(std::stoull(number)) : -1.0;
    if (value < vector.lower()[j] || value > vector.upper()[j]) {
      problems.push_back({"", 0, "--keep",
                          fmt::format("{} is no number of cycles from {:.0f} to {:.0f}", text,
                                      vector.lower()[j], vector.upper()[j]),
                          ""});
      continue;
    }
    x[j] = value;
  }
  return kept;
}

/// Measurements that the runs do not have go to the unused lines.
void drop_missing(const Setup& setup, MeasurementSet& set, const Costs& costs,
                  const std::function<void()>& heartbeat) {
  Experiments experiments(set.measurements, setup);
  experiments.set_heartbeat(heartbeat);
  const std::vector<double> predicted = experiments.predict(costs);
  std::vector<Measurement> there;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    Measurement& one = set.measurements[i];
    if (predicted[i] > 0.0) {
      there.push_back(std::move(one));
      continue;
    }
    set.unused.push_back(
        {one.source, one.line, one.name,
         one.kind == MeasurementKind::exit_time
             ? fmt::format("the simulated {} has no such exit under these settings", one.workload)
             : "the program does not measure cycles"});
  }
  set.measurements = std::move(there);
}

/// "perf.txt:12, vmexit.txt:3": the measurements that move a cost most.
std::string places_of(const Determination& found, Index row, const std::vector<Measurement>& measurements) {
  constexpr double share = 0.2;
  constexpr std::size_t most = 4;
  const VectorXd influence = found.influence.row(row).cwiseAbs();
  const double largest = influence.size() == 0 ? 0.0 : influence.maxCoeff();
  std::string text;
  std::size_t count = 0;
  for (Index i = 0; i < influence.size() && largest > 0.0; ++i) {
    if (influence[i] < share * largest) continue;
    if (++count > most) return text + ", ...";
    text += (text.empty() ? "" : ", ") + measurements[static_cast<std::size_t>(i)].place();
  }
  return text;
}

std::string old_source(const Profile& profile, const std::string& name) {
  for (const ProfileCost& cost : profile.costs) {
    if (cost.name == name) return cost.source;
  }
  return {};
}

/// The conventional costs that stand beside cost `j` in a measurement, by name.
std::string conventions_beside(const CostVector& vector, const Indexes& convention, const Linearisation& at,
                               Index j) {
  std::string text;
  for (const Index other : convention) {
    if (stand_together(at, other, j)) text += (text.empty() ? "" : ", ") + vector.name(other);
  }
  return text;
}

/// Everything that describes a fit that has been made.
struct Outcome {
  const CostVector& vector;
  const Fit& fit;
  const std::vector<Measurement>& measurements;
  const Knowledge& knowledge;
  const Indexes& kept;
  const Linearisation& at;
  const VectorXd& before;
  const VectorXd& x;
};

double error_of(const Determination& found, const Indexes& columns, Index j, double inflation) {
  const auto place = std::find(columns.begin(), columns.end(), j);
  if (place == columns.end()) return -1.0;
  const double error = found.errors[std::distance(columns.begin(), place)];
  return std::isfinite(error) ? error * inflation : -1.0;
}

void describe_costs(const Outcome& outcome, const Profile& profile, double inflation, Calibration& result) {
  const Knowledge& knowledge = outcome.knowledge;
  const Determination all = outcome.fit.determination(knowledge.reached, outcome.at, outcome.x);
  const Determination some = outcome.fit.determination(knowledge.free, outcome.at, outcome.x);
  Indexes open;
  for (Index j = 0; j < outcome.vector.size(); ++j) {
    FittedCost cost;
    cost.name = outcome.vector.name(j);
    cost.before = std::llround(outcome.before[j]);
    cost.value = std::llround(outcome.x[j]);
    cost.kept = contains(outcome.kept, j);
    cost.convention = contains(knowledge.convention, j);
    const std::string old = old_source(profile, cost.name);
    const double alone = error_of(all, knowledge.reached, j, inflation);
    const double given = error_of(some, knowledge.free, j, inflation);
    const auto place = std::find(knowledge.free.begin(), knowledge.free.end(), j);
    const std::string from =
        place == knowledge.free.end()
            ? std::string()
            : places_of(some, std::distance(knowledge.free.begin(), place), outcome.measurements);
    cost.at_bound = place != knowledge.free.end() && outcome.x[j] <= outcome.vector.lower()[j];
    const bool fitted = place != knowledge.free.end();
    if (fitted && !cost.at_bound && alone >= 0.0 && alone <= identified_error) {
      cost.finding = Finding::identified;
      cost.error_pct = 100.0 * alone;
      cost.source = "fitted to " + from;
    } else if (fitted && given >= 0.0 && given <= uncertain_error) {
      cost.finding = given <= identified_error && !cost.at_bound ? Finding::given : Finding::uncertain;
      cost.error_pct = 100.0 * given;
      cost.source = "fitted to " + from;
      const std::string beside = conventions_beside(outcome.vector, knowledge.convention, outcome.at, j);
      if (!beside.empty()) cost.source += fmt::format(", with {} as in {}", beside, result.profile);
      if (cost.finding == Finding::uncertain) cost.source += fmt::format(", to {:.0f} %", cost.error_pct);
    } else if (fitted) {
      cost.finding = Finding::sum;
      cost.source =
          fmt::format("part of a sum that was measured ({}), divided as in {}", from, result.profile);
    } else if (cost.kept) {
      cost.source = cost.value == cost.before ? fmt::format("kept from {}: {}", result.profile, old)
                                              : "given to svmsim calibrate (--keep)";
    } else {
      cost.source = fmt::format("kept from {}: {}", result.profile, old);
    }
    const bool reached = contains(knowledge.reached, j);
    if (reached && cost.finding != Finding::identified) open.push_back(j);
    result.costs.push_back(std::move(cost));
  }
  result.sums = measured_sums(outcome.vector, outcome.measurements, outcome.at, outcome.x, open);
  constexpr double visible = 0.1;
  for (Index k = 0; k < all.singular_values.size(); ++k) {
    Direction direction;
    direction.singular_value = all.singular_values[k] / inflation;
    // The sign is free: the largest part is positive.
    Index largest = 0;
    all.directions.col(k).cwiseAbs().maxCoeff(&largest);
    const double sign = all.directions(largest, k) < 0 ? -1.0 : 1.0;
    for (Index i = 0; i < all.directions.rows(); ++i) {
      const double part = sign * all.directions(i, k);
      if (std::abs(part) >= visible)
        direction.combination.emplace_back(
            outcome.vector.name(knowledge.reached[static_cast<std::size_t>(i)]), part);
    }
    result.directions.push_back(std::move(direction));
  }
}

Profile fitted_profile(const Request& request, Profile profile, const CostVector& vector, const VectorXd& x,
                       const Calibration& calibration) {
  profile.cost = vector.costs(x);
  profile.name = request.name.empty() ? profile.name + "-fitted" : request.name;
  std::string files;
  for (const std::string& input : request.inputs)
    files += (files.empty() ? "" : ", ") + input;
  profile.doc = fmt::format("The profile {} fitted to {} by svmsim calibrate.", calibration.profile, files);
  if (request.tsc_hz != 0) profile.tsc_hz = request.tsc_hz;
  for (ProfileCost& entry : profile.costs) {
    for (const FittedCost& cost : calibration.costs) {
      if (cost.name != entry.name) continue;
      entry.value = cost.value;
      entry.source = cost.source;
    }
  }
  return profile;
}

}  // namespace

std::vector<std::string> perf_kvm_stat_events() {
  return {"kvm_entry", "kvm_exit", "kvm_mmio", "kvm_pio", "kvm_msr"};
}

std::string_view finding_name(Finding finding) {
  switch (finding) {
    case Finding::identified:
      return "identified";
    case Finding::given:
      return "given";
    case Finding::uncertain:
      return "uncertain";
    case Finding::sum:
      return "sum";
    case Finding::assumed:
      return "assumed";
  }
  return "";
}

std::string terms_text(const Terms& terms) {
  std::string text;
  for (const auto& [name, factor] : terms) {
    const double size = std::abs(factor);
    if (!text.empty()) {
      text += factor < 0 ? " - " : " + ";
    } else if (factor < 0) {
      text += "-";
    }
    if (std::abs(size - 1.0) > 5e-4) text += fmt::format("{:.3g} ", size);
    text += name;
  }
  return text;
}

Calibration calibrate(const Request& request, const std::function<void()>& heartbeat) {
  const Profile profile = load_profile(request.profile);
  Calibration result;
  result.profile = profile.name;
  result.inputs = request.inputs;
  result.events = request.events;
  result.threshold = 1.0 / identified_error;

  Setup setup{request.profile, request.tsc_hz == 0 ? profile.tsc_hz : request.tsc_hz, request.events,
              request.overrides};
  std::vector<Problem> problems;
  const CostVector vector(profile.cost);
  const VectorXd before = vector.values(profile.cost);
  VectorXd start = before;
  const Indexes kept = read_kept(request, vector, start, problems);
  MeasurementSet set = read_measurements(request.inputs, setup.tsc_hz, problems);
  if (!problems.empty()) throw UserError(std::move(problems));
  for (Measurement& one : set.measurements)
    one.error_cycles = std::hypot(one.error_cycles, one.cycles * request.error_pct / 100.0);
  drop_missing(setup, set, vector.costs(start), heartbeat);
  result.unused = set.unused;
  if (set.measurements.empty()) {
    for (const UnusedLine& line : set.unused)
      problems.push_back({line.source, line.line, line.name, line.reason, ""});
    throw UserError(std::move(problems));
  }

  Experiments experiments(set.measurements, setup);
  experiments.set_heartbeat(heartbeat);
  experiments.settle(vector.costs(start));
  Fit fit(vector, experiments, set.measurements, start);
  Linearisation at = fit.linearise(start);
  const VectorXd predicted_before = at.predicted;
  Knowledge knowledge = choose_free(vector, fit, at, start, kept);
  const auto identifies = [&](const Linearisation& around, const VectorXd& x) {
    const Determination some = fit.determination(knowledge.free, around, x);
    return some.errors.size() != 0 && some.errors.minCoeff() <= uncertain_error;
  };
  if (!identifies(at, start)) refuse(vector, fit, at, start, set.measurements, knowledge);
  VectorXd x = fit.solve(knowledge.free, start);
  // A handler that would have to cost less than nothing says that a convention beside it is wrong.
  while (release_conventions(vector, fit.linearise(x), x, knowledge))
    x = fit.solve(knowledge.free, x);
  at = fit.linearise(x);

  const Fit::Misfit misfit = fit.misfit(knowledge.free, at);
  const Determination some = fit.determination(knowledge.free, at, x);
  result.chi_square = misfit.chi_square;
  result.degrees_of_freedom = misfit.rows - some.rank;
  // Where the measurements contradict each other, they are worth as much less (R. T. Birge, 1932).
  const double inflation =
      result.degrees_of_freedom > 0
          ? std::sqrt(std::max(1.0, misfit.chi_square / static_cast<double>(result.degrees_of_freedom)))
          : 1.0;
  const VectorXd error = fit.errors(at);
  for (std::size_t i = 0; i < set.measurements.size(); ++i) {
    const auto row = static_cast<Index>(i);
    result.measurements.push_back(
        {set.measurements[i], predicted_before[row], at.predicted[row], error[row]});
  }
  describe_costs({vector, fit, set.measurements, knowledge, kept, at, before, x}, profile, inflation, result);
  result.simulations = experiments.runs();
  result.fitted = fitted_profile(request, profile, vector, x, result);
  return result;
}

}  // namespace svmsim::model::calibration
