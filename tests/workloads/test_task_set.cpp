#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "svm/user_error.hpp"
#include "workloads/tasks/task_set.hpp"

using namespace svmsim;
using namespace svmsim::workloads;

namespace {

std::vector<std::string> problems_of(const std::string& text) {
  std::vector<std::string> found;
  try {
    static_cast<void>(TaskSet::parse(text, "set.json"));
  } catch (const UserError& error) {
    for (const Problem& problem : error.problems())
      found.push_back(problem.text());
  }
  return found;
}

bool speaks_of(const std::vector<std::string>& problems, const std::string& part) {
  return std::any_of(problems.begin(), problems.end(),
                     [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("a task set reads as rt-app writes it") {
  const TaskSet set = TaskSet::parse(R"({
    "global": {"duration": 2, "default_policy": "SCHED_OTHER", "calibration": "CPU0"},
    "devices": {"net": {"latency": 12.5, "jitter": 4, "cpu": 1}},
    "tasks": {
      "a": {"instance": 3, "loop": 7, "cpus": [0, 2], "priority": -5, "delay": 10,
            "phases": {"p": {"loop": 2, "run": 100, "sleep": 50, "run1": 1, "resume": "b"},
                       "q": {"cpus": [3], "timer": {"ref": "unique", "period": 1000}, "io": "net"}}},
      "b": {"policy": "SCHED_FIFO", "priority": 30, "suspend": "b", "barrier": "x", "lock": "m", "unlock": "m",
            "ipi": "all", "ipi1": [1, 0], "yield": ""}
    }
  })",
                                     "set.json");
  CHECK(set.duration_ns == 2'000'000'000);
  REQUIRE(set.devices.size() == 1);
  CHECK(set.devices[0].latency_ns == 12500);
  CHECK(set.devices[0].jitter_ns == 4000);
  CHECK(set.devices[0].cpu == 1);
  REQUIRE(set.tasks.size() == 2);
  const TaskSpec& a = set.tasks[0];
  CHECK(a.instances == 3);
  CHECK(a.loop == 7);
  CHECK(a.nice == -5);
  CHECK(a.delay_ns == 10000);
  CHECK(a.cpus == std::vector<unsigned>{0, 2});
  REQUIRE(a.phases.size() == 2);
  CHECK(a.phases[0].loop == 2);
  REQUIRE(a.phases[0].steps.size() == 4);
  CHECK(a.phases[0].steps[0].kind == TaskStepKind::run);
  CHECK(a.phases[0].steps[0].ns == 100000);
  CHECK(a.phases[0].steps[1].kind == TaskStepKind::sleep);
  CHECK(a.phases[0].steps[3].kind == TaskStepKind::resume);
  CHECK(a.phases[0].steps[3].object == 1);
  CHECK(a.phases[1].cpus == std::vector<unsigned>{3});
  CHECK(a.phases[1].steps[0].ns == 1'000'000);
  const TaskSpec& b = set.tasks[1];
  CHECK(b.fifo);
  CHECK(b.rt_priority == 30);
  CHECK(b.loop == 0);
  REQUIRE(b.phases.size() == 1);
  REQUIRE(b.phases[0].steps.size() == 7);
  CHECK(b.phases[0].steps[4].cpus.empty());
  CHECK(b.phases[0].steps[5].cpus == std::vector<unsigned>{0, 1});
  CHECK(set.cpus_needed == 4);
  CHECK(set.barriers == std::vector<std::string>{"x"});
  CHECK(set.locks == std::vector<std::string>{"m"});
}

TEST_CASE("all problems of a task set are told at once, with their keys") {
  const auto problems = problems_of(R"({
    "taks": {}, "devices": {"d": {"latncy": 3}},
    "tasks": {
      "a": {"rum": 5, "sleep": -1, "resume": "c", "io": "e", "mem": 4, "policy": "SCHED_FIFFO"},
      "b": {"phases": {"p": {"run": "x"}}, "run": 5, "loop": 1.5}
    }
  })");
  CHECK(speaks_of(problems, "set.json: taks: unknown key (did you mean tasks?)"));
  CHECK(speaks_of(problems, "devices.d.latncy: unknown key (did you mean latency?)"));
  CHECK(speaks_of(problems, "devices.d.latency: missing"));
  CHECK(speaks_of(problems, "tasks.a.rum: unknown key (did you mean run?)"));
  CHECK(speaks_of(problems, "tasks.a.sleep: expected microseconds"));
  CHECK(speaks_of(problems, "tasks.a.resume: there is no task \"c\""));
  CHECK(speaks_of(problems, "tasks.a.io: there is no device \"e\""));
  CHECK(speaks_of(problems, "tasks.a.mem: this step of rt-app is not supported"));
  CHECK(speaks_of(problems, "tasks.a.policy"));
  CHECK(speaks_of(problems, "tasks.b.phases.p.run: expected microseconds"));
  CHECK(speaks_of(problems, "tasks.b.run: a task with phases has its steps in them"));
  CHECK(speaks_of(problems, "tasks.b.loop: expected a whole number"));
}

TEST_CASE("what is no task set says where") {
  CHECK(speaks_of(problems_of("{\n\n\"tasks\": }"), "set.json:3"));
  CHECK(speaks_of(problems_of("[]"), "expected an object"));
  CHECK(speaks_of(problems_of("{}"), "tasks: missing"));
  CHECK(speaks_of(problems_of(R"({"tasks": {"a": {}}})"), "does nothing"));
  CHECK(speaks_of(problems_of(R"({"tasks": {"a": 5}})"), "tasks.a: expected an object"));
}

TEST_CASE("the built-in task sets read") {
  const auto names = builtin_task_set_names();
  CHECK(std::find(names.begin(), names.end(), "pingpong") != names.end());
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK_FALSE(TaskSet::load(name).tasks.empty());
  }
}
