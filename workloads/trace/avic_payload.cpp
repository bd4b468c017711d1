#include "workloads/trace/avic_payload.hpp"

#include <fmt/format.h>

#include "apic/apic_registers.hpp"
#include "workloads/trace/payload_forms.hpp"
#include "workloads/trace/payload_names.hpp"

namespace svmsim::workloads::payload {

namespace {

std::uint32_t low(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}

std::string inhibit_names(std::uint64_t inhibits) {
  std::string text;
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (((inhibits >> bit) & 1U) == 0) continue;
    const std::string_view name = apicv_inhibit_name(bit);
    text += text.empty() ? " " : "|";
    text += name.empty() ? fmt::format("0x{:x}", std::uint64_t{1} << bit) : std::string(name);
  }
  return text;
}

bool parse_icr(TextScanner& scan, TraceEvent& event) {
  return scan.literal("icrh:icrl=") && scan.hex_0x(event.field[0]) && scan.literal(":") &&
         scan.hex(event.field[1]);
}

/// One of two words; `bit` is 1 for the second.
bool parse_either(TextScanner& scan, std::string_view zero, std::string_view one, std::uint64_t& bit) {
  bit = scan.literal(one) ? 1 : 0;
  return bit != 0 || scan.literal(zero);
}

bool parse_inhibit(TextScanner& scan, TraceEvent& event) {
  auto& f = event.field;
  if (!parse_either(scan, "cleared", "set", f[1]) || !scan.literal(" reason=") || !scan.decimal(f[0]) ||
      !scan.literal(", inhibits=") || !scan.hex_0x(f[2])) {
    return false;
  }
  // The names behind the number say the same again.
  scan.skip_blanks();
  f[3] = scan.at_end() ? 0 : 1;
  return true;
}

bool parse_unaccelerated(TextScanner& scan, TraceEvent& event) {
  auto& f = event.field;
  std::string_view name;
  return scan.literal("vcpu=") && parse_vcpu(scan, event) && scan.literal(", offset=") && scan.hex_0x(f[0]) &&
         scan.literal("(") && scan.until("), ", name) && parse_either(scan, "fault", "trap", f[1]) &&
         scan.literal(", ") && parse_either(scan, "read", "write", f[2]) && scan.literal(", vec=") &&
         scan.hex_0x(f[3]);
}

}  // namespace

bool is_avic_event(EventKind kind) noexcept {
  return kind >= EventKind::kvm_apicv_inhibit_changed && kind <= EventKind::kvm_avic_doorbell;
}

std::string avic_text(const TraceEvent& event, KernelGeneration kernel) {
  const auto& f = event.field;
  switch (event.kind) {
    case EventKind::kvm_apicv_inhibit_changed:
      return fmt::format("{} reason={}, inhibits=0x{:x}{}", f[1] != 0 ? "set" : "cleared", f[0], f[2],
                         kernel == KernelGeneration::v6_1 ? std::string{} : inhibit_names(f[2]));
    case EventKind::kvm_avic_incomplete_ipi:
      return fmt::format("vcpu={}, icrh:icrl=0x{:08x}:{:08x}, id={}, index={}", event.vcpu, low(f[0]),
                         low(f[1]), f[2], f[3]);
    case EventKind::kvm_avic_unaccelerated_access:
      return fmt::format("vcpu={}, offset=0x{:x}({}), {}, {}, vec=0x{:x}", event.vcpu, f[0],
                         apic::register_text(low(f[0])), f[1] != 0 ? "trap" : "fault",
                         f[2] != 0 ? "write" : "read", f[3]);
    case EventKind::kvm_avic_ga_log:
      return fmt::format("vmid={}, vcpuid={}", f[0], f[1]);
    case EventKind::kvm_avic_kick_vcpu_slowpath:
      // A width of eight digits that counts the prefix.
      return fmt::format("icrh:icrl=0x{:06x}:{:08x}, index={}", low(f[0]), low(f[1]), f[2]);
    case EventKind::kvm_avic_doorbell:
      return fmt::format("vcpuid={}, apicid={}", f[0], f[1]);
    default:
      return {};
  }
}

bool parse_avic(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  auto& f = event.field;
  switch (event.kind) {
    case EventKind::kvm_apicv_inhibit_changed:
      return parse_inhibit(scan, event);
    case EventKind::kvm_avic_incomplete_ipi:
      return scan.literal("vcpu=") && parse_vcpu(scan, event) && scan.literal(", ") &&
             parse_icr(scan, event) && scan.literal(", id=") && scan.decimal(f[2]) &&
             scan.literal(", index=") && scan.decimal(f[3]);
    case EventKind::kvm_avic_unaccelerated_access:
      return parse_unaccelerated(scan, event);
    case EventKind::kvm_avic_ga_log:
      // Newer kernels name the index, not the id.
      return scan.literal("vmid=") && scan.decimal(f[0]) &&
             (scan.literal(", vcpuid=") || scan.literal(", vcpuindex=")) && scan.decimal(f[1]);
    case EventKind::kvm_avic_kick_vcpu_slowpath:
      return parse_icr(scan, event) && scan.literal(", index=") && scan.decimal(f[2]);
    case EventKind::kvm_avic_doorbell:
      return scan.literal("vcpuid=") && scan.decimal(f[0]) && scan.literal(", apicid=") && scan.decimal(f[1]);
    default:
      return false;
  }
}

std::string_view avic_grammar(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::kvm_apicv_inhibit_changed:
      return "set reason=N, inhibits=0xX[ NAMES]";
    case EventKind::kvm_avic_incomplete_ipi:
      return "vcpu=N, icrh:icrl=0xX:X, id=N, index=N";
    case EventKind::kvm_avic_unaccelerated_access:
      return "vcpu=N, offset=0xX(APIC_REGISTER), trap, write, vec=0xX";
    case EventKind::kvm_avic_ga_log:
      return "vmid=N, vcpuid=N";
    case EventKind::kvm_avic_kick_vcpu_slowpath:
      return "icrh:icrl=0xX:X, index=N";
    default:
      return "vcpuid=N, apicid=N";
  }
}

}  // namespace svmsim::workloads::payload
