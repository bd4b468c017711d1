#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "svm/guest_action.hpp"

namespace svmsim::svm {

/// Where in a GuestAction an operand is kept.
enum class ActionField : std::uint8_t {
  number,
  operand_0,
  operand_1,
  operand_2,
  operand_3,
  cycles,
  gpr,
  size,
  address_size,
  segment,
  flag,  ///< a bit of GuestAction::flags, ActionOperand::flag
};

/// One operand of an action, under the key that names it in files and in Python.
struct ActionOperand {
  std::string_view key;
  ActionField field = ActionField::number;
  std::uint64_t usual = 0;    ///< value where the key is absent
  std::uint64_t maximum = 0;  ///< greatest value that the field holds
  std::uint8_t flag = 0;      ///< of ActionField::flag
  std::string_view meaning;   ///< one sentence without a full stop
};

/// One row of the table of actions.
struct ActionInfo {
  static constexpr std::size_t max_operands = 7;

  ActionKind kind = ActionKind::compute;
  std::string_view name;    ///< as in the enumeration
  std::uint8_t length = 0;  ///< instruction bytes of the usual encoding, 0 where the action is no instruction
  bool privileged = false;  ///< #GP(0) or #UD at CPL > 0, whatever the intercepts say
  std::array<ActionOperand, max_operands> operand{};
  std::size_t operands = 0;  ///< of `operand` that are in use
  std::string_view meaning;  ///< one sentence without a full stop

  [[nodiscard]] const ActionOperand* begin() const noexcept { return operand.data(); }
  [[nodiscard]] const ActionOperand* end() const noexcept { return operand.data() + operands; }
  [[nodiscard]] const ActionOperand* find(std::string_view key) const noexcept;
};

/// Every action once, in the order of ActionKind.
[[nodiscard]] const std::vector<ActionInfo>& action_table();
[[nodiscard]] const ActionInfo& action_info(ActionKind kind);
/// "hlt", "mov_to_cr", …; "" for a value that is no kind.
[[nodiscard]] std::string_view action_name(ActionKind kind);
/// The action of that name, or nothing; nearest_name(name, action_names()) is what the user meant.
[[nodiscard]] std::optional<ActionKind> action_of(std::string_view name);
/// In the order of ActionKind.
[[nodiscard]] std::vector<std::string> action_names();
[[nodiscard]] std::size_t action_count();

/// An action with the usual length and operands; rIP and CPL are 0.
[[nodiscard]] GuestAction usual_action(ActionKind kind);
/// Sets an operand; false, without any effect, when `value` is greater than the field holds.
[[nodiscard]] bool set_operand(GuestAction& action, const ActionOperand& operand,
                               std::uint64_t value) noexcept;
[[nodiscard]] std::uint64_t get_operand(const GuestAction& action, const ActionOperand& operand) noexcept;

}  // namespace svmsim::svm
