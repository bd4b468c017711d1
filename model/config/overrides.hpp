#pragma once

#include <string>
#include <vector>

#include "model/config/raw_tree.hpp"

namespace svmsim::model {

/// Names of the VMs that a raw [[vm]] list stands for, one inner list per table, `count` unrolled.
/// A table without a name is vm<i> by its place among all VMs.
[[nodiscard]] std::vector<std::vector<std::string>> vm_names(const RawValue& vms);

/// Puts `--set key=value` strings into a raw scenario, in order. A value is TOML, or else a bare word.
/// `vm.x` means every VM, `vm.NAME.x` one.
void apply_overrides(RawValue& root, const std::vector<std::string>& overrides,
                     std::vector<Problem>& problems);

}  // namespace svmsim::model
