#pragma once

#include <Eigen/Core>
#include <vector>

#include "model/calibration/cost_vector.hpp"
#include "model/calibration/experiment.hpp"
#include "model/calibration/least_squares.hpp"
#include "model/calibration/measurement.hpp"

namespace svmsim::model::calibration {

/// How the predictions depend on the costs around one point.
struct Linearisation {
  Eigen::VectorXd predicted;
  Eigen::MatrixXd jacobian;   ///< a row for each measurement, a column for each cost
  Eigen::VectorXd nonlinear;  ///< cycles by which a step of the differences departs from a straight line
};

/// Fits costs to measurements: Levenberg and Marquardt's steps, each a bounded least-squares problem, with
/// the Jacobian from differences of short simulations. Costs enter most round trips linearly, so that two or
/// three steps are enough; where they do not (a wait in turns of a loop), the measurement counts less.
class Fit {
 public:
  Fit(const CostVector& vector, Experiments& experiments, const std::vector<Measurement>& measurements,
      Eigen::VectorXd profile);

  /// Around `x`; columns of `kept` costs are made, too.
  [[nodiscard]] Linearisation linearise(const Eigen::VectorXd& x);

  /// One standard error of each measurement: its own, and what the straight line leaves out.
  [[nodiscard]] Eigen::VectorXd errors(const Linearisation& around) const;

  /// The best whole costs near the profile's, with `free` costs alone changed from `start`. What the
  /// measurements leave open stays in the profile's proportions.
  [[nodiscard]] Eigen::VectorXd solve(const std::vector<Eigen::Index>& free, const Eigen::VectorXd& start);

  /// What the measurements determine of the `free` costs around `at`, as factors of `x`: a standard error of
  /// 0.02 is two percent.
  [[nodiscard]] Determination determination(const std::vector<Eigen::Index>& free, const Linearisation& at,
                                            const Eigen::VectorXd& x) const;

  /// Sum of the squared residuals over their errors, and the number of measurements that `free` costs reach.
  struct Misfit {
    double chi_square = 0.0;
    Eigen::Index rows = 0;
  };
  [[nodiscard]] Misfit misfit(const std::vector<Eigen::Index>& free, const Linearisation& at) const;

 private:
  [[nodiscard]] Eigen::VectorXd step(const std::vector<Eigen::Index>& free, const Linearisation& around,
                                     const Eigen::VectorXd& x, double damping) const;
  [[nodiscard]] Eigen::VectorXd to_whole(const std::vector<Eigen::Index>& free, const Linearisation& around,
                                         const Eigen::VectorXd& x, const Eigen::VectorXd& target) const;
  [[nodiscard]] double objective(const Eigen::VectorXd& predicted, const Eigen::VectorXd& error,
                                 const Eigen::VectorXd& x) const;
  [[nodiscard]] Eigen::VectorXd predict(const Eigen::VectorXd& x);

  const CostVector& vector_;
  Experiments& experiments_;
  const std::vector<Measurement>& measurements_;
  Eigen::VectorXd profile_;
  Eigen::VectorXd measured_;
  Eigen::VectorXd
      pull_;  ///< standard error of the profile's values: far too wide to contradict a measurement
  std::vector<std::vector<Eigen::Index>> reach_;  ///< by run: costs that change it; empty until known
};

}  // namespace svmsim::model::calibration
