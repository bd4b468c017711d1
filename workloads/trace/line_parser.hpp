#pragma once

#include <cstdint>
#include <string_view>

#include "workloads/trace/capture.hpp"

namespace svmsim::workloads {

/// How a line begins.
enum class LineShape : std::uint8_t {
  blank,
  comment,      ///< `# ...`; text is what follows the mark
  header,       ///< `cpus=2` and the like of trace-cmd
  lost,         ///< `CPU:3 [LOST 123 EVENTS]`; time is the number of lost events
  ftrace,       ///< `COMM-PID [CPU] FLAGS TIME: EVENT: TEXT`, flags or time may be missing
  perf,         ///< `COMM PID [CPU] TIME: SYSTEM:EVENT: TEXT`
  prefix_only,  ///< `COMM-PID [CPU] TIME:` with nothing behind it: the line was folded there
  clock,        ///< a wall clock and nothing else
  stripped,     ///< `TIME: EVENT: TEXT`, `EVENT: TEXT` or `EVENT  TEXT`
  unrecognised,
};

struct ParsedLine {
  LineShape shape = LineShape::unrecognised;
  bool has_flags = false;  ///< the latency column is there
  std::string_view comm;
  std::int32_t tid = -1;
  std::int32_t tgid = -1;
  std::int32_t cpu = -1;
  TimeBase time_base = TimeBase::none;
  std::uint64_t time = 0;  ///< ns, or the bare integer as it stands
  std::string_view event;  ///< without its system
  std::string_view text;
};

/// Splits one line into its prefix, event and text. Leading mail quoting is dropped.
[[nodiscard]] ParsedLine parse_line(std::string_view text);

}  // namespace svmsim::workloads
