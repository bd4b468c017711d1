#include <cstdint>

#include <doctest/doctest.h>

#include "tests/apic/avic_vm.hpp"

using namespace svmsim::apic;
using svmsim::apic::test::AvicVm;

TEST_CASE("8.5: VMRUN evaluates the backing page, after what software did to it") {
  AvicVm vm(false, 1);
  vm.cores[0].vmexit();
  vm.page(0).request(0x52);
  vm.page(0).request(0x41);
  CHECK(vm.cores[0].pending() == -1);
  vm.enter(0);
  CHECK(vm.cores[0].pending() == 0x52);

  // The hypervisor raises TPR in the page; V_TPR follows it or not (12.13).
  vm.cores[0].vmexit();
  vm.page(0).write(APIC_TASKPRI, 0x50);
  vm.control.int_ctl |= 5;
  AvicEntry entry = vm.cores[0].vmrun(vm.control, vm.memory);
  CHECK(entry.enabled);
  CHECK_FALSE(entry.tpr_mismatch);
  CHECK(vm.page(0).ppr() == 0x50);
  CHECK(vm.cores[0].pending() == -1);
  vm.control.int_ctl &= ~0xfU;
  entry = vm.cores[0].vmrun(vm.control, vm.memory);
  CHECK(entry.tpr_mismatch);
  // PPR comes from the page whatever V_TPR says.
  CHECK(vm.cores[0].pending() == -1);
  CHECK(vm.cores[0].ppr() == 0x50);
}

TEST_CASE("8.5: delivery moves the highest vector from IRR to ISR and raises PPR to its class") {
  AvicVm vm(true, 1);
  vm.page(0).request(0x41);
  vm.page(0).request(0x45);
  vm.page(0).request(0x91);
  vm.cores[0].doorbell(false);
  CHECK(vm.cores[0].pending() == 0x91);
  CHECK(vm.cores[0].acknowledge() == 0x91);
  CHECK(vm.page(0).test_isr(0x91));
  CHECK_FALSE(vm.page(0).test_irr(0x91));
  CHECK(vm.page(0).ppr() == 0x90);
  CHECK(vm.cores[0].pending() == -1);
  // A higher class nests; the same class waits for the EOI.
  vm.page(0).request(0xa0);
  vm.page(0).request(0x9f);
  vm.cores[0].doorbell(false);
  CHECK(vm.cores[0].acknowledge() == 0xa0);
  CHECK(vm.cores[0].pending() == -1);
  DoorbellList doorbells;
  vm.cores[0].write_msr(0x80b, 0, doorbells);
  CHECK(vm.page(0).ppr() == 0x90);
  CHECK(vm.cores[0].pending() == -1);
  vm.cores[0].write_msr(0x80b, 0, doorbells);
  CHECK(vm.cores[0].pending() == 0x9f);
  CHECK(vm.cores[0].acknowledge() == 0x9f);
  vm.cores[0].write_msr(0x80b, 0, doorbells);
  CHECK(vm.cores[0].acknowledge() == 0x45);
  vm.cores[0].write_msr(0x80b, 0, doorbells);
  CHECK(vm.cores[0].acknowledge() == 0x41);
  vm.cores[0].write_msr(0x80b, 0, doorbells);
  CHECK(vm.cores[0].acknowledge() == -1);
}

TEST_CASE("a recognized interrupt stays recognized until it is taken or software withdraws it") {
  AvicVm vm(true, 1);
  vm.page(0).request(0x41);
  vm.cores[0].doorbell(false);
  for (int boundary = 0; boundary < 3; ++boundary)
    CHECK(vm.cores[0].pending() == 0x41);
  vm.page(0).write(APIC_IRR + 0x20, 0);
  CHECK(vm.cores[0].pending() == 0x41);
  CHECK(vm.cores[0].acknowledge() == -1);
  CHECK(vm.cores[0].pending() == -1);
  CHECK(vm.page(0).highest_isr() == -1);
}

TEST_CASE("12.5: a plain write of the IRR is seen at the next evaluation point, or at once with snooping") {
  for (const bool snoops : {false, true}) {
    CAPTURE(snoops);
    AvicKnobs knobs;
    knobs.snoops_irr_writes = snoops;
    AvicVm vm(true, 1, knobs);
    vm.page(0).request(0x41);
    CHECK(vm.cores[0].pending() == (snoops ? 0x41 : -1));
    // The idle-HLT intercept looks at the page itself.
    CHECK(vm.cores[0].highest_irr() == 0x41);
    CHECK(vm.cores[0].doorbell(false) == DoorbellEffect::evaluated);
    CHECK(vm.cores[0].pending() == 0x41);
    vm.cores[0].vmexit();
    CHECK(vm.cores[0].pending() == -1);
  }
}

TEST_CASE(
    "8.6: a doorbell in guest mode evaluates, during VMRUN right after the entry, in host mode nothing") {
  AvicVm vm(true, 1);
  AvicCore& core = vm.cores[0];
  core.vmexit();
  CHECK(core.doorbell(false) == DoorbellEffect::dropped);
  core.vmrun(vm.control, vm.memory);
  vm.page(0).request(0x41);
  CHECK(core.doorbell(false) == DoorbellEffect::latched);
  CHECK(core.pending() == -1);
  core.entered();
  CHECK(core.pending() == 0x41);
  // Only once: a later entry does not remember it.
  core.vmexit();
  core.vmrun(vm.control, vm.memory);
  vm.page(0).request(0x52);
  core.entered();
  CHECK(core.pending() == 0x41);
}

TEST_CASE("12.4: a doorbell in host mode may stall the core or be kept for the next entry") {
  AvicKnobs knobs;
  knobs.host_mode_doorbell = HostModeDoorbell::stalls;
  AvicVm stalling(true, 1, knobs);
  stalling.cores[0].vmexit();
  CHECK(stalling.cores[0].doorbell(false) == DoorbellEffect::stalled);
  knobs.host_mode_doorbell = HostModeDoorbell::pending;
  AvicVm keeping(true, 1, knobs);
  AvicCore& core = keeping.cores[0];
  core.vmexit();
  CHECK(core.doorbell(false) == DoorbellEffect::latched);
  core.vmrun(keeping.control, keeping.memory);
  keeping.page(0).request(0x41);
  CHECK(core.pending() == -1);
  core.entered();
  CHECK(core.pending() == 0x41);
}

TEST_CASE("12.3: whether a doorbell reaches a halted guest") {
  for (const bool wakes : {true, false}) {
    AvicKnobs knobs;
    knobs.doorbell_wakes_halted_guest = wakes;
    AvicVm vm(true, 1, knobs);
    vm.page(0).request(0x41);
    CHECK(vm.cores[0].doorbell(true) == (wakes ? DoorbellEffect::evaluated : DoorbellEffect::ignored));
    CHECK(vm.cores[0].pending() == (wakes ? 0x41 : -1));
    CHECK(vm.cores[0].doorbell(false) == DoorbellEffect::evaluated);
    CHECK(vm.cores[0].pending() == 0x41);
  }
}

TEST_CASE("the idle-HLT view is the page's: the class of the highest IRR vector against PPR") {
  AvicVm vm(true, 1);
  CHECK(vm.cores[0].highest_irr() == -1);
  vm.page(0).request(0x31);
  vm.page(0).request(0x42);
  vm.cores[0].write_cr8(4);
  CHECK(vm.cores[0].highest_irr() == 0x42);
  CHECK(vm.cores[0].ppr() == 0x40);
}

TEST_CASE("x2AVIC of the VMCB needs the processor's") {
  AvicProcessor processor;
  processor.x2avic = false;
  AvicVm vm(true, 1, {}, processor);
  CHECK_FALSE(vm.cores[0].x2avic());
  CHECK(AvicVm(true, 1).cores[0].x2avic());
  CHECK_FALSE(AvicVm(false, 1).cores[0].x2avic());
}
