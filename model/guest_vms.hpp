#pragma once

#include <map>
#include <memory>

#include "model/config/scenario.hpp"
#include "workloads/guest/guest_platform.hpp"

namespace svmsim::model {

struct GuestKernelConfig;

/// The machine that a guest kernel finds in a VM: its APIC driver (arch/x86/kernel/apic/probe_64.c), KVM's
/// features, what its own code costs.
[[nodiscard]] workloads::GuestPlatform guest_platform(const Scenario& scenario, const VmConfig& vm);

/// Why the guest's APIC driver does not fit the VM, as problems at vm.NAME.apic_driver.
[[nodiscard]] std::vector<Problem> check_apic_driver(const VmConfig& vm);

/// The guest kernel of a VM with a task set.
[[nodiscard]] GuestKernelConfig guest_kernel_config(const Scenario& scenario, const VmConfig& vm);

/// The modelled guests of one run, each made when its first vCPU asks.
class GuestVms {
 public:
  [[nodiscard]] std::unique_ptr<workloads::WorkloadSource> make(const Scenario& scenario, unsigned vm_index,
                                                                unsigned vcpu);

 private:
  std::map<unsigned, std::shared_ptr<workloads::GuestVm>> vms_;
};

}  // namespace svmsim::model
