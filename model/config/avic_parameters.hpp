#pragma once

#include "model/config/parameters.hpp"

// AVIC's part of the declarations, for parameters.cpp.
namespace svmsim::model {

/// Whether kvm.avic is on where the scenario does not say (kvm-software.md 6.1): avic_want_avic_enabled of
/// arch/x86/kvm/svm/avic.c, which 6.1 and 6.12 do not have.
[[nodiscard]] bool avic_by_default(const HostConfig& host);

[[nodiscard]] Binding<KvmConfig> avic_binding();
[[nodiscard]] Binding<KvmConfig> enable_ipiv_binding();
[[nodiscard]] Binding<KvmConfig> pi_inject_timer_binding();
[[nodiscard]] Binding<KvmConfig> avic_x2apic_inhibit_binding();
[[nodiscard]] Binding<KvmConfig> nested_binding();
[[nodiscard]] Binding<VmDraft> pit_binding();
[[nodiscard]] Binding<VmDraft> apicv_inhibits_binding();

}  // namespace svmsim::model
