#include "model/config/bindings.hpp"
#include "model/config/parameters.hpp"

namespace svmsim::model {

namespace {

constexpr std::int64_t largest_cost = 1000000000;

Binding<Costs> cost(const char* name, std::uint32_t Costs::*field, const char* doc,
                    std::int64_t minimum = 0) {
  auto binding =
      bindings::number<Costs>(std::string("host.cost.") + name, field, minimum, largest_cost, "cycles", doc,
                              "measurements section 3; the number's own source stands in the profile");
  binding.declaration.fallback.reset();
  binding.declaration.default_note = "from the profile, with its source";
  return binding;
}

Binding<Costs> entry_share() {
  auto binding = cost("t_world_entry_pct", &Costs::t_world_entry_pct,
                      "Share of t_world that lies before the first guest instruction.");
  binding.declaration.unit = "%";
  binding.declaration.maximum = 100;
  return binding;
}

}  // namespace

const std::vector<Binding<Costs>>& cost_parameters() {
  static const std::vector<Binding<Costs>> table{
      cost("t_world", &Costs::t_world, "VMRUN, loading of the guest, #VMEXIT and the assembly around them.",
           1),
      entry_share(),
      cost("t_loop", &Costs::t_loop, "KVM's run loop for an exit that the kernel completes."),
      cost("t_fastpath_loop", &Costs::t_fastpath_loop,
           "KVM's run loop for an exit that a fastpath completes."),
      cost("h_eoi", &Costs::h_eoi, "Handling of an x2APIC EOI write."),
      cost("h_icr", &Costs::h_icr, "Handling of an x2APIC ICR write, without what it does to the targets."),
      cost("h_accept_irq", &Costs::h_accept_irq, "Accepting one vector at one emulated LAPIC."),
      cost("h_msr", &Costs::h_msr, "Handling of any other MSR access."),
      cost("h_vintr", &Costs::h_vintr, "Handling of a vintr exit."),
      cost("h_irq_window", &Costs::h_irq_window, "Arming the interrupt window on an entry."),
      cost("h_inject", &Costs::h_inject, "Taking a vector from the emulated LAPIC into EVENTINJ."),
      cost("h_hlt", &Costs::h_hlt, "Handling of HLT itself (emulate_halt)."),
      cost("h_vcpu_block", &Costs::h_vcpu_block,
           "Passing through vcpu_block without blocking, as kernel 6.1 does."),
      cost("h_cpuid", &Costs::h_cpuid, "Handling of CPUID."),
      cost("h_vmmcall", &Costs::h_vmmcall, "Handling of a hypercall."),
      cost("h_pv_ipi", &Costs::h_pv_ipi,
           "KVM_HC_SEND_IPI on top of h_vmmcall, without what it does to the targets."),
      cost("h_pv_eoi", &Costs::h_pv_eoi, "Completing an EOI that the guest left out (PV EOI)."),
      cost("h_io_kernel", &Costs::h_io_kernel,
           "The kernel's part of IN or OUT; t_user_exit comes on top where no device in the kernel completes "
           "it."),
      cost("h_npf", &Costs::h_npf, "Handling of a nested page fault."),
      cost("h_insn", &Costs::h_insn, "Handling of CR and DR accesses, WBINVD, INVD and their like."),
      cost("h_emulate", &Costs::h_emulate,
           "KVM's instruction emulator: MMIO, and CR accesses on a CPU without decode assists."),
      cost("h_intr", &Costs::h_intr, "Handling of an interrupt exit, without the host's interrupt handler."),
      cost("t_user_exit", &Costs::t_user_exit, "Return to user space, device model and the next KVM_RUN."),
      cost("t_device", &Costs::t_device,
           "The device model's part of t_user_exit; HLT (vm.irqchip) and signals go without it."),
      cost("t_irq_deliver", &Costs::t_irq_deliver, "Delivery of an interrupt through the guest's IDT."),
      cost("t_iret", &Costs::t_iret, "IRET in the guest."),
      cost("t_insn", &Costs::t_insn, "Any other instruction that completes in guest mode.", 1),
      cost("t_halt_abort", &Costs::t_halt_abort,
           "HLT that is not intercepted while an event is pending: enter and leave the halt."),
      cost("t_halt_wake", &Costs::t_halt_wake, "Wake-up of a CPU that halts in guest mode."),
      cost("h_nested_vmrun", &Costs::h_nested_vmrun,
           "L0's handling of a guest's VMRUN: checks, the merged VMCB, the change of MMU."),
      cost("h_nested_vmexit", &Costs::h_nested_vmexit, "L0's handling of an exit that it gives to L1."),
      cost("t_line", &Costs::t_line, "A store by one CPU becomes visible to another one.", 1),
      cost("g_call", &Costs::g_call,
           "Guest kernel: smp_call_function from its caller to the first access of the APIC."),
      cost("g_call_target", &Costs::g_call_target,
           "Guest kernel: the same for each target, which is locked and queued."),
      cost("g_call_handler", &Costs::g_call_handler,
           "Guest kernel: the vector of a call from its first instruction to the callback, without the EOI."),
      cost("g_spin_turn", &Costs::g_spin_turn, "Guest kernel: one turn of a loop around PAUSE.", 1),
      cost("t_vhost", &Costs::t_vhost,
           "What virtualization adds to a device's latency: eventfd, the vhost worker's wake-up and copy, "
           "irqfd."),
      cost("t_apic_native", &Costs::t_apic_native,
           "vm.native: a write of the physical APIC's MSRs, or the notification of a device.", 1),
      cost("g_irq", &Costs::g_irq, "Guest kernel: interrupt entry, and irq_exit.", 1),
      cost("g_timer", &Costs::g_timer, "Guest kernel: hrtimer_interrupt, on top of g_irq."),
      cost("g_schedule", &Costs::g_schedule, "Guest kernel: the switch from one task to another.", 1),
      cost("g_syscall", &Costs::g_syscall, "Guest kernel: a system call that does not sleep.", 1),
      cost("g_wake", &Costs::g_wake, "Guest kernel: try_to_wake_up.", 1),
      cost("g_idle", &Costs::g_idle, "Guest kernel: the idle loop, twice between its top and HLT.", 1),
      cost("g_idle_exit", &Costs::g_idle_exit, "Guest kernel: behind HLT, until the idle loop has looked.",
           1),
      cost("u_avic_icr", &Costs::u_avic_icr,
           "ICR write that AVIC carries out for one target, up to its doorbell."),
      cost("u_avic_icr_end", &Costs::u_avic_icr_end, "The rest of such an ICR write, behind its doorbell."),
      cost("u_avic_target", &Costs::u_avic_target, "Each further target of such an ICR write."),
      cost("u_avic_self", &Costs::u_avic_self, "IPI of a guest to itself that AVIC carries out."),
      cost("u_avic_access", &Costs::u_avic_access,
           "Any other APIC access that AVIC carries out: EOI, TPR, reads."),
      cost("u_doorbell", &Costs::u_doorbell,
           "Doorbell, from its sending to its recognition by a core in guest mode.", 1),
      cost("u_stale_is_running", &Costs::u_stale_is_running,
           "Erratum 1235: for how long after IsRunning was cleared a sender may still see it set "
           "(host.knobs.isrunning_stale_read)."),
      cost("h_doorbell", &Costs::h_doorbell, "The host's WRMSR to the doorbell MSR."),
      cost("h_avic_ipi", &Costs::h_avic_ipi,
           "Handling of an avic_incomplete_ipi exit, without what it does to the targets."),
      cost("h_avic_noaccel", &Costs::h_avic_noaccel, "Handling of an avic_unaccelerated_access exit."),
      cost("h_avic_load", &Costs::h_avic_load,
           "Setting or clearing IsRunning when a vCPU is loaded, put, blocks or wakes."),
      cost("h_apicv_update", &Costs::h_apicv_update, "Changing one vCPU over to AVIC or back."),
      cost("t_irq_host", &Costs::t_irq_host, "The host's handler of an interrupt (reschedule IPI, device)."),
      cost("t_tick", &Costs::t_tick, "The host's tick handler."),
      cost("t_timer_arm", &Costs::t_timer_arm, "Arming a host timer for the timer of an emulated APIC."),
      cost("t_timer_irq", &Costs::t_timer_irq, "The host's timer interrupt that finds such a timer expired."),
      cost("t_sched_out", &Costs::t_sched_out,
           "From the decision to block to the next task or the idle loop."),
      cost("t_sched_in", &Costs::t_sched_in, "From the wake-up to running on a CPU that is awake."),
      cost("t_ipi_hw", &Costs::t_ipi_hw, "Physical IPI of the host, send to handler."),
      cost("t_wakeup", &Costs::t_wakeup, "try_to_wake_up, paid by the waker."),
      cost("poll_step", &Costs::poll_step, "One turn of the halt-polling loop.", 1),
      cost("t_trace", &Costs::t_trace, "Recording one event, charged after its time stamp."),
  };
  return table;
}

}  // namespace svmsim::model
