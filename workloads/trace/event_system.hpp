#pragma once

#include <string_view>

namespace svmsim::workloads {

/// The subsystem under which the kernel (or perf) lists an event of this name ("kvm", "sched", ...).
[[nodiscard]] inline std::string_view event_system(std::string_view name) {
  const auto begins = [name](std::string_view prefix) { return name.substr(0, prefix.size()) == prefix; };
  if (begins("kvm_")) return "kvm";
  if (begins("sched_")) return "sched";
  if (begins("cpu_")) return "power";
  if (name == "print" || name == "tracing_mark_write") return "ftrace";
  return "recorded";
}

}  // namespace svmsim::workloads
