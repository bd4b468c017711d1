#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "workloads/trace/replay_source.hpp"

namespace svmsim::workloads {

/// A vCPU, a LAPIC and a KVM of sixty lines, just enough to tell which exits a replayed self-IPI guest takes:
/// interrupt window when an accepted interrupt meets IF = 0 or a shadow, HLT intercepted always or (idle HLT)
/// only without a pending V_IRQ.
class TinyMachine {
 public:
  TinyMachine(ReplaySource& source, bool idle_hlt) : source_(source), idle_hlt_(idle_hlt) {
    const InitialState initial = source.initial_state();
    if_ = initial.interrupts_enabled;
    rip_ = initial.rip;
    gdt_page_ = (initial.gdt_base + initial.code_selector) & ~std::uint64_t{0xfff};
    absent_.insert(initial.absent_pages.begin(), initial.absent_pages.end());
  }

  struct Exit {
    std::string name;
    std::uint64_t rip;
    bool operator==(const Exit& other) const { return name == other.name && rip == other.rip; }
  };

  void run() {
    for (int steps = 0; steps < 10'000'000; ++steps) {
      const svm::GuestAction* action = source_.current();
      if (action == nullptr) return;
      while (source_.take_host_interrupt()) {
        exit("interrupt", rip_);
        evaluate();
      }
      while (const auto vector = source_.take_external_interrupt()) {
        pending_.insert(*vector);
        evaluate();
      }
      if (window_ && if_ && !shadow_) {
        window_ = false;
        exit("vintr", rip_);
        evaluate();
        continue;
      }
      if (action != source_.current()) continue;  // an interrupt was injected meanwhile
      if (action->rip != rip_) rip_errors.emplace_back(rip_, action->rip);
      execute(*action);
    }
    stuck = true;
  }

  std::vector<Exit> exits;
  std::map<std::string, std::uint64_t> counts;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> rip_errors;
  bool stuck = false;

 private:
  struct Frame {
    std::uint64_t rip;
  };

  void exit(const std::string& name, std::uint64_t rip) {
    exits.push_back({name, rip});
    ++counts[name];
  }

  // KVM before VMRUN: inject, or open a window.
  void evaluate() {
    if (pending_.empty()) return;
    const std::uint8_t vector = *pending_.rbegin();
    if (!in_service_.empty() && vector >> 4 <= in_service_.back() >> 4) return;
    if (!if_ || shadow_) {
      window_ = true;
      return;
    }
    pending_.erase(vector);
    in_service_.push_back(vector);
    if (absent_.erase(gdt_page_) != 0) exit("npf", rip_);
    frames_.push_back({rip_});
    if_ = false;
    source_.interrupt(vector, 0);
    rip_ = source_.handler_entry(vector);
  }

  void retire(const svm::GuestAction& action) {
    shadow_ = false;
    rip_ = action.next_rip();
    jumped_ = action.kind == svm::ActionKind::compute;
    source_.retire(0, 0);
    // A guest may jump at the end of compute.
    if (jumped_ && source_.current() != nullptr) rip_ = source_.current()->rip;
  }

  void execute(const svm::GuestAction copy) {
    using svm::ActionKind;
    switch (copy.kind) {
      case ActionKind::cli:
        if_ = false;
        retire(copy);
        return;
      case ActionKind::sti: {
        const bool was_off = !if_;
        if_ = true;
        retire(copy);
        shadow_ = was_off;
        return;
      }
      case ActionKind::hlt:
        if (!idle_hlt_ || !window_) exit(idle_hlt_ ? "idle-halt" : "hlt", copy.rip);
        retire(copy);
        if (pending_.empty()) halts_for_ever_ = true;
        return;
      case ActionKind::iret:
        retire(copy);
        if (!frames_.empty()) {
          rip_ = frames_.back().rip;
          frames_.pop_back();
          if_ = true;
        }
        return;
      case ActionKind::wrmsr:
        if (!source_.current_is_partial()) exit("msr", copy.rip);
        retire(copy);
        if (copy.number == 0x830) pending_.insert(static_cast<std::uint8_t>(copy.operand[0]));
        if (copy.number == 0x80b && !in_service_.empty()) in_service_.pop_back();
        evaluate();
        return;
      case ActionKind::memory_read:
      case ActionKind::memory_write:
        if (absent_.erase(copy.operand[1] & ~std::uint64_t{0xfff}) != 0) exit("npf", copy.rip);
        retire(copy);
        return;
      case ActionKind::rdmsr:
        exit("msr", copy.rip);
        break;
      case ActionKind::in:
      case ActionKind::out:
        exit("io", copy.rip);
        break;
      case ActionKind::cpuid:
        exit("cpuid", copy.rip);
        break;
      case ActionKind::vmmcall:
        exit("hypercall", copy.rip);
        break;
      default:
        break;
    }
    retire(copy);
  }

  ReplaySource& source_;
  bool idle_hlt_;
  bool if_ = false;
  bool shadow_ = false;
  bool window_ = false;
  bool jumped_ = false;
  bool halts_for_ever_ = false;
  std::uint64_t rip_ = 0;
  std::uint64_t gdt_page_ = 0;
  std::set<std::uint64_t> absent_;
  std::set<std::uint8_t> pending_;
  std::vector<std::uint8_t> in_service_;
  std::vector<Frame> frames_;
};

}  // namespace svmsim::workloads
