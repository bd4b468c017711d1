#pragma once

#include <string>
#include <vector>

#include "model/config/scenario.hpp"
#include "svm/user_error.hpp"

namespace svmsim::model {

/// Where a scenario comes from: a TOML file, or the JSON text of a Python dict.
struct ScenarioSource {
  std::string file;      ///< path of a TOML file; relative paths in it are relative to its directory
  std::string json;      ///< JSON text, used when `file` is empty
  std::string base_dir;  ///< what relative paths of a dict are relative to; "" = the working directory

  [[nodiscard]] static ScenarioSource from_file(std::string path) { return {std::move(path), {}, {}}; }
  [[nodiscard]] static ScenarioSource from_json(std::string text, std::string base_dir = {}) {
    return {{}, std::move(text), std::move(base_dir)};
  }
};

/// Reads, overrides, checks and resolves a scenario. `overrides` are `--set` strings ("kvm.idle_hlt=false"),
/// applied in order. Throws UserError with every problem at once: unknown keys, types, ranges, impossible
/// pins, missing files.
[[nodiscard]] Scenario load_scenario(const ScenarioSource& source,
                                     const std::vector<std::string>& overrides = {});

/// The scenario as JSON in the shape of the scenario file, every default filled in, keys in the order of
/// declaration. Loading it again gives the same scenario.
[[nodiscard]] std::string resolved_json(const Scenario& scenario);

}  // namespace svmsim::model
