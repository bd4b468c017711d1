#pragma once

#include <cstdint>

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

  HostTimerClient& client_;
  PhysicalCpu* cpu_ = nullptr;
  std::uint64_t expires_ = 0;
};

}  // namespace svmsim::model
