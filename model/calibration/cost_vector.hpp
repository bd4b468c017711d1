#pragma once

#include <Eigen/Core>
#include <string>
#include <vector>

#include "model/config/cost_profile.hpp"

namespace svmsim::model::calibration {

/// The costs that are cycles (all but t_world_entry_pct) as a vector, in the order of their declaration.
class CostVector {
 public:
  /// `base` gives what is no cycles.
  explicit CostVector(const Costs& base);

  [[nodiscard]] Eigen::Index size() const noexcept { return static_cast<Eigen::Index>(names_.size()); }
  [[nodiscard]] const std::string& name(Eigen::Index j) const { return names_[static_cast<std::size_t>(j)]; }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// -1 when no cost has that name.
  [[nodiscard]] Eigen::Index index(const std::string& name) const;

  [[nodiscard]] Eigen::VectorXd values(const Costs& costs) const;
  /// Rounded to whole cycles.
  [[nodiscard]] Costs costs(const Eigen::VectorXd& values) const;
  [[nodiscard]] const Eigen::VectorXd& lower() const noexcept { return lower_; }
  [[nodiscard]] const Eigen::VectorXd& upper() const noexcept { return upper_; }

 private:
  Costs base_;
  std::vector<std::string> names_;
  std::vector<std::size_t> bindings_;  ///< index into cost_parameters()
  Eigen::VectorXd lower_;
  Eigen::VectorXd upper_;
};

}  // namespace svmsim::model::calibration
