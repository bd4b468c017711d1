#include "workloads/trace/capture.hpp"

#include <fmt/format.h>

#include "svm/exit_code.hpp"

namespace svmsim::workloads {

std::string_view Capture::name_of(const TraceEvent& event) const {
  if (event.kind != EventKind::other) return event_name(event.kind);
  return event.field[0] < other_names.size() ? std::string_view{other_names[event.field[0]]} : "other";
}

std::string_view Capture::other_text_of(const TraceEvent& event) const {
  const std::string_view all{other_text};
  if (event.kind != EventKind::other || event.field[1] > all.size()) return {};
  return all.substr(event.field[1], event.field[2]);
}

std::string TraceNames::exit_name(std::uint64_t code) const {
  if (code >= vmx_exit_base && code < foreign_exit_base) {
    const std::string_view name = vmx_reason_name(code - vmx_exit_base);
    if (!name.empty()) return std::string{name};
  }
  if (code >= foreign_exit_base && code - foreign_exit_base < foreign_exits.size()) {
    return foreign_exits[code - foreign_exit_base];
  }
  return svm::exit_name_or_hex(code);
}

std::string printable(std::string_view text, std::size_t max_length) {
  std::string result;
  for (const char c : text) {
    if (result.size() >= max_length) return result + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else {
      result += fmt::format("\\x{:02x}", byte);
    }
  }
  return result;
}

}  // namespace svmsim::workloads
