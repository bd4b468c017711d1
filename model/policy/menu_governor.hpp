#pragma once

#include <array>
#include <vector>

#include "model/policy/idle_governor.hpp"

namespace svmsim::model {

/// The menu governor (drivers/cpuidle/governors/menu.c): predicts the idle time as the lesser of the typical
/// one of the last eight and the time to the next timer, corrected by how that has turned out in its decade,
/// and takes the deepest state whose residency fits. Left out: latency constraints and waiting for I/O.
class MenuGovernor final : public IdleGovernor {
 public:
  MenuGovernor(std::vector<IdleState> states, std::uint64_t tick_ns);

  IdleChoice select(const IdleRequest& request) override;
  void reflect(std::uint64_t residency_ns, bool tick_wakeup) override;

  /// get_typical_interval in us; typical_none when the last intervals have nothing in common.
  [[nodiscard]] std::uint64_t typical_interval_us() const;
  static constexpr std::uint64_t typical_none = 0xffffffffU;
  /// The prediction of the last select().
  [[nodiscard]] std::uint64_t predicted_ns() const noexcept { return predicted_ns_; }

 private:
  static constexpr std::size_t intervals = 8;
  static constexpr std::size_t buckets = 6;

  void update();

  std::vector<IdleState> states_;
  std::uint64_t tick_ns_;
  std::array<std::uint32_t, intervals> interval_us_{};
  std::size_t next_interval_ = 0;
  std::array<std::uint64_t, buckets> correction_{};
  std::size_t bucket_ = 0;
  std::uint64_t next_timer_ns_ = 0;
  std::uint64_t predicted_ns_ = 0;
  // Of the idle that has ended and is not yet learnt from.
  bool needs_update_ = false;
  unsigned last_state_ = 0;
  std::uint64_t last_residency_ns_ = 0;
  bool tick_wakeup_ = false;
};

}  // namespace svmsim::model
