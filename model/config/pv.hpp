#pragma once

#include <cstdint>

namespace svmsim::model {

/// Bits of CPUID 40000001h EAX (arch/x86/include/uapi/asm/kvm_para.h; kvm-software.md 4.1).
namespace kvm_feature {
inline constexpr std::uint32_t steal_time = 1U << 5;
inline constexpr std::uint32_t pv_eoi = 1U << 6;
inline constexpr std::uint32_t pv_unhalt = 1U << 7;
inline constexpr std::uint32_t pv_send_ipi = 1U << 11;
inline constexpr std::uint32_t poll_control = 1U << 12;
inline constexpr std::uint32_t pv_sched_yield = 1U << 13;
}  // namespace kvm_feature

/// The APIC driver that the guest kernel chooses (arch/x86/kernel/apic/probe_64.c).
enum class GuestApicDriver : std::uint8_t {
  automatic,  ///< flat for up to 8 CPUs in xAPIC mode, else physical
  flat,
  physical,
  cluster,
};

/// What a VM offers its guest beyond hardware, and the boot parameters of the guest that go with it.
struct PvConfig {
  std::uint32_t features = kvm_feature::steal_time | kvm_feature::pv_eoi | kvm_feature::pv_unhalt |
                           kvm_feature::pv_send_ipi | kvm_feature::poll_control | kvm_feature::pv_sched_yield;
  bool hints_realtime = false;
  bool enforce_cpuid = false;
  bool no_ipi_broadcast = false;
  GuestApicDriver apic_driver = GuestApicDriver::automatic;
};

}  // namespace svmsim::model
