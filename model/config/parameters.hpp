#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/config/scenario.hpp"

namespace svmsim::model {

enum class ParameterType : std::uint8_t {
  boolean,
  integer,
  duration,  ///< integer of ns, or a string such as "10ms"
  text,
  choice,  ///< a string out of `choices`
  integer_list,
  choice_list,  ///< strings out of `choices`
};

/// "boolean", "integer", ...
[[nodiscard]] std::string_view type_name(ParameterType type);

/// A value of a parameter. Durations are integers of ns.
using SettingValue =
    std::variant<bool, std::int64_t, std::string, std::vector<std::int64_t>, std::vector<std::string>>;

/// The one declaration of a scenario parameter. Help, JSON Schema, docs and validation all come from it.
struct Parameter {
  std::string path;  ///< "host.pcpus"; for each element of an array of tables, "vm.vcpus"
  ParameterType type = ParameterType::integer;
  std::string unit;  ///< "" for a plain count or name
  std::string doc;   ///< one sentence
  std::string source;
  std::int64_t minimum = 0;  ///< of an integer or duration
  std::int64_t maximum = 0;
  std::vector<std::string> choices;
  std::vector<std::string> later;        ///< values that are known, but not modelled yet
  std::optional<SettingValue> fallback;  ///< the default; absent when it depends on others, see default_note
  std::string default_note;              ///< where a default comes from that is no constant

  [[nodiscard]] std::string key() const { return path.substr(path.rfind('.') + 1); }
};

/// A declaration and the field of a resolved struct that it fills.
template <class Owner>
struct Binding {
  Parameter declaration;
  std::function<void(Owner&, const SettingValue&)> set;
  std::function<std::optional<SettingValue>(const Owner&)> get;                       ///< nothing = absent
  std::vector<std::pair<workloads::KernelGeneration, SettingValue>> kernel_defaults;  ///< where they differ
};

/// A [[vm]] table before `count` is unrolled.
struct VmDraft : VmConfig {
  unsigned count = 1;
};

// One list per table of the scenario. Order is the order of help, schema and resolved output.
[[nodiscard]] const std::vector<Binding<HostConfig>>& host_parameters();
[[nodiscard]] const std::vector<Binding<HostKnobs>>& knob_parameters();
[[nodiscard]] const std::vector<Binding<Costs>>& cost_parameters();
[[nodiscard]] const std::vector<Binding<CState>>& cstate_parameters();
/// A [[vm.device]] table.
[[nodiscard]] const std::vector<Binding<DeviceConfig>>& device_parameters();
[[nodiscard]] const std::vector<Binding<KvmConfig>>& kvm_parameters();
[[nodiscard]] const std::vector<Binding<VmDraft>>& vm_parameters();
/// The part of vm_parameters() that says what the guest gets beyond hardware.
[[nodiscard]] std::vector<Binding<VmDraft>> pv_parameters();
[[nodiscard]] std::vector<Binding<VmDraft>> guest_parameters();
[[nodiscard]] Binding<VmDraft> tasks_binding();
[[nodiscard]] const std::vector<Binding<VmDraft>>& workload_parameters();
[[nodiscard]] const std::vector<Binding<RunConfig>>& run_parameters();

/// All declarations, in order.
[[nodiscard]] std::vector<Parameter> all_parameters();

/// Keys that the design names and a later version will model; using one is an error that says so.
[[nodiscard]] const std::vector<std::string>& later_parameters();

/// The kernel generations by name ("6.1", ...), in order.
[[nodiscard]] const std::vector<std::pair<std::string, workloads::KernelGeneration>>& kernel_names();
[[nodiscard]] const std::string& kernel_name(workloads::KernelGeneration kernel);

/// Names of the events that a tracepoint setting may list.
[[nodiscard]] std::vector<std::string> tracepoint_names();

/// ns of "1s", "10ms", "1.5us", "7ns"; nothing when the text is no duration or no whole number of ns.
[[nodiscard]] std::optional<std::int64_t> parse_duration(std::string_view text);

/// The shortest exact text of a duration ("10ms").
[[nodiscard]] std::string format_duration(std::int64_t ns);

}  // namespace svmsim::model
