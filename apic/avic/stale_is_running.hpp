#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apic/avic/id_tables.hpp"

namespace svmsim::apic {

/// Erratum 1235 (Zen1, Zen2: family 17h; fact sheet 8.7): the processor that sends an IPI may read a value of
/// a physical APIC ID table entry from before IsRunning was cleared. It then rings a core that no longer runs
/// the target, takes no exit 401h, and the target sleeps on. The erratum gives no time for which the old
/// value is seen; here it is a parameter of whoever injects the fault.
///
/// Used by a sink of send_ipi(), in observe(), where AvicKnobs::isrunning_stale_read is set.
class StaleIsRunning {
 public:
  /// For entries 0 to `entries` - 1. A sender sees the old value for `window_cycles` after it was cleared.
  StaleIsRunning(std::size_t entries, std::uint64_t window_cycles)
      : window_cycles_(window_cycles), cleared_(entries) {}

  /// IsRunning of an entry is being cleared at `now_cycles`; `before` is the entry until then.
  void note_cleared(std::uint32_t index, PhysicalIdEntry before, std::uint64_t now_cycles) noexcept {
    cleared_[index] = {before, now_cycles};
  }

  /// What a sender that reads the entry at `now_cycles` gets.
  [[nodiscard]] PhysicalIdEntry observe(std::uint32_t index, PhysicalIdEntry current,
                                        std::uint64_t now_cycles) const noexcept {
    const Cleared& cleared = cleared_[index];
    const bool stale = !current.is_running() && cleared.before.is_running() &&
                       now_cycles - cleared.at_cycles < window_cycles_;
    return stale ? cleared.before : current;
  }

 private:
  struct Cleared {
    PhysicalIdEntry before;
    std::uint64_t at_cycles = 0;
  };
  std::uint64_t window_cycles_;
  std::vector<Cleared> cleared_;
};

}  // namespace svmsim::apic
