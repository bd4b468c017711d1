#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace svmsim::workloads {

/// One step of a task. The names are rt-app's; io, request and ipi are ours.
enum class TaskStepKind : std::uint8_t {
  run,      ///< computes for `ns`
  sleep,    ///< nanosleep of `ns`, measured from now
  timer,    ///< sleeps until the next multiple of `ns` of its own timer; does not sleep when it is late
  suspend,  ///< sleeps until another task resumes it; a resume that came before is not lost
  resume,   ///< wakes the task (or all its instances) that `object` names
  barrier,  ///< waits until as many tasks as use it have come
  lock,     ///< a mutex; waiters sleep, first come first served
  unlock,
  yield,
  io,   ///< submits a request to device `object` and sleeps until its completion interrupt
  ipi,  ///< calls a function on `cpus` (on all others when empty) and spins until it ran everywhere
};

struct TaskStep {
  TaskStepKind kind = TaskStepKind::run;
  std::uint64_t ns = 0;        ///< of run, sleep and timer
  unsigned object = 0;         ///< index into the list of the kind: tasks, barriers, locks, devices
  std::vector<unsigned> cpus;  ///< of ipi
  std::string path;            ///< where it stands in the file
};

/// Steps that repeat together.
struct TaskPhase {
  std::vector<TaskStep> steps;
  std::uint64_t loop = 1;      ///< how often; 0 = for ever
  std::vector<unsigned> cpus;  ///< affinity while it lasts; empty = the task's
};

struct TaskSpec {
  std::string name;
  unsigned instances = 1;
  std::uint64_t loop = 0;  ///< rounds over all phases; 0 = for ever
  std::uint64_t delay_ns = 0;
  int nice = 0;
  bool fifo = false;
  unsigned rt_priority = 0;  ///< with fifo
  std::vector<unsigned> cpus;
  std::vector<TaskPhase> phases;
};

/// A device that answers requests: one exit to notify it, a delay, one interrupt.
struct TaskDevice {
  std::string name;
  std::uint64_t latency_ns = 0;  ///< from the notification to the completion interrupt
  std::uint64_t jitter_ns = 0;   ///< added: uniform between 0 and this, from the run's seed
  unsigned cpu = 0;              ///< vCPU that its interrupt goes to; any_cpu = the one that submitted
  static constexpr unsigned any_cpu = ~0U;
};

/// A task set as rt-app describes one in JSON (doc/tutorial.txt of rt-app): tasks with phases of run, sleep,
/// timer, suspend, resume, barrier, lock, unlock, yield, and with io and ipi, which are ours.
///
/// Times in the file are microseconds, whole or with a fraction. Not supported, and refused by name:
/// conditions (wait, signal, broad, sync), memory traffic (mem), deadline scheduling, and calibration.
struct TaskSet {
  std::string name;
  std::uint64_t duration_ns = 0;  ///< 0 = until every task has ended
  std::vector<TaskSpec> tasks;
  std::vector<std::string> barriers;
  std::vector<std::string> locks;
  std::vector<TaskDevice> devices;
  unsigned cpus_needed = 1;  ///< 1 + the highest CPU number that the file names

  /// Reads the text of a file. Throws UserError with all problems; paths are keys of the file.
  [[nodiscard]] static TaskSet parse(const std::string& text, const std::string& source);
  /// A built-in task set by its name, or a file by its path. Throws UserError when there is none.
  [[nodiscard]] static TaskSet load(const std::string& name_or_path);
};

/// The text of a built-in task set, or an empty text when there is none of that name.
[[nodiscard]] std::string builtin_task_set(const std::string& name);
[[nodiscard]] std::vector<std::string> builtin_task_set_names();

}  // namespace svmsim::workloads
