#pragma once

#include <string>
#include <string_view>

#include "workloads/program.hpp"

namespace svmsim::workloads {

/// Reads a program from the text of its file. `source` is the file's name in problems.
/// Throws UserError with everything that is wrong, each with its line.
[[nodiscard]] Program parse_program(std::string_view text, const std::string& source);

/// Reads a program file. Throws UserError, also when the file cannot be read.
[[nodiscard]] Program load_program(const std::string& path);

}  // namespace svmsim::workloads
