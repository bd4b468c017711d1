#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/time.hpp"

namespace svmsim::model {

class PhysicalCpu;
class HostTimer;

/// Whose timer it is.
class HostTimerClient {
 public:
  HostTimerClient() = default;
  HostTimerClient(const HostTimerClient&) = delete;
  HostTimerClient& operator=(const HostTimerClient&) = delete;
  virtual ~HostTimerClient() = default;

  /// The timer has expired; called on its pCPU, in interrupt context, not synchronised. It may start the
  /// timer again.
  virtual void timer_expired(PhysicalCpu& cpu, HostTimer& timer) = 0;
};

/// An hrtimer of the host: armed on one pCPU at a time, where it expires with an interrupt
/// (PhysicalCpu::start_timer, kernel/time/hrtimer.c).
class HostTimer {
 public:
  explicit HostTimer(HostTimerClient& client) : client_(client) {}
  HostTimer(const HostTimer&) = delete;
  HostTimer& operator=(const HostTimer&) = delete;

  /// The pCPU where it is armed; nullptr = not armed.
  [[nodiscard]] PhysicalCpu* cpu() const noexcept { return cpu_; }
  [[nodiscard]] std::uint64_t expires_cycles() const noexcept { return expires_; }

 private:
  friend class PhysicalCpu;
  friend class HostTimerQueue;

  HostTimerClient& client_;
  PhysicalCpu* cpu_ = nullptr;
  std::uint64_t expires_ = 0;
  std::uint64_t sequence_ = 0;
  std::size_t slot_ = 0;
};

/// The timers of one pCPU, earliest first; timers of equal time in the order of their start.
class HostTimerQueue {
 public:
  void insert(HostTimer& timer, std::uint64_t expires) {
    timer.expires_ = expires;
    timer.sequence_ = sequence_++;
    timer.slot_ = heap_.size();
    heap_.push_back(&timer);
    up(timer.slot_);
  }
  void erase(HostTimer& timer) {
    const std::size_t slot = timer.slot_;
    HostTimer* last = heap_.back();
    heap_.pop_back();
    if (last == &timer) return;
    put(last, slot);
    up(slot);
    down(last->slot_);
  }
  [[nodiscard]] HostTimer* first() const noexcept { return heap_.empty() ? nullptr : heap_.front(); }
  /// never_cycles when there is none.
  [[nodiscard]] std::uint64_t next_expiry() const noexcept {
    return heap_.empty() ? never_cycles : heap_.front()->expires_;
  }

 private:
  [[nodiscard]] static bool before(const HostTimer& a, const HostTimer& b) noexcept {
    return a.expires_ != b.expires_ ? a.expires_ < b.expires_ : a.sequence_ < b.sequence_;
  }
  void put(HostTimer* timer, std::size_t slot) {
    heap_[slot] = timer;
    timer->slot_ = slot;
  }
  void up(std::size_t slot) {
    HostTimer* timer = heap_[slot];
    while (slot != 0 && before(*timer, *heap_[(slot - 1) / 2])) {
      put(heap_[(slot - 1) / 2], slot);
      slot = (slot - 1) / 2;
    }
    put(timer, slot);
  }
  void down(std::size_t slot) {
    HostTimer* timer = heap_[slot];
    for (;;) {
      std::size_t child = 2 * slot + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && before(*heap_[child + 1], *heap_[child])) ++child;
      if (!before(*heap_[child], *timer)) break;
      put(heap_[child], slot);
      slot = child;
    }
    put(timer, slot);
  }

  std::vector<HostTimer*> heap_;
  std::uint64_t sequence_ = 0;
};

}  // namespace svmsim::model
