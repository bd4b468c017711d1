#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workloads/trace/capture.hpp"
#include "workloads/trace/event.hpp"

namespace svmsim::workloads {

/// Reads the text of a known event into TraceEvent::field and vcpu, in every form that kernels and
/// trace-cmd's KVM plugin have printed it (kvm-software.md 9.3). Mind the bases: the same vector is decimal
/// in kvm_apic_ipi, kvm_apic_accept_irq and kvm_eoi, hexadecimal in kvm_inj_virq of 5.19 and later (`IRQ
/// 0xb0`), and decimal before (`irq 52`).
class PayloadParser {
 public:
  /// Thread names and foreign exit reasons go into `names`, which must outlive the parser.
  explicit PayloadParser(TraceNames& names) : names_(&names) {}

  /// False when the text has not the form of the event's kind; `event` is then half filled.
  [[nodiscard]] bool parse(std::string_view text, TraceEvent& event);

  /// The form that parse() expects, for messages.
  [[nodiscard]] static std::string_view grammar(EventKind kind);

 private:
  std::uint64_t exit_code(std::string_view reason);
  bool parse_exit(std::string_view text, TraceEvent& event);
  bool parse_switch(std::string_view text, TraceEvent& event);
  bool parse_wakeup(std::string_view text, TraceEvent& event);

  TraceNames* names_;
  struct Reason {
    std::string text;
    std::uint64_t code = 0;
  };
  std::vector<Reason> reasons_;  ///< met so far, the last one first; a capture has few
};

}  // namespace svmsim::workloads
