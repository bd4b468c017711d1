// The guests of the real recordings (kvm_amd on emulated SVM) give their exits per reason. The expected
// counts are those of each recording's counts.json; `interrupt` and `npf` belong to the recording host and
// stand apart.

#include <cmath>

#include <doctest/doctest.h>

#include "svm/exit_code.hpp"
#include "tests/model/program_run.hpp"

namespace svmsim::model::test {

namespace {

using Counts = std::map<std::string, int>;

/// Exits of each vCPU between its OUT to port 11h and that to port 12h, but for io, interrupt and npf.
std::vector<Counts> window_of(const Run& run, unsigned vcpus) {
  std::vector<Counts> counts(vcpus);
  std::vector<int> phase(vcpus, 0);
  for (const auto& event : run.events) {
    if (event.vcpu < 0) continue;
    const auto vcpu = static_cast<std::size_t>(event.vcpu);
    if (event.kind == workloads::EventKind::kvm_pio && event.field[1] == 0x11) phase[vcpu] = 1;
    if (event.kind == workloads::EventKind::kvm_pio && event.field[1] == 0x12) phase[vcpu] = 2;
    if (event.kind != workloads::EventKind::kvm_exit || phase[vcpu] != 1) continue;
    const std::string name = svm::exit_name_or_hex(event.field[0]);
    if (name != "io" && name != "interrupt" && name != "npf") ++counts[vcpu][name];
  }
  return counts;
}

struct Recording {
  const char* name;
  const char* kind;
  std::vector<std::string> overrides;
  std::vector<Counts> counts;  ///< by vCPU
};

Run simulate(const Recording& recording, std::vector<std::string> more = {}) {
  std::vector<std::string> overrides = recording.overrides;
  overrides.emplace_back("host.profile=lab");
  overrides.push_back("vm.vcpus=" + std::to_string(recording.counts.size()));
  overrides.insert(overrides.end(), more.begin(), more.end());
  return run_scenario(scenario_of(recording.kind, overrides));
}

const std::vector<Recording>& one_vcpu() {
  const Counts timer{{"msr", 1000}, {"hlt", 500}};
  static const std::vector<Recording> recordings{
      {"6.12/b1-selfipi-xapic",
       "lab_selfipi_xapic",
       {"vm.apic=xapic", "host.kernel=6.12", "kvm.idle_hlt=false"},
       {{{"hlt", 1000}, {"vintr", 1000}}}},
      {"6.18-idle-hlt/b1-selfipi-xapic",
       "lab_selfipi_xapic",
       {"vm.apic=xapic", "host.kernel=6.18"},
       {{{"vintr", 1000}}}},
      {"6.1/c-mixed-50us-1of8-1000us-hp200k",
       "lab_mixed",
       {"host.kernel=6.1", "kvm.idle_hlt=false"},
       {{{"msr", 800}, {"hlt", 400}}}},
      {"6.12/c-mixed-50us-1of8-1000us-hp200k",
       "lab_mixed",
       {"host.kernel=6.12", "kvm.idle_hlt=false"},
       {{{"msr", 800}, {"hlt", 400}}}},
      {"6.12/c-periodic-500us-halt-hp200k",
       "lab_periodic",
       {"host.kernel=6.12", "kvm.idle_hlt=false"},
       {{{"msr", 503}, {"hlt", 500}}}},
      {"6.12/c-periodic-500us-spin",
       "lab_periodic",
       {"host.kernel=6.12", "kvm.idle_hlt=false", "vm.workload.spin=true"},
       {{{"msr", 503}}}},
      {"6.12/c-tmict-50us-hp200k",
       "lab_timer",
       {"host.kernel=6.12", "kvm.idle_hlt=false", "vm.workload.tmict=true", "vm.workload.ns=50000"},
       {timer}},
      {"6.18-idle-hlt/c-tscdl-100us-hp200k",
       "lab_timer",
       {"host.kernel=6.18"},
       {{{"msr", 1000}, {"idle-halt", 500}}}},
  };
  return recordings;
}

// Within 2 % of the count, and never stricter than one exit.
bool near(int simulated, int recorded) {
  return std::abs(simulated - recorded) <= std::max(1, recorded / 50);
}

void check_near(const Recording& recording) {
  const Run run = simulate(recording);
  CHECK(run.result.failure.empty());
  const std::vector<Counts> windows = window_of(run, static_cast<unsigned>(recording.counts.size()));
  for (std::size_t vcpu = 0; vcpu < windows.size(); ++vcpu) {
    for (const auto& [reason, count] : recording.counts[vcpu]) {
      CAPTURE(vcpu);
      CAPTURE(reason);
      const auto found = windows[vcpu].find(reason);
      const int simulated = found == windows[vcpu].end() ? 0 : found->second;
      CHECK_MESSAGE(near(simulated, count), simulated, " against ", count);
    }
  }
}

}  // namespace

TEST_CASE("recordings of one vCPU: b1 and the timers c, exactly") {
  for (const Recording& recording : one_vcpu()) {
    CAPTURE(recording.name);
    const Run run = simulate(recording);
    CHECK(run.result.failure.empty());
    CHECK(window_of(run, 1)[0] == recording.counts[0]);
  }
}

TEST_CASE("recordings c-tscdl: every wait and every polling window, exactly") {
  for (const char* ns : {"20000", "50000", "100000", "150000", "250000", "1000000"}) {
    for (const char* poll : {"0", "50000", "200000"}) {
      CAPTURE(std::string(ns));
      CAPTURE(std::string(poll));
      const Recording recording{
          "c-tscdl",
          "lab_timer",
          {"host.kernel=6.12", "kvm.idle_hlt=false", std::string("vm.workload.ns=") + ns,
           std::string("kvm.halt_poll_ns=") + poll},
          {{{"msr", 1000}, {"hlt", 500}}}};
      const Run run = simulate(recording);
      CHECK(window_of(run, 1)[0] == recording.counts[0]);
    }
  }
}

TEST_CASE("recording c-tscdl-100us-hp200k: the polls succeed as often as in the host's statistics") {
  // halt_attempted_poll 499, halt_successful_poll 495, halt_wakeup 5 of 500 halts: the window grows from 0 by
  // 10, 20, 40, 80, 160 us.
  const Recording recording{
      "c", "lab_timer", {"host.kernel=6.12", "kvm.idle_hlt=false"}, {{{"msr", 1000}, {"hlt", 500}}}};
  const VcpuStats stats = simulate(recording, {"host.hz=0"}).result.vcpus[0].stats;
  CHECK(stats.halt_attempted_poll == 499);
  CHECK(stats.halt_successful_poll == 495);
  CHECK(stats.halt_wakeup == 5);
}

TEST_CASE("recordings of two vCPUs on two CPUs: d1 and d2, within 2 %") {
  for (const char* poll : {"200000", "0"}) {
    CAPTURE(std::string(poll));
    check_near(
        {"6.12/d1-pingpong-halt-x2apic",
         "lab_pingpong",
         {"host.kernel=6.12", "kvm.idle_hlt=false", "host.pcpus=2", std::string("kvm.halt_poll_ns=") + poll},
         {{{"msr", 2000}, {"hlt", 1000}}, {{"msr", 2000}, {"hlt", 1000}}}});
  }
  check_near({"6.18-idle-hlt/d1-pingpong-halt-x2apic",
              "lab_pingpong",
              {"host.kernel=6.18", "host.pcpus=2"},
              {{{"msr", 2000}, {"idle-halt", 1000}}, {{"msr", 2000}, {"idle-halt", 998}}}});
  check_near({"6.12/d2-pingpong-target-spin",
              "lab_target_spin",
              {"host.kernel=6.12", "kvm.idle_hlt=false", "host.pcpus=2"},
              {{{"msr", 1000}}, {{"msr", 1000}, {"vintr", 999}}}});
}

TEST_CASE("recordings of broadcasts: e1, e2 and e4, sender and EOIs within 2 %") {
  const std::vector<Counts> shorthand{{{"msr", 300}}, {{"msr", 300}}, {{"msr", 300}}, {{"msr", 300}}};
  check_near({"6.12/e1-bcast-shorthand-halt",
              "lab_broadcast",
              {"host.kernel=6.12", "kvm.idle_hlt=false", "host.pcpus=2", "vm.pin=[0, 1, 0, 1]"},
              shorthand});
  std::vector<Counts> unicast = shorthand;
  unicast[0]["msr"] = 900;
  check_near({"6.12/e2-bcast-physloop-halt",
              "lab_broadcast",
              {"host.kernel=6.12", "kvm.idle_hlt=false", "host.pcpus=2", "vm.pin=[0, 1, 0, 1]",
               "vm.workload.physical=true"},
              unicast});
}

}  // namespace svmsim::model::test
