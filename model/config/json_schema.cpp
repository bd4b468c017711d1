#include <limits>

#include <nlohmann/json.hpp>

#include "model/config/describe.hpp"
#include "model/config/parameters.hpp"
#include "model/config/profile.hpp"
#include "model/config/scheduling_parameters.hpp"
#include "model/config/setting_json.hpp"
#include "workloads/program_spec.hpp"

namespace svmsim::model {

namespace {

using Json = nlohmann::ordered_json;

void add_range(Json& schema, std::int64_t minimum, std::int64_t maximum) {
  schema["minimum"] = minimum;
  if (maximum != std::numeric_limits<std::int64_t>::max()) schema["maximum"] = maximum;
}

Json value_schema(const Parameter& parameter) {
  Json schema;
  switch (parameter.type) {
    case ParameterType::boolean:
      schema["type"] = "boolean";
      // A value that is not modelled yet leaves one valid value.
      if (parameter.later == std::vector<std::string>{"true"}) schema["const"] = false;
      break;
    case ParameterType::integer:
      schema["type"] = "integer";
      add_range(schema, parameter.minimum, parameter.maximum);
      break;
    case ParameterType::duration: {
      Json number{{"type", "integer"}};
      add_range(number, parameter.minimum, parameter.maximum);
      schema["anyOf"] = {number, {{"type", "string"}, {"pattern", "^[0-9]+(\\.[0-9]+)?(s|ms|us|ns)$"}}};
      break;
    }
    case ParameterType::text:
      schema["type"] = "string";
      schema["minLength"] = 1;
      break;
    case ParameterType::choice:
      schema["enum"] = parameter.choices;
      break;
    case ParameterType::integer_list:
      schema["type"] = "array";
      schema["items"]["type"] = "integer";
      add_range(schema["items"], parameter.minimum, parameter.maximum);
      break;
    case ParameterType::choice_list:
      schema["type"] = "array";
      schema["items"]["enum"] = parameter.choices;
      break;
  }
  schema["description"] =
      parameter.unit.empty() ? parameter.doc : parameter.doc + " Unit: " + parameter.unit + ".";
  if (parameter.fallback) schema["default"] = to_json(*parameter.fallback);
  return schema;
}

Json object_schema() {
  Json schema;
  schema["type"] = "object";
  schema["properties"] = Json::object();
  schema["additionalProperties"] = false;
  return schema;
}

template <class Owner>
Json section_schema(const std::vector<Binding<Owner>>& bindings) {
  Json schema = object_schema();
  for (const auto& binding : bindings)
    schema["properties"][binding.declaration.key()] = value_schema(binding.declaration);
  return schema;
}

Json array_of(Json items) {
  return {{"type", "array"}, {"items", std::move(items)}};
}

Json program_schema(const workloads::ProgramInfo& info) {
  Json schema = object_schema();
  schema["title"] = info.name;
  schema["description"] = info.doc;
  schema["properties"]["kind"]["const"] = info.name;
  for (const workloads::ProgramParameter& parameter : info.parameters) {
    constexpr const char* types[] = {"boolean", "integer", "number", "string"};
    Json& property = schema["properties"][parameter.name];
    property["type"] = types[parameter.default_value.index()];
    if (std::holds_alternative<std::int64_t>(parameter.default_value)) {
      add_range(property, parameter.minimum, parameter.maximum);
    }
    property["description"] =
        parameter.unit.empty() ? parameter.doc : parameter.doc + " Unit: " + parameter.unit + ".";
    std::visit([&property](const auto& value) { property["default"] = value; }, parameter.default_value);
    if (!parameter.choices.empty()) property["enum"] = parameter.choices;
  }
  schema["required"] = {"kind"};
  return schema;
}

Json workload_schema() {
  Json alternatives = Json::array();
  for (const workloads::ProgramInfo& info : workloads::builtin_programs())
    alternatives.push_back(program_schema(info));
  Json file;
  file["title"] = "a program file";
  file["type"] = "object";
  file["properties"]["kind"] = {{"type", "string"}, {"pattern", "[/.]"}};
  file["required"] = {"kind"};
  alternatives.push_back(std::move(file));
  Json trace = object_schema();
  trace["title"] = "replay of an imported workload";
  for (const auto& binding : workload_parameters()) {
    if (binding.declaration.key() == "trace")
      trace["properties"]["trace"] = value_schema(binding.declaration);
  }
  trace["required"] = {"trace"};
  alternatives.push_back(std::move(trace));
  return {{"oneOf", std::move(alternatives)}};
}

}  // namespace

std::string json_schema() {
  Json schema;
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "svmsim scenario";
  schema.update(object_schema());
  Json& sections = schema["properties"];

  sections["host"] = section_schema(host_parameters());
  sections["host"]["properties"]["profile"]["description"] =
      sections["host"]["properties"]["profile"]["description"].get<std::string>() + " Built in: " +
      [] {
        std::string names;
        for (const std::string& name : builtin_profile_names())
          names += (names.empty() ? "" : ", ") + name;
        return names;
      }() +
      ".";
  sections["host"]["properties"]["knobs"] = section_schema(knob_parameters());
  sections["host"]["properties"]["cost"] = section_schema(cost_parameters());
  Json cstate = section_schema(cstate_parameters());
  cstate["required"] = {"name"};
  sections["host"]["properties"]["cstate"] = array_of(std::move(cstate));
  Json task = section_schema(task_parameters());
  task["properties"]["phases"] = array_of(section_schema(task_phase_parameters()));
  task["properties"]["phases"]["minItems"] = 1;
  task["required"] = {"phases"};
  sections["host"]["properties"]["task"] = array_of(std::move(task));
  sections["kvm"] = section_schema(kvm_parameters());
  Json vm = section_schema(vm_parameters());
  vm["properties"]["name"]["pattern"] = "^[A-Za-z0-9_-]+$";
  vm["properties"]["device"] = array_of(section_schema(device_parameters()));
  vm["properties"]["workload"] = workload_schema();
  Json exits = value_schema(disable_exits_declaration());
  Json change = section_schema(disable_exits_parameters());
  change["required"] = {"exits"};
  exits["items"] = {{"anyOf", {exits["items"], std::move(change)}}};
  vm["properties"]["disable_exits"] = std::move(exits);
  vm["required"] = {"workload"};
  sections["vm"] = array_of(std::move(vm));
  sections["vm"]["minItems"] = 1;
  sections["run"] = section_schema(run_parameters());
  schema["required"] = {"vm"};
  return schema.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace svmsim::model
