#pragma once

#include <string>
#include <string_view>

#include "workloads/kernel_generation.hpp"
#include "workloads/trace/event.hpp"

/// The texts of AVIC's events (kvm_apicv_inhibit_changed, kvm_avic_*; kvm-software.md 9.3).
namespace svmsim::workloads::payload {

[[nodiscard]] bool is_avic_event(EventKind kind) noexcept;
/// As the kernel prints it. The names of the inhibits came with 6.10.
[[nodiscard]] std::string avic_text(const TraceEvent& event, KernelGeneration kernel);
/// Reads a text into TraceEvent::field; false when it has not the event's form.
[[nodiscard]] bool parse_avic(std::string_view text, TraceEvent& event);
[[nodiscard]] std::string_view avic_grammar(EventKind kind) noexcept;

}  // namespace svmsim::workloads::payload
