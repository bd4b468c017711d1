#pragma once

#include <string>

namespace svmsim::model {

/// Everything a user can set or read, as JSON text: parameters, statistics, exit_codes, knobs, profiles,
/// programs and events. Made from the declarations that the program itself uses.
[[nodiscard]] std::string describe_json();

/// JSON Schema (draft 2020-12) of the scenario file, from the same declarations.
[[nodiscard]] std::string json_schema();

}  // namespace svmsim::model
