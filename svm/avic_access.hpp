#pragma once

#include <cstdint>

#include "svm/exit_code.hpp"

namespace svmsim::svm {

/// How a guest's access to its APIC under AVIC ended (APM vol. 2, 15.29.3.1, 15.29.9).
enum class AvicOutcome : std::uint8_t {
  done,                ///< retired without an exit
  general_protection,  ///< x2AVIC: #GP(0) in the guest; nothing has changed
  noaccel_fault,       ///< exit 402h, nothing has changed; rIP at the instruction
  noaccel_trap,        ///< exit 402h after the access; rIP after the instruction
  incomplete_ipi,      ///< exit 401h after the ICR was stored; rIP after the instruction
};

/// What AVIC answers to one access of the guest: to its APIC page, or to an x2APIC MSR.
struct AvicAccess {
  AvicOutcome outcome = AvicOutcome::done;
  bool nrip_is_next = false;      ///< nRIP of the exit is the next rIP, not 0 (fact sheet 12.8)
  std::int8_t v_tpr = -1;         ///< the new V_TPR of a TPR write, which GuestCpu takes over; else -1
  std::uint64_t value = 0;        ///< of a read
  std::uint64_t exit_info_1 = 0;  ///< of an exit
  std::uint64_t exit_info_2 = 0;

  [[nodiscard]] bool exits() const noexcept { return outcome >= AvicOutcome::noaccel_fault; }
  [[nodiscard]] std::uint64_t exit_code() const noexcept {
    return outcome == AvicOutcome::incomplete_ipi ? exit_code::avic_incomplete_ipi : exit_code::avic_noaccel;
  }
  /// Whether the access has retired: rIP, on an exit too, is the next one.
  [[nodiscard]] bool rip_after() const noexcept {
    return outcome == AvicOutcome::done || outcome >= AvicOutcome::noaccel_trap;
  }
};

}  // namespace svmsim::svm
