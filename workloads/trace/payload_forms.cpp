#include "workloads/trace/payload_forms.hpp"

#include <array>
#include <optional>

#include "apic/apic_registers.hpp"
#include "workloads/trace/payload_names.hpp"

namespace svmsim::workloads::payload {

namespace {

using Fields = std::array<std::uint64_t, 8>;

/// `(Fixed|physical|assert|edge|self)`: the next word up to `|` or `)`.
bool next_flag(TextScanner& scan, std::string_view& flag) {
  const std::string_view rest = scan.rest();
  const std::size_t end = rest.find_first_of("|)");
  if (end == std::string_view::npos) return false;
  flag = rest.substr(0, end);
  return scan.literal(rest.substr(0, end + 1));
}

bool parse_one_of(TextScanner& scan, std::string_view zero, std::string_view one, std::uint64_t& bit) {
  std::string_view flag;
  if (!next_flag(scan, flag) || (flag != zero && flag != one)) return false;
  bit = flag == one ? 1 : 0;
  return true;
}

bool parse_mode(TextScanner& scan, std::uint64_t& mode) {
  std::string_view flag;
  if (!next_flag(scan, flag)) return false;
  const std::optional<unsigned> found = delivery_mode_of(flag);
  mode = found.value_or(0);
  return found.has_value();
}

/// The `x_read ` or `x_write ` that starts several texts.
bool parse_direction(TextScanner& scan, std::string_view prefix, std::uint64_t& write) {
  if (!scan.literal(prefix)) return false;
  write = scan.literal("write ") ? 1 : 0;
  return write != 0 || scan.literal("read ");
}

}  // namespace

void set_absent(TraceEvent& event, unsigned index) {
  event.absent = static_cast<std::uint8_t>(event.absent | (1U << index));
}

bool parse_vcpu(TextScanner& scan, TraceEvent& event) {
  std::uint64_t vcpu = 0;
  if (!scan.decimal(vcpu) || vcpu > INT32_MAX) return false;
  event.vcpu = static_cast<std::int32_t>(vcpu);
  return true;
}

bool hex_value(std::string_view text, std::uint64_t& value) {
  TextScanner scan(text);
  return (scan.hex_0x(value) || scan.hex(value)) && scan.at_end();
}

bool parse_entry(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  if (!scan.literal("vcpu ") || !parse_vcpu(scan, event)) return false;
  scan.literal(",");
  scan.skip_blanks();
  Fields& f = event.field;
  if (scan.literal("rip ")) {
    if (!scan.hex_0x(f[0])) return false;
  } else {
    set_absent(event, 0);
  }
  set_absent(event, 1);
  return parse_pairs(scan, [&](std::string_view key, std::string_view value) {
    std::uint64_t number = 0;
    if (key == "[") {
      f[2] |= value == "immediate exit" || value == "imm exit" ? 1U : 0U;
      return true;
    }
    if (key == "intr_info") {
      if (!hex_value(value, number)) return false;
      f[1] |= number & 0xffff'ffffU;
      event.absent = static_cast<std::uint8_t>(event.absent & ~2U);
    } else if (key == "error_code") {
      if (!hex_value(value, number)) return false;
      f[1] |= number << 32;
    }
    return true;
  });
}

bool parse_ipi(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  std::uint64_t vector = 0;
  std::uint64_t mode = 0;
  std::uint64_t logical = 0;
  std::uint64_t assert = 0;
  std::uint64_t level = 0;
  std::string_view shorthand;
  if (!scan.literal("dst ") || !scan.hex(event.field[1]) || !scan.literal(" vec ") || !scan.decimal(vector) ||
      vector > 255 || !scan.literal(" (") || !parse_mode(scan, mode) ||
      !parse_one_of(scan, "physical", "logical", logical) ||
      !parse_one_of(scan, "de-assert", "assert", assert) || !parse_one_of(scan, "edge", "level", level) ||
      !next_flag(scan, shorthand)) {
    return false;
  }
  const std::optional<unsigned> code = shorthand_of(shorthand);
  if (!code) return false;
  event.field[0] =
      vector | mode << 8 | logical << 11 | assert << 14 | level << 15 | std::uint64_t{*code} << 18;
  return true;
}

bool parse_accept(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  return scan.literal("apicid ") && scan.hex(f[0]) && scan.literal(" vec ") && scan.decimal(f[3]) &&
         f[3] <= 255 && scan.literal(" (") && parse_mode(scan, f[1]) &&
         parse_one_of(scan, "edge", "level", f[2]);
}

bool parse_apic(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  if (!parse_direction(scan, "apic_", f[0])) return false;
  const std::string_view name = scan.word();
  const std::int32_t offset = apic::register_by_name(name);
  if (offset >= 0) {
    f[1] = static_cast<std::uint64_t>(offset);
  } else if (!hex_value(name, f[1])) {
    return false;
  }
  return scan.literal(" = ") && scan.hex_0x(f[2]);
}

bool parse_msr(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  if (!parse_direction(scan, "msr_", f[0]) || !scan.hex(f[1]) || !scan.literal(" = ") || !scan.hex_0x(f[2])) {
    return false;
  }
  f[3] = scan.literal(" (#GP)") ? 1 : 0;
  return true;
}

bool parse_eoi(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  if (!scan.literal("apicid ") || !scan.hex(f[0]) || !scan.literal(" vector ")) return false;
  // A spurious EOI prints vector -1.
  if (scan.literal("-1")) {
    f[1] = UINT64_MAX;
    return true;
  }
  return scan.decimal(f[1]);
}

bool parse_inj_virq(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  if (scan.literal("irq ")) {
    set_absent(event, 1);
    set_absent(event, 2);
    return scan.decimal(f[0]);
  }
  f[1] = scan.literal("Soft/INTn ") ? 1 : 0;
  if (f[1] == 0 && !scan.literal("IRQ ")) return false;
  if (!scan.hex_0x(f[0])) return false;
  scan.skip_blanks();
  f[2] = scan.literal("[reinjected]") ? 1 : 0;
  return true;
}

bool parse_inj_exception(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  const std::string_view name = scan.word();
  if (const std::optional<unsigned> vector = exception_of(name)) {
    f[0] = *vector;
  } else if (!hex_value(name, f[0])) {
    return false;
  }
  scan.skip_blanks();
  if (scan.literal("(")) {
    f[1] = 1;
    if (!scan.hex_0x(f[2]) || !scan.literal(")")) return false;
    scan.skip_blanks();
  }
  f[3] = scan.literal("[reinjected]") ? 1 : 0;
  return true;
}

bool parse_pio(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  if (!parse_direction(scan, "pio_", f[0]) || !scan.literal("at ") || !scan.hex_0x(f[1]) || f[1] > 0xffff ||
      !scan.literal(" size ") || !scan.decimal(f[2]) || !scan.literal(" count ") || !scan.decimal(f[3])) {
    return false;
  }
  if (scan.literal(" val ")) return scan.hex_0x(f[4]);
  set_absent(event, 4);
  return true;
}

bool parse_hypercall(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  return scan.literal("nr ") && scan.hex_0x(f[0]) && scan.literal(" a0 ") && scan.hex_0x(f[1]) &&
         scan.literal(" a1 ") && scan.hex_0x(f[2]) && scan.literal(" a2 ") && scan.hex_0x(f[3]) &&
         scan.literal(" a3 ") && scan.hex_0x(f[4]);
}

bool parse_cpuid(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  if (!scan.literal("func ") || !scan.hex(f[0])) return false;
  if (scan.literal(" idx ")) {
    if (!scan.hex(f[1])) return false;
  } else {
    set_absent(event, 1);
  }
  if (!scan.literal(" rax ") || !scan.hex(f[2]) || !scan.literal(" rbx ") || !scan.hex(f[3]) ||
      !scan.literal(" rcx ") || !scan.hex(f[4]) || !scan.literal(" rdx ") || !scan.hex(f[5])) {
    return false;
  }
  if (scan.literal(", cpuid entry ")) {
    f[6] = scan.literal("found") ? 1 : 0;
    if (f[6] == 0 && !scan.literal("not found")) return false;
    f[7] = scan.literal(", used max basic") ? 1 : 0;
  } else {
    set_absent(event, 6);
  }
  return true;
}

bool parse_page_fault(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  if (scan.literal("vcpu ")) {
    return parse_vcpu(scan, event) && scan.literal(" rip ") && scan.hex_0x(f[0]) &&
           scan.literal(" address ") && scan.hex_0x(f[1]) && scan.literal(" error_code ") &&
           scan.hex_0x(f[2]);
  }
  set_absent(event, 0);
  return scan.literal("address ") && scan.hex(f[1]) && scan.literal(" error_code ") && scan.hex(f[2]);
}

bool parse_halt_poll(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  if (!scan.literal("vcpu ") || !parse_vcpu(scan, event) || !scan.literal(": halt_poll_ns ") ||
      !scan.decimal(f[1]) || !scan.literal(" (")) {
    return false;
  }
  f[0] = scan.literal("grow ") ? 1 : 0;
  return (f[0] != 0 || scan.literal("shrink ")) && scan.decimal(f[2]) && scan.literal(")");
}

bool parse_hv_timer_state(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  std::uint64_t vcpu = 0;  // the one event that prints it in hexadecimal
  if (!scan.literal("vcpu_id ") || !scan.hex(vcpu) || vcpu > INT32_MAX || !scan.literal(" hv_timer "))
    return false;
  event.vcpu = static_cast<std::int32_t>(vcpu);
  return scan.hex(event.field[0]);
}

bool parse_ple_window(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  if (!scan.literal("vcpu ") || !parse_vcpu(scan, event) || !scan.literal(" old ") || !scan.decimal(f[1]) ||
      !scan.literal(" new ") || !scan.decimal(f[0])) {
    return false;
  }
  return scan.literal(" (growed)") || scan.literal(" (shrinked)");
}

bool parse_wait_lapic_expire(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  std::uint64_t& delta = event.field[0];
  if (!scan.literal("vcpu ") || !parse_vcpu(scan, event) || !scan.literal(": delta ")) return false;
  const bool early = scan.literal("-");
  if (!scan.decimal(delta)) return false;
  if (early) delta = 0 - delta;
  return scan.literal(early ? " (early)" : " (late)");
}

bool parse_vcpu_wakeup(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  f[1] = scan.literal("wait") ? 1 : 0;
  if ((f[1] == 0 && !scan.literal("poll")) || !scan.literal(" time ") || !scan.decimal(f[0])) return false;
  // Kernels before 4.8 end here.
  if (!scan.literal(" ns, polling ")) {
    set_absent(event, 2);
    return scan.literal(" ns");
  }
  f[2] = scan.literal("valid") ? 1 : 0;
  return f[2] != 0 || scan.literal("invalid");
}

bool parse_userspace_exit(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  std::string_view name;
  std::uint64_t number = 0;
  if (!scan.literal("reason ") || !scan.until(" (", name) || !scan.decimal(number) || !scan.literal(")"))
    return false;
  // The number is an errno behind these two words, the reason behind every other.
  const bool is_errno = name == "restart" || name == "error";
  f[is_errno ? 1 : 0] = number;
  if (is_errno) set_absent(event, 0);
  return true;
}

bool parse_fpu(std::string_view text, TraceEvent& event) {
  event.field[0] = text == "load" ? 1 : 0;
  return text == "load" || text == "unload";
}

bool parse_cr(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  if (scan.literal("cr_write ")) {
    event.field[0] = 1;
  } else if (!scan.literal("cr_read ")) {
    return false;
  }
  return scan.hex(event.field[1]) && scan.literal(" = ") && scan.hex_0x(event.field[2]);
}

bool parse_mmio(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  if (!scan.literal("mmio ")) return false;
  bool known = false;
  for (unsigned type = 0; type < 3 && !known; ++type) {
    known = scan.literal(mmio_type_name(type));
    event.field[0] = type;
  }
  return known && scan.literal(" len ") && scan.decimal(event.field[1]) && scan.literal(" gpa ") &&
         scan.hex_0x(event.field[2]) && scan.literal(" val ") && scan.hex_0x(event.field[3]);
}

bool parse_cpu_idle(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  return scan.literal("state=") && scan.decimal(event.field[0]) && scan.literal(" cpu_id=") &&
         scan.decimal(event.field[1]);
}

}  // namespace svmsim::workloads::payload
