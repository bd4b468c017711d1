#include <algorithm>
#include <sstream>
#include <string>

#include <benchmark/benchmark.h>

#include "workloads/trace/line_source.hpp"
#include "workloads/trace/report_builder.hpp"
#include "workloads/trace/trace_reader.hpp"
#include "workloads/trace/vcpu_threads.hpp"

// Reading recordings: lines (records of trace.dat) per second. The text is an excerpt of a real recording,
// repeated; the capture has sched and kvm events of two vCPUs.

namespace {

using namespace svmsim::workloads;

std::string excerpt() {
  std::ostringstream text;
  UnpackingFile packed(std::string{SVMSIM_SOURCE_DIR} + "/tests/data/trace/kvm-6.12-d1.txt.gz", 100);
  text << packed.stream().rdbuf();
  return text.str();
}

std::string repeated_excerpt(std::uint64_t& lines) {
  const std::string one = excerpt();
  std::string text;
  constexpr int times = 200;
  text.reserve(one.size() * times);
  for (int i = 0; i < times; ++i)
    text += one;
  lines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
  return text;
}

/// Counts events and pairs exits with entries, and nothing else.
class PairSink final : public TraceSink {
 public:
  void begin_capture(std::string_view, std::uint64_t, const TraceNames&) override {}
  void event(const ReadEvent& read) override {
    const std::size_t stream = threads_.assign(read.event, read.tgid);
    if (stream == VcpuThreads::none) return;
    if (stream >= open_.size()) open_.resize(stream + 1);
    if (read.event.kind == EventKind::kvm_exit) open_[stream] = read.event.time;
    if (read.event.kind == EventKind::kvm_entry) total += read.event.time - open_[stream];
  }
  void table(const StatTable&) override {}
  void note(const ReadNote&) override {}
  void end_capture(std::string_view, std::uint64_t) override {}
  void end_file(std::uint64_t) override {}
  std::uint64_t total = 0;

 private:
  VcpuThreads threads_;
  std::vector<std::uint64_t> open_;
};

void text_parse_and_pair(benchmark::State& state) {
  std::uint64_t lines = 0;
  const std::string text = repeated_excerpt(lines);
  for (auto _ : state) {
    std::istringstream in(text);
    PairSink sink;
    make_text_reader(in, "bench")->read(sink);
    benchmark::DoNotOptimize(sink.total);
  }
  state.counters["lines_per_s"] =
      benchmark::Counter(static_cast<double>(lines), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(text_parse_and_pair)->Name("trace/text_parse_and_pair")->Unit(benchmark::kMillisecond);

void text_report(benchmark::State& state) {
  std::uint64_t lines = 0;
  const std::string text = repeated_excerpt(lines);
  for (auto _ : state) {
    std::istringstream in(text);
    ReportBuilder builder("bench", {});
    make_text_reader(in, "bench")->read(builder);
    benchmark::DoNotOptimize(builder.take().lines);
  }
  state.counters["lines_per_s"] =
      benchmark::Counter(static_cast<double>(lines), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(text_report)->Name("trace/text_report_with_causes")->Unit(benchmark::kMillisecond);

}  // namespace
