#include "model/interrupt_fabric.hpp"

#include <algorithm>

namespace svmsim::model {

InterruptFabric::InterruptFabric(const sc_core::sc_module_name& name, std::uint64_t latency_cycles,
                                 std::uint64_t doorbell_cycles)
    : sc_core::sc_module(name),
      latency_cycles_(std::max<std::uint64_t>(latency_cycles, 1)),
      doorbell_cycles_(std::max<std::uint64_t>(doorbell_cycles, 1)) {
  entry.bind(*this);
}

void InterruptFabric::send(unsigned to_cpu, ArrivalKind kind, std::uint64_t sent_at) {
  const std::uint64_t latency = kind == ArrivalKind::doorbell ? doorbell_cycles_ : latency_cycles_;
  cpus[static_cast<int>(to_cpu)]->post(Arrival{sent_at + latency, sequence_++, kind});
}

}  // namespace svmsim::model
