#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "svm/user_error.hpp"
#include "workloads/trace/event.hpp"
#include "workloads/trace/exit_vocabulary.hpp"

namespace svmsim::workloads {

/// What the time stamps of a capture are.
enum class TimeBase : std::uint8_t {
  none,          ///< the lines carry no time: only their order is known
  microseconds,  ///< sec.usec, kept in ns
  nanoseconds,   ///< sec.nsec, kept in ns
  counter,       ///< bare integers of an unknown clock (x86-tsc, counter), kept as they are
};

/// What the numbers in the events of a recording stand for.
struct TraceNames {
  ThreadNames threads;
  std::vector<std::string> foreign_exits;  ///< see foreign_exit_base

  /// Name of an exit code: the kernel's name of SVM or VMX, or the foreign reason as read.
  [[nodiscard]] std::string exit_name(std::uint64_t code) const;
};

/// One recording inside a file, events in file order. Lines that carry the same time keep their order.
/// An event of kind `other` has field[0] = index into other_names, field[1] = offset and field[2] = length in
/// other_text.
struct Capture : TraceNames {
  std::string source;          ///< file name
  std::string title;           ///< of the heading `# capture: TITLE`; empty without one
  std::string format;          ///< see TraceSink
  std::size_t first_line = 0;  ///< 1-based
  std::uint64_t line_count = 0;
  TimeBase time_base = TimeBase::none;
  std::vector<TraceEvent> events;
  std::vector<std::uint32_t> lines;  ///< line number of each event
  std::uint64_t lost_events = 0;     ///< of LOST markers

  std::map<std::int32_t, std::int32_t> processes;  ///< thread to process, where the lines say it

  std::vector<std::string> other_names;
  std::string other_text;
  std::map<std::string, std::uint64_t>
      unknown;                           ///< event names, exit reasons and lines that nobody here knows
  std::uint64_t unrecognised_lines = 0;  ///< lines that are no event at all

  std::vector<Problem> problems;    ///< the first ones; a line whose known event cannot be read
  std::uint64_t problem_count = 0;  ///< all of them

  /// Time stamps and durations mean something.
  [[nodiscard]] bool has_time() const noexcept {
    return time_base == TimeBase::microseconds || time_base == TimeBase::nanoseconds;
  }
  /// Name of an event, also of one that svmsim does not model.
  [[nodiscard]] std::string_view name_of(const TraceEvent& event) const;
  /// Text of an event of kind `other`.
  [[nodiscard]] std::string_view other_text_of(const TraceEvent& event) const;
};

/// A trace file: one capture, or several under headings.
struct TraceFile {
  std::string source;
  std::uint64_t line_count = 0;
  std::vector<Capture> captures;
};

/// The beginning of the message for a file without a single event; what was seen instead follows.
[[nodiscard]] std::string no_event_message();

/// Text of a file made fit for a message or JSON: control characters and bytes outside ASCII become \xNN.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_length = 120);

}  // namespace svmsim::workloads
