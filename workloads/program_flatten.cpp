#include <algorithm>
#include <utility>

#include "workloads/program.hpp"
#include "workloads/program_source.hpp"

namespace svmsim::workloads {

namespace {

using svm::ActionKind;

constexpr std::uint64_t default_rip = 0x100000;
constexpr std::uint64_t default_handlers = 0x200000;
constexpr std::uint64_t default_handler_spacing = 0x100;
constexpr std::uint8_t halt_check_length = 10;  // a compare with memory and a conditional jump

/// Fills a program's parameters in and lays its actions out in one array.
class Flattener {
 public:
  Flattener(const Program& program, const std::vector<ParameterValue>& parameters)
      : program_(program), parameters_(parameters) {}

  FlatProgram flatten(unsigned vcpu) {
    flat_.initial = program_.initial;
    flat_.watches = program_.stopwatches;
    flat_.counters = program_.counters.size();
    for (const ProgramCheck& check : program_.checks)
      flat_.checks.push_back({check.vector, check.runs});
    const ProgramSection& section = program_.section(vcpu);
    append(section.setup);
    append_body(section.body);
    append(section.teardown);
    flat_.initial.rip = flat_.steps.empty() ? default_rip : flat_.steps.front().action.rip;
    flat_.end = next_index();
    append_step(ActionKind::nop, 0);  // nobody executes it; it keeps the first handler apart from the end
    flat_.handler.fill(FlatProgram::no_handler);
    for (const ProgramHandler& handler : program_.handlers) {
      next_rip_ = default_handlers + default_handler_spacing * handler.vector;
      flat_.handler[handler.vector] = next_index();
      append(handler.actions);
      flat_.steps.back().effects |= step_effect::handler_return;
    }
    return std::move(flat_);
  }

 private:
  [[nodiscard]] std::uint32_t next_index() const { return static_cast<std::uint32_t>(flat_.steps.size()); }

  [[nodiscard]] std::uint64_t value(const ProgramNumber& number) const {
    if (number.parameter < 0) return number.literal;
    return static_cast<std::uint64_t>(
        std::get<std::int64_t>(parameters_[static_cast<std::size_t>(number.parameter)]));
  }

  [[nodiscard]] bool included(const ProgramAction& action) const {
    if (action.condition >= 0 &&
        std::get<bool>(parameters_[static_cast<std::size_t>(action.condition)]) != action.condition_value) {
      return false;
    }
    return value(action.repeat) > 0;
  }

  ProgramStep& append_step(ActionKind kind, std::uint8_t length) {
    ProgramStep step;
    step.action.kind = kind;
    step.action.length = length;
    step.action.rip = next_rip_;
    next_rip_ += length;
    flat_.steps.push_back(step);
    return flat_.steps.back();
  }

  void append(const ActionList& actions) {
    for (const ProgramAction& action : actions) {
      if (!included(action)) continue;
      if (action.rip) next_rip_ = value(*action.rip);
      if (action.form->halt_until) {
        append_halt_until(action);
      } else if ((action.form->keys & action_key::deadline) != 0) {
        append_arm_deadline(action);
      } else {
        append_action(action);
      }
    }
  }

  void append_action(const ProgramAction& action) {
    std::uint8_t length = action.form->length;
    if (action.length) length = static_cast<std::uint8_t>(value(*action.length));
    const auto number = static_cast<std::uint32_t>(value(action.number));
    if ((action.form->keys & action_key::port) != 0 && !action.length) {
      // A port above FFh does not fit into the instruction: IN and OUT take it from DX and are a byte
      // shorter.
      if (number > 0xff) --length;
      if (value(action.size) == 2) ++length;  // operand-size prefix
    }
    ProgramStep& step = append_step(action.form->kind, length);
    step.action.cpl = action.cpl;
    step.action.size = static_cast<std::uint8_t>(value(action.size));
    step.action.number = number;
    step.action.cycles = value(action.cycles);
    for (std::size_t i = 0; i < action.operand.size(); ++i)
      step.action.operand[i] = value(action.operand[i]);
    for (const auto& [operand, number_of] : action.others)
      static_cast<void>(svm::set_operand(step.action, *operand, value(number_of)));  // the reader checked it
    step.action.flags |= action.form->flags;
    if (action.pauses) step.action.flags |= svm::action_flags::pauses;
    if ((action.form->keys & (action_key::add | action_key::wait)) != 0) set_wait(step, action);
    if ((action.form->keys & action_key::add) != 0) step.effects |= step_effect::add_counter;
    step.repeat = value(action.repeat);
    if (step.repeat > 1) step.effects |= step_effect::repeat;
    if (action.form->skips_eoi) step.effects |= step_effect::pv_eoi;
    if (action.start_watch >= 0) {
      step.effects |= step_effect::start_watch;
      step.watch = static_cast<std::uint8_t>(action.start_watch);
    }
    if (action.stop_watch >= 0) {
      step.effects |= step_effect::stop_watch;
      step.watch = static_cast<std::uint8_t>(action.stop_watch);
    }
  }

  void set_wait(ProgramStep& step, const ProgramAction& action) const {
    step.vector = action.vector;
    step.counter = static_cast<std::int16_t>(action.counter);
    step.count = value(action.count);
    step.per_iteration = action.per_iteration;
  }

  // RDTSC, the addition, and WRMSR of the TSC deadline.
  void append_arm_deadline(const ProgramAction& action) {
    constexpr std::uint8_t rdtsc_and_arithmetic = 16;
    constexpr std::uint32_t msr_tsc_deadline = 0x6e0;
    constexpr std::uint8_t wrmsr_length = 2;
    ProgramStep& rdtsc = append_step(ActionKind::rdtsc, rdtsc_and_arithmetic);
    rdtsc.effects = step_effect::set_deadline;
    rdtsc.count = value(action.count);
    ProgramStep& wrmsr = append_step(ActionKind::wrmsr, wrmsr_length);
    wrmsr.action.number = msr_tsc_deadline;
    wrmsr.action.cycles = value(action.cycles);
  }

  // check: reached? -> after; HLT; back to the check.
  void append_halt_loop(const ProgramAction& action) {
    const std::uint32_t check = append_check(action, 2);
    ProgramStep& halt = append_step(ActionKind::hlt, 1);
    halt.effects = step_effect::jump;
    halt.target = check;
  }

  /// The look that leaves a halt_until to `behind` steps after itself. Returns its index.
  std::uint32_t append_check(const ProgramAction& action, std::uint32_t behind) {
    const std::uint32_t check = next_index();
    ProgramStep& compare = append_step(ActionKind::compute, halt_check_length);
    compare.action.cycles = value(action.cycles);
    compare.effects = step_effect::leave_if_reached;
    set_wait(compare, action);
    if (compare.counter >= 0) compare.action.flags |= svm::action_flags::shared;
    compare.target = check + behind;
    return check;
  }

  // CLI; check: reached? -> after; STI; HLT; CLI; back to the check.
  void append_halt_until(const ProgramAction& action) {
    if (action.interrupts_on) return append_halt_loop(action);
    append_step(ActionKind::cli, 1);
    const std::uint32_t check = append_check(action, 4);
    append_step(ActionKind::sti, 1);
    append_step(ActionKind::hlt, 1);
    ProgramStep& back = append_step(ActionKind::cli, 1);
    back.effects = step_effect::jump;
    back.target = check;
  }

  void append_body(const ActionList& body) {
    const ProgramRepeat& repeat = program_.repeat;
    const std::uint64_t count = value(repeat.count);
    flat_.body_begin = flat_.body_end = next_index();
    bool any = false;
    for (const ProgramAction& action : body)
      any = any || included(action);
    flat_.harnessed = repeat.until_cycles.has_value();
    if (!any || (count == 0 && !flat_.harnessed)) return;
    if (flat_.harnessed) {
      flat_.harness = BatchHarness(value(repeat.start), value(*repeat.until_cycles), count);
      if (repeat.tsc_rip) next_rip_ = value(*repeat.tsc_rip);
      append_step(ActionKind::rdtsc, rdtsc_length).effects = step_effect::begin_batch;
    } else {
      flat_.iterations = count;
    }
    const std::uint32_t before = flat_.body_begin;
    flat_.body_begin = next_index();
    append(body);
    flat_.body_end = next_index();
    ProgramStep& last = flat_.steps.back();
    // A halt_until at the end leaves through its check, which knows that the body ends there.
    if ((last.effects & step_effect::jump) == 0) last.effects |= step_effect::end_iteration;
    if (flat_.harnessed) {
      ProgramStep& end = append_step(ActionKind::rdtsc, rdtsc_length);
      end.effects = step_effect::end_batch;
      end.target = before;
    }
  }

  static constexpr std::uint8_t rdtsc_length = 2;

  const Program& program_;
  const std::vector<ParameterValue>& parameters_;
  FlatProgram flat_;
  std::uint64_t next_rip_ = default_rip;
};

/// Name and length are those of the table; a compute, which has no length there, gets a place in the program.
ActionForm form(ActionKind kind, unsigned keys = 0) {
  constexpr std::uint8_t compute_length = 4;
  const svm::ActionInfo& info = svm::action_info(kind);
  const std::uint8_t length = kind == ActionKind::compute ? compute_length : info.length;
  return {info.name, kind, length, false, static_cast<std::uint16_t>(keys), false, nullptr, 0};
}

bool has_kind(const std::vector<ActionForm>& forms, ActionKind kind) {
  return std::any_of(forms.begin(), forms.end(),
                     [kind](const ActionForm& candidate) { return candidate.kind == kind; });
}

// What a program may write: all that goes on behind itself. The others enter a handler that returns behind
// them, switch the task or the guest, or are events rather than instructions; they are for conformance cases.
bool repeatable(ActionKind kind) {
  switch (kind) {
    case ActionKind::int_n:
    case ActionKind::int3:
    case ActionKind::into:
    case ActionKind::icebp:
    case ActionKind::task_switch:
    case ActionKind::rsm:
    case ActionKind::raise:
    case ActionKind::instruction_fetch:
    case ActionKind::bus_lock:
    case ActionKind::ferr:
    case ActionKind::vmgexit:
    case ActionKind::ins:
    case ActionKind::outs:
      return false;
    default:
      return true;
  }
}

}  // namespace

const std::vector<ActionForm>& action_forms() {
  namespace key = action_key;
  static const std::vector<ActionForm> forms{
      form(ActionKind::compute),
      form(ActionKind::nop),
      form(ActionKind::cli),
      form(ActionKind::sti),
      form(ActionKind::hlt),
      form(ActionKind::pause),
      form(ActionKind::cpuid, key::leaf),
      form(ActionKind::rdtsc, key::stopwatch),
      form(ActionKind::rdmsr, key::msr),
      form(ActionKind::wrmsr, key::msr | key::value),
      form(ActionKind::in, key::port),
      form(ActionKind::out, key::port | key::value),
      form(ActionKind::vmmcall, key::hypercall),
      form(ActionKind::iret),
      form(ActionKind::memory_read, key::memory),
      form(ActionKind::memory_write, key::memory | key::value),
      form(ActionKind::mov_from_cr8),
      form(ActionKind::mov_to_cr8, key::value),
      {"halt_until", ActionKind::hlt, 0, true, key::wait, false, nullptr, 0},
      {"pv_eoi_test", ActionKind::memory_write, 8, false, key::memory, true, nullptr, 0},
      {"spin_until", ActionKind::compute, 6, false, key::wait, false, nullptr, svm::action_flags::spin},
      {"add", ActionKind::compute, 8, false, key::add, false, nullptr, svm::action_flags::shared},
      {"arm_deadline", ActionKind::wrmsr, 2, false, key::deadline, false, nullptr, 0},
  };
  static const std::vector<ActionForm> all = [] {
    std::vector<ActionForm> result = forms;
    for (const svm::ActionInfo& info : svm::action_table()) {
      if (!repeatable(info.kind) || has_kind(forms, info.kind)) continue;
      result.push_back({info.name, info.kind, info.length, false, 0, false, &info, 0});
    }
    return result;
  }();
  return all;
}

const ActionForm* find_action_form(std::string_view name) {
  for (const ActionForm& candidate : action_forms()) {
    if (candidate.name == name) return &candidate;
  }
  return nullptr;
}

const ProgramSection& Program::section(unsigned vcpu) const {
  const auto own = vcpus.find(vcpu);
  if (own != vcpus.end()) return own->second;
  return others ? *others : common;
}

std::unique_ptr<WorkloadSource> make_source(const Program& program,
                                            const std::vector<ParameterValue>& parameters, unsigned vcpu,
                                            std::shared_ptr<SharedCounters> memory) {
  return std::make_unique<ProgramSource>(Flattener(program, parameters).flatten(vcpu), vcpu,
                                         std::move(memory));
}

}  // namespace svmsim::workloads
