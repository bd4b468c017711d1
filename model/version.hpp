#pragma once

namespace svmsim::model {

/// Version of svmsim, from the project's CMake declaration.
inline constexpr const char* version = SVMSIM_VERSION;

}  // namespace svmsim::model
