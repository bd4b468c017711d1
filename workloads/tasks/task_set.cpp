#include "workloads/tasks/task_set.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "svm/embedded_file.hpp"
#include "svm/user_error.hpp"

namespace svmsim {
const std::vector<EmbeddedFile>& builtin_task_set_files();
}

namespace svmsim::workloads {

namespace {

using Json = nlohmann::ordered_json;

constexpr double ns_per_us = 1000.0;
constexpr double longest_us = 1e12;  // over eleven days
constexpr std::uint64_t most_instances = 4096;
constexpr unsigned most_cpus = 4096;

struct StepForm {
  std::string_view name;
  TaskStepKind kind;
};
constexpr std::array<StepForm, 11> step_forms{{{"run", TaskStepKind::run},
                                               {"sleep", TaskStepKind::sleep},
                                               {"timer", TaskStepKind::timer},
                                               {"suspend", TaskStepKind::suspend},
                                               {"resume", TaskStepKind::resume},
                                               {"barrier", TaskStepKind::barrier},
                                               {"lock", TaskStepKind::lock},
                                               {"unlock", TaskStepKind::unlock},
                                               {"yield", TaskStepKind::yield},
                                               {"io", TaskStepKind::io},
                                               {"ipi", TaskStepKind::ipi}}};

// Keys of rt-app that have no meaning here; they are told apart from misspelt ones.
constexpr std::array<std::string_view, 9> unsupported{"wait",  "signal", "broad",        "sync",   "mem",
                                                      "iorun", "fork",   "sig_and_wait", "runtime"};

/// "run12" is a "run": rt-app lets a number make keys unique.
std::string_view without_number(std::string_view key) {
  while (!key.empty() && std::isdigit(static_cast<unsigned char>(key.back())) != 0)
    key.remove_suffix(1);
  return key;
}

class Reader {
 public:
  Reader(const Json& root, std::string source) : root_(root), source_(std::move(source)) {}

  TaskSet read() {
    if (!root_.is_object()) {
      problem("", "expected an object with tasks");
    } else {
      check_keys(root_, "", {"name", "global", "tasks", "devices", "resources"});
      read_global();
      read_devices();
      read_tasks();
    }
    if (!problems_.empty()) throw UserError(std::move(problems_));
    return std::move(set_);
  }

 private:
  void problem(const std::string& path, std::string message, std::string nearest = {}) {
    problems_.push_back({source_, 0, path, std::move(message), std::move(nearest)});
  }
  static std::string join(const std::string& path, std::string_view key) {
    return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
  }
  void check_keys(const Json& object, const std::string& path, const std::vector<std::string>& known) {
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end())
        problem(join(path, key), "unknown key", nearest_name(key, known));
    }
  }

  std::optional<std::uint64_t> microseconds(const Json& value, const std::string& path) {
    if (!value.is_number() || value.get<double>() < 0 || value.get<double>() > longest_us) {
      problem(path,
              fmt::format("expected microseconds from 0 to {:.0f}, found {}", longest_us, value.dump()));
      return std::nullopt;
    }
    return static_cast<std::uint64_t>(std::llround(value.get<double>() * ns_per_us));
  }
  std::optional<std::int64_t> whole(const Json& value, const std::string& path, std::int64_t least,
                                    std::int64_t most) {
    if (!value.is_number_integer() || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
      problem(path,
              fmt::format("expected a whole number from {} to {}, found {}", least, most, value.dump()));
      return std::nullopt;
    }
    return value.get<std::int64_t>();
  }
  std::optional<std::string> text(const Json& value, const std::string& path) {
    if (value.is_string() && !value.get<std::string>().empty()) return value.get<std::string>();
    problem(path, fmt::format("expected a name, found {}", value.dump()));
    return std::nullopt;
  }
  std::vector<unsigned> cpus(const Json& value, const std::string& path) {
    std::vector<unsigned> result;
    const Json list = value.is_array() ? value : Json::array({value});
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto cpu = whole(list[i], fmt::format("{}[{}]", path, i), 0, most_cpus - 1);
      if (!cpu) continue;
      result.push_back(static_cast<unsigned>(*cpu));
      set_.cpus_needed = std::max(set_.cpus_needed, result.back() + 1);
    }
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }
  /// loop of a task or phase; -1 is rt-app's "for ever".
  std::uint64_t loop(const Json& value, const std::string& path) {
    const auto count = whole(value, path, -1, INT64_MAX);
    return count && *count > 0 ? static_cast<std::uint64_t>(*count) : 0;
  }
  static unsigned index_of(std::vector<std::string>& names, const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return static_cast<unsigned>(found - names.begin());
    names.push_back(name);
    return static_cast<unsigned>(names.size() - 1);
  }

  void read_global() {
    if (const auto name = root_.find("name"); name != root_.end())
      set_.name = text(*name, "name").value_or("");
    const auto global = root_.find("global");
    if (global == root_.end()) return;
    if (!global->is_object()) return problem("global", "expected an object");
    for (const auto& [key, value] : global->items()) {
      const std::string path = join("global", key);
      if (key == "duration") {  // seconds, and -1 for no end
        if (!value.is_number() || value.get<double>() < -1 || value.get<double>() > longest_us / 1e6) {
          problem(path, "expected seconds, or -1 for no end");
        } else if (value.get<double>() > 0) {
          set_.duration_ns = static_cast<std::uint64_t>(std::llround(value.get<double>() * 1e9));
        }
      } else if (key != "default_policy" && key != "calibration" && key != "pi_enabled" && key != "logdir" &&
                 key != "log_basename" && key != "ftrace" && key != "gnuplot" && key != "lock_pages" &&
                 key != "log_size" && key != "cumulative_slack") {
        problem(path, "unknown key", nearest_name(key, {"duration", "default_policy", "calibration"}));
      }
    }
  }

  void read_devices() {
    const auto devices = root_.find("devices");
    if (devices == root_.end()) return;
    if (!devices->is_object()) return problem("devices", "expected an object of devices by name");
    for (const auto& [name, value] : devices->items()) {
      const std::string path = join("devices", name);
      TaskDevice device;
      device.name = name;
      device.cpu = TaskDevice::any_cpu;
      if (!value.is_object()) {
        problem(path, "expected an object with latency");
        continue;
      }
      check_keys(value, path, {"latency", "jitter", "cpu"});
      if (const auto latency = value.find("latency"); latency != value.end()) {
        device.latency_ns = microseconds(*latency, join(path, "latency")).value_or(0);
      } else {
        problem(join(path, "latency"), "missing; microseconds from the notification to the completion");
      }
      if (const auto jitter = value.find("jitter"); jitter != value.end())
        device.jitter_ns = microseconds(*jitter, join(path, "jitter")).value_or(0);
      if (const auto cpu = value.find("cpu"); cpu != value.end()) {
        const std::vector<unsigned> one = cpus(*cpu, join(path, "cpu"));
        if (one.size() == 1) device.cpu = one.front();
      }
      set_.devices.push_back(std::move(device));
    }
  }

  void read_tasks() {
    const auto tasks = root_.find("tasks");
    if (tasks == root_.end()) return problem("tasks", "missing; an object of tasks by name");
    if (!tasks->is_object() || tasks->empty()) return problem("tasks", "expected an object of tasks by name");
    for (const auto& [name, value] : tasks->items()) {
      task_names_.push_back(name);
      static_cast<void>(value);
    }
    for (const auto& [name, value] : tasks->items())
      read_task(name, value, join("tasks", name));
  }

  void read_task(const std::string& name, const Json& value, const std::string& path) {
    TaskSpec task;
    task.name = name;
    if (!value.is_object()) return problem(path, "expected an object");
    TaskPhase only;  // the steps of a task without phases
    const bool phases = value.contains("phases");
    for (const auto& [key, item] : value.items()) {
      const std::string place = join(path, key);
      if (key == "instance") {
        task.instances = static_cast<unsigned>(whole(item, place, 1, most_instances).value_or(1));
      } else if (key == "loop") {
        task.loop = loop(item, place);
      } else if (key == "delay") {
        task.delay_ns = microseconds(item, place).value_or(0);
      } else if (key == "cpus") {
        task.cpus = cpus(item, place);
      } else if (key == "policy") {
        read_policy(item, place, task);
      } else if (key == "priority") {
        read_priority(item, place, value, task);
      } else if (key == "phases") {
        if (!item.is_object() || item.empty()) {
          problem(place, "expected an object of phases by name");
          continue;
        }
        for (const auto& [phase_name, phase] : item.items())
          read_phase(phase, join(place, phase_name), task);
      } else if (phases) {
        problem(place, "a task with phases has its steps in them", nearest_name(key, task_keys()));
      } else {
        read_step(key, item, place, only, task_keys());
      }
    }
    if (!phases) task.phases.push_back(std::move(only));
    const bool steps = std::any_of(task.phases.begin(), task.phases.end(),
                                   [](const TaskPhase& phase) { return !phase.steps.empty(); });
    if (!steps && problems_.empty()) problem(path, "does nothing");
    set_.tasks.push_back(std::move(task));
  }

  void read_policy(const Json& item, const std::string& path, TaskSpec& task) {
    const std::string policy = text(item, path).value_or("SCHED_OTHER");
    const std::vector<std::string> known{"SCHED_OTHER", "SCHED_FIFO"};
    if (std::find(known.begin(), known.end(), policy) == known.end())
      problem(path, fmt::format("\"{}\" is not supported", policy), nearest_name(policy, known));
    task.fifo = policy == "SCHED_FIFO";
  }
  void read_priority(const Json& item, const std::string& path, const Json& task_json, TaskSpec& task) {
    const auto policy = task_json.find("policy");
    const bool fifo = policy != task_json.end() && policy->is_string() && *policy == "SCHED_FIFO";
    if (fifo) {
      task.rt_priority = static_cast<unsigned>(whole(item, path, 1, 99).value_or(1));
    } else {
      task.nice = static_cast<int>(whole(item, path, -20, 19).value_or(0));
    }
  }

  void read_phase(const Json& value, const std::string& path, TaskSpec& task) {
    if (!value.is_object()) return problem(path, "expected an object of steps");
    TaskPhase phase;
    for (const auto& [key, item] : value.items()) {
      const std::string place = join(path, key);
      if (key == "loop") {
        phase.loop = loop(item, place);
      } else if (key == "cpus") {
        phase.cpus = cpus(item, place);
      } else {
        read_step(key, item, place, phase, phase_keys());
      }
    }
    task.phases.push_back(std::move(phase));
  }

  static std::vector<std::string> phase_keys() {
    std::vector<std::string> keys{"loop", "cpus"};
    for (const StepForm& form : step_forms)
      keys.emplace_back(form.name);
    return keys;
  }
  static std::vector<std::string> task_keys() {
    std::vector<std::string> keys = phase_keys();
    keys.insert(keys.end(), {"instance", "delay", "policy", "priority", "phases"});
    return keys;
  }

  void read_step(const std::string& key, const Json& item, const std::string& path, TaskPhase& phase,
                 const std::vector<std::string>& known) {
    const std::string_view name = without_number(key);
    const auto form = std::find_if(step_forms.begin(), step_forms.end(),
                                   [&](const StepForm& candidate) { return candidate.name == name; });
    if (form == step_forms.end()) {
      const bool rt_app = std::find(unsupported.begin(), unsupported.end(), name) != unsupported.end();
      problem(path, rt_app ? "this step of rt-app is not supported" : "unknown key",
              rt_app ? std::string{} : nearest_name(std::string(name), known));
      return;
    }
    TaskStep step;
    step.kind = form->kind;
    step.path = path;
    read_operand(item, path, step);
    phase.steps.push_back(std::move(step));
  }

  void read_operand(const Json& item, const std::string& path, TaskStep& step) {
    switch (step.kind) {
      case TaskStepKind::run:
      case TaskStepKind::sleep:
        step.ns = microseconds(item, path).value_or(0);
        break;
      case TaskStepKind::timer:
        if (!item.is_object()) return problem(path, "expected an object with period");
        for (const auto& [key, value] : item.items()) {
          if (key == "period") {
            step.ns = microseconds(value, join(path, key)).value_or(0);
          } else if (key != "ref" && key != "mode") {
            problem(join(path, key), "unknown key", nearest_name(key, {"ref", "period", "mode"}));
          }
        }
        if (step.ns == 0 && problems_.empty()) problem(join(path, "period"), "must be above 0");
        break;
      case TaskStepKind::resume: {
        const auto target = text(item, path);
        if (!target) return;
        const auto found = std::find(task_names_.begin(), task_names_.end(), *target);
        if (found == task_names_.end()) {
          problem(path, fmt::format("there is no task \"{}\"", *target), nearest_name(*target, task_names_));
        } else {
          step.object = static_cast<unsigned>(found - task_names_.begin());
        }
        break;
      }
      case TaskStepKind::barrier:
        if (const auto name = text(item, path)) step.object = index_of(set_.barriers, *name);
        break;
      case TaskStepKind::lock:
      case TaskStepKind::unlock:
        if (const auto name = text(item, path)) step.object = index_of(set_.locks, *name);
        break;
      case TaskStepKind::io:
        read_io(item, path, step);
        break;
      case TaskStepKind::ipi:
        if (item.is_string() && *item.get_ptr<const std::string*>() == "all") break;
        step.cpus = cpus(item, path);
        if (step.cpus.empty()) problem(path, "expected CPUs, or \"all\"");
        break;
      case TaskStepKind::suspend:
      case TaskStepKind::yield:
        break;  // rt-app gives them a text that means nothing
    }
  }

  void read_io(const Json& item, const std::string& path, TaskStep& step) {
    const auto name = text(item, path);
    if (!name) return;
    std::vector<std::string> names;
    for (const TaskDevice& device : set_.devices)
      names.push_back(device.name);
    const auto found = std::find(names.begin(), names.end(), *name);
    if (found == names.end()) {
      problem(path, fmt::format("there is no device \"{}\" under devices", *name),
              nearest_name(*name, names));
    } else {
      step.object = static_cast<unsigned>(found - names.begin());
    }
  }

  const Json& root_;
  std::string source_;
  TaskSet set_;
  std::vector<std::string> task_names_;
  std::vector<Problem> problems_;
};

}  // namespace

TaskSet TaskSet::parse(const std::string& text, const std::string& source) {
  Json root;
  try {
    constexpr bool comments = true;
    root = Json::parse(text, nullptr, true, comments);
  } catch (const Json::parse_error& error) {
    const auto end =
        text.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(error.byte, text.size()));
    const auto line = static_cast<std::size_t>(std::count(text.begin(), end, '\n')) + 1;
    throw UserError(Problem{source, line, "", "is not JSON here", ""});
  }
  return Reader(root, source).read();
}

TaskSet TaskSet::load(const std::string& name_or_path) {
  if (const std::string text = builtin_task_set(name_or_path); !text.empty())
    return parse(text, name_or_path);
  std::ifstream file(name_or_path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && text.empty()) throw UserError(Problem{name_or_path, 0, "", "cannot be read", ""});
  return parse(text, name_or_path);
}

std::string builtin_task_set(const std::string& name) {
  for (const EmbeddedFile& file : builtin_task_set_files()) {
    if (file.name == name) return std::string(file.text);
  }
  return {};
}

std::vector<std::string> builtin_task_set_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : builtin_task_set_files())
    names.emplace_back(file.name);
  return names;
}

}  // namespace svmsim::workloads
