#include "model/trace_file_sink.hpp"

#include <filesystem>
#include <system_error>

#include "svm/user_error.hpp"

namespace svmsim::model {

namespace {

std::string name_while_writing(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  const bool special = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  return special ? path : path + ".partial";
}

}  // namespace

TraceFileSink::TraceFileSink(const std::string& path, const Simulation& simulation, const std::string& format)
    : path_(path), written_path_(name_while_writing(path)) {
  const auto chosen =
      format.empty() ? workloads::trace_format_of_path(path) : workloads::trace_format_of_name(format);
  if (!chosen) {
    throw UserError(Problem{"", 0, "--trace-format", "must be ftrace, perf or dat",
                            nearest_name(format, {"ftrace", "perf", "dat"})});
  }
  out_.open(written_path_, std::ios::binary);
  if (!out_) throw UserError(Problem{path, 0, "", "the trace file cannot be written", ""});
  const HostConfig& host = simulation.scenario().host;
  workloads::TraceWriterOptions options;
  options.kernel = host.kernel;
  options.tsc_hz = host.tsc_hz;
  writer_ = workloads::make_trace_writer(*chosen, out_, options);
  for (const auto& [tid, comm] : simulation.threads())
    writer_->threads().set(tid, comm);
}

TraceFileSink::~TraceFileSink() {
  if (written_path_ == path_) return;
  writer_.reset();
  out_.close();
  std::error_code error;
  std::filesystem::remove(written_path_, error);
}

void TraceFileSink::close() {
  writer_->finish();
  out_.flush();
  std::error_code error;
  if (out_ && written_path_ != path_) {
    std::filesystem::rename(written_path_, path_, error);
    if (!error) written_path_ = path_;
  }
  if (!out_ || error) {
    throw UserError(Problem{path_, 0, "", "the trace file could not be written whole", ""});
  }
}

}  // namespace svmsim::model
