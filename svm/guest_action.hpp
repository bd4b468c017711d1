#pragma once

#include <array>
#include <cstdint>

namespace svmsim::svm {

/// What a guest can do in one architectural step. Names follow the instruction, in lower case.
/// `number`, `operand`, `gpr`, `size`, `segment` and `flags` are fields of GuestAction.
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

  rdtscp,
  rdpmc,        ///< number = counter
  rdpru,        ///< number = register (ECX)
  mov_from_cr,  ///< number = control register 0, 2, 3, 4 (or 8), gpr
  mov_to_cr,    ///< number = control register, gpr, operand[0] = value
  clts,
  lmsw,         ///< operand[0] = machine status word
  smsw,         ///< operand[1] = address of a memory operand, 0 for a register; also of LMSW
  mov_from_dr,  ///< number = debug register, gpr
  mov_to_dr,    ///< number = debug register, gpr, operand[0] = value
  /// operand[1] = address of the memory operand, also of the next seven; in SLDT, STR, LLDT and LTR 0 is a
  /// register operand
  sidt,
  sgdt,
  sldt,
  str,
  lidt,  ///< operand[0] = base, operand[2] = limit
  lgdt,  ///< operand[0] = base, operand[2] = limit
  lldt,  ///< operand[0] = selector
  ltr,   ///< operand[0] = selector
  pushf,
  popf,    ///< operand[0] = RFLAGS image
  mov_ss,  ///< also POP SS: the next instruction is in an interrupt shadow
  int_n,   ///< number = vector (CDh)
  int3,    ///< CCh
  into,    ///< CEh; overflows
  icebp,   ///< F1h
  rsm,
  task_switch,  ///< number = TSS selector, operand[0] = error code, flags: iret, far_jump, has_error_code
  invd,
  wbinvd,
  wbnoinvd,
  invlpg,   ///< operand[1] = linear address
  invlpga,  ///< operand[1] = linear address (rAX), number = ASID (ECX)
  invpcid,  ///< number = type, operand[1] = linear address, operand[0] = PCID
  invlpgb,  ///< operand[0] = rAX, number = ECX, operand[1] = EDX; flags: illegal_form
  tlbsync,
  mcommit,
  monitor,   ///< operand[1] = linear address, operand[0] = extensions (ECX)
  mwait,     ///< operand[0] = hints (EAX), operand[1] = extensions (ECX)
  monitorx,  ///< as monitor, at any CPL
  mwaitx,    ///< as mwait, at any CPL
  xsetbv,    ///< number = XCR, operand[0] = value
  skinit,    ///< number = SLB address (EAX)
  vmrun,     ///< operand[1] = physical address (rAX), also of the next two
  vmload,
  vmsave,
  stgi,
  clgi,
  ins,    ///< number = port, size = bytes, operand[1] = address (always in ES), flags: rep
  outs,   ///< number = port, size = bytes, segment, operand[1] = address, operand[0] = value, flags: rep
  raise,  ///< an exception: number = vector, operand[0] = error code, operand[1] = CR2 of a #PF or the
          ///< bits that a #DB sets in DR6
  instruction_fetch,  ///< operand[1] = guest physical address of code
  bus_lock,           ///< a locked access that takes a bus lock; operand[1] = guest physical address
  ferr,               ///< an x87 error with CR0.NE = 0: FERR# and the freeze
  vmgexit,            ///< SEV-ES guests
};

/// Bits of GuestAction::flags.
namespace action_flags {
inline constexpr std::uint8_t rep = 1U << 0;
inline constexpr std::uint8_t iret = 1U << 1;            ///< task_switch by IRET
inline constexpr std::uint8_t far_jump = 1U << 2;        ///< task_switch by JMP
inline constexpr std::uint8_t has_error_code = 1U << 3;  ///< task_switch by an exception with an error code
inline constexpr std::uint8_t illegal_form = 1U
                                             << 4;  ///< INVLPGB with reserved bits or an illegal combination
// Of compute: code that touches memory which other vCPUs use. Only a model with several vCPUs looks at them.
inline constexpr std::uint8_t shared = 1U << 5;  ///< at its end
inline constexpr std::uint8_t spin = 1U << 6;    ///< turns of `cycles` until somebody has written
inline constexpr std::uint8_t pauses = 1U << 7;  ///< a spin with a PAUSE in each turn
}  // namespace action_flags

/// One architectural action of a guest, with what an exit needs to carry real rIP, nRIP and EXITINFO.
struct GuestAction {
  ActionKind kind = ActionKind::compute;
  std::uint8_t length = 0;  ///< instruction bytes; the next sequential rIP is rip + length
  std::uint8_t cpl = 0;
  std::uint8_t size = 0;     ///< operand bytes of in, out and memory accesses
  std::uint8_t gpr = 0;      ///< general register of MOV CRn and MOV DRn, for decode assists
  std::uint8_t segment = 0;  ///< effective segment of INS and OUTS: ES CS SS DS FS GS
  std::uint8_t flags = 0;    ///< action_flags
  /// Address bytes of INS and OUTS (and of EXITINFO1 of IN and OUT): 2, 4 or 8; 0 is that of the code
  /// segment.
  std::uint8_t address_size = 0;
  std::uint32_t number = 0;  ///< MSR, port, CPUID leaf or hypercall number
  std::uint64_t rip = 0;
  std::uint64_t cycles = 0;  ///< TSC cycles of guest time that the action takes in guest mode
  std::array<std::uint64_t, 4> operand{};

  [[nodiscard]] std::uint64_t next_rip() const noexcept { return rip + length; }
};

}  // namespace svmsim::svm
