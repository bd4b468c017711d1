#include "tests/oracle/program.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "svm/vmcb_bits.hpp"
#include "tests/oracle/layout.hpp"

namespace svmsim::oracle {

using svm::ActionKind;
using svm::GuestAction;

Program& Program::add(std::string_view label, std::initializer_list<unsigned> bytes, GuestAction action) {
  action.rip = next_rip();
  action.length = static_cast<std::uint8_t>(bytes.size());
  action.cpl = cpl_;
  for (const unsigned byte : bytes)
    bytes_.push_back(static_cast<std::uint8_t>(byte));
  instructions_.push_back({label, action});
  if (owns_if_) {
    if (action.kind == ActionKind::sti) interrupts_ = true;
    if (action.kind == ActionKind::cli) interrupts_ = false;
    if (action.kind == ActionKind::popf) interrupts_ = (action.operand[0] & svm::rflags::interrupt) != 0;
  }
  return *this;
}

Program& Program::add(std::string_view label, std::initializer_list<unsigned> bytes, ActionKind kind) {
  GuestAction action;
  action.kind = kind;
  return add(label, bytes, action);
}

Program& Program::add32(std::string_view label, std::initializer_list<unsigned> bytes, std::uint32_t tail,
                        GuestAction action) {
  add(label, bytes, action);
  for (unsigned shift = 0; shift < 32; shift += 8)
    bytes_.push_back(static_cast<std::uint8_t>(tail >> shift));
  instructions_.back().action.length = static_cast<std::uint8_t>(bytes.size() + 4);
  return *this;
}

namespace {

GuestAction nop() {
  GuestAction action;
  action.kind = ActionKind::nop;
  return action;
}

}  // namespace

Program& Program::load_eax(std::uint32_t value) {
  return add32("", {0xb8}, value, nop());
}
Program& Program::load_ecx(std::uint32_t value) {
  return add32("", {0xb9}, value, nop());
}
Program& Program::load_edx(std::uint32_t value) {
  return add32("", {0xba}, value, nop());
}
Program& Program::load_esi(std::uint32_t value) {
  return add32("", {0xbe}, value, nop());
}
Program& Program::load_edi(std::uint32_t value) {
  return add32("", {0xbf}, value, nop());
}
Program& Program::push(std::uint32_t value) {
  return add32("", {0x68}, value, nop());
}

Program& Program::load_rax(std::uint64_t value) {
  quiet({0x48, 0xb8});
  for (unsigned shift = 0; shift < 64; shift += 8)
    bytes_.push_back(static_cast<std::uint8_t>(value >> shift));
  instructions_.back().action.length = 10;
  return *this;
}

Program& Program::transparent_jump() {
  transparent_jumps_.push_back(next_rip());
  return quiet({0xeb, 0x00});
}

Program& Program::end() {
  return add("end", {0x0f, 0x01, 0xd9}, ActionKind::vmmcall).quiet({0xeb, 0xfe});
}

std::uint64_t Program::next_rip() const noexcept {
  return layout::code + bytes_.size();
}

bool Program::has(std::string_view label) const noexcept {
  return std::any_of(instructions_.begin(), instructions_.end(),
                     [label](const Instruction& i) { return i.label == label; });
}

const GuestAction* Program::at(std::uint64_t rip) const noexcept {
  const auto found = std::find_if(instructions_.begin(), instructions_.end(),
                                  [rip](const Instruction& i) { return i.action.rip == rip; });
  return found == instructions_.end() ? nullptr : &found->action;
}

std::uint64_t Program::canonical(std::uint64_t rip) const noexcept {
  const bool jump =
      std::find(transparent_jumps_.begin(), transparent_jumps_.end(), rip) != transparent_jumps_.end();
  return jump ? rip + 2 : rip;
}

std::string Program::text() const {
  std::string result;
  for (const Instruction& instruction : instructions_) {
    if (!result.empty()) result += ' ';
    const auto first = static_cast<std::size_t>(instruction.action.rip - layout::code);
    for (std::size_t i = first; i < first + instruction.action.length; ++i)
      result += fmt::format("{:02x}", bytes_[i]);
    if (!instruction.label.empty()) result += fmt::format("({})", instruction.label);
  }
  return result;
}

}  // namespace svmsim::oracle
