#include "workloads/trace/capture_collector.hpp"

#include <algorithm>
#include <utility>

namespace svmsim::workloads {

namespace {

constexpr std::size_t max_unknown_texts = 1000;
constexpr std::uint64_t max_unknown_lines = 20;

}  // namespace

CaptureCollector::CaptureCollector(std::string source, const ReadOptions& options)
    : max_problems_(options.max_problems) {
  file_.source = std::move(source);
}

void CaptureCollector::begin_capture(std::string_view title, std::uint64_t first_line,
                                     const TraceNames& names) {
  Capture& fresh = file_.captures.emplace_back();
  fresh.source = file_.source;
  fresh.title = title;
  fresh.first_line = first_line;
  names_ = &names;
  other_index_.clear();
}

void CaptureCollector::count_unknown(std::string text, std::uint64_t count) {
  auto& unknown = capture().unknown;
  const auto found = unknown.find(text);
  if (found != unknown.end()) {
    found->second += count;
  } else if (unknown.size() < max_unknown_texts) {
    unknown.emplace(std::move(text), count);
  }
}

void CaptureCollector::event(const ReadEvent& read) {
  Capture& current = capture();
  TraceEvent event = read.event;
  if (event.kind == EventKind::other) {
    const std::string name{read.name};
    const auto [found, fresh] = other_index_.try_emplace(name, current.other_names.size());
    if (fresh) current.other_names.push_back(name);
    event.field[0] = found->second;
    event.field[1] = current.other_text.size();
    event.field[2] = read.text.size();
    current.other_text += read.text;
    count_unknown(name);
  }
  if (read.tgid >= 0) current.processes[event.tid] = read.tgid;
  if (read.time_base != TimeBase::none &&
      (current.time_base == TimeBase::none || read.time_base == TimeBase::nanoseconds)) {
    current.time_base = read.time_base;
  }
  current.events.push_back(event);
  current.lines.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(read.line, UINT32_MAX)));
}

void CaptureCollector::table(const StatTable& table) {
  if (table_format_.empty()) table_format_ = table.format;
}

void CaptureCollector::note(const ReadNote& note) {
  Capture& current = capture();
  switch (note.kind) {
    case NoteKind::unreadable:
      if (current.problem_count++ < max_problems_) {
        current.problems.push_back(Problem{file_.source, note.line, "", std::string{note.text}, ""});
      }
      break;
    case NoteKind::unrecognised:
      if (first_line_.empty()) {
        first_line_ = printable(note.text, 60);
        first_line_number_ = note.line;
      }
      if (current.unrecognised_lines++ < max_unknown_lines)
        count_unknown("line: " + printable(note.text, 60));
      break;
    case NoteKind::lost:
      current.lost_events += note.count;
      break;
    case NoteKind::unknown:
      count_unknown(std::string{note.text}, note.count);
      break;
    case NoteKind::joined:
    case NoteKind::remark:
      break;
  }
}

void CaptureCollector::end_capture(std::string_view format, std::uint64_t line_count) {
  Capture& done = capture();
  static_cast<TraceNames&>(done) = *names_;
  names_ = nullptr;
  done.line_count = line_count;
  done.format = format;
  // Lines before the first heading are no capture unless they hold events.
  if (done.title.empty() && done.events.empty() && done.problem_count == 0) {
    file_.captures.pop_back();
    return;
  }
  for (std::size_t i = 0; i < done.foreign_exits.size(); ++i) {
    const std::uint64_t code = foreign_exit_base + i;
    const auto count = std::count_if(done.events.begin(), done.events.end(), [code](const TraceEvent& one) {
      return one.kind == EventKind::kvm_exit && one.field[0] == code;
    });
    done.unknown["exit reason " + done.foreign_exits[i]] += static_cast<std::uint64_t>(count);
  }
}

TraceFile CaptureCollector::take() {
  std::uint64_t events = 0;
  for (const Capture& one : file_.captures)
    events += one.events.size() + one.problem_count;
  if (events != 0) return std::move(file_);
  std::string message;
  if (!table_format_.empty()) {
    message =
        "is a table of " + table_format_ + ": it has counts but no events, so there is nothing to replay";
    throw TraceError(Problem{file_.source, 0, "", message, ""});
  }
  const std::string seen =
      first_line_.empty() ? "it has no text" : "its first line is \"" + first_line_ + "\"";
  throw TraceError(Problem{file_.source, first_line_number_, "", no_event_message() + seen, ""});
}

std::string no_event_message() {
  return "no line is a trace event (expected `COMM-PID [CPU] TIME: event: text`, or the same without what "
         "stands before the event); ";
}

}  // namespace svmsim::workloads
