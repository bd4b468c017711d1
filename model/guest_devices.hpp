#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <boost/random/mersenne_twister.hpp>

#include "model/host_timer.hpp"
#include "workloads/guest/guest_device.hpp"

namespace svmsim::model {

class Hypervisor;
class PhysicalCpu;
class Vcpu;
struct Vm;

/// The host's side of one device of a guest: vhost behind an ioeventfd, and an irqfd. A notification comes
/// back after the device's latency as an interrupt of the pCPU where it was made, whose handler injects the
/// MSI.
///
/// The vhost worker is a latency (host.cost.t_vhost), not a thread. Leaves out its scheduling, queue limits
/// and interrupt moderation.
class GuestDeviceUnit final : public HostTimerClient {
 public:
  GuestDeviceUnit(Hypervisor& hypervisor, Vm& vm, workloads::GuestDevice& device, std::uint64_t seed)
      : hypervisor_(hypervisor), vm_(vm), device_(device), random_(seed), timer_(*this) {}

  [[nodiscard]] std::uint16_t port() const noexcept { return device_.notify_port; }
  /// The guest has written the port. The caller has synchronised.
  void notify(const Vcpu& submitter, PhysicalCpu& cpu);
  void timer_expired(PhysicalCpu& cpu, HostTimer& timer) override;

 private:
  struct Request {
    std::uint64_t due_cycles;
    unsigned vcpu;
  };

  Hypervisor& hypervisor_;
  Vm& vm_;
  workloads::GuestDevice& device_;
  boost::random::mt19937_64 random_;
  std::deque<Request> requests_;
  HostTimer timer_;
};

/// The device of a VM that a port notifies; nullptr when there is none.
[[nodiscard]] GuestDeviceUnit* guest_device(const Vm& vm, std::uint32_t port);

}  // namespace svmsim::model
