#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "workloads/kernel_generation.hpp"
#include "workloads/trace/event.hpp"
#include "workloads/trace/trace_writer.hpp"

namespace svmsim::workloads {

/// The payload of a line ("vcpu 0, rip 0x406a89"), in the words of a kernel generation
/// (arch/x86/kvm/trace.h): v6_18 adds EVENTINJ to kvm_entry and the requests to kvm_exit. `threads` names the
/// threads of sched events. An event of kind `other` has no text of its own: the result is empty.
[[nodiscard]] std::string event_text(const TraceEvent& event, KernelGeneration kernel,
                                     const ThreadNames* threads = nullptr);

/// Nanoseconds of a TSC count, rounded half up. Precondition: tsc_hz is at least 1.
[[nodiscard]] std::uint64_t tsc_to_ns(std::uint64_t cycles, std::uint64_t tsc_hz) noexcept;

/// Writes events as the kernel's tracefs file `trace` prints them: header, then
/// `COMM-PID [CPU] FLAGS SEC.USEC: event: text`. TraceEvent::time is a TSC count. An event that has neither
/// thread nor CPU is printed in the stripped form ` SEC.USEC: event: text`. Of the latency flags only
/// "interrupts off" is known: KVM traces kvm_entry, and kvm_exit from 6.12 on, with host interrupts off. The
/// entries-in-buffer line is left out, since a stream does not know it in advance.
class FtraceWriter final : public TraceWriter {
 public:
  /// `fraction_digits` is 6 (the kernel's microseconds, rounded half up) or 9.
  FtraceWriter(std::ostream& out, KernelGeneration kernel, std::uint64_t tsc_hz,
               unsigned fraction_digits = 6);
  ~FtraceWriter() override;

  void write(const TraceEvent& event) override;
  void write_other(const TraceEvent& event, std::string_view name, std::string_view text) override;
  void finish() override { flush(); }
  void flush();

 private:
  void append_prefix(const TraceEvent& event, bool interrupts_off);

  std::ostream& out_;
  KernelGeneration kernel_;
  std::uint64_t tsc_hz_;
  unsigned fraction_digits_;
  std::string buffer_;
};

}  // namespace svmsim::workloads
