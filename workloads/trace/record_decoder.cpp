#include "workloads/trace/record_decoder.hpp"

#include <cstring>

#include "workloads/trace/exit_vocabulary.hpp"
#include "workloads/trace/payload_names.hpp"

namespace svmsim::workloads {

namespace {

bool load(const unsigned char* data, std::size_t size, const RawField& field, std::uint64_t& value) {
  if (field.size == 0 || field.offset > size || field.size > size - field.offset) return false;
  const unsigned char* at = data + field.offset;
  switch (field.size) {
    case 1:
      value = *at;
      if (field.is_signed) value = static_cast<std::uint64_t>(static_cast<std::int8_t>(*at));
      return true;
    case 2: {
      std::uint16_t raw = 0;
      std::memcpy(&raw, at, sizeof raw);
      value = field.is_signed ? static_cast<std::uint64_t>(static_cast<std::int16_t>(raw)) : raw;
      return true;
    }
    case 4: {
      std::uint32_t raw = 0;
      std::memcpy(&raw, at, sizeof raw);
      value = field.is_signed ? static_cast<std::uint64_t>(static_cast<std::int32_t>(raw)) : raw;
      return true;
    }
    case 8:
      std::memcpy(&value, at, sizeof value);
      return true;
    default:
      return false;
  }
}

std::string_view load_comm(const unsigned char* data, std::size_t size, const RawField& field) {
  if (field.size == 0 || field.offset > size || field.size > size - field.offset) return {};
  const char* at = reinterpret_cast<const char*>(data + field.offset);
  return {at, strnlen(at, field.size)};
}

/// The letters that sched_switch prints for prev_state (include/trace/events/sched.h).
std::uint64_t state_letters(std::uint64_t state) {
  constexpr std::string_view letters = "SDTtXZPI";
  std::string text;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if ((state >> i & 1U) == 0) continue;
    if (!text.empty()) text += '|';
    text += letters[i];
  }
  if (text.empty()) text = "R";
  if ((state >> letters.size()) != 0) text += '+';
  return pack_letters(text);
}

}  // namespace

void RecordDecoder::add(const Lookup& lookup, const char* name, Target target, std::uint8_t index,
                        bool required) {
  Part part;
  if (lookup(name, part.field)) {
    part.target = target;
    part.index = index;
    parts_.push_back(part);
  } else if (target == Target::whole || target == Target::low) {
    absent_ = static_cast<std::uint8_t>(absent_ | (1U << index));
    if (required) kind_ = EventKind::other;  // not the event that we know by this name
  }
}

RecordDecoder::RecordDecoder(EventKind kind, const Lookup& lookup) : kind_(kind) {
  const auto fields = [&](std::initializer_list<const char*> names) {
    std::uint8_t index = 0;
    for (const char* name : names)
      add(lookup, name, Target::whole, index++);
  };
  switch (kind) {
    case EventKind::kvm_entry:
      add(lookup, "vcpu_id", Target::vcpu, 0);
      add(lookup, "rip", Target::whole, 0, false);
      add(lookup, "intr_info", Target::low, 1, false);
      add(lookup, "error_code", Target::high, 1, false);
      add(lookup, "immediate_exit", Target::whole, 2, false);
      break;
    case EventKind::kvm_exit:
      add(lookup, "vcpu_id", Target::vcpu, 0);
      add(lookup, "exit_reason", Target::whole, 0);
      add(lookup, "guest_rip", Target::whole, 1);
      add(lookup, "info1", Target::whole, 2, false);
      add(lookup, "info2", Target::whole, 3, false);
      add(lookup, "intr_info", Target::low, 4, false);
      add(lookup, "error_code", Target::high, 4, false);
      add(lookup, "requests", Target::whole, 5, false);
      (void)lookup("isa", isa_);
      break;
    case EventKind::kvm_apic_ipi:
      fields({"icr_low", "dest_id"});
      break;
    case EventKind::kvm_apic_accept_irq:
    case EventKind::kvm_apicv_accept_irq:
      fields({"apicid", "dm", "tm", "vec"});
      break;
    case EventKind::kvm_apic:
      fields({"rw", "reg", "val"});
      break;
    case EventKind::kvm_msr:
      fields({"write", "ecx", "data"});
      add(lookup, "exception", Target::whole, 3, false);
      break;
    case EventKind::kvm_eoi:
    case EventKind::kvm_pv_eoi:
      fields({"apicid", "vector"});
      break;
    case EventKind::kvm_inj_virq: {
      RawField old;
      const bool old_form = lookup("irq", old);  // to 5.18
      add(lookup, old_form ? "irq" : "vector", Target::whole, 0);
      add(lookup, "soft", Target::whole, 1, false);
      add(lookup, "reinjected", Target::whole, 2, false);
      break;
    }
    case EventKind::kvm_inj_exception:
      fields({"exception", "has_error", "error_code"});
      add(lookup, "reinjected", Target::whole, 3, false);
      break;
    case EventKind::kvm_pio:
      fields({"rw", "port", "size", "count"});
      add(lookup, "val", Target::whole, 4, false);
      break;
    case EventKind::kvm_hypercall:
      fields({"nr", "a0", "a1", "a2", "a3"});
      break;
    case EventKind::kvm_cpuid:
      add(lookup, "function", Target::whole, 0);
      add(lookup, "index", Target::whole, 1, false);
      add(lookup, "rax", Target::whole, 2);
      add(lookup, "rbx", Target::whole, 3);
      add(lookup, "rcx", Target::whole, 4);
      add(lookup, "rdx", Target::whole, 5);
      add(lookup, "found", Target::whole, 6, false);
      add(lookup, "used_max_basic", Target::whole, 7, false);
      break;
    case EventKind::kvm_page_fault:
      add(lookup, "vcpu_id", Target::vcpu, 0);
      add(lookup, "guest_rip", Target::whole, 0, false);
      add(lookup, "fault_address", Target::whole, 1);
      add(lookup, "error_code", Target::whole, 2);
      break;
    case EventKind::kvm_halt_poll_ns:
      add(lookup, "vcpu_id", Target::vcpu, 0);
      fields({"grow", "new", "old"});
      break;
    case EventKind::kvm_vcpu_wakeup:
      fields({"ns", "waited"});
      add(lookup, "valid", Target::whole, 2, false);
      break;
    case EventKind::kvm_userspace_exit:
      fields({"reason", "errno"});
      break;
    case EventKind::kvm_fpu:
      fields({"load"});
      break;
    case EventKind::sched_switch:
      fields({"prev_pid", "prev_prio", "prev_state", "next_pid", "next_prio"});
      (void)lookup("prev_comm", comms_[0]);
      (void)lookup("next_comm", comms_[1]);
      break;
    case EventKind::sched_waking:
    case EventKind::sched_wakeup:
      fields({"pid", "prio", "target_cpu"});
      (void)lookup("comm", comms_[0]);
      break;
    case EventKind::cpu_idle:
      fields({"state", "cpu_id"});
      break;
    case EventKind::kvm_cr:
      fields({"rw", "cr", "val"});
      break;
    case EventKind::kvm_mmio:
      fields({"type", "len", "gpa", "val"});
      break;
    case EventKind::kvm_apicv_inhibit_changed:
      fields({"reason", "set", "inhibits"});
      absent_ |= 1U << 3;
      break;
    case EventKind::kvm_avic_incomplete_ipi:
      add(lookup, "vcpu", Target::vcpu, 0);
      fields({"icrh", "icrl", "id", "index"});
      break;
    case EventKind::kvm_avic_unaccelerated_access:
      add(lookup, "vcpu", Target::vcpu, 0);
      fields({"offset", "ft", "rw", "vec"});
      break;
    case EventKind::kvm_avic_ga_log: {
      RawField by_id;
      fields({"vmid", lookup("vcpuid", by_id) ? "vcpuid" : "vcpuindex"});
      break;
    }
    case EventKind::kvm_avic_kick_vcpu_slowpath:
      fields({"icrh", "icrl", "index"});
      break;
    case EventKind::kvm_avic_doorbell:
      fields({"vcpuid", "apicid"});
      break;
    case EventKind::kvm_hv_timer_state:
      add(lookup, "vcpu_id", Target::vcpu, 0);
      fields({"hv_timer_in_use"});
      break;
    case EventKind::kvm_wait_lapic_expire:
      add(lookup, "vcpu_id", Target::vcpu, 0);
      fields({"delta"});
      break;
    case EventKind::kvm_ple_window_update:
      add(lookup, "vcpu_id", Target::vcpu, 0);
      fields({"new", "old"});
      break;
    default:
      // A kind whose fields nobody has listed here: its text says all.
      kind_ = EventKind::other;
      break;
  }
}

bool RecordDecoder::decode(const unsigned char* data, std::size_t size, TraceEvent& event) const {
  event.kind = kind_;
  event.absent = absent_;
  for (const Part& part : parts_) {
    std::uint64_t value = 0;
    if (!load(data, size, part.field, value)) return false;
    switch (part.target) {
      case Target::whole:
        event.field[part.index] = value;
        break;
      case Target::low:
        event.field[part.index] |= value & 0xffff'ffffU;
        break;
      case Target::high:
        event.field[part.index] |= value << 32;
        break;
      case Target::vcpu:
        event.vcpu = value <= INT32_MAX ? static_cast<std::int32_t>(value) : -1;
        break;
    }
  }
  if (kind_ == EventKind::kvm_exit) {
    std::uint64_t& reason = event.field[0];
    constexpr std::uint64_t vmx = 1;
    if (isa(data, size) == vmx) {
      reason = vmx_exit_base + (reason & 0xffffU);
    } else if (reason >= 0xffff'ff00U) {
      reason |= 0xffff'ffff'0000'0000U;  // the code is recorded in 32 bits; -1 is INVALID
    }
  }
  finish(event);
  return true;
}

// Brings raw values into the form that the text of the event has.
void RecordDecoder::finish(TraceEvent& event) const {
  auto& f = event.field;
  switch (kind_) {
    case EventKind::kvm_apic_accept_irq:
    case EventKind::kvm_apicv_accept_irq:
      f[1] = f[1] >> 8 & 7U;
      f[2] = f[2] != 0 ? 1 : 0;
      break;
    case EventKind::kvm_userspace_exit:
      if (static_cast<std::int64_t>(f[1]) < 0) {
        f[1] = 0 - f[1];
        f[0] = 0;
        event.absent |= 1U;
      } else {
        f[1] = 0;
      }
      break;
    case EventKind::sched_switch:
      f[2] = state_letters(f[2]);
      break;
    default:
      break;
  }
}

std::array<std::string_view, 2> RecordDecoder::comms(const unsigned char* data, std::size_t size) const {
  return {load_comm(data, size, comms_[0]), load_comm(data, size, comms_[1])};
}

std::uint64_t RecordDecoder::isa(const unsigned char* data, std::size_t size) const {
  std::uint64_t value = 0;
  return load(data, size, isa_, value) ? value : 0;
}

}  // namespace svmsim::workloads
