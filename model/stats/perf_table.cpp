#include "model/stats/perf_table.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "svm/user_error.hpp"

namespace svmsim::model {

namespace {

struct Row {
  std::string name;
  std::uint64_t count = 0;
  double time_us = 0.0;
  double min_us = 0.0;
  double max_us = 0.0;
  double error_pct = 0.0;
};

/// Widths and words of the columns of perf 6.4 and later (tools/perf/builtin-kvm.c, ui/stdio).
std::string columns_text(const std::vector<Row>& rows, std::uint64_t samples, double time_us) {
  std::size_t width = 10;  // "Event name"
  for (const Row& row : rows)
    width = std::max(width, row.name.size());
  std::string text = fmt::format("{:<{}}  {:>8}   {:>7}  {:>12}   {:>7}  {:>13}  {:>13}  {:>14}\n",
                                 "Event name", width, "Samples", "Sample%", "Time (ns)", "Time%",
                                 "Max Time (ns)", "Min Time (ns)", "Mean Time (ns)");
  constexpr double ns_per_us = 1000.0;
  for (const Row& row : rows) {
    const auto count = static_cast<double>(row.count);
    const auto ns = [](double us) { return static_cast<std::uint64_t>(us * ns_per_us + 0.5); };
    // perf divides whole numbers and prints them with decimals.
    const auto share = [](double part, double whole) {
      return whole <= 0.0 ? 0.0 : std::floor(100.0 * part / whole);
    };
    text += fmt::format("{:<{}}  {:>8}   {:>6.2f}%  {:>12}   {:>6.2f}%  {:>13}  {:>13}  {:>14}\n", row.name,
                        width, row.count, share(count, static_cast<double>(samples)), ns(row.time_us),
                        share(row.time_us, time_us), ns(row.max_us), ns(row.min_us), ns(row.time_us / count));
  }
  return text;
}

std::string table_text(std::vector<Row> rows, PerfLayout layout) {
  // By samples; perf inserts in the order of the codes and keeps it among equals.
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.count > b.count; });
  std::uint64_t samples = 0;
  double time_us = 0.0;
  for (const Row& row : rows) {
    samples += row.count;
    time_us += row.time_us;
  }
  if (layout == PerfLayout::columns) return columns_text(rows, samples, time_us);
  const unsigned name_width = layout == PerfLayout::classic ? 20 : 40;
  std::string text = "\n\nAnalyze events for all VMs, all VCPUs:\n\n";
  text += fmt::format("{:>{}} {:>10} {:>9} {:>9} {:>11} {:>11} {:>16} \n\n", "VM-EXIT", name_width, "Samples",
                      "Samples%", "Time%", "Min Time", "Max Time", "Avg time");
  for (const Row& row : rows) {
    const auto count = static_cast<double>(row.count);
    text +=
        fmt::format("{:>{}} {:>10} {:>8.2f}% {:>8.2f}% {:>9.2f}us {:>9.2f}us {:>9.2f}us ( +-{:>7.2f}% )\n",
                    row.name, name_width, row.count, 100.0 * count / static_cast<double>(samples),
                    time_us <= 0.0 ? 0.0 : 100.0 * row.time_us / time_us, row.min_us, row.max_us,
                    row.time_us / count, row.error_pct);
  }
  text += fmt::format("\nTotal Samples:{}, Total events handled time:{:.2f}us.\n\n", samples, time_us);
  return text;
}

}  // namespace

std::string perf_table(const RunResult& result, PerfLayout layout) {
  const auto us = [&result](std::uint64_t cycles) {
    return static_cast<double>(cycles) * 1e6 / static_cast<double>(result.tsc_hz);
  };
  std::vector<Row> rows;
  for (const auto& [code, counter] : total_exits(result)) {
    const std::string_view name = svm::exit_name(code);
    rows.push_back({name.empty() ? "UNKNOWN" : std::string(name), counter.count, us(counter.time),
                    us(counter.min), us(counter.max), counter.error_pct()});
  }
  return table_text(std::move(rows), layout);
}

std::string perf_table_of_json(const std::string& result_json, const std::string& layout) {
  const std::vector<std::string> names{"classic", "wide", "columns"};
  const auto chosen = std::find(names.begin(), names.end(), layout.empty() ? "wide" : layout);
  if (chosen == names.end()) {
    throw UserError(
        Problem{"", 0, "layout", "must be classic, wide or columns", nearest_name(layout, names)});
  }
  std::vector<Row> rows;
  try {
    const auto json = nlohmann::ordered_json::parse(result_json);
    for (const auto& [name, exit] : json.at("exits").items()) {
      const auto us = [&exit = exit](const char* key) { return exit.at(key).get<double>() / 1000.0; };
      const bool known = svm::exit_code_of(name).has_value();
      rows.push_back({known ? name : "UNKNOWN", exit.at("count").get<std::uint64_t>(), us("time_ns"),
                      us("min_ns"), us("max_ns"), exit.at("error_pct").get<double>()});
    }
  } catch (const nlohmann::json::exception& error) {
    throw UserError(Problem{"", 0, "", fmt::format("this is no result of a run: {}", error.what()), ""});
  }
  return table_text(std::move(rows), static_cast<PerfLayout>(chosen - names.begin()));
}

}  // namespace svmsim::model
