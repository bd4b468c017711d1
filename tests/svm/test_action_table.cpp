#include <doctest/doctest.h>

#include "svm/action_table.hpp"
#include "svm/user_error.hpp"

using namespace svmsim::svm;

TEST_CASE("every action stands in the table at its own index, with a name that leads back to it") {
  CHECK(action_count() == static_cast<std::size_t>(ActionKind::vmgexit) + 1);
  for (std::size_t i = 0; i < action_count(); ++i) {
    const auto kind = static_cast<ActionKind>(i);
    CAPTURE(action_name(kind));
    CHECK(action_table()[i].kind == kind);
    CHECK_FALSE(action_name(kind).empty());
    CHECK_FALSE(action_info(kind).meaning.empty());
    REQUIRE(action_of(action_name(kind)).has_value());
    CHECK(*action_of(action_name(kind)) == kind);
  }
  CHECK(action_name(static_cast<ActionKind>(action_count())).empty());
  CHECK_THROWS_AS(static_cast<void>(action_info(static_cast<ActionKind>(0xff))), svmsim::InternalError);
  CHECK_FALSE(action_of("HLT").has_value());
  CHECK(svmsim::nearest_name("wbinv", action_names()) == "wbinvd");
}

TEST_CASE("an operand goes into its field, and into no other") {
  for (const ActionInfo& info : action_table()) {
    CAPTURE(info.name);
    for (const ActionOperand& operand : info) {
      CAPTURE(operand.key);
      CHECK(info.find(operand.key) == &operand);
      GuestAction action = usual_action(info.kind);
      CHECK(get_operand(action, operand) == operand.usual);
      const std::uint64_t other = operand.usual == 0 ? 1 : operand.usual - 1;
      REQUIRE(set_operand(action, operand, other));
      for (const ActionOperand& each : info)
        CHECK(get_operand(action, each) == (&each == &operand ? other : each.usual));
      REQUIRE(set_operand(action, operand, operand.maximum));
      CHECK(get_operand(action, operand) == operand.maximum);
      if (operand.maximum != UINT64_MAX) {
        CHECK_FALSE(set_operand(action, operand, operand.maximum + 1));
        CHECK(get_operand(action, operand) == operand.maximum);
      }
    }
    CHECK(info.find("nonsense") == nullptr);
  }
}

TEST_CASE("the usual action has the instruction's length and no rIP") {
  const GuestAction action = usual_action(ActionKind::outs);
  CHECK(action.kind == ActionKind::outs);
  CHECK(action.length == 1);
  CHECK(action.size == 1);
  CHECK(action.segment == 3);
  CHECK(action.rip == 0);
  CHECK(usual_action(ActionKind::compute).length == 0);
}
