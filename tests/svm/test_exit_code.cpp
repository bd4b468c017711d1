#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "svm/exit_code.hpp"
#include "svm/intercept.hpp"

using namespace svmsim::svm;

TEST_CASE("the kernel's name of every exit code that has one") {
  const std::vector<std::pair<std::uint64_t, std::string>> names{
      {0x000, "read_cr0"},
      {0x002, "read_cr2"},
      {0x003, "read_cr3"},
      {0x004, "read_cr4"},
      {0x008, "read_cr8"},
      {0x010, "write_cr0"},
      {0x012, "write_cr2"},
      {0x013, "write_cr3"},
      {0x014, "write_cr4"},
      {0x018, "write_cr8"},
      {0x020, "read_dr0"},
      {0x021, "read_dr1"},
      {0x022, "read_dr2"},
      {0x023, "read_dr3"},
      {0x024, "read_dr4"},
      {0x025, "read_dr5"},
      {0x026, "read_dr6"},
      {0x027, "read_dr7"},
      {0x030, "write_dr0"},
      {0x031, "write_dr1"},
      {0x032, "write_dr2"},
      {0x033, "write_dr3"},
      {0x034, "write_dr4"},
      {0x035, "write_dr5"},
      {0x036, "write_dr6"},
      {0x037, "write_dr7"},
      {0x040, "DE excp"},
      {0x041, "DB excp"},
      {0x043, "BP excp"},
      {0x044, "OF excp"},
      {0x045, "BR excp"},
      {0x046, "UD excp"},
      {0x047, "NM excp"},
      {0x048, "DF excp"},
      {0x04a, "TS excp"},
      {0x04b, "NP excp"},
      {0x04c, "SS excp"},
      {0x04d, "GP excp"},
      {0x04e, "PF excp"},
      {0x050, "MF excp"},
      {0x051, "AC excp"},
      {0x052, "MC excp"},
      {0x053, "XF excp"},
      {0x060, "interrupt"},
      {0x061, "nmi"},
      {0x062, "smi"},
      {0x063, "init"},
      {0x064, "vintr"},
      {0x065, "cr0_sel_write"},
      {0x066, "read_idtr"},
      {0x067, "read_gdtr"},
      {0x068, "read_ldtr"},
      {0x069, "read_rt"},
      {0x06a, "write_idtr"},
      {0x06b, "write_gdtr"},
      {0x06c, "write_ldtr"},
      {0x06d, "write_rt"},
      {0x06e, "rdtsc"},
      {0x06f, "rdpmc"},
      {0x070, "pushf"},
      {0x071, "popf"},
      {0x072, "cpuid"},
      {0x073, "rsm"},
      {0x074, "iret"},
      {0x075, "swint"},
      {0x076, "invd"},
      {0x077, "pause"},
      {0x078, "hlt"},
      {0x079, "invlpg"},
      {0x07a, "invlpga"},
      {0x07b, "io"},
      {0x07c, "msr"},
      {0x07d, "task_switch"},
      {0x07e, "ferr_freeze"},
      {0x07f, "shutdown"},
      {0x080, "vmrun"},
      {0x081, "hypercall"},
      {0x082, "vmload"},
      {0x083, "vmsave"},
      {0x084, "stgi"},
      {0x085, "clgi"},
      {0x086, "skinit"},
      {0x087, "rdtscp"},
      {0x088, "icebp"},
      {0x089, "wbinvd"},
      {0x08a, "monitor"},
      {0x08b, "mwait"},
      {0x08d, "xsetbv"},
      {0x08f, "write_efer_trap"},
      {0x090, "write_cr0_trap"},
      {0x094, "write_cr4_trap"},
      {0x098, "write_cr8_trap"},
      {0x0a2, "invpcid"},
      {0x0a5, "buslock"},
      {0x0a6, "idle-halt"},
      {0x400, "npf"},
      {0x401, "avic_incomplete_ipi"},
      {0x402, "avic_unaccelerated_access"},
      {0x403, "vmgexit"},
      {~std::uint64_t{0}, "invalid_guest_state"},
  };
  std::set<std::uint64_t> named;
  for (const auto& row : names) {
    const std::uint64_t code = row.first;
    const std::string& name = row.second;
    CAPTURE(code);
    CHECK(exit_name(code) == name);
    CHECK(exit_name_or_hex(code) == name);
    CHECK(exit_code_of(name) == code);
    named.insert(code);
  }
  for (const ExitInfo& info : exit_table())
    CHECK((named.count(info.code) != 0) == !info.kernel_name.empty());
}

TEST_CASE("an exit without a kernel name prints as the number") {
  CHECK(exit_name_or_hex(0x8e) == "0x8e");
  CHECK(exit_name_or_hex(0x8c) == "0x8c");
  CHECK(exit_name_or_hex(0x123456) == "0x123456");
  CHECK(exit_name_or_hex(exit_code::busy) == "0xfffffffffffffffe");
  CHECK(exit_name(0xa7).empty());
  CHECK_FALSE(exit_code_of("").has_value());
  CHECK_FALSE(exit_code_of("HLT").has_value());
  CHECK(find_exit(0xa7) == nullptr);
  CHECK(find_exit(0x3ff) == nullptr);
}

TEST_CASE("the codes without an intercept bit") {
  CHECK(exit_code::npf == 0x400);
  CHECK(exit_code::avic_incomplete_ipi == 0x401);
  CHECK(exit_code::avic_noaccel == 0x402);
  CHECK(exit_code::vmgexit == 0x403);
  CHECK(exit_code::invalid == 0xffff'ffff'ffff'ffff);
  CHECK(exit_code::busy == 0xffff'ffff'ffff'fffe);
  CHECK(exit_code::idle_required == 0xffff'ffff'ffff'fffd);
  CHECK(exit_code::invalid_pmc == 0xffff'ffff'ffff'fffc);
}

TEST_CASE("exit code and intercept bit index are the same number, for every row") {
  std::set<std::uint64_t> codes;
  for (const ExitInfo& info : exit_table()) {
    CAPTURE(info.code);
    CHECK(codes.insert(info.code).second);
    CHECK(find_exit(info.code) == &info);
    CHECK_FALSE(info.manual_name.empty());
    CHECK(info.meaning.back() == '.');
    CHECK(info.has_intercept == (info.code < 192));
    if (!info.has_intercept) continue;
    const auto intercept = static_cast<Intercept>(info.code);
    CHECK(intercept_name(intercept) == info.manual_name);
    VmcbControl control{};
    set_intercept(control, intercept, true);
    for (std::size_t word = 0; word < 6; ++word) {
      const std::uint32_t expected = word == info.code / 32 ? std::uint32_t{1} << (info.code % 32) : 0;
      CHECK(control.intercepts[word] == expected);
    }
    CHECK(intercepted(control, intercept));
    set_intercept(control, intercept, false);
    CHECK_FALSE(intercepted(control, intercept));
  }
  CHECK(codes.size() == 0xa7 + 8);
}

TEST_CASE("the intercept words of the manual") {
  struct Bit {
    Intercept intercept;
    unsigned word;
    unsigned bit;
  };
  const std::vector<Bit> bits{
      {Intercept::read_cr0, 0, 0},
      {Intercept::read_cr15, 0, 15},
      {Intercept::write_cr0, 0, 16},
      {Intercept::write_cr8, 0, 24},
      {Intercept::read_dr0, 1, 0},
      {Intercept::write_dr7, 1, 23},
      {Intercept::exception_0, 2, 0},
      {Intercept::exception_14, 2, 14},
      {Intercept::exception_31, 2, 31},
      {Intercept::intr, 3, 0},
      {Intercept::nmi, 3, 1},
      {Intercept::smi, 3, 2},
      {Intercept::init, 3, 3},
      {Intercept::vintr, 3, 4},
      {Intercept::cr0_sel_write, 3, 5},
      {Intercept::idtr_read, 3, 6},
      {Intercept::tr_write, 3, 13},
      {Intercept::rdtsc, 3, 14},
      {Intercept::rdpmc, 3, 15},
      {Intercept::pushf, 3, 16},
      {Intercept::popf, 3, 17},
      {Intercept::cpuid, 3, 18},
      {Intercept::rsm, 3, 19},
      {Intercept::iret, 3, 20},
      {Intercept::swint, 3, 21},
      {Intercept::invd, 3, 22},
      {Intercept::pause, 3, 23},
      {Intercept::hlt, 3, 24},
      {Intercept::invlpg, 3, 25},
      {Intercept::invlpga, 3, 26},
      {Intercept::ioio, 3, 27},
      {Intercept::msr, 3, 28},
      {Intercept::task_switch, 3, 29},
      {Intercept::ferr_freeze, 3, 30},
      {Intercept::shutdown, 3, 31},
      {Intercept::vmrun, 4, 0},
      {Intercept::vmmcall, 4, 1},
      {Intercept::vmload, 4, 2},
      {Intercept::vmsave, 4, 3},
      {Intercept::stgi, 4, 4},
      {Intercept::clgi, 4, 5},
      {Intercept::skinit, 4, 6},
      {Intercept::rdtscp, 4, 7},
      {Intercept::icebp, 4, 8},
      {Intercept::wbinvd, 4, 9},
      {Intercept::monitor, 4, 10},
      {Intercept::mwait, 4, 11},
      {Intercept::mwait_conditional, 4, 12},
      {Intercept::xsetbv, 4, 13},
      {Intercept::rdpru, 4, 14},
      {Intercept::efer_write_trap, 4, 15},
      {Intercept::cr0_write_trap, 4, 16},
      {Intercept::cr15_write_trap, 4, 31},
      {Intercept::invlpgb, 5, 0},
      {Intercept::invlpgb_illegal, 5, 1},
      {Intercept::invpcid, 5, 2},
      {Intercept::mcommit, 5, 3},
      {Intercept::tlbsync, 5, 4},
      {Intercept::buslock, 5, 5},
      {Intercept::idle_hlt, 5, 6},
  };
  for (const Bit& bit : bits) {
    CAPTURE(intercept_name(bit.intercept));
    CHECK(static_cast<unsigned>(bit.intercept) == 32 * bit.word + bit.bit);
  }
  CHECK(exit_code::exception(14) == 0x4e);
  CHECK(exception_intercept(14) == Intercept::exception_14);
}
