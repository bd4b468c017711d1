#pragma once

#include <cstdint>

namespace svmsim::workloads {

/// The words of guest memory through which KVM and the guest kernel talk, of one vCPU (kvm-software.md 4.3,
/// 4.4). The guest gives KVM their addresses by MSR; here they have a fixed place, and the MSRs say whether
/// KVM may use them.
struct PvMemory {
  bool eoi = false;  ///< KVM_PV_EOI_ENABLED: the guest may leave out the EOI of the vector in service

  bool preempted = false;      ///< kvm_steal_time::preempted, bit 0
  std::uint64_t steal_ns = 0;  ///< kvm_steal_time::steal
};

/// MSRs of arch/x86/include/uapi/asm/kvm_para.h.
namespace kvm_msr {
inline constexpr std::uint32_t steal_time = 0x4b564d03;
inline constexpr std::uint32_t pv_eoi_en = 0x4b564d04;
inline constexpr std::uint32_t poll_control = 0x4b564d05;
inline constexpr std::uint64_t enabled = 1;
}  // namespace kvm_msr

}  // namespace svmsim::workloads
