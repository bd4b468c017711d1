#include "workloads/trace/text_reader.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "workloads/trace/guest_marker.hpp"
#include "workloads/trace/line_source.hpp"
#include "workloads/trace/table_words.hpp"
#include "workloads/trace/text_scanner.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::string_view capture_heading = "capture:";
constexpr std::string_view table_heading = "table:";
constexpr unsigned max_joined_lines = 8;
constexpr std::size_t shortest_folded_line = 55;

std::string_view without_leading_blanks(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t");
  return start == std::string_view::npos ? std::string_view{} : text.substr(start);
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

/// Words with which the second half of a folded kvm event begins.
bool starts_like_event_text(std::string_view text) {
  if (text.front() == '[') return true;
  for (const std::string_view word : {"info ", "info1 ", "info2 ", "intr_info ", "error_code ", "requests ",
                                      "rip ", "address ", "val ", "polling ", "next_comm=", "==> "}) {
    if (starts_with(text, word)) return true;
  }
  return false;
}

}  // namespace

TextParser::TextParser(TraceSink& sink, const ReadOptions& options) : sink_(sink), options_(options) {
  begin_capture("", 1);
}

void TextParser::begin_capture(std::string_view title, std::uint64_t number) {
  names_ = std::make_unique<TraceNames>();
  payload_ = std::make_unique<PayloadParser>(*names_);
  capture_first_ = number;
  titled_ = !title.empty();
  last_tid_ = -1;
  has_flags_ = false;
  shape_format_ = {};
  format_.clear();
  sink_.begin_capture(title, number, *names_);
}

void TextParser::end_capture() {
  flush();
  emit_table();
  std::string_view format = format_;
  if (!forced_format_.empty()) {
    format = forced_format_;
  } else if (shape_format_ == "tracefs") {
    format = !format_.empty() ? std::string_view{format_} : has_flags_ ? "tracefs" : "trace-cmd report";
  } else if (!shape_format_.empty()) {
    format = shape_format_;
  }
  sink_.end_capture(format, last_line_ < capture_first_ ? 0 : last_line_ - capture_first_ + 1);
}

void TextParser::emit_table() {
  const std::optional<StatTable> table = tables_.take();
  if (!table) return;
  if (shape_format_.empty()) format_ = table->format;
  sink_.table(*table);
}

void TextParser::note(NoteKind kind, std::uint64_t line, std::string_view text, std::uint64_t count) {
  ReadNote one;
  one.kind = kind;
  one.line = line;
  one.count = count;
  one.text = text;
  sink_.note(one);
}

bool TextParser::heading(std::string_view comment, std::uint64_t number) {
  std::string_view title;
  if (starts_with(comment, capture_heading)) {
    title = comment.substr(capture_heading.size());
  } else if (starts_with(comment, table_heading)) {
    title = comment.substr(table_heading.size());
  } else {
    return false;
  }
  last_line_ = number - 1;
  end_capture();
  begin_capture(printable(without_leading_blanks(title)), number);
  return true;
}

void TextParser::line(std::string_view text, bool cut, std::uint64_t number) {
  if (number == 1 && starts_with(text, "\xef\xbb\xbf")) text.remove_prefix(3);
  std::string& buffer = buffers_[current_];
  buffer.assign(text);
  const std::string_view own{buffer};
  handle(parse_line(own), own, cut, number);
  last_line_ = number;
}

void TextParser::handle(const ParsedLine& parsed, std::string_view text, bool cut, std::uint64_t number) {
  const bool is_event = parsed.shape == LineShape::ftrace || parsed.shape == LineShape::perf ||
                        parsed.shape == LineShape::stripped || parsed.shape == LineShape::lost;
  if (parsed.shape == LineShape::comment && heading(parsed.text, number)) return;
  const bool prefix_waits = holding_ && held_.shape == LineShape::prefix_only;
  if ((tables_.active() || !is_event) && !prefix_waits) {
    const std::size_t quote = text.find_first_not_of("> \t");
    const std::size_t mark = text.rfind('>', quote);
    const std::string_view bare = quote == std::string_view::npos  ? std::string_view{}
                                  : mark == std::string_view::npos ? text
                                                                   : text.substr(mark + 1);
    if (parsed.shape == LineShape::unrecognised && table_words::is_heading(bare)) {
      flush();
      return;
    }
    const TableParser::Verdict verdict = tables_.line(bare, number, is_event);
    if (verdict == TableParser::Verdict::taken) flush();
    for (const std::string& what : tables_.take_unknown())
      note(NoteKind::unknown, number, what);
    if (tables_.complete()) emit_table();
    if (verdict == TableParser::Verdict::taken) return;
  }
  if (cut) {
    flush();
    note(NoteKind::unreadable, number,
         fmt::format("the line is longer than {} bytes and was left out", options_.max_line_bytes));
    return;
  }
  if (prefix_waits && parsed.shape != LineShape::blank && (!is_event || parsed.time_base == TimeBase::none)) {
    join(text, number);
    return;
  }
  switch (parsed.shape) {
    case LineShape::blank:
      return;
    case LineShape::comment:
      flush();
      if (starts_with(parsed.text, "tracer:")) format_ = "tracefs";
      return;
    case LineShape::header:
      flush();
      format_ = "trace-cmd report";
      return;
    case LineShape::clock:
      flush();
      return;
    case LineShape::lost:
      flush();
      note(NoteKind::lost, number, "events lost by the recorder", parsed.time);
      return;
    case LineShape::unrecognised:
      if (holding_ && continues(text)) {
        join(text, number);
        return;
      }
      flush();
      note(NoteKind::unrecognised, number, text);
      return;
    case LineShape::prefix_only:
    case LineShape::ftrace:
    case LineShape::perf:
    case LineShape::stripped:
      flush();
      hold(parsed, number, text.size());
      return;
  }
}

void TextParser::hold(const ParsedLine& parsed, std::uint64_t number, std::size_t length) {
  held_ = parsed;
  holding_ = true;
  held_line_ = number;
  held_length_ = length;
  joined_ = 0;
  current_ ^= 1U;
}

// Does `text`, which is no event by itself, continue the held event?
bool TextParser::continues(std::string_view text) const {
  if (joined_ >= max_joined_lines) return false;
  const std::string& held = buffers_[current_ ^ 1U];
  const std::size_t start = text.find_first_not_of("> \t");
  if (start == std::string_view::npos || held.size() + text.size() > options_.max_line_bytes) return false;
  const std::optional<EventKind> kind = readable_event_kind_of(held_.event);
  if (kind) {
    TraceEvent event;
    event.kind = *kind;
    TraceNames scratch;
    PayloadParser parser(scratch);
    if (!parser.parse(held_.text, event)) return true;
    return starts_like_event_text(text.substr(start));
  }
  // Of an event that nobody here knows only the shape of the lines can tell.
  const std::size_t held_start = held.find_first_not_of("> \t");
  return start > held_start || (held_length_ >= shortest_folded_line && text.size() < held_length_);
}

void TextParser::join(std::string_view text, std::uint64_t number) {
  std::string& held = buffers_[current_ ^ 1U];
  const std::size_t start = std::min(text.find_first_not_of("> \t"), text.size());
  held_length_ = text.size();
  while (!held.empty() && (held.back() == ' ' || held.back() == '\t'))
    held.pop_back();
  held += ' ';
  held += text.substr(start);
  ++joined_;
  held_ = parse_line(held);
  note(NoteKind::joined, number, "joined to the line before, which a mailer had folded");
}

void TextParser::flush() {
  if (!holding_) return;
  holding_ = false;
  if (held_.shape == LineShape::prefix_only) {
    note(NoteKind::unreadable, held_line_, "the line ends before the event's name");
    return;
  }
  emit(held_, held_line_);
}

void TextParser::emit(const ParsedLine& parsed, std::uint64_t number) {
  if (shape_format_.empty()) {
    shape_format_ = parsed.shape == LineShape::perf     ? "perf script"
                    : parsed.shape == LineShape::ftrace ? "tracefs"
                                                        : "stripped";
  }
  has_flags_ = has_flags_ || parsed.has_flags;
  ReadEvent read;
  TraceEvent& event = read.event;
  event.time = parsed.time;
  event.cpu = parsed.cpu;
  event.tid = parsed.tid;
  const std::optional<EventKind> kind = readable_event_kind_of(parsed.event);
  event.kind = kind.value_or(EventKind::other);
  std::string_view text = parsed.text;
  if (!kind && guest_marker::is_marker(parsed.event, text)) event.kind = EventKind::svmsim_guest;
  if (!payload_->parse(text, event)) {
    note(NoteKind::unreadable, number,
         fmt::format("{}: cannot read \"{}\" (expected {})", parsed.event, printable(parsed.text),
                     PayloadParser::grammar(event.kind)));
    return;
  }
  if (parsed.tid > 0 && parsed.tid != last_tid_) {
    names_->threads.set(parsed.tid, parsed.comm);
    last_tid_ = parsed.tid;
  }
  read.line = number;
  read.name = parsed.event;
  read.text = parsed.text;
  read.comm = parsed.comm;
  read.tgid = parsed.tgid;
  read.time_base = parsed.time_base;
  ++events_;
  sink_.event(read);
}

void TextParser::stopped_early(std::string_view why) {
  flush();
  note(NoteKind::unreadable, last_line_, std::string{why} + "; what follows is missing");
}

void TextParser::finish(std::string_view format) {
  forced_format_ = format;
  end_capture();
  sink_.end_file(last_line_);
}

void read_lines(std::istream& in, const ReadOptions& options, TextParser& parser) {
  LineSource lines(in, options.max_line_bytes);
  std::string_view line;
  while (lines.next(line))
    parser.line(line, lines.cut(), lines.number());
}

void TextReader::read(TraceSink& sink) {
  TextParser parser(sink, options_);
  read_lines(in_, options_, parser);
  parser.finish();
}

std::unique_ptr<TraceReader> make_text_reader(std::istream& in, const std::string& source,
                                              const ReadOptions& options) {
  return std::make_unique<TextReader>(in, source, options);
}

}  // namespace svmsim::workloads
