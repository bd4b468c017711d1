#pragma once

#include <cstdint>

namespace svmsim::apic {

/// What a doorbell does to a core that is not in guest mode (fact sheet 12.4). No effect is needed for
/// correctness, since VMRUN evaluates the backing page.
enum class HostModeDoorbell : std::uint8_t {
  dropped,  ///< no effect and no cost
  stalls,   ///< no effect, but whoever owns time charges the core a small stall
  pending,  ///< kept, and evaluated right after the next VMRUN
};

/// Which of several targets that are not running the index of exit 401h id 1 names (12.19).
enum class NotRunningIndex : std::uint8_t { lowest, highest };

/// The points about AVIC that the manual leaves open, with the defaults of fact sheet section 12, and the
/// faults of real processors that can be switched on. A difference between two settings is "undefined by
/// the manual", never a bug. Three rows of the sheet have one reading only and no member here: PPR is
/// computed from the backing page's TPR even where V_TPR differs at VMRUN (12.13; AvicEntry::tpr_mismatch
/// warns), hardware keeps virtualizing after the guest has disabled its APIC (12.15), and V_IRQ, hence the
/// VINTR intercept, is ignored (12.16).
struct AvicKnobs {
  bool doorbell_wakes_halted_guest = true;                          ///< 12.3
  HostModeDoorbell host_mode_doorbell = HostModeDoorbell::dropped;  ///< 12.4
  bool snoops_irr_writes = false;                                   ///< 12.5: no evaluation point needed
  bool level_eoi_clears_isr = true;                                 ///< 12.7: before exit 402h
  bool nrip_is_next = false;                                        ///< 12.8: nRIP of 401h, 402h; else 0
  std::uint8_t non_fixed_exit_id = 0;                               ///< 12.9: of exit 401h
  bool x2avic_broadcast = true;                                     ///< 12.12: FFFF_FFFFh is everybody
  bool x2avic_entry_255_reserved = false;                           ///< 12.12
  bool x2apic_checks_before_table = true;                           ///< 12.14: #GP, not 402h, on RO MSRs
  NotRunningIndex not_running_index = NotRunningIndex::lowest;      ///< 12.19
  bool broadcast_with_illegal_page_delivers = false;                ///< 12.20: id 3, other IRRs set

  /// Width of the host APIC ID that the doorbell MSR takes; APM figure 15-22 draws 8 bits, Linux writes up
  /// to 12 (8.6). Bits above raise #GP(0).
  std::uint8_t doorbell_id_bits = 12;
  /// An exit 401h for a message type that hardware does not send leaves the delivery status bit (12) of the
  /// ICR set, as KVM has seen on real parts (8.4).
  bool leaves_icr_busy = false;
  /// Erratum 1235 (family 17h): a sender may miss that IsRunning was cleared (8.7; stale_is_running.hpp).
  bool isrunning_stale_read = false;
};

}  // namespace svmsim::apic
