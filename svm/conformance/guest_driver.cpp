#include "svm/conformance/guest_driver.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "svm/action_table.hpp"
#include "svm/conformance/guest_setup.hpp"
#include "svm/conformance/names.hpp"
#include "svm/step_text.hpp"

namespace svmsim::svm::conformance {

namespace {

/// A guest that handles an endless stream of events is stopped here.
constexpr std::uint64_t most_events = 100'000;

}  // namespace

GuestDriver::GuestDriver(const Case& conformance_case, TableEnvironment& surroundings)
    : vmcb(default_vmcb()),
      environment(surroundings),
      cpu(conformance_case.features, conformance_case.knobs, conformance_case.limits),
      clean_bits_(conformance_case.features) {
  ProgramStep iret;
  iret.text = "iret";
  iret.action = usual_action(ActionKind::iret);
  iret_.push_back(iret);
}

GuestDriver::GuestDriver(const Case& conformance_case)
    : GuestDriver(conformance_case, std::make_unique<TableEnvironment>()) {}

GuestDriver::GuestDriver(const Case& conformance_case, std::unique_ptr<TableEnvironment> own)
    : GuestDriver(conformance_case, *own) {
  own_environment_ = std::move(own);
}

GuestDriver::Place GuestDriver::place_at(const Program& program, std::uint64_t rip) {
  Place place;
  place.program = &program;
  for (const ProgramStep& step : program) {
    place.rips.push_back(rip);
    if (step.kind == ProgramStep::Kind::action) rip += step.action.length;
  }
  place.rips.push_back(rip);
  return place;
}

std::string GuestDriver::place_text(std::uint64_t rip) const {
  const std::uint64_t offset = rip - program_rip;
  return offset < 0x1'0000 ? fmt::format("start+{}", offset) : hex(rip);
}

// Where the guest stands at VMRUN. After an exit at an instruction the place is that instruction; after one
// between instructions it is the next step, which need not be the first one at that rIP.
void GuestDriver::find_place(std::uint64_t rip) {
  Place& place = places_.back();
  if (place.rips[place.index] == rip) return;
  if (place.index > 0 && place.rips[place.index - 1] == rip) {
    --place.index;
    return;
  }
  const auto found = std::find(place.rips.begin(), place.rips.end(), rip);
  if (found == place.rips.end()) {
    trace.push_back(fmt::format("no program at rIP {:#x}", rip));
    place.index = place.program->size();
    return;
  }
  place.index = static_cast<std::size_t>(found - place.rips.begin());
}

void GuestDriver::prepare(const CaseRun& run) {
  apply(run.vmcb, vmcb);
  apply(run.surroundings, environment);
  apply(run.more_surroundings, environment);
  host_if_ = run.host_if.value_or(host_if_);
  core_ = run.core.value_or(core_);
  if (run.physical && *run.physical != physical_) {
    clean_bits_.moved(physical_, *run.physical);
    physical_ = *run.physical;
  }
  for (const auto& [vector, program] : run.handlers)
    handlers_[vector] = program;
  if (run.skip && !places_.empty()) {
    const Place& place = places_.back();
    const auto found = std::find(place.rips.begin(), place.rips.end(), vmcb.save.rip);
    if (found != place.rips.end() && found + 1 != place.rips.end()) {
      // Steps that are no actions share the rIP of the action behind them.
      vmcb.save.rip = *std::upper_bound(found, place.rips.end(), vmcb.save.rip);
    }
  }
  if (run.program || places_.empty()) {
    main_ = run.program.value_or(Program{});
    program_rip = vmcb.save.rip;
    places_.clear();
    places_.push_back(place_at(main_, program_rip));
  } else {
    find_place(vmcb.save.rip);
  }
}

void GuestDriver::forget_last_run() {
  exited = reset = false;
  delivered.clear();
  violations.clear();
  retired = 0;
  result.reset();
}

void GuestDriver::go_on(const Program& program) {
  forget_last_run();
  if (!cpu.in_guest_mode()) {
    trace.emplace_back("the guest is not in guest mode");
    return;
  }
  if (!program.empty()) {
    main_ = program;
    program_rip = cpu.rip();
    places_.clear();
    places_.push_back(place_at(main_, program_rip));
  }
  last_rip = last_next_rip = cpu.rip();
  run_guest();
}

void GuestDriver::run(const CaseRun& run) {
  forget_last_run();
  if (cpu.in_guest_mode()) {
    trace.emplace_back("VMRUN is impossible: the guest has not exited");
    return;
  }
  prepare(run);
  last_rip = last_next_rip = vmcb.save.rip;
  clean_findings = clean_bits_.vmrun(core_, physical_, vmcb);
  violations = vmrun_violations(vmcb, cpu.features(), cpu.knobs(), cpu.limits(), &environment);
  const Step entry = cpu.vmrun(vmcb, host_if_, environment);
  if (after(entry, "VMRUN", false, false)) run_guest();
}

void GuestDriver::run_guest() {
  std::uint64_t events = 0;
  while (true) {
    const std::size_t delivered_before = delivered.size();
    if (!take_events()) return;
    if (delivered.size() != delivered_before) {
      if (++events > most_events) {
        trace.emplace_back("stopped: the guest does nothing but take events");
        return;
      }
      continue;
    }
    if (!next_step()) return;
  }
}

/// False when the run is over.
bool GuestDriver::take_events() {
  const Step step = cpu.boundary(environment.events(), environment);
  return step.kind == StepKind::none || after(step, "event", false, false);
}

bool GuestDriver::next_step() {
  Place& place = places_.back();
  if (place.index >= place.program->size()) {
    trace.emplace_back(places_.size() > 1 ? "the handler has no more actions"
                                          : "the program has no more actions");
    return false;
  }
  const ProgramStep& step = (*place.program)[place.index];
  if (step.kind == ProgramStep::Kind::happens) {
    ++place.index;
    environment.advance(step.cycles);
    apply(step.change, environment, true);
    if (step.change.store) static_cast<void>(cpu.monitor_written(*step.change.store));
    trace.push_back(step.text);
    return true;
  }
  if (cpu.halted()) {
    trace.emplace_back("the guest stays halted");
    return false;
  }
  const bool in_handler = places_.size() > 1;
  GuestAction action = step.action;
  action.rip = place.rips[place.index++];
  if (!step.has_cpl) action.cpl = cpu.cpl();
  last_rip = action.rip;
  last_next_rip = action.next_rip();
  const std::string what = fmt::format("{} at {}", step.text, place_text(action.rip));
  const Step done = cpu.execute(action, environment);
  places_.back().faulted = done.kind == StepKind::delivered;
  environment.advance(action.cycles);
  return after(done, what, in_handler, action.kind == ActionKind::iret);
}

bool GuestDriver::after(const Step& step, const std::string& what, bool in_handler, bool iret) {
  std::string line = fmt::format("{}: {}", what, step_text(step.kind).phrase);
  switch (step.kind) {
    case StepKind::vmexit:
      line += fmt::format(" {}, rIP {}", exit_text(vmcb.control.exit_code), place_text(vmcb.save.rip));
      exited = true;
      clean_bits_.vmexit(core_, physical_, vmcb);
      break;
    case StepKind::delivered:
      line += fmt::format(" vector {:#x}", step.vector);
      deliver(step);
      break;
    case StepKind::retired:
    case StepKind::halted:
      if (step.result != 0) line += fmt::format(", result {:#x}", step.result);
      if (!in_handler) {
        ++retired;
        result = step.result;
      }
      if (iret && in_handler) {
        places_.pop_back();
        Place& place = places_.back();
        if (place.faulted && cpu.rip() == place.rips[place.index - 1]) {
          cpu.set_rip(place.rips[place.index]);  // the handler has stepped over the fault
        } else {
          find_place(cpu.rip());
        }
        place.faulted = false;
      }
      break;
    case StepKind::reset:
      reset = true;
      break;
    default:
      break;
  }
  trace.push_back(std::move(line));
  return step.kind != StepKind::vmexit && step.kind != StepKind::reset;
}

void GuestDriver::deliver(const Step& step) {
  delivered.push_back(step.vector);
  const auto found = handlers_.find(step.vector);
  places_.push_back(place_at(found != handlers_.end() ? found->second : iret_, cpu.rip()));
}

}  // namespace svmsim::svm::conformance
