#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "svm/guest_action.hpp"

namespace svmsim::oracle {

/// One instruction of a guest program: what GuestCpu executes, and a label for tags and reports. The
/// emulators get the bytes.
struct Instruction {
  std::string_view label;  ///< of a literal; "" for what only loads registers
  svm::GuestAction action;
};

/// A guest program twice over: as machine code of 64-bit mode for the emulators, and as actions for GuestCpu,
/// at the same addresses and with the same lengths. It begins at layout::code.
class Program {
 public:
  /// `interrupts`: RFLAGS.IF at its begin; `owns_if`: whether CLI, STI and POPF change it (CPL 0, or IOPL 3).
  explicit Program(std::uint8_t cpl = 0, bool interrupts = false, bool owns_if = false)
      : cpl_(cpl), interrupts_(interrupts), owns_if_(owns_if || cpl == 0) {}

  /// An instruction that GuestCpu sees as `action`; its rIP, length and CPL are filled in.
  Program& add(std::string_view label, std::initializer_list<unsigned> bytes, svm::GuestAction action);
  Program& add(std::string_view label, std::initializer_list<unsigned> bytes, svm::ActionKind kind);
  /// An instruction that no intercept sees: to GuestCpu a NOP.
  Program& quiet(std::initializer_list<unsigned> bytes) { return add("", bytes, svm::ActionKind::nop); }
  /// Instructions with a 32-bit displacement or immediate at their end.
  Program& add32(std::string_view label, std::initializer_list<unsigned> bytes, std::uint32_t tail,
                 svm::GuestAction action);

  Program& load_eax(std::uint32_t value);
  Program& load_ecx(std::uint32_t value);
  Program& load_edx(std::uint32_t value);
  Program& load_rax(std::uint64_t value);  ///< ten bytes
  Program& load_esi(std::uint32_t value);
  Program& load_edi(std::uint32_t value);
  Program& push(std::uint32_t value);
  /// A jump to the next instruction, without which QEMU looks for interrupts only much later. After a store
  /// that sends an interrupt, an emulator may take it before or after this jump: both count as after.
  Program& transparent_jump();
  /// VMMCALL, which ends every program, and a jump to itself, at which QEMU ends its translation.
  Program& end();

  [[nodiscard]] std::uint8_t cpl() const noexcept { return cpl_; }
  /// RFLAGS of the guest at this point, as far as the program itself sets them.
  [[nodiscard]] std::uint32_t flags() const noexcept { return interrupts_ ? 0x202 : 0x2; }
  [[nodiscard]] std::uint64_t next_rip() const noexcept;
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const noexcept { return bytes_; }
  [[nodiscard]] const std::vector<Instruction>& instructions() const noexcept { return instructions_; }
  [[nodiscard]] bool has(std::string_view label) const noexcept;
  [[nodiscard]] const svm::GuestAction* at(std::uint64_t rip) const noexcept;
  /// rIP with transparent jumps executed.
  [[nodiscard]] std::uint64_t canonical(std::uint64_t rip) const noexcept;
  /// Hexadecimal bytes, for reports.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<Instruction> instructions_;
  std::vector<std::uint64_t> transparent_jumps_;
  std::uint8_t cpl_;
  bool interrupts_;
  bool owns_if_;
};

}  // namespace svmsim::oracle
