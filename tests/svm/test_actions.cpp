#include <vector>

#include <doctest/doctest.h>

#include "svm/user_error.hpp"
#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

void check_exit(Guest& guest, std::uint64_t code, std::uint64_t info_1, std::uint64_t info_2,
                std::uint64_t next_rip) {
  CHECK(guest.exit_code() == code);
  CHECK(guest.vmcb.control.exit_info_1 == info_1);
  CHECK(guest.vmcb.control.exit_info_2 == info_2);
  CHECK(guest.vmcb.control.next_rip == next_rip);
  CHECK(guest.exit_rip() == guest_rip);
  CHECK_FALSE(guest.cpu.gif());
  CHECK_FALSE(guest.cpu.in_guest_mode());
}

}  // namespace

TEST_CASE("instruction intercepts exit with their code, rIP at the instruction, nRIP behind it") {
  struct Case {
    ActionKind kind;
    Intercept intercept;
  };
  for (const Case& c :
       {Case{ActionKind::cpuid, Intercept::cpuid}, Case{ActionKind::rdtsc, Intercept::rdtsc},
        Case{ActionKind::vmmcall, Intercept::vmmcall}, Case{ActionKind::iret, Intercept::iret},
        Case{ActionKind::pause, Intercept::pause}, Case{ActionKind::hlt, Intercept::hlt}}) {
    CAPTURE(intercept_name(c.intercept));
    Guest guest;
    guest.intercept(c.intercept);
    CHECK(guest.enter().kind == StepKind::entered);
    CHECK(guest.cpu.gif());
    CHECK(guest.execute(c.kind).kind == StepKind::vmexit);
    check_exit(guest, exit_code_of(c.intercept), 0, 0, guest_rip + 2);
  }
}

TEST_CASE("without NRIPS the CPU leaves nRIP alone") {
  Guest guest(all_but_avic().without(Feature::nrips));
  guest.vmcb.control.next_rip = 0x1234;
  guest.intercept(Intercept::cpuid).enter();
  guest.execute(ActionKind::cpuid);
  CHECK(guest.vmcb.control.next_rip == 0x1234);
}

TEST_CASE("CPUID, VMMCALL and IRET are intercepted before any privilege check") {
  for (const ActionKind kind : {ActionKind::cpuid, ActionKind::vmmcall, ActionKind::iret}) {
    Guest guest;
    guest.intercept(Intercept::cpuid).intercept(Intercept::iret).intercept(Intercept::exception_13);
    guest.cpl = 3;
    guest.enter();
    guest.execute(kind);
    CHECK(guest.exit_code() != exit_code::exception(13));
    CHECK(guest.vmcb.save.cpl == 3);
  }
}

TEST_CASE("VMMCALL without its intercept is an invalid opcode") {
  Guest guest;
  guest.intercept(Intercept::vmmcall, false).enter();
  const Step step = guest.execute(ActionKind::vmmcall);
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 6);
  guest.execute(ActionKind::iret);
  CHECK(guest.cpu.rip() == guest_rip);  // a fault

  Guest intercepting;
  intercepting.intercept(Intercept::vmmcall, false).intercept(Intercept::exception_6).enter();
  intercepting.execute(ActionKind::vmmcall);
  check_exit(intercepting, exit_code::exception(6), 0, 0, 0);
}

TEST_CASE("RDMSR and WRMSR follow the MSRPM bit of their direction") {
  for (const std::uint32_t msr :
       {0x0U, 0x830U, 0x1fffU, 0xc0000081U, 0xc0001fffU, 0xc0010000U, 0xc0011fffU}) {
    for (const bool write : {false, true}) {
      for (const bool bit : {false, true}) {
        CAPTURE(msr);
        CAPTURE(write);
        Guest guest;
        guest.intercept(Intercept::msr);
        // The other direction's bit is the opposite one: it must not matter.
        guest.environment.msr_map.set(msr, write ? !bit : bit, write ? bit : !bit);
        guest.environment.msrs[msr] = 0x1122'3344'5566'7788;
        guest.enter();
        const Step step = guest.execute(write ? ActionKind::wrmsr : ActionKind::rdmsr, msr, 0x99);
        if (bit) {
          CHECK(step.kind == StepKind::vmexit);
          check_exit(guest, exit_code::msr, write ? 1 : 0, 0, guest_rip + 2);
          CHECK(guest.environment.msrs[msr] == 0x1122'3344'5566'7788);
        } else {
          CHECK(step.kind == StepKind::retired);
          if (write) {
            CHECK(guest.environment.msrs[msr] == 0x99);
          } else {
            CHECK(step.result == 0x1122'3344'5566'7788);
          }
        }
      }
    }
  }
}

TEST_CASE("MSRs outside the map exit even if the map is empty, unless MSR_PROT is clear") {
  for (const std::uint32_t msr : {0x2000U, 0x4b564d04U, 0xc0002000U, 0xc0012000U}) {
    Guest guest;
    guest.intercept(Intercept::msr).enter();
    CHECK(guest.execute(ActionKind::wrmsr, msr, 1).kind == StepKind::vmexit);
    CHECK(guest.exit_code() == exit_code::msr);

    Guest open;
    open.environment.msr_map.fill(true);
    open.enter();
    CHECK(open.execute(ActionKind::wrmsr, msr, 1).kind == StepKind::retired);
  }
}

TEST_CASE("order for MSRs: CPL, then the MSRPM, then what is wrong with the MSR") {
  Guest user;
  user.intercept(Intercept::msr).intercept(Intercept::exception_13);
  user.environment.msr_map.fill(true);
  user.cpl = 3;
  user.enter();
  user.execute(ActionKind::rdmsr, 0x830);
  check_exit(user, exit_code::exception(13), 0, 0, 0);

  Guest faulting;
  faulting.intercept(Intercept::msr).intercept(Intercept::exception_13);
  faulting.environment.msr_map.set(0x830, true, true);
  faulting.environment.faulting_msrs.insert(0x830);
  faulting.enter();
  faulting.execute(ActionKind::wrmsr, 0x830, 1);
  CHECK(faulting.exit_code() == exit_code::msr);
  faulting.environment.msr_map.set(0x830, false, false);
  for (const ActionKind kind : {ActionKind::rdmsr, ActionKind::wrmsr}) {
    faulting.enter();
    faulting.execute(kind, 0x830, 1);
    CHECK(faulting.exit_code() == exit_code::exception(13));
  }
}

TEST_CASE("the permission maps are looked up at their base without its low 12 bits") {
  Guest guest;
  guest.intercept(Intercept::msr).intercept(Intercept::ioio);
  guest.vmcb.control.msrpm_base_pa = 0x20fff;
  guest.vmcb.control.iopm_base_pa = 0x10123;
  guest.enter();
  guest.execute(ActionKind::rdmsr, 0x10);
  guest.execute(ActionKind::in, 0x71, 0, 1);
  CHECK(guest.environment.maps_asked == std::vector<std::uint64_t>{0x20000, 0x10000});
}

TEST_CASE("the guest's TSC is the host's plus TSC_OFFSET, by RDTSC and by RDMSR") {
  Guest guest;
  guest.environment.tsc = 1000;
  guest.vmcb.control.tsc_offset = static_cast<std::uint64_t>(-400);
  guest.enter();
  CHECK(guest.execute(ActionKind::rdtsc).result == 600);
  CHECK(guest.execute(ActionKind::rdmsr, 0x10).result == 600);
}

TEST_CASE("RDTSC at CPL 3 with CR4.TSD is #GP(0) before the intercept") {
  Guest guest;
  guest.intercept(Intercept::rdtsc).intercept(Intercept::exception_13);
  guest.vmcb.save.cr4 |= cr4::tsd;
  guest.cpl = 3;
  guest.enter();
  guest.execute(ActionKind::rdtsc);
  CHECK(guest.exit_code() == exit_code::exception(13));
  guest.vmcb.save.cr4 &= ~cr4::tsd;
  guest.enter();
  guest.execute(ActionKind::rdtsc);
  CHECK(guest.exit_code() == exit_code::rdtsc);

  Guest kernel;
  kernel.vmcb.save.cr4 |= cr4::tsd;
  kernel.enter();
  CHECK(kernel.execute(ActionKind::rdtsc).kind == StepKind::retired);
}

TEST_CASE("EXITINFO of IN and OUT: direction, size, address size, port; EXITINFO2 is the next rIP") {
  struct Case {
    ActionKind kind;
    std::uint32_t port;
    std::uint8_t size;
    std::uint64_t info;
  };
  for (const Case& c : {Case{ActionKind::in, 0x71, 1, 0x710211}, Case{ActionKind::out, 0x80, 1, 0x800210},
                        Case{ActionKind::out, 0x3f8, 2, 0x3f80220}, Case{ActionKind::in, 0xcfc, 4, 0xcfc0241},
                        Case{ActionKind::in, 0xffff, 1, 0xffff0211}}) {
    CAPTURE(c.port);
    Guest guest;
    guest.intercept(Intercept::ioio);
    guest.environment.io_map.fill(true);
    guest.enter();
    CHECK(guest.execute(c.kind, c.port, 0, c.size).kind == StepKind::vmexit);
    check_exit(guest, exit_code::ioio, c.info, guest_rip + 2, guest_rip + 2);
  }
  // Address size of the code segment: 32-bit, then 16-bit.
  Guest guest;
  guest.intercept(Intercept::ioio);
  guest.environment.io_map.fill(true);
  guest.vmcb.save.cs.attrib = 0x0c9b;
  guest.enter();
  guest.execute(ActionKind::in, 0x71, 0, 1);
  CHECK(guest.vmcb.control.exit_info_1 == 0x710111);
  guest.vmcb.save.cs.attrib = 0x009b;
  guest.enter();
  guest.execute(ActionKind::in, 0x71, 0, 1);
  CHECK(guest.vmcb.control.exit_info_1 == 0x710091);
}

TEST_CASE("IN and OUT follow the IOPM: any covered port counts, across pages and beyond FFFFh") {
  struct Case {
    std::uint32_t set_bit;
    std::uint32_t port;
    std::uint8_t size;
    bool exits;
  };
  for (const Case& c :
       {Case{0x5000, 0x5000, 1, true}, Case{0x9000, 0x9000, 2, true}, Case{0x5000, 0x4fff, 4, true},
        Case{0x1234, 0x1233, 2, true}, Case{0x8000, 0x7fff, 4, true}, Case{0x9000, 0x7fff, 4, false},
        Case{0x10000, 0xffff, 4, true}, Case{0x0, 0xffff, 4, false}, Case{0x5000, 0x5001, 4, false}}) {
    CAPTURE(c.port);
    Guest guest;
    guest.intercept(Intercept::ioio);
    guest.environment.io_map.set(c.set_bit, true);
    guest.environment.ports[static_cast<std::uint16_t>(c.port)] = 0x5a;
    guest.enter();
    const Step step = guest.execute(ActionKind::in, c.port, 0, c.size);
    CHECK(step.kind == (c.exits ? StepKind::vmexit : StepKind::retired));
    if (!c.exits) CHECK(step.result == 0x5a);
  }
  Guest open;  // IOIO_PROT clear: the map says nothing
  open.environment.io_map.fill(true);
  open.enter();
  CHECK(open.execute(ActionKind::out, 0x80, 7, 1).kind == StepKind::retired);
  CHECK(open.environment.ports[0x80] == 7);
}

TEST_CASE("IN, OUT, CLI and STI above IOPL are #GP(0), before the IOPM") {
  for (const ActionKind kind : {ActionKind::in, ActionKind::out, ActionKind::cli, ActionKind::sti}) {
    for (const std::uint64_t iopl : {0U, 2U, 3U}) {
      Guest guest;
      guest.intercept(Intercept::ioio).intercept(Intercept::exception_13);
      guest.environment.io_map.fill(true);
      guest.vmcb.save.rflags |= iopl << rflags::iopl_shift;
      guest.cpl = 3;
      guest.enter();
      const Step step = guest.execute(kind, 0x80, 0, 1);
      if (iopl < 3) {
        CHECK(guest.exit_code() == exit_code::exception(13));
      } else if (kind == ActionKind::in || kind == ActionKind::out) {
        CHECK(guest.exit_code() == exit_code::ioio);
      } else {
        CHECK(step.kind == StepKind::retired);
      }
    }
  }
}

TEST_CASE("CPUID without the intercept gives EBX:EAX") {
  Guest guest;
  guest.enter();
  CHECK(guest.execute(ActionKind::cpuid, 7, 1).result == 0x1'0000'0007);
}

TEST_CASE("MOV CR8 reaches V_TPR under V_INTR_MASKING, and the exit saves it") {
  Guest guest;
  guest.control_bits(int_ctl::v_intr_masking | int_ctl::with_v_tpr(0, 3));
  guest.environment.msrs[0x808] = 0x70;
  guest.enter();
  CHECK(guest.execute(ActionKind::mov_from_cr8).result == 3);
  guest.execute(ActionKind::mov_to_cr8, 0, 0xf);
  CHECK(guest.cpu.v_tpr() == 0xf);
  CHECK(guest.environment.msrs[0x808] == 0x70);
  guest.execute(ActionKind::vmmcall);
  CHECK(int_ctl::v_tpr(guest.vmcb.control.int_ctl) == 0xf);
}

TEST_CASE("MOV CR8 without V_INTR_MASKING is the physical APIC's TPR, and V_TPR follows") {
  Guest guest;
  guest.environment.msrs[0x808] = 0x70;
  guest.enter();
  CHECK(guest.execute(ActionKind::mov_from_cr8).result == 7);
  guest.execute(ActionKind::mov_to_cr8, 0, 4);
  CHECK(guest.environment.msrs[0x808] == 0x40);
  CHECK(guest.cpu.v_tpr() == 4);
}

TEST_CASE("CR8 intercepts: exit 08h and 18h after the exceptions, EXITINFO1 with decode assists") {
  for (const bool write : {false, true}) {
    const ActionKind kind = write ? ActionKind::mov_to_cr8 : ActionKind::mov_from_cr8;
    for (const bool assists : {false, true}) {
      FeatureSet features = all_but_avic();
      features.set(Feature::decode_assists, assists);
      Guest guest(features);
      guest.control_bits(int_ctl::v_intr_masking);
      guest.intercept(Intercept::read_cr8).intercept(Intercept::write_cr8).enter();
      guest.execute(kind, 0, 5);
      check_exit(guest, write ? 0x18 : 0x08, assists ? std::uint64_t{1} << 63 : 0, 0, guest_rip + 2);
      CHECK(int_ctl::v_tpr(guest.vmcb.control.int_ctl) == 0);
    }
    Guest user;
    user.intercept(Intercept::read_cr8).intercept(Intercept::write_cr8).intercept(Intercept::exception_13);
    user.cpl = 3;
    user.enter();
    user.execute(kind);
    CHECK(user.exit_code() == exit_code::exception(13));
  }
  Guest reserved;
  reserved.intercept(Intercept::write_cr8).intercept(Intercept::exception_13).enter();
  reserved.execute(ActionKind::mov_to_cr8, 0, 0x10);
  CHECK(reserved.exit_code() == exit_code::exception(13));
}

TEST_CASE("a memory access that the nested tables do not allow exits with NPF and its address") {
  for (const bool write : {false, true}) {
    Guest guest;
    guest.environment.missing_pages.insert(0xfee00);
    guest.enter();
    const ActionKind kind = write ? ActionKind::memory_write : ActionKind::memory_read;
    CHECK(guest.execute(kind, 0, 0x1000, 4).kind == StepKind::retired);
    CHECK(guest.cpu.rip() == guest_rip + 2);
    guest.execute(kind, 0, 0xfee0'0300, 4);
    CHECK(guest.exit_code() == exit_code::npf);
    CHECK(guest.vmcb.control.exit_info_1 == (write ? 0x1'0000'0006 : 0x1'0000'0004));
    CHECK(guest.vmcb.control.exit_info_2 == 0xfee0'0300);
    CHECK(guest.vmcb.control.next_rip == 0);
    CHECK(guest.exit_rip() == guest_rip + 2);
  }
}

TEST_CASE(
    "a faulting instruction without an exception intercept runs the guest's handler with its error code") {
  Guest guest;
  guest.cpl = 3;
  guest.enter();
  const Step step = guest.execute(ActionKind::hlt);
  CHECK(step.kind == StepKind::delivered);
  CHECK(step.vector == 13);
  CHECK(guest.cpu.rip() == FakeEnvironment::handler(13));

  // The error code 0 of #GP shows in EXITINTINFO when the delivery is cut short.
  Guest faulting;
  faulting.cpl = 3;
  faulting.environment.missing_pages.insert(idt_base >> 12);
  faulting.enter();
  faulting.execute(ActionKind::hlt);
  CHECK(faulting.exit_code() == exit_code::npf);
  CHECK(faulting.vmcb.control.exit_int_info == 0x8000'0b0d);
}

TEST_CASE("an exit saves what the guest changed and nothing that is the hypervisor's") {
  Guest guest;
  guest.control_bits(int_ctl::v_intr_masking | int_ctl::v_ign_tpr);
  guest.vmcb.control.int_vector = 0x41;
  guest.vmcb.control.tlb_ctl = 3;
  guest.vmcb.control.clean = 0xff;
  guest.vmcb.control.int_state = int_state::guest_interrupt_mask;
  guest.vmcb.control.reserved_sw.fill(0x5a);
  guest.enter();
  const Vmcb before = guest.vmcb;
  guest.execute(ActionKind::sti);
  guest.execute(ActionKind::nop);
  guest.execute(ActionKind::vmmcall);
  CHECK(guest.vmcb.control.int_ctl == before.control.int_ctl);
  CHECK(guest.vmcb.control.int_vector == 0x41);
  CHECK(guest.vmcb.control.tlb_ctl == 3);
  CHECK(guest.vmcb.control.clean == 0xff);
  CHECK(guest.vmcb.control.asid == 1);
  CHECK(guest.vmcb.control.intercepts == before.control.intercepts);
  CHECK(guest.vmcb.control.int_state == int_state::guest_interrupt_mask);
  CHECK(guest.vmcb.control.reserved_sw == before.control.reserved_sw);
  CHECK(guest.vmcb.save.rip == guest_rip + 4);
  CHECK(guest.vmcb.save.rflags == (before.save.rflags | rflags::interrupt));
}

TEST_CASE("misuse is an internal error, not a crash") {
  Guest guest;
  CHECK_THROWS_AS(guest.execute(ActionKind::nop), svmsim::InternalError);
  CHECK_THROWS_AS(guest.boundary(), svmsim::InternalError);
  guest.enter();
  CHECK_THROWS_AS(guest.enter(), svmsim::InternalError);
  guest.execute(ActionKind::hlt);
  CHECK_THROWS_AS(guest.execute(ActionKind::nop), svmsim::InternalError);
}

TEST_CASE("an action stands where its rIP says: a jump since the last one shows in the exit") {
  Guest guest;
  guest.enter();
  guest.execute(ActionKind::nop);
  GuestAction jumped = guest.action(ActionKind::vmmcall);
  jumped.rip = guest_rip + 0x100;
  CHECK(guest.cpu.execute(jumped, guest.environment).kind == StepKind::vmexit);
  CHECK(guest.exit_rip() == guest_rip + 0x100);
  CHECK(guest.vmcb.control.next_rip == guest_rip + 0x102);
}

TEST_CASE("a driver that splits a compute action can end the shadow at its first instruction") {
  Guest guest;
  guest.v_irq(0x41);
  guest.enter();
  guest.step(ActionKind::sti);
  CHECK(guest.boundary().kind == StepKind::none);
  guest.cpu.end_shadow();
  CHECK(guest.boundary().kind == StepKind::delivered);
}
