#pragma once

#include <array>
#include <cstdint>

#include "apic/apic_registers.hpp"
#include "apic/apic_timer.hpp"
#include "apic/destination.hpp"
#include "apic/icr.hpp"
#include "apic/local_apic_types.hpp"
#include "apic/vector_set.hpp"

namespace svmsim::apic {

/// A local APIC in xAPIC or x2APIC mode: all registers of fact sheet 7.2 with their access rules, interrupt
/// acceptance and priority, end of interrupt, local vector table, errors, timer, and the AMD extended space.
/// Fact sheet 7; APM vol. 2, chapter 16. Where the manual is silent it follows the kernel
/// (arch/x86/kvm/lapic.c) or, for the extended space, the naming of the manual; comments say where.
///
/// It owns no time and sends nothing. Calls that need the time take it in cycles of the CPU's TSC (see
/// ApicTimer). An ICR write returns the command; whoever wires the APICs routes it (interrupt_routing.hpp)
/// and calls receive() at the targets. Messages that bypass the IRR are returned for the CPU
/// (cpu_events.hpp). A message arrives at once, so delivery status (ICR and LVT bit 12) always reads 0.
///
/// Not modelled: the CMCI entry (2F0h, absent on AMD), arbitration over the APIC bus, the focus processor
/// (SVR bit 9 is stored).
class LocalApic {
 public:
  explicit LocalApic(std::uint32_t id, LocalApicOptions options = {});

  /// RESET: register values of 7.2, and ID, mode and base address as built.
  void reset() noexcept;
  /// INIT: register values of 7.2; ID, mode and base address stay.
  void init() noexcept;

  /// The ID that the CPU was built with, which x2APIC mode shows. xapic_id() is what software may have made
  /// of its lower eight bits.
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
  [[nodiscard]] std::uint8_t xapic_id() const noexcept { return xapic_id_; }
  [[nodiscard]] ApicMode mode() const noexcept { return mode_; }
  /// LDR: derived from the ID in x2APIC mode, else as written.
  [[nodiscard]] std::uint32_t logical_id() const noexcept {
    return mode_ == ApicMode::x2apic ? x2apic_logical_id(id_) : std::uint32_t{xapic_logical_id_} << 24;
  }
  /// What destinations are compared with.
  [[nodiscard]] ApicAddress address() const noexcept {
    return {mode_, id_, xapic_id_, xapic_logical_id_, destination_format_};
  }

  /// A fixed interrupt arrives: IRR := 1, TMR := level. 16.6.3.
  Acceptance accept(std::uint8_t vector, bool level = false) noexcept {
    if (vector < 16) {
      note_error(esr_receive_illegal_vector);
      return Acceptance::illegal_vector;
    }
    if (!plain_) return accept_slowly(vector, level);
    const bool merged = irr_.test(vector);
    irr_.set(vector);
    if (level) {
      tmr_.set(vector);
    } else {
      tmr_.clear(vector);
    }
    return merged ? Acceptance::merged : Acceptance::accepted;
  }

  /// Any message arrives that names this APIC.
  Reception receive(const IcrCommand& command) noexcept;

  /// What AVIC's hardware keeps of an APIC in its backing page (fact sheet 8.1).
  struct AvicState {
    VectorSet irr;
    VectorSet isr;
    VectorSet tmr;
    std::uint8_t tpr = 0;
  };
  [[nodiscard]] AvicState avic_state() const noexcept { return {irr(), isr(), tmr_, tpr_}; }
  /// Takes over what the hardware has made of it.
  void set_avic_state(const AvicState& state) noexcept;
  /// Takes over the ICR that the hardware has stored; nothing is sent.
  void set_avic_icr(std::uint64_t icr) noexcept { icr_ = icr; }

  /// Highest vector requested, in service; -1 if there is none. Vectors that the IERs
  /// exclude do not count, and no request while APIC_BASE disables the APIC.
  [[nodiscard]] int highest_irr() const noexcept { return irr_.highest(); }
  [[nodiscard]] int highest_isr() const noexcept { return isr_.highest(); }
  [[nodiscard]] std::uint8_t tpr() const noexcept { return tpr_; }
  [[nodiscard]] std::uint8_t ppr() const noexcept { return ppr_; }
  /// Arbitration priority.
  [[nodiscard]] std::uint8_t apr() const noexcept;

  void set_tpr(std::uint8_t tpr) noexcept {
    tpr_ = tpr;
    update_ppr();
  }
  /// CR8 is TPR[7:4]; writing it clears TPR[3:0]. Works whether or not the APIC is enabled.
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
    irr_.clear_highest();
    // Its class is above the TPR's and that of everything in service.
    isr_.set_highest(taken);
    ppr_ = taken & 0xf0U;
    return taken;
  }

  /// Retires the highest vector in service.
  EndOfInterrupt eoi() noexcept {
    const int vector = isr_.highest();
    if (vector < 0) return {};
    const auto retired = static_cast<std::uint8_t>(vector);
    isr_.clear_highest();
    update_ppr();
    if (tmr_.test(retired)) return end_level(retired);
    return {vector, false, false};
  }

  /// Enabled by APIC_BASE bit 11.
  [[nodiscard]] bool hardware_enabled() const noexcept { return mode_ != ApicMode::disabled; }
  /// Enabled by SVR bit 8.
  [[nodiscard]] bool software_enabled() const noexcept { return (svr_ & svr_enable) != 0; }
  [[nodiscard]] std::uint8_t spurious_vector() const noexcept { return static_cast<std::uint8_t>(svr_); }
  [[nodiscard]] std::uint32_t svr() const noexcept { return svr_; }
  /// The whole ICR; in xAPIC mode ICR high is bits 63:32.
  [[nodiscard]] std::uint64_t icr() const noexcept { return icr_; }

  [[nodiscard]] VectorSet irr() const noexcept { return irr_ | irr_excluded_; }
  [[nodiscard]] VectorSet isr() const noexcept { return isr_ | isr_excluded_; }
  [[nodiscard]] const VectorSet& tmr() const noexcept { return tmr_; }

  /// RDMSR and WRMSR of an MSR in 800h-8FFh; any other, and any outside x2APIC mode, raises #GP(0).
  [[nodiscard]] RegisterRead read_msr(std::uint32_t msr, std::uint64_t now_cycles = 0) const noexcept;
  RegisterWrite write_msr(std::uint32_t msr, std::uint64_t value, std::uint64_t now_cycles = 0) noexcept {
    // The two writes that guests make all the time.
    if (msr == eoi_msr_ && value == 0) return {WriteEffect::eoi, {}, eoi()};
    if (msr == icr_msr_) return write_icr(value);
    return write_other(msr, value, now_cycles);
  }

  /// Load and store in the APIC page. Outside xAPIC mode reads give all ones and writes nothing. A load of
  /// less than 32 bits gives its bytes of the register, as the kernel does; other accesses than aligned loads
  /// and 32-bit stores at offsets of 10h are undefined in the manual: they read 0 and write nothing.
  RegisterRead read_mmio(std::uint32_t offset, std::uint64_t now_cycles = 0, unsigned bytes = 4) noexcept;
  RegisterWrite write_mmio(std::uint32_t offset, std::uint32_t value, std::uint64_t now_cycles = 0,
                           unsigned bytes = 4) noexcept;

  /// MSR 1Bh. Illegal moves between the modes (7.1) and reserved bits raise #GP(0).
  [[nodiscard]] std::uint64_t read_apic_base() const noexcept;
  RegisterWrite write_apic_base(std::uint64_t value, std::uint64_t now_cycles = 0) noexcept;
  [[nodiscard]] std::uint64_t base_address() const noexcept { return base_address_; }

  /// MSR 6E0h (TSC_DEADLINE). Without the feature both raise #GP(0).
  [[nodiscard]] RegisterRead read_tsc_deadline(std::uint64_t now_cycles) const noexcept;
  RegisterWrite write_tsc_deadline(std::uint64_t value, std::uint64_t now_cycles) noexcept;

  /// When expire_timer() is due; ApicTimer::never.
  [[nodiscard]] std::uint64_t next_timer_expiry(std::uint64_t now_cycles) const noexcept {
    return timer_.next_expiry(now_cycles);
  }
  /// Books what expired up to now. `ignored`: nothing did; else what became of the (one) interrupt.
  Reception expire_timer(std::uint64_t now_cycles) noexcept;
  [[nodiscard]] const ApicTimer& timer() const noexcept { return timer_; }
  /// For an emulation that decides itself when the timer fires, also ahead of a deadline: books what expired
  /// up to now, and a deadline in any case, and delivers nothing. Returns the deadline; 0 in other modes.
  std::uint64_t take_timer(std::uint64_t now_cycles) noexcept { return timer_.take(now_cycles); }
  [[nodiscard]] std::uint32_t lvt_timer() const noexcept { return stored(APIC_LVTT); }
  void tsc_jumped(std::int64_t delta) noexcept { timer_.tsc_jumped(delta); }

  /// A local source fires once: thermal, performance counter, extended LVT, or an edge at a LINT pin.
  Reception signal(LvtEntry which) noexcept;
  /// The logical level of a LINT pin (lint0, lint1). A rising edge signals; a level entry (fixed, bit 15)
  /// interrupts again after its EOI while the pin stays asserted. `masked` and `ignored` when nothing went
  /// on.
  Reception set_lint(LvtEntry pin, bool asserted) noexcept;
  /// Whether interrupts of the legacy controller (INTR pin) reach the CPU: LINT0 is unmasked with ExtINT, or
  /// the APIC is disabled in APIC_BASE.
  [[nodiscard]] bool passes_ext_int() const noexcept;

  /// The sender's part of a command that no APIC accepted (7.4, 7.8).
  void note_send_accept_error() noexcept { note_error(esr_send_accept); }
  /// The target's answer to a remote read command: its register, or that there is no target.
  [[nodiscard]] RegisterRead remote_read(std::uint8_t vector, std::uint64_t now_cycles) const noexcept;
  void complete_remote_read(bool valid, std::uint32_t value) noexcept;

  static constexpr std::uint32_t esr_send_accept = 1U << 2;
  static constexpr std::uint32_t esr_receive_accept = 1U << 3;
  static constexpr std::uint32_t esr_send_illegal_vector = 1U << 5;
  static constexpr std::uint32_t esr_receive_illegal_vector = 1U << 6;
  static constexpr std::uint32_t esr_illegal_register = 1U << 7;
  static constexpr std::uint32_t svr_enable = 1U << 8;
  static constexpr std::uint32_t svr_suppress_eoi_broadcast = 1U << 12;
  static constexpr std::uint32_t lvt_masked = 1U << 16;
  static constexpr std::uint64_t base_bootstrap = 1U << 8;
  static constexpr std::uint64_t base_x2apic = 1U << 10;
  static constexpr std::uint64_t base_enable = 1U << 11;

 private:
  static constexpr std::uint32_t no_msr = 0xffffffffU;

  void update_ppr() noexcept {
    const int in_service = isr_.highest() < 0 ? 0 : isr_.highest();
    ppr_ = (tpr_ >> 4) >= (in_service >> 4) ? tpr_ : static_cast<std::uint8_t>(in_service & 0xf0);
  }
  Acceptance accept_slowly(std::uint8_t vector, bool level) noexcept;
  EndOfInterrupt end_level(std::uint8_t vector) noexcept;
  EndOfInterrupt specific_eoi(std::uint8_t vector) noexcept;

  RegisterWrite write_icr(std::uint64_t value) noexcept;
  RegisterWrite write_other(std::uint32_t msr, std::uint64_t value, std::uint64_t now_cycles) noexcept;
  RegisterWrite command_written(const IcrCommand& command) noexcept;
  RegisterWrite write_register(std::uint32_t offset, std::uint32_t value, std::uint64_t now_cycles) noexcept;
  RegisterWrite write_lvt(std::uint32_t offset, std::uint32_t value, std::uint64_t now_cycles) noexcept;
  [[nodiscard]] std::uint32_t read_register(std::uint32_t offset, std::uint64_t now_cycles) const noexcept;
  [[nodiscard]] RegisterRule rule(std::uint32_t offset) const noexcept;
  void write_svr(std::uint32_t value) noexcept;
  void set_registers_to_reset_values() noexcept;
  void enabling_changed() noexcept;
  void settle_timer(std::uint64_t now_cycles) noexcept {
    if (!options_.timer_by_owner) expire_timer(now_cycles);
  }
  void note_error(std::uint32_t bit) noexcept;
  Reception raise_level_lint(std::size_t pin) noexcept;

  [[nodiscard]] std::uint32_t& stored(std::uint32_t offset) noexcept { return stored_[offset >> 4]; }
  [[nodiscard]] std::uint32_t stored(std::uint32_t offset) const noexcept { return stored_[offset >> 4]; }
  [[nodiscard]] bool excludes() const noexcept { return (stored(APIC_ECTRL) & 1U) != 0; }

  VectorSet irr_;
  VectorSet isr_;
  VectorSet tmr_;
  std::uint8_t tpr_ = 0;
  std::uint8_t ppr_ = 0;
  ApicMode mode_ = ApicMode::x2apic;
  bool plain_ = false;              // enabled both ways, and the IERs exclude nothing
  std::uint32_t eoi_msr_ = no_msr;  // 80Bh and 830h in x2APIC mode
  std::uint32_t icr_msr_ = no_msr;
  std::uint32_t svr_ = 0;
  std::uint64_t icr_ = 0;
  std::uint32_t id_;
  std::uint32_t error_pending_ = 0;  // the ESR's accumulator
  std::uint8_t xapic_id_ = 0;
  std::uint8_t xapic_logical_id_ = 0;
  std::uint8_t destination_format_ = 0xf;
  std::array<bool, 2> lint_asserted_{};
  std::uint64_t base_address_ = 0;
  LocalApicOptions options_;
  ApicTimer timer_;
  VectorSet ier_;           // interrupt enable registers
  VectorSet irr_excluded_;  // requested, but excluded by the IERs or by APIC_BASE
  VectorSet isr_excluded_;
  std::array<std::uint32_t, 0x54> stored_{};  // registers that only store, by offset / 10h
};

}  // namespace svmsim::apic
