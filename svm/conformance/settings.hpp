#pragma once

#include <string>
#include <string_view>

#include "svm/conformance/case.hpp"
#include "svm/conformance/node_table.hpp"

namespace svmsim::svm::conformance {

/// Every SVM feature and extension that svmsim knows: the processor of a case that says nothing else.
[[nodiscard]] FeatureSet every_feature();

/// "features": a list of "+name" and "-name", changes to a processor that has every feature.
void read_features(NodeTable& table, FeatureSet& features);
/// "knobs": open points of the manual by their names.
void read_knobs(NodeTable& table, Knobs& knobs);
/// "limits": members of ProcessorLimits.
void read_limits(NodeTable& table, ProcessorLimits& limits);

/// Whether a knob of the core has that name.
[[nodiscard]] bool is_knob(std::string_view name);

/// Sets one knob or limit by its name; what is wrong is a problem at `path`.
void set_knob(Knobs& knobs, const std::string& name, const CaseNode& value, const std::string& path,
              TomlProblems& problems);
void set_limit(ProcessorLimits& limits, const std::string& name, const CaseNode& value,
               const std::string& path, TomlProblems& problems);

}  // namespace svmsim::svm::conformance
