#include <array>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "model/config/parameters.hpp"

namespace svmsim::model {

namespace {

struct Unit {
  std::string_view name;
  std::int64_t ns;
};

// Longest first, so that "ms" is not read as "s".
constexpr std::array<Unit, 4> units{{{"ms", 1000000}, {"us", 1000}, {"ns", 1}, {"s", 1000000000}}};

}  // namespace

std::optional<std::int64_t> parse_duration(std::string_view text) {
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  std::int64_t scale = 0;
  for (const Unit& unit : units) {
    if (text.size() > unit.name.size() && text.substr(text.size() - unit.name.size()) == unit.name) {
      scale = unit.ns;
      text.remove_suffix(unit.name.size());
      break;
    }
  }
  if (scale == 0) return std::nullopt;

  constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  std::int64_t total = 0;
  std::int64_t digit_value = scale;  // worth of the next digit behind the point
  bool point = false;
  bool digits = false;
  for (const char c : text) {
    if (c == '.' && !point && digits) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    const std::int64_t digit = c - '0';
    digits = true;
    if (point) {
      if (digit_value % 10 != 0) {
        if (digit != 0) return std::nullopt;  // a fraction of a nanosecond
        continue;
      }
      digit_value /= 10;
      if (total > limit - digit * digit_value) return std::nullopt;
      total += digit * digit_value;
    } else {
      if (total > (limit - digit * scale) / 10) return std::nullopt;
      total = total * 10 + digit * scale;
    }
  }
  if (!digits || text.back() == '.') return std::nullopt;
  return negative ? -total : total;
}

std::string format_duration(std::int64_t ns) {
  constexpr std::array<Unit, 4> by_size{{{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}}};
  for (const Unit& unit : by_size) {
    if (ns != 0 && ns % unit.ns == 0) return fmt::format("{}{}", ns / unit.ns, unit.name);
  }
  return "0ns";
}

}  // namespace svmsim::model
