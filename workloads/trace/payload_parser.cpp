#include "workloads/trace/payload_parser.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "svm/exit_code.hpp"
#include "workloads/trace/avic_payload.hpp"
#include "workloads/trace/guest_marker.hpp"
#include "workloads/trace/payload_forms.hpp"
#include "workloads/trace/payload_names.hpp"
#include "workloads/trace/text_scanner.hpp"

namespace svmsim::workloads {

using namespace payload;

namespace {

using Fields = std::array<std::uint64_t, 8>;

constexpr std::size_t max_foreign_exits = 4096;

}  // namespace

std::uint64_t PayloadParser::exit_code(std::string_view reason) {
  for (std::size_t i = 0; i < reasons_.size(); ++i) {
    if (reasons_[i].text != reason) continue;
    const std::uint64_t code = reasons_[i].code;
    if (i > 4) std::swap(reasons_[i], reasons_[i / 2]);
    return code;
  }
  std::uint64_t code = 0;
  std::vector<std::string>& foreign = names_->foreign_exits;
  const std::optional<KnownExit> known = known_exit(reason);
  if (known && (known->isa == Isa::svm || known->isa == Isa::vmx)) {
    code = known->code;
  } else if (foreign.size() < max_foreign_exits) {
    code = foreign_exit_base + foreign.size();
    foreign.emplace_back(printable(reason));
  } else {
    return foreign_exit_base + max_foreign_exits;  // garbage: no recording has so many reasons
  }
  if (reasons_.size() < max_foreign_exits) reasons_.push_back({std::string{reason}, code});
  return code;
}

bool PayloadParser::parse_exit(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  if (scan.literal("vcpu ")) {
    if (!parse_vcpu(scan, event) || !scan.literal(" ")) return false;
  }
  std::string_view reason;
  // A reason may hold blanks ("PF excp", "UNKNOWN (166)").
  if (!scan.literal("reason ") || !scan.until(" rip 0x", reason) || reason.empty() || reason.size() > 64)
    return false;
  if (!scan.hex(f[1])) return false;
  f[0] = exit_code(reason);
  scan.skip_blanks();
  event.absent = 0b0011'1100;
  if (scan.literal("info ")) {
    event.absent = 0b0011'0000;
    if (!scan.hex(f[2]) || !scan.literal(" ") || !scan.hex(f[3])) return false;
  }
  return parse_pairs(scan, [&](std::string_view key, std::string_view value) {
    std::uint64_t number = 0;
    const auto present = [&](unsigned index) {
      event.absent = static_cast<std::uint8_t>(event.absent & ~(1U << index));
    };
    const bool known =
        key == "info1" || key == "info2" || key == "intr_info" || key == "error_code" || key == "requests";
    if (!known) return true;
    if (!hex_value(value, number)) return false;
    if (key == "info1") {
      f[2] = number;
      present(2);
    } else if (key == "info2") {
      f[3] = number;
      present(3);
    } else if (key == "intr_info") {
      f[4] |= number & 0xffff'ffffU;
      present(4);
    } else if (key == "error_code") {
      f[4] |= number << 32;
    } else {
      f[5] = number;
      present(5);
    }
    return true;
  });
}

bool PayloadParser::parse_switch(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  std::string_view previous;
  std::string_view next;
  std::string_view state;
  if (!scan.literal("prev_comm=") || !scan.until(" prev_pid=", previous) || !scan.decimal(f[0]) ||
      !scan.literal(" prev_prio=") || !scan.decimal(f[1]) || !scan.literal(" prev_state=") ||
      !scan.until(" ==> next_comm=", state) || state.size() > 8 || !scan.until(" next_pid=", next) ||
      !scan.decimal(f[3]) || !scan.literal(" next_prio=") || !scan.decimal(f[4]) || f[0] > INT32_MAX ||
      f[3] > INT32_MAX) {
    return false;
  }
  f[2] = pack_letters(state);
  // Thread 0 is one idle thread per CPU: no name of its own.
  if (f[0] != 0) names_->threads.set(static_cast<std::int32_t>(f[0]), previous);
  if (f[3] != 0) names_->threads.set(static_cast<std::int32_t>(f[3]), next);
  return true;
}

bool PayloadParser::parse_wakeup(std::string_view text, TraceEvent& event) {
  TextScanner scan(text);
  Fields& f = event.field;
  std::string_view comm;
  std::uint64_t success = 0;
  if (!scan.literal("comm=") || !scan.until(" pid=", comm) || !scan.decimal(f[0]) || f[0] > INT32_MAX ||
      !scan.literal(" prio=") || !scan.decimal(f[1])) {
    return false;
  }
  if (scan.literal(" success=") && !scan.decimal(success)) return false;
  if (!scan.literal(" target_cpu=") || !scan.decimal(f[2])) return false;
  if (f[0] != 0) names_->threads.set(static_cast<std::int32_t>(f[0]), comm);
  return true;
}

bool PayloadParser::parse(std::string_view text, TraceEvent& event) {
  switch (event.kind) {
    case EventKind::kvm_entry:
      return parse_entry(text, event);
    case EventKind::kvm_exit:
      return parse_exit(text, event);
    case EventKind::kvm_apic_ipi:
      return parse_ipi(text, event);
    case EventKind::kvm_apic_accept_irq:
    case EventKind::kvm_apicv_accept_irq:
      return parse_accept(text, event);
    case EventKind::kvm_apic:
      return parse_apic(text, event);
    case EventKind::kvm_msr:
      return parse_msr(text, event);
    case EventKind::kvm_eoi:
    case EventKind::kvm_pv_eoi:
      return parse_eoi(text, event);
    case EventKind::kvm_inj_virq:
      return parse_inj_virq(text, event);
    case EventKind::kvm_inj_exception:
      return parse_inj_exception(text, event);
    case EventKind::kvm_pio:
      return parse_pio(text, event);
    case EventKind::kvm_hypercall:
      return parse_hypercall(text, event);
    case EventKind::kvm_cpuid:
      return parse_cpuid(text, event);
    case EventKind::kvm_page_fault:
      return parse_page_fault(text, event);
    case EventKind::kvm_halt_poll_ns:
      return parse_halt_poll(text, event);
    case EventKind::kvm_vcpu_wakeup:
      return parse_vcpu_wakeup(text, event);
    case EventKind::kvm_userspace_exit:
      return parse_userspace_exit(text, event);
    case EventKind::kvm_fpu:
      return parse_fpu(text, event);
    case EventKind::sched_switch:
      return parse_switch(text, event);
    case EventKind::sched_waking:
    case EventKind::sched_wakeup:
      return parse_wakeup(text, event);
    case EventKind::cpu_idle:
      return parse_cpu_idle(text, event);
    case EventKind::kvm_cr:
      return parse_cr(text, event);
    case EventKind::kvm_mmio:
      return parse_mmio(text, event);
    case EventKind::kvm_apicv_inhibit_changed:
    case EventKind::kvm_avic_incomplete_ipi:
    case EventKind::kvm_avic_unaccelerated_access:
    case EventKind::kvm_avic_ga_log:
    case EventKind::kvm_avic_kick_vcpu_slowpath:
    case EventKind::kvm_avic_doorbell:
      return parse_avic(text, event);
    case EventKind::kvm_hv_timer_state:
      return parse_hv_timer_state(text, event);
    case EventKind::kvm_wait_lapic_expire:
      return parse_wait_lapic_expire(text, event);
    case EventKind::kvm_ple_window_update:
      return parse_ple_window(text, event);
    case EventKind::svmsim_guest:
      return guest_marker::parse(text, event);
    case EventKind::kvm_nested_vmenter:  // not read (readable_event_kind_of)
    case EventKind::kvm_nested_vmexit:
    case EventKind::kvm_nested_vmexit_inject:
    case EventKind::kvm_nested_intr_vmexit:
    case EventKind::other:
      return true;
  }
  return false;
}

std::string_view PayloadParser::grammar(EventKind kind) {
  switch (kind) {
    case EventKind::kvm_entry:
      return "vcpu N[, rip 0xX][ intr_info 0xX error_code 0xX]";
    case EventKind::kvm_exit:
      return "[vcpu N ]reason NAME rip 0xX[ info1 0xX info2 0xX intr_info 0xX error_code 0xX]";
    case EventKind::kvm_apic_ipi:
      return "dst X vec N (MODE|physical|assert|edge|SHORTHAND)";
    case EventKind::kvm_apic_accept_irq:
    case EventKind::kvm_apicv_accept_irq:
      return "apicid X vec N (MODE|edge)";
    case EventKind::kvm_apic:
      return "apic_write APIC_REGISTER = 0xX";
    case EventKind::kvm_msr:
      return "msr_write X = 0xX[ (#GP)]";
    case EventKind::kvm_eoi:
    case EventKind::kvm_pv_eoi:
      return "apicid X vector N";
    case EventKind::kvm_inj_virq:
      return "IRQ 0xX[ [reinjected]] or irq N";
    case EventKind::kvm_inj_exception:
      return "#NAME[ (0xX)][ [reinjected]]";
    case EventKind::kvm_pio:
      return "pio_write at 0xX size N count N[ val 0xX]";
    case EventKind::kvm_hypercall:
      return "nr 0xX a0 0xX a1 0xX a2 0xX a3 0xX";
    case EventKind::kvm_cpuid:
      return "func X[ idx X] rax X rbx X rcx X rdx X[, cpuid entry found]";
    case EventKind::kvm_page_fault:
      return "vcpu N rip 0xX address 0xX error_code 0xX, or address X error_code X";
    case EventKind::kvm_halt_poll_ns:
      return "vcpu N: halt_poll_ns N (grow N)";
    case EventKind::kvm_vcpu_wakeup:
      return "wait time N ns[, polling valid]";
    case EventKind::kvm_userspace_exit:
      return "reason NAME (N)";
    case EventKind::kvm_fpu:
      return "load or unload";
    case EventKind::sched_switch:
      return "prev_comm=NAME prev_pid=N prev_prio=N prev_state=S ==> next_comm=NAME next_pid=N next_prio=N";
    case EventKind::sched_waking:
    case EventKind::sched_wakeup:
      return "comm=NAME pid=N prio=N target_cpu=N";
    case EventKind::cpu_idle:
      return "state=N cpu_id=N";
    case EventKind::kvm_cr:
      return "cr_write X = 0xX";
    case EventKind::kvm_mmio:
      return "mmio write len N gpa 0xX val 0xX";
    case EventKind::kvm_apicv_inhibit_changed:
    case EventKind::kvm_avic_incomplete_ipi:
    case EventKind::kvm_avic_unaccelerated_access:
    case EventKind::kvm_avic_ga_log:
    case EventKind::kvm_avic_kick_vcpu_slowpath:
    case EventKind::kvm_avic_doorbell:
      return avic_grammar(kind);
    case EventKind::kvm_hv_timer_state:
      return "vcpu_id N hv_timer N";
    case EventKind::kvm_wait_lapic_expire:
      return "vcpu N: delta N (late)";
    case EventKind::kvm_ple_window_update:
      return "vcpu N old N new N (growed)";
    case EventKind::svmsim_guest:
      return "vcpu N rip 0xX ACTION";
    case EventKind::kvm_nested_vmenter:
    case EventKind::kvm_nested_vmexit:
    case EventKind::kvm_nested_vmexit_inject:
    case EventKind::kvm_nested_intr_vmexit:
    case EventKind::other:
      break;
  }
  return "anything";
}

}  // namespace svmsim::workloads
