#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>

#include "config_fixture.hpp"
#include "model/config/parameters.hpp"

using namespace svmsim::model;
using namespace svmsim::model::testing;

namespace {

const char* const base = R"({"host": {"pcpus": 1024}, "vm": [{"name": "a", "workload": {"kind": "cpuid"}},
                             {"name": "b", "count": 2, "workload": {"kind": "idle_hlt_test", "goal": 9}}]})";

std::string again(const std::string& resolved) {
  return resolved_json(load_scenario(ScenarioSource::from_json(resolved)));
}

/// A valid `--set` text of a parameter.
rc::Gen<std::string> valid_setting(const Parameter& parameter) {
  const std::string key = parameter.path;
  switch (parameter.type) {
    case ParameterType::boolean:
      if (!parameter.later.empty()) return rc::gen::just(key + "=false");
      return rc::gen::map(rc::gen::arbitrary<bool>(),
                          [key](bool value) { return fmt::format("{}={}", key, value); });
    case ParameterType::integer:
      return rc::gen::map(rc::gen::inRange(parameter.minimum, parameter.maximum),
                          [key](std::int64_t value) { return fmt::format("{}={}", key, value); });
    case ParameterType::duration:
      return rc::gen::map(rc::gen::inRange(parameter.minimum, parameter.maximum), [key](std::int64_t value) {
        return fmt::format("{}={}", key, format_duration(value));
      });
    case ParameterType::choice:
      return rc::gen::map(rc::gen::elementOf(parameter.choices),
                          [key](const std::string& value) { return key + "=" + value; });
    case ParameterType::choice_list:
      return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(parameter.choices)),
                          [key](const std::vector<std::string>& values) {
                            std::string list;
                            for (const std::string& value : values)
                              list += "\"" + value + "\",";
                            return key + "=[" + list + "]";
                          });
    default:
      return rc::gen::just(std::string("host.hz=100"));
  }
}

bool settable(const Parameter& parameter) {
  // Tables in lists, and settings that depend on another one, are set by their own tests.
  for (const char* path : {"host.cstate.", "host.task.", "vm.", "host.profile", "host.pcpus", "run.warmup"}) {
    if (parameter.path.rfind(path, 0) == 0) return parameter.path == "vm.vcpus";
  }
  return true;
}

}  // namespace

TEST_CASE("resolved scenario: loading it again changes nothing") {
  const std::string resolved = resolved_json(load_scenario(ScenarioSource::from_json(base)));
  CHECK(again(resolved) == resolved);
}

TEST_CASE("resolved scenario: a fixed point for any valid overrides") {
  std::vector<Parameter> parameters;
  for (const Parameter& parameter : all_parameters()) {
    if (settable(parameter)) parameters.push_back(parameter);
  }
  REQUIRE(parameters.size() > 40);
  CHECK(rc::check([&parameters] {
    std::vector<std::string> overrides;
    const auto chosen = *rc::gen::container<std::vector<Parameter>>(rc::gen::elementOf(parameters));
    for (const Parameter& parameter : chosen)
      overrides.push_back(*valid_setting(parameter));
    overrides.push_back(fmt::format("vm.b1.workload.goal={}", *rc::gen::inRange(1, 1000000)));
    const std::string resolved = resolved_json(load_scenario(ScenarioSource::from_json(base), overrides));
    RC_ASSERT(again(resolved) == resolved);
  }));
}

TEST_CASE("resolved scenario: an override shows up where it was set") {
  const auto json = nlohmann::json::parse(resolved_json(load_scenario(
      ScenarioSource::from_json(base),
      {"host.cost.t_trace=77", "host.knobs.idle_hlt_pending=deliverable", "vm.b1.vcpus=3", "vm.a.pin=[5]",
       "host.cstate=[{name=\"C6\", latency=\"3us\"}]", "run.duration=2s", "run.warmup=1s"})));
  CHECK(json["host"]["cost"]["t_trace"] == 77);
  CHECK(json["host"]["knobs"]["idle_hlt_pending"] == "deliverable");
  REQUIRE(json["vm"].size() == 3);
  CHECK(json["vm"][0]["pin"][0] == 5);
  CHECK(json["vm"][1]["name"] == "b0");
  CHECK(json["vm"][1]["vcpus"] == 1);
  CHECK(json["vm"][2]["vcpus"] == 3);
  CHECK(json["host"]["cstate"][0]["latency"] == 3000);
  CHECK(json["run"]["duration"] == 2000000000);
  CHECK(json["run"]["warmup"] == 1000000000);
  CHECK_FALSE(json["vm"][0].contains("count"));
}

TEST_CASE("scenario input: garbage is a user error, never a crash") {
  const std::string alphabet = "abhostvmkn.=[]{}\"'\n 01-#,:_\\x\xc3\xa9";
  CHECK(rc::check([&alphabet] {
    const auto garbage = *rc::gen::container<std::string>(rc::gen::elementOf(alphabet));
    const auto survives = [](const auto& action) {
      try {
        (void)action();
      } catch (const svmsim::UserError& error) {
        RC_ASSERT(!error.problems().empty());
      }
    };
    survives([&] { return load_scenario(ScenarioSource::from_json(garbage)); });
    survives([&] { return load_text(garbage); });
    survives([&] {
      return load_scenario(ScenarioSource::from_json(base),
                           {garbage, "host." + garbage, "vm." + garbage, "run.seed=" + garbage});
    });
    survives([&] { return load_text(smallest + garbage); });
  }));
}
