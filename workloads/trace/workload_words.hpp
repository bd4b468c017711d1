#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "svm/guest_action.hpp"
#include "workloads/trace/replay_workload.hpp"

namespace svmsim::workloads {

/// Which part of a GuestAction an argument of a line is.
enum class ActionPart : std::uint8_t { cycles, number, operand_0, operand_1, operand_2, operand_3 };

/// One word of the workload format: the action and its arguments, in order.
struct ActionWord {
  std::string_view word;
  svm::ActionKind kind;
  std::vector<ActionPart> arguments;
};

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
