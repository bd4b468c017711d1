// The declarations of the guest kernel of a VM with a task set (kvm-software.md 3, 11).

#include <limits>

#include "model/config/bindings.hpp"
#include "model/config/parameters.hpp"
#include "workloads/tasks/task_set.hpp"

namespace svmsim::model {

namespace {

constexpr std::int64_t longest_poll_ns = std::int64_t{1000} * 1000 * 1000;
constexpr const char* haltpoll_source = "drivers/cpuidle/governors/haltpoll.c module parameter";

/// A field of VmDraft::guest behind a binding of its own struct.
template <typename Inner, typename Reach>
Binding<VmDraft> in_guest(const Binding<Inner>& inner, Reach reach) {
  Binding<VmDraft> binding;
  binding.declaration = inner.declaration;
  binding.set = [set = inner.set, reach](VmDraft& vm, const SettingValue& value) { set(reach(vm), value); };
  binding.get = [get = inner.get, reach](const VmDraft& vm) { return get(reach(vm)); };
  return binding;
}
constexpr auto os = [](auto& vm) -> auto& {
  return vm.guest;
};
constexpr auto haltpoll = [](auto& vm) -> auto& {
  return vm.guest.haltpoll;
};

}  // namespace

std::vector<Binding<VmDraft>> guest_parameters() {
  using namespace bindings;
  using Haltpoll = HaltpollParameters;
  constexpr std::int64_t uint_max = std::numeric_limits<std::uint32_t>::max();
  return {
      boolean<VmDraft>(
          "vm.native", &VmDraft::native,
          "Run the task set on the pCPUs themselves, without virtualization: what a guest is compared "
          "with. Needs tasks, x2APIC and a pCPU of its own for each vCPU.",
          "the host rows of measurements 1.2"),
      in_guest(
          choice<GuestOsConfig>("vm.idle", &GuestOsConfig::idle,
                                {{"hlt", GuestIdle::hlt},
                                 {"haltpoll", GuestIdle::haltpoll},
                                 {"cpuidle_kvm", GuestIdle::cpuidle_kvm},
                                 {"poll", GuestIdle::poll}},
                                "What the guest kernel of a task set does when it is idle: HLT, the haltpoll "
                                "driver, the fixed polling proposed in 2019, or idle=poll.",
                                "kernel/sched/idle.c, drivers/cpuidle"),
          os),
      in_guest(number<GuestOsConfig>("vm.guest_hz", &GuestOsConfig::hz, 1, 10000, "Hz",
                                     "Rate of the guest's tick while a CPU is busy; idle CPUs stop it.",
                                     "CONFIG_HZ"),
               os),
      in_guest(duration<GuestOsConfig>(
                   "vm.timer_slack_ns", &GuestOsConfig::timer_slack_ns, 0, longest_poll_ns,
                   "How late a sleep of a guest task may end, so that timers share interrupts.",
                   "prctl(PR_SET_TIMERSLACK)"),
               os),
      in_guest(
          number<GuestOsConfig>("vm.watchdog_thresh", &GuestOsConfig::watchdog_thresh, 0, 60, "s",
                                "The guest's soft-lockup watchdog: each CPU has a timer every two fifths of "
                                "this; 0 = no watchdog, and an idle CPU may have no timer at all.",
                                "kernel/watchdog.c, sysctl kernel.watchdog_thresh"),
          os),
      in_guest(duration<Haltpoll>("vm.guest_halt_poll_ns", &Haltpoll::max_ns, 0, longest_poll_ns,
                                  "Largest polling limit of haltpoll; the fixed window of cpuidle_kvm.",
                                  haltpoll_source),
               haltpoll),
      in_guest(number<Haltpoll>("vm.guest_halt_poll_grow", &Haltpoll::grow, 0, uint_max, "",
                                "Factor that makes the limit longer.", haltpoll_source),
               haltpoll),
      in_guest(duration<Haltpoll>("vm.guest_halt_poll_grow_start", &Haltpoll::grow_start_ns, 0,
                                  longest_poll_ns, "First limit, and the shortest.", haltpoll_source),
               haltpoll),
      in_guest(
          number<Haltpoll>("vm.guest_halt_poll_shrink", &Haltpoll::shrink, 0, uint_max, "",
                           "Divisor that makes the limit shorter; 0 = no polling at once.", haltpoll_source),
          haltpoll),
      in_guest(boolean<Haltpoll>("vm.guest_halt_poll_allow_shrink", &Haltpoll::allow_shrink,
                                 "Whether the limit may become shorter.", haltpoll_source),
               haltpoll),
  };
}

Binding<VmDraft> tasks_binding() {
  auto binding = bindings::declare<VmDraft>("vm.workload.tasks", ParameterType::text, "",
                                            "Task set under a modelled guest kernel, instead of kind: a "
                                            "built-in name, or the path of an rt-app JSON file.",
                                            "workloads/tasks");
  binding.declaration.default_note = "absent";
  binding.set = [](VmDraft& vm, const SettingValue& value) { vm.tasks = std::get<std::string>(value); };
  binding.get = [](const VmDraft& vm) -> std::optional<SettingValue> {
    if (vm.tasks.empty()) return std::nullopt;
    return SettingValue(vm.tasks);
  };
  return binding;
}

}  // namespace svmsim::model
