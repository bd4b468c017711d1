#pragma once

#include <array>
#include <cstdint>

namespace svmsim::svm {

/// What a guest can do in one architectural step. Names follow the instruction, in lower case.
enum class ActionKind : std::uint8_t {
  compute,  ///< guest work of `cycles` TSC cycles that no intercept can see
  nop,
  cli,
  sti,
  hlt,
  pause,
  cpuid,  ///< number = leaf, operand[0] = subleaf
  rdtsc,
  rdmsr,    ///< number = MSR
  wrmsr,    ///< number = MSR, operand[0] = value
  in,       ///< number = port, size = bytes
  out,      ///< number = port, size = bytes, operand[0] = value
  vmmcall,  ///< number = hypercall (RAX), operand[0..3] = RBX, RCX, RDX, RSI
  iret,
  memory_read,   ///< operand[1] = guest physical address, size = bytes
  memory_write,  ///< operand[1] = guest physical address, size = bytes, operand[0] = value
  mov_from_cr8,
  mov_to_cr8,  ///< operand[0] = value
};

/// One architectural action of a guest, with what an exit needs to carry real rIP, nRIP and EXITINFO.
struct GuestAction {
  ActionKind kind = ActionKind::compute;
  std::uint8_t length = 0;  ///< instruction bytes; the next sequential rIP is rip + length
  std::uint8_t cpl = 0;
  std::uint8_t size = 0;     ///< operand bytes of in, out and memory accesses
  std::uint32_t number = 0;  ///< MSR, port, CPUID leaf or hypercall number
  std::uint64_t rip = 0;
  std::uint64_t cycles = 0;  ///< TSC cycles of guest time that the action takes in guest mode
  std::array<std::uint64_t, 4> operand{};

  [[nodiscard]] std::uint64_t next_rip() const noexcept { return rip + length; }
};

}  // namespace svmsim::svm
