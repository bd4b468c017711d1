#include "workloads/trace/ftrace_reader.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "workloads/trace/line_parser.hpp"
#include "workloads/trace/line_source.hpp"
#include "workloads/trace/payload_parser.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::string_view capture_heading = "capture:";
constexpr std::size_t max_unknown_texts = 1000;
constexpr std::size_t max_unknown_lines = 20;

std::string_view without_leading_blanks(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t");
  return start == std::string_view::npos ? std::string_view{} : text.substr(start);
}

/// Fills the captures of one file, line by line.
class CaptureBuilder {
 public:
  CaptureBuilder(const std::string& source, const ReadOptions& options) : options_(options) {
    file_.source = source;
    begin_capture("", 1);
  }

  void line(std::string_view text, bool cut, std::uint64_t number) {
    file_.line_count = number;
    ParsedLine parsed = parse_line(text);
    if (parsed.shape == LineShape::comment &&
        parsed.text.substr(0, capture_heading.size()) == capture_heading) {
      begin_capture(without_leading_blanks(parsed.text.substr(capture_heading.size())), number);
      return;
    }
    ++capture().line_count;
    if (!text.empty() && first_text_.empty()) {
      first_text_ = printable(text, 60);
      first_text_line_ = number;
    }
    switch (parsed.shape) {
      case LineShape::blank:
        return;
      case LineShape::comment:
        if (parsed.text.substr(0, 7) == "tracer:") format_ = "tracefs";
        return;
      case LineShape::header:
        format_ = "trace-cmd report";
        return;
      case LineShape::lost:
        capture().lost_events += parsed.time;
        return;
      case LineShape::unrecognised:
        unrecognised(text, cut, number);
        return;
      case LineShape::ftrace:
      case LineShape::perf:
      case LineShape::stripped:
        break;
    }
    if (cut) {
      problem(number, fmt::format("the line is longer than {} bytes", options_.max_line_bytes));
      return;
    }
    event(parsed, number);
  }

  TraceFile finish() {
    end_capture();
    std::uint64_t events = 0;
    for (const Capture& one : file_.captures)
      events += one.events.size() + one.problem_count;
    if (events == 0) {
      const std::string seen =
          first_text_.empty() ? "it has no text" : "its first line is \"" + first_text_ + "\"";
      throw TraceError(
          Problem{file_.source, first_text_line_, "",
                  "no line is a trace event (expected `COMM-PID [CPU] TIME: event: text`, or the same "
                  "without what stands before the event); " +
                      seen,
                  ""});
    }
    return std::move(file_);
  }

  /// Reading ended before the file did. With no event at all that is the reason to refuse the file.
  void stopped_early(const std::string& why) {
    if (capture().events.empty() && file_.captures.size() == 1) {
      throw TraceError(Problem{file_.source, file_.line_count, "", why, ""});
    }
    problem(file_.line_count, why + "; what follows is missing");
  }

 private:
  Capture& capture() { return file_.captures.back(); }

  void begin_capture(std::string_view title, std::uint64_t number) {
    if (!file_.captures.empty()) end_capture();
    Capture& fresh = file_.captures.emplace_back();
    fresh.source = file_.source;
    fresh.title = printable(title);
    fresh.first_line = number;
    payload_ = std::make_unique<PayloadParser>(fresh);
    other_index_.clear();
    last_tid_ = -1;
    shape_ = LineShape::unrecognised;
    has_flags_ = false;
  }

  void end_capture() {
    Capture& done = capture();
    // Lines before the first heading are no capture unless they hold events.
    if (done.title.empty() && done.events.empty() && done.problem_count == 0) {
      unheaded_lines_ += done.line_count;
      file_.captures.pop_back();
      return;
    }
    for (const std::string& reason : done.foreign_exits) {
      const std::uint64_t code =
          foreign_exit_base + static_cast<std::uint64_t>(&reason - done.foreign_exits.data());
      const auto count = std::count_if(done.events.begin(), done.events.end(), [code](const TraceEvent& one) {
        return one.kind == EventKind::kvm_exit && one.field[0] == code;
      });
      done.unknown["exit reason " + reason] += static_cast<std::uint64_t>(count);
    }
    if (shape_ == LineShape::perf) {
      done.format = "perf script";
    } else if (shape_ == LineShape::ftrace) {
      done.format = !format_.empty() ? format_ : has_flags_ ? "tracefs" : "trace-cmd report";
    } else {
      done.format = "stripped";
    }
  }

  void problem(std::uint64_t number, std::string message) {
    Capture& current = capture();
    if (current.problem_count++ < options_.max_problems) {
      current.problems.push_back(Problem{file_.source, number, "", std::move(message), ""});
    }
  }

  void count_unknown(std::string text) {
    auto& unknown = capture().unknown;
    const auto found = unknown.find(text);
    if (found != unknown.end()) {
      ++found->second;
    } else if (unknown.size() < max_unknown_texts) {
      unknown.emplace(std::move(text), 1);
    }
  }

  void unrecognised(std::string_view text, bool cut, std::uint64_t number) {
    if (capture().unrecognised_lines++ < max_unknown_lines) count_unknown("line: " + printable(text, 60));
    if (cut) problem(number, fmt::format("the line is longer than {} bytes", options_.max_line_bytes));
  }

  void event(const ParsedLine& parsed, std::uint64_t number) {
    Capture& current = capture();
    if (shape_ == LineShape::unrecognised) shape_ = parsed.shape;
    has_flags_ = has_flags_ || parsed.has_flags;
    TraceEvent result;
    result.time = parsed.time;
    result.cpu = parsed.cpu;
    result.tid = parsed.tid;
    const std::optional<EventKind> kind = event_kind_of(parsed.event);
    result.kind = kind.value_or(EventKind::other);
    if (!payload_->parse(parsed.text, result)) {
      problem(number, fmt::format("{}: cannot read \"{}\" (expected {})", parsed.event,
                                  printable(parsed.text), PayloadParser::grammar(result.kind)));
      return;
    }
    if (result.kind == EventKind::other) keep_other(parsed, result);
    if (parsed.tid > 0 && parsed.tid != last_tid_) {
      current.threads.set(parsed.tid, parsed.comm);
      last_tid_ = parsed.tid;
    }
    if (parsed.time_base != TimeBase::none &&
        (current.time_base == TimeBase::none || parsed.time_base == TimeBase::nanoseconds)) {
      current.time_base = parsed.time_base;
    }
    current.events.push_back(result);
    current.lines.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(number, UINT32_MAX)));
  }

  void keep_other(const ParsedLine& parsed, TraceEvent& result) {
    Capture& current = capture();
    const std::string name{parsed.event};
    const auto [found, fresh] = other_index_.try_emplace(name, current.other_names.size());
    if (fresh) current.other_names.push_back(name);
    result.field[0] = found->second;
    result.field[1] = current.other_text.size();
    result.field[2] = parsed.text.size();
    current.other_text += parsed.text;
    count_unknown(name);
  }

  ReadOptions options_;
  TraceFile file_;
  std::unique_ptr<PayloadParser> payload_;
  std::unordered_map<std::string, std::size_t> other_index_;
  std::string format_;
  std::string first_text_;
  std::uint64_t first_text_line_ = 0;
  std::uint64_t unheaded_lines_ = 0;
  std::int32_t last_tid_ = -1;
  LineShape shape_ = LineShape::unrecognised;
  bool has_flags_ = false;
};

void read_lines(std::istream& in, const ReadOptions& options, CaptureBuilder& builder) {
  LineSource lines(in, options.max_line_bytes);
  std::string_view line;
  while (lines.next(line))
    builder.line(line, lines.cut(), lines.number());
}

}  // namespace

TraceFile read_trace(std::istream& in, const std::string& source, const ReadOptions& options) {
  CaptureBuilder builder(source, options);
  read_lines(in, options, builder);
  return builder.finish();
}

TraceFile read_trace_file(const std::string& path, const ReadOptions& options) {
  UnpackingFile file(path, options.max_expansion);
  CaptureBuilder builder(path, options);
  read_lines(file.stream(), options, builder);
  if (const std::string failure = file.failure(); !failure.empty()) builder.stopped_early(failure);
  return builder.finish();
}

}  // namespace svmsim::workloads
