#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "svm/action_table.hpp"
#include "svm/guest_action.hpp"
#include "workloads/program_spec.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::workloads {

/// A number of a program file: a literal, or the value of an integer parameter.
struct ProgramNumber {
  std::uint64_t literal = 0;
  int parameter = -1;  ///< index into ProgramInfo::parameters; -1 = the literal
};

/// What a program can write after `do =`.
struct ActionForm {
  std::string_view name;
  svm::ActionKind kind = svm::ActionKind::compute;
  std::uint8_t length = 0;  ///< instruction bytes where the file gives none
  bool halt_until = false;  ///< not an action but a small loop
  std::uint16_t keys = 0;   ///< which of the keys below it knows
  bool skips_eoi =
      false;  ///< tests and clears the PV EOI word; when KVM has set it, leaves out the next action
  const svm::ActionInfo* info = nullptr;  ///< keys are the operands of this row of the table of actions
  std::uint8_t flags = 0;                 ///< GuestAction::flags of what it becomes
};

/// Keys that only some forms know, as bits of ActionForm::keys.
namespace action_key {
constexpr std::uint8_t msr = 1;
constexpr std::uint8_t port = 2;  ///< port and size
constexpr std::uint8_t value = 4;
constexpr std::uint8_t leaf = 8;         ///< leaf and subleaf
constexpr std::uint8_t hypercall = 16;   ///< number and arguments
constexpr std::uint8_t memory = 32;      ///< address and size
constexpr std::uint8_t stopwatch = 64;   ///< start and stop
constexpr std::uint8_t wait = 128;       ///< vector or counter, and count
constexpr std::uint16_t add = 256;       ///< counter and value
constexpr std::uint16_t deadline = 512;  ///< delay
}  // namespace action_key

/// All forms, and the one with `name` (nullptr if there is none).
[[nodiscard]] const std::vector<ActionForm>& action_forms();
[[nodiscard]] const ActionForm* find_action_form(std::string_view name);

/// One action as the file has it.
struct ProgramAction {
  const ActionForm* form = nullptr;
  std::optional<ProgramNumber> rip;
  std::optional<ProgramNumber> length;
  ProgramNumber cycles;
  ProgramNumber repeat{1, -1};
  ProgramNumber number;  ///< MSR, port, leaf or hypercall number
  ProgramNumber size;
  std::array<ProgramNumber, 4> operand;
  std::vector<std::pair<const svm::ActionOperand*, ProgramNumber>>
      others;  ///< of a form with ActionForm::info
  std::uint8_t cpl = 0;
  int condition = -1;  ///< index of a boolean parameter
  bool condition_value = true;
  int start_watch = -1;
  int stop_watch = -1;
  std::uint8_t vector = 0;     ///< of halt_until and spin_until
  int counter = -1;            ///< of these two instead of the vector, and of add
  bool pauses = false;         ///< spin_until has a PAUSE in each turn
  bool interrupts_on = false;  ///< halt_until leaves RFLAGS.IF as it is
  bool per_iteration = false;  ///< `count` is for each iteration up to this one
  ProgramNumber count{1, -1};
};

using ActionList = std::vector<ProgramAction>;

/// What one vCPU does besides handling interrupts.
struct ProgramSection {
  ActionList setup;
  ActionList body;
  ActionList teardown;
};

struct ProgramHandler {
  std::uint8_t vector = 0;
  ActionList actions;  ///< the last one is iret
};

/// "The handler of `vector` has run exactly `runs` times in every iteration."
struct ProgramCheck {
  std::uint8_t vector = 0;
  std::uint64_t runs = 1;
};

struct ProgramRepeat {
  ProgramNumber count{1, -1};
  ProgramNumber start{32, -1};
  std::optional<ProgramNumber> until_cycles;  ///< present: the doubling harness
  std::optional<ProgramNumber> tsc_rip;
};

/// A program file, read and checked; parameters are still open. docs/programs.md describes the format.
struct Program {
  ProgramInfo info;
  std::vector<std::string> stopwatches;
  std::vector<std::string> counters;  ///< in memory that the vCPUs share
  InitialState initial;               ///< without the rIP
  ProgramRepeat repeat;
  ProgramSection common;                     ///< of every vCPU that has no section of its own
  std::map<unsigned, ProgramSection> vcpus;  ///< by vCPU index
  std::optional<ProgramSection> others;      ///< vcpu = "others"
  std::vector<ProgramHandler> handlers;
  std::vector<ProgramCheck> checks;

  [[nodiscard]] const ProgramSection& section(unsigned vcpu) const;
};

/// The source of one vCPU. `parameters` holds a value for each parameter, in range, in order.
[[nodiscard]] std::unique_ptr<WorkloadSource> make_source(const Program& program,
                                                          const std::vector<ParameterValue>& parameters,
                                                          unsigned vcpu,
                                                          std::shared_ptr<SharedCounters> memory = {});

}  // namespace svmsim::workloads
