#include <array>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "svm/vmrun_checks.hpp"
#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

constexpr auto last_kind = static_cast<unsigned>(ActionKind::vmgexit);

GuestAction random_action(std::uint64_t rip) {
  GuestAction action;
  action.kind = static_cast<ActionKind>(*rc::gen::inRange(0U, last_kind + 1));
  action.rip = rip;
  action.length = *rc::gen::arbitrary<std::uint8_t>();
  action.cpl = *rc::gen::weightedElement<std::uint8_t>({{4, 0}, {1, 3}, {1, 0xff}});
  action.size = *rc::gen::weightedElement<std::uint8_t>({{3, 1}, {2, 4}, {1, 0xff}});
  action.gpr = *rc::gen::arbitrary<std::uint8_t>();
  action.segment = *rc::gen::arbitrary<std::uint8_t>();
  action.flags = *rc::gen::arbitrary<std::uint8_t>();
  action.address_size = *rc::gen::element<std::uint8_t>(0, 2, 4, 8, 0xff);
  // Vectors, register numbers and types are small; the MSRs are those that the core holds.
  action.number = *rc::gen::oneOf(rc::gen::inRange(0U, 32U), rc::gen::arbitrary<std::uint32_t>(),
                                  rc::gen::element(0x10U, 0xc000'0080U));
  action.cycles = *rc::gen::arbitrary<std::uint64_t>();
  for (std::uint64_t& operand : action.operand) {
    operand = *rc::gen::oneOf(rc::gen::arbitrary<std::uint64_t>(), rc::gen::inRange<std::uint64_t>(0, 0x2000),
                              rc::gen::element<std::uint64_t>(0x8000'0031, 0x6000, 0x20, 0x1d01));
  }
  return action;
}

PhysicalEvents random_events() {
  const unsigned bits = *rc::gen::inRange(0U, 64U);  // mostly nothing above the lowest bits
  return {bits == 1, bits == 2, bits == 3, bits >= 4 && bits < 16};
}

Vmcb random_page() {
  Vmcb vmcb{};
  std::array<std::uint8_t, sizeof(Vmcb)> bytes{};
  const auto words =
      *rc::gen::container<std::vector<std::uint64_t>>(sizeof(Vmcb) / 8, rc::gen::arbitrary<std::uint64_t>());
  std::memcpy(bytes.data(), words.data(), bytes.size());
  std::memcpy(&vmcb, bytes.data(), bytes.size());
  return vmcb;
}

/// A legal VMCB with random intercepts, interrupt control, flags and injection.
Vmcb random_legal_vmcb() {
  Vmcb vmcb = long_mode_vmcb();
  for (std::uint32_t& word : vmcb.control.intercepts)
    word = *rc::gen::arbitrary<std::uint32_t>();
  set_intercept(vmcb.control, Intercept::vmrun, true);
  set_intercept(vmcb.control, Intercept::nmi, true);
  vmcb.control.int_ctl =
      *rc::gen::arbitrary<std::uint32_t>() & ~(int_ctl::avic_enable | int_ctl::x2avic_enable);
  vmcb.control.int_vector = *rc::gen::arbitrary<std::uint32_t>();
  vmcb.control.int_state = *rc::gen::inRange(0U, 4U);
  vmcb.control.pause_filter_count = *rc::gen::inRange<std::uint16_t>(0, 4);
  vmcb.save.rflags = *rc::gen::arbitrary<std::uint32_t>() & ~rflags::virtual_8086;
  if (*rc::gen::arbitrary<bool>()) vmcb.control.event_inj = event_inj::event(event_inj::type_intr, 0x30);
  return vmcb;
}

/// A random page in which only what VMRUN checks has been made legal.
Vmcb random_runnable_page() {
  Vmcb vmcb = random_page();
  const Vmcb good = long_mode_vmcb();
  VmcbSave& save = vmcb.save;
  save.efer = *rc::gen::element(good.save.efer, efer::svme);
  save.cr0 = save.efer == efer::svme ? *rc::gen::element<std::uint64_t>(0, cr0::pe, cr0::pg) : good.save.cr0;
  save.cr3 = good.save.cr3;
  save.cr4 = good.save.cr4;
  save.dr6 = good.save.dr6;
  save.dr7 = good.save.dr7;
  save.g_pat = good.save.g_pat;
  save.s_cet = 0;
  save.cs.attrib = static_cast<std::uint16_t>(save.cs.attrib & ~segment_attrib::default_size);
  VmcbControl& control = vmcb.control;
  control.asid |= 1U;
  control.msrpm_base_pa >>= 13;
  control.iopm_base_pa >>= 13;
  control.nested_cr3 >>= 13;
  control.avic_backing_page >>= 13;
  control.avic_logical_id >>= 13;
  control.avic_physical_id = (control.avic_physical_id >> 13) & ~avic_physical_id::max_index_mask;
  control.int_ctl |= (control.int_ctl & int_ctl::x2avic_enable) << 1;
  if ((control.event_inj & event_inj::type_mask) != 0) {
    control.event_inj =
        (control.event_inj & ~event_inj::type_mask) | (event_inj::type_soft << event_inj::type_shift);
  }
  set_intercept(control, Intercept::vmrun, true);
  set_intercept(control, Intercept::nmi, true);
  return vmcb;
}

void fill_environment(FakeEnvironment& environment) {
  environment.msr_map.fill(*rc::gen::arbitrary<bool>());
  environment.io_map.fill(*rc::gen::arbitrary<bool>());
  environment.tsc = *rc::gen::arbitrary<std::uint64_t>();
  if (*rc::gen::inRange(0, 4) == 0) environment.missing_pages.insert(idt_base >> 12);
  if (*rc::gen::inRange(0, 4) == 0) environment.missing_pages.insert(gdt_base >> 12);
}

void check_exit_state(const GuestCpu& cpu, const Vmcb& vmcb) {
  RC_ASSERT_FALSE(cpu.gif());
  RC_ASSERT_FALSE(cpu.in_guest_mode());
  RC_ASSERT_FALSE(cpu.halted());
  RC_ASSERT((vmcb.control.event_inj & event_inj::valid) == 0U);
}

}  // namespace

TEST_CASE("a random page never makes GuestCpu throw, and every exit leaves GIF 0 and EVENTINJ.V 0") {
  CHECK(rc::check("random page", [] {
    Vmcb vmcb = random_page();
    const FeatureSet features =
        FeatureSet::from_cpuid({1, 1, 0xffffffff, *rc::gen::arbitrary<std::uint32_t>()});
    const bool legal = vmrun_legal(vmcb, features, {}, {});
    RC_ASSERT(legal == vmrun_violations(vmcb, features).empty());
    GuestCpu cpu(features);
    FakeEnvironment environment;
    const Step step = cpu.vmrun(vmcb, true, environment);
    if (!legal) {
      RC_ASSERT(step.kind == StepKind::vmexit);
      RC_ASSERT(vmcb.control.exit_code == exit_code::invalid);
    }
    if (!cpu.in_guest_mode()) check_exit_state(cpu, vmcb);
  }));
}

TEST_CASE("random actions under random intercepts: every step is one of the documented ones") {
  CHECK(rc::check("random run", [] {
    Vmcb vmcb = random_legal_vmcb();
    const FeatureSet features = all_but_avic();
    for (const RuleViolation& violation : vmrun_violations(vmcb, features))
      RC_FAIL(std::string(violation.text));
    GuestCpu cpu(features);
    FakeEnvironment environment;
    fill_environment(environment);
    Step step = cpu.vmrun(vmcb, *rc::gen::arbitrary<bool>(), environment);
    for (int n = 0; n < 20 && cpu.in_guest_mode(); ++n) {
      const std::uint64_t rip = cpu.rip();
      const std::size_t frames = cpu.frames();
      step = cpu.boundary(random_events(), environment);
      if (step.kind == StepKind::none && !cpu.halted()) {
        const GuestAction action = random_action(cpu.rip());
        step = cpu.execute(action, environment);
        const bool jumps = action.kind == ActionKind::iret || action.kind == ActionKind::skinit;
        if (step.kind == StepKind::retired && !jumps) RC_ASSERT(cpu.rip() == action.next_rip());
        if (step.kind == StepKind::halted) RC_ASSERT(cpu.halted());
      } else if (step.kind == StepKind::none) {
        RC_ASSERT(cpu.rip() == rip);
      }
      if (step.kind == StepKind::delivered) {
        RC_ASSERT(cpu.rip() == FakeEnvironment::handler(step.vector));
        RC_ASSERT(cpu.frames() == frames + 1);
        RC_ASSERT((cpu.rflags() & rflags::interrupt) == 0U);
        RC_ASSERT_FALSE(cpu.interrupt_shadow());
      }
    }
    if (!cpu.in_guest_mode() && step.kind != StepKind::reset) check_exit_state(cpu, vmcb);
  }));
}

TEST_CASE("a random page that VMRUN accepts runs any action without a throw") {
  CHECK(rc::check("random runnable page", [] {
    Vmcb vmcb = random_runnable_page();
    const FeatureSet features = FeatureSet::from_cpuid({1, 1, 0xffffffff, 0xffffffff});
    for (const RuleViolation& violation : vmrun_violations(vmcb, features))
      RC_FAIL(std::string(violation.text));
    GuestCpu cpu(features);
    FakeEnvironment environment;
    fill_environment(environment);
    environment.highest_irr = *rc::gen::inRange(-1, 256);
    environment.ppr = *rc::gen::arbitrary<std::uint8_t>();
    cpu.vmrun(vmcb, *rc::gen::arbitrary<bool>(), environment);
    for (int n = 0; n < 50; ++n) {
      if (!cpu.in_guest_mode()) {
        check_exit_state(cpu, vmcb);
        cpu.vmrun(vmcb, true, environment);
        continue;
      }
      const Step step = cpu.boundary(random_events(), environment);
      if (step.kind == StepKind::reset) return;
      if (step.kind != StepKind::none) continue;
      if (!cpu.halted()) cpu.execute(random_action(cpu.rip()), environment);
    }
  }));
}

TEST_CASE(
    "any processor, any page that VMRUN often accepts, any program: no throw, and every exit is clean") {
  CHECK(rc::check("anything", [] {
    Vmcb vmcb = random_runnable_page();
    vmcb.control.asid = *rc::gen::inRange(1U, 4U);
    vmcb.save.dr7 = *rc::gen::arbitrary<std::uint32_t>();
    if (*rc::gen::arbitrary<bool>()) vmcb.save.cs.attrib = 0x029b;
    ProcessorLimits limits;
    limits.sev = *rc::gen::arbitrary<bool>();
    limits.max_encrypted_asid = 2;
    limits.efer_reserved = *rc::gen::element<std::uint64_t>(0, limits.efer_reserved);
    Knobs knobs;
    knobs.shadow_delays_intr_exit = *rc::gen::arbitrary<bool>();
    FeatureSet features =
        FeatureSet::from_cpuid({1, 1, 0xffffffff, *rc::gen::arbitrary<std::uint32_t>() | 1U});
    for (const ExtensionInfo& info : all_extensions())
      features.set(info.extension, *rc::gen::inRange(0, 4) != 0);
    GuestCpu cpu(features, knobs, limits);
    FakeEnvironment environment;
    fill_environment(environment);
    environment.ratio = *rc::gen::arbitrary<std::uint64_t>();
    environment.r_init = *rc::gen::arbitrary<bool>();
    environment.vmcb_pages[0x6000] = random_page();
    NestedPage& page = environment.page(0x1000);
    page.writable = *rc::gen::arbitrary<bool>();
    page.user = *rc::gen::arbitrary<bool>();
    page.reserved_bit = *rc::gen::arbitrary<bool>();
    page.present = *rc::gen::arbitrary<bool>();
    for (int n = 0; n < 60; ++n) {
      if (!cpu.in_guest_mode()) {
        cpu.vmrun(vmcb, *rc::gen::arbitrary<bool>(), environment);
        if (!cpu.in_guest_mode()) check_exit_state(cpu, vmcb);
        continue;
      }
      Step step = cpu.boundary(random_events(), environment);
      if (step.kind == StepKind::none && !cpu.halted()) {
        const GuestAction action = random_action(cpu.rip());
        if (*rc::gen::arbitrary<bool>()) cpu.set_debug_register(1, action.rip);
        step = cpu.execute(action, environment);
      }
      cpu.monitor_written(*rc::gen::inRange<std::uint64_t>(0, 0x2000));
      RC_ASSERT((step.kind == StepKind::vmexit || step.kind == StepKind::reset) == !cpu.in_guest_mode());
      if (step.kind == StepKind::vmexit) check_exit_state(cpu, vmcb);
    }
  }));
}

TEST_CASE("no action whose intercept is clear exits with that intercept's code") {
  CHECK(rc::check("clear intercepts", [] {
    Vmcb vmcb = random_legal_vmcb();
    GuestCpu cpu(all_but_avic());
    FakeEnvironment environment;
    fill_environment(environment);
    cpu.vmrun(vmcb, true, environment);
    for (int n = 0; n < 20 && cpu.in_guest_mode(); ++n) {
      const Step step = cpu.boundary(random_events(), environment);
      if (step.kind == StepKind::reset) return;
      if (step.kind == StepKind::none && !cpu.halted()) cpu.execute(random_action(cpu.rip()), environment);
    }
    if (cpu.in_guest_mode()) return;
    const ExitInfo* info = find_exit(vmcb.control.exit_code);
    RC_ASSERT(info != nullptr);
    // The one exception: an address that no VMCB can have (NestedVirtVmcbAddrChk).
    const bool address_check = info->code == exit_code::vmload || info->code == exit_code::vmsave;
    if (info->has_intercept && !address_check)
      RC_ASSERT(intercepted(vmcb.control, static_cast<Intercept>(info->code)));
  }));
}

TEST_CASE("an action that exits has changed nothing but the exit fields") {
  CHECK(rc::check("all or nothing", [] {
    Vmcb vmcb = random_legal_vmcb();
    vmcb.control.event_inj = 0;
    GuestCpu cpu(all_but_avic());
    FakeEnvironment environment;
    fill_environment(environment);
    environment.vmcb_pages[0x6000] = long_mode_vmcb();
    cpu.vmrun(vmcb, true, environment);
    const std::uint64_t rip = cpu.rip();
    const std::uint64_t flags = cpu.rflags();
    const Vmcb before = vmcb;
    const bool shadow = cpu.interrupt_shadow();
    const bool armed = cpu.monitor_armed();
    const std::uint64_t xcr0 = cpu.xcr0();
    GuestAction action = random_action(rip);
    action.cpl = 0;
    const Step step = cpu.execute(action, environment);
    if (step.kind != StepKind::vmexit) return;

    // ICEBP is a trap: its #DB comes behind it. A #DB sets DR6, and a #PF whose delivery is cut short CR2.
    const bool trap = action.kind == ActionKind::icebp && vmcb.control.exit_code != exit_code::icebp;
    RC_ASSERT(vmcb.save.rip == (trap ? action.next_rip() : rip));
    if (!trap) RC_ASSERT(vmcb.save.rflags == flags);
    if (!trap) RC_ASSERT(((vmcb.control.int_state & int_state::interrupt_shadow) != 0) == shadow);
    VmcbSave after = vmcb.save;
    after.rip = before.save.rip;
    after.rflags = before.save.rflags;
    after.cpl = before.save.cpl;
    after.dr6 = before.save.dr6;
    if ((vmcb.control.exit_int_info & event_inj::valid) != 0) after.cr2 = before.save.cr2;
    RC_ASSERT(std::memcmp(&after, &before.save, sizeof(after)) == 0);
    RC_ASSERT(vmcb.control.int_ctl == before.control.int_ctl);
    RC_ASSERT(vmcb.control.bus_lock_counter == before.control.bus_lock_counter);
    RC_ASSERT(cpu.monitor_armed() == armed);
    RC_ASSERT(cpu.xcr0() == xcr0);
    RC_ASSERT(cpu.frames() == 0U);
    RC_ASSERT(environment.msrs.empty());
    RC_ASSERT(environment.ports.empty());
  }));
}

TEST_CASE("the fields of int_ctl and of EVENTINJ are what was put into them") {
  CHECK(rc::check("int_ctl", [](std::uint32_t word, std::uint8_t value) {
    const auto field = static_cast<std::uint8_t>(value & 0xfU);
    const std::uint32_t tpr = int_ctl::with_v_tpr(word, value);
    RC_ASSERT(int_ctl::v_tpr(tpr) == field);
    RC_ASSERT((tpr & ~int_ctl::v_tpr_mask) == (word & ~int_ctl::v_tpr_mask));
    const std::uint32_t priority = int_ctl::with_v_intr_prio(word, value);
    RC_ASSERT(int_ctl::v_intr_prio(priority) == field);
    RC_ASSERT((priority & ~int_ctl::v_intr_prio_mask) == (word & ~int_ctl::v_intr_prio_mask));
  }));
  CHECK(rc::check("event_inj", [](std::uint8_t vector) {
    const std::uint32_t type = *rc::gen::inRange(0U, 8U);
    const std::uint32_t word = event_inj::event(type, vector);
    RC_ASSERT(event_inj::type(word) == type);
    RC_ASSERT(event_inj::vector(word) == vector);
    RC_ASSERT((word & event_inj::valid) != 0U);
  }));
}
