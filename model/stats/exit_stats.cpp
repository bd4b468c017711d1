#include "model/stats/exit_stats.hpp"

#include <cmath>

namespace svmsim::model {

ExitCounter& ExitCounter::operator+=(const ExitCounter& other) noexcept {
  count += other.count;
  time += other.time;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  square_sum += other.square_sum;
  polling += other.polling;
  blocked += other.blocked;
  runqueue += other.runqueue;
  cstate += other.cstate;
  return *this;
}

double ExitCounter::error_pct() const noexcept {
  if (count < 2 || time == 0) return 0.0;
  // n * sum(x^2) - sum(x)^2 in integers: no cancellation, and the same on every compiler.
  const Wide spread = Wide{count} * square_sum - Wide{time} * time;
  const auto n = static_cast<double>(count);
  const double variance_of_mean = static_cast<double>(spread) / (n * n * (n - 1.0));
  return 100.0 * std::sqrt(variance_of_mean) / (static_cast<double>(time) / n);
}

void ExitStats::add_parts(ExitCounter& counter) const noexcept {
  counter.polling += parts_.polling;
  counter.blocked += parts_.blocked;
  counter.runqueue += parts_.runqueue;
  counter.cstate += parts_.cstate;
}

std::vector<ExitStats::Row> ExitStats::rows() const {
  std::vector<Row> result;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    if (index_[slot] == 0) continue;
    const std::uint64_t code = slot == svm::exit_count ? unknown_code : svm::exit_table()[slot].code;
    result.push_back({code, counters_[index_[slot] - 1U]});
  }
  return result;
}

std::string exit_row_name(std::uint64_t code) {
  return code == ExitStats::unknown_code ? "unknown" : svm::exit_name_or_hex(code);
}

}  // namespace svmsim::model
