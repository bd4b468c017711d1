#pragma once

#include <map>
#include <memory>

#include "apic/local_apic_types.hpp"
#include "model/config/scenario.hpp"
#include "workloads/guest/guest_platform.hpp"

namespace svmsim::model {

struct GuestKernelConfig;
struct GuestHypervisorConfig;
struct GuestHypervisorVm;

/// The machine that a guest kernel finds in a VM: its APIC driver (arch/x86/kernel/apic/probe_64.c), KVM's
/// features, what its own code costs.
[[nodiscard]] workloads::GuestPlatform guest_platform(const Scenario& scenario, const VmConfig& vm);

/// Why the guest's APIC driver does not fit the VM, as problems at vm.NAME.apic_driver.
[[nodiscard]] std::vector<Problem> check_apic_driver(const VmConfig& vm);

/// The guest kernel of a VM with a task set.
[[nodiscard]] GuestKernelConfig guest_kernel_config(const Scenario& scenario, const VmConfig& vm);

/// The local APIC as KVM emulates it: L0's for its guest, and L1's for L2. `mode`: as vm.apic.
[[nodiscard]] apic::LocalApicOptions kvm_apic_options(const Scenario& scenario, const std::string& mode,
                                                      unsigned index);

/// The CPUID Fn8000_000A features that KVM offers its guests (svm_set_cpu_caps): not AVIC, and not what it
/// does not virtualize.
[[nodiscard]] svm::FeatureSet nested_features(const HostConfig& host, const KvmConfig& kvm);

[[nodiscard]] GuestHypervisorConfig guest_hypervisor_config(const Scenario& scenario, const VmConfig& vm);

/// Why vm.l1 does not fit the scenario.
[[nodiscard]] std::vector<Problem> check_l1(const Scenario& scenario, const VmConfig& vm);

/// The guest hypervisors of one run (vm.l1).
class GuestHypervisors {
 public:
  /// The source of L1's vCPU that runs `l2`; `l2` itself where the VM is no hypervisor.
  [[nodiscard]] std::unique_ptr<workloads::WorkloadSource> wrap(
      const Scenario& scenario, unsigned vm_index, unsigned vcpu,
      std::unique_ptr<workloads::WorkloadSource> l2);

 private:
  std::map<unsigned, std::shared_ptr<GuestHypervisorVm>> vms_;
};

/// The modelled guests of one run, each made when its first vCPU asks.
class GuestVms {
 public:
  [[nodiscard]] std::unique_ptr<workloads::WorkloadSource> make(const Scenario& scenario, unsigned vm_index,
                                                                unsigned vcpu);

 private:
  std::map<unsigned, std::shared_ptr<workloads::GuestVm>> vms_;
};

}  // namespace svmsim::model
