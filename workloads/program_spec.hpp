#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "svm/user_error.hpp"
#include "workloads/shared_counters.hpp"
#include "workloads/workload_source.hpp"

namespace svmsim::workloads {

using ParameterValue = std::variant<bool, std::int64_t, double, std::string>;

/// One parameter of a program, as its data file declares it.
struct ProgramParameter {
  std::string name;
  ParameterValue default_value;  ///< its alternative is the parameter's type
  std::int64_t minimum = 0;      ///< of an integer
  std::int64_t maximum = INT64_MAX;
  std::vector<std::string> choices;  ///< of a string: the allowed ones; empty = any
  std::string unit;                  ///< "" for a plain count
  std::string doc;                   ///< one sentence
};

/// A built-in or user program, as its data file describes it.
struct ProgramInfo {
  std::string name;
  std::string doc;        ///< one sentence
  std::string source;     ///< where the program comes from
  unsigned vcpus = 1;     ///< vCPUs that it needs at the least
  bool parallel = false;  ///< every vCPU runs it; else, without sections for vCPUs, vCPU 0 alone
  std::vector<ProgramParameter> parameters;
  /// KVM statistics (their binary-stats names) that the host side of the program reads at its end; the model
  /// adds each to the metrics of its vCPU.
  std::vector<std::string> report_statistics;
};

/// What a vCPU set shall run: `kind` names a built-in program, or is a path of a program file.
struct WorkloadSpec {
  std::string kind;
  std::map<std::string, ParameterValue> parameters;  ///< overrides by name
};

/// The programs that come with svmsim, in alphabetical order.
[[nodiscard]] const std::vector<ProgramInfo>& builtin_programs();

/// The description of a program. Throws UserError for an unknown kind (nearest name) or an unreadable file.
[[nodiscard]] ProgramInfo program_info(const std::string& kind);

/// Everything that is wrong with the overrides of a spec: unknown names (nearest), types, ranges.
/// `source`, `line` and `path_prefix` ("vm.vm0.workload") go into the problems.
[[nodiscard]] std::vector<Problem> check_spec(const WorkloadSpec& spec, const std::string& path_prefix);

/// The parameters of a spec, defaults filled in.
[[nodiscard]] std::map<std::string, ParameterValue> resolved_parameters(const WorkloadSpec& spec);

/// The source of vCPU `vcpu` of `vcpus`, of a program file; modelled guests come from make_guest_vm().
/// Throws UserError when the spec is invalid. `memory` is what the vCPUs of the VM share; nullptr: nothing.
[[nodiscard]] std::unique_ptr<WorkloadSource> make_program(const WorkloadSpec& spec, unsigned vcpu,
                                                           unsigned vcpus,
                                                           std::shared_ptr<SharedCounters> memory = {});

}  // namespace svmsim::workloads
