#pragma once

#include <cstdint>

#include "model/config/pv.hpp"

namespace svmsim::model {

/// What KVM's CPUID handler returns to the guest.
struct EmulatedCpuid {
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
  bool found = false;  ///< whether user space gave KVM an entry for the leaf
};

/// The CPUID of a guest with x2APIC and KVM's signature leaf. Only leaves that a modelled guest can depend on
/// have values; all others read zero and count as not found.
[[nodiscard]] constexpr EmulatedCpuid emulated_cpuid(std::uint32_t leaf, std::uint32_t subleaf,
                                                     std::uint32_t apic_id, const PvConfig& pv) noexcept {
  switch (leaf) {
    case 0x0:  // largest leaf, "AuthenticAMD"
      return {0x0d, 0x68747541, 0x444d4163, 0x69746e65, true};
    case 0x1:  // EBX[31:24] APIC ID; ECX[21] x2APIC, ECX[31] hypervisor; EDX[9] APIC
      return {0, apic_id << 24, 1U << 21 | 1U << 31, 1U << 9, true};
    case 0xb:
      return {0, subleaf == 0 ? 1U : 0U, subleaf, apic_id, subleaf < 2};
    case 0x40000000:  // "KVMKVMKVM"
      return {0x40000001, 0x4b4d564b, 0x564b4d56, 0x4d, true};
    case 0x40000001:
      return {pv.features, 0, 0, pv.hints_realtime ? 1U : 0U, true};
    default:
      return {};
  }
}

}  // namespace svmsim::model
