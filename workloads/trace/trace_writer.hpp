#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "workloads/kernel_generation.hpp"
#include "workloads/trace/event.hpp"

namespace svmsim::workloads {

/// What a recording is written as.
enum class TraceFormat : std::uint8_t {
  ftrace,       ///< the tracefs file `trace`
  perf_script,  ///< what `perf script` prints
  trace_dat,    ///< trace-cmd's binary file, version 6
};
/// "ftrace", "perf", "dat".
[[nodiscard]] std::string_view trace_format_name(TraceFormat format);
[[nodiscard]] std::optional<TraceFormat> trace_format_of_name(std::string_view name);
/// By the suffix of a file name: .perf, .dat; everything else is ftrace's text.
[[nodiscard]] TraceFormat trace_format_of_path(std::string_view path);

struct TraceWriterOptions {
  KernelGeneration kernel = KernelGeneration::v6_12;  ///< whose words and record layouts are written
  std::uint64_t tsc_hz = 1'000'000'000;               ///< unit of TraceEvent::time
  unsigned fraction_digits = 9;                       ///< of a second in text: 9, or the kernel's 6
};

/// Writes events, in the order of a recording, in one of the formats. One class per format.
class TraceWriter {
 public:
  TraceWriter() = default;
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;
  virtual ~TraceWriter() = default;

  /// Names of threads; a thread without one is "<...>".
  [[nodiscard]] ThreadNames& threads() noexcept { return threads_; }
  [[nodiscard]] const ThreadNames& threads() const noexcept { return threads_; }

  virtual void write(const TraceEvent& event) = 0;
  /// An event that TraceEvent does not model, with time, thread and CPU of `event`.
  virtual void write_other(const TraceEvent& event, std::string_view name, std::string_view text) = 0;
  /// Completes the file; once, at the end. Whether all could be written the stream says.
  virtual void finish() = 0;

 private:
  ThreadNames threads_;
};

/// `out` must outlive the writer. Throws UserError when there is no room for a temporary file.
[[nodiscard]] std::unique_ptr<TraceWriter> make_trace_writer(TraceFormat format, std::ostream& out,
                                                             const TraceWriterOptions& options);

}  // namespace svmsim::workloads
