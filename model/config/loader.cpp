#include "model/config/loader.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "apic/avic/id_tables.hpp"
#include "model/config/avic_parameters.hpp"
#include "model/config/overrides.hpp"
#include "model/config/profile.hpp"
#include "model/config/scheduling_parameters.hpp"
#include "model/config/section_reader.hpp"
#include "model/config/vm_reader.hpp"
#include "model/units.hpp"

namespace svmsim::model {

namespace {

using Problems = std::vector<Problem>;

/// A missing section reads as an empty one.
RawValue section(const RawValue& parent, const std::string& key) {
  if (const RawValue* value = parent.find(key)) return *value;
  RawValue empty;
  empty.value = RawTable{};
  empty.source = parent.source;
  return empty;
}

/// host.features as a difference: what it changes and nothing else, in bit order.
void apply_features(HostConfig& host, const svm::FeatureSet& of_profile) {
  host.features = of_profile;
  for (const std::string& change : host.feature_changes) {
    if (const auto feature = svm::feature_of(change.substr(1)))
      host.features.set(*feature, change.front() == '+');
  }
  host.feature_changes.clear();
  for (const svm::FeatureInfo& info : svm::all_features()) {
    const bool now = host.features.has(info.feature);
    if (now != of_profile.has(info.feature))
      host.feature_changes.push_back((now ? "+" : "-") + std::string(info.name));
  }
}

void read_profile(const RawValue& raw_host, const std::string& base_dir, HostConfig& host,
                  Problems& problems) {
  Profile profile = builtin_profile(HostConfig{}.profile);
  const RawValue* where = raw_host.find("profile");
  try {
    host.profile = resolve_path(host.profile, base_dir);
    profile = load_profile(host.profile);
  } catch (const UserError& error) {
    for (Problem problem : error.problems()) {
      if (problem.source.empty() && where != nullptr) {
        problem.source = where->source;
        problem.line = where->line;
      }
      problems.push_back(std::move(problem));
    }
  }
  host.tsc_hz = profile.tsc_hz;
  host.cpu = profile.cpu;
  host.cpu_family = profile.family;
  host.cost = profile.cost;
  host.cstates = profile.cstates;
  if (profile.idle_governor && raw_host.find("idle_governor") == nullptr)
    host.idle_governor = *profile.idle_governor;
  apply_features(host, profile.features);
}

void read_cstates(const RawValue& states, HostConfig& host, Problems& problems) {
  const std::string path = "host.cstate";
  if (states.list() == nullptr) {
    problems.push_back(problem_at(
        states, path, fmt::format("expected [[host.cstate]] tables, found {}", states.in_words())));
    return;
  }
  host.cstates.clear();
  std::set<std::string> names;
  for (const RawValue& raw : *states.list()) {
    CState state;
    read_section(raw, cstate_parameters(), path, path, {}, state, problems);
    if (raw.table() == nullptr) continue;
    if (raw.find("name") == nullptr) problems.push_back(problem_at(raw, path + ".name", "missing"));
    if (!state.name.empty() && !names.insert(state.name).second) {
      problems.push_back(
          problem_at(raw, path + ".name", fmt::format("two idle states are named {}", state.name)));
    }
    host.cstates.push_back(std::move(state));
  }
  constexpr std::size_t most_states = 9;  // CPUIDLE_STATE_MAX, less POLL
  if (host.cstates.size() > most_states)
    problems.push_back(problem_at(states, path, fmt::format("has more than {} states", most_states)));
  std::stable_sort(host.cstates.begin(), host.cstates.end(),
                   [](const CState& a, const CState& b) { return a.latency_ns < b.latency_ns; });
}

/// host.guest_hlt_depth: a halt in guest mode ends as slowly as the idle state does.
void read_guest_hlt_depth(const RawValue& raw, HostConfig& host, Problems& problems) {
  const RawValue* where = raw.find("guest_hlt_depth");
  if (where == nullptr || host.guest_hlt_depth.empty()) return;
  std::vector<std::string> names;
  for (const CState& state : host.cstates) {
    names.push_back(state.name);
    if (state.name != host.guest_hlt_depth) continue;
    host.cost.t_halt_wake = static_cast<std::uint32_t>(ns_to_cycles(state.wake_ns, host.tsc_hz));
    return;
  }
  Problem problem = problem_at(*where, "host.guest_hlt_depth",
                               fmt::format("the host has no idle state {}", host.guest_hlt_depth));
  problem.nearest = nearest_name(host.guest_hlt_depth, names);
  problems.push_back(std::move(problem));
}

void read_host(const RawValue& raw, const std::string& base_dir, HostConfig& host, Problems& problems) {
  read_section(raw, host_parameters(), "host", "host", {"knobs", "cost", "cstate", "task"}, host, problems);
  if (raw.table() == nullptr) return;
  for (const auto& binding : host_parameters()) {
    if (raw.find(binding.declaration.key()) != nullptr) continue;
    for (const auto& [generation, value] : binding.kernel_defaults) {
      if (generation == host.kernel) binding.set(host, value);
    }
  }
  read_profile(raw, base_dir, host, problems);
  read_section(section(raw, "knobs"), knob_parameters(), "host.knobs", "host.knobs", {}, host.knobs,
               problems);
  read_section(section(raw, "cost"), cost_parameters(), "host.cost", "host.cost", {}, host.cost, problems);
  if (const RawValue* states = raw.find("cstate")) read_cstates(*states, host, problems);
  read_guest_hlt_depth(raw, host, problems);
  const bool pcpus_known = std::none_of(problems.begin(), problems.end(),
                                        [](const Problem& problem) { return problem.path == "host.pcpus"; });
  const unsigned pcpus = pcpus_known ? host.pcpus : 0;
  if (const RawValue* tasks = raw.find("task")) read_tasks(*tasks, host, pcpus, problems);
  if (const RawValue* full = raw.find("nohz_full"))
    check_cpus(*full, "host.nohz_full", host.nohz_full, pcpus, problems);
}

void read_kvm(const RawValue& raw, const HostConfig& host, KvmConfig& kvm, Problems& problems) {
  for (const auto& binding : kvm_parameters()) {
    for (const auto& [generation, value] : binding.kernel_defaults) {
      if (generation == host.kernel) binding.set(kvm, value);
    }
  }
  read_section(raw, kvm_parameters(), "kvm", "kvm", {}, kvm, problems);
  if (!kvm.avic_given) kvm.avic = avic_by_default(host);
  if (!kvm.pi_inject_timer_given) kvm.pi_inject_timer = !host.nohz_full.empty();
}

void read_run(const RawValue& raw, RunConfig& run, Problems& problems) {
  read_section(raw, run_parameters(), "run", "run", {}, run, problems);
  if (run.duration_ns && run.warmup_ns >= *run.duration_ns) {
    const RawValue* warmup = raw.find("warmup");
    problems.push_back(problem_at(warmup == nullptr ? raw : *warmup, "run.warmup",
                                  fmt::format("{} is not shorter than run.duration, {}",
                                              format_duration(static_cast<std::int64_t>(run.warmup_ns)),
                                              format_duration(static_cast<std::int64_t>(*run.duration_ns)))));
  }
}

/// avic_init_backing_page up to 6.12: with AVIC a vCPU whose ID the physical ID table cannot name is not
/// made. Mainline makes it, and inhibits AVIC (PHYSICAL_ID_TOO_BIG).
void check_avic_ids(const RawValue& root, const Scenario& scenario, Problems& problems) {
  const svm::FeatureSet& features = scenario.host.features;
  if (!scenario.kvm.avic || scenario.host.kernel >= workloads::KernelGeneration::v6_18 ||
      !features.has(svm::Feature::avic) || !features.has(svm::Feature::np))
    return;
  const bool x2avic = features.has(svm::Feature::x2avic);
  const std::uint32_t last = x2avic ? apic::avic_max_index_limit(true, false) : apic::xavic_last_index;
  for (const VmConfig& vm : scenario.vms) {
    if (vm.vcpus - 1 <= last) continue;
    const RawValue* vms = root.find("vm");
    problems.push_back(problem_at(
        vms == nullptr ? root : *vms, "vm.vcpus",
        fmt::format(
            "{} has {} vCPUs: with {} this kernel makes none with an ID above {} (kernel 6.18 would run "
            "it without AVIC)",
            vm.name, vm.vcpus, x2avic ? "x2AVIC" : "AVIC", last)));
  }
}

/// In the order of the file. VMs that an override split out of one table repeat its problems; one of each is
/// enough.
Problems in_order(Problems problems) {
  std::stable_sort(problems.begin(), problems.end(), [](const Problem& a, const Problem& b) {
    return std::make_tuple(a.line == 0, a.source, a.line) < std::make_tuple(b.line == 0, b.source, b.line);
  });
  Problems result;
  std::set<std::tuple<std::string, std::size_t, std::string, std::string>> seen;
  for (const Problem& problem : problems) {
    const bool in_file = problem.line != 0;
    const std::string key = problem.path.substr(problem.path.rfind('.') + 1);
    if (!in_file || seen.emplace(problem.source, problem.line, key, problem.message).second)
      result.push_back(problem);
  }
  return result;
}

}  // namespace

Scenario load_scenario(const ScenarioSource& source, const std::vector<std::string>& overrides) {
  Problems problems;
  RawValue root;
  std::string base_dir = source.base_dir;
  if (source.file.empty()) {
    root = read_json(source.json, "<dict>", problems);
  } else {
    base_dir = std::filesystem::path(source.file).parent_path().string();
    const std::string text = read_text_file(source.file, {}, problems);
    if (problems.empty()) root = read_toml(text, source.file, problems);
  }
  if (!problems.empty())
    throw UserError(std::move(problems));  // nothing to check in a file that cannot be read

  apply_overrides(root, overrides, problems);

  Scenario scenario;
  const std::vector<std::string> sections{"host", "kvm", "vm", "run"};
  for (const auto& [key, value] : *root.table()) {
    if (std::find(sections.begin(), sections.end(), key) == sections.end()) {
      report_unknown_key(value, key, "", "", sections, problems);
    }
  }
  read_host(section(root, "host"), base_dir, scenario.host, problems);
  read_kvm(section(root, "kvm"), scenario.host, scenario.kvm, problems);
  // Against a pcpus that is wrong itself every pin would look impossible.
  const bool pcpus_known = std::none_of(problems.begin(), problems.end(),
                                        [](const Problem& problem) { return problem.path == "host.pcpus"; });
  scenario.vms =
      read_vms(root, pcpus_known ? scenario.host.pcpus : 0, scenario.host.kernel, base_dir, problems);
  if (problems.empty()) check_avic_ids(root, scenario, problems);
  read_run(section(root, "run"), scenario.run, problems);
  if (!scenario.host.tasks.empty() && !scenario.run.duration_ns) {
    problems.push_back(problem_at(*section(root, "host").find("task"), "host.task",
                                  "needs a run.duration: host tasks may run for ever"));
  }

  problems = in_order(std::move(problems));
  if (!problems.empty()) throw UserError(std::move(problems));
  return scenario;
}

}  // namespace svmsim::model
