#include "model/stats/latency_stats.hpp"

#include <algorithm>

namespace svmsim::model {

LatencyStats& LatencyStats::operator+=(const LatencyStats& other) {
  if (buckets_.size() < other.buckets_.size()) buckets_.resize(other.buckets_.size());
  for (std::size_t i = 0; i < other.buckets_.size(); ++i)
    buckets_[i] += other.buckets_[i];
  sum_ += other.sum_;
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
  return *this;
}

double LatencyStats::mean() const noexcept {
  return count_ == 0 ? 0.0 : static_cast<double>(sum_) / static_cast<double>(count_);
}

std::uint64_t LatencyStats::percentile(unsigned per_mille) const noexcept {
  if (count_ == 0) return 0;
  const auto wanted = static_cast<std::uint64_t>((Wide{count_} * per_mille + 999) / 1000);
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen >= wanted && seen != 0) return std::min(largest_of(bucket), max_);
  }
  return max_;
}

}  // namespace svmsim::model
