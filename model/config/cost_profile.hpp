#pragma once

#include <cstdint>
#include <string>

namespace svmsim::model {

/// Costs of one host, in TSC cycles. Names as in the measurements fact sheet (section 3).
/// A guest round trip is t_world + t_loop + h_reason; perf's exit-to-entry time is that without t_world.
struct Costs {
  // World switch (hardware and assembly around it) and the common run loop.
  std::uint32_t t_world = 0;            ///< VMRUN + guest restore + #VMEXIT
  std::uint32_t t_world_entry_pct = 0;  ///< share of t_world before the first guest instruction
  std::uint32_t t_loop = 0;             ///< run loop of an in-kernel exit
  std::uint32_t t_fastpath_loop = 0;    ///< run loop of an exit that a fastpath completes
  // Handlers, on top of t_loop.
  std::uint32_t h_eoi = 0;
  std::uint32_t h_icr = 0;         ///< x2APIC ICR write, without what it does to the targets
  std::uint32_t h_accept_irq = 0;  ///< accepting one vector at one LAPIC
  std::uint32_t h_msr = 0;         ///< any other emulated MSR access
  std::uint32_t h_vintr = 0;
  std::uint32_t h_irq_window = 0;  ///< arming the interrupt window
  std::uint32_t h_inject = 0;      ///< taking a vector from the LAPIC into EVENTINJ
  std::uint32_t h_hlt = 0;         ///< emulate_halt
  std::uint32_t h_vcpu_block = 0;  ///< passing through vcpu_block without blocking (6.1)
  std::uint32_t h_cpuid = 0;
  std::uint32_t h_vmmcall = 0;
  std::uint32_t h_pv_ipi = 0;  ///< KVM_HC_SEND_IPI, on top of h_vmmcall, without the targets
  std::uint32_t h_pv_eoi = 0;  ///< completing an EOI that the guest left out
  std::uint32_t h_io_kernel =
      0;  ///< the kernel's part of in/out; t_user_exit comes on top without an in-kernel device
  std::uint32_t h_npf = 0;
  std::uint32_t h_insn = 0;  ///< an instruction whose handler does little more than skip it: CR, DR, WBINVD
  std::uint32_t h_emulate = 0;    ///< x86_emulate_instruction: MMIO, and CRs without decode assists
  std::uint32_t h_intr = 0;       ///< INTR exit, without the host's interrupt handler
  std::uint32_t t_user_exit = 0;  ///< return to user space, device model and KVM_RUN again
  std::uint32_t t_device = 0;     ///< the device model's part of t_user_exit
  // Guest side.
  std::uint32_t t_irq_deliver = 0;  ///< IDT delivery
  std::uint32_t t_iret = 0;
  std::uint32_t t_insn = 0;           ///< any other instruction that completes in guest mode
  std::uint32_t t_halt_abort = 0;     ///< un-intercepted HLT with an event pending: enter and leave the halt
  std::uint32_t t_halt_wake = 0;      ///< wake of a CPU halted in guest mode
  std::uint32_t h_nested_vmrun = 0;   ///< VMRUN of a guest: checks, vmcb02, the change of MMU
  std::uint32_t h_nested_vmexit = 0;  ///< a #VMEXIT given to L1
  std::uint32_t t_line = 0;           ///< a store by one CPU becomes visible to another
  // Guest kernel code, as modelled guests run it.
  std::uint32_t g_call = 0;          ///< smp_call_function_*, from its caller to the first APIC access
  std::uint32_t g_call_target = 0;   ///< the same for each target
  std::uint32_t g_call_handler = 0;  ///< call-function vector, from its first instruction to the callback
  std::uint32_t g_spin_turn = 0;     ///< one turn of a loop around PAUSE
  std::uint32_t t_vhost = 0;         ///< a request to a virtual device: eventfd, vhost worker, irqfd
  std::uint32_t t_apic_native = 0;   ///< a write of the physical APIC, or of a device, without virtualization
  std::uint32_t g_irq = 0;           ///< interrupt entry to the handler's work, with irq_exit
  std::uint32_t g_timer = 0;         ///< hrtimer_interrupt
  std::uint32_t g_schedule = 0;      ///< __schedule and the switch
  std::uint32_t g_syscall = 0;       ///< a system call that does not sleep
  std::uint32_t g_wake = 0;          ///< try_to_wake_up
  std::uint32_t g_idle = 0;          ///< do_idle, twice between its top and the HLT
  std::uint32_t g_idle_exit = 0;     ///< behind the HLT
  // AVIC.
  std::uint32_t u_avic_icr = 0;          ///< accelerated ICR write for one target, up to its doorbell
  std::uint32_t u_avic_icr_end = 0;      ///< the rest of that instruction, behind the doorbell
  std::uint32_t u_avic_target = 0;       ///< each further target
  std::uint32_t u_avic_self = 0;         ///< accelerated IPI to the guest itself
  std::uint32_t u_avic_access = 0;       ///< any other accelerated APIC access
  std::uint32_t u_doorbell = 0;          ///< from the sending to the recognition in guest mode
  std::uint32_t u_stale_is_running = 0;  ///< erratum 1235: a sender sees IsRunning that long after its end
  std::uint32_t h_doorbell = 0;          ///< the host's WRMSR to the doorbell MSR
  std::uint32_t h_avic_ipi = 0;          ///< avic_incomplete_ipi exit, without what it does to the targets
  std::uint32_t h_avic_noaccel = 0;
  std::uint32_t h_avic_load = 0;     ///< setting or clearing IsRunning
  std::uint32_t h_apicv_update = 0;  ///< (de)activation at one vCPU
  // Host.
  std::uint32_t t_irq_host = 0;   ///< a host interrupt handler (reschedule IPI, device)
  std::uint32_t t_tick = 0;       ///< the host's tick handler
  std::uint32_t t_timer_arm = 0;  ///< arming a host timer for the emulated APIC timer
  std::uint32_t t_timer_irq = 0;  ///< the host's timer interrupt that finds it expired
  std::uint32_t t_sched_out = 0;
  std::uint32_t t_sched_in = 0;
  std::uint32_t t_ipi_hw = 0;   ///< host physical IPI, send to handler
  std::uint32_t t_wakeup = 0;   ///< try_to_wake_up by the waker
  std::uint32_t poll_step = 0;  ///< one turn of the halt-poll loop
  std::uint32_t t_trace = 0;    ///< recording one event, charged after its time stamp
};

struct CState {
  std::string name;
  std::uint64_t latency_ns = 0;    ///< declared
  std::uint64_t residency_ns = 0;  ///< declared
  std::uint64_t wake_ns = 0;       ///< real
};

}  // namespace svmsim::model
