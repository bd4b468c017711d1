#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "svm/guest_action.hpp"
#include "workloads/guest/guest_device.hpp"
#include "workloads/guest/pv_memory.hpp"
#include "workloads/nested_guest.hpp"

namespace svmsim::workloads {

/// A named figure that a workload reports at the end ("iterations", "cycles_per_iteration", ...), in order.
using Metrics = std::vector<std::pair<std::string, double>>;

/// State in which the workload finds its vCPU at the first VMRUN.
struct InitialState {
  std::uint64_t rip = 0;
  bool interrupts_enabled = false;  ///< RFLAGS.IF
  std::uint64_t gdt_base = 0;       ///< guest physical = linear
  std::uint64_t idt_base = 0;
  std::uint16_t code_selector = 8;
  std::uint32_t apic_svr = 0xff;            ///< APIC_SPIV at hand-over; FFh is its reset value: APIC disabled
  bool wait_for_sipi = false;               ///< application processors wait for INIT and SIPI
  std::vector<std::uint64_t> absent_pages;  ///< guest physical pages whose first touch is an NPF
  std::vector<std::uint64_t> mmio_pages;    ///< guest physical pages without memory: every access is an NPF
};

/// What one vCPU does next. The one interface behind programs, task sets and trace replay.
///
/// A driver calls current(), executes it, and calls retire() once the action has completed, be it in guest
/// mode or by emulation in the host. current() returns the same action until then: a faulting action is
/// simply executed again. interrupt() suspends the current action and makes current() the first action of the
/// vector's handler; when that handler's iret retires, current() is again what it was. Time is the guest's
/// TSC in cycles.
class WorkloadSource {
 public:
  WorkloadSource() = default;
  WorkloadSource(const WorkloadSource&) = delete;
  WorkloadSource& operator=(const WorkloadSource&) = delete;
  virtual ~WorkloadSource() = default;

  [[nodiscard]] virtual InitialState initial_state() const = 0;

  /// The action to execute; nullptr when the workload of this vCPU has ended. Valid until the next call of a
  /// non-const member.
  [[nodiscard]] virtual const svm::GuestAction* current() = 0;

  /// The current action has completed at `tsc` with `result` (TSC, MSR, port or memory value read).
  virtual void retire(std::uint64_t tsc, std::uint64_t result) = 0;

  /// An interrupt has been delivered to the guest.
  virtual void interrupt(std::uint8_t vector, std::uint64_t tsc) = 0;

  /// INIT: the vCPU begins anew, with the first action. Figures that were counted stay.
  virtual void restart() {}

  /// The handler of an interrupt has returned to a compute action of which `left_cycles` are still to do (0 =
  /// all of it). Returns what is left of the action that is now the current one: a source that puts another
  /// one in its place, as a scheduler does, returns 0.
  [[nodiscard]] virtual std::uint64_t resume_compute(std::uint64_t left_cycles) { return left_cycles; }

  /// rIP of the vector's handler (the guest's IDT).
  [[nodiscard]] virtual std::uint64_t handler_entry(std::uint8_t vector) const = 0;

  // Memory that several vCPUs share. An action of kind compute with flags action_flags::shared or spin is
  // guest code that reads or writes it; every other vCPU has acted up to the time that these members get.

  /// Instead of retire(), for such an action. Returns the vCPUs of the VM whose spins its stores may end;
  /// valid until the next call.
  virtual const std::vector<unsigned>& retire_shared(std::uint64_t tsc) {
    static const std::vector<unsigned> none;
    retire(tsc, 0);
    return none;
  }
  /// The current action is a spin: the time from which a look ends it, or never_ready while nobody has
  /// written what it waits for. Each turn takes the action's cycles, with PAUSE if it has
  /// action_flags::pauses.
  [[nodiscard]] virtual std::uint64_t spin_ready() const { return 0; }
  static constexpr std::uint64_t never_ready = ~std::uint64_t{0};

  /// The words that KVM and this vCPU's kernel share.
  virtual void attach(PvMemory& memory) { (void)memory; }

  /// Asked behind a shared action: whether the work of the whole VM is done, so that its vCPUs can end.
  [[nodiscard]] virtual bool finished() const { return false; }

  /// The devices of this vCPU's VM, for which the host answers; nullptr when it has none. They live as long
  /// as the sources.
  [[nodiscard]] virtual std::vector<GuestDevice>* devices() { return nullptr; }

  /// Whether this vCPU only serves others: a run in which nobody else has anything left to do has ended.
  [[nodiscard]] virtual bool serves() const { return false; }

  /// An action of this vCPU caused an exit at `tsc`; for sources that compare with a recording.
  virtual void exited(std::uint64_t exit_code, std::uint64_t tsc) {
    (void)exit_code;
    (void)tsc;
  }

  /// Replays only: whether causes from outside the guest (below) may be due; constant.
  [[nodiscard]] virtual bool has_external_causes() const { return false; }
  /// Takes a physical interrupt that is due before the current action: the host's affair, it ends guest mode.
  virtual bool take_host_interrupt() { return false; }
  /// Takes a virtual interrupt of unknown sender that is due before the current action.
  virtual std::optional<std::uint8_t> take_external_interrupt() { return std::nullopt; }
  /// Replays only: the recording begins inside the exit of the first action, so that its kvm_exit is not to
  /// be seen.
  [[nodiscard]] virtual bool begins_inside_exit() const { return false; }

  /// Figures of this vCPU so far; reading has no side effects.
  [[nodiscard]] virtual Metrics metrics() const = 0;

  /// Why the workload ended early, in one sentence ("interrupt did not arrive in iteration 3"); "" if it did
  /// not.
  [[nodiscard]] virtual std::string failure() const { return {}; }

  /// What L0 has to know of a guest hypervisor; nullptr for any other guest.
  [[nodiscard]] virtual NestedGuest* nested_guest() { return nullptr; }
};

}  // namespace svmsim::workloads
