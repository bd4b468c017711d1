#pragma once

#include <vector>

#include "model/calibration/calibration.hpp"
#include "model/calibration/fit.hpp"

namespace svmsim::model::calibration {

/// What is known about the costs around a fit. Indexes are those of the cost vector.
struct Knowledge {
  std::vector<Eigen::Index> reached;     ///< costs that change a measurement, without those the request keeps
  std::vector<Eigen::Index> free;        ///< those that are fitted
  std::vector<Eigen::Index> convention;  ///< reached, but kept as a convention
  std::vector<Eigen::Index> barely;      ///< reached, but so little that the profile's value is better
};

/// Relative standard errors up to here are called identified, and uncertain.
inline constexpr double identified_error = 0.02;
inline constexpr double uncertain_error = 0.5;

/// Costs that come with every exit of their kind, so that measurements of exits cannot tell them from its
/// handler. They keep the profile's value unless the measurements do tell.
[[nodiscard]] const std::vector<std::string>& conventional_costs();

/// Which costs to fit, by what the measurements determine around `x`.
[[nodiscard]] Knowledge choose_free(const CostVector& vector, const Fit& fit, const Linearisation& at,
                                    const Eigen::VectorXd& x, const std::vector<Eigen::Index>& kept);

/// Frees the conventional costs that stand beside a fitted one which has come to its least value. Returns
/// whether there were any.
[[nodiscard]] bool release_conventions(const CostVector& vector, const Linearisation& at,
                                       const Eigen::VectorXd& x, Knowledge& knowledge);

/// Whether two costs are in one measurement.
[[nodiscard]] bool stand_together(const Linearisation& at, Eigen::Index a, Eigen::Index b);

/// The sums of costs that are measured where the costs are not, the shortest first.
[[nodiscard]] std::vector<MeasuredSum> measured_sums(const CostVector& vector,
                                                     const std::vector<Measurement>& measurements,
                                                     const Linearisation& at, const Eigen::VectorXd& x,
                                                     const std::vector<Eigen::Index>& open);

/// Throws the UserError that says why the measurements identify nothing.
[[noreturn]] void refuse(const CostVector& vector, const Fit& fit, const Linearisation& at,
                         const Eigen::VectorXd& x, const std::vector<Measurement>& measurements,
                         const Knowledge& knowledge);

}  // namespace svmsim::model::calibration
