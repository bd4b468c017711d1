#pragma once

#include <cstdint>
#include <vector>

#include "model/units.hpp"

namespace svmsim::model {

/// A distribution of latencies in cycles: exact count, mean and maximum; percentiles from buckets that are
/// exact up to 255 cycles and at most 1/128 wide above. Memory does not grow with the number of values.
class LatencyStats {
 public:
  void record(std::uint64_t cycles) {
    ++count_;
    sum_ += cycles;
    if (cycles > max_) max_ = cycles;
    const std::size_t bucket = bucket_of(cycles);
    if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
    ++buckets_[bucket];
  }

  LatencyStats& operator+=(const LatencyStats& other);

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t max() const noexcept { return max_; }
  /// 0 without values.
  [[nodiscard]] double mean() const noexcept;
  /// The smallest bucket that holds at least `share` (0..1) of the values: its largest value, at most max().
  /// `per_mille` is 500 for the median. 0 without values.
  [[nodiscard]] std::uint64_t percentile(unsigned per_mille) const noexcept;

 private:
  static constexpr unsigned sub_bits = 7;

  [[nodiscard]] static constexpr std::size_t bucket_of(std::uint64_t value) noexcept {
    // The value's leading sub_bits + 1 bits, and how far they were shifted down.
    if (value >> (sub_bits + 1) == 0) return static_cast<std::size_t>(value);
    const auto shift = 63U - static_cast<unsigned>(__builtin_clzll(value)) - sub_bits;
    return (static_cast<std::size_t>(shift) << sub_bits) + static_cast<std::size_t>(value >> shift);
  }
  [[nodiscard]] static constexpr std::uint64_t largest_of(std::size_t bucket) noexcept {
    if (bucket >> (sub_bits + 1) == 0) return bucket;
    const auto shift = static_cast<unsigned>(bucket >> sub_bits) - 1;
    const std::uint64_t leading = bucket - (static_cast<std::size_t>(shift) << sub_bits);
    return ((leading + 1) << shift) - 1;
  }

  std::vector<std::uint64_t> buckets_;
  Wide sum_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace svmsim::model
