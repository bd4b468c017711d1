#include "svm/vmcb_bits.hpp"
#include "tests/oracle/action_cases.hpp"

namespace svmsim::oracle {

namespace {

using svm::GuestAction;

constexpr std::uint64_t non_canonical = 0x8000000000000000;

GuestAction exception(std::uint8_t vector, std::uint64_t error_code = 0, std::uint64_t address = 0) {
  GuestAction result;
  result.kind = svm::ActionKind::raise;
  result.number = vector;
  result.operand[0] = error_code;
  result.operand[1] = address;
  return result;
}

void set_ts(Vector& v) {
  v.vmcb.save.cr0 |= svm::cr0::ts;
}

std::vector<ExceptionCase> make_exceptions() {
  return {
      {"de", 0,
       [](Program& p) {
         p.load_ecx(0).add("raise_de", {0xf7, 0xf1}, exception(0));
       }},
      {"ud", 6,
       [](Program& p) {
         p.add("raise_ud", {0x0f, 0x0b}, exception(6));
       }},
      {"nm", 7,
       [](Program& p) {
         p.add("raise_nm", {0xd9, 0xd0}, exception(7));
       },
       set_ts},
      {"ss", 12,
       [](Program& p) {
         p.quiet({0x48, 0xbd, 0, 0, 0, 0, 0, 0, 0, 0x80});  // MOV RBP, a non-canonical address
         p.add("raise_ss", {0x48, 0x8b, 0x45, 0x00}, exception(12));
       }},
      {"gp", 13,
       [](Program& p) {
         p.load_rax(non_canonical).add("raise_gp", {0x8b, 0x00}, exception(13));
       }},
      {"gp_selector", 13,
       [](Program& p) {
         p.load_eax(layout::ldt_selector)
             .add("raise_gp_selector", {0x8e, 0xd8}, exception(13, layout::ldt_selector));
       }},
      {"pf_read", 14,
       [](Program& p) {
         p.add32("raise_pf", {0x8b, 0x04, 0x25}, layout::absent_page + 0x18,
                 exception(14, p.cpl() == 3 ? 4 : 0, layout::absent_page + 0x18));
       }},
      {"pf_write", 14,
       [](Program& p) {
         p.add32("raise_pf", {0x89, 0x04, 0x25}, layout::readonly_page + 0x20,
                 exception(14, p.cpl() == 3 ? 7 : 3, layout::readonly_page + 0x20));
       }},
  };
}

}  // namespace

const std::vector<ExceptionCase>& exception_cases() {
  static const std::vector<ExceptionCase> cases = make_exceptions();
  return cases;
}

}  // namespace svmsim::oracle
