#pragma once

#include <vector>

#include "model/config/parameters.hpp"
#include "model/config/raw_tree.hpp"

// Declarations of what concerns the host's scheduler, its idle states, disabled exits and pause-loop exiting,
// and the readers of their nested tables.
namespace svmsim::model {

[[nodiscard]] std::vector<Binding<HostConfig>> host_scheduling_parameters();
[[nodiscard]] std::vector<Binding<KvmConfig>> ple_parameters();
[[nodiscard]] std::vector<Binding<VmDraft>> vm_scheduling_parameters();
/// [[host.task]] without its phases, and a table of its phases.
[[nodiscard]] const std::vector<Binding<HostTaskConfig>>& task_parameters();
[[nodiscard]] const std::vector<Binding<TaskPhase>>& task_phase_parameters();
/// An element of vm.disable_exits that is a table.
[[nodiscard]] const std::vector<Binding<DisableExitsChange>>& disable_exits_parameters();
/// vm.disable_exits as a whole: names of exits, for schema and help.
[[nodiscard]] const Parameter& disable_exits_declaration();

/// Reads [[host.task]]. `pcpus` = 0: not known, CPU lists are not checked.
void read_tasks(const RawValue& tasks, HostConfig& host, unsigned pcpus, std::vector<Problem>& problems);
/// Reads vm.disable_exits and checks it against the kernel generation's rules.
void read_disable_exits(const RawValue& value, const std::string& path, workloads::KernelGeneration kernel,
                        VmDraft& vm, std::vector<Problem>& problems);
/// Adds a problem for each listed pCPU that the host does not have.
void check_cpus(const RawValue& where, const std::string& path, const std::vector<unsigned>& cpus,
                unsigned pcpus, std::vector<Problem>& problems);

}  // namespace svmsim::model
