#pragma once

#include <string>
#include <vector>

#include "model/config/raw_tree.hpp"
#include "model/config/scenario.hpp"

namespace svmsim::model {

/// Reads, checks and unrolls the [[vm]] tables of a raw scenario. `pcpus` = 0: not known, pins are not
/// checked.
[[nodiscard]] std::vector<VmConfig> read_vms(const RawValue& root, unsigned pcpus,
                                             workloads::KernelGeneration kernel, const std::string& base_dir,
                                             std::vector<Problem>& problems);

/// A name that is a path (it has a '/' or a suffix), absolute and normal; a built-in's name as it is.
[[nodiscard]] std::string resolve_path(const std::string& name_or_path, const std::string& base_dir);

}  // namespace svmsim::model
