#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/stats/exit_stats.hpp"

namespace svmsim::model {

/// Exits of a guest hypervisor (L1) and its guest (L2), by the level that they come from and the level that
/// handles them. `l1`, `l2` and `reflected` count what the CPU reported, as kvm_exit and kvm_nested_vmexit
/// do; `seen_by_l1` what L1 was told, as kvm_nested_vmexit_inject and a kvm_exit of L1's own KVM do.
struct NestedExits {
  std::uint64_t l1 = 0;          ///< from L1, handled by L0
  std::uint64_t l2 = 0;          ///< from L2
  std::uint64_t reflected = 0;   ///< of l2: given to L1 at once; the others L0 has handled
  std::uint64_t seen_by_l1 = 0;  ///< exits that L1 finds in its VMCB
};

class NestedStats {
 public:
  struct Row {
    std::uint64_t code = 0;
    NestedExits exits;
  };

  [[nodiscard]] NestedExits& of(std::uint64_t code) noexcept { return counts_[ExitStats::slot_of(code)]; }
  void reset() noexcept { counts_ = {}; }

  /// The codes that occurred, in the order of the exit table.
  [[nodiscard]] std::vector<Row> rows() const {
    std::vector<Row> result;
    for (std::size_t slot = 0; slot < ExitStats::slots; ++slot) {
      const NestedExits& exits = counts_[slot];
      if (exits.l1 == 0 && exits.l2 == 0 && exits.seen_by_l1 == 0) continue;
      result.push_back(
          {slot == svm::exit_count ? ExitStats::unknown_code : svm::exit_table()[slot].code, exits});
    }
    return result;
  }

 private:
  std::array<NestedExits, ExitStats::slots> counts_{};
};

}  // namespace svmsim::model
