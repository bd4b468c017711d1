#include "workloads/trace/generation_probe.hpp"

#include "workloads/trace/vcpu_threads.hpp"

namespace svmsim::workloads {

void GenerationProbe::event(const ReadEvent& read, std::size_t stream) {
  const EventKind kind = read.event.kind;
  if (kind == EventKind::other) return;
  if (kind == EventKind::kvm_apicv_inhibit_changed) {
    // "set reason=0, inhibits=0x1 DISABLED": the names came after 6.1.
    // A binary recording has no text.
    if (read.event.field[2] == 0 || !read.event.has_field(3)) return;
    (read.event.field[3] == 0 ? inhibit_without_names_ : inhibit_names_) = true;
    return;
  }
  if (stream == VcpuThreads::none) return;
  if (stream >= vcpus_.size()) vcpus_.resize(stream + 1);
  Vcpu& vcpu = vcpus_[stream];
  switch (kind) {
    case EventKind::kvm_entry:
      entry_prints_intr_info_ = entry_prints_intr_info_ || read.event.has_field(1);
      vcpu.in_guest = true;
      vcpu.detail = false;
      break;
    case EventKind::kvm_exit:
      exit_prints_requests_ = exit_prints_requests_ || read.event.has_field(5);
      exit_behind_fastpath_ = exit_behind_fastpath_ || vcpu.detail;
      vcpu.in_guest = false;
      break;
    case EventKind::kvm_msr:
      vcpu.detail = vcpu.detail || vcpu.in_guest;
      break;
    case EventKind::kvm_apic_ipi:
      if (vcpu.before == EventKind::kvm_apic_accept_irq && !ipi_before_accept_) accept_before_ipi_ = true;
      break;
    case EventKind::kvm_apic_accept_irq:
      if (vcpu.before == EventKind::kvm_apic_ipi && !accept_before_ipi_) ipi_before_accept_ = true;
      break;
    default:
      break;
  }
  vcpu.before = kind;
}

GenerationGuess GenerationProbe::guess() const {
  if (entry_prints_intr_info_) return {KernelGeneration::v6_18, true, "kvm_entry prints intr_info"};
  if (exit_prints_requests_) return {KernelGeneration::v6_18, true, "kvm_exit prints requests"};
  if (exit_behind_fastpath_)
    return {KernelGeneration::v6_1, true, "kvm_exit stands behind the events of its WRMSR fastpath"};
  if (accept_before_ipi_)
    return {KernelGeneration::v6_18, true, "kvm_apic_accept_irq stands before its kvm_apic_ipi"};
  if (inhibit_without_names_)
    return {KernelGeneration::v6_1, true, "kvm_apicv_inhibit_changed prints no names of the inhibits"};
  if (inhibit_names_) {
    return {KernelGeneration::v6_12, true,
            "kvm_apicv_inhibit_changed prints the names of the inhibits, kvm_entry no intr_info"};
  }
  return {KernelGeneration::v6_12, false, "nothing in the text tells 6.1 from 6.12; 6.12 is assumed"};
}

}  // namespace svmsim::workloads
