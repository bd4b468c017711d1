#include "svm/user_error.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace svmsim {

std::string Problem::text() const {
  std::string result;
  if (!source.empty())
    result += line != 0 ? fmt::format("{}:{}: ", source, line) : fmt::format("{}: ", source);
  if (!path.empty()) result += path + ": ";
  result += message;
  if (!nearest.empty()) result += fmt::format(" (did you mean {}?)", nearest);
  return result;
}

UserError::UserError(std::vector<Problem> problems) : problems_(std::move(problems)) {
  for (const Problem& problem : problems_) {
    if (!text_.empty()) text_ += '\n';
    text_ += problem.text();
  }
}

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace svmsim
