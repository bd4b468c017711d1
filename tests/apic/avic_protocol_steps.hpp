#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "tests/apic/avic_protocol.hpp"

// The steps of AvicProtocol: what each actor can do in a state.
namespace svmsim::apic::test {

// A sender: hardware up to the exit, then KVM's handler of exit 401h id 1.
template <typename Emit>
void AvicProtocol::send(const State& state, std::size_t i, Emit& emit) {
  const bool is_device = i == 1 && options_.second_is_device;
  const std::uint8_t vector = options_.vectors[i];
  const std::string who = is_device ? "device: " : fmt::format("sender {}: ", i);
  const auto act = [](State& s, std::size_t at, PhysicalIdEntry seen) {
    if (seen.is_running()) {
      ++s.doorbells[seen.host_apic_id() - host_id(0)];
      s.senders[at].at = Send::done;
    } else {
      s.senders[at].at = Send::kick;
    }
  };
  switch (state.senders[i].at) {
    case Send::request:
      step(state, emit, fmt::format("{}IRR[{:x}h] := 1", who, vector), [&](State& s) {
        page().request(vector);
        s.senders[i].at = Send::notify;
      });
      if (options_.erratum_1235 && !is_device) {
        step(state, emit, fmt::format("{}reads IsRunning = {} too early", who, state.entry.is_running()),
             [&](State& s) {
               s.senders[i].seen = s.entry;
               s.senders[i].at = Send::late_request;
             });
      }
      break;
    case Send::late_request:
      step(state, emit, fmt::format("{}IRR[{:x}h] := 1, acts on the old IsRunning", who, vector),
           [&](State& s) {
             page().request(vector);
             act(s, i, std::exchange(s.senders[i].seen, {}));
           });
      break;
    case Send::notify:
      if (is_device) {
        step(state, emit, fmt::format("{}IsRun = {}", who, state.irte.is_run()), [&](State& s) {
          GaLog log;
          const PostOutcome outcome = notify_posted(s.irte, device, log);
          if (outcome == PostOutcome::doorbell) ++s.doorbells[s.irte.destination() - host_id(0)];
          s.senders[i].at = log.take().has_value() ? Send::wake : Send::done;
        });
      } else {
        step(state, emit, fmt::format("{}reads IsRunning = {}", who, state.entry.is_running()),
             [&](State& s) { act(s, i, s.entry); });
      }
      break;
    case Send::kick:
      step(state, emit, fmt::format("{}exit 401h id 1, vCPU in guest mode = {}", who, state.mode_in_guest),
           [&](State& s) {
             s.senders[i].at = s.mode_in_guest ? Send::ring : Send::wake;
             if (options_.exit_wakes_nobody) s.senders[i].at = Send::done;
           });
      break;
    case Send::ring:
      step(state, emit, fmt::format("{}KVM rings core {}", who, state.cpu), [&](State& s) {
        ++s.doorbells[s.cpu];
        s.senders[i].at = Send::done;
      });
      break;
    case Send::wake:
      step(state, emit, who + "KVM wakes the thread", [&](State& s) {
        wake_up(s);
        s.senders[i].at = Send::done;
      });
      break;
    case Send::done:
      break;
  }
}

// The vCPU's thread, in the guest and in KVM.
template <typename Emit>
void AvicProtocol::run(const State& state, Emit& emit) {
  const auto go = [&](const char* label, Pc next) {
    step(state, emit, label, [next](State& s) { s.pc = next; });
  };
  const bool requested = [&] {
    restore(state);
    return page().deliverable() >= 0;
  }();
  switch (state.pc) {
    case Pc::guest_idle:
      if (options_.hlt == HltPolicy::never_exits || (options_.hlt == HltPolicy::idle_exits && requested)) {
        go("guest: STI; HLT halts in the guest", Pc::guest_halted);
      } else {
        step(state, emit, "guest: STI; HLT exits", [](State& s) {
          s.core.vmexit();
          s.guest_pc = Pc::guest_open;
          s.pc = Pc::exited;
        });
      }
      break;
    case Pc::guest_halted:
    case Pc::guest_open:
      if (state.core.pending() >= 0) {
        step(state, emit, fmt::format("guest: takes {:x}h", state.core.pending()), [&](State& s) {
          const int vector = s.core.acknowledge();
          if (vector >= 0) ++s.taken[of(vector)];
          s.pc = Pc::guest_handler;
        });
      } else if (state.pc == Pc::guest_open) {
        go("guest: idle loop, CLI", Pc::guest_idle);
      }
      break;
    case Pc::guest_handler:
      step(state, emit, "guest: EOI, IRET", [](State& s) {
        DoorbellList none;
        s.core.write_msr(msr_x2apic_eoi, 0, none);
        s.pc = Pc::guest_open;
      });
      break;
    case Pc::exited:
      step(state, emit, "target: vcpu->mode := outside", [&](State& s) {
        s.mode_in_guest = false;
        s.pc = options_.polls ? Pc::poll : Pc::start_waiting;
      });
      break;
    case Pc::poll:
      go(requested ? "target: polls, finds an interrupt" : "target: polls, finds nothing",
         requested ? Pc::set_mode : Pc::start_waiting);
      break;
    case Pc::start_waiting:
      step(state, emit, "target: rcuwait set, starts to block", [&](State& s) {
        s.waiting = true;
        s.pc = options_.check_before_clear ? Pc::early_check : Pc::clear_iommu;
      });
      break;
    case Pc::early_check:
      go(requested ? "target: finds an interrupt" : "target: IRR is empty",
         requested ? Pc::stop_waiting : Pc::clear_iommu);
      break;
    case Pc::clear_iommu:
      step(state, emit, "target: IRTE IsRun := 0, GALogIntr := 1", [&](State& s) {
        s.irte.clear_running(!options_.no_ga_log);
        s.pc = Pc::clear_running;
      });
      break;
    case Pc::clear_running:
      step(state, emit, "target: IsRunning := 0", [&](State& s) {
        s.entry = s.entry.not_running();
        s.pc = options_.late_task_state ? Pc::check : Pc::set_task_state;
      });
      break;
    case Pc::set_task_state: {
      const bool skips =
          options_.check_before_clear || options_.no_check_after_clear || options_.late_task_state;
      step(state, emit, "target: TASK_INTERRUPTIBLE", [skips](State& s) {
        s.interruptible = true;
        s.pc = skips ? Pc::schedule : Pc::check;
      });
      break;
    }
    case Pc::check: {
      const Pc next = options_.late_task_state ? Pc::set_task_state : Pc::schedule;
      go(requested ? "target: finds an interrupt" : "target: IRR is empty",
         requested ? Pc::stop_waiting : next);
      break;
    }
    case Pc::schedule:
      if (state.interruptible) {
        go("target: schedules, sleeps", Pc::asleep);
      } else {
        go("target: schedules, was woken", options_.late_task_state ? Pc::check : Pc::set_task_state);
      }
      break;
    case Pc::stop_waiting:
      step(state, emit, "target: rcuwait cleared", [](State& s) {
        s.interruptible = false;
        s.waiting = false;
        s.pc = Pc::set_running;
      });
      break;
    case Pc::set_running:
      step(state, emit, "target: IsRunning := 1", [&](State& s) {
        load(s);
        s.pc = Pc::set_mode;
      });
      break;
    case Pc::set_mode:
      step(state, emit, "target: vcpu->mode := in guest", [](State& s) {
        s.mode_in_guest = true;
        s.pc = Pc::vmrun;
      });
      break;
    case Pc::vmrun:
      step(state, emit, "target: VMRUN evaluates", [&](State& s) {
        s.core.vmrun(control_, memory_);
        s.pc = Pc::entering;
      });
      break;
    case Pc::entering:
      step(state, emit, "target: VMRUN complete", [](State& s) {
        s.core.entered();
        s.latched = false;
        s.pc = s.guest_pc;
      });
      break;
    case Pc::interrupted:
      step(state, emit, "target: vcpu->mode := outside", [](State& s) {
        s.mode_in_guest = false;
        s.host_pc = Pc::set_mode;
        s.pc = Pc::preempt;
      });
      break;
    case Pc::preempt:
      step(state, emit, "target: scheduled out, IsRunning := 0", [](State& s) {
        // What blocks has done so already, with its own GALogIntr.
        if (s.irte.is_run()) s.irte.clear_running(false);
        s.entry = s.entry.not_running();
        s.pc = Pc::preempted;
      });
      break;
    case Pc::preempted:
      for (std::uint8_t cpu = 0; cpu < 2; ++cpu) {
        step(state, emit, fmt::format("target: scheduled in on core {}", cpu), [&](State& s) {
          s.cpu = cpu;
          if (!s.waiting || options_.load_ignores_blocking) load(s);
          s.pc = s.host_pc;
        });
      }
      break;
    case Pc::asleep:
      break;
  }
}

// A physical interrupt, after which the host runs another task for a while.
template <typename Emit>
void AvicProtocol::preempt(const State& state, Emit& emit) {
  if (state.preemptions == 0) return;
  switch (state.pc) {
    case Pc::guest_idle:
    case Pc::guest_halted:
    case Pc::guest_open:
    case Pc::guest_handler:
      step(state, emit, "guest: physical interrupt, exit", [](State& s) {
        --s.preemptions;
        s.core.vmexit();
        // The VMCB knows no halt: VMRUN goes on after HLT.
        s.guest_pc = s.pc == Pc::guest_halted ? Pc::guest_open : s.pc;
        s.pc = Pc::interrupted;
      });
      break;
    case Pc::poll:
    case Pc::start_waiting:
    case Pc::set_task_state:
    case Pc::check:
    case Pc::schedule:
    case Pc::set_mode:
      step(state, emit, "target: is preempted", [](State& s) {
        --s.preemptions;
        s.host_pc = s.pc;
        s.pc = Pc::preempt;
      });
      break;
    default:  // preemption or interrupts are off, or there is nothing to preempt
      break;
  }
}

}  // namespace svmsim::apic::test
