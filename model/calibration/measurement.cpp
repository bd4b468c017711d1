#include "model/calibration/measurement.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "workloads/program_spec.hpp"
#include "workloads/trace/capture.hpp"
#include "workloads/trace/table_words.hpp"
#include "workloads/trace/trace_reader.hpp"

namespace svmsim::model::calibration {

namespace {

using workloads::Isa;
using workloads::StatRow;
using workloads::StatTable;
using workloads::TableContent;

/// A number printed to a unit is off by up to half of it: its standard deviation, in units.
const double rounding = 1.0 / std::sqrt(12.0);
constexpr double ns_per_printed_us = 10.0;  ///< perf prints microseconds with two decimals

// Exits that cost the same whoever makes them, as the model has it. MSR, I/O, nested page faults and
// hypercalls are mixtures, and HLT and interrupts contain time that is no handling.
struct Reference {
  std::string_view reason;
  std::string_view program;
};
constexpr std::array<Reference, 7> references{{{"cpuid", "cpuid"},
                                               {"wbinvd", "wbinvd"},
                                               {"invd", "invd"},
                                               {"vintr", "self_ipi_sti_nop"},
                                               {"cr0_sel_write", "toggle_cr0_wp"},
                                               {"write_cr4", "toggle_cr4_pge"},
                                               {"write_cr8", "self_ipi_tpr"}}};

struct Input {
  std::string path;
  std::string workload;
};

/// WORKLOAD:PATH, unless a file has that whole name.
Input split_input(const std::string& text) {
  std::error_code ignored;
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || std::filesystem::exists(text, ignored)) return {text, ""};
  return {text.substr(colon + 1), text.substr(0, colon)};
}

bool is_program(const std::string& name) {
  const auto& programs = workloads::builtin_programs();
  return std::any_of(programs.begin(), programs.end(),
                     [&name](const workloads::ProgramInfo& one) { return one.name == name; });
}

bool is_scenario_file(const std::string& name) {
  return name.size() > 5 && name.substr(name.size() - 5) == ".toml";
}

/// Reads one file.
class MeasurementSink final : public workloads::TraceSink {
 public:
  MeasurementSink(const Input& input, std::uint64_t tsc_hz, MeasurementSet& set)
      : input_(input), cycles_per_ns_(static_cast<double>(tsc_hz) / 1e9), set_(set) {}

  void begin_capture(std::string_view title, std::uint64_t first_line,
                     const workloads::TraceNames& names) override {
    (void)title;
    (void)first_line;
    (void)names;
  }
  void event(const workloads::ReadEvent& event) override {
    if (events++ == 0) first_event = event.line;
  }
  void table(const StatTable& table) override;
  void note(const workloads::ReadNote& note) override {
    if (note.kind == workloads::NoteKind::unrecognised) benchmark(note.text, note.line);
  }
  void end_capture(std::string_view format, std::uint64_t line_count) override {
    (void)format;
    (void)line_count;
  }
  [[nodiscard]] bool wants_text(std::string_view event_name) const override {
    (void)event_name;
    return false;
  }
  void end_file(std::uint64_t line_count) override { (void)line_count; }

  std::uint64_t events = 0;
  std::uint64_t first_event = 0;
  std::vector<Problem> wrong;  ///< what no other line of the file makes good

 private:
  void row(const StatTable& table, const StatRow& row);
  void benchmark(std::string_view text, std::uint64_t line);
  void unused(std::uint64_t line, std::string name, std::string reason) {
    set_.unused.push_back({input_.path, line, std::move(name), std::move(reason)});
  }

  const Input& input_;
  double cycles_per_ns_;
  MeasurementSet& set_;
};

/// Whose exits the rows are, when it is not SVM's.
std::optional<std::pair<Isa, std::string>> foreign_exits(const StatTable& table) {
  if (table.isa && *table.isa != Isa::svm && *table.isa != Isa::unknown)
    return std::pair{*table.isa, std::string("as the table says")};
  for (const StatRow& row : table.rows) {
    if (svm::exit_code_of(row.name)) continue;
    const auto known = workloads::known_exit(row.name, Isa::unknown);
    if (known && known->isa != Isa::svm && known->isa != Isa::unknown)
      return std::pair{known->isa, "by its row " + row.name};
  }
  return std::nullopt;
}

void MeasurementSink::table(const StatTable& table) {
  if (table.content != TableContent::exits) {
    unused(table.first_line, table.format, "the table has no times of exits");
    return;
  }
  if (const auto foreign = foreign_exits(table)) {
    wrong.push_back(Problem{input_.path, table.first_line, "",
                            fmt::format("the table holds exits of {}, {}; a profile is of an SVM host",
                                        workloads::isa_name(foreign->first), foreign->second),
                            ""});
    return;
  }
  for (const StatRow& one : table.rows)
    row(table, one);
}

/// The mean of a row and its standard error, in ns.
std::optional<std::pair<double, double>> mean_of(const StatTable& table, const StatRow& row) {
  const auto count = static_cast<double>(row.count.value_or(0));
  double mean = 0.0;
  double error = 0.0;
  if (row.time_ns && count > 0) {
    mean = *row.time_ns / count;
    error = rounding / count;
  } else if (row.mean_ns) {
    mean = *row.mean_ns;
    const bool microseconds = table.layout.rfind("microseconds", 0) == 0;
    error = rounding * (microseconds ? ns_per_printed_us : 1.0);
  } else {
    return std::nullopt;
  }
  double spread = 0.0;
  if (row.error_pct) {
    spread = mean * *row.error_pct / 100.0;
  } else if (row.min_ns && row.max_ns && count > 1) {
    // No variance is larger between these two and with this mean (R. Bhatia and C. Davis, 2000).
    const double variance = (*row.max_ns - mean) * (mean - *row.min_ns);
    spread = variance > 0.0 ? std::sqrt(variance / count) : 0.0;
  } else if (count > 0) {
    spread = mean / std::sqrt(count);
  }
  return std::pair{mean, std::hypot(error, spread)};
}

void MeasurementSink::row(const StatTable& table, const StatRow& row) {
  if (!svm::exit_code_of(row.name)) {
    unused(row.line, row.name, "is no exit of SVM");
    return;
  }
  if (!row.count || *row.count == 0) {
    unused(row.line, row.name, "has no exits");
    return;
  }
  const auto mean = mean_of(table, row);
  if (!mean || mean->first <= 0.0) {
    unused(row.line, row.name, fmt::format("a table of {} has no mean time", table.format));
    return;
  }
  Measurement measurement;
  measurement.source = input_.path;
  measurement.line = row.line;
  measurement.kind = MeasurementKind::exit_time;
  measurement.name = row.name;
  measurement.workload = input_.workload.empty() ? reference_program(row.name) : input_.workload;
  measurement.count = *row.count;
  measurement.cycles = mean->first * cycles_per_ns_;
  measurement.error_cycles = mean->second * cycles_per_ns_;
  if (measurement.workload.empty()) {
    unused(row.line, row.name,
           fmt::format("its time depends on what the guest did; name that as WORKLOAD:{}", input_.path));
    return;
  }
  set_.measurements.push_back(std::move(measurement));
}

/// `cpuid 1234`, as kvm-unit-tests' vmexit prints a sub-test; everything else it prints is left alone.
void MeasurementSink::benchmark(std::string_view text, std::uint64_t line) {
  const auto words = workloads::table_words::split(text);
  if (words.size() != 2) return;
  const auto value = workloads::table_words::fraction(words[1]);
  const bool name = std::all_of(words[0].begin(), words[0].end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '+' || c == '-';
  });
  if (!value || !name || words[0].size() > 64) return;
  Measurement measurement;
  measurement.source = input_.path;
  measurement.line = line;
  measurement.name = std::string(words[0]);
  measurement.workload = benchmark_program(measurement.name);
  measurement.cycles = *value;
  measurement.error_cycles = rounding;
  if (measurement.workload.empty()) {
    std::vector<std::string> names;
    for (const workloads::ProgramInfo& one : workloads::builtin_programs()) {
      if (!benchmark_program(one.name).empty()) names.push_back(one.name);
    }
    const std::string nearest = nearest_name(measurement.name, names);
    unused(line, measurement.name,
           "no built-in program of that name measures cycles" +
               (nearest.empty() ? std::string() : fmt::format(" (did you mean {}?)", nearest)));
    return;
  }
  if (measurement.cycles <= 0.0) {
    unused(line, measurement.name, "takes no time");
    return;
  }
  set_.measurements.push_back(std::move(measurement));
}

/// Why a file gives nothing, by its lines.
void explain(const Input& input, const MeasurementSink& sink, const MeasurementSet& set,
             std::size_t unused_before, std::vector<Problem>& problems) {
  for (std::size_t i = unused_before; i < set.unused.size(); ++i) {
    const UnusedLine& line = set.unused[i];
    problems.push_back({line.source, line.line, line.name, line.reason, ""});
  }
  if (set.unused.size() != unused_before) return;
  if (sink.events != 0) {
    problems.push_back({input.path, sink.first_event, "",
                        "is a recording of events; `perf kvm stat report` makes the table of its exits", ""});
    return;
  }
  problems.push_back({input.path, 0, "",
                      "holds neither a table of `perf kvm stat report` nor a line NAME CYCLES of a "
                      "microbenchmark",
                      ""});
}

void check_workload(const Input& input, std::vector<Problem>& problems) {
  if (input.workload.empty() || is_program(input.workload) || is_scenario_file(input.workload)) return;
  std::vector<std::string> names;
  for (const workloads::ProgramInfo& one : workloads::builtin_programs())
    names.push_back(one.name);
  problems.push_back({"--from", 0, input.workload, "is neither a built-in program nor a scenario (.toml)",
                      nearest_name(input.workload, names)});
}

}  // namespace

std::string Measurement::place() const {
  return fmt::format("{}:{}", source, line);
}

std::string reference_program(const std::string& exit_reason) {
  for (const Reference& reference : references) {
    if (reference.reason == exit_reason) return std::string(reference.program);
  }
  return {};
}

std::string benchmark_program(const std::string& name) {
  std::string wanted = name;
  std::replace(wanted.begin(), wanted.end(), '+', '_');  // "ipi+halt"
  for (const workloads::ProgramInfo& one : workloads::builtin_programs()) {
    if (one.name != wanted) continue;
    for (const workloads::ProgramParameter& parameter : one.parameters) {
      if (parameter.name == "goal") return wanted;
    }
  }
  return {};
}

MeasurementSet read_measurements(const std::vector<std::string>& inputs, std::uint64_t tsc_hz,
                                 std::vector<Problem>& problems) {
  MeasurementSet set;
  for (const std::string& text : inputs) {
    const Input input = split_input(text);
    check_workload(input, problems);
    const std::size_t before = set.measurements.size();
    const std::size_t unused_before = set.unused.size();
    MeasurementSink sink(input, tsc_hz, set);
    workloads::open_trace(input.path)->read(sink);
    if (!sink.wrong.empty()) {
      problems.insert(problems.end(), sink.wrong.begin(), sink.wrong.end());
    } else if (set.measurements.size() == before) {
      explain(input, sink, set, unused_before, problems);
    }
  }
  return set;
}

}  // namespace svmsim::model::calibration
