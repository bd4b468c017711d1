#pragma once

#include <cstdint>

#include "svm/knobs.hpp"

namespace svmsim::svm {

/// What the idle-HLT intercept looks at when a HLT retires.
struct IdleHltInputs {
  std::uint32_t int_ctl = 0;  ///< of the running guest: V_IRQ, V_TPR, V_NMI and VGIF as they are now
  std::uint64_t rflags = 0;
  int avic_highest_irr =
      -1;  ///< vector of the highest IRR bit in the backing page, -1 for none or without AVIC
  std::uint8_t avic_ppr = 0;  ///< PPR of the backing page
};

/// Whether a virtual interrupt is pending for the idle-HLT intercept (APM vol. 2, table 15-7: "V_INTR or
/// V_NMI"). The manual does not say what masks a pending interrupt; Knobs::idle_hlt_pending does (fact
/// sheet 4.2). The interrupt shadow never masks: the sequence STI; HLT must not exit. AVIC takes V_IRQ's
/// place where it is enabled.
[[nodiscard]] bool virtual_interrupt_pending(const IdleHltInputs& inputs, const Knobs& knobs) noexcept;

}  // namespace svmsim::svm
