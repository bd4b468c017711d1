#include <nlohmann/json.hpp>

#include "model/config/loader.hpp"
#include "model/config/parameters.hpp"
#include "model/config/scheduling_parameters.hpp"
#include "model/config/setting_json.hpp"

namespace svmsim::model {

namespace {

using Json = nlohmann::ordered_json;

template <class Owner>
Json section(const std::vector<Binding<Owner>>& bindings, const Owner& owner) {
  Json result = Json::object();
  for (const auto& binding : bindings) {
    if (const auto value = binding.get(owner)) result[binding.declaration.key()] = to_json(*value);
  }
  return result;
}

Json vm_section(const VmConfig& vm) {
  VmDraft draft;
  static_cast<VmConfig&>(draft) = vm;
  Json result = section(vm_parameters(), draft);
  result.erase("count");
  if (vm.pin.empty()) result.erase("pin");
  if (vm.affinity.empty()) result.erase("affinity");
  result["disable_exits"] = vm.disable_exits;
  for (const DisableExitsChange& change : vm.disable_exits_changes)
    result["disable_exits"].push_back(section(disable_exits_parameters(), change));
  Json workload = section(workload_parameters(), draft);
  for (const auto& [name, value] : vm.workload.parameters) {
    std::visit([&workload, &key = name](const auto& typed) { workload[key] = typed; }, value);
  }
  if (!vm.devices.empty()) {
    result["device"] = Json::array();
    for (const DeviceConfig& device : vm.devices)
      result["device"].push_back(section(device_parameters(), device));
  }
  result["workload"] = std::move(workload);
  return result;
}

}  // namespace

std::string resolved_json(const Scenario& scenario) {
  Json result;
  result["host"] = section(host_parameters(), scenario.host);
  result["host"]["knobs"] = section(knob_parameters(), scenario.host.knobs);
  result["host"]["cost"] = section(cost_parameters(), scenario.host.cost);
  result["host"]["cstate"] = Json::array();
  for (const CState& state : scenario.host.cstates)
    result["host"]["cstate"].push_back(section(cstate_parameters(), state));
  result["host"]["task"] = Json::array();
  for (const HostTaskConfig& task : scenario.host.tasks) {
    Json entry = section(task_parameters(), task);
    for (const TaskPhase& phase : task.phases)
      entry["phases"].push_back(section(task_phase_parameters(), phase));
    result["host"]["task"].push_back(std::move(entry));
  }
  result["kvm"] = section(kvm_parameters(), scenario.kvm);
  result["vm"] = Json::array();
  for (const VmConfig& vm : scenario.vms)
    result["vm"].push_back(vm_section(vm));
  result["run"] = section(run_parameters(), scenario.run);
  return result.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace svmsim::model
