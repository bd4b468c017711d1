#pragma once

#include <vector>

#include "model/policy/idle_governor.hpp"

namespace svmsim::model {

/// The timer-events-oriented governor (drivers/cpuidle/governors/teo.c): the state that fits the next timer,
/// unless idles that ended before it ("intercepts") outweigh those that lasted ("hits"). Left out: latency
/// constraints, utilisation awareness (6.1 to 6.6), disabled states.
class TeoGovernor final : public IdleGovernor {
 public:
  TeoGovernor(std::vector<IdleState> states, std::uint64_t tick_ns);

  IdleChoice select(const IdleRequest& request) override;
  void reflect(std::uint64_t residency_ns, bool tick_wakeup) override;

  [[nodiscard]] std::uint32_t hits(unsigned state) const { return bins_.at(state).hits; }
  [[nodiscard]] std::uint32_t intercepts(unsigned state) const { return bins_.at(state).intercepts; }

 private:
  struct Bin {
    std::uint32_t hits = 0;
    std::uint32_t intercepts = 0;
  };

  void update();
  [[nodiscard]] unsigned shallower(unsigned than, std::uint64_t duration_ns) const;
  /// With the tick stopped a wrong shallow state would last: only states of at least a tick are good enough.
  [[nodiscard]] bool deep_enough(unsigned state, bool tick_stopped) const;
  [[nodiscard]] unsigned by_intercepts(unsigned candidate, bool tick_stopped) const;

  std::vector<IdleState> states_;
  std::vector<Bin> bins_;
  std::uint32_t total_ = 0;
  std::uint64_t tick_ns_;
  std::uint64_t sleep_length_ns_ = 0;
  bool needs_update_ = false;
  unsigned last_state_ = 0;
  std::uint64_t last_residency_ns_ = 0;
  bool tick_wakeup_ = false;
};

}  // namespace svmsim::model
