// Intercepts against exceptions (APM vol. 2, table 15-7, 15.10.2, 15.11): which comes first when both apply.
// One row per instruction and exception.

#include <cstdint>
#include <string_view>

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

using K = ActionKind;
using I = Intercept;

/// What is wrong with the guest's state when it executes the instruction.
enum class Wrong : std::uint8_t {
  user,            ///< CPL 3
  user_tsd,        ///< CPL 3, CR4.TSD
  user_no_pce,     ///< CPL 3, CR4.PCE clear
  user_umip,       ///< CPL 3, CR4.UMIP
  user_no_iopl,    ///< CPL 3, IOPL 0
  no_svme,         ///< EFER.SVME clear
  real_mode,       ///< CR0.PE clear
  no_osxsave,      ///< CR4.OSXSAVE clear
  no_mcommit,      ///< EFER.MCOMMIT clear
  v86,             ///< virtual-8086 mode, IOPL 0
  operand,         ///< the operands of the row are illegal
  debug_extension  ///< CR4.DE
};

constexpr unsigned none = 0xff;

struct Row {
  std::string_view group;
  GuestAction action;
  Wrong wrong;
  unsigned exception;  ///< vector that comes before the intercept, or none
  Intercept intercept;
  unsigned otherwise = none;  ///< exception without the intercept, where it comes behind it
};

ProcessorLimits limits_with_mcommit() {
  ProcessorLimits limits;
  limits.efer_reserved &= ~efer::mcommit;
  return limits;
}

struct WrongGuest : Guest {
  explicit WrongGuest(Wrong wrong) : Guest(all_but_avic(), {}, limits_with_mcommit()) {
    VmcbSave& save = vmcb.save;
    save.efer |= efer::mcommit;
    save.cr4 |= cr4::osxsave | cr4::pce;
    vmcb.control.nested_ctl |= nested_ctl::invlpgb_enable;
    switch (wrong) {
      case Wrong::user:
        cpl = 3;
        break;
      case Wrong::user_tsd:
        cpl = 3;
        save.cr4 |= cr4::tsd;
        break;
      case Wrong::user_no_pce:
        cpl = 3;
        save.cr4 &= ~cr4::pce;
        break;
      case Wrong::user_umip:
        cpl = 3;
        save.cr4 |= cr4::umip;
        break;
      case Wrong::user_no_iopl:
        cpl = 3;
        break;
      case Wrong::real_mode:
        save.cr0 = 0;
        save.efer = efer::svme;
        save.cs.attrib = 0x9b;
        break;
      case Wrong::no_osxsave:
        save.cr4 &= ~cr4::osxsave;
        break;
      case Wrong::no_mcommit:
        save.efer &= ~efer::mcommit;
        break;
      case Wrong::v86:
        save.cr0 = cr0::pe;
        save.efer = efer::svme;
        save.cs.attrib = 0x9b;
        save.rflags |= rflags::virtual_8086;
        cpl = 3;
        break;
      case Wrong::debug_extension:
        save.cr4 |= cr4::de;
        break;
      case Wrong::operand:
      case Wrong::no_svme:
        break;
    }
  }
};

constexpr unsigned ud = 6;
constexpr unsigned gp = 13;

const Row rows[] = {
    {"HLT: #GP first", make(K::hlt), Wrong::user, gp, I::hlt},
    {"idle HLT: #GP first", make(K::hlt), Wrong::user, gp, I::idle_hlt},
    {"all exceptions first", make(K::rdtsc), Wrong::user_tsd, gp, I::rdtsc},
    {"all exceptions first", make(K::rdtscp), Wrong::user_tsd, gp, I::rdtscp},
    {"all exceptions first", make(K::rdpmc), Wrong::user_no_pce, gp, I::rdpmc},
    {"all exceptions first", make(K::rdpmc, 6), Wrong::operand, gp, I::rdpmc},
    {"all exceptions first", make(K::rdpru), Wrong::user_tsd, ud, I::rdpru},
    {"all exceptions first", make(K::invlpg), Wrong::user, gp, I::invlpg},
    {"all exceptions first", make(K::invlpga), Wrong::user, gp, I::invlpga},
    {"all exceptions first", make(K::invlpga), Wrong::no_svme, ud, I::invlpga},
    {"all exceptions first", make(K::invlpga), Wrong::real_mode, ud, I::invlpga},
    {"all exceptions first", make(K::monitor), Wrong::user, ud, I::monitor},
    {"all exceptions first", make(K::monitor, 0, 1), Wrong::operand, gp, I::monitor},
    {"all exceptions first", make(K::monitorx, 0, 1), Wrong::operand, gp, I::monitor},
    {"all exceptions first", make(K::mwait), Wrong::user, ud, I::mwait},
    {"all exceptions first", make(K::mwait, 0, 0, 2), Wrong::operand, gp, I::mwait},
    {"all exceptions first", make(K::mwaitx, 0, 0, 4), Wrong::operand, gp, I::mwait},
    {"MONITORX at any CPL", make(K::monitorx), Wrong::user, none, I::monitor},
    {"MWAITX at any CPL", make(K::mwaitx, 0, 0, 3), Wrong::user, none, I::mwait},
    {"RDTSCP at any CPL", make(K::rdtscp), Wrong::user, none, I::rdtscp},
    {"RDPMC with CR4.PCE", make(K::rdpmc), Wrong::user, none, I::rdpmc},

    {"CR: exceptions first", make(K::mov_from_cr, 0), Wrong::user, gp, I::read_cr0},
    {"CR: exceptions first", make(K::mov_from_cr, 3), Wrong::user, gp, I::read_cr3},
    {"CR: exceptions first", make(K::mov_from_cr, 8), Wrong::user, gp, I::read_cr8},
    {"CR: exceptions first", make(K::mov_from_cr, 1), Wrong::operand, ud, I::read_cr1},
    {"CR: exceptions first", make(K::mov_from_cr, 15), Wrong::operand, ud, I::read_cr15},
    {"CR: exceptions first", make(K::mov_to_cr, 9), Wrong::operand, ud, I::write_cr9},
    {"CR: exceptions first", make(K::mov_to_cr, 0, 0x8000'0031), Wrong::user, gp, I::write_cr0},
    {"CR: exceptions first", make(K::mov_to_cr, 0, 0x8000'0030), Wrong::operand, gp, I::write_cr0},
    {"CR: exceptions first", make(K::mov_to_cr, 0, 0x8000'0030), Wrong::operand, gp, I::cr0_sel_write},
    {"CR: exceptions first", make(K::mov_to_cr, 3, std::uint64_t{1} << 52), Wrong::operand, gp, I::write_cr3},
    {"CR: exceptions first", make(K::mov_to_cr, 4, 0), Wrong::operand, gp, I::write_cr4},
    {"CR: exceptions first", make(K::mov_to_cr, 8, 0x10), Wrong::operand, gp, I::write_cr8},
    {"CR: exceptions first", make(K::clts), Wrong::user, gp, I::write_cr0},
    {"CR: exceptions first", make(K::lmsw), Wrong::user, gp, I::write_cr0},
    {"CR: exceptions first", make(K::smsw), Wrong::user_umip, gp, I::read_cr0},
    {"SMSW at any CPL", make(K::smsw), Wrong::user, none, I::read_cr0},
    {"DR: exceptions first", make(K::mov_from_dr, 0), Wrong::user, gp, I::read_dr0},
    {"DR: exceptions first", make(K::mov_to_dr, 7), Wrong::user, gp, I::write_dr7},
    {"DR: exceptions first", make(K::mov_from_dr, 8), Wrong::operand, ud, I::read_dr8},
    {"DR: exceptions first", make(K::mov_from_dr, 4), Wrong::debug_extension, ud, I::read_dr4},
    {"DR: exceptions first", make(K::mov_to_dr, 5), Wrong::debug_extension, ud, I::write_dr5},
    {"DR: exceptions first", make(K::mov_to_dr, 6, std::uint64_t{1} << 32), Wrong::operand, gp, I::write_dr6},
    {"DR: exceptions first", make(K::mov_to_dr, 7, std::uint64_t{1} << 32), Wrong::operand, gp, I::write_dr7},

    {"descriptor tables: #GP first", make(K::lidt, 0, 0, 0x9000), Wrong::user, gp, I::idtr_write},
    {"descriptor tables: #GP first", make(K::lgdt, 0, 0, 0x9000), Wrong::user, gp, I::gdtr_write},
    {"descriptor tables: #GP first", make(K::lldt), Wrong::user, gp, I::ldtr_write},
    {"descriptor tables: #GP first", make(K::ltr), Wrong::user, gp, I::tr_write},
    {"descriptor tables: #UD first", make(K::lldt), Wrong::v86, ud, I::ldtr_write},
    {"descriptor tables: #UD first", make(K::ltr), Wrong::real_mode, ud, I::tr_write},
    {"descriptor tables: #UD first", make(K::sldt), Wrong::real_mode, ud, I::ldtr_read},
    {"descriptor tables: #UD first", make(K::str), Wrong::v86, ud, I::tr_read},
    {"descriptor tables: #GP first", make(K::sidt, 0, 0, 0x9000), Wrong::user_umip, gp, I::idtr_read},
    {"descriptor tables: #GP first", make(K::sgdt, 0, 0, 0x9000), Wrong::user_umip, gp, I::gdtr_read},
    {"descriptor tables: #GP first", make(K::sldt), Wrong::user_umip, gp, I::ldtr_read},
    {"descriptor tables: #GP first", make(K::str), Wrong::user_umip, gp, I::tr_read},
    {"SIDT at any CPL", make(K::sidt, 0, 0, 0x9000), Wrong::user, none, I::idtr_read},
    {"LTR: the selector behind the intercept", make(K::ltr, 0, 3), Wrong::operand, none, I::tr_write, gp},
    {"LTR: the selector behind the intercept", make(K::ltr, 0, 0x44), Wrong::operand, none, I::tr_write, gp},
    {"LLDT: the selector behind the intercept", make(K::lldt, 0, 0x44), Wrong::operand, none, I::ldtr_write,
     gp},
    {"LIDT: the base behind the intercept", make(K::lidt, 0, std::uint64_t{1} << 47, 0x9000), Wrong::operand,
     none, I::idtr_write, gp},

    {"intercept first", make(K::pushf), Wrong::v86, none, I::pushf, gp},
    {"intercept first", make(K::popf), Wrong::v86, none, I::popf, gp},
    {"intercept first", make(K::int_n, 0x80), Wrong::v86, none, I::swint, gp},
    {"intercept first", make(K::int_n, 0x20), Wrong::user, none, I::swint, gp},
    {"intercept first", make(K::cpuid), Wrong::user, none, I::cpuid},
    {"intercept first", make(K::iret), Wrong::user, none, I::iret},
    {"intercept first", make(K::rsm), Wrong::user, none, I::rsm, ud},
    {"intercept first", make(K::vmmcall), Wrong::user, none, I::vmmcall, ud},
    {"XSETBV: intercept before #GP", make(K::xsetbv, 0, 7), Wrong::user, none, I::xsetbv, gp},
    {"XSETBV: intercept before #GP", make(K::xsetbv, 1, 7), Wrong::operand, none, I::xsetbv, gp},
    {"XSETBV: intercept before #GP", make(K::xsetbv, 0, 6), Wrong::operand, none, I::xsetbv, gp},
    {"XSETBV: intercept before #GP", make(K::xsetbv, 0, 5), Wrong::operand, none, I::xsetbv, gp},
    {"XSETBV: intercept before #GP", make(K::xsetbv, 0, 0x27), Wrong::operand, none, I::xsetbv, gp},
    {"XSETBV: intercept before #GP", make(K::xsetbv, 0, 0xe3), Wrong::operand, none, I::xsetbv, gp},
    {"XSETBV: intercept before #GP", make(K::xsetbv, 0, 0x10007), Wrong::operand, none, I::xsetbv, gp},
    {"XSETBV: #UD first", make(K::xsetbv, 0, 7), Wrong::no_osxsave, ud, I::xsetbv},

    {"#GP first", make(K::invd), Wrong::user, gp, I::invd},
    {"#GP first", make(K::wbinvd), Wrong::user, gp, I::wbinvd},
    {"#GP first", make(K::wbnoinvd), Wrong::user, gp, I::wbinvd},
    {"#GP first", make(K::vmrun, 0, 0, 0x9000), Wrong::user, gp, I::vmrun},
    {"#GP first", make(K::vmload, 0, 0, 0x9000), Wrong::user, gp, I::vmload},
    {"#GP first", make(K::vmsave, 0, 0, 0x9000), Wrong::user, gp, I::vmsave},
    {"#GP first", make(K::stgi), Wrong::user, gp, I::stgi},
    {"#GP first", make(K::clgi), Wrong::user, gp, I::clgi},
    {"#GP first", make(K::skinit), Wrong::user, gp, I::skinit},
    {"#GP first", make(K::tlbsync), Wrong::user, gp, I::tlbsync},
    {"#UD first", make(K::vmrun, 0, 0, 0x9000), Wrong::no_svme, ud, I::vmrun},
    {"#UD first", make(K::vmload, 0, 0, 0x9000), Wrong::no_svme, ud, I::vmload},
    {"#UD first", make(K::vmsave, 0, 0, 0x9000), Wrong::no_svme, ud, I::vmsave},
    {"#UD first", make(K::clgi), Wrong::no_svme, ud, I::clgi},
    {"STGI and SKINIT exist with SKINIT alone", make(K::stgi), Wrong::no_svme, none, I::stgi},
    {"STGI and SKINIT exist with SKINIT alone", make(K::skinit), Wrong::no_svme, none, I::skinit},
    {"#UD first", make(K::vmrun, 0, 0, 0x9000), Wrong::real_mode, ud, I::vmrun},
    {"#UD first", make(K::vmload, 0, 0, 0x9000), Wrong::v86, ud, I::vmload},
    {"#UD first", make(K::stgi), Wrong::real_mode, ud, I::stgi},
    {"#UD first", make(K::clgi), Wrong::v86, ud, I::clgi},
    {"#UD first", make(K::skinit), Wrong::real_mode, ud, I::skinit},
    {"#UD first", make(K::mcommit), Wrong::no_mcommit, ud, I::mcommit},

    {"#GP of CPL first", make(K::invlpgb), Wrong::user, gp, I::invlpgb},
    {"#GP of CPL first", make(K::invpcid), Wrong::user, gp, I::invpcid},
    {"intercept before the rest", make(K::invlpgb, 0, 0x40), Wrong::operand, none, I::invlpgb, gp},
    {"intercept before the rest", make(K::invpcid, 4), Wrong::operand, none, I::invpcid, gp},
    {"intercept before the rest", make(K::invpcid, 2, 0x1000), Wrong::operand, none, I::invpcid, gp},
    {"intercept before the rest", make(K::invpcid, 1, 1), Wrong::operand, none, I::invpcid, gp},
    {"intercept before the rest", make(K::invpcid, 0, 0, std::uint64_t{1} << 47), Wrong::operand, none,
     I::invpcid, gp},

    {"IN and OUT: IOPL first", make(K::in, 0x80), Wrong::user_no_iopl, gp, I::ioio},
    {"IN and OUT: IOPL first", make(K::outs, 0x80), Wrong::user_no_iopl, gp, I::ioio},
    {"IN and OUT: the TSS bitmap first", make(K::out, 0x80), Wrong::v86, gp, I::ioio},
    {"IN and OUT: the TSS bitmap first", make(K::ins, 0x80), Wrong::v86, gp, I::ioio},
    {"MSRs: #GP of CPL first", make(K::rdmsr, 0x10), Wrong::user, gp, I::msr},
    {"MSRs: #GP of CPL first", make(K::wrmsr, 0x10), Wrong::user, gp, I::msr},
    {"PAUSE has no exceptions", make(K::pause), Wrong::user, none, I::pause},
    {"task switch: behind the checks", make(K::task_switch, 0x40), Wrong::operand, gp, I::task_switch},
};

}  // namespace

TEST_CASE("order of intercepts and exceptions") {
  for (const Row& row : rows) {
    CAPTURE(row.group);
    CAPTURE(action_name(row.action.kind));
    CAPTURE(row.action.number);
    CAPTURE(row.action.operand[0]);
    WrongGuest guest(row.wrong);
    guest.intercept(I::exception_6).intercept(I::exception_13).intercept(row.intercept);
    guest.environment.msr_map.fill(true);
    guest.environment.io_map.fill(true);
    REQUIRE(guest.enter().kind == StepKind::entered);
    // What VMRUN would refuse changes only now.
    if (row.wrong == Wrong::no_svme) guest.vmcb.save.efer &= ~efer::svme;
    REQUIRE(guest.run(row.action).kind == StepKind::vmexit);
    const bool exception = row.exception != none;
    CHECK(guest.exit_code() == (exception ? exit_code::exception(static_cast<std::uint8_t>(row.exception))
                                          : exit_code_of(row.intercept)));
    CHECK(guest.vmcb.control.next_rip == (exception ? 0 : guest_rip + row.action.length));
    CHECK(guest.exit_rip() == guest_rip);

    // Without the intercept.
    WrongGuest open(row.wrong);
    open.intercept(I::exception_6).intercept(I::exception_13);
    if (row.intercept == I::vmmcall) open.intercept(I::vmmcall, false);
    open.enter();
    if (row.wrong == Wrong::no_svme) open.vmcb.save.efer &= ~efer::svme;
    if (row.action.kind == K::vmrun && !exception) continue;
    const Step step = open.run(row.action);
    const unsigned expected = exception ? row.exception : row.otherwise;
    if (expected == none) {
      CHECK(step.kind != StepKind::vmexit);
    } else {
      REQUIRE(step.kind == StepKind::vmexit);
      CHECK(open.exit_code() == exit_code::exception(static_cast<std::uint8_t>(expected)));
    }
  }
}

TEST_CASE("without SVME and SKINIT, STGI and SKINIT are #UD") {
  for (const K kind : {K::stgi, K::skinit}) {
    Guest guest(all_but_avic().without(Extension::skinit));
    guest.intercept(I::exception_6).enter();
    guest.vmcb.save.efer &= ~efer::svme;
    guest.run(make(kind));
    CHECK(guest.exit_code() == exit_code::exception(6));
  }
}

TEST_CASE("an intercept comes before the memory operand is touched, and the memory before the effect") {
  struct Case {
    GuestAction action;
    Intercept intercept;
    bool write;
  };
  for (const Case& c : {Case{make(K::sidt, 0, 0, 0x9000), I::idtr_read, true},
                        Case{make(K::sgdt, 0, 0, 0x9000), I::gdtr_read, true},
                        Case{make(K::sldt, 0, 0, 0x9000), I::ldtr_read, true},
                        Case{make(K::str, 0, 0, 0x9000), I::tr_read, true},
                        Case{make(K::lidt, 0, 0x7000, 0x9000), I::idtr_write, false},
                        Case{make(K::lgdt, 0, 0x7000, 0x9000), I::gdtr_write, false},
                        Case{make(K::lldt, 0, 0x30, 0x9000), I::ldtr_write, false},
                        Case{make(K::ltr, 0, 0x30, 0x9000), I::tr_write, false},
                        Case{make(K::smsw, 0, 0, 0x9000), I::read_cr0, true},
                        Case{make(K::lmsw, 0, 0xf, 0x9000), I::write_cr0, false},
                        Case{make(K::lmsw, 0, 0xf, 0x9000), I::cr0_sel_write, false},
                        Case{make(K::monitor, 0, 0, 0x9000), I::monitor, false},
                        Case{make(K::ins, 0x80, 0, 0x9000), I::ioio, true},
                        Case{make(K::outs, 0x80, 0, 0x9000), I::ioio, false}}) {
    CAPTURE(action_name(c.action.kind));
    Guest guest;
    guest.environment.missing_pages.insert(9);
    guest.environment.io_map.fill(true);
    guest.intercept(c.intercept).enter();
    const VmcbSave before = guest.vmcb.save;
    guest.run(c.action);
    CHECK(guest.exit_code() == exit_code_of(c.intercept));

    guest.intercept(c.intercept, false).enter();
    CHECK(guest.run(c.action).kind == StepKind::vmexit);
    CHECK(guest.exit_code() == exit_code::npf);
    CHECK(guest.vmcb.control.exit_info_1 == (c.write ? 0x1'0000'0006 : 0x1'0000'0004));
    CHECK(guest.vmcb.control.exit_info_2 == 0x9000);
    CHECK(guest.vmcb.control.next_rip == 0);
    CHECK(guest.vmcb.save.idtr.base == before.idtr.base);
    CHECK(guest.vmcb.save.gdtr.base == before.gdtr.base);
    CHECK(guest.vmcb.save.cr0 == before.cr0);
    CHECK(guest.vmcb.save.tr.selector == 0);
    CHECK(guest.vmcb.save.ldtr.selector == 0);
    CHECK_FALSE(guest.cpu.monitor_armed());
    CHECK(guest.environment.ports.empty());
  }
}

TEST_CASE("at address 0, SLDT, STR, LLDT, LTR, SMSW and LMSW have a register operand, the tables memory") {
  for (const K kind :
       {K::sldt, K::str, K::lldt, K::ltr, K::smsw, K::lmsw, K::sidt, K::sgdt, K::lidt, K::lgdt}) {
    CAPTURE(action_name(kind));
    const bool memory = kind == K::sidt || kind == K::sgdt || kind == K::lidt || kind == K::lgdt;
    Guest guest;
    guest.environment.missing_pages.insert(0);
    guest.enter();
    CHECK(guest.run(make(kind, 0, 0x38)).kind == (memory ? StepKind::vmexit : StepKind::retired));
  }
}

TEST_CASE("RDPMC of a counter that the surroundings do not have is #GP(0)") {
  Guest guest;
  guest.environment.faulting_msrs.insert(0xc001'0004);
  guest.intercept(I::exception_13).enter();
  CHECK(guest.run(make(K::rdpmc, 0)).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::exception(13));
}
