#pragma once

#include <cstdint>

namespace svmsim::svm {

/// What VMRUN's consistency checks need to know of the processor and of the host besides CPUID Fn8000_000A.
/// The reserved masks are the ones that kvm-unit-tests uses; a newer processor has fewer reserved bits.
struct ProcessorLimits {
  unsigned physical_address_bits = 52;  ///< MAXPHYADDR, CPUID Fn8000_0008_EAX[7:0]; at most 52
  bool long_mode = true;                ///< CPUID Fn8000_0001_EDX[29]
  bool host_paging = true;              ///< CR0.PG of the host at VMRUN
  std::uint64_t efer_reserved = 0xffff'ffff'ffff'0200;
  std::uint64_t cr4_reserved = 0xffff'ffff'fe08'e000;
  bool sev = false;                      ///< CPUID Fn8000_001F_EAX[1]: the SEV bits of the VMCB exist
  bool secure_avic = false;              ///< CPUID Fn8000_001F_EAX[26]
  bool allowed_sev_features = false;     ///< CPUID Fn8000_001F_EAX[27]: VMCB 138h exists
  bool smm_lock = true;                  ///< HWCR.SmmLock, which SEV needs
  std::uint32_t max_encrypted_asid = 0;  ///< CPUID Fn8000_001F_ECX

  /// The first address that does not exist.
  [[nodiscard]] constexpr std::uint64_t physical_limit() const noexcept {
    return std::uint64_t{1} << physical_address_bits;
  }
};

}  // namespace svmsim::svm
