#include "model/machine.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "model/units.hpp"

namespace svmsim::model {

namespace {

std::uint64_t end_of_run(const Scenario& scenario) {
  if (!scenario.run.duration_ns) return never_cycles;
  return ns_to_cycles(*scenario.run.duration_ns, scenario.host.tsc_hz);
}

PhysicalCpu::Settings cpu_settings(const Scenario& scenario, unsigned index, std::uint64_t end_cycles) {
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
  // The shallowest state of the list until the governors are modelled.
  settings.idle_wake_cycles =
      host.cstates.empty() ? 0 : ns_to_cycles(host.cstates.front().wake_ns, host.tsc_hz);
  return settings;
}

// A local APIC as KVM emulates it (arch/x86/kvm/lapic.c): version 14h with six LVT entries, a 1 GHz bus, no
// error reporting, ExtINT through LINT0 of the first vCPU (KVM_X86_QUIRK_LINT0_REENABLED).
apic::LocalApicOptions kvm_apic_options(const Scenario& scenario, const VmConfig& vm, unsigned index) {
  constexpr std::uint64_t bus_khz = 1'000'000;
  constexpr std::uint64_t min_timer_period_us = 200;
  apic::LocalApicOptions options;
  options.version = 0x00050014;
  options.bootstrap = index == 0;
  options.initial_mode = vm.apic == "xapic" ? apic::ApicMode::xapic : apic::ApicMode::x2apic;
  options.reports_errors = false;
  options.lint0_ext_int_after_reset = true;
  options.timer_by_owner = true;
  options.timer_clock = {scenario.host.tsc_hz / 1000, bus_khz};
  options.minimum_timer_period_cycles = ns_to_cycles(min_timer_period_us * 1000, scenario.host.tsc_hz);
  return options;
}

}  // namespace

Machine::Machine(const sc_core::sc_module_name& name, const Scenario& scenario,
                 const SourceFactory& make_source)
    : sc_core::sc_module(name),
      events_(scenario.host.pcpus, scenario.host.tracepoints),
      end_cycles_(end_of_run(scenario)),
      fabric_("fabric", scenario.host.cost.t_ipi_hw, scenario.host.cost.u_doorbell),
      scheduler_("scheduler", scenario.host.pcpus, scenario.host.cost.t_wakeup),
      hypervisor_("hypervisor", scenario.host, scenario.kvm, events_) {
  scheduler_.fabric.bind(fabric_.entry);
  hypervisor_.fabric.bind(fabric_.entry);
  hypervisor_.scheduler.bind(scheduler_.entry);
  hypervisor_.set_warmup(ns_to_cycles(scenario.run.warmup_ns, scenario.host.tsc_hz));
  for (unsigned i = 0; i < scenario.host.pcpus; ++i) {
    auto cpu = std::make_unique<PhysicalCpu>(
        fmt::format("cpu{}", i).c_str(), cpu_settings(scenario, i, end_cycles_), scenario.host.cost, events_);
    cpu->fabric.bind(fabric_.entry);
    cpu->scheduler.bind(scheduler_.entry);
    fabric_.cpus.bind(cpu->arrivals);
    cpus_.push_back(std::move(cpu));
  }
  unsigned unpinned = 0;
  for (std::size_t v = 0; v < scenario.vms.size(); ++v) {
    const VmConfig& config = scenario.vms[v];
    auto vm = std::make_unique<Vm>();
    vm->name = config.name;
    vm->native = config.native;
    vm->index = static_cast<unsigned>(v);
    vm->pv = visible_pv(scenario.kvm, config);
    hypervisor_.create_vm(*vm, config);
    std::vector<std::uint32_t> ids(config.vcpus);
    std::iota(ids.begin(), ids.end(), 0U);
    vm->apics = apic::DestinationMap(std::move(ids));
    vm->arbiter =
        apic::Arbiter(config.vcpus, scenario.kvm.vector_hashing ? apic::ArbitrationPolicy::vector_hashing
                                                                : apic::ArbitrationPolicy::delivery_count);
    for (unsigned i = 0; i < config.vcpus; ++i) {
      auto vcpu =
          std::make_unique<Vcpu>(fmt::format("vm{}_vcpu{}", v, i).c_str(), *vm, i, scenario.host.features,
                                 scenario.host.knobs, kvm_apic_options(scenario, config, i),
                                 make_source(config, static_cast<unsigned>(v), i), hypervisor_);
      vcpu->tid = first_tid + static_cast<std::int32_t>(vcpus_.size());
      vcpu->comm = fmt::format("CPU {}/KVM", i);
      vcpu->cpu_index = config.pin.empty() ? unpinned++ % scenario.host.pcpus : config.pin[i];
      vcpu->pcpu = cpus_[vcpu->cpu_index].get();
      if (auto* devices = vcpu->source->devices(); devices != nullptr && i == 0) {
        for (std::size_t d = 0; d < devices->size(); ++d) {
          // A stream for each device, whatever the others draw.
          const std::uint64_t seed = scenario.run.seed * 0x9e3779b97f4a7c15U + (v << 16) + d;
          vm->guest_devices.push_back(
              std::make_unique<GuestDeviceUnit>(hypervisor_, *vm, (*devices)[d], seed));
        }
      }
      hypervisor_.create_vcpu(*vcpu);
      vm->vcpus.push_back(vcpu.get());
      vcpus_.push_back(std::move(vcpu));
    }
    for (const DeviceConfig& device : config.devices)
      vm->devices.push_back(std::make_unique<Device>(device, *vm, hypervisor_.device_interrupts()));
    vms_.push_back(std::move(vm));
  }
}

void Machine::start() {
  for (const auto& vcpu : vcpus_)
    scheduler_.wake(*vcpu, nullptr, 0);
  for (const auto& vm : vms_)
    for (const auto& device : vm->devices)
      hypervisor_.start_device(*device, *cpus_[device->config.pcpu]);
}

}  // namespace svmsim::model
