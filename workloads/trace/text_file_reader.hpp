#pragma once

#include <memory>
#include <string>

#include "workloads/trace/line_source.hpp"
#include "workloads/trace/trace_reader.hpp"

namespace svmsim::workloads {

/// A text file, packed or not. Data that end early or are damaged become a note.
class TextFileReader final : public TraceReader {
 public:
  TextFileReader(std::string path, std::unique_ptr<UnpackingFile> file, ReadOptions options)
      : path_(std::move(path)), file_(std::move(file)), options_(std::move(options)) {}
  void read(TraceSink& sink) override;

 private:
  std::string path_;
  std::unique_ptr<UnpackingFile> file_;
  ReadOptions options_;
};

}  // namespace svmsim::workloads
