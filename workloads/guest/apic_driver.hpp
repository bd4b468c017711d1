#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "svm/guest_action.hpp"

namespace svmsim::workloads {

/// The APIC driver of a Linux guest (arch/x86/kernel/apic/{apic_flat_64,x2apic_phys,x2apic_cluster}.c).
enum class ApicDriverKind : std::uint8_t { xapic_flat, xapic_physical, x2apic_physical, x2apic_cluster };

[[nodiscard]] constexpr bool is_x2apic(ApicDriverKind kind) noexcept {
  return kind == ApicDriverKind::x2apic_physical || kind == ApicDriverKind::x2apic_cluster;
}

/// Vectors of arch/x86/include/asm/irq_vectors.h.
namespace guest_vector {
inline constexpr std::uint8_t nmi = 0x02;
inline constexpr std::uint8_t call_function_single = 0xfb;
inline constexpr std::uint8_t call_function = 0xfc;
inline constexpr std::uint8_t reschedule = 0xfd;
}  // namespace guest_vector

/// Hypercalls of include/uapi/linux/kvm_para.h.
namespace kvm_hypercall {
inline constexpr std::uint32_t vapic_poll_irq = 1;
inline constexpr std::uint32_t kick_cpu = 5;
inline constexpr std::uint32_t send_ipi = 10;
inline constexpr std::uint32_t sched_yield = 11;
/// Targets that one KVM_HC_SEND_IPI can name (KVM_IPI_CLUSTER_SIZE of a 64-bit guest).
inline constexpr std::uint32_t ipi_cluster_size = 128;
}  // namespace kvm_hypercall

struct ApicDriverConfig {
  ApicDriverKind kind = ApicDriverKind::x2apic_physical;
  unsigned cpus = 1;                        ///< all present, booted and online
  bool pv_send_ipi = false;                 ///< KVM_FEATURE_PV_SEND_IPI
  bool no_ipi_broadcast = false;            ///< boot parameter: no shorthands
  std::vector<std::uint32_t> ids;           ///< APIC ID of each CPU; empty = its number
  std::uint64_t text = 0xffffffff81060000;  ///< where the driver's code lies
};

/// How a Linux guest sends an IPI: by ICR writes, by shorthand, or by the hypercall KVM_HC_SEND_IPI
/// (arch/x86/kernel/apic/*.c and arch/x86/kernel/kvm.c of 6.12; kvm-software.md 4.2, 11.3).
///
/// kvm_setup_pv_ipi replaces the callbacks send_IPI_mask and send_IPI_mask_allbutself and nothing else. So a
/// single target becomes a hypercall in flat mode alone, where send_IPI goes through send_IPI_mask;
/// shorthands and self-IPIs never do.
///
/// Each member appends the instructions that matter to an observer, in order: accesses of the APIC, VMMCALL,
/// and the CLI and POPF around them where the kernel has local_irq_save. Not modelled: CPUs that are present
/// but offline, the time-out of the busy poll for NMIs.
class ApicDriver {
 public:
  using Actions = std::vector<svm::GuestAction>;
  /// CPU numbers, ascending: what for_each_cpu() visits.
  using CpuMask = std::vector<unsigned>;

  explicit ApicDriver(ApicDriverConfig config);

  [[nodiscard]] const ApicDriverConfig& config() const noexcept { return config_; }
  /// Whether shorthands are in use (apic_use_ipi_shorthand).
  [[nodiscard]] bool shorthands() const noexcept { return shorthands_; }

  /// What a CPU writes while it boots: the flat driver its logical ID (init_apic_ldr).
  void init_apic_ldr(unsigned cpu, Actions& out) const;

  /// apic->send_IPI: one CPU, not the sender. Both callers below use it.
  void send_ipi(unsigned cpu, std::uint8_t vector, Actions& out);
  /// apic->send_IPI_mask.
  void send_ipi_mask(const CpuMask& mask, std::uint8_t vector, Actions& out);
  /// apic->send_IPI_mask_allbutself.
  void send_ipi_mask_allbutself(unsigned self, const CpuMask& mask, std::uint8_t vector, Actions& out);
  /// apic->send_IPI_self.
  void send_ipi_self(std::uint8_t vector, Actions& out) const;

  /// native_smp_send_reschedule.
  void send_reschedule(unsigned cpu, Actions& out) { send_ipi(cpu, guest_vector::reschedule, out); }
  /// native_send_call_func_single_ipi.
  void send_call_function_single(unsigned cpu, Actions& out) {
    send_ipi(cpu, guest_vector::call_function_single, out);
  }
  /// native_send_call_func_ipi: a shorthand where the mask and the sender are everybody, else the mask.
  void send_call_function(unsigned self, const CpuMask& mask, Actions& out);
  /// apic_send_IPI_allbutself (NMI backtraces, reboot): a shorthand, or the mask of everybody else.
  void send_allbutself(unsigned self, std::uint8_t vector, Actions& out);

  /// kvm_hypercall1(KVM_HC_KICK_CPU, 0, apicid) and kvm_hypercall1(KVM_HC_SCHED_YIELD, apicid).
  void kick(unsigned cpu, Actions& out) const;
  void sched_yield(unsigned cpu, Actions& out) const;

  /// The APIC's EOI (native_apic_msr_eoi, native_apic_mem_eoi).
  [[nodiscard]] svm::GuestAction eoi() const noexcept;

 private:
  [[nodiscard]] std::uint32_t id_of(unsigned cpu) const noexcept {
    return config_.ids.empty() ? cpu : config_.ids[cpu];
  }
  void write_icr(std::uint32_t icr, std::uint32_t destination, std::uint32_t place, Actions& out) const;
  void send_shorthand(std::uint32_t shorthand, std::uint8_t vector, Actions& out) const;
  void send_mask_pv(const CpuMask& mask, std::uint8_t vector, Actions& out) const;
  void send_mask_native(const CpuMask& mask, std::uint8_t vector, Actions& out);

  ApicDriverConfig config_;
  bool shorthands_;
  // Kept, so that an IPI allocates nothing.
  CpuMask one_{0};
  CpuMask others_;
  CpuMask left_;
};

}  // namespace svmsim::workloads
