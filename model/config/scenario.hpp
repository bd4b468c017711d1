#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apic/avic/knobs.hpp"
#include "model/config/cost_profile.hpp"
#include "model/config/pv.hpp"
#include "model/guest/guest_config.hpp"
#include "model/policy/fair_queue.hpp"
#include "model/policy/idle_governor.hpp"
#include "model/policy/ple_window.hpp"
#include "svm/features.hpp"
#include "svm/knobs.hpp"
#include "workloads/kernel_generation.hpp"
#include "workloads/program_spec.hpp"
#include "workloads/trace/event.hpp"

namespace svmsim::model {

/// Every point that the manual leaves open, as one section: those of the core, and those of AVIC, which act
/// where AVIC does.
struct HostKnobs : svm::Knobs, apic::AvicKnobs {};

/// Exits that a VM or a vCPU does not take (KVM_CAP_X86_DISABLE_EXITS).
struct DisabledExits {
  bool mwait = false;
  bool hlt = false;
  bool pause = false;
  bool cstate = false;  ///< no effect on SVM
};

[[nodiscard]] DisabledExits disabled_exits_of(const std::vector<std::string>& names);

/// One run and sleep of a host task (rt-app).
struct TaskPhase {
  std::uint64_t run_ns = 0;
  std::uint64_t sleep_ns = 0;
  std::uint64_t period_ns = 0;  ///< sleep up to the next multiple instead; 0 = not so
};

/// Scheduling of one or several threads of the host.
struct ThreadScheduling {
  SchedPolicy sched = SchedPolicy::other;
  std::int64_t nice = 0;
  unsigned rt_priority = 1;
};

/// A host thread beside the vCPUs.
struct HostTaskConfig : ThreadScheduling {
  std::string name = "task";
  unsigned count = 1;
  std::vector<unsigned> cpus;  ///< where it may run; empty = everywhere
  std::uint64_t loops = 0;     ///< of all phases; 0 = for ever
  std::vector<TaskPhase> phases;
};

/// An element of vm.disable_exits that is not VM-wide from the start.
struct DisableExitsChange {
  std::optional<unsigned> vcpu;  ///< absent = KVM_CAP_X86_DISABLE_EXITS of the VM
  std::vector<std::string> exits;
  std::uint64_t at_ns = 0;
  bool enable = true;  ///< enable the capability, that is disable the exits
};

[[nodiscard]] DisabledExits changed(DisabledExits exits, const DisableExitsChange& change);

/// The resolved scenario: every default filled in, every value checked. Only `load_scenario` makes one.
struct HostConfig {
  std::string profile = "turin";
  std::uint64_t tsc_hz = 0;
  std::string cpu;          ///< the profile's CPU in words
  unsigned cpu_family = 0;  ///< CPUID family; 0 = unknown
  unsigned pcpus = 1;
  workloads::KernelGeneration kernel = workloads::KernelGeneration::v6_12;
  unsigned hz = 250;  ///< 0 = no tick
  std::vector<std::string>
      feature_changes;       ///< host.features, reduced to what it changes ("+idle_hlt"), in bit order
  svm::FeatureSet features;  ///< of the profile's CPU with host.features applied
  std::vector<workloads::EventKind> tracepoints;  ///< events whose recording costs t_trace
  HostKnobs knobs;
  Costs cost;
  std::vector<CState> cstates;
  std::string guest_hlt_depth;  ///< idle state that HLT in guest mode reaches; empty = what t_halt_wake says
  FairAlgorithm sched = FairAlgorithm::eevdf;
  bool balance = true;
  IdleGovernorKind idle_governor = IdleGovernorKind::menu;
  unsigned llc_pcpus = 8;         ///< pCPUs that share a last-level cache
  unsigned threads_per_core = 1;  ///< SMT siblings have neighbouring numbers
  unsigned smt_factor = 100;      ///< speed of a thread in percent while its sibling is busy
  std::vector<unsigned> nohz_full;
  std::vector<HostTaskConfig> tasks;
};

/// How L0 lets a guest hypervisor use the idle-HLT intercept.
enum class NestedIdleHlt : std::uint8_t {
  none,     ///< it does not (mainline)
  expose,   ///< a CPU that has it does it
  emulate,  ///< L0 does it, by the HLT intercept of the CPU
};

/// The kind of hypervisor that a guest is.
enum class L1Style : std::uint8_t { none, kvm, hyperv };

struct KvmConfig {
  bool idle_hlt = true;  ///< use the intercept where the CPU has it
  bool avic = false;
  bool avic_given = false;  ///< by the scenario; otherwise it follows kernel and CPU
  bool enable_ipiv = true;
  bool avic_x2apic_inhibit = false;  ///< the rule of 2021
  bool nested = false;               ///< guests are offered SVM
  NestedIdleHlt nested_idle_hlt = NestedIdleHlt::none;
  bool lapic_timer_advance = true;     ///< the host timer of a TSC deadline fires early and learns how much
  bool pi_inject_timer = false;        ///< posted timer interrupts
  bool pi_inject_timer_given = false;  ///< otherwise it follows host.nohz_full
  bool vnmi = true;                    ///< use virtual NMI where CPU and kernel have it
  bool vector_hashing = true;  ///< lowest priority arbitration by vector instead of by past deliveries
  std::uint64_t halt_poll_ns = 200000;
  std::uint64_t halt_poll_ns_grow = 2;
  std::uint64_t halt_poll_ns_grow_start = 10000;
  std::uint64_t halt_poll_ns_shrink = 2;
  bool avic_hides_pv_send_ipi = false;  ///< the founding thread's proposal
  bool boosts_interrupt_target = true;  ///< directed yield to user mode that an interrupt waits for
  PleParameters ple;
};

/// How a device interrupts.
enum class DeviceKind : std::uint8_t {
  msi,      ///< a message to the local APICs
  line,     ///< a pin of the I/O APIC
  ext_int,  ///< the legacy controller, whose interrupts pass the local APIC as ExtINT
};

/// A device of a VM: a host interrupt that becomes one of the guest (irqfd), at fixed times.
struct DeviceConfig {
  DeviceKind kind = DeviceKind::msi;
  unsigned vector = 0x30;        ///< of msi and ext_int; a line's is in the I/O APIC
  unsigned destination = 0;      ///< of msi: APIC ID, or a set of them
  bool logical = false;          ///< of msi: `destination` is a logical one
  bool lowest_priority = false;  ///< of msi
  unsigned pin = 0;              ///< of line
  bool level = false;            ///< of line: asserted until the guest writes ack_port
  unsigned ack_port = 0;
  std::uint64_t first_ns = 0;
  std::uint64_t period_ns = 1000000;
  std::uint64_t count = 0;  ///< how many; 0 = as long as the VM runs
  unsigned pcpu = 0;        ///< where the host interrupt arrives
};

struct VmConfig : ThreadScheduling {
  std::string name = "vm0";
  unsigned vcpus = 1;
  std::vector<unsigned> pin;                  ///< pCPU of each vCPU; empty = the scheduler decides
  std::vector<unsigned> affinity;             ///< pCPUs that unpinned vCPU threads may use; empty = all
  std::optional<std::uint64_t> halt_poll_ns;  ///< KVM_CAP_HALT_POLL
  std::vector<std::string> disable_exits;     ///< VM-wide, before vCPUs are made
  std::vector<DisableExitsChange> disable_exits_changes;
  std::string apic = "x2apic";
  std::string irqchip = "kernel";  ///< or "user": HLT is user space's
  PvConfig pv;
  GuestOsConfig guest;  ///< of a guest with a task set
  std::vector<DeviceConfig> devices;
  std::string pit = "none";                 ///< in-kernel PIT: none, delay (re-injects lost ticks), discard
  std::vector<std::string> apicv_inhibits;  ///< reasons from outside of the model that hold all the time
  workloads::WorkloadSpec workload;
  std::string trace;           ///< replay: path of an imported workload, instead of `workload`
  L1Style l1 = L1Style::none;  ///< the workload is that of a guest of this guest hypervisor
  std::uint64_t l1_halt_poll_ns = 200000;
  bool native = false;  ///< the task set runs on the pCPUs themselves
  std::string tasks;    ///< a task set instead: a built-in name, or the path of a JSON file
};

/// What the guest's CPUID shows of vm.pv: all of it, but nothing in a guest of a guest, and unless the
/// founding thread's proposal hides PV_SEND_IPI because the guest can use AVIC.
[[nodiscard]] inline PvConfig visible_pv(const KvmConfig& kvm, const VmConfig& vm) {
  PvConfig pv = vm.pv;
  if (vm.l1 != L1Style::none) pv.features = 0;
  if (kvm.avic_hides_pv_send_ipi && kvm.avic && !kvm.nested && vm.apic != "x2apic")
    pv.features &= ~kvm_feature::pv_send_ipi;
  return pv;
}

struct RunConfig {
  std::optional<std::uint64_t> duration_ns;  ///< absent = until the workload ends
  std::uint64_t warmup_ns = 0;
  std::uint64_t seed = 1;
  bool run_ahead = true;  ///< the timing rule's shortcut; off gives the same result, slower
};

struct Scenario {
  HostConfig host;
  KvmConfig kvm;
  std::vector<VmConfig> vms;  ///< `count` unrolled: names vm0, vm1, ...
  RunConfig run;
};

}  // namespace svmsim::model
