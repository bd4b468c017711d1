#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace svmsim::model {

/// An idle state as a cpuidle driver declares it. Times in ns.
struct IdleState {
  std::uint64_t exit_latency_ns = 0;
  std::uint64_t target_residency_ns = 0;
  bool polling = false;  ///< the POLL state: no wake-up latency, no power saved
};

/// What a governor sees when a CPU goes idle.
struct IdleRequest {
  std::uint64_t now_ns = 0;
  std::uint64_t next_timer_ns = ~std::uint64_t{0};  ///< time until the next timer, without the tick
  std::uint64_t next_tick_ns = ~std::uint64_t{0};   ///< time until the tick, if that is not stopped
  bool tick_stopped = false;
};

struct IdleChoice {
  unsigned state = 0;
  bool stop_tick = true;
};

/// A cpuidle governor of one CPU (drivers/cpuidle/governors). It knows only what drivers declare; what a
/// state really costs is not its business.
class IdleGovernor {
 public:
  IdleGovernor() = default;
  IdleGovernor(const IdleGovernor&) = delete;
  IdleGovernor& operator=(const IdleGovernor&) = delete;
  virtual ~IdleGovernor() = default;

  virtual IdleChoice select(const IdleRequest& request) = 0;
  /// After the idle: how long it lasted, and whether the tick ended it.
  virtual void reflect(std::uint64_t residency_ns, bool tick_wakeup) = 0;
};

enum class IdleGovernorKind : std::uint8_t {
  none,  ///< no cpuidle driver: the first state, and the tick always stops
  menu,
  teo,
};

/// `states` shallow to deep.
[[nodiscard]] std::unique_ptr<IdleGovernor> make_idle_governor(IdleGovernorKind kind,
                                                               std::vector<IdleState> states,
                                                               std::uint64_t tick_ns);

}  // namespace svmsim::model
