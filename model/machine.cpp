#include "model/machine.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "model/guest_vms.hpp"
#include "model/marking_source.hpp"
#include "model/units.hpp"

namespace svmsim::model {

namespace {

std::uint64_t end_of_run(const Scenario& scenario) {
  if (!scenario.run.duration_ns) return never_cycles;
  return ns_to_cycles(*scenario.run.duration_ns, scenario.host.tsc_hz);
}

// acpi_idle puts POLL before what the firmware declares.
std::vector<HostIdleState> idle_states(const HostConfig& host) {
  std::vector<HostIdleState> states;
  if (host.idle_governor != IdleGovernorKind::none) states.push_back({{0, 0, true}, 0});
  for (const CState& state : host.cstates)
    states.push_back(
        {{state.latency_ns, state.residency_ns, false}, ns_to_cycles(state.wake_ns, host.tsc_hz)});
  return states;
}

PhysicalCpu::Settings cpu_settings(const Scenario& scenario, unsigned index, std::uint64_t end_cycles,
                                   const unsigned* live_vcpus) {
  const HostConfig& host = scenario.host;
  PhysicalCpu::Settings settings;
  settings.index = index;
  settings.run_ahead = scenario.run.run_ahead;
  settings.tick_period_cycles = host.hz == 0 ? 0 : host.tsc_hz / host.hz;
  const std::uint32_t reaction =
      scenario.kvm.avic ? std::min(host.cost.t_ipi_hw, host.cost.u_doorbell) : host.cost.t_ipi_hw;
  settings.reaction_cycles = std::max<std::uint64_t>(reaction, 1);
  settings.end_cycles = end_cycles;
  settings.warmup_cycles = ns_to_cycles(scenario.run.warmup_ns, host.tsc_hz);
  if (host.knobs.host_mode_doorbell == apic::HostModeDoorbell::stalls)
    settings.doorbell_stall_cycles = host.cost.u_doorbell;
  for (const VmConfig& vm : scenario.vms)
    settings.bare =
        settings.bare || (vm.native && std::find(vm.pin.begin(), vm.pin.end(), index) != vm.pin.end());
  settings.tsc_hz = host.tsc_hz;
  settings.idle_governor = host.idle_governor;
  settings.idle_states = idle_states(host);
  settings.nohz_full = std::find(host.nohz_full.begin(), host.nohz_full.end(), index) != host.nohz_full.end();
  settings.live_vcpus = live_vcpus;
  if (host.threads_per_core == 2 && host.smt_factor < 100 && (index ^ 1U) < host.pcpus) {
    settings.sibling = index ^ 1U;
    settings.smt_factor = host.smt_factor;
  }
  return settings;
}

// The default tunables, scaled as sched_init_granularity does.
HostScheduler::Settings scheduler_settings(const HostConfig& host) {
  HostScheduler::Settings settings;
  settings.topology = {host.pcpus, std::min(host.llc_pcpus, host.pcpus), host.threads_per_core};
  settings.algorithm = host.sched;
  const std::uint64_t factor = SchedParameters::factor(host.pcpus);
  SchedParameters& parameters = settings.parameters;
  constexpr std::uint64_t ns_per_s = 1'000'000'000;
  if (host.hz != 0) parameters.tick_ns = ns_per_s / host.hz;
  parameters.base_slice_ns *= factor;
  parameters.latency_ns *= factor;
  parameters.min_granularity_ns *= factor;
  parameters.wakeup_granularity_ns *= factor;
  settings.tsc_hz = host.tsc_hz;
  settings.wakeup_cycles = host.cost.t_wakeup;
  settings.balance = host.balance;
  settings.nohz_full = host.nohz_full;
  return settings;
}

void set_scheduling(HostThread& thread, const ThreadScheduling& scheduling) {
  thread.policy = scheduling.sched;
  thread.nice = static_cast<int>(scheduling.nice);
  thread.weight = scheduling.sched == SchedPolicy::idle ? idle_policy_weight : weight_of_nice(thread.nice);
  thread.rt_priority = static_cast<std::uint8_t>(scheduling.rt_priority);
}

}  // namespace

Machine::Machine(const sc_core::sc_module_name& name, const Scenario& scenario,
                 const SourceFactory& make_source, bool markers)
    : sc_core::sc_module(name),
      events_(scenario.host.pcpus, scenario.host.tracepoints),
      end_cycles_(end_of_run(scenario)),
      fabric_("fabric", scenario.host.cost.t_ipi_hw, scenario.host.cost.u_doorbell),
      scheduler_("scheduler", scheduler_settings(scenario.host)),
      hypervisor_("hypervisor", scenario.host, scenario.kvm, events_) {
  scheduler_.fabric.bind(fabric_.entry);
  hypervisor_.fabric.bind(fabric_.entry);
  hypervisor_.scheduler.bind(scheduler_.entry);
  if (end_cycles_ == never_cycles) {
    hypervisor_.set_on_all_ended([this](std::uint64_t at) {
      for (const auto& cpu : cpus_)
        cpu->run_ended(at);
    });
  }
  hypervisor_.set_warmup(ns_to_cycles(scenario.run.warmup_ns, scenario.host.tsc_hz));
  for (unsigned i = 0; i < scenario.host.pcpus; ++i) {
    auto cpu = std::make_unique<PhysicalCpu>(
        fmt::format("cpu{}", i).c_str(), cpu_settings(scenario, i, end_cycles_, &hypervisor_.live_vcpus()),
        scenario.host.cost, events_);
    cpu->fabric.bind(fabric_.entry);
    cpu->scheduler.bind(scheduler_.entry);
    fabric_.cpus.bind(cpu->arrivals);
    cpus_.push_back(std::move(cpu));
  }
  const auto housekeeping = std::find_if(cpus_.begin(), cpus_.end(), [&](const auto& cpu) {
    const auto& isolated = scenario.host.nohz_full;
    return std::find(isolated.begin(), isolated.end(), cpu->index()) == isolated.end();
  });
  if (housekeeping != cpus_.end()) hypervisor_.set_timer_cpu(housekeeping->get());
  unsigned unpinned = 0;
  for (std::size_t v = 0; v < scenario.vms.size(); ++v) {
    const VmConfig& config = scenario.vms[v];
    auto vm = std::make_unique<Vm>();
    vm->name = config.name;
    vm->native = config.native;
    vm->halts_in_user_space = config.irqchip == "user";
    vm->index = static_cast<unsigned>(v);
    vm->pv = visible_pv(scenario.kvm, config);
    hypervisor_.create_vm(*vm, config);
    std::vector<std::uint32_t> ids(config.vcpus);
    std::iota(ids.begin(), ids.end(), 0U);
    vm->last_boosted_vcpu = config.vcpus - 1;
    vm->halt_poll_ns = config.halt_poll_ns;
    vm->disabled_exits = disabled_exits_of(config.disable_exits);
    vm->apics = apic::DestinationMap(std::move(ids));
    vm->arbiter =
        apic::Arbiter(config.vcpus, scenario.kvm.vector_hashing ? apic::ArbitrationPolicy::vector_hashing
                                                                : apic::ArbitrationPolicy::delivery_count);
    for (unsigned i = 0; i < config.vcpus; ++i) {
      auto vcpu = std::make_unique<Vcpu>(
          fmt::format("vm{}_vcpu{}", v, i).c_str(), *vm, i, scenario.host.features, scenario.host.knobs,
          kvm_apic_options(scenario, config.l1 != L1Style::none ? "x2apic" : config.apic, i),
          make_source(config, static_cast<unsigned>(v), i), hypervisor_);
      vcpu->tid = first_tid + static_cast<std::int32_t>(vcpus_.size());
      vcpu->comm = fmt::format("CPU {}/KVM", i);
      vcpu->cpu_index = config.pin.empty() ? unpinned++ % scenario.host.pcpus : config.pin[i];
      vcpu->movable = config.pin.empty();
      vcpu->allowed = config.pin.empty() ? affinity_of(config.affinity) : nullptr;
      if (vcpu->allowed != nullptr) vcpu->cpu_index = config.affinity[unpinned++ % config.affinity.size()];
      vcpu->pcpu = cpus_[vcpu->cpu_index].get();
      if (markers) vcpu->source = std::make_unique<MarkingSource>(std::move(vcpu->source), *vcpu, events_);
      if (auto* devices = vcpu->source->devices(); devices != nullptr && i == 0) {
        for (std::size_t d = 0; d < devices->size(); ++d) {
          // A stream for each device, whatever the others draw.
          const std::uint64_t seed = scenario.run.seed * 0x9e3779b97f4a7c15U + (v << 16) + d;
          vm->guest_devices.push_back(
              std::make_unique<GuestDeviceUnit>(hypervisor_, *vm, (*devices)[d], seed));
        }
      }
      set_scheduling(*vcpu, config);
      hypervisor_.create_vcpu(*vcpu);
      vm->vcpus.push_back(vcpu.get());
      vcpus_.push_back(std::move(vcpu));
    }
    for (const DeviceConfig& device : config.devices)
      vm->devices.push_back(std::make_unique<Device>(device, *vm, hypervisor_.device_interrupts()));
    add_exits_changes(config, *vm);
    vms_.push_back(std::move(vm));
  }
  for (const HostTaskConfig& config : scenario.host.tasks)
    add_tasks(config, scenario);
}

const CpuSet* Machine::affinity_of(const std::vector<unsigned>& cpus) {
  if (cpus.empty()) return nullptr;
  auto set = std::make_unique<CpuSet>(static_cast<unsigned>(cpus_.size()));
  for (const unsigned cpu : cpus)
    set->add(cpu);
  affinities_.push_back(std::move(set));
  return affinities_.back().get();
}

void Machine::add_exits_changes(const VmConfig& config, Vm& vm) {
  for (const DisableExitsChange& change : config.disable_exits_changes) {
    if (!change.vcpu) continue;  // accepted by older kernels, and without effect on vCPUs that exist
    auto thread = std::make_unique<ExitsChangeThread>(
        fmt::format("exits_change{}", exits_changes_.size()).c_str(), hypervisor_, *vm.vcpus[*change.vcpu],
        change, ns_to_cycles(change.at_ns, hypervisor_.host().tsc_hz));
    thread->scheduler.bind(scheduler_.entry);
    thread->tid = next_tid();
    thread->comm = "vmm";
    thread->cpu_index = vm.vcpus[*change.vcpu]->cpu_index;
    exits_changes_.push_back(std::move(thread));
  }
}

void Machine::add_tasks(const HostTaskConfig& config, const Scenario& scenario) {
  const std::uint64_t tsc_hz = scenario.host.tsc_hz;
  std::vector<HostTask::Phase> phases;
  for (const TaskPhase& phase : config.phases)
    phases.push_back({ns_to_cycles(phase.run_ns, tsc_hz), ns_to_cycles(phase.sleep_ns, tsc_hz),
                      ns_to_cycles(phase.period_ns, tsc_hz)});
  const CpuSet* allowed = affinity_of(config.cpus);
  for (unsigned i = 0; i < config.count; ++i) {
    auto task = std::make_unique<HostTask>(fmt::format("task{}", tasks_.size()).c_str(), phases, config.loops,
                                           ns_to_cycles(scenario.run.warmup_ns, tsc_hz));
    task->scheduler.bind(scheduler_.entry);
    task->tid = next_tid();
    task->comm = config.name;
    task->allowed = allowed;
    task->movable = config.cpus.size() != 1;
    task->cpu_index = config.cpus.empty() ? static_cast<unsigned>(tasks_.size() % cpus_.size())
                                          : config.cpus[i % config.cpus.size()];
    set_scheduling(*task, config);
    tasks_.push_back(std::move(task));
  }
}

std::int32_t Machine::next_tid() const {
  return first_tid + static_cast<std::int32_t>(vcpus_.size() + tasks_.size() + exits_changes_.size());
}

void Machine::start() {
  for (const auto& vcpu : vcpus_)
    scheduler_.wake(*vcpu, nullptr, 0);
  for (const auto& vm : vms_)
    for (const auto& device : vm->devices)
      hypervisor_.start_device(*device, *cpus_[device->config.pcpu]);
  for (const auto& thread : exits_changes_)
    scheduler_.wake(*thread, nullptr, 0);
  for (const auto& task : tasks_)
    scheduler_.wake(*task, nullptr, 0);
}

}  // namespace svmsim::model
