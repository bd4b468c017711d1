#include <iterator>

#include <fmt/format.h>

#include "apic/apic_registers.hpp"
#include "svm/exit_code.hpp"
#include "workloads/trace/exit_vocabulary.hpp"
#include "workloads/trace/payload_names.hpp"
#include "workloads/trace/trace_dat_layout.hpp"

// The `print fmt:` lines of format files: C expressions that trace-cmd, KernelShark and perf interpret. They
// print what event_text() prints. libtraceevent compares without signs and wants one symbol at least, so two
// of the kernel's own expressions are written otherwise.

namespace svmsim::workloads {

namespace {

/// __print_symbolic of a value by its names.
class Symbols {
 public:
  explicit Symbols(std::string_view value) : text_(fmt::format("__print_symbolic({}", value)) {}
  void add(std::uint64_t value, std::string_view name) {
    if (!name.empty()) fmt::format_to(std::back_inserter(text_), ", {{ 0x{:x}, \"{}\" }}", value, name);
  }
  [[nodiscard]] std::string text() const { return text_ + ")"; }

 private:
  std::string text_;
};

std::string delivery_modes(std::string_view value) {
  Symbols names(value);
  for (unsigned mode = 0; mode < 8; ++mode)
    names.add(mode, delivery_mode_name(mode));
  return names.text();
}

std::string registers(std::string_view value) {
  Symbols names(value);
  for (std::uint32_t offset = 0; offset < 0x500; offset += 0x10)
    names.add(offset, apic::register_name(offset));
  return names.text();
}

std::string exit_print(KernelGeneration kernel) {
  Symbols svm("REC->exit_reason");
  for (std::uint64_t code = 0; code < 0x500; ++code)
    svm.add(code, svm::exit_name(code));
  svm.add(0xffff'ffff, svm::exit_name(~std::uint64_t{0}));
  Symbols vmx("REC->exit_reason & 0xffff");
  for (std::uint64_t reason = 0; reason < 0x100; ++reason)
    vmx.add(reason, vmx_reason_name(reason));
  const bool newest = kernel == KernelGeneration::v6_18;
  return fmt::format(
      "\"vcpu %u reason %s rip 0x%lx info1 0x%016llx info2 0x%016llx intr_info 0x%08x error_code 0x%08x{}\", "
      "REC->vcpu_id, (REC->isa == 1) ? {} : {}, REC->guest_rip, REC->info1, REC->info2, REC->intr_info, "
      "REC->error_code{}",
      newest ? " requests 0x%016llx" : "", vmx.text(), svm.text(), newest ? ", REC->requests" : "");
}

std::string exception_print() {
  Symbols names("REC->exception");
  for (unsigned vector = 0; vector < 32; ++vector)
    names.add(vector, exception_name(vector));
  return fmt::format(
      "\"%s%s%s%s%s\", {}, !REC->has_error ? \"\" : \" (\", !REC->has_error ? \"\" : "
      "__print_symbolic(REC->error_code, {{ 0xffffffff, \"-1\" }}), !REC->has_error ? \"\" : \")\", "
      "REC->reinjected ? \" "
      "[reinjected]\" : \"\"",
      names.text());
}

std::string userspace_print() {
  Symbols names("REC->reason");
  for (std::uint64_t reason = 0; reason < 64; ++reason)
    names.add(reason, userspace_exit_name(reason));
  return fmt::format(
      "\"reason %s (%d)\", REC->errno < 0 ? (REC->errno == -4 ? \"restart\" : \"error\") : {}, REC->errno < "
      "0 "
      "? -REC->errno : REC->reason",
      names.text());
}

std::string ipi_print() {
  Symbols shorthands("REC->icr_low >> 18 & 0x3");
  for (unsigned shorthand = 0; shorthand < 4; ++shorthand)
    shorthands.add(shorthand, shorthand_name(shorthand));
  return fmt::format(
      "\"dst %x vec %u (%s|%s|%s|%s|%s)\", REC->dest_id, (u8)REC->icr_low, {}, (REC->icr_low & 0x800) ? "
      "\"logical\" : \"physical\", (REC->icr_low & 0x4000) ? \"assert\" : \"de-assert\", (REC->icr_low & "
      "0x8000) ? \"level\" : \"edge\", {}",
      delivery_modes("REC->icr_low >> 8 & 0x7"), shorthands.text());
}

std::string inhibit_print(KernelGeneration kernel) {
  std::string names;
  if (kernel != KernelGeneration::v6_1) {
    names = "__print_flags(REC->inhibits, \"|\"";
    for (unsigned bit = 0; bit < apicv_inhibit_count; ++bit)
      fmt::format_to(std::back_inserter(names), ", {{ 0x{:x}, \"{}\" }}", 1U << bit, apicv_inhibit_name(bit));
    names = ", (REC->inhibits) ? \" \" : \"\", (REC->inhibits) ? " + names + ") : \"\"";
  }
  return fmt::format(
      "\"%s reason=%u, inhibits=0x%lx{}\", REC->set ? \"set\" : \"cleared\", REC->reason, "
      "REC->inhibits{}",
      names.empty() ? "" : "%s%s", names);
}

std::string switch_print() {
  constexpr std::string_view letters = "SDTtXZPI";
  std::string flags = "__print_flags(REC->prev_state & 0xff, \"|\"";
  for (std::size_t bit = 0; bit < letters.size(); ++bit)
    fmt::format_to(std::back_inserter(flags), ", {{ 0x{:x}, \"{}\" }}", 1U << bit, letters[bit]);
  return fmt::format(
      "\"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d next_prio=%d\", "
      "REC->prev_comm, REC->prev_pid, REC->prev_prio, (REC->prev_state & 0xff) ? {}) : \"R\", "
      "REC->prev_state & 0x100 ? \"+\" : \"\", REC->next_comm, REC->next_pid, REC->next_prio",
      flags);
}

}  // namespace

std::string record_print_format(EventKind kind, KernelGeneration kernel) {
  switch (kind) {
    case EventKind::kvm_entry:
      return kernel == KernelGeneration::v6_18
                 ? R"f("vcpu %u, rip 0x%lx intr_info 0x%08x error_code 0x%08x%s", REC->vcpu_id, REC->rip, )f"
                   R"f(REC->intr_info, REC->error_code, REC->immediate_exit ? "[immediate exit]" : "")f"
                 : R"f("vcpu %u, rip 0x%lx%s", REC->vcpu_id, REC->rip, )f"
                   R"f(REC->immediate_exit ? "[immediate exit]" : "")f";
    case EventKind::kvm_exit:
      return exit_print(kernel);
    case EventKind::kvm_apic_ipi:
      return ipi_print();
    case EventKind::kvm_apic_accept_irq:
    case EventKind::kvm_apicv_accept_irq:
      return fmt::format(
          "\"apicid %x vec %u (%s|%s)\", REC->apicid, REC->vec, {}, REC->tm ? \"level\" : \"edge\"",
          delivery_modes("REC->dm >> 8 & 0x7"));
    case EventKind::kvm_apic:
      return fmt::format("\"apic_%s %s = 0x%llx\", REC->rw ? \"write\" : \"read\", {}, REC->val",
                         registers("REC->reg"));
    case EventKind::kvm_msr:
      return R"f("msr_%s %x = 0x%llx%s", REC->write ? "write" : "read", REC->ecx, REC->data, )f"
             R"f(REC->exception ? " (#GP)" : "")f";
    case EventKind::kvm_eoi:
    case EventKind::kvm_pv_eoi:
      return R"f("apicid %x vector %d", REC->apicid, REC->vector)f";
    case EventKind::kvm_inj_virq:
      return R"f("%s 0x%x%s", REC->soft ? "Soft/INTn" : "IRQ", REC->vector, )f"
             R"f(REC->reinjected ? " [reinjected]" : "")f";
    case EventKind::kvm_inj_exception:
      return exception_print();
    case EventKind::kvm_pio:
      return R"f("pio_%s at 0x%x size %d count %d val 0x%x %s", REC->rw ? "write" : "read", REC->port, )f"
             R"f(REC->size, REC->count, REC->val, REC->count > 1 ? "(...)" : "")f";
    case EventKind::kvm_hypercall:
      return R"f("nr 0x%lx a0 0x%lx a1 0x%lx a2 0x%lx a3 0x%lx", REC->nr, REC->a0, REC->a1, REC->a2, REC->a3)f";
    case EventKind::kvm_cpuid:
      return R"f("func %x idx %x rax %lx rbx %lx rcx %lx rdx %lx, cpuid entry %s%s", REC->function, )f"
             R"f(REC->index, REC->rax, REC->rbx, REC->rcx, REC->rdx, REC->found ? "found" : "not found", )f"
             R"f(REC->used_max_basic ? ", used max basic" : "")f";
    case EventKind::kvm_page_fault:
      return R"f("vcpu %u rip 0x%lx address 0x%016llx error_code 0x%llx", REC->vcpu_id, REC->guest_rip, )f"
             R"f(REC->fault_address, REC->error_code)f";
    case EventKind::kvm_halt_poll_ns:
      return R"f("vcpu %u: halt_poll_ns %u (%s %u)", REC->vcpu_id, REC->new, REC->grow ? "grow" : "shrink", )f"
             R"f(REC->old)f";
    case EventKind::kvm_vcpu_wakeup:
      return R"f("%s time %lld ns, polling %s", REC->waited ? "wait" : "poll", REC->ns, )f"
             R"f(REC->valid ? "valid" : "invalid")f";
    case EventKind::kvm_userspace_exit:
      return userspace_print();
    case EventKind::kvm_fpu:
      return R"f("%s", REC->load ? "load" : "unload")f";
    case EventKind::kvm_cr:
      return R"f("cr_%s %x = 0x%lx", REC->rw ? "write" : "read", REC->cr, REC->val)f";
    case EventKind::kvm_mmio: {
      Symbols types("REC->type");
      for (unsigned type = 0; type < 3; ++type)
        types.add(type, mmio_type_name(type));
      return fmt::format("\"mmio %s len %u gpa 0x%llx val 0x%llx\", {}, REC->len, REC->gpa, REC->val",
                         types.text());
    }
    case EventKind::kvm_apicv_inhibit_changed:
      return inhibit_print(kernel);
    case EventKind::kvm_avic_incomplete_ipi:
      return R"f("vcpu=%u, icrh:icrl=0x%08x:%08x, id=%u, index=%u", REC->vcpu, REC->icrh, REC->icrl, REC->id, )f"
             R"f(REC->index)f";
    case EventKind::kvm_avic_unaccelerated_access:
      return fmt::format(
          "\"vcpu=%u, offset=0x%x(%s), %s, %s, vec=0x%x\", REC->vcpu, REC->offset, {}, REC->ft ? "
          "\"trap\" : \"fault\", REC->rw ? \"write\" : \"read\", REC->vec",
          registers("REC->offset"));
    case EventKind::kvm_avic_ga_log:
      return R"f("vmid=%u, vcpuid=%u", REC->vmid, REC->vcpuid)f";
    case EventKind::kvm_avic_kick_vcpu_slowpath:
      return R"f("icrh:icrl=0x%06x:%08x, index=%u", REC->icrh, REC->icrl, REC->index)f";
    case EventKind::kvm_avic_doorbell:
      return R"f("vcpuid=%u, apicid=%u", REC->vcpuid, REC->apicid)f";
    case EventKind::kvm_hv_timer_state:
      return R"f("vcpu_id %x hv_timer %x", REC->vcpu_id, REC->hv_timer_in_use)f";
    case EventKind::kvm_wait_lapic_expire:
      return R"f("vcpu %u: delta %lld (%s)", REC->vcpu_id, REC->delta, (REC->delta >> 63) ? "early" : "late")f";
    case EventKind::kvm_ple_window_update:
      return R"f("vcpu %u old %u new %u (%s)", REC->vcpu_id, REC->old, REC->new, )f"
             R"f(REC->old < REC->new ? "growed" : "shrinked")f";
    case EventKind::sched_switch:
      return switch_print();
    case EventKind::sched_waking:
    case EventKind::sched_wakeup:
      return R"f("comm=%s pid=%d prio=%d target_cpu=%03d", REC->comm, REC->pid, REC->prio, REC->target_cpu)f";
    case EventKind::cpu_idle:
      return R"f("state=%lu cpu_id=%lu", (unsigned long)REC->state, (unsigned long)REC->cpu_id)f";
    default:
      return {};
  }
}

}  // namespace svmsim::workloads
