#include "workloads/trace/guest_marker.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "workloads/trace/text_scanner.hpp"
#include "workloads/trace/workload_words.hpp"

namespace svmsim::workloads::guest_marker {

using svm::ActionKind;
using svm::GuestAction;

// field: 0 kind, 1 rip, 2 number (or vector), 3 and 4 operand[0] and [1], 5 cycles, 6 length, size and CPL.
TraceEvent of_action(const GuestAction& action) {
  TraceEvent event;
  event.kind = EventKind::svmsim_guest;
  event.field = {
      static_cast<std::uint64_t>(action.kind),
      action.rip,
      action.number,
      action.operand[0],
      action.operand[1],
      action.cycles,
      std::uint64_t{action.length} | std::uint64_t{action.size} << 8 | std::uint64_t{action.cpl} << 16};
  return event;
}

TraceEvent of_interrupt(std::uint8_t vector, std::uint64_t rip) {
  TraceEvent event;
  event.kind = EventKind::svmsim_guest;
  event.field = {interrupt, rip, vector};
  return event;
}

bool is_interrupt(const TraceEvent& event) noexcept {
  return event.field[0] == interrupt;
}

GuestAction action_of(const TraceEvent& event) noexcept {
  const auto& f = event.field;
  GuestAction action;
  action.kind = static_cast<ActionKind>(f[0]);
  action.rip = f[1];
  action.number = static_cast<std::uint32_t>(f[2]);
  action.operand[0] = f[3];
  action.operand[1] = f[4];
  action.cycles = f[5];
  action.length = static_cast<std::uint8_t>(f[6]);
  action.size = static_cast<std::uint8_t>(f[6] >> 8);
  action.cpl = static_cast<std::uint8_t>(f[6] >> 16);
  return action;
}

bool is_marker(std::string_view name, std::string_view& text) noexcept {
  constexpr std::string_view function = "tracing_mark_write";
  std::string_view rest = text;
  if (name == "print") {
    if (rest.substr(0, function.size() + 2) != "tracing_mark_write: ") return false;
    rest.remove_prefix(function.size() + 2);
  } else if (name != function) {
    return false;
  }
  if (rest.substr(0, prefix.size()) != prefix) return false;
  text = rest.substr(prefix.size());
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n'))
    text.remove_suffix(1);
  return true;
}

std::string text(const TraceEvent& event) {
  std::string result = fmt::format("{}vcpu {} rip 0x{:x} ", prefix, event.vcpu, event.field[1]);
  const auto out = std::back_inserter(result);
  if (is_interrupt(event)) {
    fmt::format_to(out, "interrupt 0x{:x}", event.field[2]);
    return result;
  }
  const GuestAction action = action_of(event);
  for (const ActionWord& word : action_words()) {
    if (word.kind != action.kind) continue;
    fmt::format_to(out, "{}", word.word);
    for (const svm::ActionOperand& operand : word.arguments)
      fmt::format_to(out, " 0x{:x}", svm::get_operand(action, operand));
  }
  if (action.length != 0) fmt::format_to(out, " len={}", action.length);
  if (action.size != 0) fmt::format_to(out, " size={}", action.size);
  if (action.cpl != 0) fmt::format_to(out, " cpl={}", action.cpl);
  if (action.cycles != 0 && action.kind != ActionKind::compute)
    fmt::format_to(out, " cycles={}", action.cycles);
  return result;
}

namespace {

bool number(TextScanner& scan, std::uint64_t maximum, std::uint64_t& value) {
  return (scan.hex_0x(value) || scan.decimal(value)) && value <= maximum;
}

bool parse_key(TextScanner& scan, GuestAction& action) {
  std::uint64_t value = 0;
  if (scan.literal("len=")) {
    if (!number(scan, 15, value)) return false;
    action.length = static_cast<std::uint8_t>(value);
  } else if (scan.literal("size=")) {
    if (!number(scan, 64, value)) return false;
    action.size = static_cast<std::uint8_t>(value);
  } else if (scan.literal("cpl=")) {
    if (!number(scan, 3, value)) return false;
    action.cpl = static_cast<std::uint8_t>(value);
  } else {
    return scan.literal("cycles=") && number(scan, UINT64_MAX, action.cycles);
  }
  return true;
}

}  // namespace

bool parse(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  std::uint64_t vcpu = 0;
  std::uint64_t rip = 0;
  if (!scan.literal("vcpu ") || !scan.decimal(vcpu) || vcpu > INT32_MAX || !scan.literal(" rip ") ||
      !scan.hex_0x(rip) || !scan.literal(" ")) {
    return false;
  }
  const std::string_view word = scan.word();
  if (word == "interrupt") {
    std::uint64_t vector = 0;
    scan.skip_blanks();
    if (!number(scan, 255, vector) || !scan.at_end()) return false;
    event.field = of_interrupt(static_cast<std::uint8_t>(vector), rip).field;
  } else {
    const std::vector<ActionWord>& words = action_words();
    const auto found =
        std::find_if(words.begin(), words.end(), [&](const ActionWord& one) { return one.word == word; });
    if (found == words.end()) return false;
    GuestAction action;
    action.kind = found->kind;
    action.rip = rip;
    for (const svm::ActionOperand& operand : found->arguments) {
      std::uint64_t value = 0;
      scan.skip_blanks();
      if (!number(scan, operand.maximum, value)) return false;
      static_cast<void>(svm::set_operand(action, operand, value));
    }
    for (scan.skip_blanks(); !scan.at_end(); scan.skip_blanks()) {
      if (!parse_key(scan, action)) return false;
    }
    event.field = of_action(action).field;
  }
  event.kind = EventKind::svmsim_guest;
  event.vcpu = static_cast<std::int32_t>(vcpu);
  return true;
}

}  // namespace svmsim::workloads::guest_marker
