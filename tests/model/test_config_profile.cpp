#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "config_fixture.hpp"
#include "model/config/profile.hpp"

using namespace svmsim::model;
using namespace svmsim::model::testing;
using svmsim::Problem;
using svmsim::svm::Feature;

namespace {

/// Times of the idle-HLT thread's guest on a profile, from the round-trip identities alone.
struct Arithmetic {
  double eoi, icr, hlt, vintr, off, on;
  Arithmetic(const Costs& c, bool fastpath) {
    const double exit = c.t_world + c.t_loop;
    constexpr double guest_code = 60;
    eoi = exit + c.h_eoi;
    icr = exit + c.h_icr + c.h_accept_irq + c.h_irq_window;
    hlt = fastpath ? c.t_world + c.t_fastpath_loop + c.h_hlt : exit + c.h_hlt + c.h_vcpu_block;
    vintr = exit + c.h_vintr + c.h_inject;
    off = icr + hlt + vintr + c.t_irq_deliver + eoi + c.t_iret + guest_code;
    on = off - hlt + c.t_halt_abort;
  }
};

}  // namespace

TEST_CASE("turin: its costs give the published idle-HLT measurements, with and without a HLT fastpath") {
  const Costs& c = builtin_profile("turin").cost;
  for (const bool fastpath : {false, true}) {
    CAPTURE(fastpath);
    const Arithmetic t(c, fastpath);
    CHECK(t.eoi == doctest::Approx(1153).epsilon(0.05));
    CHECK(t.icr - t.eoi == doctest::Approx(150).epsilon(0.1));
    CHECK(t.off == doctest::Approx(4806).epsilon(0.05));
    CHECK(t.on == doctest::Approx(5048).epsilon(0.05));
    // Host time of perf kvm stat: without the world switch, with the recording inside the exit.
    const double msr = (t.icr + t.eoi) / 2 - c.t_world + 2 * c.t_trace;
    const double hlt = t.hlt - c.t_world + c.t_trace;
    const double vintr = t.vintr - c.t_world + c.t_trace;
    CHECK(hlt / msr == doctest::Approx(0.52).epsilon(0.12));
    CHECK(vintr / msr == doctest::Approx(0.55).epsilon(0.12));
    CHECK(hlt / (2 * msr + hlt + vintr) == doctest::Approx(0.17).epsilon(0.1));
    const double io = c.t_loop + c.h_io_kernel + c.t_user_exit + 2 * c.t_trace;
    CHECK(io / msr == doctest::Approx(4.5).epsilon(0.2));
    // The doubling harness: 10 and 8 records an iteration. It ends at the same batch in both modes, and at
    // t_trace = 1300 one batch earlier without idle HLT.
    CHECK(t.off + 10 * c.t_trace > 8192 * 1.05);
    CHECK(t.on + 8 * c.t_trace > 8192 * 1.05);
    CHECK(t.off + 10 * c.t_trace < 16384 * 0.95);
    CHECK(t.off + 10 * 1300 > 16384 * 1.05);
    CHECK(t.on + 8 * 1300 < 16384 * 0.95);
    CHECK(t.off > 4096 * 1.05);
    CHECK(t.on < 8192 * 0.95);
  }
}

TEST_CASE("zen2: its costs give the published Zen 2 figures") {
  const Costs& c = builtin_profile("zen2").cost;
  CHECK(c.t_world == doctest::Approx(1360).epsilon(0.02));  // C-03
  const double user = c.t_world + c.t_loop + c.h_io_kernel + c.t_user_exit;
  const double kernel = c.t_world + c.t_loop + c.h_io_kernel;
  CHECK(c.t_loop + c.h_hlt + c.t_user_exit - c.t_device == 1170);  // C-03
  CHECK(user / kernel > 2.2);                                      // C-04
  CHECK(user / kernel < 4.5);
  CHECK(c.h_icr + c.h_accept_irq + c.h_irq_window - c.h_eoi == 150);
  // C-05: a send by hypercall, and by AVIC with the ICR poll and the ICR2 write before it.
  const double hypercall = c.t_world + c.t_loop + c.h_vmmcall + c.h_pv_ipi + c.h_accept_irq + c.h_doorbell;
  CHECK(c.g_call + hypercall == doctest::Approx(3756).epsilon(0.01));
  const double avic = 2 * c.u_avic_access + c.u_avic_icr + c.u_avic_icr_end;
  CHECK(c.g_call + avic == doctest::Approx(2219).epsilon(0.01));
  const Profile& profile = builtin_profile("zen2");
  CHECK(profile.tsc_hz == 2250000000);
  for (const Feature feature : {Feature::x2avic, Feature::vnmi, Feature::idle_hlt})
    CHECK_FALSE(profile.features.has(feature));
  CHECK(profile.features.has(Feature::avic));
}

TEST_CASE("lab: its costs give the instruction counts of the recordings") {
  const Costs& c = builtin_profile("lab").cost;
  const double exit = c.t_world + c.t_loop;
  constexpr double loop = 6;
  CHECK(exit + c.h_cpuid + loop == 1161);
  CHECK(exit + c.h_vmmcall + loop == 1290);
  CHECK(exit + c.h_msr + loop == 1269);
  CHECK(exit + c.h_io_kernel + c.t_user_exit + loop == doctest::Approx(3345).epsilon(0.01));
  CHECK(exit + c.h_io_kernel + c.t_user_exit + loop == doctest::Approx(3299).epsilon(0.01));
  // Recording a2: the ICR write goes through the fastpath, which finds a request and still leaves the inner
  // loop.
  const double a2 = Arithmetic(c, true).off - c.t_loop + c.t_fastpath_loop - 60 + 36;
  CHECK(a2 == doctest::Approx(7411).epsilon(0.005));
  CHECK(builtin_profile("lab").tsc_hz == 1000000000);
  CHECK(builtin_profile("lab").features ==
        svmsim::svm::FeatureSet{Feature::np, Feature::nrips, Feature::vgif, Feature::pause_filter,
                                Feature::pause_filter_threshold, Feature::idle_hlt});
}

TEST_CASE("profiles: a user's file, found beside the scenario") {
  std::string text =
      "name = \"mine\"\ndoc = \"d\"\ncpu = \"c\"\ntsc_hz = 2000000000\nfeatures = [\"np\"]\n[cost]\n";
  for (const ProfileCost& cost : builtin_profile("turin").costs)
    text += cost.name + " = {value = 7, source = \"test\"}\n";
  const TempDir directory;
  directory.write("mine.toml", text);
  const std::string file =
      directory.write("s.toml", "[host]\nprofile = \"mine.toml\"\ncost = {t_world = 9}\n" + smallest);
  const Scenario scenario = load_scenario(ScenarioSource::from_file(file));
  CHECK(scenario.host.profile == directory.path() + "/mine.toml");
  CHECK(scenario.host.tsc_hz == 2000000000);
  CHECK(scenario.host.cpu == "c");
  CHECK(scenario.host.cost.t_loop == 7);
  CHECK(scenario.host.cost.t_world == 9);
  CHECK(scenario.host.cstates.empty());
  CHECK(resolved_json(load_scenario(ScenarioSource::from_json(resolved_json(scenario)))) ==
        resolved_json(scenario));
}

TEST_CASE("profiles: everything that is wrong with a file at once") {
  std::vector<Problem> problems;
  std::string text = "name = 3\ntsc_hz = 1\ncpu = \"c\"\nfeature = []\n[cost]\n";
  for (const ProfileCost& cost : builtin_profile("turin").costs) {
    if (cost.name == "t_iret") continue;
    if (cost.name == "t_world") {
      text += "t_world = 5\n";
    } else if (cost.name == "h_eoi") {
      text += "h_eoi = {value = -1, source = \"\", unit = 3}\n";
    } else if (cost.name == "h_icr") {
      text += "h_icr = {source = \"s\"}\n";
    } else {
      text += cost.name + " = {value = 1, source = \"s\"}\n";
    }
  }
  text += "t_irett = {value = 1, source = \"s\"}\n[[cstate]]\nname = \"C1\"\nlatency = \"1us\"\n";
  (void)parse_profile(text, "p.toml", problems);
  std::vector<std::string> found;
  for (const Problem& problem : problems)
    found.push_back(problem.path + ": " + problem.message);
  const std::vector<std::string> expected{
      "name: expected a string, found the integer 3",
      "doc: missing",
      "tsc_hz: 1 is out of range, 1000000 to 10000000000",
      "features: missing",
      "cost.t_world: expected {value = ..., source = \"...\"}, found the integer 5",
      "cost.h_eoi.unit: unknown key",
      "cost.h_eoi: has no source; say in one sentence what identified the number",
      "cost.h_eoi: -1 is out of range, 0 to 1000000000",
      "cost.h_icr: has no value",
      "cost.t_iret: missing",
      "cost.t_irett: unknown cost",
      "cstate: has no source; say in one sentence what identified the number",
      "cstate.residency: missing",
      "cstate.wake: missing",
      "feature: unknown key",
  };
  CHECK(found == expected);
  CHECK_THROWS_WITH_AS((void)load_profile("turrin"),
                       "host.profile: unknown profile \"turrin\" (did you mean turin?)", svmsim::UserError);
}
