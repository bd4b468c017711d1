#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apic/arbitration.hpp"
#include "apic/destination.hpp"
#include "apic/local_apic.hpp"
#include "model/config/cost_profile.hpp"
#include "model/config/scenario.hpp"
#include "model/policy/halt_poll.hpp"
#include "svm/features.hpp"
#include "svm/permission_map.hpp"
#include "svm/vmcb.hpp"
#include "workloads/guest/kernel_code.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::model {

class GuestHypervisor;

struct GuestHypervisorConfig {
  L1Style style = L1Style::kvm;
  workloads::KernelGeneration kernel = workloads::KernelGeneration::v6_12;
  Costs cost;                    ///< L1's software runs as fast as L0's
  HaltPollParameters halt_poll;  ///< of style kvm
  std::uint64_t tsc_hz = 1000000000;
  svm::FeatureSet features;  ///< what L0 offers
  unsigned vcpus = 1;
};

/// What the vCPUs of one guest hypervisor share.
struct GuestHypervisorVm {
  explicit GuestHypervisorVm(const GuestHypervisorConfig& in_config);

  GuestHypervisorConfig config;
  svm::MsrPermissionMap msrpm;
  svm::IoPermissionMap iopm;
  apic::DestinationMap apics{{}};
  apic::Arbiter arbiter{0};
  std::vector<GuestHypervisor*> vcpus;
};

/// One CPU of a guest hypervisor (L1) that runs one vCPU of its guest (L2), as the actions that L1's software
/// executes. What L1 does to L2 is in vmcb12, in L1's memory, where L0 and L2's CPU see it.
///
/// Style kvm does what model/hypervisor does one level further down: interrupt window plus EVENTINJ,
/// the x2APIC ICR and HLT fastpaths, halt polling, an hrtimer on its TSC deadline. Style hyperv lets the CPU
/// deliver: V_IRQ with the vector, its priority and L2's own V_TPR, no interrupt window, no CR8 intercept,
/// VGIF for L2, no halt polling (docs/nested.md).
///
/// Left out: L1's tick and other load, NMIs, INIT and SIPI of L2 (its vCPUs all start at once), paravirtual
/// features for L2, timer advance, PAUSE windows that adapt, the immediate exit (a window takes its place).
class GuestHypervisor final : public workloads::WorkloadSource, public workloads::NestedGuest {
 public:
  GuestHypervisor(std::shared_ptr<GuestHypervisorVm> vm, unsigned index,
                  const apic::LocalApicOptions& apic_options, std::unique_ptr<workloads::WorkloadSource> l2);

  // WorkloadSource: of L1, or of L2 while that runs.
  [[nodiscard]] workloads::InitialState initial_state() const override;
  [[nodiscard]] const svm::GuestAction* current() override {
    return in_l2_ ? l2_->current() : &code().items[in_handler_ ? handler_next_ : next_].action;
  }
  void retire(std::uint64_t tsc, std::uint64_t result) override;
  const std::vector<unsigned>& retire_shared(std::uint64_t tsc) override;
  [[nodiscard]] std::uint64_t spin_ready() const override;
  void interrupt(std::uint8_t vector, std::uint64_t tsc) override;
  [[nodiscard]] std::uint64_t resume_compute(std::uint64_t left_cycles) override {
    return in_l2_ ? l2_->resume_compute(left_cycles) : left_cycles;
  }
  [[nodiscard]] std::uint64_t handler_entry(std::uint8_t vector) const override;
  void attach(workloads::PvMemory& memory) override { l2_->attach(memory); }
  [[nodiscard]] std::vector<workloads::GuestDevice>* devices() override { return l2_->devices(); }
  [[nodiscard]] bool finished() const override { return l2_->finished(); }
  [[nodiscard]] bool serves() const override { return l2_->serves(); }
  [[nodiscard]] workloads::Metrics metrics() const override { return l2_->metrics(); }
  [[nodiscard]] std::string failure() const override { return failure_.empty() ? l2_->failure() : failure_; }
  [[nodiscard]] workloads::NestedGuest* nested_guest() override { return this; }

  // NestedGuest.
  [[nodiscard]] svm::Vmcb* vmcb_page(std::uint64_t address) override;
  [[nodiscard]] const svm::MsrPermissionMap& msr_permission_map(std::uint64_t) const override {
    return vm_->msrpm;
  }
  [[nodiscard]] const svm::IoPermissionMap& io_permission_map(std::uint64_t) const override {
    return vm_->iopm;
  }
  [[nodiscard]] bool maps(std::uint64_t l2_physical) const override;
  [[nodiscard]] std::vector<std::uint64_t> untouched_pages() const override { return absent_pages_; }
  void vmrun() override { in_l2_ = true; }
  void vmexit() override { in_l2_ = false; }

  /// L1's VMCB for its guest; tests change it before the first VMRUN.
  [[nodiscard]] svm::Vmcb& vmcb12() noexcept { return vmcb12_; }

  static constexpr std::uint8_t timer_vector = 0xec;       // LOCAL_TIMER_VECTOR
  static constexpr std::uint8_t reschedule_vector = 0xfd;  // RESCHEDULE_VECTOR

 private:
  // What the completion of an action of L1 means.
  enum class Meaning : std::uint8_t {
    none,
    started,
    look,         // interrupts off: the last look before VMRUN
    exited,       // behind STGI, interrupts still off
    handle,       // the exit handler has run
    fastpath,     // the same for a fastpath, interrupts off
    block,        // vcpu_block begins
    poll_end,     // spin: polling
    idle_look,    // interrupts off: the idle loop's last look
    idle_woken,   // behind HLT
    unblock,      // the thread runs again
    interrupted,  // an interrupt handler's work
    handler_end,  // its IRET
  };
  using Code = workloads::KernelCode<Meaning>;
  enum class Where : std::uint8_t { host, guest, polling, idle };

  [[nodiscard]] const Code& code() const noexcept { return in_handler_ ? handler_ : code_; }
  void act(Meaning meaning, std::uint64_t tsc);
  void begin() {
    code_.items.clear();
    next_ = 0;
  }
  void work(std::uint64_t cycles, Meaning meaning = Meaning::none);
  void instruction(svm::ActionKind kind, std::uint64_t operand = 0);
  void write_msr(Code& code, std::uint32_t msr, std::uint64_t value);

  // guest_hypervisor.cpp: the run loop.
  void enter_guest();
  void look(std::uint64_t tsc);
  void run();
  void take_exit();
  void interrupted(std::uint64_t tsc);
  void block(std::uint64_t tsc);
  void poll_end(std::uint64_t tsc);
  void idle();
  void idle_look();
  void unblock(std::uint64_t tsc);
  void finish_halt(std::uint64_t tsc, bool waited);
  [[nodiscard]] std::uint64_t ns(std::uint64_t cycles) const;

  // guest_hypervisor_inject.cpp: events into L2.
  void init_vmcb12(const workloads::InitialState& initial);
  void check_and_inject_events();
  void request_virtual_interrupt();
  void after_exit();
  [[nodiscard]] bool interrupt_allowed() const;
  [[nodiscard]] bool has_wake_event() const;
  [[nodiscard]] bool check_block() const { return timer_pending_ || incoming_.any() || has_wake_event(); }
  void take_incoming();
  void set_window(bool on);
  void queue_exception(std::uint8_t vector, bool has_error);

  // guest_hypervisor_exits.cpp: exits of L2.
  [[nodiscard]] std::uint64_t handler_cycles() const;
  void handle(std::uint64_t tsc, bool fastpath);
  void handle_msr(std::uint64_t tsc);
  void handle_npf(std::uint64_t tsc);
  void handle_io(std::uint64_t tsc);
  void handle_instruction(std::uint64_t exit_code, std::uint64_t tsc);
  void written(const apic::RegisterWrite& write, std::uint64_t tsc);
  void send_ipi(const apic::IcrCommand& command);
  void restart_timer(std::uint64_t tsc);
  void skip_instruction(std::uint64_t tsc, std::uint64_t result);
  void emulate_halt(std::uint64_t tsc);
  [[nodiscard]] bool has_requests(std::uint64_t exit_code) const;
  [[nodiscard]] bool takes_fastpath() const;

  std::shared_ptr<GuestHypervisorVm> vm_;
  unsigned index_;
  std::unique_ptr<workloads::WorkloadSource> l2_;
  const GuestHypervisorConfig& config_;
  alignas(4096) svm::Vmcb vmcb12_{};
  svm::Vmcb host_area_{};  ///< where VMLOAD finds L1's own state
  apic::LocalApic apic_;   ///< L2's, as L1 emulates it
  std::vector<std::uint64_t> absent_pages_;
  std::vector<std::uint64_t> mmio_pages_;

  bool in_l2_ = false;
  Code code_;
  std::size_t next_ = 0;
  Code handler_;
  std::size_t handler_next_ = 0;
  bool in_handler_ = false;
  std::uint8_t handler_vector_ = 0;
  std::vector<unsigned> reached_;  ///< vCPUs whose polling a store of this one ends

  // KVM's state of the L2 vCPU.
  Where where_ = Where::host;
  bool halted_ = false;
  bool ran_ = false;  ///< the exit in vmcb12 has not been looked at
  bool timer_pending_ = false;
  bool reinjects_ = false;  ///< EXITINTINFO of the last exit goes in again
  std::uint32_t reinjection_ = 0;
  std::uint32_t reinjection_error_ = 0;
  bool exception_pending_ = false;
  std::uint8_t exception_ = 0;
  bool exception_has_error_ = false;
  int requested_vector_ = -1;  ///< hyperv: in V_INTR
  std::bitset<256> incoming_;  ///< from other CPUs of L1, for the next look
  std::uint64_t injection_cycles_ = 0;
  HaltPoller poller_;
  HaltPollPlan plan_;
  std::uint64_t halt_start_ = 0;
  std::uint64_t poll_stop_ = 0;
  std::uint64_t poll_ended_ = 0;
  std::uint64_t store_cycles_ = workloads::WorkloadSource::never_ready;  ///< when another CPU ended the poll
  std::string failure_;
};

}  // namespace svmsim::model
