#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <systemc>

#include "apic/avic/register_access.hpp"
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
/// kernel. Leaves out what this version does not model: MMU details.
///
/// Functions carry the kernel's names where they do what the kernel's function does.
class Hypervisor : public sc_core::sc_module, public HostTimerClient {
 public:
  Hypervisor(const sc_core::sc_module_name& name, const HostConfig& host, const KvmConfig& kvm,
             EventHub& events);

  sc_core::sc_port<InterruptFabricInterface> fabric{"fabric"};
  sc_core::sc_port<HostSchedulerInterface> scheduler{"scheduler"};

  /// Brings a VM into the state after KVM_CREATE_VM and its user space's set-up, but for its vCPUs.
  void create_vm(Vm& vm, const VmConfig& config);
  /// Brings a vCPU into the state after KVM_CREATE_VCPU and its user space's set-up.
  void create_vcpu(Vcpu& vcpu);

  /// The vCPU thread in KVM_RUN, on `cpu`: until it blocks, must reschedule, or ends.
  void vcpu_run(Vcpu& vcpu, PhysicalCpu& cpu);

  // The preempt notifiers of a vCPU thread.
  void kvm_sched_in(Vcpu& vcpu, PhysicalCpu& cpu);
  static void kvm_sched_out(Vcpu& vcpu, PhysicalCpu& cpu, bool preempted);

  /// User space changes which exits of a vCPU are disabled (KVM_CAP_X86_DISABLE_EXITS on a vCPU, a proposal):
  /// takes effect when the vCPU thread is next in user space, to which it is sent.
  void request_disabled_exits(Vcpu& vcpu, PhysicalCpu& cpu, DisabledExits exits);

  /// The pCPU to which the kernel moves the timers of CPUs in nohz_full; nullptr: they stay where they are.
  void set_timer_cpu(PhysicalCpu* cpu) noexcept { timer_cpu_ = cpu; }

  /// Called when the last vCPU has ended, with the local clock.
  void set_on_all_ended(std::function<void(std::uint64_t)> action) { on_all_ended_ = std::move(action); }
  [[nodiscard]] const unsigned& live_vcpus() const noexcept { return live_vcpus_; }

  /// The end of the warm-up for a vCPU: what it has counted so far is set aside. A second call does nothing.
  static void end_warmup(Vcpu& vcpu);
  /// From that cycle on statistics count; what came before is warm-up.
  void set_warmup(std::uint64_t cycles) { warmup_cycles_ = cycles; }
  /// Called about every 65536 exits with the local clock; may throw to stop the run.
  void set_heartbeat(std::function<void(std::uint64_t)> heartbeat) { heartbeat_ = std::move(heartbeat); }

  /// Its interrupts begin; before the run.
  void start_device(Device& device, PhysicalCpu& cpu);
  [[nodiscard]] HostTimerClient& device_interrupts() noexcept { return device_interrupts_; }

  /// A vCPU's timer has expired on `cpu`.
  void timer_expired(PhysicalCpu& cpu, HostTimer& timer) override;

  [[nodiscard]] const HostConfig& host() const noexcept { return host_; }

  /// An irqfd's MSI: a fixed, edge-triggered interrupt of a vCPU. Called from a host interrupt on `cpu`,
  /// which has synchronised.
  void deliver_msi(Vcpu& target, PhysicalCpu& cpu, std::uint8_t vector);
  // hypervisor_avic.cpp: AVIC's part of the preempt notifiers.
  void avic_sched_in(Vcpu& vcpu, PhysicalCpu& cpu);
  void avic_sched_out(Vcpu& vcpu, PhysicalCpu& cpu);

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
  [[nodiscard]] svm::Step guest_boundary(Vcpu& vcpu, PhysicalCpu& cpu, GuestStay& stay,
                                         bool keeps_rip = false);
  static void resume_suspended(Vcpu& vcpu);
  [[nodiscard]] bool makes_progress(Vcpu& vcpu, PhysicalCpu& cpu);
  // hypervisor_native.cpp: a kernel that owns its pCPUs.
  void run_native(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] bool native_interrupt(Vcpu& vcpu, PhysicalCpu& cpu);
  void execute_native(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action);
  void native_wrmsr(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action);
  void native_halt(Vcpu& vcpu, PhysicalCpu& cpu);
  void native_compute(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action);
  void native_spin(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action);
  // hypervisor_memory.cpp: guest code that touches memory which several vCPUs use.
  svm::Step execute_spin(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action);
  void retire_shared(Vcpu& vcpu, PhysicalCpu& cpu);
  void finish_vm(Vcpu& vcpu, PhysicalCpu& cpu);
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
  /// kvm_cpu_has_extint, kvm_cpu_has_injectable_intr, kvm_cpu_has_interrupt.
  [[nodiscard]] static bool has_ext_int(const Vcpu& vcpu);
  [[nodiscard]] static bool has_injectable_intr(Vcpu& vcpu);
  [[nodiscard]] static bool has_interrupt(Vcpu& vcpu);
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
  void user_exit(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t reason, bool device);

  // hypervisor_instructions.cpp: instructions that KVM emulates or skips, and MMIO.
  void handle_instruction(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t exit_code);
  void handle_cr(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t exit_code);
  [[nodiscard]] bool set_cr(Vcpu& vcpu, PhysicalCpu& cpu, unsigned cr, std::uint64_t value);
  void handle_dr(Vcpu& vcpu, PhysicalCpu& cpu);
  void handle_mmio(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] std::uint64_t in_kernel_mmio(Vcpu& vcpu, PhysicalCpu& cpu, const svm::GuestAction& action,
                                             std::uint64_t address);
  static void take_debug_registers(Vcpu& vcpu);
  static void set_dr_intercepts(svm::VmcbControl& control, bool on);

  // hypervisor_nested.cpp: guests that are hypervisors (arch/x86/kvm/svm/nested.c).
  void create_nested(Vcpu& vcpu);
  void nested_svm_vmrun(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] bool nested_vmcb_check(NestedState& nested, const svm::Vmcb& vmcb12) const;
  void enter_svm_guest_mode(Vcpu& vcpu, PhysicalCpu& cpu, svm::Vmcb& vmcb12);
  static void nested_vmcb02_prepare_save(Vcpu& vcpu, const svm::Vmcb& vmcb12);
  void nested_vmcb02_prepare_control(Vcpu& vcpu);
  void recalc_intercepts(Vcpu& vcpu) const;
  static void nested_svm_merge_msrpm(Vcpu& vcpu);
  static void nested_sync_control_from_vmcb02(Vcpu& vcpu);
  static void note_nested_exit(Vcpu& vcpu);
  void nested_svm_vmexit(Vcpu& vcpu, PhysicalCpu& cpu);
  void nested_svm_simple_vmexit(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t exit_code);

  // hypervisor_nested_exits.cpp: what becomes of an exit from L2, and of events for L1 while L2 runs.
  enum class NestedExit : std::uint8_t {
    host,    ///< L0 handles it
    done,    ///< it is L1's
    resume,  ///< L0 has completed it: L2 goes on
  };
  /// True when nothing is left to do for the exit.
  [[nodiscard]] bool nested_exit(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] NestedExit nested_svm_intercept(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t code);
  [[nodiscard]] NestedExit nested_emulate_idle_hlt(Vcpu& vcpu, PhysicalCpu& cpu);
  void nested_npf(Vcpu& vcpu, PhysicalCpu& cpu);
  /// False for -EBUSY: the event has to wait for an entry and an immediate exit.
  [[nodiscard]] bool svm_check_nested_events(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] static bool nested_svm_virtualize_tpr(const Vcpu& vcpu);
  [[nodiscard]] static bool nested_interrupt_allowed(const Vcpu& vcpu);
  [[nodiscard]] static bool gif_set(const Vcpu& vcpu);
  void svm_set_gif(Vcpu& vcpu, bool value);
  void svm_clear_vintr(Vcpu& vcpu);
  void svm_set_intercept(Vcpu& vcpu, svm::Intercept intercept, bool on) const;
  void handle_svm_instruction(Vcpu& vcpu, PhysicalCpu& cpu, svm::Intercept instruction);

  // hypervisor_nmi.cpp: NMI, SMI, INIT and SIPI.
  void service_requests(Vcpu& vcpu, PhysicalCpu& cpu);
  static void process_nmi(Vcpu& vcpu);
  [[nodiscard]] static bool nmi_masked(const Vcpu& vcpu);
  static void set_nmi_mask(Vcpu& vcpu, bool masked);
  [[nodiscard]] static bool nmi_allowed(const Vcpu& vcpu);
  [[nodiscard]] bool inject_smi_and_nmi(Vcpu& vcpu, PhysicalCpu& cpu, bool& can_inject);
  void svm_inject_nmi(Vcpu& vcpu, PhysicalCpu& cpu);
  static void enable_nmi_window(Vcpu& vcpu);
  static void disable_nmi_single_step(Vcpu& vcpu);
  void handle_iret(Vcpu& vcpu, PhysicalCpu& cpu);
  static void complete_iret(Vcpu& vcpu);
  void handle_single_step(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] svm::Step run_single_step(Vcpu& vcpu, PhysicalCpu& cpu, GuestStay& stay);
  void enter_smm(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] svm::Step run_smm_handler(Vcpu& vcpu, PhysicalCpu& cpu, GuestStay& stay);
  void leave_smm(Vcpu& vcpu, PhysicalCpu& cpu);
  void accept_events(Vcpu& vcpu, PhysicalCpu& cpu);
  void vcpu_reset_by_init(Vcpu& vcpu, PhysicalCpu& cpu);

  // hypervisor_setup.cpp
  void init_vmcb(Vcpu& vcpu);
  static void start_program(Vcpu& vcpu);

  // hypervisor_apic.cpp: the emulated local APIC.
  [[nodiscard]] static std::uint64_t guest_tsc(const Vcpu& vcpu, const PhysicalCpu& cpu) {
    return cpu.local() + vcpu.vmcb01().control.tsc_offset;
  }
  [[nodiscard]] bool set_apic_base(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t value);
  void apic_write_mmio(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t offset, std::uint64_t value,
                       unsigned bytes);
  void end_of_interrupt(Vcpu& vcpu, PhysicalCpu& cpu, const apic::EndOfInterrupt& eoi);
  /// `offset`: the register that was written.
  void apic_changed(Vcpu& vcpu, PhysicalCpu& cpu, std::uint8_t what, std::uint32_t offset);
  static void set_tpr(Vcpu& vcpu, PhysicalCpu& cpu, std::uint8_t tpr);
  void apic_write_msr(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t msr, std::uint64_t value,
                      bool fastpath = false);

  // hypervisor_devices.cpp
  class DeviceInterrupts final : public HostTimerClient {
   public:
    explicit DeviceInterrupts(Hypervisor& in_hypervisor) : hypervisor(in_hypervisor) {}
    void timer_expired(PhysicalCpu& cpu, HostTimer& timer) override;

    Hypervisor& hypervisor;
  };
  void device_interrupt(Device& device, PhysicalCpu& cpu);
  void set_irq_line(Vm& vm, PhysicalCpu& cpu, unsigned pin, bool asserted);
  void io_apic_eoi(Vm& vm, PhysicalCpu& cpu, std::uint8_t vector);
  void io_apic_write(Vm& vm, PhysicalCpu& cpu, std::uint32_t offset, std::uint32_t value);
  void raise_ext_int(Vm& vm, PhysicalCpu& cpu, unsigned vector);
  void acknowledge_devices(Vm& vm, PhysicalCpu& cpu, std::uint32_t port);

  // hypervisor_timer.cpp: the local APIC's timer.
  void create_timer(Vcpu& vcpu);
  void restart_apic_timer(Vcpu& vcpu, PhysicalCpu& cpu);
  void start_sw_timer(Vcpu& vcpu, PhysicalCpu& cpu);
  static void cancel_apic_timer(Vcpu& vcpu, PhysicalCpu& cpu);
  static void cancel_hrtimer(Vcpu& vcpu, PhysicalCpu& cpu);
  void arm_apic_timer(Vcpu& vcpu, PhysicalCpu& cpu);
  void restart_after_divider(Vcpu& vcpu, PhysicalCpu& cpu);
  void start_hrtimer(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t expires_cycles);
  [[nodiscard]] bool can_post_timer_interrupt(const Vcpu& vcpu) const;
  void apic_timer_expired(Vcpu& vcpu, PhysicalCpu& cpu, bool from_timer);
  void inject_timer_irqs(Vcpu& vcpu, PhysicalCpu& cpu, const Vcpu* context);
  void migrate_timer(Vcpu& vcpu, PhysicalCpu& cpu);
  void wait_lapic_expire(Vcpu& vcpu, PhysicalCpu& cpu);
  void wait_for_deadline(Vcpu& vcpu, PhysicalCpu& cpu, const Vcpu* context);
  void adjust_timer_advance(Vcpu& vcpu, std::int64_t delta_cycles) const;
  [[nodiscard]] bool write_tsc_deadline(Vcpu& vcpu, PhysicalCpu& cpu, std::uint64_t value);

  // hypervisor_ipi.cpp: messages between APICs. `cpu` is the pCPU that acts; its clock is charged.
  void send_ipi(Vcpu& sender, PhysicalCpu& cpu, const apic::IcrCommand& command, bool fastpath);
  /// Returns how many APICs accepted it. `sender`: nullptr for a device.
  unsigned irq_delivery_to_apic(Vm& vm, PhysicalCpu& cpu, Vcpu* sender, const apic::IcrCommand& command);
  /// `sender`: the vCPU in whose context it happens, nullptr for none.
  bool accept_irq(Vcpu& target, PhysicalCpu& cpu, const Vcpu* sender, const apic::IcrCommand& message);
  bool deliver_interrupt(Vcpu& target, PhysicalCpu& cpu, const apic::IcrCommand& message);
  void kick(Vcpu& target, PhysicalCpu& cpu);

  // hypervisor_pv.cpp: paravirtual features.
  [[nodiscard]] static bool guest_pv_has(const Vcpu& vcpu, std::uint32_t feature);
  [[nodiscard]] std::uint64_t pv_send_ipi(Vcpu& vcpu, PhysicalCpu& cpu,
                                          const std::array<std::uint64_t, 4>& argument);
  void pv_kick_cpu_op(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t apic_id);
  void sched_yield(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t apic_id);
  [[nodiscard]] static bool pv_msr(Vcpu& vcpu, std::uint32_t msr, bool write, std::uint64_t& value);
  static void steal_time_set_preempted(Vcpu& vcpu, PhysicalCpu& cpu);
  void record_steal_time(Vcpu& vcpu, PhysicalCpu& cpu);
  static void sync_pv_eoi_to_guest(Vcpu& vcpu);
  void sync_pv_eoi_from_guest(Vcpu& vcpu, PhysicalCpu& cpu);
  // hypervisor_avic.cpp: IsRunning and delivery. `context`: the vCPU in whose context it happens, or nullptr.
  void avic_vcpu_load(Vcpu& vcpu, PhysicalCpu& cpu);
  void avic_vcpu_put(Vcpu& vcpu, PhysicalCpu& cpu);
  bool avic_deliver_interrupt(Vcpu& target, PhysicalCpu& cpu, const Vcpu* context,
                              const apic::IcrCommand& message);
  void avic_complete_delivery(Vcpu& target, PhysicalCpu& cpu, const Vcpu* context,
                              const apic::IcrCommand& message);
  void avic_ring_doorbell(Vcpu& target, PhysicalCpu& cpu, const Vcpu* context);
  static void avic_take_doorbell(Vcpu& vcpu, PhysicalCpu& cpu);

  // hypervisor_avic_exits.cpp
  void avic_incomplete_ipi_interception(Vcpu& vcpu, PhysicalCpu& cpu);
  void avic_kick_target_vcpus(Vcpu& source, PhysicalCpu& cpu, std::uint32_t icr_low, std::uint32_t icr_high,
                              std::uint32_t index);
  [[nodiscard]] bool avic_kick_target_vcpus_fast(Vcpu& source, PhysicalCpu& cpu,
                                                 const apic::IcrCommand& command);
  void avic_unaccelerated_access_interception(Vcpu& vcpu, PhysicalCpu& cpu);
  void avic_unaccel_trap_write(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t offset, std::uint8_t vector);
  void avic_level_eoi(Vcpu& vcpu, PhysicalCpu& cpu, std::uint8_t vector);
  bool avic_maps_apic_page(Vcpu& vcpu, PhysicalCpu& cpu);
  void avic_emulate_access(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t offset, bool write);
  void avic_register_written(Vcpu& vcpu, PhysicalCpu& cpu, std::uint32_t offset,
                             const apic::RegisterWrite& written);

  // hypervisor_apicv.cpp: whether AVIC is used.
  void avic_create_vcpu(Vcpu& vcpu);
  static void avic_init_vmcb(Vcpu& vcpu);
  void avic_reset_vcpu(Vcpu& vcpu, PhysicalCpu& cpu);
  void set_apicv_inhibit(Vm& vm, PhysicalCpu& cpu, Vcpu* context, ApicvInhibitReason reason, bool on);
  void vcpu_update_apicv(Vcpu& vcpu, PhysicalCpu& cpu);
  void avic_activate(Vcpu& vcpu);
  static void avic_deactivate(Vcpu& vcpu);
  void avic_apic_changed(Vcpu& vcpu, PhysicalCpu& cpu);
  void avic_apic_base_changed(Vcpu& vcpu, PhysicalCpu& cpu);
  static void avic_update_logical_id(Vcpu& vcpu);
  void avic_request_irq_window(Vcpu& vcpu, PhysicalCpu& cpu);
  void avic_irq_window_open(Vcpu& vcpu, PhysicalCpu& cpu);
  void avic_irq_injected(Vcpu& vcpu, PhysicalCpu& cpu);

  // hypervisor_halt.cpp: HLT, polling, blocking.
  bool emulate_halt(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] static bool has_wake_event(Vcpu& vcpu);
  [[nodiscard]] static bool check_block(Vcpu& vcpu);
  [[nodiscard]] bool vcpu_block(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] bool poll(Vcpu& vcpu, PhysicalCpu& cpu);
  [[nodiscard]] bool resume_block(Vcpu& vcpu, PhysicalCpu& cpu);
  void leave_block(Vcpu& vcpu, PhysicalCpu& cpu);
  void sleep(Vcpu& vcpu, PhysicalCpu& cpu);
  void finish_halt(Vcpu& vcpu, PhysicalCpu& cpu, bool waited);
  [[nodiscard]] std::uint64_t to_ns(std::uint64_t cycles) const;

  // hypervisor_sched.cpp: what the host's scheduler and the PAUSE filter do to a vCPU.
  void handle_pause(Vcpu& vcpu, PhysicalCpu& cpu);
  void kvm_vcpu_on_spin(Vcpu& me, PhysicalCpu& cpu, bool yield_to_kernel_mode);
  [[nodiscard]] static bool eligible_for_directed_yield(Vcpu& vcpu);
  void set_ple_window(Vcpu& vcpu, PhysicalCpu& cpu, std::uint16_t window);
  void set_disabled_exits(Vcpu& vcpu, DisabledExits exits);
  void take_requested_exits(Vcpu& vcpu, PhysicalCpu& cpu);

  /// Whether the warm-up of a vCPU is over.
  [[nodiscard]] bool counts(const Vcpu& vcpu) const noexcept { return warmup_cycles_ == 0 || vcpu.warm; }

  /// A trace point: builds the event if somebody listens, and charges its recording after its time stamp.
  template <typename... Fields>
  void trace(PhysicalCpu& cpu, const Vcpu& vcpu, workloads::EventKind kind, Fields... fields) {
    if (events_.traced(kind)) record(cpu, vcpu, kind, {static_cast<std::uint64_t>(fields)...});
  }
  void record(PhysicalCpu& cpu, const Vcpu& vcpu, workloads::EventKind kind,
              const std::array<std::uint64_t, 8>& fields) {
    record(cpu, vcpu.tid, static_cast<std::int32_t>(vcpu.index), kind, fields);
  }
  void record(PhysicalCpu& cpu, std::int32_t tid, std::int32_t vcpu, workloads::EventKind kind,
              const std::array<std::uint64_t, 8>& fields);
  /// The same in the context of `vcpu`, or of whatever the pCPU runs where that is nullptr.
  template <typename... Fields>
  void trace_from(PhysicalCpu& cpu, const Vcpu* vcpu, workloads::EventKind kind, Fields... fields) {
    if (!events_.traced(kind)) return;
    record(cpu, vcpu != nullptr ? vcpu->tid : cpu.current_tid(),
           vcpu != nullptr ? static_cast<std::int32_t>(vcpu->index) : -1, kind,
           {static_cast<std::uint64_t>(fields)...});
  }

  [[nodiscard]] bool at_least(workloads::KernelGeneration kernel) const noexcept { return kernel_ >= kernel; }

  HostConfig host_;
  KvmConfig kvm_;
  Costs cost_;
  workloads::KernelGeneration kernel_;
  EventHub& events_;
  std::uint32_t t_world_entry_;
  std::uint32_t t_world_exit_;
  std::uint64_t t_loop_before_;  ///< of t_loop, before the handler
  apic::AvicRegisters avic_registers_;
  unsigned live_vcpus_ = 0;
  std::function<void(std::uint64_t)> on_all_ended_;
  PhysicalCpu* timer_cpu_ = nullptr;
  void note_ended(PhysicalCpu& cpu);
  std::uint64_t warmup_cycles_ = 0;
  std::uint64_t exits_to_heartbeat_ = heartbeat_exits;
  std::uint64_t actions_to_check_ = actions_between_checks;
  std::function<void(std::uint64_t)> heartbeat_;
  DeviceInterrupts device_interrupts_{*this};
};

}  // namespace svmsim::model
