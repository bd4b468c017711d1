#include "model/calibration/findings.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace svmsim::model::calibration {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using Indexes = std::vector<Index>;

namespace {

bool contains(const Indexes& all, Index one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

Indexes without(Indexes all, const Indexes& some) {
  all.erase(std::remove_if(all.begin(), all.end(), [&some](Index j) { return contains(some, j); }),
            all.end());
  return all;
}

}  // namespace

const std::vector<std::string>& conventional_costs() {
  static const std::vector<std::string> names{"t_loop", "t_fastpath_loop", "t_trace", "t_iret", "t_insn"};
  return names;
}

Knowledge choose_free(const CostVector& vector, const Fit& fit, const Linearisation& at, const VectorXd& x,
                      const Indexes& kept) {
  Knowledge knowledge;
  for (Index j = 0; j < vector.size(); ++j) {
    if (!contains(kept, j) && at.jacobian.col(j).cwiseAbs().maxCoeff() > 0.0) knowledge.reached.push_back(j);
  }
  const Determination all = fit.determination(knowledge.reached, at, x);
  for (std::size_t i = 0; i < knowledge.reached.size(); ++i) {
    const auto& names = conventional_costs();
    const bool conventional =
        std::find(names.begin(), names.end(), vector.name(knowledge.reached[i])) != names.end();
    if (conventional && all.errors[static_cast<Index>(i)] > uncertain_error)
      knowledge.convention.push_back(knowledge.reached[i]);
  }
  knowledge.free = without(knowledge.reached, knowledge.convention);
  // A cost with an error beyond all use keeps the profile's value; that may help the others. The worst one
  // first.
  for (;;) {
    const Determination some = fit.determination(knowledge.free, at, x);
    Index worst = -1;
    double error = uncertain_error;
    for (Index i = 0; i < some.errors.size(); ++i) {
      if (std::isfinite(some.errors[i]) && some.errors[i] > error) {
        error = some.errors[i];
        worst = i;
      }
    }
    if (worst < 0) break;
    knowledge.barely.push_back(knowledge.free[static_cast<std::size_t>(worst)]);
    knowledge.free.erase(knowledge.free.begin() + worst);
  }
  return knowledge;
}

bool stand_together(const Linearisation& at, Index a, Index b) {
  return at.jacobian.col(a).cwiseAbs().dot(at.jacobian.col(b).cwiseAbs()) > 0.0;
}

bool release_conventions(const CostVector& vector, const Linearisation& at, const VectorXd& x,
                         Knowledge& knowledge) {
  Indexes released;
  for (const Index convention : knowledge.convention) {
    const bool wrong = std::any_of(knowledge.free.begin(), knowledge.free.end(), [&](Index j) {
      return x[j] <= vector.lower()[j] && stand_together(at, convention, j);
    });
    if (wrong) released.push_back(convention);
  }
  knowledge.convention = without(knowledge.convention, released);
  knowledge.free.insert(knowledge.free.end(), released.begin(), released.end());
  std::sort(knowledge.free.begin(), knowledge.free.end());
  return !released.empty();
}

std::vector<MeasuredSum> measured_sums(const CostVector& vector, const std::vector<Measurement>& measurements,
                                       const Linearisation& at, const VectorXd& x, const Indexes& open) {
  constexpr double least_factor = 5e-3;
  MatrixXd factors = MatrixXd::Zero(at.jacobian.rows(), static_cast<Index>(open.size()));
  for (std::size_t c = 0; c < open.size(); ++c)
    factors.col(static_cast<Index>(c)) = at.jacobian.col(open[c]);
  factors = (factors.array().abs() < least_factor).select(0.0, factors);
  std::vector<Index> order(static_cast<std::size_t>(factors.rows()));
  std::iota(order.begin(), order.end(), Index{0});
  const auto terms = [&factors](Index row) { return (factors.row(row).array() != 0.0).count(); };
  std::stable_sort(order.begin(), order.end(), [&terms](Index a, Index b) { return terms(a) < terms(b); });
  std::vector<MeasuredSum> sums;
  for (const Index row : independent_rows(factors, order)) {
    MeasuredSum sum;
    for (std::size_t c = 0; c < open.size(); ++c) {
      const double factor = factors(row, static_cast<Index>(c));
      if (factor == 0.0) continue;
      sum.terms.emplace_back(vector.name(open[c]), factor);
      sum.cycles += factor * x[open[c]];
    }
    sum.place = measurements[static_cast<std::size_t>(row)].place();
    sums.push_back(std::move(sum));
  }
  return sums;
}

void refuse(const CostVector& vector, const Fit& fit, const Linearisation& at, const VectorXd& x,
            const std::vector<Measurement>& measurements, const Knowledge& knowledge) {
  std::vector<Problem> problems;
  for (std::size_t i = 0; i < measurements.size(); ++i) {
    Terms terms;
    for (const Index j : knowledge.reached) {
      const double factor = at.jacobian(static_cast<Index>(i), j);
      if (factor != 0.0 && !contains(knowledge.convention, j)) terms.emplace_back(vector.name(j), factor);
    }
    const Measurement& one = measurements[i];
    std::string message = "no cost that is not kept changes its time";
    if (terms.size() == 1)
      message = fmt::format("depends on {} so little that it cannot identify it", terms.front().first);
    if (terms.size() > 1)
      message = fmt::format("gives the sum {} alone, none of its costs", terms_text(terms));
    problems.push_back({one.source, one.line, one.name, message, ""});
  }
  // Which cost, if it were known, would let the others be found?
  for (const Index known : knowledge.free) {
    const Indexes rest = without(knowledge.free, {known});
    const Determination some = fit.determination(rest, at, x);
    std::string found;
    for (std::size_t i = 0; i < rest.size(); ++i) {
      if (some.errors[static_cast<Index>(i)] <= uncertain_error)
        found += (found.empty() ? "" : ", ") + vector.name(rest[i]);
    }
    if (found.empty()) continue;
    problems.push_back({"", 0, "--keep",
                        fmt::format("with {0} known (--keep {0}, or --keep {0}=CYCLES) they tell {1}",
                                    vector.name(known), found),
                        ""});
    break;
  }
  throw UserError(std::move(problems));
}

}  // namespace svmsim::model::calibration
