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
  RandomSource(std::uint32_t seed, unsigned vcpu, unsigned vcpus, unsigned actions)
      : random_(seed * 977U + vcpu), vcpus_(vcpus), left_(actions) {
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
    eoi.kind = svm::ActionKind::wrmsr;
    eoi.length = 2;
    eoi.number = 0x80b;
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
    switch (draw(12)) {
      case 0:
      case 1:
      case 2:
        action_.kind = svm::ActionKind::compute;
        action_.cycles = 1 + draw(draw(4) == 0 ? 400000 : 3000);
        break;
      case 3:
      case 4:
      case 5: {
        action_.kind = svm::ActionKind::wrmsr;
        action_.number = 0x830;
        const std::uint64_t vector = 0x30 + draw(64);
        const unsigned target = draw(vcpus_);
        action_.operand[0] = draw(4) == 0 ? (draw(2) == 0 ? 0x80000U : 0xc0000U) | vector  // shorthands
                                          : std::uint64_t{target} << 32 | vector;
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
        action_.kind = vcpus_ > 1 ? svm::ActionKind::hlt : svm::ActionKind::nop;
        break;
      default:
        action_.kind = svm::ActionKind::vmmcall;
        break;
    }
  }

  boost::random::mt19937 random_;
  unsigned vcpus_;
  unsigned left_;
  bool enable_next_ = false;
  svm::GuestAction action_;
  std::vector<svm::GuestAction> handlers_;
  std::vector<std::uint64_t> times_;
};

}  // namespace svmsim::model::test
