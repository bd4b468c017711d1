#pragma once

#include <cstdint>

namespace svmsim::svm {

/// The PAUSE filter of one core (APM vol. 2, 15.14.4). Without a count every PAUSE exits; with a count of n,
/// PAUSE number n + 1 of a burst exits; with a threshold, a gap of more cycles than that starts a new burst.
class PauseFilter {
 public:
  /// At VMRUN. `count` and `threshold` are the VMCB fields, 0 where the processor has no such feature.
  void load(std::uint16_t count, std::uint16_t threshold) noexcept {
    count_ = count;
    threshold_ = threshold;
    remaining_ = count;
    seen_ = false;
  }

  /// As VMRUN does: an SMI, for one, starts the count anew (15.14.4).
  void reload() noexcept { load(count_, threshold_); }

  /// Whether an intercepted PAUSE at `tsc` exits. `equal_gap_reloads`: what a gap of exactly the threshold
  /// does.
  [[nodiscard]] bool exits(std::uint64_t tsc, bool equal_gap_reloads) noexcept {
    if (count_ == 0) return true;
    if (threshold_ != 0) {
      const std::uint64_t gap = tsc - last_;
      // The first PAUSE after VMRUN has no predecessor: an infinite gap.
      const bool new_burst = !seen_ || reloads(gap, equal_gap_reloads);
      seen_ = true;
      last_ = tsc;
      if (new_burst) {
        remaining_ = count_;
        return false;
      }
    }
    return --remaining_ < 0;
  }

  static constexpr std::uint64_t never = ~std::uint64_t{0};

  /// Of PAUSEs at `first`, `first` + `gap`, ...: how many complete before one exits; never.
  [[nodiscard]] std::uint64_t completing(std::uint64_t first, std::uint64_t gap,
                                         bool equal_gap_reloads) const noexcept {
    if (count_ == 0) return 0;
    const auto left = static_cast<std::uint64_t>(remaining_ < 0 ? 0 : remaining_);
    if (threshold_ == 0) return left;
    const bool each_reloads = reloads(gap, equal_gap_reloads);
    if (!seen_ || reloads(first - last_, equal_gap_reloads)) {
      return each_reloads ? never : std::uint64_t{count_} + 1;
    }
    return left == 0 || !each_reloads ? left : never;
  }

  /// As if `number` of them had completed; it is no more than completing() says.
  void complete(std::uint64_t number, std::uint64_t first, std::uint64_t gap,
                bool equal_gap_reloads) noexcept {
    if (number == 0 || count_ == 0) return;
    static_cast<void>(exits(first, equal_gap_reloads));
    if (number == 1) return;
    if (threshold_ != 0) last_ = first + (number - 1) * gap;
    if (threshold_ != 0 && reloads(gap, equal_gap_reloads)) {
      remaining_ = count_;
    } else {
      remaining_ -= static_cast<std::int32_t>(number - 1);
    }
  }

 private:
  [[nodiscard]] bool reloads(std::uint64_t gap, bool equal_gap_reloads) const noexcept {
    return gap > threshold_ || (equal_gap_reloads && gap == threshold_);
  }

  std::uint64_t last_ = 0;
  std::int32_t remaining_ = 0;
  std::uint16_t count_ = 0;
  std::uint16_t threshold_ = 0;
  bool seen_ = false;
};

}  // namespace svmsim::svm
