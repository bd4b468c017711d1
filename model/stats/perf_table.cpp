#include "model/stats/perf_table.hpp"

#include <algorithm>
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

std::string layout(std::vector<Row> rows, unsigned name_width) {
  // By samples; perf inserts in the order of the codes and keeps it among equals.
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.count > b.count; });
  std::uint64_t samples = 0;
  double time_us = 0.0;
  for (const Row& row : rows) {
    samples += row.count;
    time_us += row.time_us;
  }
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

std::string perf_table(const RunResult& result, unsigned name_width) {
  const auto us = [&result](std::uint64_t cycles) {
    return static_cast<double>(cycles) * 1e6 / static_cast<double>(result.tsc_hz);
  };
  std::vector<Row> rows;
  for (const auto& [code, counter] : total_exits(result)) {
    const std::string_view name = svm::exit_name(code);
    rows.push_back({name.empty() ? "UNKNOWN" : std::string(name), counter.count, us(counter.time),
                    us(counter.min), us(counter.max), counter.error_pct()});
  }
  return layout(std::move(rows), name_width);
}

std::string perf_table_of_json(const std::string& result_json, unsigned name_width) {
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
  return layout(std::move(rows), name_width);
}

}  // namespace svmsim::model
