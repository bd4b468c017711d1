// The same bytes everywhere: digests of whole event streams that every compiler and every process must give.

#include <doctest/doctest.h>

#include "tests/model/model_fixture.hpp"
#include "tests/model/random_source.hpp"

namespace svmsim::model::test {

namespace {

/// FNV-1a, 64 bits, over all events of a run.
class DigestSink final : public EventSink {
 public:
  void on_event(const workloads::TraceEvent& event) override {
    add(event.time);
    add(static_cast<std::uint64_t>(event.kind));
    add(static_cast<std::uint64_t>(event.cpu + 1) << 32 | static_cast<std::uint32_t>(event.tid));
    for (const std::uint64_t field : event.field)
      add(field);
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return digest_; }

 private:
  void add(std::uint64_t word) {
    for (unsigned shift = 0; shift < 64; shift += 8) {
      digest_ = (digest_ ^ ((word >> shift) & 0xffU)) * 0x100000001b3U;
    }
  }
  std::uint64_t digest_ = 0xcbf29ce484222325U;
};

std::uint64_t digest(Simulation& simulation) {
  DigestSink sink;
  simulation.add_sink(sink);
  (void)simulation.run();
  return sink.value();
}

// Costs of its own, so that a profile may change without a new digest.
std::vector<std::string> fixed_costs() {
  return {"host.profile=lab",          "host.cost.t_world=700",  "host.cost.t_loop=250",
          "host.cost.h_icr=130",       "host.cost.h_eoi=120",    "host.cost.h_hlt=40",
          "host.cost.t_user_exit=900", "host.cost.t_ipi_hw=300", "host.cost.t_sched_in=900",
          "host.cost.t_sched_out=500", "host.cost.t_wakeup=400", "host.cost.t_irq_host=200",
          "host.cost.t_tick=300",      "host.cost.poll_step=50"};
}

}  // namespace

TEST_CASE("event streams have the digests that every compiler gives") {
  std::vector<std::string> one = fixed_costs();
  one.insert(one.end(), {"vm.workload.iterations=200", "host.kernel=6.12", "host.hz=10000"});
  Simulation idle(scenario_of("idle_hlt_test", one));
  const std::uint64_t idle_digest = digest(idle);
  CAPTURE(idle_digest);
  Simulation again(scenario_of("idle_hlt_test", one));
  CHECK(digest(again) == idle_digest);

  std::vector<std::string> many = fixed_costs();
  many.insert(many.end(), {"host.pcpus=3", "vm.vcpus=4", "host.kernel=6.18", "run.duration=2ms",
                           "host.hz=1000", "kvm.avic=false"});
  Simulation random(scenario_of("ping_pong", many));
  random.set_source_factory([](const VmConfig& vm, unsigned, unsigned vcpu) {
    return std::make_unique<RandomSource>(4711, vcpu, vm.vcpus, 500);
  });
  const std::uint64_t random_digest = digest(random);
  CAPTURE(random_digest);
  CHECK(idle_digest == 9752857540301673488U);
  CHECK(random_digest == 13755126125348871140U);
}

}  // namespace svmsim::model::test
