#pragma once

#include <cstddef>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "workloads/trace/trace_sink.hpp"

namespace svmsim::workloads {

struct ReadOptions {
  std::size_t max_line_bytes = std::size_t{1} << 16;  ///< longer lines are reported and left out
  std::size_t max_problems = 100;                     ///< kept per capture; all are counted
  unsigned max_expansion = 400;                       ///< unpacked bytes per packed byte of a compressed file
  std::string perf = "perf";                          ///< the program that opens perf.data
};

/// Reads one recording from its beginning to its end and hands on what it finds, in constant memory. One
/// class per format: text and tables (text_reader.hpp), trace.dat (trace_dat_reader.hpp), perf.data
/// (perf_data_reader.hpp).
class TraceReader {
 public:
  TraceReader() = default;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;
  virtual ~TraceReader() = default;

  /// Called once. Throws TraceError when the source cannot be read at all; what is damaged or unknown inside
  /// it becomes a note.
  virtual void read(TraceSink& sink) = 0;
};

/// The reader for a file, told by its contents and never by its name: gzip, xz and zstd are unpacked first.
/// Throws TraceError when the file cannot be opened, or is binary of a kind that nobody here knows.
[[nodiscard]] std::unique_ptr<TraceReader> open_trace(const std::string& path,
                                                      const ReadOptions& options = {});

/// The same for several files: trace.dat files are merged by time into one capture; of all others the
/// captures follow one another.
[[nodiscard]] std::unique_ptr<TraceReader> open_traces(const std::vector<std::string>& paths,
                                                       const ReadOptions& options = {});

/// Text from a stream.
[[nodiscard]] std::unique_ptr<TraceReader> make_text_reader(std::istream& in, const std::string& source,
                                                            const ReadOptions& options = {});

}  // namespace svmsim::workloads
