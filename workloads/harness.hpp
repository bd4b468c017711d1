#pragma once

#include <cstdint>

namespace svmsim::workloads {

/// The batch rule of kvm-unit-tests' vmexit harness (x86/vmexit.c, do_test): the iteration count starts at
/// `start`, is doubled before every batch, and the first batch whose TSC cycles reach `goal` is the last one.
/// A count above 0 replaces all that by one batch of exactly so many iterations. Pure arithmetic: whoever
/// runs the batches reads the TSC.
class BatchHarness {
 public:
  BatchHarness() = default;
  BatchHarness(std::uint64_t start, std::uint64_t goal, std::uint64_t count) noexcept
      : goal_(goal), size_(count > 0 ? count : start), doubling_(count == 0) {}

  /// Starts a batch at `tsc`; batch_size() is then its iteration count.
  void begin(std::uint64_t tsc) noexcept {
    if (doubling_) size_ *= 2;
    begin_tsc_ = tsc;
  }

  /// Ends the batch at `tsc`. Returns whether another one follows.
  bool end(std::uint64_t tsc) noexcept {
    last_cycles_ = tsc - begin_tsc_;
    last_size_ = size_;
    ++batches_;
    // A doubled size that no longer fits ends it too, whatever the goal.
    return doubling_ && last_cycles_ < goal_ && size_ <= UINT64_MAX / 2;
  }

  [[nodiscard]] std::uint64_t batch_size() const noexcept { return size_; }
  /// Batches that have ended.
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_; }
  /// Iterations and TSC cycles of the batch that ended last; 0 before the first.
  [[nodiscard]] std::uint64_t last_batch_size() const noexcept { return last_size_; }
  [[nodiscard]] std::uint64_t last_batch_cycles() const noexcept { return last_cycles_; }
  /// The figure that the tool prints: an integer division, of the last batch.
  [[nodiscard]] std::uint64_t cycles_per_iteration() const noexcept {
    return last_size_ == 0 ? 0 : last_cycles_ / last_size_;
  }

 private:
  std::uint64_t goal_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t begin_tsc_ = 0;
  std::uint64_t last_size_ = 0;
  std::uint64_t last_cycles_ = 0;
  std::uint64_t batches_ = 0;
  bool doubling_ = false;
};

}  // namespace svmsim::workloads
