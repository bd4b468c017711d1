#pragma once

#include <cstdint>
#include <vector>

#include "workloads/trace/trace_sink.hpp"

namespace svmsim::workloads {

/// The pipe between the process that runs libtracecmd and TraceDatReader: a tag, then
enum class RecordTag : std::uint8_t {
  done,     ///< nothing: every record has been sent
  name,     ///< text: name of the next event id, counted from 0
  thread,   ///< i32 tid, text comm
  event,    ///< u32 event id, TraceEvent; for EventKind::other its text
  lost,     ///< u64 events
  problem,  ///< text
  refused,  ///< text: the file cannot be opened
};
// A text is a u32 length and its bytes.

/// Reads the open files with libtracecmd and writes their records, merged by time, to `out`. Runs in a child
/// process, which may crash in it. `sink` is asked for nothing but wants_text().
void send_records(const std::vector<int>& files, int out, const TraceSink& sink);

}  // namespace svmsim::workloads
