#include "model/policy/idle_governor.hpp"

#include <utility>

#include "model/policy/menu_governor.hpp"
#include "model/policy/teo_governor.hpp"

namespace svmsim::model {

namespace {

/// default_idle_call: no driver, no choice.
class NoGovernor final : public IdleGovernor {
 public:
  IdleChoice select(const IdleRequest&) override { return {0, true}; }
  void reflect(std::uint64_t, bool) override {}
};

}  // namespace

std::unique_ptr<IdleGovernor> make_idle_governor(IdleGovernorKind kind, std::vector<IdleState> states,
                                                 std::uint64_t tick_ns) {
  if (states.empty()) return std::make_unique<NoGovernor>();
  switch (kind) {
    case IdleGovernorKind::menu:
      return std::make_unique<MenuGovernor>(std::move(states), tick_ns);
    case IdleGovernorKind::teo:
      return std::make_unique<TeoGovernor>(std::move(states), tick_ns);
    case IdleGovernorKind::none:
      break;
  }
  return std::make_unique<NoGovernor>();
}

}  // namespace svmsim::model
