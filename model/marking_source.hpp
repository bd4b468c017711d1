#pragma once

#include <memory>
#include <utility>

#include "model/event_hub.hpp"
#include "model/vcpu.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::model {

/// Stands between a vCPU and its workload, and puts into the recording what leaves no exit: every instruction
/// that guest mode carried out alone, and every interrupt that AVIC delivered
/// (workloads/trace/guest_marker.hpp). The recording of a marker takes no simulated time, so that a run is
/// the same with markers and without. Leaves out compute, which the times between events tell, and with it
/// guest code that shares memory.
class MarkingSource final : public workloads::WorkloadSource {
 public:
  MarkingSource(std::unique_ptr<workloads::WorkloadSource> inner, const Vcpu& vcpu, EventHub& events)
      : inner_(std::move(inner)), vcpu_(vcpu), events_(events) {}

  [[nodiscard]] workloads::InitialState initial_state() const override { return inner_->initial_state(); }
  [[nodiscard]] const svm::GuestAction* current() override { return inner_->current(); }
  void retire(std::uint64_t tsc, std::uint64_t result) override;
  void interrupt(std::uint8_t vector, std::uint64_t tsc) override;
  void restart() override { inner_->restart(); }
  [[nodiscard]] std::uint64_t resume_compute(std::uint64_t left_cycles) override {
    return inner_->resume_compute(left_cycles);
  }
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t vector) const override {
    return inner_->handler_entry(vector);
  }
  const std::vector<unsigned>& retire_shared(std::uint64_t tsc) override {
    return inner_->retire_shared(tsc);
  }
  [[nodiscard]] std::uint64_t spin_ready() const override { return inner_->spin_ready(); }
  void attach(workloads::PvMemory& memory) override { inner_->attach(memory); }
  [[nodiscard]] bool finished() const override { return inner_->finished(); }
  [[nodiscard]] std::vector<workloads::GuestDevice>* devices() override { return inner_->devices(); }
  [[nodiscard]] bool serves() const override { return inner_->serves(); }
  void exited(std::uint64_t exit_code, std::uint64_t tsc) override { inner_->exited(exit_code, tsc); }
  [[nodiscard]] bool has_external_causes() const override { return inner_->has_external_causes(); }
  bool take_host_interrupt() override { return inner_->take_host_interrupt(); }
  std::optional<std::uint8_t> take_external_interrupt() override { return inner_->take_external_interrupt(); }
  [[nodiscard]] bool begins_inside_exit() const override { return inner_->begins_inside_exit(); }
  [[nodiscard]] workloads::Metrics metrics() const override { return inner_->metrics(); }
  [[nodiscard]] std::string failure() const override { return inner_->failure(); }

 private:
  [[nodiscard]] bool in_guest_mode() const;
  void push(workloads::TraceEvent event, std::uint64_t tsc);

  std::unique_ptr<workloads::WorkloadSource> inner_;
  const Vcpu& vcpu_;
  EventHub& events_;
};

}  // namespace svmsim::model
