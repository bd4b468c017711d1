#pragma once

#include <cstdint>
#include <systemc>

#include "model/config/scenario.hpp"
#include "model/host_timer.hpp"
#include "model/interfaces.hpp"

namespace svmsim::model {

class Hypervisor;
class Vcpu;

/// A thread of user space that changes the disabled exits of one vCPU at a given time and ends.
class ExitsChangeThread : public sc_core::sc_module, public HostThread, private HostTimerClient {
 public:
  ExitsChangeThread(const sc_core::sc_module_name& name, Hypervisor& hypervisor, Vcpu& vcpu,
                    DisableExitsChange change, std::uint64_t at_cycles);

  sc_core::sc_port<HostSchedulerInterface> scheduler{"scheduler"};

  void run(PhysicalCpu& cpu) override;

 private:
  void timer_expired(PhysicalCpu& cpu, HostTimer& timer) override;

  Hypervisor& hypervisor_;
  Vcpu& vcpu_;
  DisableExitsChange change_;
  std::uint64_t at_cycles_;
  HostTimer alarm_{*this};
};

}  // namespace svmsim::model
