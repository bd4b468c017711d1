#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <vector>

#include "svm/action_table.hpp"
#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/intercept.hpp"
#include "svm/table_environment.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::svm::test {

/// A TableEnvironment that notes what GuestCpu asked. The pending events are the fixture's: Guest::events.
class FakeEnvironment final : public TableEnvironment {
 public:
  std::set<std::uint64_t> missing_pages;  ///< page numbers
  int physical_vector = -1;
  int physical_nmis_taken = 0;
  std::vector<std::uint64_t> pages_asked;
  std::vector<std::uint64_t> maps_asked;

  std::array<std::uint32_t, 4> cpuid(std::uint32_t leaf, std::uint32_t subleaf) override {
    return {leaf, subleaf, 3, 4};
  }
  bool page_allows(std::uint64_t guest_physical, PageAccess access) override {
    pages_asked.push_back(guest_physical);
    return missing_pages.count(guest_physical >> 12) == 0 &&
           TableEnvironment::page_allows(guest_physical, access);
  }
  NestedPage nested_page(std::uint64_t guest_physical) override {
    NestedPage page = TableEnvironment::nested_page(guest_physical);
    if (missing_pages.count(guest_physical >> 12) != 0) page.present = false;
    return page;
  }
  const MsrPermissionMap& msr_permission_map(std::uint64_t physical) override {
    maps_asked.push_back(physical);
    return TableEnvironment::msr_permission_map(physical);
  }
  const IoPermissionMap& io_permission_map(std::uint64_t physical) override {
    maps_asked.push_back(physical);
    return TableEnvironment::io_permission_map(physical);
  }
  int acknowledge_physical_interrupt() override { return physical_vector; }
  void acknowledge_physical_nmi() override { ++physical_nmis_taken; }

  [[nodiscard]] static constexpr std::uint64_t handler(std::uint8_t vector) noexcept {
    return default_handler(vector);
  }
};

inline constexpr std::uint64_t guest_rip = 0x10'0000;
inline constexpr std::uint64_t gdt_base = 0x5000;
inline constexpr std::uint64_t idt_base = 0x6000;
inline constexpr std::uint16_t code_selector = 0x08;

/// An action with its usual length: `value` is operand 0, `address` operand 1.
[[nodiscard]] inline GuestAction make(ActionKind kind, std::uint32_t number = 0, std::uint64_t value = 0,
                                      std::uint64_t address = 0) {
  GuestAction action = usual_action(kind);
  action.number = number;
  action.operand[0] = value;
  action.operand[1] = address;
  return action;
}

/// Every feature but AVIC's; tests take away or add what they are about.
[[nodiscard]] inline FeatureSet all_but_avic() {
  FeatureSet features;
  for (const FeatureInfo& info : all_features())
    features.set(info.feature);
  features.set(Feature::avic, false);
  features.set(Feature::x2avic, false);
  features.set(Feature::x2avic_ext, false);
  return features;
}

/// A legal VMCB of a flat 64-bit guest with IF = 0 that intercepts VMRUN, VMMCALL and shutdown, and nothing
/// else.
[[nodiscard]] inline Vmcb long_mode_vmcb() {
  Vmcb vmcb{};
  for (const Intercept intercept : {Intercept::vmrun, Intercept::vmmcall, Intercept::shutdown}) {
    set_intercept(vmcb.control, intercept, true);
  }
  vmcb.control.asid = 1;
  vmcb.control.nested_ctl = nested_ctl::np_enable;
  vmcb.control.nested_cr3 = 0x4000;
  vmcb.control.iopm_base_pa = 0x10000;
  vmcb.control.msrpm_base_pa = 0x20000;
  VmcbSave& save = vmcb.save;
  save.efer = efer::svme | efer::lme | efer::lma;
  save.cr0 = cr0::pg | cr0::pe | cr0::wp;
  save.cr4 = cr4::pae;
  save.cr3 = 0x1000;
  save.dr6 = 0xffff'0ff0;
  save.dr7 = 0x400;
  save.rflags = rflags::always_one;
  save.rip = guest_rip;
  save.g_pat = 0x0007'0406'0007'0406;
  save.cs.selector = code_selector;
  save.cs.attrib = 0x029b;  // present, long mode, execute and read
  save.gdtr.base = gdt_base;
  save.gdtr.limit = 0xffff;
  save.idtr.base = idt_base;
  save.idtr.limit = 0xfff;
  return vmcb;
}

/// One guest on one core.
struct Guest {
  Vmcb vmcb = long_mode_vmcb();
  FakeEnvironment environment;
  GuestCpu cpu;
  bool host_if = true;
  PhysicalEvents events;

  explicit Guest(FeatureSet features = all_but_avic(), Knobs knobs = {}, ProcessorLimits limits = {})
      : cpu(features, knobs, limits) {}

  Guest& intercept(Intercept which, bool on = true) {
    set_intercept(vmcb.control, which, on);
    return *this;
  }
  Guest& interrupts_enabled(bool on = true) {
    vmcb.save.rflags = on ? vmcb.save.rflags | rflags::interrupt : vmcb.save.rflags & ~rflags::interrupt;
    return *this;
  }
  /// V_IRQ with a vector and a priority class.
  Guest& v_irq(std::uint8_t vector, std::uint8_t priority = 0xf) {
    vmcb.control.int_ctl = int_ctl::with_v_intr_prio(vmcb.control.int_ctl | int_ctl::v_irq, priority);
    vmcb.control.int_vector = vector;
    return *this;
  }
  Guest& control_bits(std::uint32_t bits) {
    vmcb.control.int_ctl |= bits;
    return *this;
  }

  Step enter() { return cpu.vmrun(vmcb, host_if, environment); }
  Step boundary() { return cpu.boundary(events, environment); }
  /// The action alone, without a look at events first.
  Step execute(ActionKind kind, std::uint32_t number = 0, std::uint64_t operand = 0, std::uint8_t size = 0) {
    return cpu.execute(action(kind, number, operand, size), environment);
  }
  /// An action where the guest stands, at its CPL.
  Step run(GuestAction action) {
    action.rip = cpu.rip();
    action.cpl = cpl;
    return cpu.execute(action, environment);
  }
  /// boundary(), then the action if nothing happened: what a core does.
  Step step(ActionKind kind, std::uint32_t number = 0, std::uint64_t operand = 0, std::uint8_t size = 0) {
    const Step event = boundary();
    return event.kind != StepKind::none ? event : execute(kind, number, operand, size);
  }
  [[nodiscard]] GuestAction action(ActionKind kind, std::uint32_t number = 0, std::uint64_t operand = 0,
                                   std::uint8_t size = 0) const {
    GuestAction result;
    result.kind = kind;
    result.rip = cpu.rip();
    result.length = length;
    result.cpl = cpl;
    result.size = size;
    result.number = number;
    result.operand[0] = operand;
    result.operand[1] = operand;
    return result;
  }

  [[nodiscard]] std::uint64_t exit_code() const { return vmcb.control.exit_code; }
  [[nodiscard]] std::uint64_t exit_rip() const { return vmcb.save.rip; }
  [[nodiscard]] bool saved(std::uint32_t int_ctl_bit) const {
    return (vmcb.control.int_ctl & int_ctl_bit) != 0;
  }
  [[nodiscard]] bool saved_shadow() const {
    return (vmcb.control.int_state & int_state::interrupt_shadow) != 0;
  }

  std::uint8_t length = 2;
  std::uint8_t cpl = 0;
};

}  // namespace svmsim::svm::test
