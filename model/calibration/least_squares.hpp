#pragma once

#include <Eigen/Core>
#include <vector>

/// The algebra of a calibration. Nothing here knows what a cost is.
namespace svmsim::model::calibration {

/// The x within its bounds that makes |a x - b| least, by an active set of bounds (C. L. Lawson and
/// R. J. Hanson, "Solving Least Squares Problems", chapter 23, with bounds on both sides). `a` has full
/// column rank, and `start` lies within the bounds.
[[nodiscard]] Eigen::VectorXd bounded_least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& b,
                                                    const Eigen::VectorXd& lower,
                                                    const Eigen::VectorXd& upper, Eigen::VectorXd start);

/// What a linear system determines.
struct Determination {
  Eigen::VectorXd singular_values;  ///< falling; one for each column, 0 beyond the rows
  Eigen::MatrixXd directions;       ///< column k is the combination of columns that belongs to value k
  /// One standard error of each column's factor, when the right side has a standard error of 1; infinite
  /// where the system leaves the factor open.
  Eigen::VectorXd errors;
  Eigen::Index rank = 0;
  /// Row j: how the j-th factor follows from the right side, where it is determined (the pseudo-inverse).
  Eigen::MatrixXd influence;
};

[[nodiscard]] Determination determine(const Eigen::MatrixXd& a);

/// Rows of `a` out of `order` that are linearly independent of those before them.
[[nodiscard]] std::vector<Eigen::Index> independent_rows(const Eigen::MatrixXd& a,
                                                         const std::vector<Eigen::Index>& order);

}  // namespace svmsim::model::calibration
