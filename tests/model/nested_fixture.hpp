#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/model/program_run.hpp"

namespace svmsim::model::test {

/// A scenario whose one VM is a guest hypervisor, on a host without a tick.
inline Scenario nested_scenario(const std::string& style, const std::string& kind,
                                std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), {"kvm.nested=true", "host.hz=0", "vm.l1=" + style});
  return scenario_of(kind, std::move(overrides));
}

/// kvm.nested_idle_hlt, with the CPU that it is for.
inline std::vector<std::string> idle_hlt_mode(const std::string& mode) {
  return {"kvm.nested_idle_hlt=" + mode,
          mode == "expose" ? R"(host.features=["+idle_hlt"])" : R"(host.features=["-idle_hlt"])"};
}

/// Exits of the first vCPU by level: {"l2 msr", 2}, {"l1 vmrun", 3}, {"seen msr", 2}, ...
inline std::map<std::string, std::uint64_t> nested_exits(const RunResult& result) {
  std::map<std::string, std::uint64_t> exits;
  for (const auto& [code, counts] : result.vcpus[0].nested) {
    const std::string name = exit_row_name(code);
    if (counts.l1 != 0) exits["l1 " + name] = counts.l1;
    if (counts.l2 != 0) exits["l2 " + name] = counts.l2;
    if (counts.seen_by_l1 != 0) exits["seen " + name] = counts.seen_by_l1;
  }
  return exits;
}

/// What one iteration takes: the difference of two runs, by their iterations.
inline std::map<std::string, double> per_iteration(const std::map<std::string, std::uint64_t>& fewer,
                                                   const std::map<std::string, std::uint64_t>& more,
                                                   double iterations) {
  std::map<std::string, double> result;
  for (const auto& [name, count] : more) {
    const auto found = fewer.find(name);
    const std::uint64_t before = found == fewer.end() ? 0 : found->second;
    if (count != before) result[name] = static_cast<double>(count - before) / iterations;
  }
  return result;
}

}  // namespace svmsim::model::test
