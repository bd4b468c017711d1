#pragma once

#include <nlohmann/json.hpp>

#include "model/config/parameters.hpp"

namespace svmsim::model {

[[nodiscard]] inline nlohmann::ordered_json to_json(const SettingValue& value) {
  return std::visit([](const auto& typed) { return nlohmann::ordered_json(typed); }, value);
}

}  // namespace svmsim::model
