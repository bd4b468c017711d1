#include "model/marking_source.hpp"

#include "model/physical_cpu.hpp"
#include "workloads/trace/guest_marker.hpp"

namespace svmsim::model {

namespace guest_marker = workloads::guest_marker;

// Emulation in the host retires actions too; its exit is in the recording.
bool MarkingSource::in_guest_mode() const {
  return vcpu_.pcpu != nullptr && vcpu_.pcpu->use() == CpuTime::guest;
}

void MarkingSource::push(workloads::TraceEvent event, std::uint64_t tsc) {
  event.time = tsc;
  event.cpu = static_cast<std::int32_t>(vcpu_.pcpu->index());
  event.tid = vcpu_.tid;
  event.vcpu = static_cast<std::int32_t>(vcpu_.index);
  events_.push(event);
}

void MarkingSource::retire(std::uint64_t tsc, std::uint64_t result) {
  const svm::GuestAction* action = inner_->current();
  if (action != nullptr && action->kind != svm::ActionKind::compute && in_guest_mode() &&
      !vcpu_.before_recording) {
    push(guest_marker::of_action(*action), tsc);
  }
  inner_->retire(tsc, result);
}

void MarkingSource::interrupt(std::uint8_t vector, std::uint64_t tsc) {
  const bool injected = (vcpu_.vmcb.control.event_inj & svm::event_inj::valid) != 0;
  if (vcpu_.apicv_active && !injected && in_guest_mode()) {
    const svm::GuestAction* action = inner_->current();
    push(guest_marker::of_interrupt(vector, action == nullptr ? 0 : action->rip), tsc);
  }
  inner_->interrupt(vector, tsc);
}

}  // namespace svmsim::model
