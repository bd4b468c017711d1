// SVM's own instructions in the guest: addresses, VMSAVE/VMLOAD virtualization, GIF, SKINIT, VMGEXIT, SEV-ES
// (APM vol. 2, 15.5.2, 15.17, 15.27, 15.33, 15.35).

#include <cstdint>

#include <doctest/doctest.h>

#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

using K = ActionKind;
using I = Intercept;

constexpr std::uint64_t page = 0x9000;

Vmcb loadable() {
  Vmcb vmcb{};
  VmcbSave& save = vmcb.save;
  save.fs.base = 0xf5;
  save.gs.base = std::uint64_t{1} << 47;  // not canonical
  save.tr.selector = 0x40;
  save.ldtr.selector = 0x28;
  save.kernel_gs_base = 0x0000'8000'0000'0001;
  save.star = 1;
  save.lstar = 2;
  save.cstar = 3;
  save.sfmask = 4;
  save.sysenter_cs = 5;
  save.sysenter_esp = 6;
  save.sysenter_eip = 7;
  save.rax = 0x77;
  return vmcb;
}

}  // namespace

TEST_CASE(
    "VMRUN, VMLOAD, VMSAVE with an address that no VMCB has: #GP, or an exit with NestedVirtVmcbAddrChk") {
  for (const K kind : {K::vmrun, K::vmload, K::vmsave}) {
    const Intercept intercept = kind == K::vmrun ? I::vmrun : (kind == K::vmload ? I::vmload : I::vmsave);
    for (const std::uint64_t address :
         {std::uint64_t{0x9001}, std::uint64_t{0x9800}, std::uint64_t{1} << 40}) {
      for (const bool checked : {false, true}) {
        CAPTURE(address);
        FeatureSet features = all_but_avic();
        features.set(Feature::nested_virt_vmcb_addr_chk, checked);
        ProcessorLimits limits;
        limits.physical_address_bits = 40;
        Guest guest(features, {}, limits);
        guest.intercept(I::exception_13).enter();
        REQUIRE(guest.run(make(kind, 0, 0, address)).kind == StepKind::vmexit);
        CHECK(guest.exit_code() == (checked ? exit_code_of(intercept) : exit_code::exception(13)));
      }
    }
    Guest last(all_but_avic().without(Feature::nested_virt_vmcb_addr_chk));
    last.intercept(I::exception_13).intercept(intercept).enter();
    last.run(make(kind, 0, 0, (std::uint64_t{1} << 52) - 0x1000));
    CHECK(last.exit_code() == exit_code_of(intercept));
  }
}

TEST_CASE("un-intercepted VMLOAD and VMSAVE move their state, bases canonical, and nothing else") {
  for (const bool virtualized : {false, true}) {
    Guest guest;
    if (virtualized) guest.vmcb.control.virt_ext = virt_ext::vls;
    guest.environment.vmcb_pages[page] = loadable();
    guest.enter();
    CHECK(guest.run(make(K::vmload, 0, 0, page)).kind == StepKind::retired);
    const VmcbSave& save = guest.vmcb.save;
    CHECK(save.fs.base == 0xf5);
    CHECK(save.gs.base == 0xffff'8000'0000'0000);
    CHECK(save.tr.selector == 0x40);
    CHECK(save.ldtr.selector == 0x28);
    CHECK(save.kernel_gs_base == 0xffff'8000'0000'0001);
    CHECK(save.star == 1);
    CHECK(save.lstar == 2);
    CHECK(save.cstar == 3);
    CHECK(save.sfmask == 4);
    CHECK(save.sysenter_cs == 5);
    CHECK(save.sysenter_esp == 6);
    CHECK(save.sysenter_eip == 7);
    CHECK(save.rax == 0);
    CHECK(save.gdtr.base == gdt_base);

    guest.vmcb.save.star = 0x11;
    guest.environment.vmcb_pages[page + 0x1000] = Vmcb{};
    CHECK(guest.run(make(K::vmsave, 0, 0, page + 0x1000)).kind == StepKind::retired);
    CHECK(guest.environment.vmcb_pages[page + 0x1000].save.star == 0x11);
    CHECK(guest.environment.vmcb_pages[page + 0x1000].save.sysenter_eip == 7);
    CHECK(guest.environment.vmcb_pages[page + 0x1000].save.cr3 == 0);
    CHECK(guest.run(make(K::vmload, 0, 0, 0x50000)).kind == StepKind::retired);  // no such page
    CHECK(guest.vmcb.save.star == 0x11);
  }
}

TEST_CASE(
    "VMSAVE/VMLOAD virtualization: a guest physical address, and an exit where it cannot work (15.33.1)") {
  for (const K kind : {K::vmload, K::vmsave}) {
    const Intercept intercept = kind == K::vmload ? I::vmload : I::vmsave;
    const GuestAction action = make(kind, 0, 0, page);
    Guest missing;
    missing.vmcb.control.virt_ext = virt_ext::vls;
    missing.environment.missing_pages.insert(page >> 12);
    missing.enter();
    CHECK(missing.run(action).kind == StepKind::vmexit);
    CHECK(missing.exit_code() == exit_code::npf);
    CHECK(missing.vmcb.control.exit_info_1 == (kind == K::vmload ? 0x1'0000'0004 : 0x1'0000'0006));
    CHECK(missing.vmcb.control.exit_info_2 == page);
    missing.intercept(intercept).enter();
    missing.run(action);
    CHECK(missing.exit_code() == exit_code_of(intercept));

    // Without the feature or the bit, rAX is a system physical address.
    for (const bool feature : {false, true}) {
      Guest plain(feature ? all_but_avic() : all_but_avic().without(Feature::vls));
      plain.vmcb.control.virt_ext = feature ? 0 : virt_ext::vls;
      plain.environment.missing_pages.insert(page >> 12);
      plain.enter();
      CHECK(plain.run(action).kind == StepKind::retired);
    }

    Guest shadow;
    shadow.vmcb.control.virt_ext = virt_ext::vls;
    shadow.vmcb.control.nested_ctl = 0;
    shadow.enter();
    CHECK(shadow.run(action).kind == StepKind::vmexit);
    CHECK(shadow.exit_code() == exit_code_of(intercept));

    ProcessorLimits limits;
    limits.sev = true;
    limits.max_encrypted_asid = 100;
    Guest encrypted(all_but_avic(), {}, limits);
    encrypted.vmcb.control.virt_ext = virt_ext::vls;
    encrypted.vmcb.control.nested_ctl |= nested_ctl::sev_enable;
    REQUIRE(encrypted.enter().kind == StepKind::entered);
    encrypted.run(action);
    CHECK(encrypted.exit_code() == exit_code_of(intercept));
  }
}

TEST_CASE("STGI and CLGI act on VGIF where it is enabled (15.33.2)") {
  Guest guest;
  guest.control_bits(int_ctl::v_gif_enable);
  guest.enter();
  guest.run(make(K::stgi));
  CHECK(guest.cpu.gif());
  guest.intercept(I::cpuid);
  guest.run(make(K::cpuid));
  CHECK(guest.saved(int_ctl::v_gif));
  guest.enter();
  guest.intercept(I::cpuid, false);
  guest.run(make(K::clgi));
  CHECK(guest.cpu.gif());
  guest.intercept(I::cpuid);
  guest.run(make(K::cpuid));
  CHECK_FALSE(guest.saved(int_ctl::v_gif));
}

TEST_CASE("without VGIF, un-intercepted CLGI and STGI act on the real GIF: events wait for STGI") {
  Guest guest;
  guest.intercept(I::intr).interrupts_enabled();
  guest.v_irq(0x41);
  guest.enter();
  guest.vmcb.control.int_ctl = 0;
  guest.run(make(K::clgi));
  CHECK_FALSE(guest.cpu.gif());
  guest.events.intr = true;
  CHECK(guest.boundary().kind == StepKind::none);
  guest.run(make(K::stgi));
  CHECK(guest.cpu.gif());
  CHECK(guest.boundary().kind == StepKind::vmexit);
  CHECK(guest.exit_code() == exit_code::intr);
}

TEST_CASE("SKINIT that nobody intercepts: flat protected mode at the SLB, GIF 0 (15.27)") {
  Guest guest;
  guest.interrupts_enabled().enter();
  CHECK(guest.run(make(K::skinit, 0x12'3456)).kind == StepKind::retired);
  CHECK(guest.cpu.rip() == 0x12'0000);
  CHECK_FALSE(guest.cpu.gif());
  CHECK(guest.vmcb.save.cr0 == 0x11);
  CHECK(guest.vmcb.save.efer == 0);
  CHECK(guest.cpu.rflags() == rflags::always_one);
}

TEST_CASE(
    "SEV-ES: automatic exits go to the host with rIP advanced, the others are #VC; VMGEXIT exits (15.35)") {
  struct Case {
    GuestAction action;
    Intercept intercept;
    bool automatic;
  };
  ProcessorLimits limits;
  limits.sev = true;
  limits.max_encrypted_asid = 100;
  for (const Case& c :
       {Case{make(K::hlt), I::hlt, true}, Case{make(K::hlt), I::idle_hlt, true},
        Case{make(K::pause), I::pause, true}, Case{make(K::cpuid), I::cpuid, false},
        Case{make(K::rdmsr, 0x10), I::msr, false}, Case{make(K::in, 0x71), I::ioio, false},
        Case{make(K::rdtsc), I::rdtsc, false}, Case{make(K::vmmcall), I::vmmcall, false},
        Case{make(K::wbinvd), I::wbinvd, false}, Case{make(K::mov_to_dr, 7), I::write_dr7, false},
        Case{make(K::mov_to_cr, 3, 0x2000), I::write_cr3, false}, Case{make(K::mwait), I::mwait, false},
        Case{make(K::iret), I::iret, false}, Case{make(K::int_n, 0x80), I::swint, false}}) {
    CAPTURE(intercept_name(c.intercept));
    Guest guest(all_but_avic(), {}, limits);
    guest.vmcb.control.nested_ctl |= nested_ctl::sev_enable | nested_ctl::sev_es_enable;
    guest.environment.msr_map.fill(true);
    guest.environment.io_map.fill(true);
    guest.intercept(c.intercept);
    REQUIRE(guest.enter().kind == StepKind::entered);
    const Step step = guest.run(c.action);
    if (c.automatic) {
      CHECK(step.kind == StepKind::vmexit);
      CHECK(guest.exit_code() == exit_code_of(c.intercept));
      CHECK(guest.exit_rip() == guest_rip + c.action.length);
    } else {
      CHECK(step.kind == StepKind::delivered);
      CHECK(step.vector == 29);
      CHECK(step.result == exit_code_of(c.intercept));
      guest.intercept(I::iret, false);
      guest.run(make(K::iret));
      CHECK(guest.cpu.rip() == guest_rip);
    }
  }
  Guest guest(all_but_avic(), {}, limits);
  guest.vmcb.control.nested_ctl |= nested_ctl::sev_enable | nested_ctl::sev_es_enable;
  guest.enter();
  guest.run(make(K::vmgexit));
  CHECK(guest.exit_code() == exit_code::vmgexit);
  CHECK(guest.exit_rip() == guest_rip + 4);
}
