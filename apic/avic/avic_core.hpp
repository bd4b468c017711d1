#pragma once

#include <cstdint>

#include "apic/avic/backing_page.hpp"
#include "apic/avic/id_tables.hpp"
#include "apic/avic/ipi.hpp"
#include "apic/avic/memory.hpp"
#include "apic/avic/register_access.hpp"
#include "svm/avic_access.hpp"
#include "svm/exit_code.hpp"
#include "svm/vmcb.hpp"

namespace svmsim::apic {

/// AVIC's answers are what GuestCpu takes.
using AvicOutcome = svm::AvicOutcome;
using AvicResult = svm::AvicAccess;

/// Fields of exit 402h (APM vol. 2, 15.29.9.2).
namespace noaccel_info {
inline constexpr std::uint64_t write = std::uint64_t{1} << 32;
inline constexpr std::uint64_t offset_mask = 0xff0;
inline constexpr std::uint64_t vector_mask = 0xff;  ///< EXITINFO2 of an EOI write
}  // namespace noaccel_info

/// What a doorbell did to the core that received it.
enum class DoorbellEffect : std::uint8_t {
  evaluated,  ///< in guest mode: the backing page was evaluated; see AvicCore::pending()
  latched,    ///< during VMRUN, or kept by a knob: evaluated when the entry is complete
  dropped,    ///< host mode, or a guest without AVIC
  stalled,    ///< as dropped, but the core loses time (knob 12.4)
  ignored,    ///< the guest is halted and doorbells do not wake it (knob 12.3)
};

/// What VMRUN found.
struct AvicEntry {
  bool enabled = false;       ///< the VMCB enables AVIC
  bool tpr_mismatch = false;  ///< V_TPR and the backing page's TPR[7:4] differ: worth a warning (12.13)
};

/// AVIC in one core while it runs one guest: guest accesses to APIC registers, IPIs, doorbells and the
/// recognition of interrupts in the backing page. Fact sheet 8.2 to 8.6; APM vol. 2, 15.29. It knows neither
/// time nor who runs where: doorbells go to a sink, and what the guest may take (RFLAGS.IF, VGIF, shadow) is
/// GuestCpu's to judge. One beside each GuestCpu, or one for each core; it keeps no state between VMRUNs but
/// a doorbell that a knob made pending.
///
/// Before an access comes here GuestCpu has checked CPL, the MSR permission map (exit 7Ch) or, for xAVIC,
/// that the page is within APIC_BAR and the nested page tables allow the access.
///
/// Left out: Secure AVIC; accesses to the APIC page that are not 32 bits wide.
class AvicCore {
 public:
  /// `registers` must outlive the core.
  explicit AvicCore(const AvicRegisters& registers) noexcept : registers_(&registers) {}

  /// VMRUN loads the AVIC fields of the VMCB and evaluates the backing page. Throws InternalError when a
  /// pointer leads to no page of `memory`, which must live until vmexit().
  AvicEntry vmrun(const svm::VmcbControl& control, AvicMemory& memory);
  /// VMRUN is complete: a doorbell that arrived meanwhile is evaluated.
  void entered() noexcept;
  void vmexit() noexcept;

  /// In guest mode (or entering it) with AVIC enabled; nearly everything below needs it.
  [[nodiscard]] bool active() const noexcept { return context_.own != nullptr && phase_ != Phase::host; }
  [[nodiscard]] bool x2avic() const noexcept { return context_.x2avic; }

  /// xAVIC: a 32-bit access to the APIC page; `offset` is within the page.
  [[nodiscard]] AvicResult read_page(std::uint32_t offset) const noexcept;
  template <typename Sink>
  AvicResult write_page(std::uint32_t offset, std::uint32_t value, Sink& sink) noexcept {
    return write(registers_->page(offset).write, offset, value, sink);
  }

  /// x2AVIC: RDMSR and WRMSR of 800h-8FFh.
  [[nodiscard]] AvicResult read_msr(std::uint32_t msr) const noexcept;
  template <typename Sink>
  AvicResult write_msr(std::uint32_t msr, std::uint64_t value, Sink& sink) noexcept {
    const AvicRegisters::Slot& slot = registers_->msr(msr);
    if (slot.write == AvicAction::interrupt_command) {
      if ((value & x2apic_icr_reserved) != 0) return {AvicOutcome::general_protection};
      context_.own->write(APIC_ICR2, static_cast<std::uint32_t>(value >> 32));
    } else if (slot.write == AvicAction::general_protection || (value & ~std::uint64_t{slot.writable}) != 0) {
      return {AvicOutcome::general_protection};
    }
    return write(slot.write, x2apic_offset(msr), static_cast<std::uint32_t>(value), sink);
  }

  /// MOV CR8: V_TPR is GuestCpu's, and the page follows: TPR := cr8 << 4.
  void write_cr8(std::uint8_t cr8) noexcept { set_tpr(static_cast<std::uint8_t>(cr8 << 4)); }

  /// A doorbell reaches this core. `halted`: the guest is halted in guest mode.
  DoorbellEffect doorbell(bool halted) noexcept;

  /// The recognized interrupt: vector, or -1. It stays recognized while the guest cannot take it. Looks at
  /// the page only where a knob makes IRR writes visible without an evaluation point.
  [[nodiscard]] int pending() const noexcept {
    const bool snoop = registers_->knobs().snoops_irr_writes && active();
    return snoop ? context_.own->deliverable() : pending_;
  }
  /// The guest takes the interrupt: IRR to ISR, PPR follows. Returns its vector, or -1 when software has
  /// withdrawn it.
  int acknowledge() noexcept {
    const int vector = context_.own->acknowledge();
    evaluate();
    return vector;
  }

  /// The view of the idle-HLT intercept (GuestEnvironment::avic_highest_irr and avic_ppr).
  [[nodiscard]] int highest_irr() const noexcept { return context_.own->highest_irr(); }
  [[nodiscard]] std::uint8_t ppr() const noexcept { return context_.own->ppr(); }

 private:
  enum class Phase : std::uint8_t { host, entering, guest };

  void evaluate() noexcept { pending_ = static_cast<std::int16_t>(context_.own->deliverable()); }
  void set_tpr(std::uint8_t value) noexcept {
    context_.own->set_tpr(value);
    evaluate();
  }

  [[nodiscard]] AvicResult noaccel(AvicOutcome outcome, std::uint32_t offset, bool write) const noexcept;
  AvicResult end_of_interrupt() noexcept;
  [[nodiscard]] AvicResult incomplete(const IpiOutcome& outcome, std::uint32_t icr_low,
                                      std::uint32_t icr_high) const noexcept;

  template <typename Sink>
  AvicResult write(AvicAction action, std::uint32_t offset, std::uint32_t value, Sink& sink) noexcept {
    switch (action) {
      case AvicAction::allow:
        context_.own->write(offset, value);
        return {};
      case AvicAction::trap:
        context_.own->write(offset, value);
        return noaccel(AvicOutcome::noaccel_trap, offset, true);
      case AvicAction::task_priority: {
        set_tpr(static_cast<std::uint8_t>(value));
        AvicResult result;
        result.v_tpr = static_cast<std::int8_t>((value >> 4) & 0xfU);
        return result;
      }
      case AvicAction::end_of_interrupt:
        return end_of_interrupt();
      case AvicAction::interrupt_command:
        return interrupt_command(value, sink);
      case AvicAction::self_interrupt: {
        constexpr std::uint32_t self = 1U << 18;
        return send(self | value, 0, sink);
      }
      case AvicAction::fault:
      case AvicAction::general_protection:
        break;
    }
    return noaccel(AvicOutcome::noaccel_fault, offset, true);
  }

  template <typename Sink>
  AvicResult interrupt_command(std::uint32_t icr_low, Sink& sink) noexcept {
    constexpr std::uint32_t delivery_status = 1U << 12;
    icr_low &= ~delivery_status;  // read-only
    context_.own->write(APIC_ICR, icr_low);
    const AvicResult result = send(icr_low, context_.own->read(APIC_ICR2), sink);
    if ((result.exit_info_1 & delivery_status) != 0) context_.own->write(APIC_ICR, icr_low | delivery_status);
    return result;
  }

  template <typename Sink>
  AvicResult send(std::uint32_t icr_low, std::uint32_t icr_high, Sink& sink) noexcept {
    const IpiOutcome outcome = IpiSender<Sink>(context_, registers_->knobs(), sink).send(icr_low, icr_high);
    if (outcome.own_requested) evaluate();
    if (!outcome.exits()) return {};
    return incomplete(outcome, icr_low, icr_high);
  }

  const AvicRegisters* registers_;
  IpiContext context_{};
  std::int16_t pending_ = -1;
  Phase phase_ = Phase::host;
  bool latched_ = false;
};

}  // namespace svmsim::apic
