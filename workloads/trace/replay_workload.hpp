#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "svm/guest_action.hpp"
#include "workloads/kernel_generation.hpp"
#include "workloads/trace/capture.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::workloads {

/// "6.1", "6.12" or "6.18".
[[nodiscard]] std::string_view kernel_name(KernelGeneration kernel);

/// Who caused an injected interrupt.
enum class InterruptCause : std::uint8_t {
  unknown,      ///< what the recording does not show
  self_ipi,     ///< an IPI of the same vCPU
  ipi,          ///< an IPI of another vCPU
  lapic_timer,  ///< the LAPIC timer of the vCPU
  device_line,  ///< an interrupt line (GSI or PIC pin)
  device_msi,   ///< a message-signalled interrupt
  host,         ///< the host: only of wake-ups
};
[[nodiscard]] std::string_view cause_name(InterruptCause cause);
[[nodiscard]] std::optional<InterruptCause> cause_of_name(std::string_view name);
/// The guests themselves bring it about. All other causes are replayed as external ones.
[[nodiscard]] constexpr bool is_ipi(InterruptCause cause) noexcept {
  return cause == InterruptCause::self_ipi || cause == InterruptCause::ipi;
}

enum class ReplayKind : std::uint8_t {
  action,     ///< something the guest does
  interrupt,  ///< an interrupt is delivered here; its handler's items follow, up to and including its iret
  host_interrupt,  ///< a physical interrupt, NMI or SMI ended guest mode here: the host's affair, not the
                   ///< guest's
  opaque,          ///< an exit that no GuestAction expresses; kept by its code
};

/// Bits of ReplayItem::flags.
namespace replay_flag {
constexpr std::uint8_t partial =
    1;  ///< the recording begins inside this action's exit: its kvm_exit is not recorded
constexpr std::uint8_t open_end = 2;  ///< the recording ends inside this action's exit
constexpr std::uint8_t unknown_time =
    4;                                   ///< cycles are 0 because the recording does not say how long it took
constexpr std::uint8_t inferred = 8;     ///< left no exit; deduced from what came after (cli, sti, iret)
constexpr std::uint8_t fault = 16;       ///< memory access that faulted (NPF), a first touch
constexpr std::uint8_t mmio = 32;        ///< memory access that was emulated
constexpr std::uint8_t no_operand = 64;  ///< the recording does not show the operands (CPUID leaf)
constexpr std::uint8_t chained = 128;    ///< rIP is where the item before ended (chain_rips)
}  // namespace replay_flag

/// One line of a workload.
struct ReplayItem {
  ReplayKind kind = ReplayKind::action;
  std::uint8_t flags = 0;
  std::uint8_t vector = 0;                         ///< of an interrupt
  InterruptCause cause = InterruptCause::unknown;  ///< of an interrupt
  std::int32_t cause_vcpu = -1;                    ///< sender of an ipi
  std::uint64_t cause_line = 0;   ///< line of the event that accepted the interrupt; 0 unknown
  std::uint64_t source_line = 0;  ///< line of the IPI, of the timer's arming, of the device's line or message
  std::uint64_t line = 0;         ///< line of the recording; 0 = none
  std::uint64_t exit_code = 0;    ///< of host_interrupt and opaque
  svm::GuestAction action;        ///< of host_interrupt and opaque only the rIP

  [[nodiscard]] bool has(std::uint8_t flag) const noexcept { return (flags & flag) != 0; }
};

/// What one vCPU did.
struct ReplayVcpu {
  int vm = 0;
  int vcpu = 0;
  InitialState initial;
  std::map<std::uint8_t, std::uint64_t> handler_entry;  ///< rIP by vector
  std::vector<ReplayItem> items;
};

/// A recorded workload: what the guests did, without what the hypervisor made of it.
struct ReplayWorkload {
  std::string source;
  std::string title;
  KernelGeneration kernel = KernelGeneration::v6_12;  ///< of the recording, known or assumed
  std::uint64_t tsc_hz = 1'000'000'000;               ///< unit of every cycle count
  TimeBase time_base = TimeBase::none;
  /// Whether HLT was intercepted by idle HLT; nothing where no HLT left an exit that would tell.
  std::optional<bool> idle_hlt;
  std::vector<ReplayVcpu> vcpus;
};

/// Bytes of an instruction of this kind where nothing else is known; 0 for compute and memory accesses.
[[nodiscard]] std::uint8_t default_length(svm::ActionKind kind, std::uint32_t number) noexcept;

/// Gives every chained item its rIP: the end of the item before; the entry of the handler at its
/// start; the interrupted rIP behind its iret. `compute` is where the guest may jump.
void chain_rips(ReplayVcpu& vcpu);

}  // namespace svmsim::workloads
