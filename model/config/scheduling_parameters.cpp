#include "model/config/scheduling_parameters.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "model/config/bindings.hpp"
#include "model/config/section_reader.hpp"

namespace svmsim::model {

using namespace bindings;

namespace {

using Problems = std::vector<Problem>;

constexpr std::int64_t longest_phase_ns = std::int64_t{21600} * 1000 * 1000 * 1000;
constexpr std::int64_t greatest_filter_count = 65535;  // a 16-bit field of the VMCB
constexpr const char* amd_module_parameter = "arch/x86/kvm/svm/svm.c module parameter";

template <class Owner>
Binding<Owner> cpu_list(std::string path, std::vector<unsigned> Owner::*field, std::string doc,
                        std::string source) {
  auto binding =
      declare<Owner>(std::move(path), ParameterType::integer_list, "", std::move(doc), std::move(source));
  binding.declaration.maximum = 1023;
  binding.set = [field](Owner& owner, const SettingValue& value) {
    (owner.*field).clear();
    for (const std::int64_t cpu : std::get<std::vector<std::int64_t>>(value))
      (owner.*field).push_back(static_cast<unsigned>(cpu));
  };
  binding.get = [field](const Owner& owner) {
    return SettingValue(std::vector<std::int64_t>((owner.*field).begin(), (owner.*field).end()));
  };
  return with_fallback(std::move(binding));
}

template <class Owner>
void add_thread_scheduling(std::vector<Binding<Owner>>& table, const std::string& prefix,
                           const std::string& whose) {
  const std::vector<std::pair<std::string, SchedPolicy>> policies{{"other", SchedPolicy::other},
                                                                  {"batch", SchedPolicy::batch},
                                                                  {"idle", SchedPolicy::idle},
                                                                  {"fifo", SchedPolicy::fifo}};
  table.push_back(choice<Owner>(prefix + ".sched", &ThreadScheduling::sched, policies,
                                "Scheduling policy of " + whose + ".", "sched(7)"));
  table.push_back(number<Owner>(prefix + ".nice", &ThreadScheduling::nice, -20, 19, "",
                                "Nice value of " + whose + "; a step is a factor of 1.25 in weight.",
                                "kernel/sched/core.c sched_prio_to_weight"));
  table.push_back(number<Owner>(prefix + ".rt_priority", &ThreadScheduling::rt_priority, 1, 99, "",
                                "Priority of " + whose + " with sched = \"fifo\"; the greatest runs first.",
                                "sched(7)"));
}

void set_exit(DisabledExits& exits, const std::string& name, bool disabled) {
  if (name == "hlt") exits.hlt = disabled;
  if (name == "pause") exits.pause = disabled;
  if (name == "mwait") exits.mwait = disabled;
  if (name == "cstate") exits.cstate = disabled;
}

}  // namespace

std::vector<Binding<HostConfig>> host_scheduling_parameters() {
  auto sched = choice<HostConfig>(
      "host.sched", &HostConfig::sched, {{"cfs", FairAlgorithm::cfs}, {"eevdf", FairAlgorithm::eevdf}},
      "Fair scheduler of the host.", "kernel/sched/fair.c: CFS up to 6.5, EEVDF since 6.6");
  sched.kernel_defaults = {{workloads::KernelGeneration::v6_1, SettingValue(std::string("cfs"))}};
  sched.declaration.default_note = "cfs with host.kernel 6.1";
  auto governor = choice<HostConfig>(
      "host.idle_governor", &HostConfig::idle_governor,
      {{"menu", IdleGovernorKind::menu}, {"teo", IdleGovernorKind::teo}, {"none", IdleGovernorKind::none}},
      "Governor that chooses the host's idle states; none = no cpuidle driver: "
      "always the first state, and the tick always stops.",
      "drivers/cpuidle/governors");
  governor.declaration.default_note = "none with host.profile lab";
  return {
      std::move(sched),
      boolean<HostConfig>("host.balance", &HostConfig::balance,
                          "Move runnable threads from a busy pCPU to one that is idle or less busy.",
                          "kernel/sched/fair.c load balancing"),
      std::move(governor),
      number<HostConfig>("host.llc_pcpus", &HostConfig::llc_pcpus, 1, 1024, "",
                         "pCPUs that share a last-level cache; wake-ups look for an idle one among them.",
                         "a CCX of EPYC has 8 cores since Zen 3"),
      number<HostConfig>("host.threads_per_core", &HostConfig::threads_per_core, 1, 2, "",
                         "SMT threads of a core; siblings have neighbouring numbers.", "choice of the user"),
      number<HostConfig>("host.smt_factor", &HostConfig::smt_factor, 10, 100, "%",
                         "Speed of a thread in guest mode while its SMT sibling is busy.",
                         "choice of the user; about 60 for throughput-bound code"),
      cpu_list<HostConfig>("host.nohz_full", &HostConfig::nohz_full,
                           "pCPUs whose tick stops while a single thread runs.", "nohz_full= of the kernel"),
  };
}

std::vector<Binding<KvmConfig>> ple_parameters() {
  const auto ple = [](const char* name, std::uint64_t PleParameters::*field, std::string doc) {
    auto binding = declare<KvmConfig>(std::string("kvm.") + name, ParameterType::integer, "", std::move(doc),
                                      amd_module_parameter);
    binding.declaration.minimum = 0;
    binding.declaration.maximum = greatest_filter_count;
    binding.set = [field](KvmConfig& kvm, const SettingValue& value) {
      kvm.ple.*field = static_cast<std::uint64_t>(std::get<std::int64_t>(value));
    };
    binding.get = [field](const KvmConfig& kvm) {
      return SettingValue(static_cast<std::int64_t>(kvm.ple.*field));
    };
    return with_fallback(std::move(binding));
  };
  return {
      ple("pause_filter_count", &PleParameters::count,
          "PAUSEs of a loop before one exits; 0 = PAUSE is not intercepted."),
      ple("pause_filter_thresh", &PleParameters::thresh,
          "Greatest gap in cycles between PAUSEs of one loop."),
      ple("pause_filter_count_grow", &PleParameters::grow,
          "Factor (or, from pause_filter_count on, amount) by which the window grows at a pause exit; 0 = "
          "back to the base."),
      ple("pause_filter_count_shrink", &PleParameters::shrink,
          "Divisor (or amount) by which the window shrinks when the vCPU is scheduled in; 0 = back to the "
          "base."),
      ple("pause_filter_count_max", &PleParameters::max, "Largest window."),
  };
}

std::vector<Binding<VmDraft>> vm_scheduling_parameters() {
  std::vector<Binding<VmDraft>> table;
  add_thread_scheduling(table, "vm", "the vCPU threads");
  auto affinity = declare<VmDraft>("vm.affinity", ParameterType::integer_list, "",
                                   "pCPUs that unpinned vCPU threads may use; absent or empty = all.",
                                   "sched_setaffinity of the vCPU threads");
  affinity.declaration.maximum = 1023;
  affinity.set = [](VmDraft& vm, const SettingValue& value) {
    vm.affinity.clear();
    for (const std::int64_t cpu : std::get<std::vector<std::int64_t>>(value))
      vm.affinity.push_back(static_cast<unsigned>(cpu));
  };
  affinity.get = [](const VmDraft& vm) {
    return SettingValue(std::vector<std::int64_t>(vm.affinity.begin(), vm.affinity.end()));
  };
  table.push_back(with_fallback(std::move(affinity)));
  auto halt_poll =
      declare<VmDraft>("vm.halt_poll_ns", ParameterType::duration, "ns",
                       "Largest halt-polling window of this VM instead of kvm.halt_poll_ns; 0 = no polling.",
                       "KVM_CAP_HALT_POLL");
  halt_poll.declaration.minimum = 0;
  halt_poll.declaration.maximum = std::numeric_limits<std::uint32_t>::max();
  halt_poll.declaration.default_note = "absent: kvm.halt_poll_ns";
  halt_poll.set = [](VmDraft& vm, const SettingValue& value) {
    vm.halt_poll_ns = static_cast<std::uint64_t>(std::get<std::int64_t>(value));
  };
  halt_poll.get = [](const VmDraft& vm) -> std::optional<SettingValue> {
    if (!vm.halt_poll_ns) return std::nullopt;
    return SettingValue(static_cast<std::int64_t>(*vm.halt_poll_ns));
  };
  table.push_back(std::move(halt_poll));
  return table;
}

const std::vector<Binding<HostTaskConfig>>& task_parameters() {
  static const std::vector<Binding<HostTaskConfig>> table = [] {
    std::vector<Binding<HostTaskConfig>> result{
        text<HostTaskConfig>("host.task.name", &HostTaskConfig::name,
                             "Name of the thread; with count > 1 all have it.", "choice of the user"),
        number<HostTaskConfig>("host.task.count", &HostTaskConfig::count, 1, 4096, "",
                               "How many such threads.", "choice of the user"),
        cpu_list<HostTaskConfig>("host.task.cpus", &HostTaskConfig::cpus,
                                 "pCPUs that it may use; absent or empty = all.", "rt-app's cpus"),
        number<HostTaskConfig>("host.task.loops", &HostTaskConfig::loops, 0,
                               std::numeric_limits<std::int64_t>::max(), "",
                               "How often its phases run in all; 0 = for ever.", "rt-app's loop"),
    };
    add_thread_scheduling(result, "host.task", "the thread");
    return result;
  }();
  return table;
}

const std::vector<Binding<TaskPhase>>& task_phase_parameters() {
  static const std::vector<Binding<TaskPhase>> table{
      duration<TaskPhase>("host.task.phases.run", &TaskPhase::run_ns, 0, longest_phase_ns,
                          "CPU time of the phase.", "rt-app's run"),
      duration<TaskPhase>("host.task.phases.sleep", &TaskPhase::sleep_ns, 0, longest_phase_ns,
                          "Sleep after it.", "rt-app's sleep"),
      duration<TaskPhase>("host.task.phases.period", &TaskPhase::period_ns, 0, longest_phase_ns,
                          "Sleep up to the next multiple of this instead; 0 = not so.", "rt-app's timer"),
  };
  return table;
}

const Parameter& disable_exits_declaration() {
  static const Parameter declared = [] {
    auto binding = declare<VmDraft>(
        "vm.disable_exits", ParameterType::choice_list, "",
        "Exits that the VM's vCPUs do not take, from their creation on; a table among the names is a later "
        "change, or one of a single vCPU.",
        "KVM_CAP_X86_DISABLE_EXITS");
    binding.declaration.choices = {"mwait", "hlt", "pause", "cstate"};
    binding.declaration.fallback = SettingValue(std::vector<std::string>{});
    return binding.declaration;
  }();
  return declared;
}

const std::vector<Binding<DisableExitsChange>>& disable_exits_parameters() {
  static const std::vector<Binding<DisableExitsChange>> table = [] {
    auto vcpu = declare<DisableExitsChange>(
        "vm.disable_exits.vcpu", ParameterType::integer, "", "The one vCPU; absent = the whole VM.",
        "KVM: x86: per-vCPU exits disable capability (a proposal of 2021)");
    vcpu.declaration.minimum = 0;
    vcpu.declaration.maximum = 1023;
    vcpu.declaration.default_note = "absent";
    vcpu.set = [](DisableExitsChange& change, const SettingValue& value) {
      change.vcpu = static_cast<unsigned>(std::get<std::int64_t>(value));
    };
    vcpu.get = [](const DisableExitsChange& change) -> std::optional<SettingValue> {
      if (!change.vcpu) return std::nullopt;
      return SettingValue(static_cast<std::int64_t>(*change.vcpu));
    };
    auto exits = declare<DisableExitsChange>("vm.disable_exits.exits", ParameterType::choice_list, "",
                                             "Which exits.", "KVM_CAP_X86_DISABLE_EXITS");
    exits.declaration.choices = disable_exits_declaration().choices;
    exits.set = [](DisableExitsChange& change, const SettingValue& value) {
      change.exits = std::get<std::vector<std::string>>(value);
    };
    exits.get = [](const DisableExitsChange& change) { return SettingValue(change.exits); };
    return std::vector<Binding<DisableExitsChange>>{
        std::move(vcpu),
        with_fallback(std::move(exits)),
        duration<DisableExitsChange>("vm.disable_exits.at", &DisableExitsChange::at_ns, 0, longest_phase_ns,
                                     "When user space makes the change.", "choice of the user"),
        boolean<DisableExitsChange>(
            "vm.disable_exits.enable", &DisableExitsChange::enable,
            "true: disable the exits; false: take them again, which only the per-vCPU "
            "proposal can.",
            "KVM_X86_DISABLE_EXITS_OVERRIDE of the proposal"),
    };
  }();
  return table;
}

DisabledExits disabled_exits_of(const std::vector<std::string>& names) {
  DisabledExits exits;
  for (const std::string& name : names)
    set_exit(exits, name, true);
  return exits;
}

DisabledExits changed(DisabledExits exits, const DisableExitsChange& change) {
  for (const std::string& name : change.exits)
    set_exit(exits, name, change.enable);
  return exits;
}

void check_cpus(const RawValue& where, const std::string& path, const std::vector<unsigned>& cpus,
                unsigned pcpus, Problems& problems) {
  if (pcpus == 0) return;
  for (const unsigned cpu : cpus) {
    if (cpu < pcpus) continue;
    problems.push_back(problem_at(
        where, path, fmt::format("pCPU {} does not exist: the host has {} (0 to {})", cpu, pcpus, pcpus - 1),
        fmt::format("{}", pcpus - 1)));
  }
}

void read_tasks(const RawValue& tasks, HostConfig& host, unsigned pcpus, Problems& problems) {
  const std::string path = "host.task";
  if (tasks.list() == nullptr) {
    problems.push_back(
        problem_at(tasks, path, fmt::format("expected [[host.task]] tables, found {}", tasks.in_words())));
    return;
  }
  for (const RawValue& raw : *tasks.list()) {
    HostTaskConfig task;
    read_section(raw, task_parameters(), path, path, {"phases"}, task, problems);
    if (raw.table() == nullptr) continue;
    if (const RawValue* cpus = raw.find("cpus"))
      check_cpus(*cpus, path + ".cpus", task.cpus, pcpus, problems);
    const RawValue* phases = raw.find("phases");
    if (phases == nullptr || phases->list() == nullptr || phases->list()->empty()) {
      problems.push_back(problem_at(phases == nullptr ? raw : *phases, path + ".phases",
                                    "needs a list of at least one {run = ..., sleep = ...}"));
      continue;
    }
    std::uint64_t total = 0;
    for (const RawValue& raw_phase : *phases->list()) {
      TaskPhase phase;
      read_section(raw_phase, task_phase_parameters(), "host.task.phases", path + ".phases", {}, phase,
                   problems);
      total += phase.run_ns + phase.sleep_ns + phase.period_ns;
      task.phases.push_back(phase);
    }
    if (total == 0) problems.push_back(problem_at(*phases, path + ".phases", "take no time"));
    host.tasks.push_back(std::move(task));
  }
}

void read_disable_exits(const RawValue& value, const std::string& path, workloads::KernelGeneration kernel,
                        VmDraft& vm, Problems& problems) {
  if (value.list() == nullptr) {
    problems.push_back(problem_at(value, path, fmt::format("expected a list, found {}", value.in_words())));
    return;
  }
  RawValue names = value;
  RawList plain;
  for (const RawValue& element : *value.list()) {
    if (element.table() == nullptr) {
      plain.push_back(element);
      continue;
    }
    DisableExitsChange change;
    read_section(element, disable_exits_parameters(), "vm.disable_exits", path, {}, change, problems);
    if (change.exits.empty()) problems.push_back(problem_at(element, path + ".exits", "missing or empty"));
    if (change.vcpu && *change.vcpu >= vm.vcpus) {
      problems.push_back(problem_at(element, path + ".vcpu",
                                    fmt::format("the VM has {} vCPUs (0 to {})", vm.vcpus, vm.vcpus - 1),
                                    fmt::format("{}", vm.vcpus - 1)));
    }
    if (!change.vcpu && !change.enable) {
      problems.push_back(
          problem_at(element, path + ".enable", "the capability of a VM cannot be taken back; name a vcpu"));
    }
    // kvm_vm_ioctl_enable_cap refuses once a vCPU exists (2025); before, it was accepted and concerned vCPUs
    // made later: here there are none.
    if (!change.vcpu && kernel >= workloads::KernelGeneration::v6_18) {
      problems.push_back(
          problem_at(element, path,
                     "the kernel refuses the capability of a VM once a vCPU exists (-EINVAL); name a vcpu"));
    }
    vm.disable_exits_changes.push_back(std::move(change));
  }
  names.value = plain;
  if (const auto setting = check_value(disable_exits_declaration(), names, path, problems))
    vm.disable_exits = std::get<std::vector<std::string>>(*setting);
}

}  // namespace svmsim::model
