#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "workloads/trace/capture.hpp"
#include "workloads/trace/interrupt_causes.hpp"
#include "workloads/trace/vcpu_stream.hpp"

namespace svmsim::workloads {

/// Causes of the interrupts that guest markers tell of (guest_marker.hpp): no event of KVM says who sent what
/// AVIC delivered. It is what the LAPIC accepted last under that vector (kvm_apicv_accept_irq), or the last
/// marker of an ICR write, by MSR or memory, that reaches the vCPU. Physical destinations and shorthands are
/// followed; a logical destination may be anybody, so it counts for every vCPU of the VM.
class MarkerCauses {
 public:
  MarkerCauses(const Capture& capture, const std::vector<VcpuStream>& streams, const InterruptCauses& causes);

  /// Cause of the interrupt marker that is event `index`.
  [[nodiscard]] Cause of(std::uint32_t index) const {
    const auto found = causes_.find(index);
    return found == causes_.end() ? Cause{} : found->second;
  }

 private:
  std::unordered_map<std::uint32_t, Cause> causes_;
};

}  // namespace svmsim::workloads
