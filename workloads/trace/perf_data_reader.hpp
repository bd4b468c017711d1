#pragma once

#include <memory>
#include <string>

#include "workloads/trace/line_source.hpp"
#include "workloads/trace/trace_reader.hpp"

namespace svmsim::workloads {

/// perf.data, through `perf script` of the machine: its layout has no library, and the tool's text is the
/// interface that is kept stable. Throws TraceError when there is no such program or it refuses the file.
class PerfDataReader final : public TraceReader {
 public:
  PerfDataReader(std::string path, std::unique_ptr<UnpackingFile> file, ReadOptions options)
      : path_(std::move(path)), file_(std::move(file)), options_(std::move(options)) {}
  void read(TraceSink& sink) override;

 private:
  std::string path_;
  std::unique_ptr<UnpackingFile> file_;
  ReadOptions options_;
};

}  // namespace svmsim::workloads
