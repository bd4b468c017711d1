#include "workloads/trace/interrupt_causes.hpp"

#include <algorithm>

namespace svmsim::workloads {

namespace {

constexpr std::uint64_t hypercall_send_ipi = 10;

bool is_accept(EventKind kind) {
  return kind == EventKind::kvm_apic_accept_irq || kind == EventKind::kvm_apicv_accept_irq;
}

}  // namespace

InterruptCauses::InterruptCauses(const Capture& capture, const std::vector<VcpuStream>& streams) {
  std::vector<bool> seen(capture.events.size(), false);
  for (const VcpuStream& stream : streams) {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < stream.events.size(); ++i) {
      seen[stream.events[i]] = true;
      if (capture.events[stream.events[i]].kind != EventKind::kvm_entry) continue;
      close_group(capture, stream, begin, i);
      begin = i + 1;
    }
    close_group(capture, stream, begin, stream.events.size());
  }
  // Accepted by a thread that is no vCPU: a device or a timer of the host.
  for (std::size_t i = 0; i < capture.events.size(); ++i) {
    const TraceEvent& event = capture.events[i];
    if (seen[i] || !is_accept(event.kind)) continue;
    const Key key{{0, static_cast<int>(event.field[0])}, static_cast<std::uint8_t>(event.field[3])};
    accepts_[key].push_back({static_cast<std::uint32_t>(i), InterruptCause::unknown, -1});
  }
  for (auto& [key, accepts] : accepts_) {
    std::sort(accepts.begin(), accepts.end(),
              [](const Accept& a, const Accept& b) { return a.event < b.event; });
  }
}

void InterruptCauses::close_group(const Capture& capture, const VcpuStream& stream, std::size_t begin,
                                  std::size_t end) {
  std::vector<std::uint8_t> sent;
  bool paravirtual = false;
  for (std::size_t i = begin; i < end; ++i) {
    const TraceEvent& event = capture.events[stream.events[i]];
    if (event.kind == EventKind::kvm_apic_ipi) sent.push_back(static_cast<std::uint8_t>(event.field[0]));
    paravirtual =
        paravirtual || (event.kind == EventKind::kvm_hypercall && event.field[0] == hypercall_send_ipi);
  }
  for (std::size_t i = begin; i < end; ++i) {
    const TraceEvent& event = capture.events[stream.events[i]];
    if (!is_accept(event.kind)) continue;
    const auto vector = static_cast<std::uint8_t>(event.field[3]);
    const int target = static_cast<int>(event.field[0]);
    const bool ipi = paravirtual || std::find(sent.begin(), sent.end(), vector) != sent.end();
    const InterruptCause kind = !ipi                    ? InterruptCause::unknown
                                : target == stream.vcpu ? InterruptCause::self_ipi
                                                        : InterruptCause::ipi;
    accepts_[{{stream.vm, target}, vector}].push_back({stream.events[i], kind, ipi ? stream.vcpu : -1});
  }
}

InterruptCauses::Cause InterruptCauses::of(int vm, int vcpu, std::uint8_t vector, std::uint32_t index) const {
  const auto found = accepts_.find({{vm, vcpu}, vector});
  if (found == accepts_.end()) return {};
  const std::vector<Accept>& accepts = found->second;
  const auto after =
      std::lower_bound(accepts.begin(), accepts.end(), index,
                       [](const Accept& accept, std::uint32_t value) { return accept.event < value; });
  if (after == accepts.begin()) return {};
  const Accept& accept = *(after - 1);
  return {accept.kind, accept.sender, accept.event, true};
}

}  // namespace svmsim::workloads
