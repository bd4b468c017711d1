#include "workloads/program.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "svm/embedded_file.hpp"
#include "workloads/guest/guest_platform.hpp"
#include "workloads/idle_source.hpp"
#include "workloads/program_loader.hpp"

namespace svmsim {
const std::vector<EmbeddedFile>& builtin_program_files();
}

namespace svmsim::workloads {

namespace {

std::vector<Program> load_builtins() {
  std::vector<Program> result;
  for (const EmbeddedFile& file : builtin_program_files()) {
    const std::string name{file.name};
    try {
      result.push_back(parse_program(file.text, name + ".toml"));
    } catch (const UserError& error) {
      throw InternalError(fmt::format("a built-in program is wrong: {}", error.what()));
    }
    if (result.back().info.name != name) {
      throw InternalError(fmt::format("{}.toml calls its program {}", name, result.back().info.name));
    }
  }
  return result;
}

const std::vector<Program>& builtins() {
  static const std::vector<Program> programs = load_builtins();
  return programs;
}

/// A kind with a directory or a suffix is a file; any other is a built-in.
bool is_path(const std::string& kind) {
  return kind.find_first_of("/.") != std::string::npos;
}

std::shared_ptr<const Program> find_program(const std::string& kind) {
  if (is_path(kind)) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(kind, error)) {
      throw UserError(Problem{"", 0, "kind", fmt::format("there is no program file \"{}\"", kind), ""});
    }
    return std::make_shared<const Program>(load_program(kind));
  }
  std::vector<std::string> names;
  for (const ProgramInfo& info : guest_workloads())
    names.push_back(info.name);
  for (const Program& program : builtins()) {
    // The built-ins live as long as the process, so the pointer owns nothing.
    if (program.info.name == kind) return {std::shared_ptr<const Program>{}, &program};
    names.push_back(program.info.name);
  }
  throw UserError(Problem{"", 0, "kind", fmt::format("\"{}\" is not a built-in program", kind),
                          nearest_name(kind, names)});
}

/// The description of a program file, or of a modelled guest.
ProgramInfo info_of(const std::string& kind) {
  for (const ProgramInfo& info : guest_workloads()) {
    if (info.name == kind) return info;
  }
  return find_program(kind)->info;
}

std::string_view type_name(const ParameterValue& value) {
  switch (value.index()) {
    case 0:
      return "a boolean";
    case 1:
      return "an integer";
    case 2:
      return "a number";
    default:
      return "a string";
  }
}

/// The value that an override gives a parameter, or what is wrong with it.
std::variant<ParameterValue, std::string> converted(const ProgramParameter& parameter,
                                                    const ParameterValue& value) {
  if (std::holds_alternative<double>(parameter.default_value)) {
    if (const auto* integer = std::get_if<std::int64_t>(&value))
      return ParameterValue{static_cast<double>(*integer)};
  }
  if (value.index() != parameter.default_value.index()) {
    return fmt::format("must be {}, not {}", type_name(parameter.default_value), type_name(value));
  }
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    if (*integer < parameter.minimum || *integer > parameter.maximum) {
      return fmt::format("is {}, but must be from {} to {}", *integer, parameter.minimum, parameter.maximum);
    }
  }
  if (const auto* text = std::get_if<std::string>(&value); text != nullptr && !parameter.choices.empty()) {
    if (std::find(parameter.choices.begin(), parameter.choices.end(), *text) == parameter.choices.end()) {
      return fmt::format("is \"{}\", but must be one of {}", *text, fmt::join(parameter.choices, ", "));
    }
  }
  return value;
}

std::vector<Problem> check_overrides(const ProgramInfo& info, const WorkloadSpec& spec,
                                     const std::string& path_prefix) {
  std::vector<Problem> problems;
  std::vector<std::string> names;
  for (const ProgramParameter& parameter : info.parameters)
    names.push_back(parameter.name);
  for (const auto& [name, value] : spec.parameters) {
    const std::string path = path_prefix.empty() ? name : path_prefix + "." + name;
    const ProgramParameter* found = nullptr;
    for (const ProgramParameter& parameter : info.parameters) {
      if (parameter.name == name) found = &parameter;
    }
    if (found == nullptr) {
      problems.push_back(
          {"", 0, path, fmt::format("{} has no such parameter", info.name), nearest_name(name, names)});
      continue;
    }
    auto result = converted(*found, value);
    if (auto* message = std::get_if<std::string>(&result)) {
      const auto* text = std::get_if<std::string>(&value);
      problems.push_back({"", 0, path, std::move(*message),
                          text != nullptr ? nearest_name(*text, found->choices) : std::string()});
    }
  }
  return problems;
}

/// Values of all parameters, in order.
std::vector<ParameterValue> resolve(const ProgramInfo& info, const WorkloadSpec& spec) {
  if (auto problems = check_overrides(info, spec, ""); !problems.empty())
    throw UserError(std::move(problems));
  std::vector<ParameterValue> result;
  for (const ProgramParameter& parameter : info.parameters) {
    const auto found = spec.parameters.find(parameter.name);
    result.push_back(found == spec.parameters.end()
                         ? parameter.default_value
                         : std::get<ParameterValue>(converted(parameter, found->second)));
  }
  return result;
}

}  // namespace

const std::vector<ProgramInfo>& builtin_programs() {
  static const std::vector<ProgramInfo> infos = [] {
    std::vector<ProgramInfo> result;
    for (const Program& program : builtins())
      result.push_back(program.info);
    result.insert(result.end(), guest_workloads().begin(), guest_workloads().end());
    std::sort(result.begin(), result.end(),
              [](const ProgramInfo& a, const ProgramInfo& b) { return a.name < b.name; });
    return result;
  }();
  return infos;
}

ProgramInfo program_info(const std::string& kind) {
  return info_of(kind);
}

std::vector<Problem> check_spec(const WorkloadSpec& spec, const std::string& path_prefix) {
  try {
    return check_overrides(info_of(spec.kind), spec, path_prefix);
  } catch (const UserError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) {
      // Problems inside a program file keep that file's path; only the kind itself is the scenario's.
      if (problem.source.empty() && !path_prefix.empty()) problem.path = path_prefix + "." + problem.path;
    }
    return problems;
  }
}

std::map<std::string, ParameterValue> resolved_parameters(const WorkloadSpec& spec) {
  const ProgramInfo info = info_of(spec.kind);
  const std::vector<ParameterValue> values = resolve(info, spec);
  std::map<std::string, ParameterValue> result;
  for (std::size_t i = 0; i < values.size(); ++i)
    result.emplace(info.parameters[i].name, values[i]);
  return result;
}

std::unique_ptr<WorkloadSource> make_program(const WorkloadSpec& spec, unsigned vcpu, unsigned vcpus,
                                             std::shared_ptr<SharedCounters> memory) {
  if (is_guest_workload(spec.kind)) {
    throw InternalError("the vCPUs of " + spec.kind + " share memory: make_guest_vm() makes them");
  }
  const auto program = find_program(spec.kind);
  if (vcpu >= vcpus) throw InternalError(fmt::format("vCPU {} of {} does not exist", vcpu, vcpus));
  if (vcpus < program->info.vcpus) {
    throw UserError(Problem{
        "", 0, "vcpus", fmt::format("is {}, but {} needs {}", vcpus, program->info.name, program->info.vcpus),
        std::to_string(program->info.vcpus)});
  }
  const bool has_sections = !program->vcpus.empty() || program->others.has_value();
  if (vcpu > 0 && !program->info.parallel && !has_sections) return std::make_unique<IdleSource>();
  return make_source(*program, resolve(program->info, spec), vcpu, std::move(memory));
}

}  // namespace svmsim::workloads
