#include "workloads/guest/apic_driver.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "apic/apic_registers.hpp"
#include "apic/destination.hpp"
#include "apic/icr.hpp"
#include "svm/user_error.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::workloads {

namespace {

using apic::DestinationMode;
using apic::IcrCommand;
using apic::Shorthand;
using svm::ActionKind;
using svm::GuestAction;

constexpr std::uint64_t apic_page = 0xfee00000;
constexpr std::uint32_t apic_eoi = 0xb0;
constexpr std::uint32_t apic_ldr = 0xd0;
constexpr std::uint32_t apic_dfr = 0xe0;
constexpr std::uint32_t apic_icr = 0x300;
constexpr std::uint32_t apic_icr2 = 0x310;
constexpr std::uint32_t dfr_flat = 0xffffffff;
constexpr unsigned flat_cpus = 8;

// Places of the functions behind ApicDriverConfig::text: one page each is plenty.
constexpr std::uint32_t in_send_ipi = 0x000;
constexpr std::uint32_t in_send_mask = 0x100;
constexpr std::uint32_t in_shorthand = 0x200;
constexpr std::uint32_t in_kvm = 0x300;
constexpr std::uint32_t in_self = 0x400;
constexpr std::uint32_t in_boot = 0x500;
constexpr std::uint32_t in_eoi = 0x600;

GuestAction instruction(ActionKind kind, std::uint64_t rip, std::uint8_t length) {
  GuestAction action;
  action.kind = kind;
  action.rip = rip;
  action.length = length;
  return action;
}

GuestAction load(std::uint32_t offset, std::uint64_t rip) {
  GuestAction action = instruction(ActionKind::memory_read, rip, 6);
  action.size = 4;
  action.operand[1] = apic_page + offset;
  return action;
}

GuestAction store(std::uint32_t offset, std::uint32_t value, std::uint64_t rip) {
  GuestAction action = instruction(ActionKind::memory_write, rip, 6);
  action.size = 4;
  action.operand[0] = value;
  action.operand[1] = apic_page + offset;
  return action;
}

GuestAction wrmsr(std::uint32_t msr, std::uint64_t value, std::uint64_t rip) {
  GuestAction action = instruction(ActionKind::wrmsr, rip, 2);
  action.number = msr;
  action.operand[0] = value;
  return action;
}

GuestAction hypercall(std::uint32_t number, std::array<std::uint64_t, 4> arguments, std::uint64_t rip) {
  GuestAction action = instruction(ActionKind::vmmcall, rip, 3);
  action.number = number;
  action.operand = arguments;
  return action;
}

// __prepare_ICR: fixed or NMI; the level is left 0, which fixed and NMI do not look at.
std::uint32_t prepare_icr(Shorthand shorthand, std::uint8_t vector, DestinationMode mode) {
  IcrCommand command;
  command.shorthand = shorthand;
  command.destination_mode = mode;
  if (vector == guest_vector::nmi) {
    command.delivery = apic::DeliveryMode::nmi;
  } else {
    command.vector = vector;
  }
  return command.low();
}

DestinationMode destination_mode(ApicDriverKind kind) {
  const bool logical = kind == ApicDriverKind::xapic_flat || kind == ApicDriverKind::x2apic_cluster;
  return logical ? DestinationMode::logical : DestinationMode::physical;
}

// local_irq_save and local_irq_restore of a caller that runs with interrupts on.
GuestAction irq_save(std::uint64_t rip) {
  return instruction(ActionKind::cli, rip, 1);
}
GuestAction irq_restore(std::uint64_t rip) {
  GuestAction action = instruction(ActionKind::popf, rip, 1);
  action.operand[0] = svm::rflags::always_one | svm::rflags::interrupt;
  return action;
}

}  // namespace

ApicDriver::ApicDriver(ApicDriverConfig config)
    : config_(std::move(config)), shorthands_(!config_.no_ipi_broadcast && config_.cpus > 1) {
  if (config_.kind == ApicDriverKind::xapic_flat && config_.cpus > flat_cpus) {
    throw InternalError("the flat APIC driver has no more than 8 CPUs");
  }
  if (!config_.ids.empty() && config_.ids.size() != config_.cpus) {
    throw InternalError("an APIC driver needs one APIC ID for each CPU");
  }
  // pv_ipi_supported: not with one possible CPU.
  if (config_.cpus == 1) config_.pv_send_ipi = false;
}

void ApicDriver::init_apic_ldr(unsigned cpu, Actions& out) const {
  if (config_.kind != ApicDriverKind::xapic_flat) return;
  const std::uint64_t rip = config_.text + in_boot;
  out.push_back(store(apic_dfr, dfr_flat, rip));
  out.push_back(store(apic_ldr, 1U << (24 + cpu), rip + 6));
}

// __default_send_IPI_dest_field in xAPIC mode: poll, ICR2, ICR. native_x2apic_icr_write in x2APIC mode.
void ApicDriver::write_icr(std::uint32_t icr, std::uint32_t destination, std::uint32_t place,
                           Actions& out) const {
  const std::uint64_t rip = config_.text + place;
  if (is_x2apic(config_.kind)) {
    out.push_back(wrmsr(apic::msr_x2apic_icr, std::uint64_t{destination} << 32 | icr, rip + 1));
    return;
  }
  out.push_back(load(apic_icr, rip + 1));
  out.push_back(store(apic_icr2, destination << 24, rip + 7));
  out.push_back(store(apic_icr, icr, rip + 13));
}

// __default_send_IPI_shortcut, __x2apic_send_IPI_shorthand: no destination, so no ICR2.
void ApicDriver::send_shorthand(std::uint32_t shorthand, std::uint8_t vector, Actions& out) const {
  const auto which = static_cast<Shorthand>(shorthand);
  const std::uint32_t icr = prepare_icr(which, vector, DestinationMode::physical);
  if (is_x2apic(config_.kind)) return write_icr(icr, 0, in_shorthand, out);
  const std::uint64_t rip = config_.text + in_shorthand;
  out.push_back(load(apic_icr, rip + 1));
  out.push_back(store(apic_icr, icr, rip + 7));
}

void ApicDriver::send_ipi(unsigned cpu, std::uint8_t vector, Actions& out) {
  switch (config_.kind) {
    case ApicDriverKind::xapic_flat:  // default_send_IPI_single: __apic_send_IPI_mask(cpumask_of(cpu))
      one_[0] = cpu;
      return send_ipi_mask(one_, vector, out);
    case ApicDriverKind::xapic_physical:  // default_send_IPI_single_phys
      out.push_back(irq_save(config_.text + in_send_ipi));
      write_icr(prepare_icr(Shorthand::none, vector, DestinationMode::physical), id_of(cpu), in_send_ipi,
                out);
      out.push_back(irq_restore(config_.text + in_send_ipi + 19));
      return;
    case ApicDriverKind::x2apic_physical:
      return write_icr(prepare_icr(Shorthand::none, vector, DestinationMode::physical), id_of(cpu),
                       in_send_ipi, out);
    case ApicDriverKind::x2apic_cluster:
      return write_icr(prepare_icr(Shorthand::none, vector, DestinationMode::logical),
                       apic::x2apic_logical_id(id_of(cpu)), in_send_ipi, out);
  }
}

void ApicDriver::send_ipi_mask(const CpuMask& mask, std::uint8_t vector, Actions& out) {
  if (mask.empty()) return;
  if (config_.pv_send_ipi) return send_mask_pv(mask, vector, out);
  send_mask_native(mask, vector, out);
}

void ApicDriver::send_mask_native(const CpuMask& mask, std::uint8_t vector, Actions& out) {
  out.push_back(irq_save(config_.text + in_send_mask));
  const std::uint32_t icr = prepare_icr(Shorthand::none, vector, destination_mode(config_.kind));
  switch (config_.kind) {
    case ApicDriverKind::xapic_flat: {  // flat_send_IPI_mask: one message to all of them
      std::uint32_t logical = 0;
      for (const unsigned cpu : mask)
        logical |= 1U << cpu;
      write_icr(icr, logical, in_send_mask, out);
      break;
    }
    case ApicDriverKind::xapic_physical:  // default_send_IPI_mask_sequence_phys
    case ApicDriverKind::x2apic_physical:
      for (const unsigned cpu : mask)
        write_icr(icr, id_of(cpu), in_send_mask, out);
      break;
    case ApicDriverKind::x2apic_cluster: {
      // __x2apic_send_IPI_mask: one message a cluster, in the order of each cluster's first CPU.
      left_ = mask;
      for (std::size_t first = 0; first < left_.size(); ++first) {
        constexpr unsigned sent = ~0U;
        if (left_[first] == sent) continue;
        const std::uint32_t cluster = apic::x2apic_logical_id(id_of(left_[first])) >> 16;
        std::uint32_t destination = 0;
        for (std::size_t i = first; i < left_.size(); ++i) {
          if (left_[i] == sent) continue;
          const std::uint32_t logical = apic::x2apic_logical_id(id_of(left_[i]));
          if (logical >> 16 != cluster) continue;
          destination |= logical;
          left_[i] = sent;
        }
        write_icr(icr, destination, in_send_mask, out);
      }
      break;
    }
  }
  out.push_back(irq_restore(config_.text + in_send_mask + 19));
}

// __send_ipi_mask: a window of 128 APIC IDs that grows in both directions; a CPU outside of it closes it.
void ApicDriver::send_mask_pv(const CpuMask& mask, std::uint8_t vector, Actions& out) const {
  constexpr unsigned bits_per_long = 64;
  const std::uint32_t icr = prepare_icr(Shorthand::none, vector, DestinationMode::physical);
  const std::uint64_t rip = config_.text + in_kvm;
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  const auto call = [&] {
    out.push_back(hypercall(kvm_hypercall::send_ipi, {low, high, min, icr}, rip + 1));
  };
  out.push_back(irq_save(rip));
  for (const unsigned cpu : mask) {
    const std::uint32_t id = id_of(cpu);
    if ((low | high) == 0) {
      min = max = id;
    } else if (id < min && max - id < kvm_hypercall::ipi_cluster_size) {
      const std::uint32_t shift = min - id;
      high = shift >= bits_per_long ? low << (shift - bits_per_long)
                                    : high << shift | low >> (bits_per_long - shift);
      low = shift >= bits_per_long ? 0 : low << shift;
      min = id;
    } else if (id > min && id < min + kvm_hypercall::ipi_cluster_size) {
      max = std::max(id, max);
    } else {
      call();
      min = max = id;
      low = high = 0;
    }
    const std::uint32_t bit = id - min;
    (bit < bits_per_long ? low : high) |= std::uint64_t{1} << (bit % bits_per_long);
  }
  call();
  out.push_back(irq_restore(rip + 4));
}

void ApicDriver::send_ipi_mask_allbutself(unsigned self, const CpuMask& mask, std::uint8_t vector,
                                          Actions& out) {
  others_.clear();
  for (const unsigned cpu : mask) {
    if (cpu != self) others_.push_back(cpu);
  }
  send_ipi_mask(others_, vector, out);
}

void ApicDriver::send_ipi_self(std::uint8_t vector, Actions& out) const {
  if (is_x2apic(config_.kind)) {
    out.push_back(wrmsr(apic::msr_x2apic_self_ipi, vector, config_.text + in_self + 1));
    return;
  }
  send_shorthand(static_cast<std::uint32_t>(Shorthand::self), vector, out);
}

void ApicDriver::send_call_function(unsigned self, const CpuMask& mask, Actions& out) {
  if (shorthands_) {
    const bool has_self = std::binary_search(mask.begin(), mask.end(), self);
    if (mask.size() + (has_self ? 0 : 1) == config_.cpus) {
      const Shorthand which = has_self ? Shorthand::all_including_self : Shorthand::all_excluding_self;
      return send_shorthand(static_cast<std::uint32_t>(which), guest_vector::call_function, out);
    }
  }
  send_ipi_mask(mask, guest_vector::call_function, out);
}

void ApicDriver::send_allbutself(unsigned self, std::uint8_t vector, Actions& out) {
  if (config_.cpus < 2) return;
  if (shorthands_)
    return send_shorthand(static_cast<std::uint32_t>(Shorthand::all_excluding_self), vector, out);
  CpuMask all(config_.cpus);
  std::iota(all.begin(), all.end(), 0U);
  send_ipi_mask_allbutself(self, all, vector, out);
}

void ApicDriver::kick(unsigned cpu, Actions& out) const {
  out.push_back(hypercall(kvm_hypercall::kick_cpu, {0, id_of(cpu), 0, 0}, config_.text + in_kvm + 0x40));
}

void ApicDriver::sched_yield(unsigned cpu, Actions& out) const {
  out.push_back(hypercall(kvm_hypercall::sched_yield, {id_of(cpu), 0, 0, 0}, config_.text + in_kvm + 0x50));
}

svm::GuestAction ApicDriver::eoi() const noexcept {
  const std::uint64_t rip = config_.text + in_eoi;
  return is_x2apic(config_.kind) ? wrmsr(apic::msr_x2apic_eoi, 0, rip) : store(apic_eoi, 0, rip);
}

}  // namespace svmsim::workloads
