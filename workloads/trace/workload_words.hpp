#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "svm/action_table.hpp"
#include "svm/guest_action.hpp"
#include "workloads/trace/replay_workload.hpp"

namespace svmsim::workloads {

/// One word of the workload format: an action of svm's table (svm/action_table.hpp), and those of its
/// operands that stand behind the word, in the order of the table. Sizes are keys (size=).
struct ActionWord {
  std::string_view word;
  svm::ActionKind kind = svm::ActionKind::compute;
  std::vector<svm::ActionOperand> arguments;
};

/// The actions that a recording can show.
[[nodiscard]] const std::vector<ActionWord>& action_words();

struct FlagWord {
  std::string_view word;
  std::uint8_t flag;
};

/// Every flag but `chained`, which the absence of rip= says.
inline constexpr std::array<FlagWord, 7> flag_words{{{"partial", replay_flag::partial},
                                                     {"open_end", replay_flag::open_end},
                                                     {"unknown_time", replay_flag::unknown_time},
                                                     {"inferred", replay_flag::inferred},
                                                     {"fault", replay_flag::fault},
                                                     {"mmio", replay_flag::mmio},
                                                     {"no_operand", replay_flag::no_operand}}};

[[nodiscard]] std::string_view time_base_word(TimeBase base);

}  // namespace svmsim::workloads
