#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "workloads/trace/capture.hpp"
#include "workloads/trace/stat_table.hpp"

namespace svmsim::workloads {

/// One event as a reader hands it on. The views hold until the call returns.
struct ReadEvent {
  TraceEvent event;
  std::uint64_t line = 0;  ///< 1-based line; in a binary file the number of the record
  std::string_view name;   ///< as recorded, without its system
  std::string_view text;   ///< as recorded; empty for a known kind out of a binary file
  std::string_view comm;
  std::int32_t tgid = -1;  ///< process of the thread; -1 unknown
  TimeBase time_base = TimeBase::none;
};

/// What a reader says about a place that is no event.
enum class NoteKind : std::uint8_t {
  unreadable,    ///< a known event whose text cannot be read, or a damaged file: a Problem
  unrecognised,  ///< a line that is no event and no row of a table; dropped
  joined,        ///< a line that a mailer had folded, joined to the event before it
  lost,          ///< a LOST marker; count is the number of events
  unknown,       ///< a word that nobody here knows, in a place where it means something
  remark,        ///< something worth saying; nothing is dropped
};

struct ReadNote {
  NoteKind kind = NoteKind::remark;
  std::uint64_t line = 0;
  std::uint64_t count = 1;
  std::string_view text;  ///< of an unrecognised line the line itself, else a sentence
};

/// Receives what a TraceReader reads, in file order. A file holds one capture or several; a table belongs to
/// a capture too.
class TraceSink {
 public:
  TraceSink() = default;
  TraceSink(const TraceSink&) = delete;
  TraceSink& operator=(const TraceSink&) = delete;
  virtual ~TraceSink() = default;

  /// `names` belongs to the reader, grows while it reads, and holds until end_capture() has returned.
  virtual void begin_capture(std::string_view title, std::uint64_t first_line, const TraceNames& names) = 0;
  virtual void event(const ReadEvent& event) = 0;
  virtual void table(const StatTable& table) = 0;
  virtual void note(const ReadNote& note) = 0;
  /// `format`: "tracefs", "trace-cmd report", "perf script", "stripped", "trace.dat", "perf.data", or the
  /// tables' (stat_table.hpp); "" when nothing was recognised. `line_count` counts the capture's lines.
  virtual void end_capture(std::string_view format, std::uint64_t line_count) = 0;
  /// Whether the text of events of this name is wanted; printing it out of a binary file takes time.
  [[nodiscard]] virtual bool wants_text(std::string_view event_name) const {
    (void)event_name;
    return true;
  }
  /// Lines of the whole file, once at the end.
  virtual void end_file(std::uint64_t line_count) = 0;
};

}  // namespace svmsim::workloads
