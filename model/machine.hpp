#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <systemc>
#include <vector>

#include "model/config/scenario.hpp"
#include "model/event_hub.hpp"
#include "model/exits_change.hpp"
#include "model/host_scheduler.hpp"
#include "model/host_task.hpp"
#include "model/hypervisor.hpp"
#include "model/interrupt_fabric.hpp"
#include "model/physical_cpu.hpp"
#include "model/simulation.hpp"
#include "model/vcpu.hpp"
#include "model/vm.hpp"

namespace svmsim::model {

/// The host and its guests: builds every module of a scenario and binds them. Names go by index:
/// machine.cpu0, machine.vm0_vcpu0.
class Machine : public sc_core::sc_module {
 public:
  /// `markers`: what leaves no exit is recorded too (model/marking_source.hpp).
  Machine(const sc_core::sc_module_name& name, const Scenario& scenario, const SourceFactory& make_source,
          bool markers = false);

  /// Makes the vCPU threads runnable. Called once, after the sinks are attached and before the kernel starts.
  void start();

  [[nodiscard]] EventHub& events() noexcept { return events_; }
  [[nodiscard]] Hypervisor& hypervisor() noexcept { return hypervisor_; }
  [[nodiscard]] const std::vector<std::unique_ptr<PhysicalCpu>>& cpus() const noexcept { return cpus_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Vm>>& vms() const noexcept { return vms_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Vcpu>>& vcpus() const noexcept { return vcpus_; }
  [[nodiscard]] const std::vector<std::unique_ptr<HostTask>>& tasks() const noexcept { return tasks_; }
  [[nodiscard]] const HostScheduler& scheduler() const noexcept { return scheduler_; }
  /// End of the run in cycles; never_cycles without a duration.
  [[nodiscard]] std::uint64_t end_cycles() const noexcept { return end_cycles_; }

  /// tid of the first vCPU thread; the others follow in vCPU order.
  static constexpr std::int32_t first_tid = 1001;

 private:
  [[nodiscard]] const CpuSet* affinity_of(const std::vector<unsigned>& cpus);
  void add_exits_changes(const VmConfig& config, Vm& vm);
  void add_tasks(const HostTaskConfig& config, const Scenario& scenario);
  [[nodiscard]] std::int32_t next_tid() const;

  EventHub events_;
  std::uint64_t end_cycles_;
  InterruptFabric fabric_;
  HostScheduler scheduler_;
  Hypervisor hypervisor_;
  std::vector<std::unique_ptr<PhysicalCpu>> cpus_;
  std::vector<std::unique_ptr<Vm>> vms_;
  std::vector<std::unique_ptr<Vcpu>> vcpus_;
  std::vector<std::unique_ptr<CpuSet>> affinities_;
  std::vector<std::unique_ptr<ExitsChangeThread>> exits_changes_;
  std::vector<std::unique_ptr<HostTask>> tasks_;
};

}  // namespace svmsim::model
