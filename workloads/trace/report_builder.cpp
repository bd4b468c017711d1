#include "workloads/trace/report_builder.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace svmsim::workloads {

namespace {

void add_counts(Counts& sum, const Counts& more) {
  for (const auto& [name, count] : more)
    sum[name] += count;
}

template <typename Item>
void append(std::vector<Item>& all, std::vector<Item>& more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

void add_durations(ImportReport& total, ImportReport& one) {
  if (!one.durations) return;
  if (!total.durations) total.durations.emplace();
  for (const auto& [name, more] : *one.durations) {
    Durations& all = (*total.durations)[name];
    all.min_ns = all.samples == 0 ? more.min_ns : std::min(all.min_ns, more.min_ns);
    all.max_ns = std::max(all.max_ns, more.max_ns);
    all.samples += more.samples;
    all.total_ns += more.total_ns;
  }
}

}  // namespace

ReportBuilder::ReportBuilder(std::string source, ImportOptions options)
    : source_(std::move(source)), options_(std::move(options)) {}

ReportBuilder::~ReportBuilder() = default;

bool ReportBuilder::wants_text(std::string_view event_name) const {
  return CauseTracker::wants_text(event_name) ||
         (options_.window_from && options_.window_from->event == event_name) ||
         (options_.window_to && options_.window_to->event == event_name);
}

void ReportBuilder::begin_capture(std::string_view title, std::uint64_t first_line, const TraceNames& names) {
  tally_ = std::make_unique<CaptureTally>(options_, title, first_line, names);
  first_line_ = first_line;
}

void ReportBuilder::event(const ReadEvent& event) {
  tally_->event(event);
}

void ReportBuilder::table(const StatTable& table) {
  tally_->table(table);
}

void ReportBuilder::note(const ReadNote& note) {
  if (note.kind == NoteKind::unrecognised && first_text_line_ == 0) {
    first_text_line_ = note.line;
    first_text_ = printable(note.text, 60);
  }
  tally_->note(source_, note);
}

void ReportBuilder::end_capture(std::string_view format, std::uint64_t line_count) {
  bool missed = false;
  ImportReport one = tally_->finish(source_, format, line_count, missed);
  tally_.reset();
  // Lines before the first heading are no capture unless they hold something.
  const bool empty = one.captures.front().title.empty() && one.events.empty() && one.tables.empty() &&
                     one.problem_count == 0 && one.dropped.empty() && !missed;
  if (empty) return;
  ++number_;
  if (chosen_ != 0 && chosen_ != number_) return;
  window_missed_ = window_missed_ || missed;
  if (!missed) captures_.push_back(std::move(one));
}

void ReportBuilder::end_file(std::uint64_t line_count) {
  line_count_ = line_count;
}

ImportReport ReportBuilder::take() {
  if (chosen_ > number_) {
    throw TraceError(Problem{source_, 0, "capture",
                             fmt::format("there is no capture {}; the file holds {}", chosen_, number_),
                             number_ == 0 ? "" : std::to_string(number_)});
  }
  if (captures_.empty() && window_missed_) {
    throw UserError(
        Problem{source_, first_line_, "window",
                fmt::format("no vCPU has an event {}:{} followed by {}:{}", options_.window_from->event,
                            options_.window_from->text, options_.window_to->event, options_.window_to->text),
                ""});
  }
  ImportReport total = merge_reports(std::move(captures_), source_, line_count_);
  if (total.events.empty() && total.tables.empty() && total.problem_count == 0 && total.dropped.size() <= 1 &&
      !window_missed_ && total.dropped.count("events outside --from and --to") == 0) {
    total.format = "unknown";
    total.isa = "unknown";
    total.refused = no_event_message() +
                    (first_text_line_ == 0 ? std::string{"it has no text"}
                                           : fmt::format("line {} is \"{}\"", first_text_line_, first_text_));
    total.no_workload = total.refused;
  }
  return total;
}

ImportReport merge_reports(std::vector<ImportReport> reports, const std::string& source,
                           std::uint64_t line_count) {
  ImportReport total;
  if (!reports.empty()) total = std::move(reports.front());
  bool all_refused = total.refused.has_value();
  bool any_workload = !total.no_workload.has_value() && !reports.empty();
  for (std::size_t i = 1; i < reports.size(); ++i) {
    ImportReport& one = reports[i];
    all_refused = all_refused && one.refused.has_value();
    any_workload = any_workload || !one.no_workload.has_value();
    // A capture in which nothing was recognised has no format and no ISA of its own.
    if (!one.format.empty()) {
      if (total.format.empty()) total.format = one.format;
      if (total.format != one.format) total.format = "mixed";
    }
    if (one.isa != "unknown") {
      if (total.isa == "unknown") total.isa_evidence = one.isa_evidence;
      if (total.isa == "unknown") total.isa = one.isa;
      if (total.isa != one.isa) total.isa = "mixed";
    }
    total.kernel_certain = total.kernel_certain && one.kernel_certain && total.kernel == one.kernel;
    total.lost_events += one.lost_events;
    total.sched_known = total.sched_known || one.sched_known;
    add_counts(total.events, one.events);
    add_counts(total.exits, one.exits);
    add_counts(total.unknown, one.unknown);
    add_counts(total.causes, one.causes);
    add_counts(total.wakeups, one.wakeups);
    add_counts(total.coverage, one.coverage);
    add_counts(total.polling, one.polling);
    add_counts(total.dropped, one.dropped);
    add_counts(total.undecidable, one.undecidable);
    add_durations(total, one);
    append(total.vcpus, one.vcpus);
    append(total.captures, one.captures);
    append(total.problems, one.problems);
    append(total.tables, one.tables);
    append(total.notes, one.notes);
    total.problem_count += one.problem_count;
    total.unpaired.before_first_entry += one.unpaired.before_first_entry;
    total.unpaired.overwritten += one.unpaired.overwritten;
    total.unpaired.entry_alone += one.unpaired.entry_alone;
    total.unpaired.open += one.unpaired.open;
  }
  // The file is refused when nothing in it can be used.
  if (!all_refused) total.refused.reset();
  if (any_workload) total.no_workload.reset();
  total.source = source;
  total.lines = line_count;
  return total;
}

ImportReport import_report_of_files(const std::vector<std::string>& paths, const ImportOptions& options,
                                    int capture, const ReadOptions& reading) {
  ReportBuilder builder(paths.empty() ? std::string{} : paths.front(), options);
  builder.choose(capture);
  open_traces(paths, reading)->read(builder);
  return builder.take();
}

}  // namespace svmsim::workloads
