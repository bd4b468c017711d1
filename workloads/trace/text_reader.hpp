#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "workloads/trace/line_parser.hpp"
#include "workloads/trace/payload_parser.hpp"
#include "workloads/trace/table_parser.hpp"
#include "workloads/trace/trace_reader.hpp"

namespace svmsim::workloads {

/// Reads lines: events in every prefix form of traces.md, and tables. Joins what mailers have folded: a line
/// that is no event by itself continues the event before it when that one is incomplete, or when both look
/// like the halves of one line. `# capture: TITLE` and `# table: TITLE` start another capture.
class TextParser {
 public:
  TextParser(TraceSink& sink, const ReadOptions& options);

  void line(std::string_view text, bool cut, std::uint64_t number);
  /// Events handed on so far, without the one that may still be continued.
  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }
  /// Reading ended before the file did.
  void stopped_early(std::string_view why);
  /// The end of the file. `format` replaces the one that the lines show unless it is empty.
  void finish(std::string_view format = {});

 private:
  void begin_capture(std::string_view title, std::uint64_t number);
  void end_capture();
  void emit_table();
  void handle(const ParsedLine& parsed, std::string_view text, bool cut, std::uint64_t number);
  void hold(const ParsedLine& parsed, std::uint64_t number, std::size_t length);
  void flush();
  void emit(const ParsedLine& parsed, std::uint64_t number);
  [[nodiscard]] bool continues(std::string_view text) const;
  void join(std::string_view text, std::uint64_t number);
  void note(NoteKind kind, std::uint64_t line, std::string_view text, std::uint64_t count = 1);
  bool heading(std::string_view comment, std::uint64_t number);

  TraceSink& sink_;
  ReadOptions options_;
  std::unique_ptr<TraceNames> names_;
  std::unique_ptr<PayloadParser> payload_;
  TableParser tables_;
  std::array<std::string, 2> buffers_;  ///< the held line and the current one, in turn
  std::size_t current_ = 0;
  ParsedLine held_;
  bool holding_ = false;
  std::uint64_t held_line_ = 0;
  std::size_t held_length_ = 0;  ///< of its last physical line
  unsigned joined_ = 0;
  std::string forced_format_;
  std::string format_;
  std::string_view shape_format_;
  std::uint64_t capture_first_ = 0;
  std::uint64_t last_line_ = 0;
  std::uint64_t events_ = 0;
  std::int32_t last_tid_ = -1;
  bool titled_ = false;
  bool has_flags_ = false;
};

/// A stream of text as a TraceReader.
class TextReader final : public TraceReader {
 public:
  TextReader(std::istream& in, std::string source, ReadOptions options)
      : in_(in), source_(std::move(source)), options_(std::move(options)) {}
  void read(TraceSink& sink) override;

 private:
  std::istream& in_;
  std::string source_;
  ReadOptions options_;
};

/// Feeds every line of `in` to `parser`.
void read_lines(std::istream& in, const ReadOptions& options, TextParser& parser);

}  // namespace svmsim::workloads
