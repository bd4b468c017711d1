#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "svm/conformance/case.hpp"
#include "svm/conformance/node_table.hpp"

namespace svmsim::svm::conformance {

/// Reads a guest program: a list of actions, each a table ({do = "wrmsr", msr = 0x10, value = 5}) or a text
/// of the same meaning ("wrmsr msr=0x10 value=5"). A list within the list is read in its place.
[[nodiscard]] Program read_program(const CaseNode& node, const std::string& path, TomlProblems& problems);

/// "handlers": programs by vector.
[[nodiscard]] std::map<std::uint8_t, Program> read_handlers(NodeTable& table);

/// Reads the keys that describe the surroundings of the guest out of `table`.
[[nodiscard]] SurroundingsChange read_surroundings(NodeTable& table);
/// "pending", or what arrives: intr, nmi, smi, init.
[[nodiscard]] PendingChange read_pending(NodeTable& table);

}  // namespace svmsim::svm::conformance
