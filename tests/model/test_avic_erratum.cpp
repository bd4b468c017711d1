// Erratum 1235 (svm-hardware.md 8.7): a sender that misses the cleared IsRunning rings a core in vain, and
// the target sleeps on; and KVM's answer to it.

#include <doctest/doctest.h>

#include "tests/model/avic_fixture.hpp"

namespace svmsim::model::test {

namespace {

constexpr GuestApic x2 = GuestApic::x2apic;

/// vCPU 1 halts at once; vCPU 0 interrupts it after `delay` cycles.
AvicRun race(std::uint64_t delay, std::vector<std::string> overrides) {
  const GuestProgram program(x2, {compute(delay) + send(x2, 1, 0x41) + compute(1000), halt_until(0x41)});
  overrides.insert(overrides.begin(), {"kvm.halt_poll_ns=0", "run.duration=50ms"});
  return run_avic(program, 2, std::move(overrides));
}

/// Delays, in steps, at which the interrupt never arrives.
unsigned lost(const std::vector<std::string>& overrides) {
  unsigned count = 0;
  for (std::uint64_t delay = 1; delay <= 20'001; delay += 500) {
    const AvicRun run = race(delay, overrides);
    count += run.result.ipi_latency.count() == 0 ? 1U : 0U;
  }
  return count;
}

const std::vector<std::string> faulty{"host.knobs.isrunning_stale_read=true",
                                      "host.cost.u_stale_is_running=5000"};

std::vector<std::string> with(std::vector<std::string> base, const std::vector<std::string>& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

}  // namespace

TEST_CASE("without the erratum no wake-up is lost, whenever the IPI comes") {
  CHECK(lost({}) == 0);
  CHECK(lost({"kvm.enable_ipiv=false"}) == 0);
}

TEST_CASE("with the erratum an IPI just after the target has blocked is lost; with enable_ipiv off none is") {
  const unsigned in_vain = lost(faulty);
  CHECK(in_vain > 0);
  CHECK(in_vain < 41);
  CHECK(lost(with(faulty, {"kvm.enable_ipiv=false"})) == 0);
  // The kernel's answer on the family that has it.
  CHECK(lost(with(faulty, {"host.profile=zen2", "host.features=[\"+x2avic\"]", "host.kernel=6.18"})) == 0);
  CHECK(lost(with(faulty, {"host.profile=zen2", "host.features=[\"+x2avic\"]", "host.kernel=6.12"})) > 0);
  // The window is what the knob says.
  CHECK(lost({"host.knobs.isrunning_stale_read=true", "host.cost.u_stale_is_running=0"}) == 0);
}

}  // namespace svmsim::model::test
