#include "model/config/parameters.hpp"

#include <algorithm>

#include "model/config/avic_parameters.hpp"
#include "model/config/bindings.hpp"
#include "model/config/scheduling_parameters.hpp"

namespace svmsim::model {

using namespace bindings;

namespace {

constexpr std::int64_t kernel_uint_max = std::numeric_limits<std::uint32_t>::max();
// Fits 2^48 cycles (the span of the simulation clock) at the highest TSC frequency a profile may have.
constexpr std::int64_t longest_run_ns = std::int64_t{21600} * 1000 * 1000 * 1000;
constexpr std::int64_t longest_latency_ns = std::int64_t{1000} * 1000 * 1000;
constexpr const char* module_parameter = "virt/kvm/kvm_main.c module parameter";

Binding<HostConfig> features_binding() {
  auto binding = declare<HostConfig>("host.features", ParameterType::choice_list, "",
                                     "Changes to the CPUID Fn8000_000A features of the profile's CPU.",
                                     "APM vol. 3, E.4.9");
  for (const svm::FeatureInfo& info : svm::all_features()) {
    binding.declaration.choices.push_back("+" + std::string(info.name));
    if (info.feature != svm::Feature::np) binding.declaration.choices.push_back("-" + std::string(info.name));
  }
  binding.declaration.later = {"-np"};  // shadow paging
  binding.set = [](HostConfig& host, const SettingValue& value) {
    host.feature_changes = std::get<std::vector<std::string>>(value);
  };
  binding.get = [](const HostConfig& host) { return SettingValue(host.feature_changes); };
  return with_fallback(std::move(binding));
}

Binding<HostConfig> tracepoints_binding() {
  auto binding =
      declare<HostConfig>("host.tracepoints", ParameterType::choice_list, "",
                          "Events whose recording costs host.cost.t_trace each, as under perf or trace-cmd.",
                          "measurements 1.1: recording slowed the published loop 1.7 to 3.4 times");
  binding.declaration.choices = tracepoint_names();
  binding.set = [](HostConfig& host, const SettingValue& value) {
    host.tracepoints.clear();
    for (const std::string& name : std::get<std::vector<std::string>>(value)) {
      if (const auto kind = workloads::event_kind_of(name)) host.tracepoints.push_back(*kind);
    }
    std::sort(host.tracepoints.begin(), host.tracepoints.end());
    host.tracepoints.erase(std::unique(host.tracepoints.begin(), host.tracepoints.end()),
                           host.tracepoints.end());
  };
  binding.get = [](const HostConfig& host) {
    std::vector<std::string> names;
    for (const workloads::EventKind kind : host.tracepoints)
      names.emplace_back(workloads::event_name(kind));
    return SettingValue(names);
  };
  return with_fallback(std::move(binding));
}

Binding<KvmConfig> vnmi_binding() {
  auto binding = boolean<KvmConfig>("kvm.vnmi", &KvmConfig::vnmi,
                                    "Use virtual NMI where the CPU has it and vGIF; 6.1 does not know it.",
                                    "arch/x86/kvm/svm/svm.c module parameter since 6.4");
  binding.kernel_defaults = {{workloads::KernelGeneration::v6_1, SettingValue(false)}};
  binding.declaration.default_note = "false with host.kernel 6.1";
  return binding;
}

Binding<KvmConfig> shrink_binding() {
  auto binding = number<KvmConfig>(
      "kvm.halt_poll_ns_shrink", &KvmConfig::halt_poll_ns_shrink, 0, kernel_uint_max, "",
      "Divisor that makes the polling window shorter; 0 = back to no polling at once.", module_parameter);
  binding.kernel_defaults = {{workloads::KernelGeneration::v6_1, SettingValue(std::int64_t{0})}};
  binding.declaration.default_note = "0 with host.kernel 6.1";
  return binding;
}

Binding<VmDraft> pin_binding() {
  auto binding = declare<VmDraft>("vm.pin", ParameterType::integer_list, "",
                                  "pCPU of each vCPU; absent or empty = the scheduler decides.",
                                  "sched_setaffinity of the vCPU threads");
  binding.declaration.maximum = 1023;
  binding.set = [](VmDraft& vm, const SettingValue& value) {
    vm.pin.clear();
    for (const std::int64_t cpu : std::get<std::vector<std::int64_t>>(value))
      vm.pin.push_back(static_cast<unsigned>(cpu));
  };
  binding.get = [](const VmDraft& vm) {
    return SettingValue(std::vector<std::int64_t>(vm.pin.begin(), vm.pin.end()));
  };
  return with_fallback(std::move(binding));
}

Binding<VmDraft> apic_binding() {
  auto binding = text<VmDraft>("vm.apic", &VmDraft::apic, "Mode of the guest's APIC.", "APM vol. 2, 16.9");
  binding.declaration.type = ParameterType::choice;
  binding.declaration.choices = {"x2apic", "xapic"};
  return binding;
}

Binding<VmDraft> irqchip_binding() {
  auto binding = text<VmDraft>(
      "vm.irqchip", &VmDraft::irqchip,
      "Where the APIC is emulated. With user each HLT returns to user space, which calls KVM_RUN again at "
      "once; the APIC itself is not modelled there, so the guest has to do without interrupts.",
      "KVM_CREATE_IRQCHIP; QEMU's kernel_irqchip");
  binding.declaration.type = ParameterType::choice;
  binding.declaration.choices = {"kernel", "user"};
  return binding;
}

Binding<VmDraft> name_binding() {
  auto binding =
      text<VmDraft>("vm.name", &VmDraft::name,
                    "Name of the VM; with count > 1 the prefix of a running number.", "choice of the user");
  binding.declaration.default_note = "vm0, vm1, ... in the order of the tables";
  return binding;
}

Binding<VmDraft> kind_binding() {
  auto binding =
      declare<VmDraft>("vm.workload.kind", ParameterType::text, "",
                       "Built-in program, or path of a program file; the program's own keys stand beside it.",
                       "workloads/programs");
  binding.declaration.default_note = "required, unless trace is given";
  binding.set = [](VmDraft& vm, const SettingValue& value) {
    vm.workload.kind = std::get<std::string>(value);
  };
  binding.get = [](const VmDraft& vm) -> std::optional<SettingValue> {
    if (vm.workload.kind.empty()) return std::nullopt;
    return SettingValue(vm.workload.kind);
  };
  return binding;
}

Binding<VmDraft> trace_binding() {
  auto binding =
      declare<VmDraft>("vm.workload.trace", ParameterType::text, "",
                       "Path of an imported workload to replay, instead of kind.", "svmsim import");
  binding.declaration.default_note = "absent";
  binding.set = [](VmDraft& vm, const SettingValue& value) { vm.trace = std::get<std::string>(value); };
  binding.get = [](const VmDraft& vm) -> std::optional<SettingValue> {
    if (vm.trace.empty()) return std::nullopt;
    return SettingValue(vm.trace);
  };
  return binding;
}

Binding<RunConfig> run_duration_binding() {
  auto binding = declare<RunConfig>(
      "run.duration", ParameterType::duration, "ns",
      "Simulated time after which the run ends; absent = until the workload ends.", "choice of the user");
  binding.declaration.minimum = 1;
  binding.declaration.maximum = longest_run_ns;
  binding.declaration.default_note = "absent";
  binding.set = [](RunConfig& run, const SettingValue& value) {
    run.duration_ns = static_cast<std::uint64_t>(std::get<std::int64_t>(value));
  };
  binding.get = [](const RunConfig& run) -> std::optional<SettingValue> {
    if (!run.duration_ns) return std::nullopt;
    return SettingValue(static_cast<std::int64_t>(*run.duration_ns));
  };
  return binding;
}

}  // namespace

const std::vector<Binding<HostConfig>>& host_parameters() {
  static const std::vector<Binding<HostConfig>> table = [] {
    auto profile =
        text<HostConfig>("host.profile", &HostConfig::profile,
                         "Cost profile: a built-in name, or the path of a TOML file.", "model/profiles");
    std::vector<Binding<HostConfig>> result{
        std::move(profile),
        number<HostConfig>("host.pcpus", &HostConfig::pcpus, 1, 1024, "", "Physical CPUs of the host.",
                           "choice of the user"),
        choice<HostConfig>("host.kernel", &HostConfig::kernel, kernel_names(),
                           "Host kernel whose KVM code paths, defaults and event order are modelled.",
                           "6.1 and 6.12 are stable kernels, 6.18 stands for mainline of 2025-26"),
        number<HostConfig>("host.hz", &HostConfig::hz, 0, 10000, "Hz",
                           "Rate of the host's scheduler tick; 0 = no tick.", "CONFIG_HZ"),
        text<HostConfig>(
            "host.guest_hlt_depth", &HostConfig::guest_hlt_depth,
            "Name of the idle state that a core reaches by a HLT that is not intercepted; empty = "
            "leaving it takes host.cost.t_halt_wake, else what the state takes.",
            "C-14: EPYC went deeper by HLT than by MWAIT for C1"),
        features_binding(),
        tracepoints_binding(),
    };
    for (auto& binding : host_scheduling_parameters())
      result.push_back(std::move(binding));
    return result;
  }();
  return table;
}

const std::vector<Binding<HostKnobs>>& knob_parameters() {
  using apic::AvicKnobs;
  using apic::HostModeDoorbell;
  using apic::NotRunningIndex;
  using svm::IdleHltPending;
  using svm::Knobs;
  static const std::vector<Binding<HostKnobs>> table{
      choice<HostKnobs>(
          "host.knobs.idle_hlt_pending", &Knobs::idle_hlt_pending,
          {{"raw", IdleHltPending::raw},
           {"priority", IdleHltPending::priority},
           {"deliverable", IdleHltPending::deliverable}},
          "Which pending virtual interrupts keep HLT from the idle-HLT exit: any, those above the "
          "TPR or PPR, "
          "or only those that could be taken.",
          "open point 12.1 of the hardware fact sheet; the manual says pending and no more"),
      boolean<HostKnobs>(
          "host.knobs.idle_hlt_counts_avic_irr", &Knobs::idle_hlt_counts_avic_irr,
          "Whether a vector in the IRR of the AVIC backing page counts as pending for idle HLT.",
          "open point 12.2 of the hardware fact sheet"),
      boolean<HostKnobs>(
          "host.knobs.shadow_delays_intr_exit", &Knobs::shadow_delays_intr_exit,
          "Whether the interrupt shadow delays the exit for an intercepted physical interrupt.",
          "open point 12.6 of the hardware fact sheet: no in KVM's model, yes in Bochs"),
      boolean<HostKnobs>(
          "host.knobs.msrpm_at_limit_is_invalid", &Knobs::msrpm_at_limit_is_invalid,
          "Whether VMRUN fails when the MSR permission map lies exactly at the end of physical memory.",
          "open point 12.10 of the hardware fact sheet: no by the manual's text, yes in QEMU"),
      boolean<HostKnobs>("host.knobs.avic_without_np_is_invalid", &Knobs::avic_without_np_is_invalid,
                         "Whether VMRUN fails with AVIC but without nested paging.",
                         "open point 12.11 of the hardware fact sheet"),
      boolean<HostKnobs>(
          "host.knobs.host_if_clear_masks_intr_exit", &Knobs::host_if_clear_masks_intr_exit,
          "Whether VMRUN with host RFLAGS.IF = 0 and V_INTR_MASKING masks the exit for a physical interrupt.",
          "open point 12.17 of the hardware fact sheet"),
      boolean<HostKnobs>("host.knobs.pause_gap_at_threshold_reloads", &Knobs::pause_gap_at_threshold_reloads,
                         "Whether a gap of exactly the PAUSE filter threshold reloads the filter count.",
                         "open point 12.18 of the hardware fact sheet"),
      boolean<HostKnobs>("host.knobs.doorbell_wakes_halted_guest", &AvicKnobs::doorbell_wakes_halted_guest,
                         "AVIC: whether a doorbell wakes a guest that halted without an exit.",
                         "open point 12.3 of the hardware fact sheet"),
      choice<HostKnobs>("host.knobs.host_mode_doorbell", &AvicKnobs::host_mode_doorbell,
                        {{"dropped", HostModeDoorbell::dropped},
                         {"stalls", HostModeDoorbell::stalls},
                         {"pending", HostModeDoorbell::pending}},
                        "AVIC: what a doorbell does to a core that is not in guest mode.",
                        "open point 12.4 of the hardware fact sheet"),
      boolean<HostKnobs>("host.knobs.snoops_irr_writes", &AvicKnobs::snoops_irr_writes,
                         "AVIC: whether a write of the IRR by software is seen without a doorbell.",
                         "open point 12.5 of the hardware fact sheet"),
      boolean<HostKnobs>("host.knobs.level_eoi_clears_isr", &AvicKnobs::level_eoi_clears_isr,
                         "AVIC: whether the exit for the EOI of a level interrupt finds its ISR bit clear.",
                         "open point 12.7 of the hardware fact sheet: a trap, but worded as a fault"),
      boolean<HostKnobs>("host.knobs.nrip_is_next", &AvicKnobs::nrip_is_next,
                         "AVIC: whether nRIP of exits 401h and 402h is the next rIP instead of 0.",
                         "open point 12.8 of the hardware fact sheet"),
      number<HostKnobs>("host.knobs.non_fixed_exit_id", &AvicKnobs::non_fixed_exit_id, 0, 5, "",
                        "AVIC: id of exit 401h for an ICR write whose message type is not fixed.",
                        "open point 12.9 of the hardware fact sheet"),
      boolean<HostKnobs>("host.knobs.x2avic_broadcast", &AvicKnobs::x2avic_broadcast,
                         "x2AVIC: whether destination FFFF_FFFFh is everybody.",
                         "open point 12.12 of the hardware fact sheet"),
      boolean<HostKnobs>("host.knobs.x2avic_entry_255_reserved", &AvicKnobs::x2avic_entry_255_reserved,
                         "x2AVIC: whether entry 255 of the physical ID table is special.",
                         "open point 12.12 of the hardware fact sheet"),
      boolean<HostKnobs>("host.knobs.x2apic_checks_before_table", &AvicKnobs::x2apic_checks_before_table,
                         "x2AVIC: whether a write of a read-only register is #GP rather than exit 402h.",
                         "open point 12.14 of the hardware fact sheet"),
      choice<HostKnobs>("host.knobs.not_running_index", &AvicKnobs::not_running_index,
                        {{"lowest", NotRunningIndex::lowest}, {"highest", NotRunningIndex::highest}},
                        "AVIC: which of several targets that do not run the index of exit 401h id 1 names.",
                        "open point 12.19 of the hardware fact sheet"),
      boolean<HostKnobs>("host.knobs.broadcast_with_illegal_page_delivers",
                         &AvicKnobs::broadcast_with_illegal_page_delivers,
                         "AVIC: whether a broadcast that ends with id 3 has reached the other targets.",
                         "open point 12.20 of the hardware fact sheet"),
      number<HostKnobs>("host.knobs.doorbell_id_bits", &AvicKnobs::doorbell_id_bits, 8, 32, "bits",
                        "AVIC: width of the host APIC ID that the doorbell MSR takes.",
                        "8 in APM figure 15-22, 12 in Linux (arch/x86/include/asm/svm.h)"),
      boolean<HostKnobs>("host.knobs.leaves_icr_busy", &AvicKnobs::leaves_icr_busy,
                         "AVIC: whether exit 401h leaves the delivery status bit of the ICR set.",
                         "arch/x86/kvm/svm/avic.c clears it where it was left set"),
      boolean<HostKnobs>("host.knobs.isrunning_stale_read", &AvicKnobs::isrunning_stale_read,
                         "AVIC: whether a sender may miss that IsRunning was cleared, a fault of real parts.",
                         "erratum 1235 of family 17h"),
  };
  return table;
}

const std::vector<Binding<CState>>& cstate_parameters() {
  static const std::vector<Binding<CState>> table{
      text<CState>("host.cstate.name", &CState::name, "Name of the idle state (\"C1\").", "drivers/cpuidle"),
      duration<CState>("host.cstate.latency", &CState::latency_ns, 0, longest_latency_ns,
                       "Exit latency that firmware declares.", "ACPI _CST"),
      duration<CState>("host.cstate.residency", &CState::residency_ns, 0, longest_latency_ns,
                       "Target residency; acpi_idle takes twice the declared latency.",
                       "drivers/acpi/processor_idle.c"),
      duration<CState>("host.cstate.wake", &CState::wake_ns, 0, longest_latency_ns,
                       "Real time from the wake-up to the first instruction.", "C-12"),
  };
  return table;
}

const std::vector<Binding<KvmConfig>>& kvm_parameters() {
  static const std::vector<Binding<KvmConfig>> table = [] {
    std::vector<Binding<KvmConfig>> result{
        boolean<KvmConfig>("kvm.idle_hlt", &KvmConfig::idle_hlt,
                           "Use the idle-HLT intercept where the CPU has it, on any kernel generation.",
                           "arch/x86/kvm/svm/svm.c since 6.15; on 6.1 and 6.12 the list series applied"),
        avic_binding(),
        enable_ipiv_binding(),
        avic_x2apic_inhibit_binding(),
        pi_inject_timer_binding(),
        nested_binding(),
        choice<KvmConfig>(
            "kvm.nested_idle_hlt", &KvmConfig::nested_idle_hlt,
            {{"none", NestedIdleHlt::none},
             {"expose", NestedIdleHlt::expose},
             {"emulate", NestedIdleHlt::emulate}},
            "The idle-HLT intercept for guest hypervisors: not offered, offered on a CPU that has "
            "it, or emulated by L0 with the CPU's HLT intercept.",
            "expose: kvm list, v4 of the idle-HLT series, patch 3; emulate: proposed in its "
            "review, 19 Dec 2024; mainline: none"),
        vnmi_binding(),
        boolean<KvmConfig>(
            "kvm.lapic_timer_advance", &KvmConfig::lapic_timer_advance,
            "Let the host timer of a TSC deadline fire early, by an advance that adapts; the rest "
            "is waited for before VMRUN.",
            "arch/x86/kvm/lapic.c module parameter"),
        boolean<KvmConfig>(
            "kvm.vector_hashing", &KvmConfig::vector_hashing,
            "Lowest priority interrupts go to the (vector mod n)-th of n targets; false: to the "
            "one that got the fewest.",
            "arch/x86/kvm/x86.c module parameter"),
        number<KvmConfig>("kvm.halt_poll_ns", &KvmConfig::halt_poll_ns, 0, kernel_uint_max, "ns",
                          "Largest halt-polling window; 0 = no polling.", module_parameter,
                          ParameterType::duration),
        number<KvmConfig>("kvm.halt_poll_ns_grow", &KvmConfig::halt_poll_ns_grow, 0, kernel_uint_max, "",
                          "Factor that makes the polling window longer; 0 = it never grows.",
                          module_parameter),
        number<KvmConfig>("kvm.halt_poll_ns_grow_start", &KvmConfig::halt_poll_ns_grow_start, 0,
                          kernel_uint_max, "ns", "First polling window, and the shortest.", module_parameter,
                          ParameterType::duration),
        shrink_binding(),
        boolean<KvmConfig>("kvm.avic_hides_pv_send_ipi", &KvmConfig::avic_hides_pv_send_ipi,
                           "Hide PV_SEND_IPI from a guest that can use AVIC: kvm.avic, no x2APIC.",
                           "proposal on kvm@vger, 2021-11-08, never merged"),
        boolean<KvmConfig>(
            "kvm.boosts_interrupt_target", &KvmConfig::boosts_interrupt_target,
            "Let a vCPU that spins in kernel mode yield to one that was preempted in user mode, if "
            "AVIC has an interrupt pending for that.",
            "commit 52acd22faa1a, merged in 5.3; off is the kernel before it"),
    };
    for (auto& binding : ple_parameters())
      result.push_back(std::move(binding));
    return result;
  }();
  return table;
}

const std::vector<Binding<VmDraft>>& vm_parameters() {
  static const std::vector<Binding<VmDraft>> table = [] {
    std::vector<Binding<VmDraft>> all{
        name_binding(),
        number<VmDraft>("vm.count", &VmDraft::count, 1, 1024, "",
                        "How many such VMs; they are named by name and number.", "choice of the user"),
        number<VmDraft>("vm.vcpus", &VmDraft::vcpus, 1, 1024, "", "vCPUs of the VM.", "KVM_MAX_VCPUS"),
        pin_binding(),
        apic_binding(),
        irqchip_binding(),
        pit_binding(),
        choice<VmDraft>("vm.l1", &VmDraft::l1,
                        {{"none", L1Style::none}, {"kvm", L1Style::kvm}, {"hyperv", L1Style::hyperv}},
                        "The guest is a hypervisor of this style and the workload that of its guest (L2); "
                        "needs kvm.nested.",
                        "docs/nested.md"),
        duration<VmDraft>("vm.l1_halt_poll_ns", &VmDraft::l1_halt_poll_ns, 0, kernel_uint_max,
                          "Largest halt-polling window of a guest hypervisor of style kvm.",
                          module_parameter),
        apicv_inhibits_binding(),
    };
    for (auto& binding : pv_parameters())
      all.push_back(std::move(binding));
    for (auto& binding : vm_scheduling_parameters())
      all.push_back(std::move(binding));
    for (auto& binding : guest_parameters())
      all.push_back(std::move(binding));
    return all;
  }();
  return table;
}

const std::vector<Binding<DeviceConfig>>& device_parameters() {
  constexpr const char* eventfd = "virt/kvm/eventfd.c";
  static const std::vector<Binding<DeviceConfig>> table{
      choice<DeviceConfig>(
          "vm.device.kind", &DeviceConfig::kind,
          {{"msi", DeviceKind::msi}, {"line", DeviceKind::line}, {"ext_int", DeviceKind::ext_int}},
          "How the device interrupts: a message, a pin of the I/O APIC, or the legacy controller.",
          "KVM_SET_GSI_ROUTING"),
      number<DeviceConfig>("vm.device.vector", &DeviceConfig::vector, 16, 255, "",
                           "Vector of kind msi or ext_int; that of a line is in the I/O APIC.", "PCI MSI"),
      number<DeviceConfig>("vm.device.destination", &DeviceConfig::destination, 0, 255, "",
                           "Destination of kind msi: an APIC ID, or with logical a logical destination.",
                           "PCI MSI"),
      boolean<DeviceConfig>("vm.device.logical", &DeviceConfig::logical,
                            "Whether the destination of kind msi is a logical one.", "PCI MSI"),
      boolean<DeviceConfig>("vm.device.lowest_priority", &DeviceConfig::lowest_priority,
                            "Whether kind msi asks for lowest priority arbitration.", "PCI MSI"),
      number<DeviceConfig>("vm.device.pin", &DeviceConfig::pin, 0, 23, "",
                           "Pin of the I/O APIC of kind line.", "arch/x86/kvm/ioapic.c"),
      boolean<DeviceConfig>("vm.device.level", &DeviceConfig::level,
                            "Kind line: stay asserted until the guest writes ack_port, instead of a pulse.",
                            "arch/x86/kvm/ioapic.c"),
      number<DeviceConfig>("vm.device.ack_port", &DeviceConfig::ack_port, 0, 65535, "",
                           "Port whose OUT by the guest releases a level line; 0 = none.",
                           "choice of the user"),
      duration<DeviceConfig>("vm.device.first", &DeviceConfig::first_ns, 0, longest_run_ns,
                             "Time of the first interrupt.", "choice of the user"),
      duration<DeviceConfig>("vm.device.period", &DeviceConfig::period_ns, 1, longest_run_ns,
                             "Time between two interrupts.", "choice of the user"),
      number<DeviceConfig>(
          "vm.device.count", &DeviceConfig::count, 0, std::numeric_limits<std::int64_t>::max(), "",
          "How many interrupts; 0 = as long as a vCPU of the VM runs.", "choice of the user"),
      number<DeviceConfig>("vm.device.pcpu", &DeviceConfig::pcpu, 0, 1023, "",
                           "pCPU at which the host interrupt of the device arrives.", eventfd),
  };
  return table;
}

const std::vector<Binding<VmDraft>>& workload_parameters() {
  static const std::vector<Binding<VmDraft>> table{kind_binding(), trace_binding(), tasks_binding()};
  return table;
}

const std::vector<Binding<RunConfig>>& run_parameters() {
  static const std::vector<Binding<RunConfig>> table{
      run_duration_binding(),
      duration<RunConfig>("run.warmup", &RunConfig::warmup_ns, 0, longest_run_ns,
                          "Simulated time before statistics start to count.", "choice of the user"),
      number<RunConfig>("run.seed", &RunConfig::seed, 0, std::numeric_limits<std::int64_t>::max(), "",
                        "Seed of every random stream.", "choice of the user"),
      boolean<RunConfig>("run.run_ahead", &RunConfig::run_ahead,
                         "Let a CPU run ahead of the simulation kernel where that cannot change a result; "
                         "off is slower and equal.",
                         "the simulator's timing rule"),
  };
  return table;
}

std::vector<Parameter> all_parameters() {
  std::vector<Parameter> result;
  const auto append = [&result](const auto& table) {
    for (const auto& binding : table)
      result.push_back(binding.declaration);
  };
  append(host_parameters());
  append(knob_parameters());
  append(cost_parameters());
  append(cstate_parameters());
  append(task_parameters());
  append(task_phase_parameters());
  append(kvm_parameters());
  append(vm_parameters());
  append(device_parameters());
  result.push_back(disable_exits_declaration());
  append(disable_exits_parameters());
  append(workload_parameters());
  append(run_parameters());
  return result;
}

const std::vector<std::string>& later_parameters() {
  static const std::vector<std::string> names{
      "kvm.vgif",
  };
  return names;
}

const std::vector<std::pair<std::string, workloads::KernelGeneration>>& kernel_names() {
  using workloads::KernelGeneration;
  static const std::vector<std::pair<std::string, KernelGeneration>> names{
      {"6.1", KernelGeneration::v6_1}, {"6.12", KernelGeneration::v6_12}, {"6.18", KernelGeneration::v6_18}};
  return names;
}

const std::string& kernel_name(workloads::KernelGeneration kernel) {
  return kernel_names()[static_cast<std::size_t>(kernel)].first;
}

std::vector<std::string> tracepoint_names() {
  std::vector<std::string> names;
  for (unsigned i = 0; i < static_cast<unsigned>(workloads::EventKind::svmsim_guest); ++i) {
    names.emplace_back(workloads::event_name(static_cast<workloads::EventKind>(i)));
  }
  return names;
}

std::string_view type_name(ParameterType type) {
  switch (type) {
    case ParameterType::boolean:
      return "boolean";
    case ParameterType::integer:
      return "integer";
    case ParameterType::duration:
      return "duration";
    case ParameterType::text:
      return "string";
    case ParameterType::choice:
      return "choice";
    case ParameterType::integer_list:
      return "list of integers";
    case ParameterType::choice_list:
      return "list of choices";
  }
  return "";
}

}  // namespace svmsim::model
