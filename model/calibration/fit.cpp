#include "model/calibration/fit.hpp"

#include <algorithm>
#include <cmath>

namespace svmsim::model::calibration {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

namespace {

constexpr double smallest_step = 64.0;  ///< cycles; many times the rounding of a figure
constexpr double relative_step = 0.25;  ///< of a cost
constexpr double profile_weakness = 100.0;
constexpr int most_steps = 12;
constexpr int most_attempts = 8;
constexpr double first_damping = 1e-3;

double step_of(double value) {
  return std::max(smallest_step, std::round(relative_step * value));
}

VectorXd as_vector(const std::vector<double>& values) {
  return Eigen::Map<const VectorXd>(values.data(), static_cast<Index>(values.size()));
}

}  // namespace

Fit::Fit(const CostVector& vector, Experiments& experiments, const std::vector<Measurement>& measurements,
         VectorXd profile)
    : vector_(vector), experiments_(experiments), measurements_(measurements), profile_(std::move(profile)) {
  measured_.resize(static_cast<Index>(measurements.size()));
  for (std::size_t i = 0; i < measurements.size(); ++i)
    measured_[static_cast<Index>(i)] = measurements[i].cycles;
  // A variance in proportion to the value makes the members of a measured sum grow by the same factor.
  constexpr double usual_cost = 100.0;
  constexpr double least_cost = 10.0;
  pull_ = (profile_.cwiseMax(least_cost) * usual_cost).cwiseSqrt() * profile_weakness;
}

VectorXd Fit::predict(const VectorXd& x) {
  return as_vector(experiments_.predict(vector_.costs(x)));
}

Linearisation Fit::linearise(const VectorXd& x) {
  const auto rows = static_cast<Index>(measurements_.size());
  Linearisation result;
  result.predicted = predict(x);
  result.jacobian = MatrixXd::Zero(rows, vector_.size());
  result.nonlinear = VectorXd::Zero(rows);
  const bool first = reach_.empty();
  if (first) reach_.resize(experiments_.run_count());
  std::vector<double> near(static_cast<std::size_t>(rows));
  std::vector<double> far(static_cast<std::size_t>(rows));
  for (std::size_t run = 0; run < experiments_.run_count(); ++run) {
    std::vector<Index> columns = reach_[run];
    if (first) {
      for (Index j = 0; j < vector_.size(); ++j)
        columns.push_back(j);
    }
    for (const Index j : columns) {
      const double size = step_of(x[j]);
      VectorXd other = x;
      other[j] = x[j] + size;
      experiments_.predict_run(run, vector_.costs(other), near);
      const auto& members = experiments_.members(run);
      const bool reaches = std::any_of(members.begin(), members.end(), [&](std::size_t i) {
        return near[i] != result.predicted[static_cast<Index>(i)];
      });
      if (!reaches) continue;
      if (first) reach_[run].push_back(j);
      other[j] = x[j] + 2 * size;
      experiments_.predict_run(run, vector_.costs(other), far);
      for (const std::size_t i : members) {
        const auto row = static_cast<Index>(i);
        const double here = result.predicted[row];
        if (here < 0 || near[i] < 0 || far[i] < 0) {
          result.nonlinear[row] = std::hypot(result.nonlinear[row], measurements_[i].cycles);
          continue;
        }
        double slope = (near[i] - here) / size;
        double bend = far[i] - 2 * near[i] + here;
        if (measurements_[i].kind == MeasurementKind::round_trip) {
          // The figure is cut to whole cycles: a slope this near to a whole one is that.
          if (std::abs(slope - std::round(slope)) * size <= 1.0) slope = std::round(slope);
          if (std::abs(bend) <= 1.0) bend = 0.0;
        }
        result.jacobian(row, j) = slope;
        result.nonlinear[row] = std::hypot(result.nonlinear[row], bend);
      }
    }
  }
  return result;
}

VectorXd Fit::errors(const Linearisation& around) const {
  constexpr double least = 0.1;  // cycles; no model is nearer, whatever a table claims
  VectorXd result(measured_.size());
  for (Index i = 0; i < result.size(); ++i) {
    const double own = measurements_[static_cast<std::size_t>(i)].error_cycles;
    // Differences of sums of doubles leave a trace.
    const double bend = around.nonlinear[i] > 1e-6 * measured_[i] ? around.nonlinear[i] : 0.0;
    result[i] = std::max(least, std::hypot(own, bend));
  }
  return result;
}

VectorXd Fit::step(const std::vector<Index>& free, const Linearisation& around, const VectorXd& x,
                   double damping) const {
  const Index rows = measured_.size();
  const auto columns = static_cast<Index>(free.size());
  const VectorXd error = errors(around);
  const bool damped = damping > 0.0;
  MatrixXd a = MatrixXd::Zero(rows + columns * (damped ? 2 : 1), columns);
  VectorXd b = VectorXd::Zero(a.rows());
  VectorXd lower(columns);
  VectorXd upper(columns);
  for (Index i = 0; i < rows; ++i)
    b[i] = (measured_[i] - around.predicted[i]) / error[i];
  for (Index c = 0; c < columns; ++c) {
    const Index j = free[static_cast<std::size_t>(c)];
    a.col(c).head(rows) = around.jacobian.col(j).cwiseQuotient(error);
    const double length = a.col(c).head(rows).norm();
    a(rows + c, c) = 1.0 / pull_[j];
    b[rows + c] = (profile_[j] - x[j]) / pull_[j];
    if (damped) a(rows + columns + c, c) = std::sqrt(damping) * length;
    lower[c] = vector_.lower()[j] - x[j];
    upper[c] = vector_.upper()[j] - x[j];
  }
  const VectorXd change = bounded_least_squares(a, b, lower, upper, VectorXd::Zero(columns));
  VectorXd result = x;
  for (Index c = 0; c < columns; ++c)
    result[free[static_cast<std::size_t>(c)]] += change[c];
  return result;
}

double Fit::objective(const VectorXd& predicted, const VectorXd& error, const VectorXd& x) const {
  return (measured_ - predicted).cwiseQuotient(error).squaredNorm() +
         (x - profile_).cwiseQuotient(pull_).squaredNorm();
}

// Rounding each cost by itself would shift the sums that are measured. Moves of one cycle of one cost, or of
// two against each other, repair that; the linear model is enough for them.
VectorXd Fit::to_whole(const std::vector<Index>& free, const Linearisation& around, const VectorXd& x,
                       const VectorXd& target) const {
  const VectorXd error = errors(around);
  VectorXd whole = target;
  for (const Index j : free)
    whole[j] = std::clamp(std::round(target[j]), vector_.lower()[j], vector_.upper()[j]);
  const auto value = [&](const VectorXd& candidate) {
    const VectorXd predicted = around.predicted + around.jacobian * (candidate - x);
    return objective(predicted, error, candidate);
  };
  double best = value(whole);
  std::vector<std::pair<Index, double>> moves;
  for (const Index j : free) {
    moves.emplace_back(j, 1.0);
    moves.emplace_back(j, -1.0);
  }
  const auto better = [&](const VectorXd& candidate) {
    const double objective = value(candidate);
    if (objective >= best - 1e-9 * (1.0 + best)) return false;
    best = objective;
    whole = candidate;
    return true;
  };
  const auto fits = [&](const VectorXd& candidate, Index j) {
    return candidate[j] >= vector_.lower()[j] && candidate[j] <= vector_.upper()[j];
  };
  constexpr int most_sweeps = 100;
  bool improved = true;
  for (int sweep = 0; improved && sweep < most_sweeps; ++sweep) {
    improved = false;
    for (std::size_t first = 0; first < moves.size(); ++first) {
      VectorXd candidate = whole;
      candidate[moves[first].first] += moves[first].second;
      if (!fits(candidate, moves[first].first)) continue;
      improved = better(candidate) || improved;
      for (std::size_t second = 0; second < first; ++second) {
        VectorXd pair = whole;
        pair[moves[first].first] += moves[first].second;
        pair[moves[second].first] += moves[second].second;
        if (fits(pair, moves[first].first) && fits(pair, moves[second].first))
          improved = better(pair) || improved;
      }
    }
  }
  return whole;
}

VectorXd Fit::solve(const std::vector<Index>& free, const VectorXd& start) {
  VectorXd x = start;
  double damping = 0.0;
  for (int round = 0; round < most_steps; ++round) {
    const Linearisation around = linearise(x);
    const VectorXd error = errors(around);
    const double before = objective(around.predicted, error, x);
    bool accepted = false;
    for (int attempt = 0; attempt < most_attempts && !accepted; ++attempt) {
      const VectorXd candidate = to_whole(free, around, x, step(free, around, x, damping));
      if (candidate == x) return x;
      if (objective(predict(candidate), error, candidate) < before) {
        x = candidate;
        damping = damping > first_damping ? damping / 10 : 0.0;
        accepted = true;
      } else {
        damping = damping > 0.0 ? damping * 10 : first_damping;
      }
    }
    if (!accepted) return x;
  }
  return x;
}

Determination Fit::determination(const std::vector<Index>& free, const Linearisation& at,
                                 const VectorXd& x) const {
  const VectorXd error = errors(at);
  MatrixXd scaled(measured_.size(), static_cast<Index>(free.size()));
  for (std::size_t c = 0; c < free.size(); ++c) {
    const Index j = free[c];
    scaled.col(static_cast<Index>(c)) = at.jacobian.col(j).cwiseQuotient(error) * std::max(1.0, x[j]);
  }
  return determine(scaled);
}

Fit::Misfit Fit::misfit(const std::vector<Index>& free, const Linearisation& at) const {
  const VectorXd error = errors(at);
  Misfit result;
  for (Index i = 0; i < measured_.size(); ++i) {
    const bool reached =
        std::any_of(free.begin(), free.end(), [&at, i](Index j) { return at.jacobian(i, j) != 0.0; });
    if (!reached) continue;
    const double residual = (measured_[i] - at.predicted[i]) / error[i];
    result.chi_square += residual * residual;
    ++result.rows;
  }
  return result;
}

}  // namespace svmsim::model::calibration
