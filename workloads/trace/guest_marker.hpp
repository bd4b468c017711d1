#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "svm/guest_action.hpp"
#include "workloads/trace/event.hpp"

namespace svmsim::workloads {

/// What a guest did without an exit, as a line of the user-space marker file trace_marker:
///
///     tracing_mark_write: svmsim_guest: vcpu 0 rip 0x4004ad hlt len=1
///     tracing_mark_write: svmsim_guest: vcpu 0 rip 0x4004ae interrupt 0xb0
///
/// A recording shows what left the guest. Under other settings other things leave it: a HLT that idle HLT or
/// disabled exits completed, an ICR write or EOI that AVIC carried out, an interrupt that hardware delivered.
/// Marker events keep these, so that a replay knows what the settings of the recording hid. The words are
/// those of the workload file (docs/workload-format.md). The time is that at which the action was over.
namespace guest_marker {

inline constexpr std::string_view prefix = "svmsim_guest: ";
/// TraceEvent::field[0] of an interrupt; else it is the ActionKind.
inline constexpr std::uint64_t interrupt = 255;

[[nodiscard]] TraceEvent of_action(const svm::GuestAction& action);
[[nodiscard]] TraceEvent of_interrupt(std::uint8_t vector, std::uint64_t rip);
[[nodiscard]] bool is_interrupt(const TraceEvent& event) noexcept;
/// Precondition: not is_interrupt().
[[nodiscard]] svm::GuestAction action_of(const TraceEvent& event) noexcept;

/// Whether an event that a reader has met under `name` is a marker; `text` loses what stands before the vCPU.
/// trace-cmd and perf call the event `print` and put the name of the function before its text.
[[nodiscard]] bool is_marker(std::string_view name, std::string_view& text) noexcept;

/// With the prefix.
[[nodiscard]] std::string text(const TraceEvent& event);
/// Text without the prefix. False when it cannot be read.
[[nodiscard]] bool parse(std::string_view text, TraceEvent& event);

}  // namespace guest_marker

}  // namespace svmsim::workloads
