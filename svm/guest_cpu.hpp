#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "svm/features.hpp"
#include "svm/guest_action.hpp"
#include "svm/guest_environment.hpp"
#include "svm/knobs.hpp"
#include "svm/vmcb.hpp"

namespace svmsim::svm {

enum class StepKind : std::uint8_t {
  none,       ///< boundary(): nothing happened
  entered,    ///< vmrun(): guest mode, no event was injected
  retired,    ///< execute(): the action has completed; rIP is the next one
  halted,     ///< execute(): HLT completed and the CPU is halted in guest mode
  delivered,  ///< an interrupt, NMI or exception `vector` was delivered; rIP is its handler
  vmexit,     ///< #VMEXIT: state and exit fields are in the VMCB, GIF is 0
};

struct Step {
  StepKind kind = StepKind::none;
  std::uint8_t vector = 0;     ///< of a delivered event
  std::uint64_t result = 0;    ///< of a retired action: TSC, MSR, port or memory value read
};

/// The untimed guest-mode core: VMRUN, guest actions under a VMCB, #VMEXIT. APM vol. 2, chapter 15.
/// It holds what a core holds while a guest runs (the loaded VMCB state, the interrupt shadow, whether it is halted) and
/// stands in for the guest's stack: delivery pushes rIP and RFLAGS on an internal list of frames, IRET pops it.
/// It does not know time: whoever drives it charges cycles and says which physical events are pending.
///
/// Order of use: vmrun(), then boundary() before each execute(), until one of them returns vmexit.
class GuestCpu {
 public:
  explicit GuestCpu(FeatureSet features, Knobs knobs = {});

  /// VMRUN (15.5.1): loads the VMCB, checks it (3.2 of the fact sheet), sets GIF, injects EVENTINJ.
  /// Returns entered, delivered, or vmexit (INVALID, or an exit during the delivery of the injected event).
  /// `host_if` is RFLAGS.IF of the host at VMRUN; with V_INTR_MASKING it gates physical INTR.
  Step vmrun(Vmcb& vmcb, bool host_if, GuestEnvironment& environment);

  /// Instruction boundary: takes the highest-priority pending event (3.10). none, delivered or vmexit.
  /// Ends a halt when it returns delivered or vmexit.
  Step boundary(PhysicalEvents events, GuestEnvironment& environment);

  /// One action at the current rIP: retired, halted, delivered (a fault) or vmexit. An exiting fault-like
  /// instruction changes nothing. Precondition: in guest mode, not halted.
  Step execute(const GuestAction& action, GuestEnvironment& environment);

  /// Whether an interrupt, virtual or physical, could be taken now or after a shadow; lets a driver skip boundary().
  [[nodiscard]] bool event_possible() const noexcept;

  [[nodiscard]] bool in_guest_mode() const noexcept { return vmcb_ != nullptr; }
  [[nodiscard]] bool halted() const noexcept { return halted_; }
  [[nodiscard]] bool gif() const noexcept { return gif_; }
  [[nodiscard]] std::uint64_t rip() const noexcept { return rip_; }
  [[nodiscard]] std::uint64_t rflags() const noexcept { return rflags_; }
  [[nodiscard]] bool interrupt_shadow() const noexcept { return shadow_; }
  [[nodiscard]] std::uint8_t v_tpr() const noexcept;
  [[nodiscard]] const FeatureSet& features() const noexcept { return features_; }
  [[nodiscard]] const Knobs& knobs() const noexcept { return knobs_; }
  /// Depth of handlers that have not returned.
  [[nodiscard]] std::size_t frames() const noexcept { return frames_.size(); }

 private:
  struct Frame {
    std::uint64_t rip;
    std::uint64_t rflags;
    bool virtual_nmi;
  };

  FeatureSet features_;
  Knobs knobs_;
  Vmcb* vmcb_ = nullptr;
  std::uint64_t rip_ = 0;
  std::uint64_t rflags_ = 0;
  bool shadow_ = false;
  bool halted_ = false;
  bool gif_ = true;
  bool host_if_ = false;
  std::vector<Frame> frames_;
  // The rest of the loaded state is the svm room's own affair.
};

}  // namespace svmsim::svm
