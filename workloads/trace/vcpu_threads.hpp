#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "workloads/trace/event.hpp"

namespace svmsim::workloads {

/// Tells to which vCPU each event belongs, event by event. Lines with a thread: the thread is a vCPU from its
/// first kvm_entry or kvm_exit on (or kvm_inj_virq and the like, which leave its number open), and one that
/// runs several vCPUs in turn (gVisor) is each of them while it runs it. Lines without a thread: only
/// kvm_entry and kvm_exit say whose they are; what stands between belongs to the vCPU that left its guest
/// last and is still in the host.
///
/// VMs: by process where the lines say it; otherwise two threads with the same vCPU number are of two VMs,
/// and threads are put together in the order of their ids, as a VMM creates them one after the other.
class VcpuThreads {
 public:
  static constexpr std::size_t none = SIZE_MAX;
  /// No host has more; garbage does. The events of further ones belong to no stream.
  static constexpr std::size_t max_streams = 4096;

  struct Stream {
    std::int32_t tid = -1;
    std::int32_t tgid = -1;
    int vcpu = -1;  ///< -1: the lines have not said it yet
    int vm = 0;
  };

  /// Index of the stream that the event belongs to; `none` for a thread that has run no guest so far.
  std::size_t assign(const TraceEvent& event, std::int32_t tgid = -1);

  /// The stream that a thread runs now; `none` for a thread that is no vCPU.
  [[nodiscard]] std::size_t stream_of_thread(std::int32_t tid) const;
  [[nodiscard]] const std::vector<Stream>& streams() const noexcept { return streams_; }
  /// Streams of one vCPU that several threads ran in turn have the same VM and vCPU.
  [[nodiscard]] int vm_count() const noexcept { return vm_count_; }
  [[nodiscard]] bool overflow() const noexcept { return overflow_; }
  /// How the VMs were told apart, in words.
  [[nodiscard]] const std::string& evidence() const noexcept { return evidence_; }

 private:
  struct Slot {
    std::size_t current = none;
    bool roams = false;
  };

  std::size_t by_thread(const TraceEvent& event, std::int32_t tgid);
  std::size_t by_field(const TraceEvent& event);
  std::size_t add(std::int32_t tid, std::int32_t tgid, int vcpu);
  void group();

  std::vector<Stream> streams_;
  std::unordered_map<std::int32_t, Slot> slots_;
  std::int32_t last_tid_ = -1;
  Slot* last_slot_ = nullptr;
  std::size_t current_ = none;  ///< lines without a thread
  std::vector<bool> in_host_;
  bool roaming_ = false;
  bool overflow_ = false;
  int vm_count_ = 0;
  std::string evidence_;
};

}  // namespace svmsim::workloads
