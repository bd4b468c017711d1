// Posted timer interrupts (kvm.pi_inject_timer; kvm-software.md 8.4): the timer of a vCPU on an isolated pCPU
// expires on another one, and reaches the guest by vIRR and doorbell.

#include <doctest/doctest.h>

#include "tests/model/avic_fixture.hpp"

namespace svmsim::model::test {

namespace {

using workloads::EventKind;

constexpr GuestApic x2 = GuestApic::x2apic;
constexpr unsigned timers = 5;

/// vCPU 0 waits for five timers, in guest mode: HLT does not exit.
AvicRun run_timers(const std::string& lvt, const std::string& arm, std::vector<std::string> overrides) {
  std::string actions = apic_write(x2, 0x3e0, "0xb") + apic_write(x2, 0x320, lvt);
  for (unsigned i = 0; i < timers; ++i)
    actions += arm + plain("hlt") + compute(1000);
  const GuestProgram program(x2, {actions});
  overrides.insert(overrides.begin(), {"host.pcpus=2", "vm.pin=[1]", "host.nohz_full=[1]",
                                       R"(vm.disable_exits=["hlt"])", "run.duration=50ms"});
  return run_avic(program, 1, std::move(overrides));
}

const std::string deadline = "{ do = \"arm_deadline\", delay = 300000 },\n";
const std::string deadline_mode = "0x40041";

}  // namespace

TEST_CASE("a posted timer interrupt exits nowhere but where it is armed") {
  for (const char* kernel : {"6.1", "6.12"}) {
    CAPTURE(std::string(kernel));
    const std::string on = std::string("host.kernel=") + kernel;
    const AvicRun run = run_timers(deadline_mode, deadline, {on});
    // TDCR is a trap, LVTT and the deadlines are MSR exits; no timer interrupt, and no EOI.
    CHECK(run.exits(0) == "avic_unaccelerated_access 1, msr 6");
    CHECK(run.texts(EventKind::kvm_avic_doorbell) == std::vector<std::string>(timers, "vcpuid=0, apicid=1"));
    CHECK(run.count(EventKind::kvm_apicv_accept_irq) == timers);
    CHECK(run.count(EventKind::kvm_wait_lapic_expire) == timers);
    CHECK(run.result.failure.empty());
    // The parameter follows nohz_full; without it each expiry is an exit.
    const AvicRun off = run_timers(deadline_mode, deadline, {on, "kvm.pi_inject_timer=false"});
    CHECK(off.exits(0) == "avic_unaccelerated_access 1, interrupt 5, msr 6");
    CHECK(off.count(EventKind::kvm_avic_doorbell) == 0);
    CHECK(run_timers(deadline_mode, deadline, {on, "host.nohz_full=[]"}).exits(0) == off.exits(0));
  }
}

TEST_CASE("one-shot and periodic timers are posted as well") {
  const std::string arm = apic_write(x2, 0x380, "300000");
  const AvicRun one_shot = run_timers("0x41", arm, {});
  CHECK(one_shot.exits(0) == "avic_unaccelerated_access 6, msr 1");
  CHECK(one_shot.count(EventKind::kvm_avic_doorbell) == timers);
  // Armed five times; the count reloads itself, too.
  const AvicRun periodic = run_timers("0x20041", arm, {});
  CHECK(periodic.exits(0) == "avic_unaccelerated_access 6, msr 1");
  CHECK(periodic.count(EventKind::kvm_avic_doorbell) >= timers);
}

TEST_CASE("no timer interrupt is posted without AVIC, or where HLT and MWAIT exit") {
  const AvicRun inhibited = run_timers(deadline_mode, deadline, {"vm.pit=\"delay\""});
  CHECK(inhibited.exits(0).find("interrupt 5") != std::string::npos);
  const AvicRun hlt_exits = run_timers(deadline_mode, deadline, {"vm.disable_exits=[]"});
  CHECK(hlt_exits.exits(0).find("idle-halt 5") != std::string::npos);
  CHECK(hlt_exits.count(EventKind::kvm_avic_doorbell) == 0);
  // A vCPU on a pCPU that is not isolated keeps its timer, whose interrupt ends guest mode.
  const AvicRun here = run_timers(deadline_mode, deadline, {"host.nohz_full=[0]"});
  CHECK(here.exits(0).find("interrupt 5") != std::string::npos);
}

TEST_CASE("a posted timer interrupt does not come before its deadline") {
  for (const char* irq : {"0", "20000"}) {  // early by the advance, and late
    const AvicRun run = run_timers(deadline_mode, deadline, {std::string("host.cost.t_timer_irq=") + irq});
    std::uint64_t armed = 0;
    std::size_t posted = 0;
    for (const auto& event : run.events) {
      if (event.kind == EventKind::kvm_msr && event.field[1] == 0x6e0) armed = event.field[2];
      if (event.kind != EventKind::kvm_apicv_accept_irq) continue;
      CHECK(event.time >= armed);
      ++posted;
    }
    CHECK(posted == timers);
  }
}

}  // namespace svmsim::model::test
