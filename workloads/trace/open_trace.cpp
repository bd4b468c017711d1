#include <utility>

#include "workloads/trace/perf_data_reader.hpp"
#include "workloads/trace/text_file_reader.hpp"
#include "workloads/trace/text_reader.hpp"
#include "workloads/trace/trace_dat_reader.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::string_view trace_dat_magic{"\x17\x08\x44tracing", 10};
constexpr std::string_view perf_data_magic{"PERFILE2", 8};

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

/// Binary files that people hand to a trace reader by mistake.
std::string_view foreign_kind(std::string_view head) {
  if (starts_with(head,
                  "\x7f"
                  "ELF"))
    return "an ELF program";
  if (starts_with(head, "PK\x03\x04")) return "a zip archive";
  if (starts_with(head, "BZh")) return "packed with bzip2; unpack it first";
  if (starts_with(head, "CTF") || starts_with(head, "\xc1\x1f\xfc\xc1")) return "a CTF trace (LTTng)";
  if (starts_with(head, "\x89PNG")) return "a picture";
  if (starts_with(head, "PERFFILE")) return "a perf.data file of before 2.6.36";
  return {};
}

/// One reader after the other, into the same sink.
class SequenceReader final : public TraceReader {
 public:
  explicit SequenceReader(std::vector<std::unique_ptr<TraceReader>> readers) : readers_(std::move(readers)) {}

  void read(TraceSink& sink) override {
    SumSink sum(sink);
    for (const std::unique_ptr<TraceReader>& reader : readers_)
      reader->read(sum);
    sink.end_file(sum.lines);
  }

 private:
  /// Passes everything on except the ends of the single files, whose lines it adds up.
  class SumSink final : public TraceSink {
   public:
    explicit SumSink(TraceSink& sink) : sink_(sink) {}
    void begin_capture(std::string_view title, std::uint64_t first_line, const TraceNames& names) override {
      sink_.begin_capture(title, first_line, names);
    }
    void event(const ReadEvent& event) override { sink_.event(event); }
    void table(const StatTable& table) override { sink_.table(table); }
    void note(const ReadNote& note) override { sink_.note(note); }
    void end_capture(std::string_view format, std::uint64_t line_count) override {
      sink_.end_capture(format, line_count);
    }
    void end_file(std::uint64_t line_count) override { lines += line_count; }
    std::uint64_t lines = 0;

   private:
    TraceSink& sink_;
  };

  std::vector<std::unique_ptr<TraceReader>> readers_;
};

}  // namespace

void TextFileReader::read(TraceSink& sink) {
  TextParser parser(sink, options_);
  read_lines(file_->stream(), options_, parser);
  if (const std::string failure = file_->failure(); !failure.empty()) {
    parser.stopped_early(failure);
    if (parser.events() == 0) throw TraceError(Problem{path_, 0, "", failure, ""});
  }
  parser.finish();
}

std::unique_ptr<TraceReader> open_trace(const std::string& path, const ReadOptions& options) {
  return open_traces({path}, options);
}

std::unique_ptr<TraceReader> open_traces(const std::vector<std::string>& paths, const ReadOptions& options) {
  std::vector<std::unique_ptr<TraceReader>> readers;
  std::vector<std::string> trace_dat;
  for (const std::string& path : paths) {
    auto file = std::make_unique<UnpackingFile>(path, options.max_expansion);
    const std::string_view head = file->head();
    if (starts_with(head, trace_dat_magic)) {
      trace_dat.push_back(path);
    } else if (starts_with(head, perf_data_magic)) {
      readers.push_back(std::make_unique<PerfDataReader>(path, std::move(file), options));
    } else if (const std::string_view kind = foreign_kind(head); !kind.empty()) {
      throw TraceError(Problem{path, 0, "", "is no trace but " + std::string{kind}, ""});
    } else {
      readers.push_back(std::make_unique<TextFileReader>(path, std::move(file), options));
    }
  }
  if (!trace_dat.empty()) readers.push_back(std::make_unique<TraceDatReader>(trace_dat, options));
  if (readers.size() == 1) return std::move(readers.front());
  return std::make_unique<SequenceReader>(std::move(readers));
}

}  // namespace svmsim::workloads
