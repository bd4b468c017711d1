#include "model/calibration/cost_vector.hpp"

#include <algorithm>
#include <cmath>

#include "model/config/parameters.hpp"

namespace svmsim::model::calibration {

CostVector::CostVector(const Costs& base) : base_(base) {
  std::vector<double> lower;
  std::vector<double> upper;
  const auto& table = cost_parameters();
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Parameter& declaration = table[i].declaration;
    if (declaration.unit != "cycles") continue;
    names_.push_back(declaration.key());
    bindings_.push_back(i);
    lower.push_back(static_cast<double>(declaration.minimum));
    upper.push_back(static_cast<double>(declaration.maximum));
  }
  lower_ = Eigen::Map<Eigen::VectorXd>(lower.data(), size());
  upper_ = Eigen::Map<Eigen::VectorXd>(upper.data(), size());
}

Eigen::Index CostVector::index(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  return found == names_.end() ? -1 : static_cast<Eigen::Index>(found - names_.begin());
}

Eigen::VectorXd CostVector::values(const Costs& costs) const {
  Eigen::VectorXd result(size());
  for (Eigen::Index j = 0; j < size(); ++j) {
    const auto value = cost_parameters()[bindings_[static_cast<std::size_t>(j)]].get(costs);
    result[j] = static_cast<double>(std::get<std::int64_t>(*value));
  }
  return result;
}

Costs CostVector::costs(const Eigen::VectorXd& values) const {
  Costs result = base_;
  for (Eigen::Index j = 0; j < size(); ++j) {
    const double value = std::clamp(std::round(values[j]), lower_[j], upper_[j]);
    cost_parameters()[bindings_[static_cast<std::size_t>(j)]].set(
        result, SettingValue(static_cast<std::int64_t>(value)));
  }
  return result;
}

}  // namespace svmsim::model::calibration
