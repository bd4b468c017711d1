#include "model/guest_vms.hpp"

#include <fmt/format.h>

#include "model/guest/guest_hypervisor.hpp"
#include "model/guest/guest_kernel.hpp"
#include "model/units.hpp"
#include "svm/user_error.hpp"

namespace svmsim::model {

namespace {

using workloads::ApicDriverKind;

constexpr unsigned flat_cpus = 8;

bool is_x2apic(const VmConfig& vm) {
  return vm.apic == "x2apic";
}

ApicDriverKind driver_kind(const VmConfig& vm) {
  switch (vm.pv.apic_driver) {
    case GuestApicDriver::flat:
      return ApicDriverKind::xapic_flat;
    case GuestApicDriver::cluster:
      return ApicDriverKind::x2apic_cluster;
    case GuestApicDriver::physical:
      return is_x2apic(vm) ? ApicDriverKind::x2apic_physical : ApicDriverKind::xapic_physical;
    case GuestApicDriver::automatic:
      break;
  }
  if (is_x2apic(vm)) return ApicDriverKind::x2apic_physical;
  return vm.vcpus <= flat_cpus ? ApicDriverKind::xapic_flat : ApicDriverKind::xapic_physical;
}

}  // namespace

std::vector<Problem> check_apic_driver(const VmConfig& vm) {
  const std::string path = "vm." + vm.name + ".apic_driver";
  if (vm.pv.apic_driver == GuestApicDriver::flat) {
    if (is_x2apic(vm)) return {{"", 0, path, "flat needs apic = \"xapic\"", "physical"}};
    if (vm.vcpus > flat_cpus) {
      return {{"", 0, path, fmt::format("flat has at most {} vCPUs, the VM has {}", flat_cpus, vm.vcpus),
               "physical"}};
    }
  }
  if (vm.pv.apic_driver == GuestApicDriver::cluster && !is_x2apic(vm))
    return {{"", 0, path, "cluster needs apic = \"x2apic\"", "physical"}};
  return {};
}

workloads::GuestPlatform guest_platform(const Scenario& scenario, const VmConfig& vm) {
  const PvConfig pv = visible_pv(scenario.kvm, vm);
  const Costs& cost = scenario.host.cost;
  workloads::GuestPlatform platform;
  platform.apic.kind = driver_kind(vm);
  platform.apic.cpus = vm.vcpus;
  platform.apic.pv_send_ipi = (pv.features & kvm_feature::pv_send_ipi) != 0;
  platform.apic.no_ipi_broadcast = pv.no_ipi_broadcast;
  platform.pv_eoi = (pv.features & kvm_feature::pv_eoi) != 0;
  platform.steal_time = (pv.features & kvm_feature::steal_time) != 0;
  // pv_sched_yield_supported; MWAIT is not offered to guests.
  platform.pv_sched_yield = (pv.features & kvm_feature::pv_sched_yield) != 0 && !pv.hints_realtime &&
                            platform.steal_time && vm.vcpus > 1;
  platform.tsc_hz = scenario.host.tsc_hz;
  platform.costs = {cost.g_call, cost.g_call_target, cost.g_call_handler, cost.g_spin_turn, cost.t_line};
  return platform;
}

// A local APIC as KVM emulates it (arch/x86/kvm/lapic.c): version 14h with six LVT entries, a 1 GHz bus, no
// error reporting, ExtINT through LINT0 of the first vCPU (KVM_X86_QUIRK_LINT0_REENABLED).
apic::LocalApicOptions kvm_apic_options(const Scenario& scenario, const std::string& mode, unsigned index) {
  constexpr std::uint64_t bus_khz = 1'000'000;
  constexpr std::uint64_t min_timer_period_us = 200;
  apic::LocalApicOptions options;
  options.version = 0x00050014;
  options.bootstrap = index == 0;
  options.initial_mode = mode == "xapic" ? apic::ApicMode::xapic : apic::ApicMode::x2apic;
  options.reports_errors = false;
  options.lint0_ext_int_after_reset = true;
  options.timer_by_owner = true;
  options.timer_clock = {scenario.host.tsc_hz / 1000, bus_khz};
  options.minimum_timer_period_cycles = ns_to_cycles(min_timer_period_us * 1000, scenario.host.tsc_hz);
  return options;
}

GuestHypervisorConfig guest_hypervisor_config(const Scenario& scenario, const VmConfig& vm) {
  GuestHypervisorConfig config;
  config.style = vm.l1;
  config.kernel = scenario.host.kernel;
  config.cost = scenario.host.cost;
  config.halt_poll = {vm.l1_halt_poll_ns, scenario.kvm.halt_poll_ns_grow,
                      scenario.kvm.halt_poll_ns_grow_start, scenario.kvm.halt_poll_ns_shrink};
  config.tsc_hz = scenario.host.tsc_hz;
  config.features = nested_features(scenario.host, scenario.kvm);
  config.vcpus = vm.vcpus;
  return config;
}

svm::FeatureSet nested_features(const HostConfig& host, const KvmConfig& kvm) {
  svm::FeatureSet features = host.features;
  for (const svm::Feature feature : {svm::Feature::avic, svm::Feature::x2avic, svm::Feature::x2avic_ext,
                                     svm::Feature::bus_lock_threshold, svm::Feature::gmet})
    features.set(feature, false);
  features.set(svm::Feature::vnmi,
               kvm.vnmi && host.features.has(svm::Feature::vnmi) && host.features.has(svm::Feature::vgif));
  features.set(svm::Feature::idle_hlt, kvm.nested_idle_hlt != NestedIdleHlt::none);
  return features;
}

std::vector<Problem> check_l1(const Scenario& scenario, const VmConfig& vm) {
  if (vm.l1 == L1Style::none) return {};
  const std::string path = "vm." + vm.name + ".l1";
  std::vector<Problem> problems;
  if (!scenario.kvm.nested) problems.push_back({"", 0, path, "needs kvm.nested = true", ""});
  if (vm.native) problems.push_back({"", 0, path, "excludes native", ""});
  if (!vm.trace.empty())
    problems.push_back({"", 0, path, "needs a program or a task set; a trace has no L2 of its own", ""});
  if (scenario.kvm.nested_idle_hlt == NestedIdleHlt::expose &&
      !scenario.host.features.has(svm::Feature::idle_hlt)) {
    problems.push_back({"", 0, "kvm.nested_idle_hlt",
                        "expose needs a CPU with idle_hlt (host.features = [\"+idle_hlt\"])", "emulate"});
  }
  return problems;
}

std::unique_ptr<workloads::WorkloadSource> GuestHypervisors::wrap(
    const Scenario& scenario, unsigned vm_index, unsigned vcpu,
    std::unique_ptr<workloads::WorkloadSource> l2) {
  const VmConfig& vm = scenario.vms[vm_index];
  if (vm.l1 == L1Style::none) return l2;
  auto& shared = vms_[vm_index];
  if (shared == nullptr) shared = std::make_shared<GuestHypervisorVm>(guest_hypervisor_config(scenario, vm));
  return std::make_unique<GuestHypervisor>(shared, vcpu, kvm_apic_options(scenario, vm.apic, vcpu),
                                           std::move(l2));
}

GuestKernelConfig guest_kernel_config(const Scenario& scenario, const VmConfig& vm) {
  const Costs& cost = scenario.host.cost;
  GuestKernelConfig config;
  config.platform = guest_platform(scenario, vm);
  config.costs = {cost.g_irq,  cost.g_timer, cost.g_schedule, cost.g_syscall,
                  cost.g_wake, cost.g_idle,  cost.g_idle_exit};
  config.os = vm.guest;
  if (vm.native) config.platform.pv_eoi = config.platform.apic.pv_send_ipi = false;
  config.poll_control =
      !vm.native && (visible_pv(scenario.kvm, vm).features & kvm_feature::poll_control) != 0;
  return config;
}

std::unique_ptr<workloads::WorkloadSource> GuestVms::make(const Scenario& scenario, unsigned vm_index,
                                                          unsigned vcpu) {
  auto& vm = vms_[vm_index];
  if (vm == nullptr) {
    const VmConfig& config = scenario.vms[vm_index];
    if (config.tasks.empty()) {
      vm = workloads::make_guest_vm(config.workload, guest_platform(scenario, config));
    } else {
      vm = std::make_shared<GuestKernel>(guest_kernel_config(scenario, config),
                                         workloads::TaskSet::load(config.tasks));
    }
  }
  return vm->source(vcpu);
}

}  // namespace svmsim::model
