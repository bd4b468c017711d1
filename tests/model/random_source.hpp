#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>

#include "svm/guest_action.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::model::test {

/// A guest of random actions that interrupts others and halts: what it does next never depends on time, so
/// that any difference between two runs comes from the model. Ends after a number of actions.
class RandomSource final : public workloads::WorkloadSource {
 public:
  RandomSource(std::uint32_t seed, unsigned vcpu, unsigned vcpus, unsigned actions, bool xapic = false)
      : random_(seed * 977U + vcpu), vcpus_(vcpus), left_(actions), xapic_(xapic) {
    next();
  }

  [[nodiscard]] workloads::InitialState initial_state() const override {
    workloads::InitialState state;
    state.rip = base;
    state.interrupts_enabled = true;
    state.apic_svr = 0x1ff;
    return state;
  }

  [[nodiscard]] const svm::GuestAction* current() override {
    if (!handlers_.empty()) return &handlers_.back();
    return left_ == 0 ? nullptr : &action_;
  }

  void retire(std::uint64_t tsc, std::uint64_t) override {
    times_.push_back(tsc);
    if (handlers_.empty()) {
      next();
      return;
    }
    svm::GuestAction& action = handlers_.back();
    if (action.kind == svm::ActionKind::iret) {
      handlers_.pop_back();
    } else {
      action.rip = action.next_rip();
      action.kind = svm::ActionKind::iret;
    }
  }

  void interrupt(std::uint8_t vector, std::uint64_t tsc) override {
    times_.push_back(tsc);
    svm::GuestAction eoi;
    write_apic(eoi, 0xb0, 0);
    eoi.rip = handler_entry(vector);
    handlers_.push_back(eoi);
  }

  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t vector) const override {
    return 0x800000U + vector * 16U;
  }
  [[nodiscard]] workloads::Metrics metrics() const override {
    return {{"actions", static_cast<double>(times_.size())}};
  }
  /// TSC of every completed action and delivered interrupt.
  [[nodiscard]] const std::vector<std::uint64_t>& times() const { return times_; }

 private:
  static constexpr std::uint64_t base = 0x400000;

  unsigned draw(unsigned bound) {
    return boost::random::uniform_int_distribution<unsigned>(0, bound - 1)(random_);
  }

  // A register of the local APIC, the way its mode has it.
  void write_apic(svm::GuestAction& action, std::uint32_t offset, std::uint64_t value) const {
    action.length = 2;
    action.operand[0] = value;
    if (xapic_) {
      action.kind = svm::ActionKind::memory_write;
      action.operand[1] = 0xfee00000U + offset;
      action.size = 4;
    } else {
      action.kind = svm::ActionKind::wrmsr;
      action.number = 0x800 + (offset >> 4);
    }
  }

  void next() {
    if (left_ != 0) --left_;
    const std::uint64_t rip = action_.next_rip() == 0 ? base : action_.next_rip();
    action_ = {};
    action_.rip = rip;
    action_.length = 2;
    if (enable_next_) {  // interrupts never stay off: a halt with IF=0 would sleep for ever
      enable_next_ = false;
      action_.kind = svm::ActionKind::sti;
      return;
    }
    switch (draw(16)) {
      case 0:
      case 1:
      case 2:
        action_.kind = svm::ActionKind::compute;
        action_.cycles = 1 + draw(draw(4) == 0 ? 400000 : 3000);
        break;
      case 3:
      case 4:
      case 5: {
        const std::uint64_t vector = 0x30 + draw(64);
        const unsigned target = draw(vcpus_);
        const bool shorthand = xapic_ || draw(4) == 0;
        write_apic(
            action_, 0x300,
            shorthand ? (draw(2) == 0 ? 0x80000U : 0xc0000U) | vector : std::uint64_t{target} << 32 | vector);
        break;
      }
      case 6:
        action_.kind = svm::ActionKind::cli;
        enable_next_ = true;
        break;
      case 7:
        action_.kind = svm::ActionKind::cpuid;
        break;
      case 8:
        action_.kind = svm::ActionKind::out;
        action_.number = 0x1234;
        action_.size = 1;
        break;
      case 9:
        action_.kind = svm::ActionKind::rdtsc;
        break;
      case 10:
        if (draw(3) == 0) {
          action_.kind = svm::ActionKind::pause;
          break;
        }
        action_.kind = vcpus_ > 1 ? svm::ActionKind::hlt : svm::ActionKind::nop;
        break;
      case 11:  // the timer's mode, masked now and then
        write_apic(action_, 0x320, std::uint64_t{draw(3)} << 17 | (draw(8) == 0 ? 0x10000U : 0U) | 0xefU);
        break;
      case 12:
        write_apic(action_, 0x380, draw(4) == 0 ? 0 : 1 + draw(150000));
        break;
      case 13:
        action_.kind = svm::ActionKind::wrmsr;
        action_.number = 0x6e0;
        action_.operand[0] = draw(6000000);
        break;
      case 14:  // an NMI
        write_apic(action_, 0x300, xapic_ ? 0xc0400U : std::uint64_t{draw(vcpus_)} << 32 | 0x400U);
        break;
      default:
        action_.kind = svm::ActionKind::vmmcall;
        break;
    }
  }

  boost::random::mt19937 random_;
  unsigned vcpus_;
  unsigned left_;
  bool xapic_;
  bool enable_next_ = false;
  svm::GuestAction action_;
  std::vector<svm::GuestAction> handlers_;
  std::vector<std::uint64_t> times_;
};

}  // namespace svmsim::model::test
