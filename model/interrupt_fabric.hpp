#pragma once

#include <cstdint>
#include <systemc>

#include "model/interfaces.hpp"

namespace svmsim::model {

/// Carries physical IPIs and doorbells between the pCPUs of the machine, each with one latency, send to
/// pending. Leaves out contention and per-distance latencies.
class InterruptFabric : public sc_core::sc_module, public InterruptFabricInterface {
 public:
  InterruptFabric(const sc_core::sc_module_name& name, std::uint64_t latency_cycles,
                  std::uint64_t doorbell_cycles);

  sc_core::sc_export<InterruptFabricInterface> entry{"entry"};
  sc_core::sc_port<ArrivalInterface, 0> cpus{"cpus"};  ///< bound in pCPU order

  void send(unsigned to_cpu, ArrivalKind kind, std::uint64_t sent_at) override;

 private:
  std::uint64_t latency_cycles_;
  std::uint64_t doorbell_cycles_;
  std::uint64_t sequence_ = 0;
};

}  // namespace svmsim::model
