// Interrupts of devices: MSI, the emulated I/O APIC, and ExtINT of the legacy controller
// (arch/x86/kvm/ioapic.c, irq.c, irq_comm.c, i8259.c; kvm-software.md 1.5, 1.8).

#include "model/hypervisor.hpp"
#include "model/units.hpp"
#include "model/vm.hpp"

namespace svmsim::model {

void Hypervisor::start_device(Device& device, PhysicalCpu& cpu) {
  device.period_cycles = std::max<std::uint64_t>(ns_to_cycles(device.config.period_ns, host_.tsc_hz), 1);
  device.next_cycles = ns_to_cycles(device.config.first_ns, host_.tsc_hz);
  cpu.start_timer(device, device.next_cycles);
}

// The host's handler of the device's interrupt, with the irqfd in it.
void Hypervisor::DeviceInterrupts::timer_expired(PhysicalCpu& cpu, HostTimer& timer) {
  hypervisor.device_interrupt(static_cast<Device&>(timer), cpu);
}

void Hypervisor::device_interrupt(Device& device, PhysicalCpu& cpu) {
  Vm& vm = device.vm;
  cpu.charge(cost_.t_irq_host);
  cpu.synchronise();
  const bool runs = std::any_of(vm.vcpus.begin(), vm.vcpus.end(),
                                [](const Vcpu* vcpu) { return vcpu->state != HostThread::State::ended; });
  if (!runs) return;
  switch (device.config.kind) {
    case DeviceKind::msi:
      irq_delivery_to_apic(vm, cpu, nullptr, device.message());
      break;
    case DeviceKind::line:
      set_irq_line(vm, cpu, device.config.pin, true);
      if (!device.config.level) set_irq_line(vm, cpu, device.config.pin, false);
      break;
    case DeviceKind::ext_int:
      raise_ext_int(vm, cpu, device.config.vector);
      break;
  }
  if (device.config.count != 0 && --device.left == 0) return;
  device.next_cycles += device.period_cycles;
  cpu.start_timer(device, device.next_cycles);
}

// kvm_set_irq for a pin of the I/O APIC.
void Hypervisor::set_irq_line(Vm& vm, PhysicalCpu& cpu, unsigned pin, bool asserted) {
  vm.io_apic.set_pin(pin, asserted, [&](const apic::IcrCommand& message) {
    return irq_delivery_to_apic(vm, cpu, nullptr, message) != 0;
  });
}

// kvm_ioapic_send_eoi, ioapic_mmio_write: what may interrupt again does.
void Hypervisor::io_apic_eoi(Vm& vm, PhysicalCpu& cpu, std::uint8_t vector) {
  vm.io_apic.end_of_interrupt(vector, [&](const apic::IcrCommand& message) {
    return irq_delivery_to_apic(vm, cpu, nullptr, message) != 0;
  });
}

void Hypervisor::io_apic_write(Vm& vm, PhysicalCpu& cpu, std::uint32_t offset, std::uint32_t value) {
  vm.io_apic.write_mmio(offset, value, [&](const apic::IcrCommand& message) {
    return irq_delivery_to_apic(vm, cpu, nullptr, message) != 0;
  });
}

// pic_unlock: the first vCPU that lets the controller's interrupts through.
void Hypervisor::raise_ext_int(Vm& vm, PhysicalCpu& cpu, unsigned vector) {
  vm.pic_vector = static_cast<int>(vector);
  for (Vcpu* vcpu : vm.vcpus) {
    if (!vcpu->apic().passes_ext_int()) continue;
    vcpu->requests |= request::event;
    kick(*vcpu, cpu);
    return;
  }
}

// The guest's OUT to the port of a device.
void Hypervisor::acknowledge_devices(Vm& vm, PhysicalCpu& cpu, std::uint32_t port) {
  for (const auto& device : vm.devices) {
    if (device->config.ack_port != port || !device->config.level) continue;
    cpu.synchronise();
    set_irq_line(vm, cpu, device->config.pin, false);
  }
}

}  // namespace svmsim::model
