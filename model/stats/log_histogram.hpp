#pragma once

#include <array>
#include <cstdint>

namespace svmsim::model {

/// KVM's logarithmic histogram (include/linux/kvm_host.h, KVM_STATS_LOG_HIST_UPDATE): bucket 0 counts the
/// value 0, bucket k the values from 2^(k-1) to 2^k - 1, the last bucket all above.
struct LogHistogram {
  static constexpr unsigned buckets = 32;

  std::array<std::uint64_t, buckets> count{};

  [[nodiscard]] static constexpr unsigned bucket_of(std::uint64_t value) noexcept {
    unsigned bits = 0;
    while (value != 0 && bits < buckets - 1) {
      value >>= 1;
      ++bits;
    }
    return bits;
  }
  void add(std::uint64_t value) noexcept { ++count[bucket_of(value)]; }

  LogHistogram& operator-=(const LogHistogram& other) noexcept {
    for (unsigned i = 0; i < buckets; ++i)
      count[i] -= other.count[i];
    return *this;
  }
  LogHistogram& operator+=(const LogHistogram& other) noexcept {
    for (unsigned i = 0; i < buckets; ++i)
      count[i] += other.count[i];
    return *this;
  }
};

}  // namespace svmsim::model
