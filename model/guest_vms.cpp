#include "model/guest_vms.hpp"

#include <fmt/format.h>

#include "model/guest/guest_kernel.hpp"
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
