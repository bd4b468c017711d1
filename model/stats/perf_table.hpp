#pragma once

#include <cstdint>
#include <string>

#include "model/stats/run_result.hpp"

namespace svmsim::model {

/// perf's own layouts of `perf kvm stat report`.
enum class PerfLayout : std::uint8_t {
  classic,  ///< microseconds with two decimals, total below the table; the first column is 20 wide up to 6.3
  wide,     ///< the same, 40 wide: later perf with --stdio
  columns,  ///< 6.4 and later by default: whole ns and percents, greatest before least, no total
};

/// The exits of a run as `perf kvm stat report` prints them, so that the text can be compared with a real
/// one.
[[nodiscard]] std::string perf_table(const RunResult& result, PerfLayout layout = PerfLayout::wide);

/// The same from a result's JSON text (to_json), in which the times are rounded to ns. `layout`: "classic",
/// "wide", "columns"; "" is wide. Throws UserError when the text is no result or there is no such layout.
[[nodiscard]] std::string perf_table_of_json(const std::string& result_json, const std::string& layout = "");

}  // namespace svmsim::model
