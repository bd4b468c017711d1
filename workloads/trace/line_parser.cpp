#include "workloads/trace/line_parser.hpp"

#include <cstdlib>
#include <optional>

#include "workloads/trace/text_scanner.hpp"

namespace svmsim::workloads {

namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

/// `220.696238:` or `6204951631:`; consumes the colon.
bool take_time(TextScanner& scan, ParsedLine& line) {
  TextScanner probe = scan;
  std::uint64_t whole = 0;
  if (!probe.decimal(whole)) return false;
  if (probe.literal(":")) {
    line.time_base = TimeBase::counter;
    line.time = whole;
    scan = probe;
    return true;
  }
  if (!probe.literal(".")) return false;
  const std::size_t start = probe.position();
  std::uint64_t fraction = 0;
  if (!probe.decimal(fraction)) return false;
  const std::size_t digits = probe.position() - start;
  constexpr std::uint64_t giga = 1'000'000'000;
  if (digits > 9 || whole > UINT64_MAX / giga - 1 || !probe.literal(":")) return false;
  for (std::size_t i = digits; i < 9; ++i)
    fraction *= 10;
  line.time_base = digits > 6 ? TimeBase::nanoseconds : TimeBase::microseconds;
  line.time = whole * giga + fraction;
  scan = probe;
  return true;
}

bool is_event_name(std::string_view name) {
  if (name.empty() || name.size() > 64 || is_digit(name.front())) return false;
  for (const char c : name) {
    if (!(c == '_' || is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) return false;
  }
  return true;
}

/// `kvm_exit: text`, `kvm:kvm_exit: text`, or `kvm_exit  text` for a name that can only be an event.
bool take_event(TextScanner& scan, bool prefixed, ParsedLine& line) {
  scan.skip_blanks();
  std::string_view token = scan.word();
  const bool colon = !token.empty() && token.back() == ':';
  if (colon) token.remove_suffix(1);
  const std::size_t system = token.rfind(':');
  if (system != std::string_view::npos) token.remove_prefix(system + 1);
  if (!is_event_name(token)) return false;
  // Without a prefix or a colon, prose would pass for an event.
  if ((!prefixed || !colon) && !starts_with(token, "kvm_") && !event_kind_of(token)) return false;
  line.event = token;
  line.text = trim(scan.rest());
  return true;
}

std::optional<std::int32_t> small_number(std::string_view digits) {
  TextScanner scan(digits);
  std::uint64_t value = 0;
  if (!scan.decimal(value) || !scan.at_end() || value > INT32_MAX) return std::nullopt;
  return static_cast<std::int32_t>(value);
}

/// What stands before `[CPU]`: `COMM-PID`, `COMM-PID (TGID)`, `COMM PID`, `COMM PID/TID`, or nothing.
bool take_thread(std::string_view before, ParsedLine& line) {
  before = trim(before);
  if (before.empty()) {
    line.shape = LineShape::perf;
    return true;
  }
  if (before.back() == ')') {
    const std::size_t open = before.rfind('(');
    if (open == std::string_view::npos) return false;
    // `(-----)` stands for a process that the kernel did not record.
    const std::string_view process = trim(before.substr(open + 1, before.size() - open - 2));
    line.tgid = small_number(process).value_or(-1);
    before = trim(before.substr(0, open));
  }
  std::size_t start = before.size();
  while (start > 0 && is_digit(before[start - 1]))
    --start;
  const std::optional<std::int32_t> tid = small_number(before.substr(start));
  if (!tid || start == 0) return false;
  const char separator = before[start - 1];
  std::string_view comm = before.substr(0, start - 1);
  if (separator == '-') {
    line.shape = LineShape::ftrace;
  } else if (is_blank(separator)) {
    line.shape = LineShape::perf;
  } else if (separator == '/') {
    line.shape = LineShape::perf;
    std::size_t process = comm.size();
    while (process > 0 && is_digit(comm[process - 1]))
      --process;
    if (process == comm.size()) return false;
    line.tgid = small_number(comm.substr(process)).value_or(-1);
    comm = comm.substr(0, process);
  } else {
    return false;
  }
  line.tid = *tid;
  line.comm = trim(comm);
  return true;
}

/// Finds `[003]` with a thread before it; leaves `rest` behind the bracket.
bool take_thread_and_cpu(std::string_view text, ParsedLine& line, std::string_view& rest) {
  for (std::size_t open = text.find('['); open != std::string_view::npos; open = text.find('[', open + 1)) {
    std::size_t end = open + 1;
    while (end < text.size() && is_digit(text[end]))
      ++end;
    if (end == open + 1 || end - open > 6 || end == text.size() || text[end] != ']') continue;
    const std::optional<std::int32_t> cpu = small_number(text.substr(open + 1, end - open - 1));
    if (!cpu || !take_thread(text.substr(0, open), line)) continue;
    line.cpu = *cpu;
    rest = text.substr(end + 1);
    return true;
  }
  return false;
}

/// `COMM PID TIME: EVENT: TEXT`, which perf script prints without its CPU column.
bool take_thread_and_time(std::string_view text, ParsedLine& line, std::string_view& rest) {
  for (std::size_t colon = text.find(": "); colon != std::string_view::npos;
       colon = text.find(": ", colon + 1)) {
    std::size_t start = colon;
    while (start > 0 && (is_digit(text[start - 1]) || text[start - 1] == '.'))
      --start;
    if (start == colon) continue;
    if (start == 0 || !is_blank(text[start - 1]) || !take_thread(text.substr(0, start), line)) return false;
    if (line.shape != LineShape::perf) return false;
    rest = text.substr(start);
    return true;
  }
  return false;
}

/// `2022-04-22 17:39:26.535148`, which loggers put in front of a line: its length, 0 for anything else.
std::size_t wall_clock_length(std::string_view text) {
  constexpr std::string_view form = "0000-00-00 00:00:00";
  if (text.size() < form.size()) return 0;
  for (std::size_t i = 0; i < form.size(); ++i) {
    if (form[i] == '0' ? !is_digit(text[i]) : form[i] != text[i]) return 0;
  }
  std::size_t end = form.size();
  if (end < text.size() && text[end] == '.') {
    do
      ++end;
    while (end < text.size() && is_digit(text[end]));
  }
  return end == text.size() || is_blank(text[end]) ? end : 0;
}

bool take_lost(std::string_view text, ParsedLine& line) {
  if (!starts_with(text, "CPU:")) return false;
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos) return false;
  TextScanner scan(text.substr(open + 1));
  scan.literal("LOST ");
  const bool counted = scan.decimal(line.time);
  scan.skip_blanks();
  if (!scan.literal("EVENTS")) return false;
  if (!counted) line.time = 1;
  line.shape = LineShape::lost;
  return true;
}

/// The shape of a line whose prefix has been read, with `prefixed` as the shape of that prefix.
void take_rest(TextScanner& scan, LineShape prefixed, ParsedLine& line) {
  line.shape = LineShape::unrecognised;
  scan.skip_blanks();
  if (scan.at_end() && line.time_base != TimeBase::none) {
    line.shape = LineShape::prefix_only;
  } else if (take_event(scan, true, line)) {
    line.shape = prefixed;
  }
}

ParsedLine parse_after_clock(std::string_view text) {
  ParsedLine line;
  TextScanner scan(text);
  if (is_digit(text.front()) && take_time(scan, line)) {
    take_rest(scan, LineShape::stripped, line);
    return line;
  }
  std::string_view rest;
  if (take_thread_and_cpu(text, line, rest)) {
    scan = TextScanner(rest);
    scan.skip_blanks();
    const LineShape shape = line.shape;
    if (!take_time(scan, line)) {
      // Latency flags are 4 to 7 characters (`d..2.`); a line without them may have no time either.
      TextScanner after = scan;
      const std::string_view flags = after.word();
      after.skip_blanks();
      if (flags.size() >= 4 && flags.size() <= 8 && flags.back() != ':') {
        line.has_flags = true;
        scan = after;
        take_time(scan, line);
      }
    }
    take_rest(scan, shape, line);
    return line;
  }
  if (take_lost(text, line)) return line;
  if (starts_with(text, "cpus=") || starts_with(text, "version = ")) {
    line.shape = LineShape::header;
    return line;
  }
  if (take_event(scan, false, line)) {
    line.shape = LineShape::stripped;
    return line;
  }
  ParsedLine perf;
  if (take_thread_and_time(text, perf, rest)) {
    scan = TextScanner(rest);
    if (take_time(scan, perf)) {
      take_rest(scan, LineShape::perf, perf);
      if (perf.shape == LineShape::perf) return perf;
    }
  }
  return line;
}

}  // namespace

ParsedLine parse_line(std::string_view text) {
  ParsedLine line;
  while (!text.empty() && (is_blank(text.front()) || text.front() == '>'))
    text.remove_prefix(1);
  if (text.empty()) {
    line.shape = LineShape::blank;
    return line;
  }
  if (text.front() == '#') {
    line.shape = LineShape::comment;
    line.text = trim(text.substr(1));
    return line;
  }
  if (!is_digit(text.front())) return parse_after_clock(text);
  const std::size_t clock = wall_clock_length(text);
  if (clock == 0) return parse_after_clock(text);
  text = trim(text.substr(clock));
  if (!text.empty()) return parse_after_clock(text);
  line.shape = LineShape::clock;
  return line;
}

}  // namespace svmsim::workloads
