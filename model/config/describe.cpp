#include "model/config/describe.hpp"

#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/config/parameters.hpp"
#include "model/config/profile.hpp"
#include "model/config/setting_json.hpp"
#include "model/stats/vcpu_stats.hpp"
#include "svm/exit_code.hpp"
#include "workloads/program_spec.hpp"

namespace svmsim::model {

namespace {

using Json = nlohmann::ordered_json;

bool is_number(ParameterType type) {
  return type == ParameterType::integer || type == ParameterType::duration ||
         type == ParameterType::integer_list;
}

Json parameter_json(const Parameter& parameter) {
  Json result;
  result["path"] = parameter.path;
  result["type"] = type_name(parameter.type);
  result["unit"] = parameter.unit;
  result["default"] = parameter.fallback ? to_json(*parameter.fallback) : Json();
  result["default_note"] = parameter.default_note;
  result["minimum"] = is_number(parameter.type) ? Json(parameter.minimum) : Json();
  result["maximum"] = is_number(parameter.type) ? Json(parameter.maximum) : Json();
  result["choices"] = parameter.choices;
  result["doc"] = parameter.doc;
  result["source"] = parameter.source;
  return result;
}

Json statistics_json() {
  Json result = Json::array();
  for (const VcpuStatInfo& info : vcpu_stat_table()) {
    result.push_back({{"name", info.name},
                      {"unit", info.unit},
                      {"doc", info.doc},
                      {"histogram", info.histogram != nullptr}});
  }
  return result;
}

Json exit_codes_json() {
  Json result = Json::array();
  for (const svm::ExitInfo& info : svm::exit_table()) {
    Json entry;
    entry["code"] = info.code;
    entry["name"] = svm::exit_name_or_hex(info.code);
    entry["architectural"] = "VMEXIT_" + std::string(info.manual_name);
    entry["doc"] = info.meaning;
    result.push_back(std::move(entry));
  }
  return result;
}

Json profile_json(const Profile& profile) {
  Json result;
  result["name"] = profile.name;
  result["doc"] = profile.doc;
  result["cpu"] = profile.cpu;
  result["tsc_hz"] = profile.tsc_hz;
  result["features"] = profile.features.names();
  result["costs"] = Json::array();
  for (const ProfileCost& cost : profile.costs) {
    result["costs"].push_back(
        {{"name", cost.name}, {"value", cost.value}, {"unit", cost.unit}, {"source", cost.source}});
  }
  result["cstates"] = Json::array();
  for (const CState& state : profile.cstates) {
    result["cstates"].push_back({{"name", state.name},
                                 {"latency_ns", state.latency_ns},
                                 {"residency_ns", state.residency_ns},
                                 {"wake_ns", state.wake_ns}});
  }
  return result;
}

Json program_value(const workloads::ParameterValue& value) {
  return std::visit([](const auto& typed) { return Json(typed); }, value);
}

const char* program_type(const workloads::ParameterValue& value) {
  constexpr const char* names[] = {"boolean", "integer", "number", "string"};
  return names[value.index()];
}

Json program_json(const workloads::ProgramInfo& info) {
  Json result;
  result["name"] = info.name;
  result["doc"] = info.doc;
  result["source"] = info.source;
  result["vcpus"] = info.vcpus;
  result["parameters"] = Json::array();
  for (const workloads::ProgramParameter& parameter : info.parameters) {
    const bool integer = std::holds_alternative<std::int64_t>(parameter.default_value);
    Json entry;
    entry["name"] = parameter.name;
    entry["type"] = program_type(parameter.default_value);
    entry["unit"] = parameter.unit;
    entry["default"] = program_value(parameter.default_value);
    entry["minimum"] = integer ? Json(parameter.minimum) : Json();
    entry["maximum"] = integer ? Json(parameter.maximum) : Json();
    entry["choices"] = parameter.choices.empty() ? Json() : Json(parameter.choices);
    entry["doc"] = parameter.doc;
    result["parameters"].push_back(std::move(entry));
  }
  return result;
}

}  // namespace

std::string describe_json() {
  Json result;
  result["parameters"] = Json::array();
  for (const Parameter& parameter : all_parameters())
    result["parameters"].push_back(parameter_json(parameter));
  result["statistics"] = statistics_json();
  result["exit_codes"] = exit_codes_json();
  result["knobs"] = Json::array();
  for (const auto& binding : knob_parameters())
    result["knobs"].push_back(parameter_json(binding.declaration));
  result["profiles"] = Json::array();
  for (const std::string& name : builtin_profile_names())
    result["profiles"].push_back(profile_json(builtin_profile(name)));
  result["programs"] = Json::array();
  for (const workloads::ProgramInfo& info : workloads::builtin_programs())
    result["programs"].push_back(program_json(info));
  result["events"] = tracepoint_names();
  return result.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace svmsim::model
