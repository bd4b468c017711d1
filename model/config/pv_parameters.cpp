// The declarations of what a VM offers its guest beyond hardware (kvm-software.md 4).

#include "model/config/bindings.hpp"
#include "model/config/parameters.hpp"
#include "model/config/pv.hpp"

namespace svmsim::model {

namespace {

struct FeatureName {
  const char* name;
  std::uint32_t bit;
};

constexpr FeatureName feature_names[] = {
    {"eoi", kvm_feature::pv_eoi},
    {"send_ipi", kvm_feature::pv_send_ipi},
    {"unhalt", kvm_feature::pv_unhalt},
    {"poll_control", kvm_feature::poll_control},
    {"sched_yield", kvm_feature::pv_sched_yield},
    {"steal_time", kvm_feature::steal_time},
};

Binding<VmDraft> pv_binding() {
  auto binding = bindings::declare<VmDraft>(
      "vm.pv", ParameterType::choice_list, "",
      "Paravirtual features of CPUID 40000001h that user space leaves to the guest; [] = none.",
      "KVM advertises them all, and QEMU passes them on (arch/x86/kvm/cpuid.c)");
  for (const FeatureName& feature : feature_names)
    binding.declaration.choices.emplace_back(feature.name);
  binding.declaration.later = {"tlb_flush"};
  binding.set = [](VmDraft& vm, const SettingValue& value) {
    vm.pv.features = 0;
    for (const std::string& name : std::get<std::vector<std::string>>(value)) {
      for (const FeatureName& feature : feature_names) {
        if (name == feature.name) vm.pv.features |= feature.bit;
      }
    }
  };
  binding.get = [](const VmDraft& vm) {
    std::vector<std::string> names;
    for (const FeatureName& feature : feature_names) {
      if ((vm.pv.features & feature.bit) != 0) names.emplace_back(feature.name);
    }
    return SettingValue(names);
  };
  return bindings::with_fallback(std::move(binding));
}

/// A field of VmDraft::pv behind a binding of its own struct.
Binding<VmDraft> in_vm(const Binding<PvConfig>& inner) {
  Binding<VmDraft> binding;
  binding.declaration = inner.declaration;
  binding.set = [set = inner.set](VmDraft& vm, const SettingValue& value) { set(vm.pv, value); };
  binding.get = [get = inner.get](const VmDraft& vm) { return get(vm.pv); };
  return binding;
}

}  // namespace

std::vector<Binding<VmDraft>> pv_parameters() {
  using bindings::boolean;
  return {
      pv_binding(),
      in_vm(boolean<PvConfig>("vm.hints_realtime", &PvConfig::hints_realtime,
                              "KVM_HINTS_REALTIME: the guest believes that its vCPUs are never preempted.",
                              "CPUID 40000001h EDX bit 0")),
      in_vm(boolean<PvConfig>(
          "vm.pv_enforce_cpuid", &PvConfig::enforce_cpuid,
          "Refuse hypercalls and MSRs of features that vm.pv leaves out; otherwise KVM serves them anyway.",
          "KVM_CAP_ENFORCE_PV_FEATURE_CPUID; QEMU's kvm-pv-enforce-cpuid is off")),
      in_vm(boolean<PvConfig>("vm.no_ipi_broadcast", &PvConfig::no_ipi_broadcast,
                              "Boot parameter of the guest: no IPIs by shorthand.",
                              "arch/x86/kernel/apic/ipi.c")),
      in_vm(
          bindings::choice<PvConfig>("vm.apic_driver", &PvConfig::apic_driver,
                                     {{"auto", GuestApicDriver::automatic},
                                      {"flat", GuestApicDriver::flat},
                                      {"physical", GuestApicDriver::physical},
                                      {"cluster", GuestApicDriver::cluster}},
                                     "APIC driver of a modelled guest kernel: auto is flat for xAPIC and up "
                                     "to 8 vCPUs, else physical.",
                                     "arch/x86/kernel/apic/probe_64.c; x2APIC is physical without "
                                     "interrupt remapping")),
  };
}

}  // namespace svmsim::model
