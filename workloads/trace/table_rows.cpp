#include <algorithm>

#include "workloads/trace/capture.hpp"
#include "workloads/trace/table_parser.hpp"
#include "workloads/trace/table_words.hpp"
#include "workloads/trace/text_scanner.hpp"

// The rows of each table.

namespace svmsim::workloads {

using namespace table_words;

namespace {

/// Index of the first word that is a whole number with a percentage behind it: what stands before is a name.
std::size_t count_before_percent(const std::vector<std::string_view>& words) {
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    if (whole_number(words[i]) && percent(words[i + 1])) return i;
  }
  return 0;
}

std::string_view name_before(std::string_view line, const std::vector<std::string_view>& words,
                             std::size_t count) {
  const auto end = static_cast<std::size_t>(words[count].data() - line.data());
  return trim(line.substr(0, end));
}

constexpr std::string_view unknown_code = "unknown kvm exit code:";

}  // namespace

bool TableParser::perf_us_row(std::string_view text, std::uint64_t number) {
  const std::string_view line = trim(text);
  if (line.substr(0, unknown_code.size()) == unknown_code) {
    const std::string_view what = trim(line.substr(unknown_code.size()));
    if (what.find("VMX") != std::string_view::npos) table_.isa = Isa::vmx;
    if (what.find("SVM") != std::string_view::npos) table_.isa = Isa::svm;
    unknown_.push_back("exit code " + printable(what, 40));
    return true;
  }
  constexpr std::string_view total = "Total Samples:";
  if (line.substr(0, total.size()) == total) {
    const std::size_t comma = line.find(',');
    table_.total_count = whole_number(line.substr(total.size(), comma - total.size()));
    const std::size_t colon = line.rfind(':');
    std::string_view time = colon > comma ? line.substr(colon + 1) : std::string_view{};
    if (!time.empty() && time.back() == '.') time.remove_suffix(1);
    table_.total_time_ns = microseconds(time);
    return true;
  }
  const std::vector<std::string_view> words = split(line);
  const std::size_t count = count_before_percent(words);
  if (count == 0) {
    // A mailer has folded the last column: "0.73us ( +-   0.02% )".
    if (!table_.rows.empty() && !table_.rows.back().mean_ns && microseconds(words.front())) {
      table_.rows.back().mean_ns = microseconds(words.front());
      return true;
    }
    return false;
  }
  StatRow& row = add(name_before(line, words, count), number);
  row.count = whole_number(words[count]);
  row.share = percent(words[count + 1]);
  if (count + 3 < words.size()) row.min_ns = microseconds(words[count + 3]);
  if (count + 4 < words.size()) row.max_ns = microseconds(words[count + 4]);
  if (count + 5 < words.size()) row.mean_ns = microseconds(words[count + 5]);
  for (std::size_t i = count + 6; i < words.size() && !row.error_pct; ++i) {
    const bool sign = words[i].substr(0, 2) == "+-";
    row.error_pct = percent(sign ? words[i].substr(2) : words[i]);
  }
  return true;
}

bool TableParser::perf_ns_row(std::string_view text, std::uint64_t number) {
  const std::string_view line = trim(text);
  const std::vector<std::string_view> words = split(line);
  const std::size_t count = count_before_percent(words);
  if (count == 0) return false;
  StatRow& row = add(name_before(line, words, count), number);
  row.count = whole_number(words[count]);
  row.share = percent(words[count + 1]);
  if (count + 2 < words.size()) row.time_ns = fraction(words[count + 2]);
  if (count + 4 < words.size()) row.max_ns = fraction(words[count + 4]);
  if (count + 5 < words.size()) row.min_ns = fraction(words[count + 5]);
  if (count + 6 < words.size()) row.mean_ns = fraction(words[count + 6]);
  return true;
}

bool TableParser::grid_row(std::string_view text, std::uint64_t number) {
  const std::string_view line = trim(text);
  if (line.front() != '|') return false;
  const std::vector<std::string> cells = grid_cells(line);
  if (cells.front().empty() || cells.size() < 2) return false;
  StatRow row;
  for (std::size_t i = 1; i < cells.size() && i < columns_.size(); ++i) {
    const std::string& column = columns_[i];
    if (column == "Samples") {
      row.count = whole_number(cells[i]);
    } else if (column == "Sample%" || column == "Samples%") {
      row.share = percent(cells[i]);
    } else if (column == "Time (ns)") {
      row.time_ns = fraction(cells[i]);
    } else if (column.rfind("Min", 0) == 0) {
      row.min_ns = fraction(cells[i]);
    } else if (column.rfind("Max", 0) == 0) {
      row.max_ns = fraction(cells[i]);
    } else if (column.rfind("Mean", 0) == 0 || column.rfind("Avg", 0) == 0) {
      row.mean_ns = fraction(cells[i]);
    }
  }
  if (!row.count) return false;
  row.name = printable(cells.front());
  row.line = number;
  table_.rows.push_back(std::move(row));
  return true;
}

bool TableParser::kvm_stat_row(std::string_view text, std::uint64_t number) {
  const std::size_t indent = text.find_first_not_of(" \t");
  const std::vector<std::string_view> words = split(text);
  if (words.size() < 2 || words.size() > 4) return false;
  const std::optional<std::uint64_t> count = whole_number(words[1]);
  if (!count) return false;
  if (words.front() == "Total") {
    table_.total_count = count;
    return true;
  }
  if (!fraction(words.back())) return false;
  // The rows of a pasted table may start anywhere; children stand deeper than the row before them.
  if (indent_ == SIZE_MAX) indent_ = indent;
  const bool child = indent > indent_ && words.front().back() == ')';
  StatRow& row = add(words.front(), number);
  row.count = count;
  row.rate = fraction(words.back());
  if (words.size() == 4) row.share = fraction(words[2]);
  if (child) {
    row.parent = parent_;
  } else {
    parent_ = row.name;
  }
  return true;
}

bool TableParser::columns_row(std::string_view text, std::uint64_t number) {
  std::string_view line = trim(text);
  // Ctrl-C lands in front of the first row.
  if (line.substr(0, 2) == "^C") line.remove_prefix(2);
  const std::vector<std::string_view> words = split(line);
  if (words.size() != columns_.size()) return false;
  StatRow row;
  std::string_view name;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& column = columns_[i];
    if (column == "KVM_EXIT_REASON" || column == "exit_reason") {
      name = words[i];
    } else if (column == "PID" || column == "TID" || column == "THREAD" || column == "[THREAD]") {
      const auto tid = whole_number(words[i]);
      if (tid && *tid <= INT32_MAX) row.tid = static_cast<std::int64_t>(*tid);
    } else if (column == "STAT" || column == "COUNT" || column == "calls") {
      row.count = whole_number(words[i]);
    } else if (column == "total(us)") {
      if (const auto value = fraction(words[i])) row.time_ns = *value * 1000;
    } else if (column == "min(us)") {
      if (const auto value = fraction(words[i])) row.min_ns = *value * 1000;
    } else if (column == "max(us)") {
      if (const auto value = fraction(words[i])) row.max_ns = *value * 1000;
    }
  }
  if (!row.count || name.empty()) return false;
  row.name = printable(name);
  row.line = number;
  table_.rows.push_back(std::move(row));
  return true;
}

bool TableParser::domstats_row(std::string_view text, std::uint64_t number) {
  const std::string_view line = trim(text);
  if (line.substr(0, 7) == "Domain:") return true;
  const std::size_t equals = line.find('=');
  std::string_view name = line.substr(0, equals);
  if (equals == std::string_view::npos || name.empty() || name.find(' ') != std::string_view::npos ||
      name.find('.') == std::string_view::npos) {
    return false;
  }
  TextScanner scan(name);
  std::uint64_t vcpu = 0;
  int index = -1;
  if (scan.literal("vcpu.") && scan.decimal(vcpu) && vcpu <= INT32_MAX && scan.literal(".")) {
    index = static_cast<int>(vcpu);
    name = scan.rest();
  }
  StatRow& row = add(name, number);
  row.vcpu = index;
  row.count = whole_number(line.substr(equals + 1));  // "no" of guest_mode.cur is no number
  return true;
}

bool TableParser::statistics_row(std::string_view text, std::uint64_t number) {
  std::string_view name;
  std::uint64_t value = 0;
  if (!statistics_line(trim(text), name, value)) return false;
  add(name, number).count = value;
  return true;
}

bool TableParser::bpftrace_row(std::string_view text, std::uint64_t number) {
  const std::string_view line = trim(text);
  std::string_view key;
  if (bpftrace_key(line, key)) {
    StatRow& row = add(key, number);
    row.count = 0;
    const std::string_view rest = trim(line.substr(line.rfind("]:") + 2));
    if (const auto value = whole_number(rest)) row.count = value;  // a map of counts, not of histograms
    return true;
  }
  // "[512, 1K)              1 |@@@      |"
  const std::size_t close = line.find_first_of(")]");
  if (line.front() != '[' || close == std::string_view::npos || table_.rows.empty()) return false;
  const std::vector<std::string_view> words = split(line.substr(close + 1));
  const std::optional<std::uint64_t> value = words.empty() ? std::nullopt : whole_number(words.front());
  if (!value) return false;
  *table_.rows.back().count += *value;
  return true;
}

bool TableParser::systemtap_row(std::string_view text, std::uint64_t number) {
  const std::vector<std::string_view> words = split(text);
  if (words.size() != columns_.size() || words.front().back() != ':') return false;
  const std::string_view reason = words.front().substr(0, words.front().size() - 1);
  const std::optional<std::uint64_t> count = whole_number(words[1]);
  if (!whole_number(reason) || !count) return false;
  StatRow& row = add(reason, number);
  row.count = count;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::optional<double> value = fraction(words[i]);
    if (!value) continue;
    if (columns_[i] == "sum(us)") row.time_ns = *value * 1000;
    if (columns_[i] == "min(us)") row.min_ns = *value * 1000;
    if (columns_[i] == "avg(us)") row.mean_ns = *value * 1000;
    if (columns_[i] == "max(us)") row.max_ns = *value * 1000;
  }
  return true;
}

bool TableParser::perf_top_row(std::string_view text, std::uint64_t number) {
  const std::string_view line = trim(text);
  const std::vector<std::string_view> words = split(line);
  if (words.front() == "Overhead") return true;
  const std::optional<double> share = percent(words.front());
  if (!share) return false;
  std::string_view name = trim(line.substr(words.front().size()));
  TextScanner scan(name);
  std::string_view reason;
  if (scan.literal("reason ") && scan.until(" rip ", reason)) name = reason;
  add(name, number).share = share;
  return true;
}

bool TableParser::perf_stat_row(std::string_view text, std::uint64_t number) {
  if (trim(text).front() == '#') return true;
  const std::vector<std::string_view> words = split(text);
  if (words.size() < 3 || !fraction(words[0])) return false;
  const std::optional<std::uint64_t> count = whole_number(words[1]);
  if (!count) return false;
  add(words.back(), number).count = count;
  return true;
}

}  // namespace svmsim::workloads
