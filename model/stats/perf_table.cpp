#include "model/stats/perf_table.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace svmsim::model {

std::string perf_table(const RunResult& result, unsigned name_width) {
  const auto us = [&result](double cycles) { return cycles * 1e6 / static_cast<double>(result.tsc_hz); };
  std::vector<ExitStats::Row> rows = total_exits(result);
  // By samples; perf inserts in the order of the codes and keeps it among equals.
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.counter.count > b.counter.count; });
  std::uint64_t samples = 0;
  std::uint64_t time = 0;
  for (const auto& row : rows) {
    samples += row.counter.count;
    time += row.counter.time;
  }

  std::string text = "\n\nAnalyze events for all VMs, all VCPUs:\n\n";
  text += fmt::format("{:>{}} {:>10} {:>9} {:>9} {:>11} {:>11} {:>16} \n\n", "VM-EXIT", name_width, "Samples",
                      "Samples%", "Time%", "Min Time", "Max Time", "Avg time");
  for (const auto& [code, counter] : rows) {
    const std::string_view kernel_name = svm::exit_name(code);
    const std::string_view name = kernel_name.empty() ? std::string_view("UNKNOWN") : kernel_name;
    const auto count = static_cast<double>(counter.count);
    const auto sum = static_cast<double>(counter.time);
    text += fmt::format(
        "{:>{}} {:>10} {:>8.2f}% {:>8.2f}% {:>9.2f}us {:>9.2f}us {:>9.2f}us ( +-{:>7.2f}% )\n", name,
        name_width, counter.count, 100.0 * count / static_cast<double>(samples),
        time == 0 ? 0.0 : 100.0 * sum / static_cast<double>(time), us(static_cast<double>(counter.min)),
        us(static_cast<double>(counter.max)), us(sum / count), counter.error_pct());
  }
  text += fmt::format("\nTotal Samples:{}, Total events handled time:{:.2f}us.\n\n", samples,
                      us(static_cast<double>(time)));
  return text;
}

}  // namespace svmsim::model
