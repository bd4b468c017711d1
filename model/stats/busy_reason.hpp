#pragma once

#include <cstdint>
#include <string>

#include "model/stats/run_result.hpp"

namespace svmsim::model {

/// Where the time of halts went: the rows of hlt and idle-halt together.
[[nodiscard]] ExitCounter halt_split(const std::vector<ExitStats::Row>& exits);

/// One line that says why the host is busy although its guests are idle: polling saturation, timer storm or
/// halt storm, with the figures behind it. "" when the guests work, or when the host is idle, too.
/// `device_interrupts`: the host timers that stood for answers of devices, and not for timers of guests.
[[nodiscard]] std::string busy_reason(const RunResult& result, std::uint64_t device_interrupts = 0);

}  // namespace svmsim::model
