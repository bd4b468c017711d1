#pragma once

#include <cstdint>
#include <utility>

#include "apic/local_apic_types.hpp"

namespace svmsim::apic {

enum class CpuState : std::uint8_t {
  running,
  uninitialized,     ///< an application processor after RESET, before its first INIT
  wait_for_startup,  ///< INIT received: only STARTUP wakes it
};

/// What the CPU has to do about INIT and STARTUP.
enum class StartupAction : std::uint8_t {
  none,
  reset,           ///< reset registers, LocalApic::init(), and run at the reset vector (bootstrap processor)
  reset_and_wait,  ///< the same, and wait for STARTUP
  start,           ///< run at CS selector vector << 8, base vector << 12, IP 0
};

/// The messages that bypass the IRR, as one CPU holds them: INIT and STARTUP (fact sheet 7.9; APM vol. 2,
/// 15.21.8, 15.27.8, 16.5), NMI and SMI. The APIC's part only: what GIF, SMM, intercepts and shadows let
/// through is passed in.
class CpuEvents {
 public:
  struct Options {
    bool bootstrap = true;
    /// NMIs that may be pending while none is in service. Hardware latches 1; KVM holds 2 (process_nmi), and
    /// 1 while one is in service.
    unsigned nmi_limit = 1;
    /// INIT while waiting for STARTUP: held until the CPU runs (APM), or taken at once (KVM).
    bool init_restarts_waiting = false;
    /// Where an application processor is after RESET.
    CpuState application_state = CpuState::uninitialized;
  };

  CpuEvents() : CpuEvents(Options{}) {}
  explicit CpuEvents(Options options) noexcept : options_(options) { reset(); }

  void reset() noexcept {
    state_ = options_.bootstrap ? CpuState::running : options_.application_state;
    init_pending_ = startup_pending_ = smi_pending_ = nmi_masked_ = false;
    nmis_ = 0;
  }

  [[nodiscard]] CpuState state() const noexcept { return state_; }
  [[nodiscard]] bool init_pending() const noexcept { return init_pending_; }
  [[nodiscard]] std::uint8_t startup_vector() const noexcept { return startup_vector_; }
  [[nodiscard]] bool smi_pending() const noexcept { return smi_pending_; }
  [[nodiscard]] bool nmi_pending() const noexcept { return nmis_ != 0; }
  [[nodiscard]] unsigned nmis() const noexcept { return nmis_; }
  /// An NMI is in service, up to IRET.
  [[nodiscard]] bool nmi_masked() const noexcept { return nmi_masked_; }

  /// Takes what LocalApic::receive() or signal() gave out; anything with an IRR bit is not for it.
  /// Returns false if the event was lost in one that is pending already.
  bool note(Reception reception, std::uint8_t vector = 0) noexcept {
    switch (reception) {
      case Reception::smi:
        return !std::exchange(smi_pending_, true);
      case Reception::nmi:
        if (nmis_ >= (nmi_masked_ ? 1U : options_.nmi_limit)) return false;
        ++nmis_;
        return true;
      case Reception::init:
        startup_pending_ = false;  // a STARTUP before the INIT is void
        return !std::exchange(init_pending_, true);
      case Reception::startup:
        startup_vector_ = vector;
        return !std::exchange(startup_pending_, true);
      default:
        return true;
    }
  }

  /// The next thing to do, repeatedly until `none`. `init_allowed`: GIF is 1 and the CPU is not in SMM.
  /// An INIT that may not be taken stays pending; a STARTUP that finds the CPU running is dropped.
  StartupAction next_startup_action(bool init_allowed) noexcept {
    const bool waiting = state_ != CpuState::running;
    const bool takes_init =
        waiting ? state_ == CpuState::uninitialized || options_.init_restarts_waiting : init_allowed;
    if (init_pending_ && takes_init) {
      init_pending_ = false;
      nmi_masked_ = false;
      nmis_ = 0;  // as kvm_vcpu_reset does
      state_ = options_.bootstrap ? CpuState::running : CpuState::wait_for_startup;
      return options_.bootstrap ? StartupAction::reset : StartupAction::reset_and_wait;
    }
    if (!std::exchange(startup_pending_, false) || state_ != CpuState::wait_for_startup) {
      return StartupAction::none;
    }
    state_ = CpuState::running;
    return StartupAction::start;
  }

  /// The CPU may take an NMI (as far as the APIC and IRET are concerned).
  [[nodiscard]] bool nmi_deliverable() const noexcept {
    return nmis_ != 0 && !nmi_masked_ && state_ == CpuState::running;
  }
  /// It takes it: the next one waits for IRET.
  void take_nmi() noexcept {
    --nmis_;
    nmi_masked_ = true;
  }
  void iret() noexcept { nmi_masked_ = false; }
  void take_smi() noexcept { smi_pending_ = false; }

 private:
  Options options_;
  CpuState state_ = CpuState::running;
  bool init_pending_ = false;
  bool startup_pending_ = false;
  bool smi_pending_ = false;
  bool nmi_masked_ = false;
  unsigned nmis_ = 0;
  std::uint8_t startup_vector_ = 0;
};

}  // namespace svmsim::apic
