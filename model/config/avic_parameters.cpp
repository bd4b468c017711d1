#include "model/config/avic_parameters.hpp"

#include "model/config/bindings.hpp"
#include "svm/features.hpp"

namespace svmsim::model {

using namespace bindings;

namespace {

constexpr unsigned first_family_with_zen4 = 0x19;

}  // namespace

bool avic_by_default(const HostConfig& host) {
  return host.kernel >= workloads::KernelGeneration::v6_18 && host.features.has(svm::Feature::avic) &&
         host.features.has(svm::Feature::x2avic) && host.cpu_family >= first_family_with_zen4;
}

Binding<KvmConfig> avic_binding() {
  auto binding = declare<KvmConfig>("kvm.avic", ParameterType::boolean, "",
                                    "Use AVIC where the CPU has it, and x2AVIC for guests in x2APIC mode.",
                                    "arch/x86/kvm/svm/avic.c module parameter");
  binding.declaration.default_note =
      "false; with host.kernel 6.18 true on a CPU with x2avic, Zen 4 and later";
  binding.set = [](KvmConfig& kvm, const SettingValue& value) {
    kvm.avic = std::get<bool>(value);
    kvm.avic_given = true;
  };
  binding.get = [](const KvmConfig& kvm) { return SettingValue(kvm.avic); };
  return binding;
}

Binding<KvmConfig> enable_ipiv_binding() {
  return boolean<KvmConfig>(
      "kvm.enable_ipiv", &KvmConfig::enable_ipiv,
      "Let AVIC see which vCPUs run; false: every IPI exits but one to the sender itself. Kernel 6.18 makes "
      "it false on family 17h.",
      "arch/x86/kvm/svm/avic.c module parameter since 6.17; erratum 1235");
}

Binding<KvmConfig> avic_x2apic_inhibit_binding() {
  return boolean<KvmConfig>("kvm.avic_x2apic_inhibit", &KvmConfig::avic_x2apic_inhibit,
                            "The rule of 2021: no AVIC for a guest that may use x2APIC, or SVM.",
                            "kvm list, don't expose PV_SEND_IPI feature with AVIC, 8 Nov 2021");
}

Binding<KvmConfig> pi_inject_timer_binding() {
  auto binding = declare<KvmConfig>(
      "kvm.pi_inject_timer", ParameterType::boolean, "",
      "Deliver an expiry of the local APIC's timer to a vCPU in guest mode by vIRR and doorbell, without an "
      "exit: with AVIC, and HLT or MWAIT exits disabled.",
      "arch/x86/kvm/lapic.c; module parameter of kvm");
  binding.declaration.default_note = "true where host.nohz_full names a pCPU";
  binding.set = [](KvmConfig& kvm, const SettingValue& value) {
    kvm.pi_inject_timer = std::get<bool>(value);
    kvm.pi_inject_timer_given = true;
  };
  binding.get = [](const KvmConfig& kvm) { return SettingValue(kvm.pi_inject_timer); };
  return binding;
}

Binding<KvmConfig> nested_binding() {
  return boolean<KvmConfig>("kvm.nested", &KvmConfig::nested,
                            "Offer SVM to the guests, as vm.l1 needs it; it also counts for "
                            "avic_x2apic_inhibit.",
                            "arch/x86/kvm/svm/svm.c module parameter");
}

Binding<VmDraft> pit_binding() {
  auto binding = text<VmDraft>(
      "vm.pit", &VmDraft::pit,
      "The in-kernel PIT: none, with lost ticks injected later (which inhibits AVIC), or discarded.",
      "arch/x86/kvm/i8254.c; QEMU's lost_tick_policy");
  binding.declaration.type = ParameterType::choice;
  binding.declaration.choices = {"none", "delay", "discard"};
  return binding;
}

Binding<VmDraft> apicv_inhibits_binding() {
  auto binding = declare<VmDraft>(
      "vm.apicv_inhibits", ParameterType::choice_list, "",
      "Conditions that are not modelled otherwise and keep KVM from using AVIC all the time.",
      "arch/x86/include/asm/kvm_host.h, enum kvm_apicv_inhibit");
  binding.declaration.choices = {"hyperv", "blockirq", "nested", "sev"};
  binding.set = [](VmDraft& vm, const SettingValue& value) {
    vm.apicv_inhibits = std::get<std::vector<std::string>>(value);
  };
  binding.get = [](const VmDraft& vm) { return SettingValue(vm.apicv_inhibits); };
  return with_fallback(std::move(binding));
}

}  // namespace svmsim::model
