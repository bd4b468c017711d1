// Every instruction intercept: its exit, its EXITINFO, nRIP, and what the instruction does without it. One
// row per rule; sections are those of APM vol. 2.

#include <cstdint>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

using K = ActionKind;
using I = Intercept;

constexpr std::uint64_t mov_flag = std::uint64_t{1} << 63;

enum class Without : std::uint8_t { retires, delivers, halts };

struct Row {
  std::string_view section;
  GuestAction action;
  Intercept intercept;
  std::uint64_t info_1 = 0;
  std::uint64_t info_2 = 0;
  Without without = Without::retires;
  std::uint64_t result = 0;  ///< of the retired action
};

GuestAction with_gpr(GuestAction action, std::uint8_t gpr) {
  action.gpr = gpr;
  return action;
}

ProcessorLimits limits_with_mcommit() {
  ProcessorLimits limits;
  limits.efer_reserved &= ~efer::mcommit;
  return limits;
}

/// State in which every instruction below is legal: CPL 0, OSXSAVE, MCOMMIT, INVLPGB in the guest.
struct ReadyGuest : Guest {
  explicit ReadyGuest(FeatureSet features = all_but_avic()) : Guest(features, {}, limits_with_mcommit()) {
    vmcb.save.efer |= efer::mcommit;
    vmcb.save.cr4 |= cr4::osxsave;
    vmcb.save.cr2 = 0x2222;
    vmcb.save.ldtr.selector = 0x28;
    vmcb.save.tr.selector = 0x40;
    vmcb.save.gdtr.base = gdt_base;
    vmcb.control.nested_ctl |= nested_ctl::invlpgb_enable;
    vmcb.control.tsc_offset = 5;
    environment.tsc = 1000;
    environment.msrs[0xe7] = 0x77;
    environment.msrs[0xe8] = 0x88;
    environment.msrs[0xc001'0006] = 0x66;
    environment.msrs[0xc001'020b] = 0xbb;
  }
};

std::vector<Row> rows() {
  const std::uint64_t cr0 = long_mode_vmcb().save.cr0;
  const std::uint64_t cr4 = long_mode_vmcb().save.cr4 | cr4::osxsave;
  return {
      {"15.8.1", with_gpr(make(K::mov_from_cr, 0), 3), I::read_cr0, mov_flag | 3, 0, Without::retires, cr0},
      {"15.8.1", with_gpr(make(K::mov_from_cr, 2), 4), I::read_cr2, mov_flag | 4, 0, Without::retires,
       0x2222},
      {"15.8.1", with_gpr(make(K::mov_from_cr, 3), 15), I::read_cr3, mov_flag | 15, 0, Without::retires,
       0x1000},
      {"15.8.1", make(K::mov_from_cr, 4), I::read_cr4, mov_flag, 0, Without::retires, cr4},
      {"15.8.1", with_gpr(make(K::mov_from_cr, 8), 2), I::read_cr8, mov_flag | 2},
      {"15.8.1", make(K::smsw), I::read_cr0, 0, 0, Without::retires, cr0},
      {"15.8.1", with_gpr(make(K::mov_to_cr, 0, 0x8000'0031), 1), I::write_cr0, mov_flag | 1},
      {"15.8.1", with_gpr(make(K::mov_to_cr, 2, 5), 1), I::write_cr2, mov_flag | 1},
      {"15.8.1", with_gpr(make(K::mov_to_cr, 3, 0x2000), 7), I::write_cr3, mov_flag | 7},
      {"15.8.1", make(K::mov_to_cr, 4, cr4), I::write_cr4, mov_flag},
      {"15.8.1", with_gpr(make(K::mov_to_cr, 8, 3), 9), I::write_cr8, mov_flag | 9},
      {"15.8.1", make(K::clts), I::write_cr0},
      {"15.8.1", make(K::lmsw, 0, 0xf), I::write_cr0},
      {"15.9", make(K::mov_to_cr, 0, 0xc000'0031), I::cr0_sel_write, mov_flag},
      {"15.9", make(K::lmsw, 0, 0x3), I::cr0_sel_write},
      {"15.8.2", with_gpr(make(K::mov_from_dr, 3), 5), I::read_dr3, 5},
      {"15.8.2", with_gpr(make(K::mov_from_dr, 4), 5), I::read_dr4, 5, 0, Without::retires, 0xffff'0ff0},
      {"15.8.2", make(K::mov_from_dr, 7), I::read_dr7, 0, 0, Without::retires, 0x400},
      {"15.8.2", with_gpr(make(K::mov_to_dr, 0, 0x77), 6), I::write_dr0, 6, 0, Without::retires, 0x77},
      {"15.8.2", make(K::mov_to_dr, 5, 0), I::write_dr5, 0, 0, Without::retires, 0x400},
      {"15.8.2", make(K::mov_to_dr, 6, 0), I::write_dr6, 0, 0, Without::retires, 0xffff'0ff0},

      {"15.9", make(K::sidt, 0, 0, 0x9000), I::idtr_read, 0, 0, Without::retires, idt_base},
      {"15.9", make(K::sgdt, 0, 0, 0x9000), I::gdtr_read, 0, 0, Without::retires, gdt_base},
      {"15.9", make(K::sldt), I::ldtr_read, 0, 0, Without::retires, 0x28},
      {"15.9", make(K::str), I::tr_read, 0, 0, Without::retires, 0x40},
      {"15.9", make(K::lidt, 0, 0x7000, 0x9000), I::idtr_write},
      {"15.9", make(K::lgdt, 0, 0x8000, 0x9000), I::gdtr_write},
      {"15.9", make(K::lldt, 0, 0x30), I::ldtr_write},
      {"15.9", make(K::ltr, 0, 0x48), I::tr_write},
      {"15.9", make(K::rdtsc), I::rdtsc, 0, 0, Without::retires, 1005},
      {"15.9", make(K::rdtscp), I::rdtscp, 0, 0, Without::retires, 1005},
      {"15.9", make(K::rdpmc, 2), I::rdpmc, 0, 0, Without::retires, 0x66},
      {"15.9", make(K::rdpmc, 5), I::rdpmc, 0, 0, Without::retires, 0xbb},
      {"15.9", make(K::rdpru, 0), I::rdpru, 0, 0, Without::retires, 0x77},
      {"15.9", make(K::rdpru, 1), I::rdpru, 0, 0, Without::retires, 0x88},
      {"15.9", make(K::rdpru, 2), I::rdpru, 0, 0, Without::retires, 0},
      {"15.9", make(K::pushf), I::pushf, 0, 0, Without::retires, rflags::always_one},
      {"15.9", make(K::popf, 0, 2), I::popf},
      {"15.9", make(K::rsm), I::rsm, 0, 0, Without::delivers, 6},
      {"15.9", make(K::iret), I::iret},
      {"15.9", make(K::cpuid, 7), I::cpuid, 0, 0, Without::retires, 7},
      {"15.9", make(K::int_n, 0x80), I::swint, 0x80, 0, Without::delivers, 0x80},
      {"15.9", make(K::icebp), I::icebp, 0, 0, Without::delivers, 1},
      {"15.9", make(K::invd), I::invd},
      {"15.9", make(K::wbinvd), I::wbinvd},
      {"15.9", make(K::wbnoinvd), I::wbinvd},
      {"15.9", make(K::pause), I::pause},
      {"15.9", make(K::hlt), I::hlt, 0, 0, Without::halts},
      {"15.9", make(K::invlpg, 0, 0, 0xabc000), I::invlpg, 0xabc000},
      {"15.9", make(K::invlpga, 1, 0, 0xabc000), I::invlpga},
      {"15.9", make(K::invpcid, 2), I::invpcid},
      {"15.9", make(K::invlpgb), I::invlpgb},
      {"15.9", make(K::tlbsync), I::tlbsync},
      {"15.9", make(K::mcommit), I::mcommit},
      {"15.9", make(K::monitor, 0, 0, 0x9000), I::monitor},
      {"15.9", make(K::monitorx, 0, 0, 0x9000), I::monitor},
      {"15.9", make(K::mwait), I::mwait},
      {"15.9", make(K::mwaitx), I::mwait},
      {"15.9", make(K::xsetbv, 0, 7), I::xsetbv},
      {"15.9", make(K::vmmcall), I::vmmcall, 0, 0, Without::delivers, 6},
      {"15.9", make(K::vmload, 0, 0, 0x9000), I::vmload},
      {"15.9", make(K::vmsave, 0, 0, 0x9000), I::vmsave},
      {"15.9", make(K::stgi), I::stgi},
      {"15.9", make(K::clgi), I::clgi},
      {"15.9", make(K::vmgexit), I::vmmcall, 0, 0, Without::delivers, 6},
  };
}

}  // namespace

TEST_CASE("an intercepted instruction exits with its code and EXITINFO, before it has done anything") {
  for (const Row& row : rows()) {
    CAPTURE(action_name(row.action.kind));
    CAPTURE(row.action.number);
    CAPTURE(row.section);
    ReadyGuest guest;
    guest.intercept(row.intercept);
    REQUIRE(guest.enter().kind == StepKind::entered);
    const VmcbSave before = guest.vmcb.save;
    REQUIRE(guest.run(row.action).kind == StepKind::vmexit);
    const VmcbControl& control = guest.vmcb.control;
    CHECK(control.exit_code == exit_code_of(row.intercept));
    CHECK(control.exit_info_1 == row.info_1);
    CHECK(control.exit_info_2 == row.info_2);
    CHECK(control.next_rip == guest_rip + row.action.length);
    CHECK(control.exit_int_info == 0);
    CHECK(guest.vmcb.save.rip == guest_rip);
    CHECK(guest.vmcb.save.cr0 == before.cr0);
    CHECK(guest.vmcb.save.cr2 == before.cr2);
    CHECK(guest.vmcb.save.cr3 == before.cr3);
    CHECK(guest.vmcb.save.idtr.base == before.idtr.base);
    CHECK(guest.vmcb.save.gdtr.base == before.gdtr.base);
    CHECK(guest.vmcb.save.tr.selector == before.tr.selector);
    CHECK(guest.vmcb.save.ldtr.selector == before.ldtr.selector);
    CHECK(guest.cpu.xcr0() == 1);
    CHECK(guest.cpu.debug_register(0) == 0);
    CHECK_FALSE(guest.cpu.monitor_armed());
    CHECK_FALSE(guest.cpu.gif());
  }
}

TEST_CASE("without decode assists EXITINFO1 of an instruction says nothing") {
  for (const Row& row : rows()) {
    CAPTURE(action_name(row.action.kind));
    ReadyGuest guest(all_but_avic().without(Feature::decode_assists));
    guest.intercept(row.intercept).enter();
    guest.run(row.action);
    CHECK(guest.exit_code() == exit_code_of(row.intercept));
    CHECK(guest.vmcb.control.exit_info_1 == 0);
  }
}

TEST_CASE("with its own intercept clear and all others set, the instruction runs in the guest") {
  for (const Row& row : rows()) {
    CAPTURE(action_name(row.action.kind));
    CAPTURE(row.action.number);
    ReadyGuest guest;
    for (std::size_t word = 0; word < 6; ++word)
      guest.vmcb.control.intercepts.at(word) = word == 2 ? 0 : 0xffff'ffff;
    guest.intercept(row.intercept, false);
    // Rows whose instruction has a second intercept.
    if (row.intercept == I::cr0_sel_write) guest.intercept(I::write_cr0, false);
    if (row.intercept == I::write_cr0) guest.intercept(I::cr0_sel_write, false);
    if (row.intercept == I::hlt) guest.intercept(I::idle_hlt, false);
    REQUIRE(guest.enter().kind == StepKind::entered);
    const Step step = guest.run(row.action);
    switch (row.without) {
      case Without::retires:
        CHECK(step.kind == StepKind::retired);
        CHECK(step.result == row.result);
        CHECK(guest.cpu.rip() == guest_rip + row.action.length);
        break;
      case Without::delivers:
        CHECK(step.kind == StepKind::delivered);
        CHECK(step.vector == row.result);
        break;
      case Without::halts:
        CHECK(step.kind == StepKind::halted);
        break;
    }
  }
}

TEST_CASE("VMRUN in the guest exits: its intercept cannot be clear (15.9, 15.5.1)") {
  Guest guest;
  guest.enter();
  CHECK(guest.run(make(K::vmrun, 0, 0, 0x9000)).kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::vmrun);
  CHECK(guest.vmcb.control.next_rip == guest_rip + 3);
}

TEST_CASE("effects of un-intercepted instructions on the state that the VMCB keeps") {
  ReadyGuest guest;
  guest.enter();
  const VmcbSave& save = guest.vmcb.save;
  GuestAction lidt = make(K::lidt, 0, 0x7000, 0x9000);
  lidt.operand[2] = 0x1ff;
  guest.run(lidt);
  CHECK(save.idtr.base == 0x7000);
  CHECK(save.idtr.limit == 0x1ff);
  guest.run(make(K::lgdt, 0, 0x8000, 0x9000));
  CHECK(save.gdtr.base == 0x8000);
  CHECK(save.gdtr.limit == 0);
  guest.run(make(K::lldt, 0, 0x30));
  CHECK(save.ldtr.selector == 0x30);
  CHECK(save.tr.selector == 0x40);
  guest.run(make(K::ltr, 0, 0x48));
  CHECK(save.tr.selector == 0x48);
  guest.run(make(K::mov_to_cr, 2, 0xdead));
  CHECK(save.cr2 == 0xdead);
  guest.run(make(K::mov_to_cr, 3, 0x3000));
  CHECK(save.cr3 == 0x3000);
  guest.run(make(K::mov_to_cr, 4, cr4::pae | cr4::tsd));
  CHECK(save.cr4 == (cr4::pae | cr4::tsd));
  guest.run(make(K::mov_to_dr, 6, 0xe00f));
  CHECK(save.dr6 == 0xffff'efff);
  guest.run(make(K::mov_to_dr, 7, 0x1'00aa));
  CHECK(save.dr7 == 0x1'04aa);
  guest.vmcb.save.dr7 = 0x400;
  guest.run(make(K::mcommit));
  CHECK((guest.cpu.rflags() & rflags::carry) != 0);
  guest.vmcb.save.cr4 |= cr4::osxsave;
  guest.run(make(K::xsetbv, 0, 0xe7));
  CHECK(guest.cpu.xcr0() == 0xe7);
}

TEST_CASE("instructions that only some processors have are #UD on the others, whatever the intercept says") {
  struct Case {
    Extension extension;
    GuestAction action;
    Intercept intercept;
  };
  for (const Case& c :
       {Case{Extension::rdtscp, make(K::rdtscp), I::rdtscp}, Case{Extension::rdpru, make(K::rdpru), I::rdpru},
        Case{Extension::invpcid, make(K::invpcid), I::invpcid},
        Case{Extension::mcommit, make(K::mcommit), I::mcommit},
        Case{Extension::invlpgb, make(K::invlpgb), I::invlpgb},
        Case{Extension::invlpgb, make(K::tlbsync), I::tlbsync},
        Case{Extension::monitor, make(K::monitor), I::monitor},
        Case{Extension::monitor, make(K::mwait), I::mwait},
        Case{Extension::monitorx, make(K::monitorx), I::monitor},
        Case{Extension::monitorx, make(K::mwaitx), I::mwait},
        Case{Extension::xsave, make(K::xsetbv, 0, 7), I::xsetbv}}) {
    CAPTURE(extension_name(c.extension));
    ReadyGuest guest(all_but_avic().without(c.extension));
    guest.intercept(c.intercept).intercept(I::exception_6).enter();
    guest.run(c.action);
    CHECK(guest.exit_code() == exit_code::exception(6));
  }
  // Their siblings do not care.
  ReadyGuest guest(all_but_avic().without(Extension::monitor).without(Extension::rdtscp));
  guest.enter();
  CHECK(guest.run(make(K::monitorx, 0, 0, 0x9000)).kind == StepKind::retired);
  CHECK(guest.run(make(K::rdtsc)).kind == StepKind::retired);
}

TEST_CASE("the TLBSYNC intercept exists only with TlbiCtl (15.9)") {
  ReadyGuest guest(all_but_avic().without(Feature::tlbi_ctl));
  guest.intercept(I::tlbsync).enter();
  CHECK(guest.run(make(K::tlbsync)).kind == StepKind::retired);
}

TEST_CASE(
    "INVLPGB: only illegal forms exit with A1h; without that intercept they are #GP; both need VMCB 090h bit "
    "7") {
  struct Case {
    std::uint64_t rax;
    std::uint64_t edx;
    std::uint8_t flags;
    bool illegal;
  };
  for (const Case& c : {Case{0x1001, 0, 0, false}, Case{0x1001, 0, action_flags::illegal_form, true},
                        Case{0x40, 0, 0, true}, Case{0x800, 0, 0, true}, Case{0x20, 0, 0, true},
                        Case{0x4, 1, 0, true}, Case{0x4, 0, 0, false}, Case{0x0, 1, 0, false}}) {
    CAPTURE(c.rax);
    GuestAction action = make(K::invlpgb, 0, c.rax, c.edx);
    action.flags = c.flags;
    ReadyGuest guest;
    guest.intercept(I::invlpgb_illegal).enter();
    const Step step = guest.run(action);
    CHECK(step.kind == (c.illegal ? StepKind::vmexit : StepKind::retired));
    if (c.illegal) CHECK(guest.exit_code() == exit_code::invlpgb_illegal);

    ReadyGuest open;
    open.intercept(I::exception_13).enter();
    CHECK(open.run(action).kind == (c.illegal ? StepKind::vmexit : StepKind::retired));
    if (c.illegal) CHECK(open.exit_code() == exit_code::exception(13));

    ReadyGuest all;
    all.intercept(I::invlpgb).intercept(I::invlpgb_illegal).enter();
    all.run(action);
    CHECK(all.exit_code() == exit_code::invlpgb);
  }
  for (const K kind : {K::invlpgb, K::tlbsync}) {
    ReadyGuest guest;
    guest.vmcb.control.nested_ctl = nested_ctl::np_enable;
    guest.intercept(I::invlpgb_illegal).intercept(I::exception_6).enter();
    guest.run(make(kind));
    CHECK(guest.exit_code() == exit_code::exception(6));
  }
}
