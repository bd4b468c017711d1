#pragma once

#include <string>
#include <unordered_map>

#include "workloads/trace/trace_reader.hpp"

namespace svmsim::workloads {

/// Keeps what a reader hands on, as Captures. For what needs a recording as a whole; the import report does
/// not.
class CaptureCollector final : public TraceSink {
 public:
  CaptureCollector(std::string source, const ReadOptions& options);

  void begin_capture(std::string_view title, std::uint64_t first_line, const TraceNames& names) override;
  void event(const ReadEvent& event) override;
  void table(const StatTable& table) override;
  void note(const ReadNote& note) override;
  void end_capture(std::string_view format, std::uint64_t line_count) override;
  void end_file(std::uint64_t line_count) override { file_.line_count = line_count; }

  /// What was collected. Throws TraceError when it holds no event.
  [[nodiscard]] TraceFile take();

 private:
  Capture& capture() { return file_.captures.back(); }
  void count_unknown(std::string text, std::uint64_t count = 1);

  std::size_t max_problems_;
  TraceFile file_;
  const TraceNames* names_ = nullptr;
  std::unordered_map<std::string, std::size_t> other_index_;
  std::string first_line_;
  std::uint64_t first_line_number_ = 0;
  std::string table_format_;
};

}  // namespace svmsim::workloads
