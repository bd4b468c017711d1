#include "workloads/trace/trace_dat_layout.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "workloads/trace/event_system.hpp"
#include "workloads/trace/exit_vocabulary.hpp"
#include "workloads/trace/payload_names.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::uint16_t common_bytes = 8;
constexpr std::size_t comm_bytes = 16;

/// The reverse of what sched_switch prints of prev_state.
std::uint64_t state_bits(std::uint64_t packed) {
  constexpr std::string_view letters = "SDTtXZPI";
  std::uint64_t bits = 0;
  for (const char letter : unpack_letters(packed)) {
    const std::size_t bit = letters.find(letter);
    if (bit != std::string_view::npos) bits |= std::uint64_t{1} << bit;
    if (letter == '+') bits |= std::uint64_t{1} << letters.size();
  }
  return bits;
}

void append_line(std::string& text, std::string_view declaration, unsigned offset, unsigned size,
                 bool is_signed) {
  fmt::format_to(std::back_inserter(text), "\tfield:{};\toffset:{};\tsize:{};\tsigned:{};\n", declaration,
                 offset, size, is_signed ? 1 : 0);
}

}  // namespace

RecordLayout::RecordLayout(EventKind kind, KernelGeneration kernel, std::uint16_t id)
    : name_(event_name(kind)), system_(event_system(name_)), id_(id) {
  if (kind == EventKind::svmsim_guest) {
    // trace_marker's own event: the address of the function that wrote it, and a string up to the end.
    name_ = "print";
    system_ = "ftrace";
    add("unsigned long", "ip", 8, Source::isa);
    add("char", "buf[]", 0, Source::whole);
    is_text_ = true;
    print_ = R"("%ps: %s", (void *)REC->ip, REC->buf)";
    return;
  }
  if (system_ == "kvm") {
    add_kvm_fields(kind, kernel);
  } else {
    add_other_fields(kind);
  }
  print_ = record_print_format(kind, kernel);
}

RecordLayout::RecordLayout(std::string_view name, std::uint16_t id)
    : name_(name), system_("recorded"), id_(id) {
  // A record that is only partly known may not pass for the kernel's own, so it has a system of its own.
  add("__data_loc char[]", "text", 4, Source::whole);
  is_text_ = true;
  print_ = R"("%s", __get_str(text))";
}

void RecordLayout::add(std::string_view type, std::string_view name, std::uint16_t size, Source source,
                       std::uint8_t index, bool is_signed) {
  const std::uint16_t alignment = source == Source::comm ? 1 : std::max<std::uint16_t>(size, 1);
  end_ = static_cast<std::uint16_t>((end_ + alignment - 1) / alignment * alignment);
  fields_.push_back({type, name, size, is_signed, source, index, end_});
  end_ = static_cast<std::uint16_t>(end_ + size);
}

void RecordLayout::add_kvm_fields(EventKind kind, KernelGeneration kernel) {
  const auto u32 = [this](std::string_view name, std::uint8_t index, Source source = Source::whole) {
    add("u32", name, 4, source, index);
  };
  const auto u64 = [this](std::string_view name, std::uint8_t index) {
    add("u64", name, 8, Source::whole, index);
  };
  const auto natural = [this](std::string_view name, std::uint8_t index) {
    add("unsigned long", name, 8, Source::whole, index);
  };
  const auto boolean = [this](std::string_view name, std::uint8_t index) {
    add("bool", name, 1, Source::whole, index);
  };
  const bool newest = kernel == KernelGeneration::v6_18;
  switch (kind) {
    case EventKind::kvm_entry:
      u32("vcpu_id", 0, Source::vcpu);
      natural("rip", 0);
      boolean("immediate_exit", 2);
      if (newest) {
        u32("intr_info", 1, Source::low);
        u32("error_code", 1, Source::high);
      }
      break;
    case EventKind::kvm_exit:
      add("unsigned int", "exit_reason", 4, Source::whole, 0);
      natural("guest_rip", 1);
      u32("isa", 0, Source::isa);
      u64("info1", 2);
      u64("info2", 3);
      u32("intr_info", 4, Source::low);
      u32("error_code", 4, Source::high);
      u32("vcpu_id", 0, Source::vcpu);
      if (newest) u64("requests", 5);
      break;
    case EventKind::kvm_apic_ipi:
      u32("icr_low", 0);
      u32("dest_id", 1);
      break;
    case EventKind::kvm_apic_accept_irq:
    case EventKind::kvm_apicv_accept_irq:
      u32("apicid", 0);
      add("__u16", "dm", 2, Source::delivery, 1);
      add("__u16", "tm", 2, Source::trigger, 2);
      add("__u8", "vec", 1, Source::whole, 3);
      break;
    case EventKind::kvm_apic:
      u32("rw", 0);
      u32("reg", 1);
      u64("val", 2);
      break;
    case EventKind::kvm_msr:
      u32("write", 0);
      u32("ecx", 1);
      u64("data", 2);
      add("u8", "exception", 1, Source::whole, 3);
      break;
    case EventKind::kvm_eoi:
    case EventKind::kvm_pv_eoi:
      u32("apicid", 0);
      add("int", "vector", 4, Source::whole, 1, true);
      break;
    case EventKind::kvm_inj_virq:
      add("unsigned int", "vector", 4, Source::whole, 0);
      boolean("soft", 1);
      boolean("reinjected", 2);
      break;
    case EventKind::kvm_inj_exception:
      add("u8", "exception", 1, Source::whole, 0);
      add("u8", "has_error", 1, Source::whole, 1);
      u32("error_code", 2);
      boolean("reinjected", 3);
      break;
    case EventKind::kvm_pio:
      u32("rw", 0);
      u32("port", 1);
      u32("size", 2);
      u32("count", 3);
      u32("val", 4);
      break;
    case EventKind::kvm_hypercall:
      natural("nr", 0);
      natural("a0", 1);
      natural("a1", 2);
      natural("a2", 3);
      natural("a3", 4);
      break;
    case EventKind::kvm_cpuid:
      u32("function", 0);
      u32("index", 1);
      natural("rax", 2);
      natural("rbx", 3);
      natural("rcx", 4);
      natural("rdx", 5);
      boolean("found", 6);
      boolean("used_max_basic", 7);
      break;
    case EventKind::kvm_page_fault:
      u32("vcpu_id", 0, Source::vcpu);
      natural("guest_rip", 0);
      u64("fault_address", 1);
      u64("error_code", 2);
      break;
    case EventKind::kvm_halt_poll_ns:
      boolean("grow", 0);
      u32("vcpu_id", 0, Source::vcpu);
      u32("new", 1);
      u32("old", 2);
      break;
    case EventKind::kvm_vcpu_wakeup:
      u64("ns", 0);
      boolean("waited", 1);
      boolean("valid", 2);
      break;
    case EventKind::kvm_userspace_exit:
      u32("reason", 0);
      add("int", "errno", 4, Source::error, 1, true);
      break;
    case EventKind::kvm_fpu:
      u32("load", 0);
      break;
    case EventKind::kvm_cr:
      u32("rw", 0);
      u32("cr", 1);
      natural("val", 2);
      break;
    case EventKind::kvm_mmio:
      u32("type", 0);
      u32("len", 1);
      u64("gpa", 2);
      u64("val", 3);
      break;
    case EventKind::kvm_apicv_inhibit_changed:
      add("int", "reason", 4, Source::whole, 0, true);
      boolean("set", 1);
      natural("inhibits", 2);
      break;
    case EventKind::kvm_avic_incomplete_ipi:
      u32("vcpu", 0, Source::vcpu);
      u32("icrh", 0);
      u32("icrl", 1);
      u32("id", 2);
      u32("index", 3);
      break;
    case EventKind::kvm_avic_unaccelerated_access:
      u32("vcpu", 0, Source::vcpu);
      u32("offset", 0);
      boolean("ft", 1);
      boolean("rw", 2);
      u32("vec", 3);
      break;
    case EventKind::kvm_avic_ga_log:
      u32("vmid", 0);
      u32("vcpuid", 1);
      break;
    case EventKind::kvm_avic_kick_vcpu_slowpath:
      u32("icrh", 0);
      u32("icrl", 1);
      u32("index", 2);
      break;
    case EventKind::kvm_avic_doorbell:
      u32("vcpuid", 0);
      u32("apicid", 1);
      break;
    case EventKind::kvm_hv_timer_state:
      u32("vcpu_id", 0, Source::vcpu);
      u32("hv_timer_in_use", 0);
      break;
    case EventKind::kvm_wait_lapic_expire:
      u32("vcpu_id", 0, Source::vcpu);
      add("s64", "delta", 8, Source::whole, 0, true);
      break;
    case EventKind::kvm_ple_window_update:
      u32("vcpu_id", 0, Source::vcpu);
      u32("new", 0);
      u32("old", 1);
      break;
    default:
      break;
  }
}

void RecordLayout::add_other_fields(EventKind kind) {
  const auto integer = [this](std::string_view type, std::string_view name, std::uint8_t index) {
    add(type, name, 4, Source::whole, index, true);
  };
  switch (kind) {
    case EventKind::sched_switch:
      add("char", "prev_comm[16]", comm_bytes, Source::comm, 0);
      integer("pid_t", "prev_pid", 0);
      integer("int", "prev_prio", 1);
      add("long", "prev_state", 8, Source::state, 2, true);
      add("char", "next_comm[16]", comm_bytes, Source::comm, 3);
      integer("pid_t", "next_pid", 3);
      integer("int", "next_prio", 4);
      break;
    case EventKind::sched_waking:
    case EventKind::sched_wakeup:
      add("char", "comm[16]", comm_bytes, Source::comm, 0);
      integer("pid_t", "pid", 0);
      integer("int", "prio", 1);
      integer("int", "target_cpu", 2);
      break;
    case EventKind::cpu_idle:
      add("u32", "state", 4, Source::whole, 0);
      add("u32", "cpu_id", 4, Source::whole, 1);
      break;
    default:
      break;
  }
}

std::string RecordLayout::format_file() const {
  std::string text = fmt::format("name: {}\nID: {}\nformat:\n", name_, id_);
  append_line(text, "unsigned short common_type", 0, 2, false);
  append_line(text, "unsigned char common_flags", 2, 1, false);
  append_line(text, "unsigned char common_preempt_count", 3, 1, false);
  append_line(text, "int common_pid", 4, 4, true);
  text += '\n';
  for (const Field& field : fields_)
    append_line(text, fmt::format("{} {}", field.type, field.name), field.offset, field.size,
                field.is_signed);
  text += "\nprint fmt: " + print_ + "\n";
  return text;
}

std::uint64_t RecordLayout::value_of(const Field& field, const TraceEvent& event) {
  const std::uint64_t value = event.field[field.index];
  switch (field.source) {
    case Source::whole:
    case Source::comm:
      return value;
    case Source::low:
      return value & 0xffff'ffffU;
    case Source::high:
      return value >> 32;
    case Source::vcpu:
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(event.vcpu));
    case Source::isa: {
      // VMX reasons are kept behind a base of their own; their low bits are the reason.
      constexpr std::uint64_t vmx = 1;
      constexpr std::uint64_t svm = 2;
      const std::uint64_t code = event.field[0];
      return code >= vmx_exit_base && code < foreign_exit_base ? vmx : svm;
    }
    case Source::delivery:
      return value << 8;
    case Source::trigger:
      return value != 0 ? 0x8000 : 0;
    case Source::error:
      return 0 - value;
    case Source::state:
      return state_bits(value);
  }
  return 0;
}

namespace {

void put_common(std::string& record, std::uint16_t id, std::uint8_t flags, std::int32_t tid) {
  record.assign(common_bytes, '\0');
  const std::int32_t pid = std::max(tid, 0);
  std::memcpy(record.data(), &id, sizeof id);
  record[2] = static_cast<char>(flags);
  std::memcpy(record.data() + 4, &pid, sizeof pid);
}

}  // namespace

void RecordLayout::encode(const TraceEvent& event, const ThreadNames& threads, std::uint8_t flags,
                          std::string& record) const {
  put_common(record, id_, flags, event.tid);
  record.resize(end_, '\0');
  for (const Field& field : fields_) {
    const std::uint64_t value = value_of(field, event);
    char* const at = record.data() + field.offset;
    if (field.source == Source::comm) {
      const std::string idle = fmt::format("swapper/{}", std::max(event.cpu, 0));
      const std::string_view comm =
          value == 0 ? std::string_view{idle} : threads.comm(static_cast<std::int32_t>(value));
      std::memcpy(at, comm.data(), std::min(comm.size(), comm_bytes - 1));
    } else {
      std::memcpy(at, &value, field.size);  // x86 is little endian, and so is the file
    }
  }
}

void RecordLayout::encode_text(std::int32_t tid, std::string_view text, std::string& record) const {
  put_common(record, id_, 0, tid);
  record.resize(end_, '\0');
  if (system_ == "ftrace") {
    std::memcpy(record.data() + common_bytes, &marker_function, sizeof marker_function);
  } else {
    const auto where = static_cast<std::uint32_t>(end_ | (text.size() + 1) << 16);
    std::memcpy(record.data() + fields_.front().offset, &where, sizeof where);
  }
  record += text;
  record += system_ == "ftrace" ? std::string_view{"\n\0", 2} : std::string_view{"\0", 1};
}

}  // namespace svmsim::workloads
