#include "workloads/trace/convert.hpp"

#include <algorithm>
#include <fstream>
#include <memory>

#include <fmt/format.h>

#include "workloads/trace/exit_vocabulary.hpp"
#include "workloads/trace/import.hpp"
#include "workloads/trace/trace_reader.hpp"
#include "workloads/trace/trace_writer.hpp"

namespace svmsim::workloads {

namespace {

class ConvertSink final : public TraceSink {
 public:
  ConvertSink(TraceWriter& writer, bool binary, int chosen)
      : writer_(writer), binary_(binary), chosen_(chosen) {}

  void begin_capture(std::string_view, std::uint64_t, const TraceNames& names) override {
    names_ = &names;
    counted_ = false;
  }
  void event(const ReadEvent& read) override {
    if (!counted_) ++number_;
    counted_ = true;
    if (chosen_ != 0 && chosen_ != number_) return;
    const TraceEvent& event = read.event;
    if (event.tid > 0 && !read.comm.empty() && read.comm != "<...>")
      writer_.threads().set(event.tid, read.comm);
    name_threads(event);
    // The text of a marker stands without its prefix here, and a reason that nobody knows has no number.
    const bool opaque = event.kind == EventKind::kvm_exit && event.field[0] >= foreign_exit_base &&
                        event.field[0] < ~std::uint64_t{0xffff};
    const bool by_text =
        event.kind == EventKind::other || opaque || (!binary_ && event.kind != EventKind::svmsim_guest);
    if (by_text && !read.text.empty()) {
      writer_.write_other(event, read.name, read.text);
    } else if (event.kind == EventKind::other || opaque) {
      writer_.write_other(event, read.name, opaque ? names_->exit_name(event.field[0]) : std::string{});
    } else {
      writer_.write(event);
    }
  }
  void table(const StatTable&) override {}
  void note(const ReadNote&) override {}
  void end_capture(std::string_view, std::uint64_t) override {}
  void end_file(std::uint64_t) override {}

  [[nodiscard]] int captures() const noexcept { return number_; }

 private:
  void name_threads(const TraceEvent& event) {
    const auto name = [this](std::uint64_t tid) {
      const auto id = static_cast<std::int32_t>(tid);
      const std::string_view comm = names_->threads.comm(id);
      if (id > 0 && comm != "<...>") writer_.threads().set(id, comm);
    };
    if (event.kind == EventKind::sched_switch) name(event.field[3]);
    if (event.kind == EventKind::sched_switch || event.kind == EventKind::sched_waking ||
        event.kind == EventKind::sched_wakeup) {
      name(event.field[0]);
    }
  }

  TraceWriter& writer_;
  bool binary_;
  int chosen_;
  int number_ = 0;
  bool counted_ = false;
  const TraceNames* names_ = nullptr;
};

}  // namespace

void convert_trace(const std::vector<std::string>& paths, const std::string& output,
                   const std::string& format, int capture) {
  const std::optional<TraceFormat> chosen =
      format.empty() ? trace_format_of_path(output) : trace_format_of_name(format);
  if (!chosen) {
    throw UserError(Problem{"", 0, "--trace-format", "must be ftrace, perf or dat",
                            nearest_name(format, {"ftrace", "perf", "dat"})});
  }
  const ImportReport report = import_report_of_files(paths, {}, capture);
  if (report.refused) throw TraceError(Problem{report.source, 0, "", *report.refused, ""});
  TraceWriterOptions options;
  options.kernel = report.kernel;
  options.fraction_digits = report.time_base == TimeBase::microseconds ? 6 : 9;
  std::ofstream out(output, std::ios::binary);
  const auto unwritable = [&] { return TraceError(Problem{output, 0, "", "cannot be written", ""}); };
  if (!out) throw unwritable();
  const auto writer = make_trace_writer(*chosen, out, options);
  ConvertSink sink(*writer, *chosen == TraceFormat::trace_dat, capture);
  open_traces(paths)->read(sink);
  if (capture == 0 && sink.captures() > 1) {
    throw TraceError(
        Problem{report.source, 0, "capture",
                fmt::format("the file holds {} captures, choose one with --capture", sink.captures()), "1"});
  }
  writer->finish();
  out.close();
  if (!out) throw unwritable();
}

}  // namespace svmsim::workloads
