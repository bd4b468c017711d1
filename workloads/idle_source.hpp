#pragma once

#include "workloads/workload_source.hpp"

namespace svmsim::workloads {

/// A vCPU with nothing to do: one that has no part in a program, or that a recording does not show. It ends
/// at once.
class IdleSource final : public WorkloadSource {
 public:
  [[nodiscard]] InitialState initial_state() const override { return {}; }
  [[nodiscard]] const svm::GuestAction* current() override { return nullptr; }
  void retire(std::uint64_t, std::uint64_t) override {}
  void interrupt(std::uint8_t, std::uint64_t) override {}
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t) const override { return 0; }
  [[nodiscard]] Metrics metrics() const override { return {}; }
};

}  // namespace svmsim::workloads
