#pragma once

#include <cstdint>

#include "apic/icr.hpp"
#include "model/config/scenario.hpp"
#include "model/host_timer.hpp"

namespace svmsim::model {

struct Vm;

/// A device of a VM, as the host sees it: interrupts at fixed times on one pCPU, which an irqfd turns into
/// those of the guest. Leaves out what the device does; a level line falls when the guest writes its port.
class Device : public HostTimer {
 public:
  Device(const DeviceConfig& in_config, Vm& in_vm, HostTimerClient& client)
      : HostTimer(client), config(in_config), vm(in_vm), left(in_config.count) {}

  /// The message of kind msi.
  [[nodiscard]] apic::IcrCommand message() const noexcept {
    apic::IcrCommand command;
    command.vector = static_cast<std::uint8_t>(config.vector);
    command.assert = true;
    command.destination = config.destination;
    if (config.logical) command.destination_mode = apic::DestinationMode::logical;
    if (config.lowest_priority) command.delivery = apic::DeliveryMode::lowest_priority;
    return command;
  }

  const DeviceConfig config;
  Vm& vm;
  std::uint64_t left;  ///< interrupts to come, where they are counted
  std::uint64_t next_cycles = 0;
  std::uint64_t period_cycles = 0;
};

}  // namespace svmsim::model
