#pragma once

#include <cstdint>

namespace svmsim::svm {

/// What counts as a pending virtual interrupt for the idle-HLT intercept (fact sheet 4.2; the manual is
/// silent on masking).
enum class IdleHltPending : std::uint8_t {
  raw,          ///< V_IRQ, any AVIC IRR bit or V_NMI, without any masking: the literal text
  priority,     ///< V_IRQ above V_TPR (or V_IGN_TPR), IRR class above PPR class, V_NMI not masked
  deliverable,  ///< as priority, and the INTR part also needs RFLAGS.IF and VGIF, the NMI part VGIF
};

/// Points that the manual leaves open; each is a named option with a documented default (fact sheet section
/// 12). A difference between two settings is never a bug: it is "undefined by the manual".
struct Knobs {
  IdleHltPending idle_hlt_pending = IdleHltPending::priority;  ///< 12.1
  bool idle_hlt_counts_avic_irr = true;                        ///< 12.2
  bool shadow_delays_intr_exit = false;                        ///< 12.6: KVM's model no, Bochs' yes
  bool msrpm_at_limit_is_invalid = false;                      ///< 12.10: the manual's text no, QEMU's yes
  bool avic_without_np_is_invalid = false;                     ///< 12.11
  bool host_if_clear_masks_intr_exit = true;                   ///< 12.17
  bool pause_gap_at_threshold_reloads = false;                 ///< 12.18: gap == threshold reloads the count
};

}  // namespace svmsim::svm
