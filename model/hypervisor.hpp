#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <systemc>

#include "apic/local_apic.hpp"
#include "model/config/scenario.hpp"
#include "model/event_hub.hpp"
#include "model/interfaces.hpp"
#include "model/physical_cpu.hpp"
#include "model/vcpu.hpp"
#include "model/vm.hpp"

namespace svmsim::model {

/// KVM on SVM: the vCPU run loop, event injection, exit handlers, halting and waking, interrupt delivery
/// (arch/x86/kvm/x86.c, svm/svm.c, lapic.c; kvm-software.md section 1), in the code paths of the scenario's
/// kernel. Leaves out what this version does not model: NMI and SMI injection, INIT/SIPI, timers, AVIC,
/// nesting, MMU details.
///
/// Functions carry the kernel's names where they do what the kernel's function does.
class Hypervisor : public sc_core::sc_module {
 public:
  Hypervisor(const sc_core::sc_module_name& name, const HostConfig& host, const KvmConfig& kvm,
             EventHub& events);

  sc_core::sc_port<InterruptFabricInterface> fabric{"fabric"};
  sc_core::sc_port<HostSchedulerInterface> scheduler{"scheduler"};

  /// Brings a vCPU into the state after KVM_CREATE_VCPU and its user space's set-up.
  void create_vcpu(Vcpu& vcpu);

  /// The vCPU thread in KVM_RUN, on `cpu`: until it blocks, must reschedule, or ends.
  void vcpu_run(Vcpu& vcpu, PhysicalCpu& cpu);

  /// The end of the warm-up for a vCPU: what it has counted so far is set aside. A second call does nothing.
  static void end_warmup(Vcpu& vcpu);
  /// From that cycle on statistics count; what came before is warm-up.
  void set_warmup(std::uint64_t cycles) { warmup_cycles_ = cycles; }
  /// Called about every 65536 exits with the local clock; may throw to stop the run.
  void set_heartbeat(std::function<void(std::uint64_t)> heartbeat) { heartbeat_ = std::move(heartbeat); }

  [[nodiscard]] const HostConfig& host() const noexcept { return host_; }

 private:
  enum class Fastpath : std::uint8_t { none, handled, reenter };
  static constexpr std::uint64_t heartbeat_exits = 65536;
  static constexpr std::uint64_t actions_between_checks = std::uint64_t{1} << 22;

  // hypervisor.cpp: the run loop.
  void enter_guest(Vcpu& vcpu, PhysicalCpu& cpu);
  void svm_vcpu_run(Vcpu& vcpu, PhysicalCpu& cpu);
  void run_guest(Vcpu& vcpu, PhysicalCpu& cpu);
  /// What one stay in guest mode has to remember between its actions.
  struct GuestStay {
    std::uint64_t halt_began = 0;
    bool self_ipi = false;
    bool ended = false;  ///< the vCPU ended in guest mode
  };
  [[nodiscard]] svm::Step guest_boundary(Vcpu& vcpu, PhysicalCpu& cpu, GuestStay& stay);
  static void resume_suspended(Vcpu& vcpu);
  [[nodiscard]] bool makes_progress(Vcpu& vcpu, PhysicalCpu& cpu);
  svm::Step execute_compute(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action);
  void trace_entry(Vcpu& vcpu, PhysicalCpu& cpu);
  void trace_exit(Vcpu& vcpu, PhysicalCpu& cpu);
  void note_delivered(Vcpu& vcpu, PhysicalCpu& cpu, std::uint8_t vector);
  static void take_external_interrupts(Vcpu& vcpu);
  [[nodiscard]] static bool external_cause(Vcpu& vcpu);
  void end_vcpu(Vcpu& vcpu, PhysicalCpu& cpu);

  // hypervisor_inject.cpp: events into the guest.
  void check_and_inject_events(Vcpu& vcpu, PhysicalCpu& cpu);
  void svm_inject_irq(Vcpu& vcpu, PhysicalCpu& cpu, bool reinjected);
  void svm_inject_exception(Vcpu& vcpu, PhysicalCpu& cpu, bool reinjected);
  void cancel_injection(Vcpu& vcpu);
  void complete_interrupts(Vcpu& vcpu);
  void enable_irq_window(Vcpu& vcpu, PhysicalCpu& cpu);
  void update_cr8_intercept(Vcpu& vcpu);
  [[nodiscard]] static bool interrupt_allowed(const Vcpu& vcpu);
  void queue_exception(Vcpu& vcpu, std::uint8_t vector, bool has_error, std::uint32_t error);

  // hypervisor_exits.cpp: what an exit needs.
  [[nodiscard]] Fastpath exit_fastpath(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] bool icr_fastpath_takes(const apic::IcrCommand& command) const;
  void handle_exit(Vcpu& vcpu, PhysicalCpu& cpu);
  static bool set_efer(Vcpu& vcpu, std::uint64_t value);
  void handle_msr(Vcpu& vcpu, PhysicalCpu& cpu);
  void handle_io(Vcpu& vcpu, PhysicalCpu& cpu);
  void handle_cpuid(Vcpu& vcpu, PhysicalCpu& cpu);
  void handle_hypercall(Vcpu& vcpu, PhysicalCpu& cpu);
  void handle_npf(Vcpu& vcpu, PhysicalCpu& cpu);
  void handle_vintr(Vcpu& vcpu, PhysicalCpu& cpu);
  void handle_exception(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t exit_code);
  void skip_instruction(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t result);
  void user_exit(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t reason);

  // hypervisor_instructions.cpp: instructions that KVM emulates or skips, and MMIO.
  void handle_instruction(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t exit_code);
  void handle_cr(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t exit_code);
  [[nodiscard]] bool set_cr(Vcpu& vcpu, PhysicalCpu& cpu, unsigned cr, std::uint64_t value);
  void handle_dr(Vcpu& vcpu, PhysicalCpu& cpu);
  void handle_mmio(Vcpu& vcpu, PhysicalCpu& cpu);
  static void take_debug_registers(Vcpu& vcpu);
  static void set_dr_intercepts(svm::VmcbControl& control, bool on);

  // hypervisor_apic.cpp: the emulated local APIC and delivery.
  static void set_tpr(Vcpu& vcpu, PhysicalCpu& cpu, std::uint8_t tpr);
  void apic_write_msr(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t msr, std::uint64_t value,
                      bool fastpath = false);
  void send_ipi(Vcpu& sender, PhysicalCpu& cpu, const apic::IcrCommand& command, bool fastpath);
  void deliver_interrupt(Vcpu& sender, PhysicalCpu& cpu, Vcpu& target, const apic::IcrCommand& command);
  void kick(Vcpu& target, PhysicalCpu& cpu, const Vcpu& sender);

  // hypervisor_halt.cpp: HLT, polling, blocking.
  bool emulate_halt(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] static bool has_wake_event(Vcpu& vcpu);
  [[nodiscard]] bool vcpu_block(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] bool poll(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] bool resume_block(Vcpu& vcpu, PhysicalCpu& cpu);
  void finish_halt(Vcpu& vcpu, PhysicalCpu& cpu, bool waited);
  [[nodiscard]] std::uint64_t to_ns(std::uint64_t cycles) const;

  /// A trace point: builds the event if somebody listens, and charges its recording after its time stamp.
  template <typename... Fields>
  void trace(PhysicalCpu& cpu, const Vcpu& vcpu, workloads::EventKind kind, Fields... fields) {
    if (events_.traced(kind)) record(cpu, vcpu, kind, {static_cast<std::uint64_t>(fields)...});
  }
  void record(PhysicalCpu& cpu, const Vcpu& vcpu, workloads::EventKind kind,
              const std::array<std::uint64_t, 8>& fields);

  [[nodiscard]] bool at_least(workloads::KernelGeneration kernel) const noexcept { return kernel_ >= kernel; }

  HostConfig host_;
  KvmConfig kvm_;
  Costs cost_;
  workloads::KernelGeneration kernel_;
  EventHub& events_;
  std::uint32_t t_world_entry_;
  std::uint32_t t_world_exit_;
  std::uint64_t warmup_cycles_ = 0;
  std::uint64_t exits_to_heartbeat_ = heartbeat_exits;
  std::uint64_t actions_to_check_ = actions_between_checks;
  std::function<void(std::uint64_t)> heartbeat_;
};

}  // namespace svmsim::model
