#include <set>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>

#include "config_fixture.hpp"
#include "model/config/describe.hpp"
#include "model/config/parameters.hpp"
#include "model/config/profile.hpp"
#include "svm/exit_code.hpp"

using namespace svmsim::model;
using namespace svmsim::model::testing;

TEST_CASE("parameters: each is declared once, with a sentence, a source and a usable range") {
  std::set<std::string> paths;
  for (const Parameter& parameter : all_parameters()) {
    CAPTURE(parameter.path);
    CHECK(paths.insert(parameter.path).second);
    CHECK(parameter.doc.size() > 10);
    CHECK(parameter.doc.back() == '.');
    CHECK_FALSE(parameter.source.empty());
    CHECK(parameter.minimum <= parameter.maximum);
    CHECK((parameter.fallback.has_value() || !parameter.default_note.empty()));
    const bool choice =
        parameter.type == ParameterType::choice || parameter.type == ParameterType::choice_list;
    CHECK(choice == !parameter.choices.empty());
    if (const auto* number = parameter.fallback ? std::get_if<std::int64_t>(&*parameter.fallback) : nullptr) {
      CHECK(*number >= parameter.minimum);
      CHECK(*number <= parameter.maximum);
    }
  }
  for (const std::string& later : later_parameters()) {
    CAPTURE(later);
    CHECK(paths.count(later) == 0);
  }
}

TEST_CASE("parameters: no cost and no knob of the resolved structs is left out") {
  CHECK(cost_parameters().size() * sizeof(std::uint32_t) == sizeof(Costs));
  CHECK(knob_parameters().size() == sizeof(HostKnobs));  // enumerations, small numbers and flags, a byte each
}

TEST_CASE("parameters: what is set is what is read, through every binding") {
  Costs costs;
  std::int64_t value = 1;
  for (const auto& binding : cost_parameters())
    binding.set(costs, SettingValue(++value));
  value = 1;
  for (const auto& binding : cost_parameters()) {
    CAPTURE(binding.declaration.path);
    CHECK(std::get<std::int64_t>(*binding.get(costs)) == ++value);
  }
  for (const auto& binding : knob_parameters()) {
    HostKnobs knobs;
    const SettingValue before = *binding.get(knobs);
    for (const std::string& choice : binding.declaration.choices) {
      binding.set(knobs, SettingValue(choice));
      CHECK(std::get<std::string>(*binding.get(knobs)) == choice);
    }
    if (const bool* flag = std::get_if<bool>(&before)) {
      binding.set(knobs, SettingValue(!*flag));
      CHECK(std::get<bool>(*binding.get(knobs)) != *flag);
    }
    if (std::get_if<std::int64_t>(&before) != nullptr) {
      binding.set(knobs, SettingValue(binding.declaration.maximum));
      CHECK(*binding.get(knobs) == SettingValue(binding.declaration.maximum));
    }
  }
}

TEST_CASE("parameters: later names are an error of their own") {
  for (const std::string& later : later_parameters()) {
    const std::string text = problem_text(smallest, {later + "=1"});
    CAPTURE(text);
    CHECK(text.find("not modelled yet in this version") != std::string::npos);
  }
  CHECK(problem_text(smallest, {R"(vm.pv=["tlb_flush"])"}).find("not modelled yet in this version") !=
        std::string::npos);
}

TEST_CASE("durations: the accepted forms") {
  CHECK(parse_duration("1s") == 1000000000);
  CHECK(parse_duration("10ms") == 10000000);
  CHECK(parse_duration("5us") == 5000);
  CHECK(parse_duration("7ns") == 7);
  CHECK(parse_duration("1.5us") == 1500);
  CHECK(parse_duration("0.000000001s") == 1);
  CHECK(parse_duration("-3us") == -3000);
  CHECK(parse_duration("1.10ns") == std::nullopt);
  CHECK(parse_duration("1.0ns") == 1);
  for (const char* text : {"", "s", "1", "1 s", " 1s", "1s ", "1.s", ".5s", "1e3ns", "0.5ns", "1.0000000001s",
                           "1..0s", "99999999999999999999s", "9223372037s", "1min", "1S", "+1s"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_duration(text).has_value());
  }
}

TEST_CASE("durations: formatting is the inverse of parsing") {
  CHECK(format_duration(0) == "0ns");
  CHECK(format_duration(1500) == "1500ns");
  CHECK(format_duration(-2000) == "-2us");
  CHECK(rc::check([] {
    const auto ns = *rc::gen::arbitrary<std::int64_t>();
    RC_PRE(ns != std::numeric_limits<std::int64_t>::min());
    RC_ASSERT(parse_duration(format_duration(ns)) == ns);
  }));
}

TEST_CASE("describe: made from the declarations") {
  const auto json = nlohmann::json::parse(describe_json());
  CHECK(json["parameters"].size() == all_parameters().size());
  CHECK(json["exit_codes"].size() == svmsim::svm::exit_count);
  CHECK(json["knobs"].size() == knob_parameters().size());
  std::set<std::string> profiles;
  for (const auto& profile : json["profiles"]) {
    profiles.insert(profile["name"].get<std::string>());
    CHECK(profile["costs"].size() == cost_parameters().size());
    for (const auto& cost : profile["costs"])
      CHECK(cost["source"].get<std::string>().size() > 5);
  }
  CHECK(profiles == std::set<std::string>{"lab", "skylake", "turin", "zen2"});
  CHECK(json["programs"].size() == svmsim::workloads::builtin_programs().size());
  CHECK(json["events"][0] == "kvm_entry");
  CHECK(json["statistics"][0]["name"] == "exits");
  bool found = false;
  for (const auto& code : json["exit_codes"]) {
    if (code["name"] != "idle-halt") continue;
    found = true;
    CHECK(code["code"] == 0xa6);
    CHECK(code["architectural"] == "VMEXIT_IDLE_HLT");
  }
  CHECK(found);
}

TEST_CASE("schema: knows every parameter and nothing else") {
  const auto schema = nlohmann::json::parse(json_schema());
  CHECK(schema["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  CHECK(schema["additionalProperties"] == false);
  for (const Parameter& parameter : all_parameters()) {
    CAPTURE(parameter.path);
    if (parameter.path.rfind("vm.workload.", 0) == 0) continue;
    const nlohmann::json* node = &schema;
    std::string rest = parameter.path;
    while (!rest.empty()) {
      const auto dot = rest.find('.');
      const std::string key = rest.substr(0, dot);
      rest = dot == std::string::npos ? "" : rest.substr(dot + 1);
      if (node->contains("items")) node = &(*node)["items"];
      if (node->contains("anyOf")) node = &(*node)["anyOf"].back();  // a name, or a table
      REQUIRE((*node)["additionalProperties"] == false);
      REQUIRE((*node)["properties"].contains(key));
      node = &(*node)["properties"][key];
    }
    CHECK(node->contains("description"));
  }
  std::set<std::string> kinds;
  for (const auto& alternative : schema["properties"]["vm"]["items"]["properties"]["workload"]["oneOf"]) {
    if (!alternative["properties"].contains("kind")) continue;  // a replay
    const auto& kind = alternative["properties"]["kind"];
    if (kind.contains("const")) kinds.insert(kind["const"].get<std::string>());
  }
  CHECK(kinds.size() == svmsim::workloads::builtin_programs().size());
}
