#include "workloads/trace/ftrace_writer.hpp"

#include <iterator>

#include <fmt/format.h>

#include "apic/apic_registers.hpp"
#include "svm/exit_code.hpp"
#include "workloads/trace/avic_payload.hpp"
#include "workloads/trace/exit_vocabulary.hpp"
#include "workloads/trace/guest_marker.hpp"
#include "workloads/trace/payload_names.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::size_t flush_bytes = std::size_t{1} << 16;

using Output = std::back_insert_iterator<std::string>;

std::uint32_t low(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}
std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

std::string_view thread_comm(const ThreadNames* threads, std::uint64_t tid, std::int64_t cpu,
                             std::string& storage) {
  if (tid == 0) {
    storage = cpu < 0 ? std::string{"swapper"} : fmt::format("swapper/{}", cpu);
    return storage;
  }
  return threads == nullptr ? std::string_view{"<...>"} : threads->comm(static_cast<std::int32_t>(tid));
}

std::string exit_word(std::uint64_t code) {
  if (code < vmx_exit_base || code >= foreign_exit_base) return svm::exit_name_or_hex(code);
  const std::string_view name = vmx_reason_name(code - vmx_exit_base);
  return name.empty() ? fmt::format("0x{:x}", code - vmx_exit_base) : std::string{name};
}

void append_kvm_exit(Output out, const TraceEvent& event, KernelGeneration kernel) {
  const auto& f = event.field;
  fmt::format_to(
      out,
      "vcpu {} reason {} rip 0x{:x} info1 0x{:016x} info2 0x{:016x} intr_info 0x{:08x} error_code 0x{:08x}",
      event.vcpu, exit_word(f[0]), f[1], f[2], f[3], low(f[4]), high(f[4]));
  if (kernel == KernelGeneration::v6_18) fmt::format_to(out, " requests 0x{:016x}", f[5]);
}

void append_inj_exception(Output out, const TraceEvent& event) {
  const auto& f = event.field;
  const std::string_view name = exception_name(static_cast<unsigned>(f[0]));
  if (name.empty()) {
    fmt::format_to(out, "0x{:x}", f[0]);
  } else {
    fmt::format_to(out, "{}", name);
  }
  if (f[1] != 0) fmt::format_to(out, " (0x{:x})", f[2]);
  if (f[3] != 0) fmt::format_to(out, " [reinjected]");
}

void append_userspace_exit(Output out, const TraceEvent& event) {
  constexpr std::uint64_t eintr = 4;
  const auto& f = event.field;
  if (f[1] != 0) {
    fmt::format_to(out, "reason {} ({})", f[1] == eintr ? "restart" : "error", f[1]);
    return;
  }
  const std::string_view name = userspace_exit_name(f[0]);
  if (name.empty()) {
    fmt::format_to(out, "reason 0x{:x} ({})", f[0], f[0]);
  } else {
    fmt::format_to(out, "reason {} ({})", name, f[0]);
  }
}

void append_apic_register(Output out, const TraceEvent& event) {
  const auto& f = event.field;
  fmt::format_to(out, "apic_{} {} = 0x{:x}", f[0] != 0 ? "write" : "read", apic::register_text(low(f[1])),
                 f[2]);
}

void append_sched_switch(Output out, const TraceEvent& event, const ThreadNames* threads) {
  const auto& f = event.field;
  std::string previous;
  std::string next;
  fmt::format_to(
      out, "prev_comm={} prev_pid={} prev_prio={} prev_state={} ==> next_comm={} next_pid={} next_prio={}",
      thread_comm(threads, f[0], event.cpu, previous), f[0], f[1], unpack_letters(f[2]),
      thread_comm(threads, f[3], event.cpu, next), f[3], f[4]);
}

void append_text(Output out, const TraceEvent& event, KernelGeneration kernel, const ThreadNames* threads) {
  const auto& f = event.field;
  switch (event.kind) {
    case EventKind::kvm_entry:
      fmt::format_to(out, "vcpu {}, rip 0x{:x}", event.vcpu, f[0]);
      if (kernel == KernelGeneration::v6_18) {
        fmt::format_to(out, " intr_info 0x{:08x} error_code 0x{:08x}", low(f[1]), high(f[1]));
      }
      // No blank before the bracket: the kernel prints none.
      if (f[2] != 0) fmt::format_to(out, "[immediate exit]");
      break;
    case EventKind::kvm_exit:
      append_kvm_exit(out, event, kernel);
      break;
    case EventKind::kvm_apic_ipi:
      fmt::format_to(out, "dst {:x} vec {} ({}|{}|{}|{}|{})", f[1], f[0] & 0xffU,
                     delivery_mode_name(low(f[0] >> 8)), ((f[0] >> 11) & 1U) != 0 ? "logical" : "physical",
                     ((f[0] >> 14) & 1U) != 0 ? "assert" : "de-assert",
                     ((f[0] >> 15) & 1U) != 0 ? "level" : "edge", shorthand_name(low(f[0] >> 18)));
      break;
    case EventKind::kvm_apic_accept_irq:
    case EventKind::kvm_apicv_accept_irq:
      fmt::format_to(out, "apicid {:x} vec {} ({}|{})", f[0], f[3], delivery_mode_name(low(f[1])),
                     f[2] != 0 ? "level" : "edge");
      break;
    case EventKind::kvm_apic:
      append_apic_register(out, event);
      break;
    case EventKind::kvm_msr:
      fmt::format_to(out, "msr_{} {:x} = 0x{:x}{}", f[0] != 0 ? "write" : "read", f[1], f[2],
                     f[3] != 0 ? " (#GP)" : "");
      break;
    case EventKind::kvm_eoi:
    case EventKind::kvm_pv_eoi:
      fmt::format_to(out, "apicid {:x} vector {}", f[0], static_cast<std::int32_t>(low(f[1])));
      break;
    case EventKind::kvm_inj_virq:
      fmt::format_to(out, "{} 0x{:x}{}", f[1] != 0 ? "Soft/INTn" : "IRQ", f[0],
                     f[2] != 0 ? " [reinjected]" : "");
      break;
    case EventKind::kvm_inj_exception:
      append_inj_exception(out, event);
      break;
    case EventKind::kvm_pio:
      // The blank after the value is the kernel's; "(...)" follows it for string I/O.
      fmt::format_to(out, "pio_{} at 0x{:x} size {} count {} val 0x{:x} {}", f[0] != 0 ? "write" : "read",
                     f[1], f[2], f[3], f[4], f[3] > 1 ? "(...)" : "");
      break;
    case EventKind::kvm_hypercall:
      fmt::format_to(out, "nr 0x{:x} a0 0x{:x} a1 0x{:x} a2 0x{:x} a3 0x{:x}", f[0], f[1], f[2], f[3], f[4]);
      break;
    case EventKind::kvm_cpuid:
      fmt::format_to(out, "func {:x} idx {:x} rax {:x} rbx {:x} rcx {:x} rdx {:x}, cpuid entry {}{}", f[0],
                     f[1], f[2], f[3], f[4], f[5], f[6] != 0 ? "found" : "not found",
                     f[7] != 0 ? ", used max basic" : "");
      break;
    case EventKind::kvm_page_fault:
      fmt::format_to(out, "vcpu {} rip 0x{:x} address 0x{:016x} error_code 0x{:x}", event.vcpu, f[0], f[1],
                     f[2]);
      break;
    case EventKind::kvm_halt_poll_ns:
      fmt::format_to(out, "vcpu {}: halt_poll_ns {} ({} {})", event.vcpu, f[1], f[0] != 0 ? "grow" : "shrink",
                     f[2]);
      break;
    case EventKind::kvm_vcpu_wakeup:
      fmt::format_to(out, "{} time {} ns, polling {}", f[1] != 0 ? "wait" : "poll", f[0],
                     f[2] != 0 ? "valid" : "invalid");
      break;
    case EventKind::kvm_userspace_exit:
      append_userspace_exit(out, event);
      break;
    case EventKind::kvm_fpu:
      fmt::format_to(out, "{}", f[0] != 0 ? "load" : "unload");
      break;
    case EventKind::sched_switch:
      append_sched_switch(out, event, threads);
      break;
    case EventKind::sched_waking:
    case EventKind::sched_wakeup: {
      std::string comm;
      fmt::format_to(out, "comm={} pid={} prio={} target_cpu={:03}",
                     thread_comm(threads, f[0], static_cast<std::int64_t>(f[2]), comm), f[0], f[1], f[2]);
      break;
    }
    case EventKind::cpu_idle:
      fmt::format_to(out, "state={} cpu_id={}", f[0], f[1]);
      break;
    case EventKind::kvm_cr:
      fmt::format_to(out, "cr_{} {:x} = 0x{:x}", f[0] != 0 ? "write" : "read", f[1], f[2]);
      break;
    case EventKind::kvm_mmio:
      fmt::format_to(out, "mmio {} len {} gpa 0x{:x} val 0x{:x}", mmio_type_name(low(f[0])), f[1], f[2],
                     f[3]);
      break;
    case EventKind::kvm_apicv_inhibit_changed:
    case EventKind::kvm_avic_incomplete_ipi:
    case EventKind::kvm_avic_unaccelerated_access:
    case EventKind::kvm_avic_ga_log:
    case EventKind::kvm_avic_kick_vcpu_slowpath:
    case EventKind::kvm_avic_doorbell:
      fmt::format_to(out, "{}", payload::avic_text(event, kernel));
      break;
    case EventKind::kvm_hv_timer_state:
      fmt::format_to(out, "vcpu_id {:x} hv_timer {:x}", event.vcpu, f[0]);
      break;
    case EventKind::kvm_wait_lapic_expire: {
      const auto delta = static_cast<std::int64_t>(f[0]);
      fmt::format_to(out, "vcpu {}: delta {} ({})", event.vcpu, delta, delta < 0 ? "early" : "late");
      break;
    }
    case EventKind::kvm_ple_window_update:
      fmt::format_to(out, "vcpu {} old {} new {} ({})", event.vcpu, f[1], f[0],
                     f[0] > f[1] ? "growed" : "shrinked");
      break;
    case EventKind::svmsim_guest:
      fmt::format_to(out, "{}", guest_marker::text(event));
      break;
    case EventKind::kvm_nested_vmenter:
      fmt::format_to(out,
                     "rip: 0x{:016x} vmcb: 0x{:016x} nested_rip: 0x{:016x} int_ctl: 0x{:08x} event_inj: "
                     "0x{:08x} nested_npt={} {}: 0x{:016x}",
                     f[0], f[1], f[2], f[3], low(f[4]), (f[5] & 1U) != 0 ? "y" : "n",
                     (f[5] & 1U) != 0 ? "nested_cr3" : "guest_cr3", (f[5] & 1U) != 0 ? f[6] : f[7]);
      break;
    case EventKind::kvm_nested_vmexit:
      append_kvm_exit(out, event, kernel);
      break;
    case EventKind::kvm_nested_vmexit_inject:
      fmt::format_to(
          out, "reason: {} ext_inf1: 0x{:016x} ext_inf2: 0x{:016x} ext_int: 0x{:08x} ext_int_err: 0x{:08x}",
          svm::exit_name_or_hex(f[0]), f[1], f[2], low(f[3]), high(f[3]));
      break;
    case EventKind::kvm_nested_intr_vmexit:
      fmt::format_to(out, "rip: 0x{:016x}", f[0]);
      break;
    case EventKind::other:
      break;
  }
}

}  // namespace

std::string event_text(const TraceEvent& event, KernelGeneration kernel, const ThreadNames* threads) {
  std::string text;
  append_text(std::back_inserter(text), event, kernel, threads);
  return text;
}

std::uint64_t tsc_to_ns(std::uint64_t cycles, std::uint64_t tsc_hz) noexcept {
  // Whole seconds apart, so that the product below stays in 64 bits for every frequency under 18 GHz.
  constexpr std::uint64_t giga = 1'000'000'000;
  return cycles / tsc_hz * giga + (cycles % tsc_hz * giga + tsc_hz / 2) / tsc_hz;
}

FtraceWriter::FtraceWriter(std::ostream& out, KernelGeneration kernel, std::uint64_t tsc_hz,
                           unsigned fraction_digits)
    : out_(out), kernel_(kernel), tsc_hz_(tsc_hz), fraction_digits_(fraction_digits == 9 ? 9 : 6) {
  buffer_.reserve(flush_bytes + 1024);
  buffer_ +=
      "# tracer: nop\n"
      "#\n"
      "#                                _-----=> irqs-off/BH-disabled\n"
      "#                               / _----=> need-resched\n"
      "#                              | / _---=> hardirq/softirq\n"
      "#                              || / _--=> preempt-depth\n"
      "#                              ||| / _-=> migrate-disable\n"
      "#                              |||| /     delay\n"
      "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
      "#              | |         |   |||||     |         |\n";
}

FtraceWriter::~FtraceWriter() {
  flush();
}

void FtraceWriter::flush() {
  out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  buffer_.clear();
}

void FtraceWriter::append_prefix(const TraceEvent& event, bool interrupts_off) {
  const Output out = std::back_inserter(buffer_);
  constexpr std::uint64_t giga = 1'000'000'000;
  const std::uint64_t ns = tsc_to_ns(event.time, tsc_hz_);
  if (event.tid >= 0 || event.cpu >= 0) {
    const std::string_view comm = event.tid == 0 ? std::string_view{"<idle>"} : threads().comm(event.tid);
    fmt::format_to(out, "{:>16}-{:<7} [{:03}] {}....", comm, event.tid < 0 ? 0 : event.tid,
                   event.cpu < 0 ? 0 : event.cpu, interrupts_off ? 'd' : '.');
  }
  if (fraction_digits_ == 9) {
    fmt::format_to(out, " {:5}.{:09}: ", ns / giga, ns % giga);
  } else {
    const std::uint64_t us = (ns + 500) / 1000;
    fmt::format_to(out, " {:5}.{:06}: ", us / 1'000'000, us % 1'000'000);
  }
}

void FtraceWriter::write(const TraceEvent& event) {
  const bool interrupts_off = event.kind == EventKind::kvm_entry ||
                              (event.kind == EventKind::kvm_exit && kernel_ != KernelGeneration::v6_1);
  append_prefix(event, interrupts_off);
  buffer_ += event.kind == EventKind::svmsim_guest ? "tracing_mark_write" : event_name(event.kind);
  buffer_ += ": ";
  append_text(std::back_inserter(buffer_), event, kernel_, &threads());
  buffer_ += '\n';
  if (buffer_.size() >= flush_bytes) flush();
}

void FtraceWriter::write_other(const TraceEvent& event, std::string_view name, std::string_view text) {
  append_prefix(event, false);
  buffer_ += name;
  buffer_ += ": ";
  buffer_ += text;
  buffer_ += '\n';
  if (buffer_.size() >= flush_bytes) flush();
}

}  // namespace svmsim::workloads
