#pragma once

#include <string>

#include "model/stats/run_result.hpp"

namespace svmsim::model {

/// The exits of a run as `perf kvm stat report` prints them, so that the text can be compared with a real
/// one. `name_width` is the width of the first column: 40 in perf since 6.4, 20 before.
[[nodiscard]] std::string perf_table(const RunResult& result, unsigned name_width = 40);

/// The same from a result's JSON text (to_json), in which the times are rounded to ns. Throws UserError when
/// the text is no result.
[[nodiscard]] std::string perf_table_of_json(const std::string& result_json, unsigned name_width = 40);

}  // namespace svmsim::model
