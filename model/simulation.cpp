#include "model/simulation.hpp"

#include <algorithm>
#include <chrono>
#include <set>

#include <fmt/format.h>

#include "model/advice.hpp"
#include "model/config/loader.hpp"
#include "model/guest_vms.hpp"
#include "model/machine.hpp"
#include "model/replay.hpp"
#include "model/sim_context.hpp"
#include "model/stats/busy_reason.hpp"
#include "model/units.hpp"
#include "model/version.hpp"
#include "model/waveform.hpp"
#include "svm/exit_code.hpp"
#include "svm/user_error.hpp"

namespace svmsim::model {

namespace {

/// vm.native: a kernel that shares its pCPU with nobody.
void check_native(const Scenario& scenario, const VmConfig& vm, std::vector<Problem>& problems) {
  const std::string path = "vm." + vm.name + ".native";
  if (vm.tasks.empty()) problems.push_back({"", 0, path, "needs a task set (workload.tasks)", ""});
  if (vm.apic != "x2apic") problems.push_back({"", 0, path, "needs apic = \"x2apic\"", "x2apic"});
  if (vm.pin.empty()) return problems.push_back({"", 0, path, "needs pin: a pCPU for each vCPU", ""});
  std::set<unsigned> own(vm.pin.begin(), vm.pin.end());
  bool shared = own.size() != vm.pin.size();
  for (const VmConfig& other : scenario.vms) {
    if (&other == &vm) continue;
    shared =
        shared || other.pin.empty() ||
        std::any_of(other.pin.begin(), other.pin.end(), [&](unsigned cpu) { return own.count(cpu) != 0; });
  }
  if (shared) problems.push_back({"", 0, path, "shares a pCPU with another vCPU, or may", ""});
}

void check_vcpus(const Scenario& scenario) {
  std::vector<Problem> problems;
  for (const VmConfig& vm : scenario.vms) {
    if (vm.native) check_native(scenario, vm, problems);
    for (Problem& problem : check_l1(scenario, vm))
      problems.push_back(std::move(problem));
    if (vm.workload.kind.empty()) continue;
    const unsigned needed = workloads::program_info(vm.workload.kind).vcpus;
    for (Problem& problem : check_apic_driver(vm))
      problems.push_back(std::move(problem));
    if (vm.vcpus < needed) {
      problems.push_back({"", 0, "vm." + vm.name + ".vcpus",
                          fmt::format("{} needs {} vCPUs, not {}", vm.workload.kind, needed, vm.vcpus),
                          std::to_string(needed)});
    }
  }
  if (!problems.empty()) throw UserError(std::move(problems));
}

std::uint64_t statistic(const VcpuStats& stats, const std::string& name) {
  for (const VcpuStatInfo& info : vcpu_stat_table()) {
    if (info.name == name && info.counter != nullptr) return stats.*info.counter;
  }
  throw InternalError("a program reports the statistic " + name + ", which does not exist");
}

// Metrics of one vCPU keep their names; with several vCPUs each name carries its vCPU.
void add_metrics(RunResult& result, const Machine& machine, const Scenario& scenario) {
  const bool prefixed = machine.vcpus().size() > 1;
  for (const auto& vcpu : machine.vcpus()) {
    const std::string prefix = prefixed ? fmt::format("{}.{}.", vcpu->vm.name, vcpu->index) : "";
    for (const auto& [name, value] : vcpu->source->metrics())
      result.metrics.emplace_back(prefix + name, value);
    const std::string& kind = scenario.vms[vcpu->vm.index].workload.kind;
    if (kind.empty()) continue;
    for (const std::string& name : workloads::program_info(kind).report_statistics) {
      result.metrics.emplace_back(prefix + name, static_cast<double>(statistic(vcpu->stats, name)));
    }
  }
}

// Why the run ended before its workloads did; "" if it did not.
std::string early_end(const Machine& machine, bool has_duration) {
  for (const auto& vcpu : machine.vcpus()) {
    std::string reason = vcpu->failure.empty() ? vcpu->source->failure() : vcpu->failure;
    if (!reason.empty()) return fmt::format("vCPU {} of {}: {}", vcpu->index, vcpu->vm.name, reason);
  }
  if (has_duration) return {};
  for (const auto& vcpu : machine.vcpus()) {
    if (!vcpu->spinning) continue;
    return fmt::format("vCPU {} of {} spins for ever on memory that nobody writes", vcpu->index,
                       vcpu->vm.name);
  }
  for (const auto& vcpu : machine.vcpus()) {
    if (vcpu->state == HostThread::State::ended || vcpu->source->serves()) continue;
    if (vcpu->mp_state == MpState::uninitialized || vcpu->mp_state == MpState::init_received)
      return fmt::format("vCPU {} of {} waits for a SIPI that nobody sends", vcpu->index, vcpu->vm.name);
    return fmt::format("vCPU {} of {} is halted at rip {:#x} and nothing that could wake it is pending",
                       vcpu->index, vcpu->vm.name, vcpu->vmcb.save.rip);
  }
  return {};
}

std::uint64_t end_of(const Machine& machine) {
  if (machine.end_cycles() != never_cycles) return machine.end_cycles();
  std::uint64_t end = 0;
  for (const auto& vcpu : machine.vcpus())
    end = std::max(end, vcpu->ended_cycles);
  if (end == 0) end = cycles_of(kernel_now());
  return end;
}

// The kinds of the VMs' workloads, each once, in the order of the VMs.
std::string kinds_of(const Scenario& scenario) {
  std::vector<std::string> kinds;
  for (const VmConfig& vm : scenario.vms) {
    const std::string kind = !vm.trace.empty() ? "trace" : !vm.tasks.empty() ? vm.tasks : vm.workload.kind;
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return fmt::format("{}", fmt::join(kinds, "+"));
}

// Inhibits of AVIC, and what else of it deserves advice.
void add_avic(RunResult& result, const Vm& vm, const Scenario& scenario, std::uint64_t end) {
  VmFacts facts;
  facts.inhibits = vm.inhibits.rows(end);
  facts.run_cycles = result.sim_cycles;
  facts.ipi_virtualization = vm.avic == nullptr || vm.avic->options.ipi_virtualization;
  for (const ApicvInhibits::Row& row : facts.inhibits)
    result.apicv_inhibits.push_back(
        {vm.name, std::string(inhibit_name(row.reason)), row.count, row.time_cycles});
  for (const Vcpu* vcpu : vm.vcpus) {
    facts.icr_exits += vcpu->icr_exits;
    facts.hypercall_ipis += vcpu->hypercall_ipis;
    for (const ExitStats::Row& row : vcpu->exits.rows()) {
      if (row.code == svm::exit_code::avic_incomplete_ipi) facts.incomplete_ipis += row.counter.count;
    }
  }
  for (Advice& advice : avic_advice(scenario, scenario.vms[vm.index], facts))
    result.advice.push_back(std::move(advice));
}

RunResult collect(const Machine& machine, const Scenario& scenario) {
  RunResult result;
  result.version = version;
  result.scenario_json = resolved_json(scenario);
  result.tsc_hz = scenario.host.tsc_hz;
  const std::uint64_t warmup = ns_to_cycles(scenario.run.warmup_ns, scenario.host.tsc_hz);
  const std::uint64_t end = end_of(machine);
  result.sim_cycles = end > warmup ? end - warmup : 0;
  for (const auto& vcpu : machine.vcpus()) {
    // One that has not run since its warm-up ended has nothing to show.
    if (warmup != 0) Hypervisor::end_warmup(*vcpu);
    const VcpuStats stats = vcpu->stats - vcpu->stats_at_warmup;
    result.vcpus.push_back(
        {vcpu->vm.name, vcpu->index, vcpu->exits.rows(), stats,
         vcpu->nested != nullptr ? vcpu->nested->stats.rows() : std::vector<NestedStats::Row>{}});
  }
  for (const auto& vm : machine.vms()) {
    result.wakeup_latency += vm->wakeup_latency;
    result.ipi_latency += vm->ipi_latency;
  }
  std::vector<std::string> idle_names;
  if (scenario.host.idle_governor != IdleGovernorKind::none || scenario.host.cstates.empty())
    idle_names.emplace_back("POLL");
  for (const CState& state : scenario.host.cstates)
    idle_names.push_back(state.name);
  for (const auto& cpu : machine.cpus()) {
    const auto spent = cpu->spent(end);
    const auto of = [&](CpuTime use) { return spent[static_cast<std::size_t>(use)]; };
    PcpuResult pcpu{
        cpu->index(), of(CpuTime::guest),      of(CpuTime::host),      of(CpuTime::poll), of(CpuTime::task),
        {},           cpu->context_switches(), cpu->timer_interrupts()};
    for (std::size_t state = 0; state < idle_names.size(); ++state)
      pcpu.idle_cycles.emplace_back(idle_names[state],
                                    spent[static_cast<std::size_t>(CpuTime::idle) + state]);
    result.pcpus.push_back(std::move(pcpu));
  }
  for (const auto& vm : machine.vms())
    add_avic(result, *vm, scenario, end);
  result.migrations = machine.scheduler().migrations();
  for (const auto& task : machine.tasks())
    result.tasks.push_back(
        {task->comm, task->tid, task->run_cycles(), task->loops_done(), task->wakeup_latency()});
  result.workload_kind = kinds_of(scenario);
  add_metrics(result, machine, scenario);
  std::uint64_t device_interrupts = 0;
  for (const auto& vcpu : machine.vcpus()) {
    const auto* devices = vcpu->index == 0 ? vcpu->source->devices() : nullptr;
    if (devices == nullptr) continue;
    for (const workloads::GuestDevice& device : *devices)
      device_interrupts += device.completed;
  }
  result.busy_reason = busy_reason(result, device_interrupts);
  result.failure = early_end(machine, scenario.run.duration_ns.has_value());
  return result;
}

}  // namespace

Simulation::Simulation(Scenario scenario) : scenario_(std::move(scenario)) {
  check_vcpus(scenario_);
}

Simulation::~Simulation() = default;

std::vector<std::pair<std::int32_t, std::string>> Simulation::threads() const {
  std::vector<std::pair<std::int32_t, std::string>> result;
  std::int32_t tid = Machine::first_tid;
  for (const VmConfig& vm : scenario_.vms) {
    for (unsigned vcpu = 0; vcpu < vm.vcpus; ++vcpu)
      result.emplace_back(tid++, fmt::format("CPU {}/KVM", vcpu));
  }
  for (const VmConfig& vm : scenario_.vms) {
    for (const DisableExitsChange& change : vm.disable_exits_changes) {
      if (change.vcpu) result.emplace_back(tid++, "vmm");
    }
  }
  for (const HostTaskConfig& task : scenario_.host.tasks) {
    for (unsigned i = 0; i < task.count; ++i)
      result.emplace_back(tid++, task.name);
  }
  return result;
}

RunResult Simulation::run() {
  TraceSources traces;
  GuestVms guests;
  std::vector<std::shared_ptr<workloads::SharedCounters>> memories(scenario_.vms.size());
  GuestHypervisors hypervisors;
  const SourceFactory workload = [&](const VmConfig& vm, unsigned vm_index,
                                     unsigned vcpu) -> std::unique_ptr<workloads::WorkloadSource> {
    if (!vm.trace.empty()) return traces.make(scenario_, vm_index, vcpu);
    if (!vm.tasks.empty() || workloads::is_guest_workload(vm.workload.kind))
      return guests.make(scenario_, vm_index, vcpu);
    auto& memory = memories[vm_index];
    if (memory == nullptr) memory = std::make_shared<workloads::SharedCounters>();
    return workloads::make_program(vm.workload, vcpu, vm.vcpus, memory);
  };
  const SourceFactory own = [&](const VmConfig& vm, unsigned vm_index, unsigned vcpu) {
    return hypervisors.wrap(scenario_, vm_index, vcpu, workload(vm, vm_index, vcpu));
  };
  const SimContext context;
  Scenario built = scenario_;
  if (!waveform_.empty()) built.run.run_ahead = false;  // waveforms see kernel time (design.md section 2)
  Machine machine("machine", built, factory_ ? factory_ : own, markers_ && !sinks_.empty());
  std::unique_ptr<Waveform> waveform;
  if (!waveform_.empty()) {
    waveform = std::make_unique<Waveform>(waveform_, machine, scenario_.host.tsc_hz);
    for (const auto& cpu : machine.cpus())
      cpu->set_wave_probe(*waveform);
  }
  for (EventSink* sink : sinks_)
    machine.events().add_sink(*sink);
  if (progress_) {
    machine.hypervisor().set_heartbeat([this, end = machine.end_cycles()](std::uint64_t local) {
      const double share = end == never_cycles ? -1.0 : static_cast<double>(local) / static_cast<double>(end);
      progress_(cycles_to_ns(local, scenario_.host.tsc_hz), std::min(share, 1.0));
    });
  }
  // Wall time is reported, never used.
  const auto begin = std::chrono::steady_clock::now();
  machine.start();
  // Every CPU finds the end of the run by its own clock, so that it is the same with run-ahead on and off.
  sc_core::sc_start();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  for (const auto& cpu : machine.cpus()) {
    if (cpu->failure()) std::rethrow_exception(cpu->failure());
  }
  machine.events().flush_all();
  if (waveform) waveform->close();
  RunResult result = collect(machine, scenario_);
  result.wall_time_s = wall.count();
  return result;
}

}  // namespace svmsim::model
