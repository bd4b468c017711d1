#include "model/trace_file_sink.hpp"

#include "svm/user_error.hpp"

namespace svmsim::model {

TraceFileSink::TraceFileSink(const std::string& path, const Simulation& simulation)
    : path_(path), out_(path) {
  if (!out_) throw UserError(Problem{path, 0, "", "the trace file cannot be written", ""});
  const HostConfig& host = simulation.scenario().host;
  writer_ = std::make_unique<workloads::FtraceWriter>(out_, host.kernel, host.tsc_hz, 9);
  for (const auto& [tid, comm] : simulation.threads())
    writer_->threads().set(tid, comm);
}

void TraceFileSink::close() {
  writer_->flush();
  out_.flush();
  if (!out_) throw UserError(Problem{path_, 0, "", "the trace file could not be written whole", ""});
}

}  // namespace svmsim::model
