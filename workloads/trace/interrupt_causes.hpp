#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "workloads/trace/capture.hpp"
#include "workloads/trace/replay_workload.hpp"
#include "workloads/trace/vcpu_stream.hpp"

namespace svmsim::workloads {

/// Finds for an injected interrupt the event that brought it: the last kvm_apic_accept_irq of that vector at
/// that LAPIC before the injection, and behind it the IPI that the same exit sent (kvm_apic_ipi, or the
/// hypercall KVM_HC_SEND_IPI). Devices and timers are not told apart yet: they are unknown.
class InterruptCauses {
 public:
  struct Cause {
    InterruptCause kind = InterruptCause::unknown;
    std::int32_t sender = -1;  ///< vCPU
    std::uint32_t event = 0;   ///< index of the accepting event
    bool accepted = false;     ///< an accepting event was found at all
  };

  InterruptCauses(const Capture& capture, const std::vector<VcpuStream>& streams);

  /// Cause of the injection that is event `index` of the capture.
  [[nodiscard]] Cause of(int vm, int vcpu, std::uint8_t vector, std::uint32_t index) const;

 private:
  struct Accept {
    std::uint32_t event;
    InterruptCause kind;
    std::int32_t sender;
  };
  using Key = std::pair<std::pair<int, int>, std::uint8_t>;  ///< VM, vCPU, vector

  void close_group(const Capture& capture, const VcpuStream& stream, std::size_t begin, std::size_t end);

  std::map<Key, std::vector<Accept>> accepts_;
};

}  // namespace svmsim::workloads
