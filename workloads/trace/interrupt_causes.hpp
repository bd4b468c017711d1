#pragma once

#include <cstdint>
#include <unordered_map>

#include "workloads/trace/capture.hpp"
#include "workloads/trace/cause_tracker.hpp"

namespace svmsim::workloads {

/// What CauseTracker finds in a capture, by event.
class InterruptCauses {
 public:
  explicit InterruptCauses(const Capture& capture);

  /// Cause of the injection or wake-up that is event `index` of the capture; unknown for any other event.
  [[nodiscard]] Cause of(std::uint32_t index) const {
    const auto found = causes_.find(index);
    return found == causes_.end() ? Cause{} : found->second;
  }

 private:
  std::unordered_map<std::uint32_t, Cause> causes_;
};

/// Event `index` of a capture as a reader hands it on.
[[nodiscard]] ReadEvent read_event_of(const Capture& capture, std::size_t index);

}  // namespace svmsim::workloads
