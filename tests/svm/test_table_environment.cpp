#include <array>
#include <cstdint>

#include <doctest/doctest.h>

#include "svm/table_environment.hpp"
#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using svmsim::svm::test::long_mode_vmcb;

TEST_CASE("MSRs, ports and CPUID leaves hold what they were given, and 0 otherwise") {
  TableEnvironment environment;
  environment.faulting_msrs.insert(0x17);
  CHECK(environment.read_msr(0x10a).value == 0);
  CHECK_FALSE(environment.write_msr(0x10a, 0x77).general_protection);
  CHECK(environment.read_msr(0x10a).value == 0x77);
  CHECK(environment.read_msr(0x17).general_protection);
  CHECK(environment.write_msr(0x17, 1).general_protection);
  CHECK(environment.msrs.count(0x17) == 0);

  environment.write_port(0x80, 2, 0x12345678);
  CHECK(environment.read_port(0x80, 4) == 0x5678);
  CHECK(environment.read_port(0x80, 1) == 0x78);
  CHECK(environment.read_port(0x81, 1) == 0);

  environment.cpuid_leaves[{7, 1}] = {1, 2, 3, 4};
  CHECK(environment.cpuid(7, 1) == std::array<std::uint32_t, 4>{1, 2, 3, 4});
  CHECK(environment.cpuid(7, 0) == std::array<std::uint32_t, 4>{});
}

TEST_CASE("each bit of a nested page forbids its own kind of access") {
  TableEnvironment environment;
  const auto allowed = [&environment] {
    unsigned bits = 0;
    if (environment.page_allows(0x5abc, PageAccess::read)) bits |= 4;
    if (environment.page_allows(0x5abc, PageAccess::write)) bits |= 2;
    if (environment.page_allows(0x5abc, PageAccess::fetch)) bits |= 1;
    return bits;
  };
  CHECK(allowed() == 7);
  environment.page(0x5000).writable = false;
  CHECK(allowed() == 5);
  environment.page(0x5000) = {};
  environment.page(0x5fff).no_execute = true;
  CHECK(allowed() == 6);
  for (bool NestedPage::*bit : {&NestedPage::present, &NestedPage::user}) {
    environment.page(0x5000) = {};
    environment.page(0x5000).*bit = false;
    CHECK(allowed() == 0);
  }
  environment.page(0x5000) = {};
  environment.page(0x5000).reserved_bit = true;
  CHECK(allowed() == 0);
  CHECK(environment.page_allows(0x6000, PageAccess::read));
}

TEST_CASE("a permission map may stand at an address of its own") {
  TableEnvironment environment;
  environment.msr_maps[0x20000].set(0x10, true, true);
  environment.io_maps[0x30000].set(0x80, true);
  CHECK(environment.msr_permission_map(0x20000).intercepts(0x10, false));
  CHECK_FALSE(environment.msr_permission_map(0x21000).intercepts(0x10, false));
  CHECK(environment.io_permission_map(0x30000).intercepts(0x80, 1));
  CHECK_FALSE(environment.io_permission_map(0x31000).intercepts(0x80, 1));
}

TEST_CASE("the guest takes pending physical interrupts in their order, and an NMI once") {
  TableEnvironment environment;
  CHECK_FALSE(environment.events().any());
  environment.interrupts_pending = {0x51, 0x41};
  environment.nmi_pending = true;
  environment.handlers[0x41] = 0x9000;
  Vmcb vmcb = long_mode_vmcb();
  vmcb.save.rflags |= rflags::interrupt;
  GuestCpu cpu(svmsim::svm::test::all_but_avic());
  CHECK(cpu.vmrun(vmcb, true, environment).kind == StepKind::entered);
  CHECK(cpu.boundary(environment.events(), environment).vector == 2);
  CHECK_FALSE(environment.nmi_pending);
  CHECK(cpu.boundary(environment.events(), environment).kind == StepKind::none);  // the handler has IF = 0
  GuestAction iret;
  iret.kind = ActionKind::iret;
  static_cast<void>(cpu.execute(iret, environment));
  CHECK(cpu.boundary(environment.events(), environment).vector == 0x51);
  CHECK(cpu.rip() == TableEnvironment::default_handler(0x51));
  static_cast<void>(cpu.execute(iret, environment));
  CHECK(cpu.boundary(environment.events(), environment).vector == 0x41);
  CHECK(cpu.rip() == 0x9000);
  CHECK(environment.acknowledge_physical_interrupt() == -1);
}
