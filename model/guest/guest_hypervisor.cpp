#include "model/guest/guest_hypervisor.hpp"

#include <algorithm>
#include <numeric>

#include "apic/apic_registers.hpp"
#include "model/units.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::model {

using svm::ActionKind;
using workloads::InitialState;

namespace {

constexpr std::uint64_t text = 0xffffffff81000000;
constexpr std::uint64_t handler_text = 0xffffffff81800000;
constexpr std::uint64_t vmcb12_page = 0x1'0000'0000;
constexpr std::uint64_t host_page = 0x2'0000'0000;
constexpr std::uint64_t page_size = 0x1000;
constexpr std::uint32_t msr_lvt_timer = 0x832;
constexpr std::uint32_t msr_vm_hsave_pa = 0xc0010117;
constexpr std::uint32_t lvt_tsc_deadline = 1U << 18;

std::uint8_t length_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::cli:
    case ActionKind::sti:
    case ActionKind::hlt:
      return 1;
    case ActionKind::iret:
    case ActionKind::wrmsr:
      return 2;
    default:
      return 3;  // VMRUN, VMLOAD, VMSAVE, STGI, CLGI
  }
}

}  // namespace

GuestHypervisorVm::GuestHypervisorVm(const GuestHypervisorConfig& in_config) : config(in_config) {
  msrpm.fill(true);
  iopm.fill(true);
  // direct_access_msrs of svm.c; Hyper-V's choice is not published and taken to be the same.
  for (const std::uint32_t msr : {0xc0000081U, 0xc0000100U, 0xc0000101U, 0xc0000102U, 0xc0000082U,
                                  0xc0000083U, 0xc0000084U, 0x174U, 0x175U, 0x176U, 0x48U, 0x49U})
    msrpm.set(msr, false, false);
  std::vector<std::uint32_t> ids(config.vcpus);
  std::iota(ids.begin(), ids.end(), 0U);
  apics = apic::DestinationMap(std::move(ids));
  arbiter = apic::Arbiter(config.vcpus, apic::ArbitrationPolicy::vector_hashing);
  vcpus.resize(config.vcpus);
}

GuestHypervisor::GuestHypervisor(std::shared_ptr<GuestHypervisorVm> vm, unsigned index,
                                 const apic::LocalApicOptions& apic_options,
                                 std::unique_ptr<workloads::WorkloadSource> l2)
    : vm_(std::move(vm)),
      index_(index),
      l2_(std::move(l2)),
      config_(vm_->config),
      apic_(index, apic_options) {
  vm_->vcpus[index] = this;
  code_.items.reserve(32);
  handler_.items.reserve(8);
  const InitialState initial = l2_->initial_state();
  absent_pages_ = initial.absent_pages;
  mmio_pages_ = initial.mmio_pages;
  if (apic_.mode() == apic::ApicMode::x2apic) {
    static_cast<void>(apic_.write_msr(apic::msr_x2apic_svr, initial.apic_svr));
  } else {
    static_cast<void>(apic_.write_mmio(apic::APIC_SPIV, initial.apic_svr));
  }
  vm_->apics.update(index_, apic_.address());
  init_vmcb12(initial);
  // L1's start: its own timer's vector, the page for the CPU's host state.
  begin();
  write_msr(code_, msr_lvt_timer, lvt_tsc_deadline | timer_vector);
  write_msr(code_, msr_vm_hsave_pa, host_page + page_size * 0x1000 + index_ * page_size);
  work(1, Meaning::started);
}

InitialState GuestHypervisor::initial_state() const {
  InitialState initial;
  initial.rip = text;
  initial.interrupts_enabled = true;
  initial.gdt_base = 0x10'0000'0000;
  initial.idt_base = 0x10'0001'0000;
  initial.code_selector = 0x10;
  initial.apic_svr = 0x1ff;
  return initial;
}

svm::Vmcb* GuestHypervisor::vmcb_page(std::uint64_t address) {
  if (address == vmcb12_page + index_ * page_size) return &vmcb12_;
  if (address == host_page + index_ * page_size) return &host_area_;
  return nullptr;
}

std::uint64_t GuestHypervisor::ns(std::uint64_t cycles) const {
  return cycles_to_ns(cycles, config_.tsc_hz);
}

void GuestHypervisor::work(std::uint64_t cycles, Meaning meaning) {
  // What it reads and writes is shared where L2 has several vCPUs.
  const bool shared = meaning != Meaning::none && config_.vcpus > 1;
  code_.compute(std::max<std::uint64_t>(cycles, 1), text + 0x1000, shared ? svm::action_flags::shared : 0,
                meaning);
}

void GuestHypervisor::instruction(ActionKind kind, std::uint64_t operand) {
  svm::GuestAction action;
  action.kind = kind;
  action.length = length_of(kind);
  action.rip = text + (static_cast<std::uint64_t>(kind) << 4);
  action.operand[1] = operand;
  code_.add(action);
}

void GuestHypervisor::write_msr(Code& code, std::uint32_t msr, std::uint64_t value) {
  svm::GuestAction action;
  action.kind = ActionKind::wrmsr;
  action.length = length_of(ActionKind::wrmsr);
  action.rip = text + 0x2000;
  action.number = msr;
  action.operand[0] = value;
  code.add(action);
}

void GuestHypervisor::retire(std::uint64_t tsc, std::uint64_t result) {
  if (in_l2_) return l2_->retire(tsc, result);
  if (in_handler_) {
    const Meaning meaning = handler_.items[handler_next_++].meaning;
    if (meaning == Meaning::interrupted) interrupted(tsc);
    if (meaning == Meaning::handler_end) in_handler_ = false;
    return;
  }
  const Meaning meaning = code_.items[next_++].meaning;
  if (meaning != Meaning::none) act(meaning, tsc);
}

const std::vector<unsigned>& GuestHypervisor::retire_shared(std::uint64_t tsc) {
  if (in_l2_) return l2_->retire_shared(tsc);
  reached_.clear();
  retire(tsc, 0);
  return reached_;
}

std::uint64_t GuestHypervisor::spin_ready() const {
  if (in_l2_) return l2_->spin_ready();
  if (timer_pending_) return 0;
  return std::min(poll_stop_, store_cycles_);
}

void GuestHypervisor::act(Meaning meaning, std::uint64_t tsc) {
  switch (meaning) {
    case Meaning::started:
      begin();
      return enter_guest();
    case Meaning::look:
      return look(tsc);
    case Meaning::exited:
      return take_exit();
    case Meaning::handle:
      return handle(tsc, false);
    case Meaning::fastpath:
      return handle(tsc, true);
    case Meaning::block:
      return block(tsc);
    case Meaning::poll_end:
      return poll_end(tsc);
    case Meaning::idle_look:
      return idle_look();
    case Meaning::idle_woken:
      begin();
      return idle();
    case Meaning::unblock:
      return unblock(tsc);
    default:
      return;
  }
}

// vcpu_enter_guest up to the last look at requests, which interrupts must not follow unseen.
void GuestHypervisor::enter_guest() {
  where_ = Where::host;
  work(config_.cost.t_loop / 2);
  instruction(ActionKind::cli);
  work(1, Meaning::look);
}

void GuestHypervisor::look(std::uint64_t tsc) {
  begin();
  if (timer_pending_) {
    timer_pending_ = false;
    const std::uint32_t entry = apic_.lvt_timer();
    if (apic_.hardware_enabled() && (entry & apic::LocalApic::lvt_masked) == 0)
      static_cast<void>(apic_.accept(static_cast<std::uint8_t>(entry)));
    if (apic_.timer().mode() == apic::TimerMode::periodic) restart_timer(tsc);
  }
  take_incoming();
  injection_cycles_ = 0;
  check_and_inject_events();
  if (injection_cycles_ != 0) work(injection_cycles_);
  run();
}

// svm_vcpu_run.
void GuestHypervisor::run() {
  where_ = Where::guest;
  vmcb12_.control.int_ctl = svm::int_ctl::with_v_tpr(vmcb12_.control.int_ctl, apic_.cr8());
  instruction(ActionKind::clgi);
  instruction(ActionKind::sti);
  instruction(ActionKind::vmload, vmcb12_page + index_ * page_size);
  instruction(ActionKind::vmrun, vmcb12_page + index_ * page_size);
  instruction(ActionKind::vmsave, vmcb12_page + index_ * page_size);
  instruction(ActionKind::vmload, host_page + index_ * page_size);
  instruction(ActionKind::cli);
  instruction(ActionKind::stgi);
  work(1, Meaning::exited);
}

void GuestHypervisor::take_exit() {
  where_ = Where::host;
  begin();
  after_exit();
  if (takes_fastpath()) return work(handler_cycles() + config_.cost.t_fastpath_loop, Meaning::fastpath);
  // Interrupts are on from here: what ended L2 is served before the exit is handled.
  instruction(ActionKind::sti);
  work(config_.cost.t_loop - config_.cost.t_loop / 2 + handler_cycles(), Meaning::handle);
}

void GuestHypervisor::interrupt(std::uint8_t vector, std::uint64_t tsc) {
  if (in_l2_) return l2_->interrupt(vector, tsc);
  in_handler_ = true;
  handler_vector_ = vector;
  handler_.items.clear();
  handler_next_ = 0;
  const std::uint64_t cycles = vector == timer_vector ? config_.cost.t_timer_irq : config_.cost.t_irq_host;
  const bool shared = config_.vcpus > 1;
  handler_.compute(std::max<std::uint64_t>(cycles, 1), handler_entry(vector),
                   shared ? svm::action_flags::shared : 0, Meaning::interrupted);
  write_msr(handler_, apic::msr_x2apic_eoi, 0);
  handler_.instruction(ActionKind::iret, text + 0x3000, length_of(ActionKind::iret), Meaning::handler_end);
}

std::uint64_t GuestHypervisor::handler_entry(std::uint8_t vector) const {
  return in_l2_ ? l2_->handler_entry(vector) : handler_text + (std::uint64_t{vector} << 5);
}

// apic_timer_fn; a reschedule IPI does nothing; every other vector is a device that L1 has given to L2
// (irqfd), with the vector that L2 knows.
void GuestHypervisor::interrupted(std::uint64_t tsc) {
  if (handler_vector_ == timer_vector) {
    static_cast<void>(apic_.take_timer(tsc));
    timer_pending_ = true;
  } else if (handler_vector_ != reschedule_vector) {
    incoming_.set(handler_vector_);
    store_cycles_ = tsc;
  }
}

// vcpu_block, kvm_vcpu_halt.
void GuestHypervisor::block(std::uint64_t tsc) {
  begin();
  take_incoming();
  if (has_wake_event()) {
    halted_ = false;
    return enter_guest();
  }
  if (timer_pending_) {  // the outer loop makes an interrupt of it, and comes back
    timer_pending_ = false;
    const std::uint32_t entry = apic_.lvt_timer();
    if (apic_.hardware_enabled() && (entry & apic::LocalApic::lvt_masked) == 0)
      static_cast<void>(apic_.accept(static_cast<std::uint8_t>(entry)));
    if (apic_.timer().mode() == apic::TimerMode::periodic) restart_timer(tsc);
    return work(config_.cost.h_vcpu_block, Meaning::block);
  }
  halt_start_ = tsc;
  poll_ended_ = tsc;
  plan_ = {};
  if (config_.style == L1Style::kvm) plan_ = poller_.begin(ns(tsc), config_.halt_poll);
  if (!plan_.poll) {
    work(config_.cost.t_sched_out);
    return idle();
  }
  where_ = Where::polling;
  store_cycles_ = never_ready;
  poll_stop_ = tsc + ns_to_cycles(plan_.stop_ns - plan_.start_ns, config_.tsc_hz);
  code_.compute(std::max<std::uint64_t>(config_.cost.poll_step, 1), text + 0x4000, svm::action_flags::spin,
                Meaning::poll_end);
}

void GuestHypervisor::poll_end(std::uint64_t tsc) {
  begin();
  where_ = Where::host;
  poll_ended_ = tsc;
  if (check_block()) return finish_halt(tsc, false);
  work(config_.cost.t_sched_out);
  idle();
}

// schedule() of the vCPU thread, and the idle loop of L1's kernel.
void GuestHypervisor::idle() {
  instruction(ActionKind::cli);
  work(1, Meaning::idle_look);
}

void GuestHypervisor::idle_look() {
  begin();
  instruction(ActionKind::sti);
  if (check_block()) {
    where_ = Where::host;
    return work(config_.cost.t_sched_in, Meaning::unblock);
  }
  where_ = Where::idle;
  instruction(ActionKind::hlt);
  work(config_.cost.g_idle_exit, Meaning::idle_woken);
}

void GuestHypervisor::unblock(std::uint64_t tsc) {
  begin();
  where_ = Where::host;
  finish_halt(tsc, true);
}

void GuestHypervisor::finish_halt(std::uint64_t tsc, bool waited) {
  if (config_.style == L1Style::kvm) {
    static_cast<void>(poller_.finish(plan_, {ns(poll_ended_), ns(tsc), waited}, config_.halt_poll));
  }
  work(config_.cost.h_vcpu_block, Meaning::block);
}

}  // namespace svmsim::model
