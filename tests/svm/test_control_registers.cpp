// MOV CRn, CLTS, LMSW, the selective CR0 intercept, MOV DRn, EFER (APM vol.
// 2, 3.1, 13.1, 15.8, 15.9, 15.35.5).

#include <cstdint>
#include <string_view>

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

using K = ActionKind;
using I = Intercept;

constexpr std::uint64_t paging = cr0::pg | cr0::pe | cr0::wp;
constexpr std::uint64_t pae = cr4::pae;
constexpr std::uint16_t code_64 = 0x029b;
constexpr std::uint16_t code_32 = 0x0c9b;
constexpr std::uint64_t long_mode = efer::svme | efer::lme | efer::lma;

/// MOV to CRn in a state: legal or #GP(0).
struct Row {
  std::string_view rule;
  unsigned cr;
  std::uint64_t value;
  bool legal;
  std::uint64_t cr0 = paging;
  std::uint64_t cr4 = pae;
  std::uint64_t efer = long_mode;
  std::uint16_t cs = code_64;
  std::uint64_t cr3 = 0x1000;
};

const Row rows[] = {
    {"CR0 bits 63:32", 0, paging | std::uint64_t{1} << 32, false},
    {"CR0 bits 63:32", 0, paging | std::uint64_t{1} << 63, false},
    {"PG needs PE", 0, cr0::pg, false, 0, 0, efer::svme, code_32},
    {"PG needs PE", 0, cr0::pg | cr0::pe, true, 0, 0, efer::svme, code_32},
    {"NW needs CD", 0, paging | cr0::nw, false},
    {"NW needs CD", 0, paging | cr0::nw | cr0::cd, true},
    {"CD alone", 0, paging | cr0::cd, true},
    {"WP under CR4.CET", 0, cr0::pg | cr0::pe, false, paging, pae | cr4::cet},
    {"WP", 0, cr0::pg | cr0::pe, true},
    {"paging with LME needs PAE", 0, paging, false, cr0::pe, 0, efer::svme | efer::lme, code_32},
    {"paging with LME needs PAE", 0, paging, true, cr0::pe, pae, efer::svme | efer::lme, code_32},
    {"paging with LME needs CS.L = 0", 0, paging, false, cr0::pe, pae, efer::svme | efer::lme, code_64},
    {"64-bit mode keeps paging", 0, cr0::pe, false},
    {"compatibility mode may leave", 0, cr0::pe, true, paging, pae, long_mode, code_32},
    {"PCIDE keeps paging", 0, cr0::pe, false, paging, pae | cr4::pcide, long_mode, code_32},
    {"CR2 takes anything", 2, ~std::uint64_t{0}, true},
    {"CR3 beyond the physical addresses", 3, std::uint64_t{1} << 52, false},
    {"CR3 beyond the physical addresses", 3, std::uint64_t{1} << 51, true},
    {"CR3 bit 63 without PCIDE", 3, std::uint64_t{1} << 63 | 0x2000, false},
    {"CR3 bit 63 with PCIDE", 3, std::uint64_t{1} << 63 | 0x2000, true, paging, pae | cr4::pcide},
    {"CR4 reserved bits", 4, pae | 1U << 13, false},
    {"CR4 reserved bits", 4, pae | std::uint64_t{1} << 40, false},
    {"long mode keeps PAE", 4, 0, false},
    {"PAE outside of long mode", 4, 0, true, cr0::pe, pae, efer::svme, code_32},
    {"CET needs WP", 4, pae | cr4::cet, false, cr0::pg | cr0::pe},
    {"CET needs WP", 4, pae | cr4::cet, true},
    {"PCIDE needs long mode", 4, pae | cr4::pcide, false, cr0::pe, pae, efer::svme, code_32},
    {"PCIDE needs CR3[11:0] = 0", 4, pae | cr4::pcide, false, paging, pae, long_mode, code_64, 0x1018},
    {"PCIDE", 4, pae | cr4::pcide, true},
    {"PCIDE that is set already", 4, pae | cr4::pcide, true, paging, pae | cr4::pcide, long_mode, code_64,
     0x1018},
};

std::uint64_t& control_register(VmcbSave& save, unsigned number) {
  switch (number) {
    case 0:
      return save.cr0;
    case 2:
      return save.cr2;
    case 3:
      return save.cr3;
    default:
      return save.cr4;
  }
}

}  // namespace

TEST_CASE("MOV to CRn: what is legal is written, the rest is #GP(0), before the intercept") {
  for (const Row& row : rows) {
    CAPTURE(row.rule);
    CAPTURE(row.value);
    for (const bool intercepted : {false, true}) {
      Guest guest;
      guest.intercept(I::exception_13);
      const auto write = static_cast<Intercept>(static_cast<unsigned>(I::write_cr0) + row.cr);
      if (intercepted) guest.intercept(write);
      REQUIRE(guest.enter().kind == StepKind::entered);
      VmcbSave& save = guest.vmcb.save;
      save.cr0 = row.cr0;
      save.cr3 = row.cr3;
      save.cr4 = row.cr4;
      save.efer = row.efer;
      save.cs.attrib = row.cs;
      const std::uint64_t old = control_register(save, row.cr);
      const Step step = guest.run(make(K::mov_to_cr, row.cr, row.value));
      if (!row.legal) {
        CHECK(guest.exit_code() == exit_code::exception(13));
        CHECK(control_register(save, row.cr) == old);
      } else if (intercepted) {
        CHECK(guest.exit_code() == exit_code_of(write));
        CHECK(control_register(save, row.cr) == old);
      } else {
        CHECK(step.kind == StepKind::retired);
        const std::uint64_t no_flush = row.cr == 3 ? std::uint64_t{1} << 63 : 0;
        CHECK(control_register(save, row.cr) == (row.value & ~no_flush));
      }
    }
  }
}

TEST_CASE("CR4 bits that CPUID does not offer are reserved") {
  for (const Extension extension : {Extension::xsave, Extension::umip}) {
    const std::uint64_t bit = extension == Extension::xsave ? cr4::osxsave : cr4::umip;
    Guest guest(all_but_avic().without(extension));
    guest.intercept(I::exception_13).enter();
    guest.run(make(K::mov_to_cr, 4, pae | bit));
    CHECK(guest.exit_code() == exit_code::exception(13));
    Guest with;
    with.enter();
    CHECK(with.run(make(K::mov_to_cr, 4, pae | bit)).kind == StepKind::retired);
  }
}

TEST_CASE("outside of 64-bit mode a control register is written from 32 bits") {
  Guest guest;
  guest.enter();
  guest.vmcb.save.cs.attrib = code_32;
  CHECK(guest.run(make(K::mov_to_cr, 0, paging | std::uint64_t{1} << 40)).kind == StepKind::retired);
  CHECK(guest.vmcb.save.cr0 == paging);
}

TEST_CASE("EFER.LMA follows paging with EFER.LME") {
  Guest guest;
  guest.enter();
  VmcbSave& save = guest.vmcb.save;
  save.cs.attrib = code_32;
  guest.run(make(K::mov_to_cr, 0, cr0::pe));
  CHECK(save.efer == (efer::svme | efer::lme));
  guest.run(make(K::mov_to_cr, 0, paging));
  CHECK(save.efer == long_mode);
}

TEST_CASE(
    "selective CR0 write: MOV to CR0 is exempt for TS and MP, LMSW for TS, and the plain intercept wins") {
  struct Case {
    GuestAction action;
    bool selective;
    std::uint64_t cr0_after;
  };
  constexpr std::uint64_t et = 1U << 4;
  for (const Case& c :
       {Case{make(K::mov_to_cr, 0, paging), false, paging},
        Case{make(K::mov_to_cr, 0, paging | cr0::ts), false, paging | cr0::ts},
        Case{make(K::mov_to_cr, 0, paging | cr0::mp), false, paging | cr0::mp},
        Case{make(K::mov_to_cr, 0, paging | cr0::mp | cr0::ts), false, paging | cr0::mp | cr0::ts},
        Case{make(K::mov_to_cr, 0, paging | cr0::em), true, paging | cr0::em},
        Case{make(K::mov_to_cr, 0, paging | cr0::cd), true, paging | cr0::cd},
        Case{make(K::mov_to_cr, 0, paging | cr0::ne | cr0::ts), true, paging | cr0::ne | cr0::ts},
        Case{make(K::mov_to_cr, 0, paging | et), true, paging | et},
        Case{make(K::lmsw, 0, cr0::ts | cr0::pe), false, paging | cr0::ts},
        Case{make(K::lmsw, 0, 0), false, paging},  // cannot clear PE
        Case{make(K::lmsw, 0, cr0::mp), true, paging | cr0::mp},
        Case{make(K::lmsw, 0, cr0::em), true, paging | cr0::em},
        Case{make(K::lmsw, 0, 0xfff0), false, paging},  // only bits 3:0
        Case{make(K::clts), false, paging}}) {
    CAPTURE(action_name(c.action.kind));
    CAPTURE(c.action.operand[0]);
    Guest guest;
    guest.intercept(I::cr0_sel_write).enter();
    const Step step = guest.run(c.action);
    if (c.selective) {
      CHECK(guest.exit_code() == exit_code::cr0_sel_write);
      CHECK(guest.vmcb.save.cr0 == paging);
    } else {
      CHECK(step.kind == StepKind::retired);
      CHECK(guest.vmcb.save.cr0 == c.cr0_after);
    }
    Guest open;
    open.enter();
    open.run(c.action);
    CHECK(open.vmcb.save.cr0 == c.cr0_after);

    Guest both;
    both.intercept(I::cr0_sel_write).intercept(I::write_cr0).enter();
    both.run(c.action);
    CHECK(both.exit_code() == exit_code::write_cr0);
  }
  Guest clears;
  clears.vmcb.save.cr0 |= cr0::ts | cr0::mp | cr0::em;
  clears.enter();
  clears.run(make(K::clts));
  CHECK(clears.vmcb.save.cr0 == (paging | cr0::mp | cr0::em));
  clears.run(make(K::lmsw, 0, cr0::ts));
  CHECK(clears.vmcb.save.cr0 == (paging | cr0::ts));
}

TEST_CASE("DR7.GD: every MOV DR is #DB with DR6.BD, and the handler may use the registers") {
  for (const K kind : {K::mov_from_dr, K::mov_to_dr}) {
    Guest guest;
    guest.vmcb.save.dr7 |= dr7::gd;
    guest.intercept(I::read_dr0).intercept(I::write_dr0).intercept(I::exception_1).enter();
    guest.run(make(kind, 0));
    CHECK(guest.exit_code() == exit_code::exception(1));
    CHECK((guest.vmcb.save.dr6 & dr6::bd) != 0);

    Guest open;
    open.vmcb.save.dr7 |= dr7::gd;
    open.enter();
    const Step step = open.run(make(kind, 0));
    CHECK(step.kind == StepKind::delivered);
    CHECK(step.vector == 1);
    CHECK(open.run(make(kind, 0)).kind == StepKind::retired);
  }
}

TEST_CASE("DR4 and DR5 are DR6 and DR7; DR0 to DR3 are shared with the host") {
  Guest guest;
  guest.cpu.set_debug_register(2, 0x1234);
  guest.enter();
  CHECK(guest.run(make(K::mov_from_dr, 2)).result == 0x1234);
  guest.run(make(K::mov_to_dr, 3, 0x5678));
  CHECK(guest.cpu.debug_register(3) == 0x5678);
  guest.run(make(K::mov_to_dr, 5, 0x1'0000));
  CHECK(guest.vmcb.save.dr7 == 0x1'0400);
  CHECK(guest.run(make(K::mov_from_dr, 7)).result == 0x1'0400);
  guest.run(make(K::mov_to_dr, 4, 0xf));
  CHECK(guest.vmcb.save.dr6 == 0xffff'0fff);
}

TEST_CASE("an instruction breakpoint comes before the intercept of its instruction (15.9)") {
  struct Case {
    std::uint64_t dr7;
    std::uint64_t address;
    bool hit;
  };
  for (const Case& c : {Case{0x1, guest_rip, true}, Case{0x2, guest_rip, true}, Case{0x4, guest_rip, false},
                        Case{0x1, guest_rip + 1, false}, Case{0x1'0001, guest_rip, false},
                        Case{0x3'0001, guest_rip, false}}) {
    CAPTURE(c.dr7);
    Guest guest;
    guest.vmcb.save.dr7 = 0x400 | c.dr7;
    guest.cpu.set_debug_register(0, c.address);
    guest.cpu.set_debug_register(1, 0);
    guest.intercept(I::cpuid).intercept(I::exception_1).enter();
    guest.run(make(K::cpuid));
    CHECK(guest.exit_code() == (c.hit ? exit_code::exception(1) : exit_code::cpuid));
    if (c.hit) CHECK((guest.vmcb.save.dr6 & 0xf) == 1);
  }
  // RFLAGS.RF: seen already; it is used up by the instruction.
  Guest resumed;
  resumed.vmcb.save.dr7 = 0x408;
  resumed.vmcb.save.rflags |= rflags::resume;
  resumed.cpu.set_debug_register(1, guest_rip);
  resumed.intercept(I::exception_1).enter();
  CHECK(resumed.run(make(K::nop)).kind == StepKind::retired);
  resumed.cpu.set_rip(guest_rip);
  CHECK(resumed.run(make(K::nop)).kind == StepKind::vmexit);
  CHECK((resumed.vmcb.save.dr6 & 0xf) == 2);
}

TEST_CASE("EFER is the VMCB's: reads, legal writes and #GP(0)") {
  struct Case {
    std::uint64_t value;
    bool legal;
    std::uint64_t after;
    bool paged = true;
  };
  for (const Case& c :
       {Case{long_mode | efer::sce, true, long_mode | efer::sce},
        Case{long_mode | efer::nxe, true, long_mode | efer::nxe},
        Case{efer::svme | efer::lme, true, long_mode},   // LMA keeps its value
        Case{efer::svme | efer::lma, false, long_mode},  // LME while paging
        Case{long_mode | 1U << 9, false, long_mode},
        Case{long_mode | std::uint64_t{1} << 40, false, long_mode}, Case{efer::svme, true, efer::svme, false},
        Case{efer::svme | efer::lma, true, efer::svme, false}}) {
    CAPTURE(c.value);
    Guest guest;
    guest.intercept(I::exception_13).enter();
    if (!c.paged) {
      guest.vmcb.save.cr0 = cr0::pe;
      guest.vmcb.save.efer = efer::svme | efer::lme;
    }
    const Step step = guest.run(make(K::wrmsr, 0xc000'0080, c.value));
    CHECK(step.kind == (c.legal ? StepKind::retired : StepKind::vmexit));
    CHECK(guest.vmcb.save.efer == c.after);
    if (c.legal) CHECK(guest.run(make(K::rdmsr, 0xc000'0080)).result == c.after);
  }
  ProcessorLimits limits;
  limits.long_mode = false;
  Guest guest(all_but_avic(), {}, limits);
  guest.vmcb.save.efer = efer::svme;
  guest.vmcb.save.cr0 = cr0::pe;
  guest.vmcb.save.cs.attrib = code_32;
  guest.intercept(I::exception_13);
  REQUIRE(guest.enter().kind == StepKind::entered);
  guest.run(make(K::wrmsr, 0xc000'0080, efer::svme | efer::lme));
  CHECK(guest.exit_code() == exit_code::exception(13));
}

TEST_CASE(
    "write traps of EFER and CRn are SEV-ES guests' only, come after the write, and carry the new value") {
  struct Case {
    GuestAction action;
    Intercept trap;
    std::uint64_t value;
  };
  for (const Case& c :
       {Case{make(K::wrmsr, 0xc000'0080, long_mode | efer::nxe), I::efer_write_trap, long_mode | efer::nxe},
        Case{make(K::mov_to_cr, 0, paging | cr0::ts), I::cr0_write_trap, paging | cr0::ts},
        Case{make(K::clts), I::cr0_write_trap, paging},
        Case{make(K::mov_to_cr, 2, 0x99), I::cr2_write_trap, 0x99},
        Case{make(K::mov_to_cr, 3, 0x3000), I::cr3_write_trap, 0x3000},
        Case{make(K::mov_to_cr, 4, pae | cr4::tsd), I::cr4_write_trap, pae | cr4::tsd},
        Case{make(K::mov_to_cr8, 0, 5), I::cr8_write_trap, 5}}) {
    CAPTURE(intercept_name(c.trap));
    for (const bool sev_es : {false, true}) {
      ProcessorLimits limits;
      limits.sev = true;
      limits.max_encrypted_asid = 100;
      Guest guest(all_but_avic(), {}, limits);
      if (sev_es) guest.vmcb.control.nested_ctl |= nested_ctl::sev_enable | nested_ctl::sev_es_enable;
      guest.control_bits(int_ctl::v_intr_masking);
      for (std::uint32_t& bits : guest.vmcb.control.intercepts)
        bits = 0;
      guest.intercept(I::vmrun).intercept(c.trap);
      REQUIRE(guest.enter().kind == StepKind::entered);
      const Step step = guest.run(c.action);
      CHECK(step.kind == (sev_es ? StepKind::vmexit : StepKind::retired));
      if (!sev_es) continue;
      CHECK(guest.exit_code() == exit_code_of(c.trap));
      CHECK(guest.vmcb.control.exit_info_1 == c.value);
      CHECK(guest.exit_rip() == guest_rip + c.action.length);
      CHECK(guest.vmcb.control.next_rip == 0);
    }
  }
}

TEST_CASE("the guest's TSC is the host's times TSC_RATIO plus TSC_OFFSET (15.30.5)") {
  struct Case {
    std::uint64_t ratio;
    std::uint64_t tsc;
    std::uint64_t expected;
  };
  for (const Case& c : {Case{std::uint64_t{1} << 32, 1000, 1007}, Case{std::uint64_t{2} << 32, 1000, 2007},
                        Case{std::uint64_t{1} << 31, 1001, 507},
                        Case{std::uint64_t{3} << 31, 1'000'000'000'000, 1'500'000'000'007},
                        Case{std::uint64_t{255} << 32, 3, 772},
                        Case{0x1'8000'0000, 0xffff'ffff'0000'0000, 0x7fff'fffe'8000'0007},
                        Case{0x6'8db8, 1'000'000, 106}}) {  // 0.0001, rounded down
    CAPTURE(c.ratio);
    Guest guest;
    guest.environment.ratio = c.ratio;
    guest.environment.tsc = c.tsc;
    guest.vmcb.control.tsc_offset = 7;
    guest.enter();
    CHECK(guest.run(make(K::rdtsc)).result == c.expected);
    CHECK(guest.run(make(K::rdtscp)).result == c.expected);
    CHECK(guest.run(make(K::rdmsr, 0x10)).result == c.expected);

    Guest without(all_but_avic().without(Feature::tsc_rate_msr));
    without.environment.ratio = c.ratio;
    without.environment.tsc = c.tsc;
    without.enter();
    CHECK(without.run(make(K::rdtsc)).result == c.tsc);
  }
}
