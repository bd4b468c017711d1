#pragma once

#include <cstdint>
#include <vector>

#include "model/stats/nested_stats.hpp"
#include "svm/permission_map.hpp"
#include "svm/vmcb.hpp"
#include "svm/vmrun_checks.hpp"
#include "workloads/nested_guest.hpp"

namespace svmsim::model {

/// svm_nested_state of a vCPU whose guest is a hypervisor (arch/x86/kvm/svm/svm.h). While L2 runs
/// (Vcpu::guest_mode), Vcpu::vmcb is vmcb02, and vmcb01 is kept here.
struct NestedState {
  explicit NestedState(workloads::NestedGuest& in_guest) : guest(in_guest) {}

  workloads::NestedGuest& guest;
  svm::FeatureSet features;  ///< that L1 is offered
  bool run_pending = false;  ///< nested_run_pending: VMRUN was emulated, the CPU has not entered L2 yet
  bool gif = true;           ///< L1's GIF where it is not in vmcb01 (no vGIF)
  svm::Vmcb* vmcb12 = nullptr;
  std::uint64_t vmcb12_gpa = 0;
  svm::VmcbControl ctl;  ///< vmcb12's control area, as cached at VMRUN and kept up to date
  svm::Vmcb vmcb01;
  svm::MsrPermissionMap msrpm02;
  svm::VmrunInputs legal_inputs = svm::VmrunInputs::of_none();  ///< of the last vmcb12 that passed
  std::vector<std::uint64_t> shadow_absent;  ///< pages of L2 that L0's shadow page tables lack
  std::uint64_t l2_compute_left = 0;         ///< of the compute action of L2 that an exit cut
  NestedStats stats;
};

}  // namespace svmsim::model
