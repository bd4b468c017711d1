#pragma once

#include <cstdint>
#include <string_view>

#include "workloads/trace/event.hpp"
#include "workloads/trace/text_scanner.hpp"

/// The texts of single events. Each function reads one text into TraceEvent::field and says whether it had
/// the event's form.
namespace svmsim::workloads::payload {

void set_absent(TraceEvent& event, unsigned index);
[[nodiscard]] bool parse_vcpu(TextScanner& scan, TraceEvent& event);
/// A hexadecimal number with or without 0x; the whole text.
[[nodiscard]] bool hex_value(std::string_view text, std::uint64_t& value);

/// ` key value` pairs and ` [tag]`s behind the fixed part of a text. `take(key, value)` gets each pair, and
/// ("[", tag) for a tag; it returns false for a value that it cannot read.
template <typename Take>
[[nodiscard]] bool parse_pairs(TextScanner& scan, Take take) {
  for (scan.skip_blanks(); !scan.at_end(); scan.skip_blanks()) {
    std::string_view tag;
    if (scan.literal("[")) {
      if (!scan.until("]", tag)) return false;
      take("[", tag);
      continue;
    }
    const std::string_view key = scan.word();
    scan.skip_blanks();
    const std::string_view value = scan.value();
    if (value.empty() || !take(key, value)) return false;
  }
  return true;
}

[[nodiscard]] bool parse_entry(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_ipi(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_accept(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_apic(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_msr(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_eoi(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_inj_virq(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_inj_exception(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_pio(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_hypercall(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_cpuid(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_page_fault(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_halt_poll(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_vcpu_wakeup(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_userspace_exit(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_fpu(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_cr(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_mmio(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_ple_window(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_hv_timer_state(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_wait_lapic_expire(std::string_view text, TraceEvent& event);
[[nodiscard]] bool parse_cpu_idle(std::string_view text, TraceEvent& event);

}  // namespace svmsim::workloads::payload
