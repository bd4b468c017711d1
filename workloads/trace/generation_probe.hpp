#pragma once

#include <string>
#include <vector>

#include "workloads/kernel_generation.hpp"
#include "workloads/trace/trace_sink.hpp"

namespace svmsim::workloads {

/// What the text says about the kernel that wrote it.
struct GenerationGuess {
  KernelGeneration kernel = KernelGeneration::v6_12;
  bool certain = false;
  std::string evidence;  ///< one sentence
};

/// Watches events for what only one generation of kernels prints: fields (6.18's intr_info and requests) and
/// the order of events (6.1's kvm_exit behind its fastpath, 6.18's acceptance before its IPI).
class GenerationProbe {
 public:
  /// `stream` is VcpuThreads' answer.
  void event(const ReadEvent& read, std::size_t stream);
  [[nodiscard]] GenerationGuess guess() const;

 private:
  struct Vcpu {
    EventKind before = EventKind::other;
    bool in_guest = false;
    bool detail = false;
  };

  std::vector<Vcpu> vcpus_;
  bool entry_prints_intr_info_ = false;
  bool exit_prints_requests_ = false;
  bool exit_behind_fastpath_ = false;
  bool ipi_before_accept_ = false;
  bool accept_before_ipi_ = false;
  bool inhibit_names_ = false;
  bool inhibit_without_names_ = false;
};

}  // namespace svmsim::workloads
