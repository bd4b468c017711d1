#include "model/config/vm_reader.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "model/config/overrides.hpp"
#include "model/config/scheduling_parameters.hpp"
#include "model/config/section_reader.hpp"
#include "workloads/tasks/task_set.hpp"

namespace svmsim::model {

namespace {

using Problems = std::vector<Problem>;

std::string absolute_path(const std::string& path, const std::string& base_dir) {
  return std::filesystem::absolute(std::filesystem::path(base_dir) / path).lexically_normal().string();
}

bool file_exists(const std::string& path, const RawValue& where, const std::string& key, Problems& problems) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return true;
  problems.push_back(problem_at(where, key, fmt::format("the file {} does not exist", path)));
  return false;
}

/// The program's own keys, typed as they stand. Their names, types and ranges are the program's to check.
void read_program_keys(const RawTable& table, const std::string& path, workloads::WorkloadSpec& spec,
                       Problems& problems) {
  for (const auto& [key, value] : table) {
    if (key == "kind" || key == "trace" || key == "tasks") continue;
    if (const auto* boolean = std::get_if<bool>(&value.value)) {
      spec.parameters[key] = *boolean;
    } else if (const auto* integer = std::get_if<std::int64_t>(&value.value)) {
      spec.parameters[key] = *integer;
    } else if (const auto* real = std::get_if<double>(&value.value)) {
      spec.parameters[key] = *real;
    } else if (const auto* text = std::get_if<std::string>(&value.value)) {
      spec.parameters[key] = *text;
    } else {
      problems.push_back(problem_at(value, join_path(path, key),
                                    fmt::format("expected a single value, found {}", value.in_words())));
    }
  }
}

/// Where a problem of the program's check belongs: at the key it names, or at the workload.
void place(Problem problem, const RawValue& workload, const std::string& path, Problems& problems) {
  if (problem.source.empty()) {  // with a source it lies in a program file
    const std::string prefix = path + ".";
    if (problem.path.empty()) problem.path = "kind";
    if (problem.path.rfind(prefix, 0) != 0) problem.path = prefix + problem.path;
    const RawValue* value = workload.find(problem.path.substr(prefix.size()));
    if (value == nullptr) value = workload.find("kind");
    problem.source = value->source;
    problem.line = value->line;
  }
  problems.push_back(std::move(problem));
}

void check_program(const RawValue& workload, const std::string& path, const std::string& base_dir,
                   VmDraft& vm, Problems& problems) {
  const RawValue& kind = *workload.find("kind");
  vm.workload.kind = resolve_path(vm.workload.kind, base_dir);
  const bool is_file = vm.workload.kind.find('/') != std::string::npos;
  if (is_file && !file_exists(vm.workload.kind, kind, path + ".kind", problems)) return;
  try {
    const workloads::ProgramInfo info = workloads::program_info(vm.workload.kind);
    if (vm.vcpus < info.vcpus) {
      problems.push_back(problem_at(
          kind, path + ".kind",
          fmt::format("{} needs at least {} vCPUs, the VM has {}", info.name, info.vcpus, vm.vcpus)));
    }
    const Problems found = workloads::check_spec(vm.workload, path);
    for (const Problem& problem : found)
      place(problem, workload, path, problems);
    if (found.empty()) vm.workload.parameters = workloads::resolved_parameters(vm.workload);
  } catch (const UserError& error) {
    for (const Problem& problem : error.problems())
      place(problem, workload, path, problems);
  }
}

/// A task set: read now, so that its problems are told with the scenario's.
void check_tasks(const RawValue& tasks, const std::string& path, const std::string& base_dir, VmDraft& vm,
                 Problems& problems) {
  const std::vector<std::string> builtin = workloads::builtin_task_set_names();
  const bool is_path = vm.tasks.find_first_of("/.") != std::string::npos;
  if (!is_path && std::find(builtin.begin(), builtin.end(), vm.tasks) == builtin.end()) {
    Problem problem = problem_at(tasks, path, fmt::format("there is no task set \"{}\"", vm.tasks));
    problem.nearest = nearest_name(vm.tasks, builtin);
    problems.push_back(std::move(problem));
    return;
  }
  if (is_path) {
    vm.tasks = absolute_path(vm.tasks, base_dir);
    if (!file_exists(vm.tasks, tasks, path, problems)) return;
  }
  try {
    const workloads::TaskSet set = workloads::TaskSet::load(vm.tasks);
    if (set.cpus_needed > vm.vcpus) {
      problems.push_back(problem_at(
          tasks, path,
          fmt::format("the task set names CPU {}, the VM has {} vCPUs", set.cpus_needed - 1, vm.vcpus)));
    }
  } catch (const UserError& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  }
}

void read_workload(const RawValue& raw_vm, const std::string& vm_path, const std::string& base_dir,
                   VmDraft& vm, Problems& problems) {
  const std::string path = vm_path + ".workload";
  const RawValue* workload = raw_vm.find("workload");
  if (workload == nullptr) {
    problems.push_back(problem_at(
        raw_vm, path,
        "missing; say what the VM runs with kind (a program), tasks (a task set) or trace (a recording)"));
    return;
  }
  const RawTable* table = require_table(*workload, path, problems);
  if (table == nullptr) return;
  const std::size_t before = problems.size();
  for (const auto& binding : workload_parameters()) {
    const std::string key = binding.declaration.key();
    if (const RawValue* value = workload->find(key)) {
      if (const auto setting = check_value(binding.declaration, *value, join_path(path, key), problems))
        binding.set(vm, *setting);
    }
  }
  if (problems.size() != before) return;

  const RawValue* trace = workload->find("trace");
  const RawValue* tasks = workload->find("tasks");
  const RawValue* kind = workload->find("kind");
  if ((trace != nullptr) + (tasks != nullptr) + (kind != nullptr) > 1) {
    problems.push_back(
        problem_at(trace != nullptr ? *trace : *tasks, path, "kind, tasks and trace exclude each other"));
    return;
  }
  if (tasks != nullptr) {
    for (const auto& [key, value] : *table) {
      if (key != "tasks") report_unknown_key(value, key, "vm.workload", path, {"tasks"}, problems);
    }
    return check_tasks(*tasks, path + ".tasks", base_dir, vm, problems);
  }
  if (trace != nullptr) {
    vm.trace = absolute_path(vm.trace, base_dir);
    file_exists(vm.trace, *trace, path + ".trace", problems);
    for (const auto& [key, value] : *table) {
      if (key != "trace") report_unknown_key(value, key, "vm.workload", path, {"trace"}, problems);
    }
    return;
  }
  read_program_keys(*table, path, vm.workload, problems);
  if (workload->find("kind") != nullptr) {
    check_program(*workload, path, base_dir, vm, problems);
  } else if (problems.size() == before) {
    problems.push_back(
        problem_at(*workload, path + ".kind", "missing; name a program, or give tasks or trace instead"));
  }
}

// A list of hundreds is wrong in one way.
constexpr std::size_t max_pin_problems = 8;

void check_pin(const RawValue& raw_vm, const std::string& path, unsigned pcpus, const VmDraft& vm,
               Problems& problems) {
  const RawValue* pin = raw_vm.find("pin");
  if (pin == nullptr || vm.pin.empty()) return;
  if (vm.pin.size() != vm.vcpus) {
    problems.push_back(problem_at(*pin, path + ".pin",
                                  fmt::format("{} pCPUs for {} vCPUs; a pin list has one pCPU for each vCPU",
                                              vm.pin.size(), vm.vcpus)));
  }
  std::size_t impossible = 0;
  for (std::size_t i = 0; i < vm.pin.size(); ++i) {
    if (vm.pin[i] < pcpus || ++impossible > max_pin_problems) continue;
    problems.push_back(
        problem_at(*pin, fmt::format("{}.pin[{}]", path, i),
                   fmt::format("the host has no pCPU {}, only {} (host.pcpus)", vm.pin[i],
                               pcpus == 1 ? std::string("pCPU 0") : fmt::format("0 to {}", pcpus - 1)),
                   fmt::format("{}", pcpus - 1)));
  }
  if (impossible > max_pin_problems) {
    problems.back().message += fmt::format("; so are {} more pins", impossible - max_pin_problems);
  }
}

void read_devices(const RawValue& raw_vm, const std::string& vm_path, unsigned pcpus, VmDraft& vm,
                  Problems& problems) {
  const RawValue* devices = raw_vm.find("device");
  if (devices == nullptr) return;
  const std::string path = vm_path + ".device";
  if (devices->list() == nullptr) {
    problems.push_back(problem_at(
        *devices, path, fmt::format("expected [[vm.device]] tables, found {}", devices->in_words())));
    return;
  }
  for (std::size_t i = 0; i < devices->list()->size(); ++i) {
    const RawValue& raw = (*devices->list())[i];
    const std::string own_path = fmt::format("{}[{}]", path, i);
    DeviceConfig device;
    read_section(raw, device_parameters(), "vm.device", own_path, {}, device, problems);
    if (raw.table() == nullptr) continue;
    if (pcpus != 0 && device.pcpu >= pcpus) {
      const RawValue* where = raw.find("pcpu");
      problems.push_back(problem_at(where == nullptr ? raw : *where, own_path + ".pcpu",
                                    fmt::format("the host has no pCPU {} (host.pcpus)", device.pcpu)));
    }
    if (device.level && (device.kind != DeviceKind::line || device.ack_port == 0)) {
      problems.push_back(problem_at(raw, own_path + ".level",
                                    "needs kind = \"line\", and an ack_port that releases the line"));
    }
    vm.devices.push_back(device);
  }
}

void check_name(const RawValue& raw_vm, const std::string& path, const std::string& name,
                Problems& problems) {
  const RawValue* raw_name = raw_vm.find("name");
  const RawValue& where = raw_name == nullptr ? raw_vm : *raw_name;
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (!plain)
    problems.push_back(
        problem_at(where, path + ".name",
                   fmt::format("\"{}\" has other characters than letters, digits, - and _", name)));
  std::vector<std::string> keys{"workload", "device", "disable_exits"};
  for (const auto& binding : vm_parameters())
    keys.push_back(binding.declaration.key());
  if (std::find(keys.begin(), keys.end(), name) != keys.end()) {
    problems.push_back(
        problem_at(where, path + ".name",
                   fmt::format("\"{}\" is the name of a key, so vm.{} would have two meanings", name, name)));
  }
}

}  // namespace

std::string resolve_path(const std::string& name_or_path, const std::string& base_dir) {
  const bool is_path =
      name_or_path.find('/') != std::string::npos || std::filesystem::path(name_or_path).has_extension();
  return is_path ? absolute_path(name_or_path, base_dir) : name_or_path;
}

std::vector<VmConfig> read_vms(const RawValue& root, unsigned pcpus, workloads::KernelGeneration kernel,
                               const std::string& base_dir, Problems& problems) {
  std::vector<VmConfig> result;
  const RawValue* vms = root.find("vm");
  if (vms == nullptr || (vms->list() != nullptr && vms->list()->empty())) {
    problems.push_back(
        problem_at(vms == nullptr ? root : *vms, "vm", "a scenario needs at least one [[vm]] table"));
    return result;
  }
  if (vms->list() == nullptr) {
    problems.push_back(
        problem_at(*vms, "vm", fmt::format("expected [[vm]] tables (a list), found {}", vms->in_words())));
    return result;
  }
  const auto names = vm_names(*vms);
  std::map<std::string, bool> taken;
  constexpr std::uint64_t most_vcpus = 16384;
  std::uint64_t vcpus = 0;
  for (std::size_t i = 0; i < vms->list()->size(); ++i) {
    const RawValue& raw = (*vms->list())[i];
    const RawValue* own = raw.find("name");
    const bool named = own != nullptr && std::holds_alternative<std::string>(own->value);
    const std::string base_name = named ? std::get<std::string>(own->value) : names[i].front();
    const std::string path = "vm." + base_name;
    VmDraft draft;
    read_section(raw, vm_parameters(), "vm", path, {"workload", "device", "disable_exits"}, draft, problems);
    if (raw.table() == nullptr) continue;
    check_name(raw, path, base_name, problems);
    const bool vcpus_known = std::none_of(problems.begin(), problems.end(), [&](const Problem& problem) {
      return problem.path == path + ".vcpus";
    });
    if (pcpus != 0 && vcpus_known) check_pin(raw, path, pcpus, draft, problems);
    read_devices(raw, path, pcpus, draft, problems);
    if (const RawValue* affinity = raw.find("affinity"))
      check_cpus(*affinity, path + ".affinity", draft.affinity, pcpus, problems);
    if (const RawValue* exits = raw.find("disable_exits"))
      read_disable_exits(*exits, path + ".disable_exits", kernel, draft, problems);
    read_workload(raw, path, base_dir, draft, problems);
    vcpus += std::uint64_t{draft.vcpus} * names[i].size();
    if (vcpus > most_vcpus) {
      problems.push_back(problem_at(raw, path,
                                    fmt::format("makes {} vCPUs in all, more than {}", vcpus, most_vcpus),
                                    fmt::format("{}", most_vcpus)));
      break;
    }
    for (const std::string& name : names[i]) {
      if (!taken.emplace(name, true).second) {
        std::string free = "vm0";
        for (unsigned n = 0; taken.count(free) != 0; ++n)
          free = fmt::format("vm{}", n);
        problems.push_back(problem_at(own == nullptr ? raw : *own, path + ".name",
                                      fmt::format("two VMs are named {}", name), free));
      }
      VmConfig vm = draft;
      vm.name = name;
      result.push_back(std::move(vm));
    }
  }
  return result;
}

}  // namespace svmsim::model
