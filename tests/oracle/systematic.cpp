#include "tests/oracle/systematic.hpp"

#include "tests/oracle/action_cases.hpp"

namespace svmsim::oracle {

namespace systematic {

using svm::ActionKind;
using svm::Intercept;

namespace {

/// Every instruction intercept of words 0, 1, 3 and 4, without those of events, of exceptions and of
/// shutdown.
void intercept_all_instructions(Vector& vector) {
  svm::VmcbControl& control = vector.vmcb.control;
  constexpr std::uint32_t events = 0x1f;
  control.intercepts[0] = control.intercepts[1] = 0xffffffff;
  control.intercepts[3] |= ~(events | 1U << 28 | 1U << 27);
  control.intercepts[3] |= 1U << 28 | 1U << 27;
  control.intercepts[4] |= 0x7fff;
}

/// How the intercepts of one action are set: none of its own, each one alone, all of its own, every
/// instruction intercept there is, every one but its own.
unsigned intercept_modes(const ActionCase& action) {
  return static_cast<unsigned>(action.own.size()) + 4;
}
bool apply_intercepts(Vector& vector, const ActionCase& action, unsigned mode) {
  const auto singles = static_cast<unsigned>(action.own.size());
  const auto all_own = [&](bool on) {
    for (const Intercept which : action.own)
      vector.intercept(which, on || which == Intercept::vmrun);
  };
  vector.msr_fill = vector.io_fill = true;
  if (mode == 0) {
    all_own(false);
  } else if (mode <= singles) {
    all_own(false);
    vector.intercept(action.own[mode - 1]);
  } else if (mode == singles + 1) {
    if (singles < 2) return false;  // as the single one
    all_own(true);
  } else {
    intercept_all_instructions(vector);
    if (mode == singles + 3) {
      if (singles == 0) return false;
      all_own(false);
    }
  }
  if (!action.must_intercept) return true;
  for (const Intercept which : action.own) {
    if (vector.intercepts(which)) return true;
  }
  // MWAIT, SKINIT and VMRUN without their intercept: only where the #GP of CPL 3 saves the machine.
  return vector.vmcb.save.cpl == 3;
}

}  // namespace

void intercepts_by_actions(const VectorSink& sink) {
  for (const ActionCase& action : action_cases()) {
    for (unsigned mode = 0; mode < intercept_modes(action); ++mode) {
      for (unsigned variant = 0; variant < 8; ++variant) {
        Vector vector = begin("actions", (variant & 1) != 0 ? 3 : 0, (variant & 2) != 0);
        set_nested_paging(vector, (variant & 4) != 0);
        if (action.prepare != nullptr) action.prepare(vector);
        if (!apply_intercepts(vector, action, mode)) continue;
        action.emit(vector.program);
        finish(sink, std::move(vector));
      }
    }
  }
}

void privilege_by_actions(const VectorSink& sink) {
  // #GP intercepted: does the privilege check come before the intercept?
  for (const ActionCase& action : action_cases()) {
    for (const bool own : {false, true}) {
      for (const unsigned iopl : {0U, 3U}) {
        Vector vector = begin("privilege", 3);
        if (action.prepare != nullptr) action.prepare(vector);
        if (!apply_intercepts(vector, action, own ? static_cast<unsigned>(action.own.size()) : 0)) continue;
        vector.intercept(svm::exception_intercept(13)).intercept(svm::exception_intercept(6));
        vector.vmcb.save.rflags |= std::uint64_t{iopl} << svm::rflags::iopl_shift;
        action.emit(vector.program);
        finish(sink, std::move(vector));
      }
    }
  }
}

void events_by_actions(const VectorSink& sink) {
  for (const EventCase& event : event_cases()) {
    for (const ActionCase& action : action_cases()) {
      for (unsigned mode = 0; mode <= (action.own.empty() ? 0 : 1); ++mode) {
        Vector vector = begin("events");
        event.apply(vector);
        const bool interrupts = (vector.vmcb.save.rflags & svm::rflags::interrupt) != 0;
        vector.program = Program(0, interrupts);
        if (action.prepare != nullptr) action.prepare(vector);
        if (!apply_intercepts(vector, action, mode)) continue;
        action.emit(vector.program);
        finish(sink, std::move(vector));
      }
    }
  }
}

/// STI, the action in its shadow, with something pending.
void shadow_by_actions(const VectorSink& sink) {
  for (const ActionCase& action : action_cases()) {
    for (unsigned variant = 0; variant < 8; ++variant) {
      Vector vector = begin("sti");
      if (action.prepare != nullptr) action.prepare(vector);
      if (!apply_intercepts(vector, action, (variant & 1) != 0 && !action.own.empty() ? 1 : 0)) continue;
      const unsigned pending = variant >> 1;
      if (pending == 0 || pending == 1) {
        set_virtual_interrupt(vector, 0x74, 9);
        vector.vmcb.control.int_ctl |= svm::int_ctl::v_intr_masking;
        vector.intercept(Intercept::vintr, pending == 1);
      } else {
        vector.pending_intr = true;
        vector.intercept(Intercept::intr, pending == 3);
      }
      vector.program.add("sti", {0xfb}, ActionKind::sti);
      action.emit(vector.program);
      vector.program.add("nop", {0x90}, ActionKind::nop);
      finish(sink, std::move(vector));
    }
  }
}

}  // namespace systematic

void generate_systematic(const VectorSink& sink) {
  using namespace systematic;
  intercepts_by_actions(sink);
  privilege_by_actions(sink);
  events_by_actions(sink);
  shadow_by_actions(sink);
  msr_map_edges(sink);
  io_map_edges(sink);
  consistency_checks(sink);
  event_injection(sink);
  virtual_interrupts(sink);
  global_interrupt_flag(sink);
  pause_filter(sink);
  exceptions(sink);
  self_interrupts(sink);
  halts(sink);
}

}  // namespace svmsim::oracle
