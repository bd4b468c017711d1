#include "workloads/trace/table_parser.hpp"

#include <utility>

#include "workloads/trace/capture.hpp"
#include "workloads/trace/table_words.hpp"
#include "workloads/trace/text_scanner.hpp"

namespace svmsim::workloads {

using namespace table_words;

namespace {

constexpr std::size_t max_rows = 1'000'000;

bool has_word(const std::vector<std::string_view>& words, std::string_view word) {
  for (const std::string_view one : words) {
    if (one == word) return true;
  }
  return false;
}

}  // namespace

StatRow& TableParser::add(std::string_view name, std::uint64_t number) {
  StatRow& row = table_.rows.emplace_back();
  row.name = printable(name);
  row.line = number;
  return row;
}

void TableParser::start(Layout layout, std::string_view format, std::string_view name, TableContent content,
                        std::uint64_t number) {
  end();
  layout_ = layout;
  table_.format = format;
  table_.layout = name;
  table_.content = content;
  table_.first_line = number;
  indent_ = SIZE_MAX;
  parent_.clear();
}

void TableParser::end() {
  if (layout_ == Layout::none) return;
  if (layout_ == Layout::kvm_stat) {
    const bool events = !table_.rows.empty() && is_event_table(table_);
    table_.content = events ? TableContent::events : TableContent::statistics;
  }
  complete_ = std::move(table_);
  table_ = StatTable{};
  layout_ = Layout::none;
}

std::optional<StatTable> TableParser::take() {
  if (!complete_) end();
  std::optional<StatTable> result = std::move(complete_);
  complete_.reset();
  return result;
}

std::vector<std::string> TableParser::take_unknown() {
  return std::exchange(unknown_, {});
}

TableParser::Verdict TableParser::line(std::string_view text, std::uint64_t number, bool is_event) {
  if (layout_ != Layout::none) {
    if (table_.rows.size() < max_rows && row(text, number)) return Verdict::taken;
    if (!is_event && begin(text, number)) return Verdict::taken;
    end();
    return Verdict::ended;
  }
  return !is_event && begin(text, number) ? Verdict::taken : Verdict::no;
}

bool TableParser::begin(std::string_view text, std::uint64_t number) {
  if (text.size() > 1024) return false;
  const std::string_view line = trim(text);
  if (line.empty()) return false;
  const std::vector<std::string_view> words = split(line);
  const std::string_view first = words.front();
  if (first == "|" || first.front() == '|') {
    std::vector<std::string> cells = grid_cells(line);
    bool samples = false;
    for (const std::string& cell : cells)
      samples = samples || cell == "Samples";
    if (!samples || (cells.front() != "Event name" && cells.front() != "VM-EXIT")) return false;
    start(Layout::grid, "perf kvm stat", "grid drawn by hand", TableContent::exits, number);
    columns_ = std::move(cells);
    return true;
  }
  if (has_word(words, "Samples") && has_word(words, "Samples%") && has_word(words, "Time%")) {
    const bool exits = first == "VM-EXIT";
    start(Layout::perf_us, "perf kvm stat", exits ? "microseconds (to 6.3)" : printable(line, 16),
          exits ? TableContent::exits : TableContent::other, number);
    return true;
  }
  if (first == "Event" && has_word(words, "Samples") && has_word(words, "Sample%")) {
    start(Layout::perf_ns, "perf kvm stat", "nanoseconds (6.4 and later)", TableContent::exits, number);
    return true;
  }
  if (first == "Event" && words.size() >= 3 && words.size() <= 4 && words[1] == "Total") {
    start(Layout::kvm_stat, "kvm_stat", words.size() == 3 ? "Total, Current" : "Total, %Total, CurAvg/s",
          TableContent::events, number);
    return true;
  }
  if (has_word(words, "KVM_EXIT_REASON") || (has_word(words, "exit_reason") && has_word(words, "calls"))) {
    const bool bcc = has_word(words, "KVM_EXIT_REASON");
    start(Layout::columns, bcc ? "bcc kvmexit" : "perf-prof kvm-exit", "", TableContent::exits, number);
    columns_.assign(words.begin(), words.end());
    return true;
  }
  if (first == "reason:" && words.size() >= 2 && words[1] == "count") {
    start(Layout::systemtap, "systemtap", "", TableContent::exits, number);
    columns_.assign(words.begin(), words.end());
    return true;
  }
  if (first == "Samples:" && line.find("of event") != std::string_view::npos) {
    start(Layout::perf_top, "perf top", "", TableContent::other, number);
    return true;
  }
  if (first == "Overhead" && words.size() >= 2 && words[1] == "Trace") {
    start(Layout::perf_top, "perf top", "", TableContent::other, number);
    return true;
  }
  if (words.size() >= 4 && has_word(words, "time") && has_word(words, "counts") &&
      has_word(words, "events")) {
    start(Layout::perf_stat, "perf stat", "", TableContent::other, number);
    return true;
  }
  // Tables without a heading: a row starts them.
  std::string_view key;
  if (first.front() == '@' && bpftrace_key(line, key)) {
    start(Layout::bpftrace, "bpftrace histogram", "", TableContent::exits, number);
    return bpftrace_row(text, number);
  }
  if (first == "Domain:" || is_domstats_line(line)) {
    start(Layout::domstats, "libvirt domstats", "", TableContent::statistics, number);
    return first == "Domain:" || domstats_row(text, number);
  }
  std::string_view name;
  std::uint64_t value = 0;
  if (statistics_line(line, name, value)) {
    start(Layout::statistics, "kvm statistics", "", TableContent::statistics, number);
    return statistics_row(text, number);
  }
  return false;
}

bool TableParser::row(std::string_view text, std::uint64_t number) {
  if (text.size() > 4096) return false;
  // A rule between rows, and the blank lines that every tool puts around its heading, end no table.
  if (trim(text).find_first_not_of("-=+| ") == std::string_view::npos) return true;
  switch (layout_) {
    case Layout::none:
      return false;
    case Layout::perf_us:
      return perf_us_row(text, number);
    case Layout::perf_ns:
      return perf_ns_row(text, number);
    case Layout::grid:
      return grid_row(text, number);
    case Layout::kvm_stat:
      return kvm_stat_row(text, number);
    case Layout::columns:
      return columns_row(text, number);
    case Layout::domstats:
      return domstats_row(text, number);
    case Layout::statistics:
      return statistics_row(text, number);
    case Layout::bpftrace:
      return bpftrace_row(text, number);
    case Layout::systemtap:
      return systemtap_row(text, number);
    case Layout::perf_top:
      return perf_top_row(text, number);
    case Layout::perf_stat:
      return perf_stat_row(text, number);
  }
  return false;
}

}  // namespace svmsim::workloads
