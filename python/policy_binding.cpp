// The two polling governors by themselves, fed with block times: what their published unit tests feed.

#include "python/policy_binding.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <pybind11/stl.h>

#include "model/policy/halt_poll.hpp"
#include "model/policy/haltpoll_governor.hpp"

namespace py = pybind11;
using svmsim::model::HaltPoller;
using svmsim::model::HaltpollGovernor;
using svmsim::model::HaltpollParameters;
using svmsim::model::HaltPollParameters;

namespace {

using Times = std::vector<std::uint64_t>;

Times halt_poll_windows(const Times& halts_ns, std::uint64_t halt_poll_ns, std::uint64_t grow,
                        std::uint64_t grow_start, std::uint64_t shrink) {
  const HaltPollParameters parameters{halt_poll_ns, grow, grow_start, shrink};
  HaltPoller poller;
  std::uint64_t now = 0;
  Times windows;
  for (const std::uint64_t halt : halts_ns) {
    const auto plan = poller.begin(now, parameters);
    const std::uint64_t window = plan.stop_ns - plan.start_ns;
    windows.push_back(window);
    poller.finish(plan, {now + std::min(window, halt), now + halt, halt > window}, parameters);
    now += halt;
  }
  return windows;
}

Times guest_halt_poll_limits(const Times& blocks_ns, std::uint64_t max_ns, std::uint32_t grow,
                             std::uint64_t grow_start_ns, std::uint32_t shrink, bool allow_shrink) {
  HaltpollGovernor governor({max_ns, grow, grow_start_ns, shrink, allow_shrink});
  Times limits{governor.limit_ns()};
  for (const std::uint64_t block : blocks_ns) {
    governor.halted(block);
    limits.push_back(governor.limit_ns());
  }
  return limits;
}

}  // namespace

void bind_policies(py::module_& module) {
  const HaltPollParameters host;
  const HaltpollParameters guest;
  module.def("halt_poll_windows", &halt_poll_windows, py::arg("halts_ns"),
             py::arg("halt_poll_ns") = host.halt_poll_ns, py::arg("grow") = host.grow,
             py::arg("grow_start") = host.grow_start, py::arg("shrink") = host.shrink);
  module.def("guest_halt_poll_limits", &guest_halt_poll_limits, py::arg("blocks_ns"),
             py::arg("max_ns") = guest.max_ns, py::arg("grow") = guest.grow,
             py::arg("grow_start_ns") = guest.grow_start_ns, py::arg("shrink") = guest.shrink,
             py::arg("allow_shrink") = guest.allow_shrink);
}
