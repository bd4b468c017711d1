#pragma once

#include <cstdint>
#include <vector>

namespace svmsim::workloads {

/// Counters in the memory that the vCPUs of one VM share. Who reads or writes them has synchronised
/// (svm::action_flags::shared).
struct SharedCounters {
  struct Counter {
    std::uint64_t value = 0;
    std::uint64_t changed = 0;  ///< TSC of the last store
  };
  std::vector<Counter> counters;
  std::vector<unsigned> vcpus;  ///< whose programs share them
};

}  // namespace svmsim::workloads
