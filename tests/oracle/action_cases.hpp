#pragma once

#include <string_view>
#include <vector>

#include "svm/intercept.hpp"
#include "tests/oracle/vector.hpp"

namespace svmsim::oracle {

/// One guest instruction with its operands, and the intercepts that catch it. Emitting it leaves the guest
/// able to go on behind it, unless it faults.
struct ActionCase {
  std::string_view name;  ///< label of the instruction, also of its tag "action:NAME"
  std::vector<svm::Intercept> own;
  void (*emit)(Program&);
  void (*prepare)(Vector&) = nullptr;  ///< what its VMCB needs besides
  bool must_intercept =
      false;  ///< never to be executed: it would end or stop the machine, or touch what must stay
};

[[nodiscard]] const std::vector<ActionCase>& action_cases();

/// Exceptions, each raised by a real instruction.
struct ExceptionCase {
  std::string_view name;
  std::uint8_t vector;
  void (*emit)(Program&);
  void (*prepare)(Vector&) = nullptr;
};

[[nodiscard]] const std::vector<ExceptionCase>& exception_cases();

void emit_rdmsr(Program& program, std::uint32_t msr);
void emit_wrmsr(Program& program, std::uint32_t msr, std::uint64_t value);
/// IN or OUT of 1, 2 or 4 bytes through DX.
void emit_io(Program& program, bool write, std::uint16_t port, unsigned size);
/// The store to the ICR by which the guest interrupts its own CPU, through the real APIC.
void emit_self_ipi(Program& program, std::uint32_t icr_low);

}  // namespace svmsim::oracle
