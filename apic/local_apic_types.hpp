#pragma once

#include <cstdint>

#include "apic/apic_timer.hpp"
#include "apic/destination.hpp"
#include "apic/icr.hpp"

/// What LocalApic (local_apic.hpp) takes and gives.
namespace svmsim::apic {

/// What became of a fixed interrupt at its target.
enum class Acceptance : std::uint8_t {
  accepted,        ///< the IRR bit was clear and is set now
  merged,          ///< the IRR bit was set already: two interrupts became one
  illegal_vector,  ///< vector below 16: dropped, ESR bit 6
  disabled,        ///< the APIC is disabled, by software or in APIC_BASE: dropped
};

/// What an APIC did with a message, or with a signal of its own (LVT). Everything from `smi` on bypasses IRR
/// and ISR and is for the CPU (cpu_events.hpp).
enum class Reception : std::uint8_t {
  accepted,
  merged,
  illegal_vector,
  disabled,
  masked,       ///< LVT entries only: the mask bit is set, the signal is lost
  ignored,      ///< a de-assert, or a reserved message type
  remote_read,  ///< the sender asks for a register (vector = offset / 10h)
  smi,
  nmi,
  init,
  startup,
  ext_int,  ///< the interrupt controller outside has a vector
};

struct EndOfInterrupt {
  int vector = -1;         ///< the vector that was in service, or -1
  bool level = false;      ///< its TMR bit
  bool broadcast = false;  ///< the I/O APICs must hear of it: level, and software did not suppress it
};

/// Outcome of reading a register.
struct RegisterRead {
  bool general_protection = false;  ///< #GP(0); only as an MSR
  std::uint64_t value = 0;
};

enum class WriteEffect : std::uint8_t {
  general_protection,  ///< #GP(0); nothing has changed
  stored,              ///< nothing more to do but `changed`
  priority,            ///< TPR written: what is deliverable may have changed
  eoi,                 ///< `eoi` says what was retired
  ipi,                 ///< `command` is to be sent
  ipi_refused,         ///< `command` is stored, but no APIC sends it (illegal vector, reserved message type)
};

/// What else a write changed, in bits.
namespace changed {
constexpr std::uint8_t timer = 1;       ///< LocalApic::next_timer_expiry()
constexpr std::uint8_t addressing = 2;  ///< LocalApic::address(): tell the DestinationMap
constexpr std::uint8_t enabling = 4;    ///< enabled by APIC_BASE or SVR, or disabled
constexpr std::uint8_t pending = 8;     ///< deliverable() may have changed, by an LVT or an IER
}  // namespace changed

/// Outcome of writing a register.
struct RegisterWrite {
  WriteEffect effect = WriteEffect::stored;
  IcrCommand command{};
  EndOfInterrupt eoi{};
  std::uint8_t changed = 0;  ///< bits of apic::changed
};

/// The entries of the local vector table that something outside can signal.
enum class LvtEntry : std::uint8_t {
  thermal,
  performance,
  lint0,
  lint1,
  error,
  extended0,
  extended1,
  extended2,
  extended3
};

/// What a LocalApic is built as.
struct LocalApicOptions {
  std::uint32_t version = 0x00050010;  ///< APIC_LVR: version 10h, six LVTs; bits 31 and 24 follow the flags
  bool extended = false;               ///< the AMD extended space 400h-530h
  ApicMode initial_mode = ApicMode::x2apic;  ///< after RESET
  bool bootstrap = false;                    ///< bit 8 of APIC_BASE
  bool x2apic = true;                        ///< CPUID Fn0000_0001_ECX[21]; without it EXTD raises #GP(0)
  bool tsc_deadline = true;                ///< CPUID Fn0000_0001_ECX[24]; without it LVTT bit 18 is reserved
  bool directed_eoi = false;               ///< LVR bit 24, SVR bit 12; AMD processors do not have it
  bool reports_errors = true;              ///< false: KVM's emulation, whose ESR stays 0
  bool lint0_ext_int_after_reset = false;  ///< KVM_X86_QUIRK_LINT0_REENABLED, for the bootstrap CPU
  unsigned physical_address_bits = 48;
  /// The timer expires when its owner says so (LocalApic::take_timer()), not by itself at a register access.
  bool timer_by_owner = false;
  TimerClock timer_clock{};
  std::uint64_t minimum_timer_period_cycles = 0;
};

}  // namespace svmsim::apic
