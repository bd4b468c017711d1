#include "model/guest_devices.hpp"

#include <algorithm>

#include <boost/random/uniform_int_distribution.hpp>

#include "model/hypervisor.hpp"
#include "model/vm.hpp"

namespace svmsim::model {

void GuestDeviceUnit::notify(const Vcpu& submitter, PhysicalCpu& cpu) {
  std::uint64_t due = cpu.local() + std::max<std::uint64_t>(device_.latency_cycles, 1);
  if (!vm_.native) due += cpu.costs().t_vhost;
  if (device_.jitter_cycles != 0)
    due += boost::random::uniform_int_distribution<std::uint64_t>(0, device_.jitter_cycles)(random_);
  if (!requests_.empty()) due = std::max(due, requests_.back().due_cycles);  // a queue is answered in order
  const unsigned vcpu = device_.cpu == workloads::GuestDevice::submitter ? submitter.index : device_.cpu;
  requests_.push_back({due, vcpu});
  if (requests_.size() == 1) cpu.start_timer(timer_, due);
}

GuestDeviceUnit* guest_device(const Vm& vm, std::uint32_t port) {
  for (const auto& device : vm.guest_devices) {
    if (device->port() == port) return device.get();
  }
  return nullptr;
}

// kvm_set_msi.
void Hypervisor::deliver_msi(Vcpu& target, PhysicalCpu& cpu, std::uint8_t vector) {
  apic::IcrCommand message;
  message.vector = vector;
  message.assert = true;
  message.destination = target.index;
  accept_irq(target, cpu, nullptr, message);
}

void GuestDeviceUnit::timer_expired(PhysicalCpu& cpu, HostTimer&) {
  if (!vm_.native) cpu.charge(cpu.costs().t_irq_host);
  cpu.synchronise();
  const Request request = requests_.front();
  requests_.pop_front();
  ++device_.completed;
  if (!requests_.empty()) cpu.start_timer(timer_, std::max(requests_.front().due_cycles, cpu.local() + 1));
  hypervisor_.deliver_msi(*vm_.vcpus[request.vcpu], cpu, device_.vector);
}

}  // namespace svmsim::model
