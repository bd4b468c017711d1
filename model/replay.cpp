#include "model/replay.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/config/loader.hpp"
#include "model/stats/run_result.hpp"
#include "model/trace_file_sink.hpp"
#include "svm/exit_code.hpp"
#include "svm/user_error.hpp"
#include "workloads/idle_source.hpp"
#include "workloads/trace/ftrace_reader.hpp"
#include "workloads/trace/import.hpp"
#include "workloads/trace/replay_source.hpp"
#include "workloads/trace/workload_file.hpp"

namespace svmsim::model {

using Json = nlohmann::ordered_json;
using workloads::Capture;
using workloads::EventKind;
using workloads::ImportOptions;
using workloads::ImportResult;
using workloads::ReplayWorkload;
using workloads::TraceFile;

namespace {

const Capture& choose_capture(const TraceFile& file, int capture) {
  const auto count = static_cast<int>(file.captures.size());
  if (capture == 0 && count == 1) return file.captures.front();
  if (capture >= 1 && capture <= count) return file.captures[static_cast<std::size_t>(capture - 1)];
  std::string titles;
  for (int i = 0; i < count; ++i) {
    titles += fmt::format("{}{} = line {} \"{}\"", i == 0 ? "" : ", ", i + 1,
                          file.captures[static_cast<std::size_t>(i)].first_line,
                          file.captures[static_cast<std::size_t>(i)].title);
  }
  const std::string message =
      capture == 0 ? fmt::format("the file holds {} captures, choose one with --capture: {}", count, titles)
                   : fmt::format("there is no capture {}; the file holds {}: {}", capture, count, titles);
  throw TraceError(Problem{file.source, 0, "capture", message,
                           capture == 0 ? "1" : std::to_string(std::clamp(capture, 1, count))});
}

ImportResult import_for(const Capture& capture, const ImportOptions& options) {
  ImportResult result = workloads::import_capture(capture, options);
  if (result.report.no_workload) {
    throw TraceError(
        Problem{capture.source, capture.first_line, capture.title, *result.report.no_workload, ""});
  }
  return result;
}

/// What the replay of a file needs to know about the recording.
struct Recording {
  ReplayWorkload workload;
  workloads::Counts exits;         ///< kvm_exit lines by reason; empty for a workload file
  std::vector<std::string> order;  ///< reasons in file order
  workloads::Counts undecidable;
  std::vector<Problem> problems;  ///< lines that cannot be read, the first ones
  std::uint64_t problem_count = 0;
  bool from_trace = false;
};

Recording load_recording(const std::string& path, int capture, const HostConfig& host) {
  Recording recording;
  if (workloads::is_workload_file(path)) {
    if (capture > 1) {
      throw TraceError(Problem{path, 0, "capture",
                               fmt::format("there is no capture {}; a workload file holds one", capture),
                               "1"});
    }
    recording.workload = workloads::read_workload_file(path);
    return recording;
  }
  const TraceFile file = workloads::read_trace_file(path);
  const Capture& chosen = choose_capture(file, capture);
  ImportOptions options;
  options.tsc_hz = host.tsc_hz;
  options.world_switch_cycles = host.cost.t_world;
  ImportResult result = import_for(chosen, options);
  recording.workload = std::move(result.workload);
  recording.exits = result.report.exits;
  recording.undecidable = result.report.undecidable;
  recording.problems = result.report.problems;
  recording.problem_count = result.report.problem_count;
  recording.from_trace = true;
  for (const workloads::TraceEvent& event : chosen.events) {
    if (event.kind == EventKind::kvm_exit) recording.order.push_back(chosen.exit_name(event.field[0]));
  }
  return recording;
}

/// Records the order of exits of a replay.
class ExitOrderSink final : public EventSink {
 public:
  void on_event(const workloads::TraceEvent& event) override {
    if (event.kind == EventKind::kvm_exit) order.push_back(svm::exit_name_or_hex(event.field[0]));
  }
  std::vector<std::string> order;
};

unsigned recorded_vms(const ReplayWorkload& workload) {
  int vms = 0;
  for (const auto& vcpu : workload.vcpus)
    vms = std::max(vms, vcpu.vm + 1);
  return static_cast<unsigned>(vms);
}

unsigned recorded_vcpus(const ReplayWorkload& workload, unsigned vm) {
  int vcpus = 1;
  for (const auto& vcpu : workload.vcpus) {
    if (vcpu.vm == static_cast<int>(vm)) vcpus = std::max(vcpus, vcpu.vcpu + 1);
  }
  return static_cast<unsigned>(vcpus);
}

/// Whether the recorded KVM used AVIC: it has exits of its own.
bool shows_avic(const ReplayWorkload& workload) {
  for (const auto& vcpu : workload.vcpus) {
    for (const auto& item : vcpu.items) {
      if (item.exit_code == svm::exit_code::avic_incomplete_ipi ||
          item.exit_code == svm::exit_code::avic_noaccel) {
        return true;
      }
    }
  }
  return false;
}

/// The settings that the recording shows, as a scenario: its kernel, no tick (host interrupts are replayed as
/// recorded), a pCPU per vCPU.
Json recorded_settings(const std::string& path, const Recording& recording) {
  Json vms = Json::array();
  unsigned pcpus = 0;
  for (unsigned vm = 0; vm < recorded_vms(recording.workload); ++vm) {
    const unsigned vcpus = recorded_vcpus(recording.workload, vm);
    std::vector<unsigned> pin;
    for (unsigned i = 0; i < vcpus; ++i)
      pin.push_back(pcpus++);
    vms.push_back(
        {{"name", fmt::format("vm{}", vm)}, {"vcpus", vcpus}, {"pin", pin}, {"workload", {{"trace", path}}}});
  }
  Json scenario;
  scenario["host"] = {{"kernel", std::string(workloads::kernel_name(recording.workload.kernel))},
                      {"hz", 0},
                      {"pcpus", pcpus}};
  scenario["kvm"] = {{"idle_hlt", recording.workload.idle_hlt.value_or(true)},
                     {"avic", shows_avic(recording.workload)}};
  scenario["vm"] = vms;
  return scenario;
}

SourceFactory replay_factory(const ReplayWorkload& workload, std::uint64_t tsc_hz);

struct ReplayRun {
  Json result;
  std::vector<std::string> order;
};

ReplayRun run_replay(const Scenario& scenario, const ReplayWorkload& workload, const std::string& trace,
                     const Progress& progress) {
  Simulation simulation(scenario);
  simulation.set_progress(progress);
  simulation.set_source_factory(replay_factory(workload, scenario.host.tsc_hz));
  ExitOrderSink order;
  simulation.add_sink(order);
  std::unique_ptr<TraceFileSink> file;
  if (!trace.empty()) {
    file = std::make_unique<TraceFileSink>(trace, simulation);
    simulation.add_sink(*file);
  }
  const RunResult result = simulation.run();
  if (file) file->close();
  return {Json::parse(to_json(result)), std::move(order.order)};
}

workloads::Counts count(const std::vector<std::string>& order) {
  workloads::Counts counts;
  for (const std::string& name : order)
    ++counts[name];
  return counts;
}

Json fidelity(const Recording& recording, const std::vector<std::string>& replayed) {
  Json result;
  const workloads::Counts seen = count(replayed);
  std::set<std::string> names;
  for (const auto& [name, number] : recording.exits)
    names.insert(name);
  for (const auto& [name, number] : seen)
    names.insert(name);
  bool all = true;
  for (const std::string& name : names) {
    const auto number = [&](const workloads::Counts& counts) {
      const auto found = counts.find(name);
      return found == counts.end() ? std::uint64_t{0} : found->second;
    };
    const bool equal = number(recording.exits) == number(seen);
    all = all && equal;
    result["exits"][name] = {
        {"recorded", number(recording.exits)}, {"replayed", number(seen)}, {"equal", equal}};
  }
  result["counts_equal"] = all;
  const bool same_order = recording.order == replayed;
  result["order_equal"] = same_order;
  if (!same_order) {
    const std::size_t length = std::min(recording.order.size(), replayed.size());
    std::size_t i = 0;
    while (i < length && recording.order[i] == replayed[i])
      ++i;
    result["first_difference"] = {{"exit", i + 1},
                                  {"recorded", i < recording.order.size() ? recording.order[i] : "end"},
                                  {"replayed", i < replayed.size() ? replayed[i] : "end"}};
  }
  return result;
}

std::unique_ptr<workloads::WorkloadSource> source_of(const ReplayWorkload& workload, unsigned vm,
                                                     unsigned vcpu, std::uint64_t tsc_hz) {
  for (std::size_t i = 0; i < workload.vcpus.size(); ++i) {
    if (workload.vcpus[i].vm == static_cast<int>(vm) && workload.vcpus[i].vcpu == static_cast<int>(vcpu)) {
      return workloads::make_replay(workload, i, tsc_hz);
    }
  }
  return std::make_unique<workloads::IdleSource>();
}

SourceFactory replay_factory(const ReplayWorkload& workload, std::uint64_t tsc_hz) {
  return [&workload, tsc_hz](const VmConfig&, unsigned vm, unsigned vcpu) {
    return source_of(workload, vm, vcpu, tsc_hz);
  };
}

ImportOptions parse_options(const std::string& text) {
  ImportOptions options;
  const Json json = Json::parse(text.empty() ? "{}" : text);
  if (json.contains("window_from"))
    options.window_from = workloads::EventPattern::parse(json["window_from"].get<std::string>());
  if (json.contains("window_to"))
    options.window_to = workloads::EventPattern::parse(json["window_to"].get<std::string>());
  if (json.contains("from"))
    options.from = workloads::CutPoint::parse(json["from"].get<std::string>(), "--from");
  if (json.contains("to")) options.to = workloads::CutPoint::parse(json["to"].get<std::string>(), "--to");
  if (json.contains("isa")) {
    options.isa = workloads::isa_of_name(json["isa"].get<std::string>());
    if (!options.isa) throw UserError(Problem{"", 0, "--isa", "must be svm or vmx", "svm"});
  }
  options.tsc_hz = json.value("tsc_hz", options.tsc_hz);
  options.world_switch_cycles = json.value("world_switch_cycles", options.world_switch_cycles);
  return options;
}

}  // namespace

ReplayWorkload load_replay(const std::string& path, int capture, const HostConfig& host) {
  return load_recording(path, capture, host).workload;
}

std::string import_trace_json(const std::vector<std::string>& paths, const std::string& output, int capture,
                              const std::string& options_text) {
  const ImportOptions options = parse_options(options_text);
  if (output.empty()) return to_json(workloads::import_report_of_files(paths, options, capture));
  const TraceFile file = workloads::read_trace_files(paths);
  const Capture& chosen = choose_capture(file, capture);
  const ImportResult result = workloads::import_capture(chosen, options);
  if (result.report.no_workload) {
    throw TraceError(Problem{chosen.source, chosen.first_line, chosen.title, *result.report.no_workload, ""});
  }
  workloads::write_workload_file(output, result.workload);
  return to_json(result.report);
}

std::string replay_json(const std::string& path, int capture, const std::vector<std::string>& overrides,
                        const std::string& trace, const Progress& progress) {
  // The profile is needed before the settings are known: it says what the world switch takes off the guest's
  // work.
  std::vector<std::string> profile;
  std::copy_if(overrides.begin(), overrides.end(), std::back_inserter(profile), [](const std::string& item) {
    return item.rfind("host.profile", 0) == 0 || item.rfind("host.cost", 0) == 0;
  });
  const Scenario plain =
      load_scenario(ScenarioSource::from_json(R"({"vm": [{"workload": {"kind": "cpuid"}}]})"), profile);
  const Recording recording = load_recording(path, capture, plain.host);
  const std::string settings = recorded_settings(path, recording).dump();
  const Scenario recorded = load_scenario(ScenarioSource::from_json(settings), profile);
  const bool changes = profile.size() != overrides.size();
  const ReplayRun as_recorded = run_replay(recorded, recording.workload, changes ? "" : trace, progress);

  Json report;
  report["capture"] = recording.workload.title;
  report["source"] = path;
  report["settings"] = Json::parse(settings);
  report["recorded"] = {{"exits", recording.from_trace ? recording.exits : count(as_recorded.order)}};
  report["as_recorded"] = as_recorded.result;
  report["changed"] = nullptr;
  if (changes) {
    const Scenario changed = load_scenario(ScenarioSource::from_json(settings), overrides);
    report["changed"] = run_replay(changed, recording.workload, trace, progress).result;
  }
  report["fidelity"] = recording.from_trace ? fidelity(recording, as_recorded.order) : Json::object();
  report["undecidable"] = Json::array();
  for (const auto& [text, number] : recording.undecidable) {
    report["undecidable"].push_back(fmt::format("{} ({} times)", text, number));
  }
  report["problems"] = Json::array();
  for (const Problem& problem : recording.problems)
    report["problems"].push_back(problem.text());
  report["problem_count"] = recording.problem_count;
  return report.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::unique_ptr<workloads::WorkloadSource> TraceSources::make(const Scenario& scenario, unsigned vm_index,
                                                              unsigned vcpu) {
  const std::string& path = scenario.vms[vm_index].trace;
  auto found =
      std::find_if(files_.begin(), files_.end(), [&](const auto& entry) { return entry.first == path; });
  if (found == files_.end()) {
    files_.emplace_back(path, load_replay(path, 0, scenario.host));
    found = files_.end() - 1;
  }
  unsigned recorded_vm = 0;
  for (unsigned i = 0; i < vm_index; ++i)
    recorded_vm += scenario.vms[i].trace == path ? 1U : 0U;
  return source_of(found->second, recorded_vm, vcpu, scenario.host.tsc_hz);
}

}  // namespace svmsim::model
