#pragma once

#include <cstdint>
#include <string>

namespace svmsim::workloads {

/// A device of a guest, as host and guest see it: a write to its port notifies it (ioeventfd), and it answers
/// each notification, in order, by one completion and an MSI.
struct GuestDevice {
  static constexpr unsigned submitter = ~0U;

  std::string name;
  std::uint16_t notify_port = 0;
  std::uint8_t vector = 0;
  unsigned cpu = submitter;          ///< vCPU of the interrupt; submitter = the one that notified
  std::uint64_t latency_cycles = 0;  ///< notification to completion
  std::uint64_t jitter_cycles = 0;   ///< added: uniform between 0 and this
  std::uint64_t completed = 0;       ///< written by the host: completions so far
};

}  // namespace svmsim::workloads
