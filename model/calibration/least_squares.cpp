#include "model/calibration/least_squares.hpp"

#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>

namespace svmsim::model::calibration {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

namespace {

/// Singular values below this share of the largest one are what rounding leaves of 0.
constexpr double rank_tolerance = 1e-10;
/// A direction that the system leaves open has this share of a column at the least, or none of it.
constexpr double share_tolerance = 1e-7;

MatrixXd columns_of(const MatrixXd& a, const std::vector<Index>& columns) {
  MatrixXd result(a.rows(), static_cast<Index>(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i)
    result.col(static_cast<Index>(i)) = a.col(columns[i]);
  return result;
}

}  // namespace

VectorXd bounded_least_squares(const MatrixXd& a, const VectorXd& b, const VectorXd& lower,
                               const VectorXd& upper, VectorXd start) {
  VectorXd x = std::move(start);
  const Index count = a.cols();
  std::vector<bool> bound(static_cast<std::size_t>(count), false);
  // Every round frees or binds a column for a smaller residual, so it ends; the limit is for rounding.
  const Index most_rounds = 10 * (count + 1);
  for (Index round = 0; round < most_rounds; ++round) {
    std::vector<Index> free;
    for (Index j = 0; j < count; ++j) {
      if (!bound[static_cast<std::size_t>(j)]) free.push_back(j);
    }
    if (!free.empty()) {
      const VectorXd residual = b - a * x;
      const VectorXd step = columns_of(a, free).colPivHouseholderQr().solve(residual);
      double share = 1.0;
      Index stopped = -1;
      for (std::size_t i = 0; i < free.size(); ++i) {
        const Index j = free[i];
        const double change = step[static_cast<Index>(i)];
        const double room = change > 0 ? upper[j] - x[j] : x[j] - lower[j];
        if (std::abs(change) > room && room / std::abs(change) < share) {
          share = room / std::abs(change);
          stopped = j;
        }
      }
      for (std::size_t i = 0; i < free.size(); ++i)
        x[free[i]] =
            std::clamp(x[free[i]] + share * step[static_cast<Index>(i)], lower[free[i]], upper[free[i]]);
      if (stopped >= 0) {
        // Exactly, whatever the sum above was rounded to: which bound it is is told by the value.
        x[stopped] =
            upper[stopped] - x[stopped] < x[stopped] - lower[stopped] ? upper[stopped] : lower[stopped];
        bound[static_cast<std::size_t>(stopped)] = true;
        continue;
      }
    }
    // The least residual for these bounds: does one of them keep it from falling further?
    const VectorXd descent = a.transpose() * (b - a * x);
    Index worst = -1;
    double strongest = 1e-9 * (1.0 + descent.cwiseAbs().maxCoeff());
    for (Index j = 0; j < count; ++j) {
      if (!bound[static_cast<std::size_t>(j)]) continue;
      const double pull = x[j] <= lower[j] ? descent[j] : -descent[j];
      if (pull > strongest) {
        strongest = pull;
        worst = j;
      }
    }
    if (worst < 0) break;
    bound[static_cast<std::size_t>(worst)] = false;
  }
  return x;
}

Determination determine(const MatrixXd& a) {
  Determination result;
  const Index count = a.cols();
  result.singular_values = VectorXd::Zero(count);
  result.errors = VectorXd::Zero(count);
  result.influence = MatrixXd::Zero(count, a.rows());
  result.directions = MatrixXd::Identity(count, count);
  if (count == 0) return result;
  if (a.rows() == 0) {
    result.errors.setConstant(std::numeric_limits<double>::infinity());
    return result;
  }
  const Eigen::JacobiSVD<MatrixXd> svd(a, Eigen::ComputeFullU | Eigen::ComputeFullV);
  result.directions = svd.matrixV();
  const VectorXd& values = svd.singularValues();
  for (Index k = 0; k < values.size(); ++k) {
    if (values[k] <= rank_tolerance * values[0]) break;
    result.singular_values[k] = values[k];
    ++result.rank;
  }
  for (Index j = 0; j < count; ++j) {
    double variance = 0.0;
    for (Index k = 0; k < count; ++k) {
      const double share = result.directions(j, k);
      if (k < result.rank) {
        variance += share * share / (values[k] * values[k]);
      } else if (std::abs(share) > share_tolerance) {
        variance = std::numeric_limits<double>::infinity();
      }
    }
    result.errors[j] = std::sqrt(variance);
  }
  for (Index k = 0; k < result.rank; ++k)
    result.influence += result.directions.col(k) * svd.matrixU().col(k).transpose() / values[k];
  return result;
}

std::vector<Index> independent_rows(const MatrixXd& a, const std::vector<Index>& order) {
  std::vector<Index> chosen;
  MatrixXd basis(0, a.cols());
  for (const Index row : order) {
    const double length = a.row(row).norm();
    if (length <= 0.0) continue;
    Eigen::RowVectorXd rest = a.row(row) / length;
    for (int twice = 0; twice < 2; ++twice) {  // Gram and Schmidt, again for what rounding left
      for (Index i = 0; i < basis.rows(); ++i)
        rest -= rest.dot(basis.row(i)) * basis.row(i);
    }
    if (rest.norm() < 1e-6) continue;
    basis.conservativeResize(basis.rows() + 1, Eigen::NoChange);
    basis.row(basis.rows() - 1) = rest / rest.norm();
    chosen.push_back(row);
  }
  return chosen;
}

}  // namespace svmsim::model::calibration
