#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "workloads/trace/capture_tally.hpp"
#include "workloads/trace/import.hpp"
#include "workloads/trace/trace_sink.hpp"

namespace svmsim::workloads {

/// Makes the import report while a reader hands on a recording, in constant memory: what it holds grows with
/// the number of names, threads and vCPUs, never with the number of lines.
class ReportBuilder final : public TraceSink {
 public:
  ReportBuilder(std::string source, ImportOptions options);
  ~ReportBuilder() override;

  /// Only capture `number` (1-based) is reported.
  void choose(int number) { chosen_ = number; }

  void begin_capture(std::string_view title, std::uint64_t first_line, const TraceNames& names) override;
  void event(const ReadEvent& event) override;
  void table(const StatTable& table) override;
  void note(const ReadNote& note) override;
  void end_capture(std::string_view format, std::uint64_t line_count) override;
  void end_file(std::uint64_t line_count) override;
  [[nodiscard]] bool wants_text(std::string_view event_name) const override;

  /// The sum over all captures. Throws UserError when a window is asked for and no vCPU of any capture has
  /// both marks.
  [[nodiscard]] ImportReport take();

 private:
  std::string source_;
  ImportOptions options_;
  std::unique_ptr<CaptureTally> tally_;
  std::vector<ImportReport> captures_;
  std::string first_text_;
  std::uint64_t first_text_line_ = 0;
  std::uint64_t first_line_ = 1;
  std::uint64_t line_count_ = 0;
  int number_ = 0;
  int chosen_ = 0;
  bool window_missed_ = false;
};

}  // namespace svmsim::workloads
