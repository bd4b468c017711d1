#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "apic/avic/avic_core.hpp"
#include "apic/avic/posted_interrupt.hpp"
#include "svm/vmcb.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::apic::test {

enum class HltPolicy : std::uint8_t { exits, idle_exits, never_exits };

/// What the model checks is made of: the processor, the hypervisor, and mistakes that either could make.
struct ProtocolOptions {
  std::array<std::uint8_t, 2> vectors{0x41, 0x52};
  HltPolicy hlt = HltPolicy::exits;
  bool enable_ipiv = true;        ///< KVM sets IsRunning in the table that the processor reads
  bool polls = false;             ///< KVM looks once before it starts to block (halt polling)
  bool second_is_device = false;  ///< the second sender is a device behind the IOMMU
  int preemptions = 1;

  bool erratum_1235 = false;           ///< IsRunning may be read before the IRR is written
  bool no_check_after_clear = false;   ///< KVM blocks without the second look at the IRR
  bool check_before_clear = false;     ///< KVM looks at the IRR, then clears IsRunning
  bool late_task_state = false;        ///< KVM sets TASK_INTERRUPTIBLE after it has looked
  bool load_ignores_blocking = false;  ///< KVM sets IsRunning when it schedules in a vCPU that blocks
  bool exit_wakes_nobody = false;      ///< KVM does nothing at exit 401h id 1
  bool no_ga_log = false;              ///< KVM blocks without GALogIntr
};

/// The protocol of fact sheet 8.7 between senders of interrupts and a vCPU that blocks: memory accesses of
/// the hardware and of KVM (kvm-software.md 1.7, 1.8, 6.2, 6.3), one a step, in every interleaving. The
/// hardware's part is that of the classes themselves: BackingPage, PhysicalIdEntry, Irte, AvicCore.
class AvicProtocol {
 public:
  enum class Pc : std::uint8_t {
    guest_idle,    // interrupts off, about to STI; HLT
    guest_halted,  // in guest mode
    guest_open,    // interrupts on
    guest_handler,
    exited,  // by HLT
    poll,
    start_waiting,
    clear_running,
    clear_iommu,
    early_check,
    set_task_state,
    check,
    schedule,
    asleep,
    stop_waiting,
    set_running,
    set_mode,
    vmrun,
    entering,
    interrupted,  // by a physical interrupt
    preempt,
    preempted,
  };
  enum class Send : std::uint8_t { request, late_request, notify, kick, ring, wake, done };

  struct Sender {
    Send at = Send::request;
    PhysicalIdEntry seen{};
  };

  struct State {
    explicit State(const AvicCore& of) : core(of) {}

    Pc pc = Pc::guest_idle;
    Pc guest_pc = Pc::guest_idle;  // where the guest goes on
    Pc host_pc = Pc::set_mode;     // where a preempted thread goes on
    std::uint8_t cpu = 0;          // where the vCPU's thread runs or ran last
    bool mode_in_guest = true;     // vcpu->mode
    bool waiting = false;          // rcuwait
    bool interruptible = false;
    int preemptions = 0;
    std::array<std::uint8_t, 2> doorbells{};  // in flight, by receiving core
    std::array<std::uint8_t, 2> taken{};      // by sender; the first one's where both have one vector
    std::array<Sender, 2> senders{};
    std::array<std::uint32_t, 8> irr{};
    std::array<std::uint32_t, 8> isr{};
    std::uint8_t ppr = 0;
    PhysicalIdEntry entry{};
    Irte irte{};
    AvicCore core;
    bool latched = false;  // the core keeps a doorbell that came during VMRUN
  };

  explicit AvicProtocol(ProtocolOptions options) : options_(options), memory_({1, 1, 1}) {
    page().reset(0, 0x00050010, true);
    control_.int_ctl = svm::int_ctl::avic_enable | svm::int_ctl::x2avic_enable;
    control_.avic_backing_page = memory_.backing_pages.address(0);
    control_.avic_physical_id = memory_.physical_tables.address(0);
  }

  State initial() {
    State state{AvicCore(registers_)};
    state.preemptions = options_.preemptions;
    state.entry = PhysicalIdEntry::make(memory_.backing_pages.address(0));
    state.irte = Irte::posted(options_.vectors[1], memory_.backing_pages.address(0), 0x77);
    load(state);
    restore(state);
    state.core.vmrun(control_, memory_);
    state.core.entered();
    return state;
  }

  static std::string key(const State& s) {
    std::string key;
    const auto add = [&key](std::uint64_t value) {
      key.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    add(static_cast<std::uint64_t>(s.pc) | static_cast<std::uint64_t>(s.guest_pc) << 8 |
        static_cast<std::uint64_t>(s.host_pc) << 16 | std::uint64_t{s.cpu} << 24 |
        (s.mode_in_guest ? 1ULL << 32 : 0) | (s.waiting ? 1ULL << 33 : 0) |
        (s.interruptible ? 1ULL << 34 : 0) | (s.latched ? 1ULL << 39 : 0) |
        static_cast<std::uint64_t>(s.preemptions) << 35 | std::uint64_t{s.doorbells[0]} << 40 |
        std::uint64_t{s.doorbells[1]} << 48 | static_cast<std::uint64_t>(s.ppr) << 56);
    for (const Sender& sender : s.senders) {
      add(static_cast<std::uint64_t>(sender.at));
      add(sender.seen.raw);
    }
    for (std::size_t i = 0; i < 8; ++i)
      add(std::uint64_t{s.irr[i]} << 32 | s.isr[i]);
    add(std::uint64_t{s.taken[0]} << 8 | s.taken[1]);
    add(s.entry.raw);
    add(s.irte.low);
    add(static_cast<std::uint64_t>(s.core.pending() + 1));
    add(static_cast<std::uint64_t>(s.core.active()));
    return key;
  }

  template <typename Emit>
  void successors(const State& state, Emit&& emit) {
    for (std::size_t i = 0; i < state.senders.size(); ++i)
      send(state, i, emit);
    for (std::size_t cpu = 0; cpu < state.doorbells.size(); ++cpu) {
      if (state.doorbells[cpu] == 0) continue;
      step(state, emit, fmt::format("doorbell reaches core {}", cpu), [&](State& s) {
        --s.doorbells[cpu];
        if (s.cpu != cpu) return;
        if (s.core.doorbell(s.pc == Pc::guest_halted) == DoorbellEffect::latched) s.latched = true;
      });
    }
    run(state, emit);
    preempt(state, emit);
  }

  [[nodiscard]] std::string violation(const State& state, bool is_final) const {
    const bool same = options_.vectors[0] == options_.vectors[1];
    for (const std::uint8_t vector : options_.vectors) {
      const unsigned taken = state.taken[of(vector)];
      if (taken > (same ? 2U : 1U)) return fmt::format("interrupt {:x}h was taken twice", vector);
      if (is_final && taken == 0)
        return fmt::format("interrupt {:x}h is lost: the vCPU {} for ever", vector,
                           state.pc == Pc::asleep ? "sleeps" : "is halted");
    }
    if (is_final && state.pc != Pc::asleep && state.pc != Pc::guest_halted) return "the vCPU is stuck";
    return {};
  }

 private:
  static constexpr std::uint16_t device = 1;
  static constexpr std::uint32_t host_id(std::size_t cpu) { return 0x100 + static_cast<std::uint32_t>(cpu); }

  [[nodiscard]] std::size_t of(int vector) const { return vector == options_.vectors[0] ? 0 : 1; }
  BackingPage& page() { return memory_.backing_pages[0]; }

  // The page in memory is one; a state holds what differs.
  void restore(const State& s) {
    for (std::uint32_t i = 0; i < 8; ++i) {
      page().write(APIC_IRR + 0x10 * i, s.irr[i]);
      page().write(APIC_ISR + 0x10 * i, s.isr[i]);
    }
    page().write(APIC_PROCPRI, s.ppr);
    memory_.physical_tables[0].entries[0] = s.entry;
  }
  void save(State& s) {
    for (std::uint32_t i = 0; i < 8; ++i) {
      s.irr[i] = page().read(APIC_IRR + 0x10 * i);
      s.isr[i] = page().read(APIC_ISR + 0x10 * i);
    }
    s.ppr = page().ppr();
  }

  template <typename Emit, typename Change>
  void step(const State& state, Emit& emit, std::string label, Change&& change) {
    State next = state;
    restore(next);
    change(next);
    save(next);
    emit(std::move(label), std::move(next));
  }

  // avic_vcpu_load and avic_vcpu_put.
  void load(State& s) const {
    if (options_.enable_ipiv) s.entry = s.entry.running_on(host_id(s.cpu));
    s.irte.set_running(host_id(s.cpu));
  }
  void wake_up(State& s) const {
    if (!s.waiting || !s.interruptible) return;
    s.interruptible = false;
    if (s.pc == Pc::asleep) s.pc = Pc::set_task_state;
  }

  template <typename Emit>
  void send(const State& state, std::size_t i, Emit& emit);
  template <typename Emit>
  void run(const State& state, Emit& emit);
  template <typename Emit>
  void preempt(const State& state, Emit& emit);

  ProtocolOptions options_;
  AvicRegisters registers_;
  AvicMemory memory_;
  svm::VmcbControl control_{};
};

}  // namespace svmsim::apic::test
