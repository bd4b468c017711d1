#pragma once

#include <array>
#include <cstdint>

#include "apic/apic_registers.hpp"
#include "apic/destination.hpp"
#include "apic/icr.hpp"
#include "apic/vector_set.hpp"

namespace svmsim::apic {

/// What became of a fixed interrupt at its target.
enum class Acceptance : std::uint8_t {
  accepted,        ///< the IRR bit was clear and is set now
  merged,          ///< the IRR bit was set already: two interrupts became one
  illegal_vector,  ///< vector below 16: dropped, ESR bit 6
  disabled,        ///< the APIC is software-disabled: dropped
};

struct EndOfInterrupt {
  int vector = -1;     ///< the vector that was in service, or -1
  bool level = false;  ///< its TMR bit: the I/O APICs must hear of it
};

/// Outcome of an RDMSR of the 800h-8FFh range.
struct RegisterRead {
  bool general_protection = false;  ///< #GP(0)
  std::uint64_t value = 0;
};

enum class WriteEffect : std::uint8_t {
  general_protection,  ///< #GP(0); nothing has changed
  stored,              ///< nothing more to do
  priority,            ///< TPR written: what is deliverable may have changed
  eoi,                 ///< `eoi` says what was retired
  ipi,                 ///< `command` is to be sent
  ipi_refused,         ///< `command` is stored, but no APIC sends it (illegal vector, reserved message type)
};

/// Outcome of a WRMSR of the 800h-8FFh range.
struct RegisterWrite {
  WriteEffect effect = WriteEffect::stored;
  IcrCommand command{};
  EndOfInterrupt eoi{};
};

/// What a LocalApic is built as.
struct LocalApicOptions {
  std::uint32_t version = 0x00050010;  ///< APIC_LVR: version 10h, six LVTs; bit 31 follows `extended`
  bool extended = false;               ///< the AMD extended space 400h-530h
};

/// A local APIC in x2APIC mode: interrupt acceptance, priority and end of interrupt, and the MSR view with
/// its #GP(0) rules. Fact sheet 7.2 to 7.5; APM vol. 2, 16.4, 16.6 and 16.11. It knows no time and sends
/// nothing: an ICR write returns the command, and whoever wires the APICs calls accept() at the targets.
///
/// Registers that are stored under their access rules but do nothing yet: the LVTs, the timer (initial count,
/// divide; the current count reads 0), and the extended space (specific EOI, interrupt enable). The ESR
/// collects the errors of this APIC, but raises no LVT interrupt. The xAPIC page and the APIC base MSR are
/// not here.
class LocalApic {
 public:
  explicit LocalApic(std::uint32_t id, LocalApicOptions options = {});

  /// Register values after RESET or INIT (7.2, 7.9). The ID and the mode stay.
  void reset() noexcept;

  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
  [[nodiscard]] ApicMode mode() const noexcept { return ApicMode::x2apic; }
  [[nodiscard]] std::uint32_t logical_id() const noexcept { return x2apic_logical_id(id_); }

  /// A fixed interrupt arrives: IRR := 1, TMR := level. 16.6.3.
  Acceptance accept(std::uint8_t vector, bool level = false) noexcept {
    if (vector < 16) {
      error_pending_ |= esr_receive_illegal_vector;
      return Acceptance::illegal_vector;
    }
    if (!software_enabled()) return Acceptance::disabled;
    const bool merged = irr_.test(vector);
    irr_.set(vector);
    if (level) {
      tmr_.set(vector);
    } else {
      tmr_.clear(vector);
    }
    return merged ? Acceptance::merged : Acceptance::accepted;
  }

  /// Highest vector requested, in service; -1 if there is none.
  [[nodiscard]] int highest_irr() const noexcept { return irr_.highest(); }
  [[nodiscard]] int highest_isr() const noexcept { return isr_.highest(); }
  [[nodiscard]] std::uint8_t tpr() const noexcept { return tpr_; }
  [[nodiscard]] std::uint8_t ppr() const noexcept { return ppr_; }

  void set_tpr(std::uint8_t tpr) noexcept {
    tpr_ = tpr;
    update_ppr();
  }
  /// CR8 is TPR[7:4]; writing it clears TPR[3:0].
  [[nodiscard]] std::uint8_t cr8() const noexcept { return tpr_ >> 4; }
  void set_cr8(std::uint8_t cr8) noexcept { set_tpr(static_cast<std::uint8_t>(cr8 << 4)); }

  /// The vector that the CPU would take now: the highest of the IRR if its class is above that of the PPR,
  /// else -1.
  [[nodiscard]] int deliverable() const noexcept {
    const int vector = irr_.highest();
    return (vector >> 4) > (ppr_ >> 4) ? vector : -1;
  }

  /// Interrupt acknowledge: IRR to ISR. Returns the vector, or the spurious vector of the SVR, which sets no
  /// ISR bit, when nothing is deliverable any more.
  std::uint8_t acknowledge() noexcept {
    const int vector = deliverable();
    if (vector < 0) return spurious_vector();
    const auto taken = static_cast<std::uint8_t>(vector);
    irr_.clear(taken);
    isr_.set(taken);
    update_ppr();
    return taken;
  }

  /// Retires the highest vector in service.
  EndOfInterrupt eoi() noexcept {
    const int vector = isr_.highest();
    if (vector < 0) return {};
    const auto retired = static_cast<std::uint8_t>(vector);
    isr_.clear(retired);
    update_ppr();
    return {vector, tmr_.test(retired)};
  }

  [[nodiscard]] bool software_enabled() const noexcept { return (svr_ & svr_enable) != 0; }
  [[nodiscard]] std::uint8_t spurious_vector() const noexcept { return static_cast<std::uint8_t>(svr_); }
  [[nodiscard]] std::uint32_t svr() const noexcept { return svr_; }
  [[nodiscard]] std::uint64_t icr() const noexcept { return icr_; }

  [[nodiscard]] const VectorSet& irr() const noexcept { return irr_; }
  [[nodiscard]] const VectorSet& isr() const noexcept { return isr_; }
  [[nodiscard]] const VectorSet& tmr() const noexcept { return tmr_; }

  /// RDMSR and WRMSR of an MSR in 800h-8FFh; any other raises #GP(0) too.
  [[nodiscard]] RegisterRead read_msr(std::uint32_t msr) const noexcept;
  RegisterWrite write_msr(std::uint32_t msr, std::uint64_t value) noexcept {
    // The two writes that guests make all the time.
    if (msr == msr_x2apic_eoi && value == 0) return {WriteEffect::eoi, {}, eoi()};
    if (msr == msr_x2apic_icr) return write_icr(value);
    return write_other(msr, value);
  }

  /// The sender's part of a command that no APIC accepted (7.4, 7.8).
  void note_send_accept_error() noexcept { error_pending_ |= esr_send_accept; }

  static constexpr std::uint32_t esr_send_accept = 1U << 2;
  static constexpr std::uint32_t esr_send_illegal_vector = 1U << 5;
  static constexpr std::uint32_t esr_receive_illegal_vector = 1U << 6;
  static constexpr std::uint32_t svr_enable = 1U << 8;
  static constexpr std::uint32_t lvt_masked = 1U << 16;

 private:
  void update_ppr() noexcept {
    const int in_service = isr_.highest() < 0 ? 0 : isr_.highest();
    ppr_ = (tpr_ >> 4) >= (in_service >> 4) ? tpr_ : static_cast<std::uint8_t>(in_service & 0xf0);
  }
  RegisterWrite write_icr(std::uint64_t value) noexcept;
  RegisterWrite write_other(std::uint32_t msr, std::uint64_t value) noexcept;
  void write_stored(std::uint32_t offset, std::uint32_t value) noexcept;
  [[nodiscard]] std::uint32_t& stored(std::uint32_t offset) noexcept { return stored_[offset >> 4]; }

  VectorSet irr_;
  VectorSet isr_;
  VectorSet tmr_;
  std::uint8_t tpr_ = 0;
  std::uint8_t ppr_ = 0;
  std::uint32_t svr_ = 0;
  std::uint64_t icr_ = 0;
  std::uint32_t id_;
  std::uint32_t error_pending_ = 0;  // the ESR's accumulator
  LocalApicOptions options_;
  std::array<std::uint32_t, 0x54> stored_{};  // registers without behaviour, by offset / 10h
};

}  // namespace svmsim::apic
