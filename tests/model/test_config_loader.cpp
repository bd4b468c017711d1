#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "config_fixture.hpp"

using namespace svmsim::model;
using namespace svmsim::model::testing;
using svmsim::Problem;
using svmsim::svm::Feature;
using svmsim::workloads::EventKind;
using svmsim::workloads::KernelGeneration;
using svmsim::workloads::ParameterValue;

TEST_CASE("scenario: the smallest one gets every default") {
  const Scenario scenario = load_text(smallest);
  CHECK(scenario.host.profile == "turin");
  CHECK(scenario.host.tsc_hz == 2700000000);
  CHECK(scenario.host.pcpus == 1);
  CHECK(scenario.host.kernel == KernelGeneration::v6_12);
  CHECK(scenario.host.hz == 250);
  CHECK(scenario.host.features.has(Feature::idle_hlt));
  CHECK(scenario.host.tracepoints.empty());
  CHECK(scenario.host.cost.t_world > 0);
  CHECK(scenario.host.cstates.size() == 2);
  CHECK(scenario.kvm.idle_hlt);
  CHECK_FALSE(scenario.kvm.avic);
  CHECK(scenario.kvm.halt_poll_ns == 200000);
  CHECK(scenario.kvm.halt_poll_ns_grow_start == 10000);
  REQUIRE(scenario.vms.size() == 1);
  CHECK(scenario.vms[0].name == "vm0");
  CHECK(scenario.vms[0].vcpus == 1);
  CHECK(scenario.vms[0].pin.empty());
  CHECK(scenario.vms[0].apic == "x2apic");
  CHECK(scenario.vms[0].workload.kind == "cpuid");
  CHECK(scenario.vms[0].workload.parameters.count("iterations") == 1);
  CHECK_FALSE(scenario.run.duration_ns.has_value());
  CHECK(scenario.run.seed == 1);
  CHECK(scenario.run.run_ahead);
}

TEST_CASE("scenario: the example of the design, reduced to what this version models") {
  const Scenario scenario = load_text(R"(
[host]
profile = "turin"
pcpus = 1
kernel = "6.12"
hz = 250
features = ["+pmc_virt", "-idle_hlt", "+np"]
tracepoints = ["kvm_exit", "kvm_entry", "kvm_exit", "kvm_msr"]

[host.knobs]
idle_hlt_pending = "raw"

[host.cost]
t_trace = 700

[[host.cstate]]
name = "C2"
latency = "400us"
residency = "800us"
wake = "21us"

[[host.cstate]]
name = "C1"
latency = 1000

[kvm]
avic = false
idle_hlt = true
halt_poll_ns = "150us"

[[vm]]
name = "vm0"
count = 1
vcpus = 1
pin = [0]
apic = "x2apic"

[vm.workload]
kind = "idle_hlt_test"
iterations = 0
goal = 1073741824
setup_msr_writes = 53

[run]
duration = "1s"
warmup = "0s"
seed = 1
)");
  CHECK_FALSE(scenario.host.features.has(Feature::idle_hlt));
  CHECK(scenario.host.features.has(Feature::pmc_virt));
  CHECK(scenario.host.feature_changes ==
        std::vector<std::string>{"+pmc_virt", "-idle_hlt"});  // +np changes nothing
  CHECK(scenario.host.tracepoints ==
        std::vector<EventKind>{EventKind::kvm_entry, EventKind::kvm_exit, EventKind::kvm_msr});
  CHECK(scenario.host.knobs.idle_hlt_pending == svmsim::svm::IdleHltPending::raw);
  CHECK(scenario.host.cost.t_trace == 700);
  REQUIRE(scenario.host.cstates.size() == 2);
  CHECK(scenario.host.cstates[0].name == "C1");
  CHECK(scenario.host.cstates[1].wake_ns == 21000);
  CHECK(scenario.kvm.halt_poll_ns == 150000);
  CHECK(scenario.vms[0].pin == std::vector<unsigned>{0});
  CHECK(scenario.vms[0].workload.parameters.at("setup_msr_writes") == ParameterValue(std::int64_t{53}));
  CHECK(scenario.run.duration_ns == 1000000000);
}

TEST_CASE("scenario: defaults follow the kernel generation") {
  CHECK(load_text(smallest, {"host.kernel=6.1"}).kvm.halt_poll_ns_shrink == 0);
  CHECK(load_text(smallest, {"host.kernel=6.12"}).kvm.halt_poll_ns_shrink == 2);
  CHECK(load_text(smallest, {"host.kernel=6.18"}).kvm.halt_poll_ns_shrink == 2);
  CHECK(load_text(smallest, {"host.kernel=6.1", "kvm.halt_poll_ns_shrink=3"}).kvm.halt_poll_ns_shrink == 3);
}

TEST_CASE("scenario: count unrolls, names run on") {
  const Scenario scenario = load_text(R"(
[[vm]]
name = "web"
count = 2
workload = {kind = "cpuid"}
[[vm]]
workload = {kind = "cpuid"}
[[vm]]
count = 2
workload = {kind = "vmcall"}
)");
  std::vector<std::string> names;
  for (const VmConfig& vm : scenario.vms)
    names.push_back(vm.name);
  CHECK(names == std::vector<std::string>{"web0", "web1", "vm2", "vm3", "vm4"});
  CHECK(scenario.vms[4].workload.kind == "vmcall");
}

TEST_CASE("scenario: a dict and a file give the same") {
  const Scenario from_file =
      load_text("[host]\npcpus = 2\n[[vm]]\nvcpus = 2\npin = [1, 0]\nworkload = {kind = \"cpuid\"}\n");
  const Scenario from_dict = load_scenario(ScenarioSource::from_json(
      R"({"host": {"pcpus": 2}, "vm": [{"vcpus": 2, "pin": [1, 0], "workload": {"kind": "cpuid"}}]})"));
  CHECK(resolved_json(from_file) == resolved_json(from_dict));
}

TEST_CASE("scenario: relative paths start at the file, or at the base directory of a dict") {
  const TempDir directory;
  const std::string trace = directory.write("data/recorded.json", "{}");
  const std::string file =
      directory.write("sub/scenario.toml", "[[vm]]\nworkload = {trace = \"../data/recorded.json\"}\n");
  CHECK(load_scenario(ScenarioSource::from_file(file)).vms[0].trace == trace);
  const std::string dict = R"({"vm": [{"workload": {"trace": "data/recorded.json"}}]})";
  CHECK(load_scenario(ScenarioSource::from_json(dict, directory.path())).vms[0].trace == trace);
  CHECK_THROWS_AS((void)load_scenario(ScenarioSource::from_json(dict, directory.path() + "/sub")),
                  svmsim::UserError);
}

TEST_CASE("--set: one VM, every VM, strings without quotes, tables that were not there") {
  const std::string text =
      "[[vm]]\nname = \"a\"\nworkload = {kind = \"cpuid\"}\n[[vm]]\nname = \"b\"\nworkload = {kind = "
      "\"cpuid\"}\n";
  const Scenario scenario =
      load_text(text, {"vm.vcpus=2", "vm.b.vcpus=3", "host.pcpus = 4", "host.kernel=6.1", "run.duration=3ms",
                       "vm.a.workload.kind=vmcall", "host.tracepoints=[\"kvm_exit\"]", "kvm.idle_hlt=false"});
  CHECK(scenario.vms[0].vcpus == 2);
  CHECK(scenario.vms[1].vcpus == 3);
  CHECK(scenario.host.pcpus == 4);
  CHECK(scenario.host.kernel == KernelGeneration::v6_1);
  CHECK(scenario.run.duration_ns == 3000000);
  CHECK(scenario.vms[0].workload.kind == "vmcall");
  CHECK(scenario.vms[1].workload.kind == "cpuid");
  CHECK(scenario.host.tracepoints == std::vector<EventKind>{EventKind::kvm_exit});
  CHECK_FALSE(scenario.kvm.idle_hlt);
  CHECK(load_text("", {"vm.workload.kind=cpuid"}).vms.size() == 1);
  CHECK(load_text(smallest, {"run.seed=1", "run.seed=2"}).run.seed == 2);
}

TEST_CASE("--set: one VM out of a count, in any order of the overrides") {
  const std::string text = "[[vm]]\nname = \"web\"\ncount = 2\nworkload = {kind = \"cpuid\"}\n";
  const Scenario scenario = load_text(
      text, {"vm.web1.workload.goal=7", "vm.web2.workload.goal=8", "vm.web.workload.goal=9", "vm.count=3"});
  REQUIRE(scenario.vms.size() == 3);
  CHECK(scenario.vms[0].workload.parameters.at("goal") == ParameterValue(std::int64_t{9}));
  CHECK(scenario.vms[1].workload.parameters.at("goal") == ParameterValue(std::int64_t{7}));
  CHECK(scenario.vms[2].workload.parameters.at("goal") == ParameterValue(std::int64_t{8}));
}

TEST_CASE("--set: what is wrong with it") {
  CHECK(problem_text(smallest, {"host.hz"}) == "--set: \"host.hz\" is not key=value");
  CHECK(problem_text(smallest, {"=3"}) == "--set: \"=3\" is not key=value");
  CHECK(problem_text(smallest, {"a b=3"}) == "--set: \"a b=3\" is not key=value");
  CHECK(problem_text(smallest, {"host.hz="}) == "--set: host.hz: \"\" is not a TOML value");
  CHECK(problem_text(smallest, {"host.tracepoints=[kvm_exit]"}) ==
        "--set: host.tracepoints: \"[kvm_exit]\" is not a TOML value");
  CHECK(problem_text(smallest, {"kvm.idle_hlt=yes"}) ==
        "--set: kvm.idle_hlt: expected true or false, found the string \"yes\"");
  CHECK(problem_text(smallest, {"kvm.idle_halt=false"}) ==
        "--set: kvm.idle_halt: unknown key (did you mean kvm.idle_hlt?)");
  CHECK(problem_text(smallest, {"vm.web.vcpus=2"}) == "--set: vm.web.vcpus: there is no VM named web");
  CHECK(problem_text(smallest, {"vm.vm1.vcpus=2"}) ==
        "--set: vm.vm1.vcpus: there is no VM named vm1 (did you mean vm0?)");
  CHECK(problem_text("[host]\nhz = 3\n" + smallest, {"host.hz.x=2"}) ==
        "--set: host.hz.x: hz is the integer 3, not a table");
  CHECK(problem_text(smallest, {"host.hz=1\nseed=2"}) ==
        "--set: host.hz: expected an integer, found the string \"1\nseed=2\"");
}

TEST_CASE(
    "scenario errors: every problem at once, in the order of the file, with line, path and nearest name") {
  const std::string text = R"(halt_pol_ns = 3
[host]
profile = "turbin"
pcpus = 5000
kernel = 6.12
features = ["+idle_hl", "idle_hlt", 3]
tracepoints = ["kvm_enter"]
sched = "eevd"
halt_poll_ns = 3
[host.knobs]
idle_hlt_pending = "prio"
[host.cost]
t_wrld = 5
t_trace = -1
[kvm]
avic = 1
idle_hlt = 1
[[vm]]
pin = [0, 7]
apic = "apic"
idle = "pol"
vcpus = 1.0
[vm.workload]
kind = "idle_hlt_tst"
[[vm]]
name = "vm0"
count = 0
pn = [1]
[vm.workload]
kind = "cpuid"
iteration = 3
[run]
duration = "1 s"
seed = -4
)";
  const std::string expected =
      "scenario.toml:1: halt_pol_ns: unknown key (did you mean kvm.halt_poll_ns?)\n"
      "scenario.toml:3: host.profile: unknown profile \"turbin\" (did you mean turin?)\n"
      "scenario.toml:4: host.pcpus: 5000 is out of range, 1 to 1024 (did you mean 1024?)\n"
      "scenario.toml:5: host.kernel: expected one of the strings 6.1, 6.12, 6.18, found the float 6.12 (did "
      "you mean \"6.12\"?)\n"
      "scenario.toml:6: host.features[0]: unknown value \"+idle_hl\" (did you mean +idle_hlt?)\n"
      "scenario.toml:6: host.features[1]: unknown value \"idle_hlt\" (did you mean +idle_hlt?)\n"
      "scenario.toml:6: host.features[2]: expected a string, found the integer 3\n"
      "scenario.toml:7: host.tracepoints[0]: unknown value \"kvm_enter\" (did you mean kvm_entry?)\n"
      "scenario.toml:8: host.sched: unknown value \"eevd\", expected cfs, eevdf (did you mean eevdf?)\n"
      "scenario.toml:9: host.halt_poll_ns: unknown key (did you mean kvm.halt_poll_ns?)\n"
      "scenario.toml:11: host.knobs.idle_hlt_pending: unknown value \"prio\", expected raw, priority, "
      "deliverable (did you mean priority?)\n"
      "scenario.toml:13: host.cost.t_wrld: unknown key (did you mean host.cost.t_world?)\n"
      "scenario.toml:14: host.cost.t_trace: -1 is out of range, 0 to 1000000000 (did you mean 0?)\n"
      "scenario.toml:16: kvm.avic: expected true or false, found the integer 1\n"
      "scenario.toml:17: kvm.idle_hlt: expected true or false, found the integer 1\n"
      "scenario.toml:20: vm.vm0.apic: unknown value \"apic\", expected x2apic, xapic (did you mean xapic?)\n"
      "scenario.toml:21: vm.vm0.idle: unknown value \"pol\", expected hlt, haltpoll, cpuidle_kvm, poll (did "
      "you mean "
      "poll?)\n"
      "scenario.toml:22: vm.vm0.vcpus: expected an integer, found the float 1 (did you mean 1?)\n"
      "scenario.toml:24: vm.vm0.workload.kind: \"idle_hlt_tst\" is not a built-in program (did you mean "
      "idle_hlt_test?)\n"
      "scenario.toml:26: vm.vm0.name: two VMs are named vm0 (did you mean vm1?)\n"
      "scenario.toml:27: vm.vm0.count: 0 is out of range, 1 to 1024 (did you mean 1?)\n"
      "scenario.toml:28: vm.vm0.pn: unknown key (did you mean vm.vm0.pin?)\n"
      "scenario.toml:31: vm.vm0.workload.iteration: cpuid has no such parameter (did you mean iterations?)\n"
      "scenario.toml:33: run.duration: \"1 s\" is no duration; write a whole number of ns, or a number with "
      "s, ms, us or ns "
      "that gives one\n"
      "scenario.toml:34: run.seed: -4 is out of range, at least 0 (did you mean 0?)";
  CHECK(problem_text(text) == expected);
}

TEST_CASE("scenario errors: impossible pins") {
  CHECK(problem_text("[host]\npcpus = 4\n[[vm]]\nvcpus = 2\npin = [0]\nworkload = {kind = \"cpuid\"}\n") ==
        "scenario.toml:5: vm.vm0.pin: 1 pCPUs for 2 vCPUs; a pin list has one pCPU for each vCPU");
  CHECK(problem_text("[host]\npcpus = 4\n[[vm]]\nname = \"a\"\nvcpus = 2\npin = [3, 4]\nworkload = {kind = "
                     "\"cpuid\"}\n") ==
        "scenario.toml:6: vm.a.pin[1]: the host has no pCPU 4, only 0 to 3 (host.pcpus) (did you mean 3?)");
  CHECK(problem_text("[[vm]]\npin = [-1]\nworkload = {kind = \"cpuid\"}\n") ==
        "scenario.toml:2: vm.vm0.pin[0]: -1 is out of range, 0 to 1023 (did you mean 0?)");
  CHECK(problem_text("[[vm]]\npin = [1]\nworkload = {kind = \"cpuid\"}\n", {"host.pcpus=2"}).empty());
}

TEST_CASE("scenario errors: VMs and workloads") {
  CHECK(problem_text("[host]\npcpus = 1\n") ==
        "scenario.toml:1: vm: a scenario needs at least one [[vm]] table");
  CHECK(problem_text("[vm]\nvcpus = 1\n") ==
        "scenario.toml:1: vm: expected [[vm]] tables (a list), found a table");
  CHECK(
      problem_text("[[vm]]\nvcpus = 1\n") ==
      "scenario.toml:1: vm.vm0.workload: missing; say what the VM runs with kind (a program), tasks (a task "
      "set) or trace (a recording)");
  CHECK(problem_text("[[vm]]\nworkload = {}\n") ==
        "scenario.toml:2: vm.vm0.workload.kind: missing; name a program, or give tasks or trace instead");
  CHECK(problem_text("[[vm]]\nworkload = {kind = \"cpuid\", trace = \"x\"}\n") ==
        "scenario.toml:2: vm.vm0.workload: kind, tasks and trace exclude each other");
  CHECK(problem_text("[[vm]]\nworkload = {tasks = \"t.json\"}\n").find("t.json does not exist") !=
        std::string::npos);
  CHECK(problem_text("[[vm]]\nworkload = {tasks = \"pingpon\"}\n") ==
        "scenario.toml:2: vm.vm0.workload.tasks: there is no task set \"pingpon\" (did you mean pingpong?)");
  CHECK(problem_text("[[vm]]\nworkload = {tasks = \"idle\", goal = 3}\n") ==
        "scenario.toml:2: vm.vm0.workload.goal: unknown key");
  CHECK(problem_text("[[vm]]\nworkload = {kind = \"cpuid\", iterations = \"many\"}\n")
            .find("vm.vm0.workload.iterations") != std::string::npos);
  CHECK(problem_text("[[vm]]\nworkload = {kind = \"cpuid\", iterations = [1]}\n") ==
        "scenario.toml:2: vm.vm0.workload.iterations: expected a single value, found a list");
  CHECK(problem_text("[[vm]]\nname = \"a b\"\nworkload = {kind = \"cpuid\"}\n") ==
        "scenario.toml:2: vm.a b.name: \"a b\" has other characters than letters, digits, - and _");
  CHECK(problem_text("[[vm]]\nname = \"pin\"\nworkload = {kind = \"cpuid\"}\n") ==
        "scenario.toml:2: vm.pin.name: \"pin\" is the name of a key, so vm.pin would have two meanings");
  CHECK(problem_text("[[vm]]\nname = \"vm\"\ncount = 2\nworkload = {kind = \"cpuid\"}\n[[vm]]\nname = "
                     "\"vm1\"\nworkload = {kind = \"cpuid\"}\n") ==
        "scenario.toml:6: vm.vm1.name: two VMs are named vm1 (did you mean vm2?)");
}

TEST_CASE("scenario errors: missing files") {
  const TempDir directory;
  const std::string file =
      directory.write("s.toml",
                      "[host]\nprofile = \"mine.toml\"\n[[vm]]\nworkload = {trace = \"no.json\"}\n"
                      "[[vm]]\nworkload = {kind = \"./prog\"}\n");
  try {
    (void)load_scenario(ScenarioSource::from_file(file));
    FAIL("must throw");
  } catch (const svmsim::UserError& error) {
    const std::string at = directory.path() + "/";
    CHECK(error.what() == file + ":2: host.profile: the file " + at + "mine.toml does not exist\n" + file +
                              ":4: vm.vm0.workload.trace: the file " + at + "no.json does not exist\n" +
                              file + ":6: vm.vm1.workload.kind: the file " + at + "prog does not exist");
  }
  CHECK_THROWS_WITH_AS((void)load_scenario(ScenarioSource::from_file(directory.path() + "/none.toml")),
                       (directory.path() + "/none.toml: the file does not exist").c_str(), svmsim::UserError);
  CHECK_THROWS_WITH_AS((void)load_scenario(ScenarioSource::from_file(directory.path())),
                       (directory.path() + ": the file is a directory").c_str(), svmsim::UserError);
}

TEST_CASE("scenario errors: syntax has a line and a column, and stops the rest") {
  const auto problems = problems_of("[host]\npcpus = \n");
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].line == 2);
  CHECK(problems[0].message.find("column 9: TOML syntax error") == 0);
  try {
    (void)load_scenario(ScenarioSource::from_json("{\"host\": "));
    FAIL("must throw");
  } catch (const svmsim::UserError& error) {
    CHECK(error.problems().front().source == "<dict>");
  }
  CHECK_THROWS_WITH_AS((void)load_scenario(ScenarioSource::from_json("[1]")),
                       "<dict>: a scenario is a table of sections (host, kvm, vm, run)", svmsim::UserError);
}

TEST_CASE("scenario errors: warm-up and types that no parameter has") {
  CHECK(problem_text(smallest + "[run]\nduration = \"1ms\"\nwarmup = \"1ms\"\n") ==
        "scenario.toml:5: run.warmup: 1ms is not shorter than run.duration, 1ms");
  CHECK(problem_text(smallest + "[run]\nseed = 2024-01-01\n") ==
        "scenario.toml:4: run.seed: expected an integer, found a date or time");
  CHECK_THROWS_WITH_AS(
      (void)load_scenario(ScenarioSource::from_json(
          R"({"vm": [{"workload": {"kind": "cpuid"}}], "run": {"seed": 18446744073709551615, "duration": null}})")),
      "<dict>: run.seed: expected an integer, found an integer beyond 64 bits\n"
      "<dict>: run.duration: expected a duration (an integer of ns, or a string such as \"10ms\"), found "
      "null (None)",
      svmsim::UserError);
}

TEST_CASE("scenario errors: idle states") {
  CHECK(problem_text("[[host.cstate]]\nlatency = 3\n[[host.cstate]]\nname = \"C1\"\n[[host.cstate]]\nname = "
                     "\"C1\"\nwak = 3\n" +
                     smallest) ==
        "scenario.toml:1: host.cstate.name: missing\n"
        "scenario.toml:5: host.cstate.name: two idle states are named C1\n"
        "scenario.toml:7: host.cstate.wak: unknown key (did you mean host.cstate.wake?)");
}
