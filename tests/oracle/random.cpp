#include <random>

#include "svm/vmcb_bits.hpp"
#include "tests/oracle/action_cases.hpp"
#include "tests/oracle/generator.hpp"

namespace svmsim::oracle {

namespace {

using svm::ActionKind;
using svm::Intercept;

/// Draws from a generator whose sequence the C++ standard fixes; its distributions are not used, since they
/// may differ between libraries.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  std::uint8_t nibble() { return static_cast<std::uint8_t>(below(16)); }

 private:
  std::mt19937_64 engine_;
};

void random_program(Dice& dice, Vector& vector) {
  const auto& actions = action_cases();
  const std::uint64_t count = 1 + dice.below(4);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (dice.one_in(4)) {
      static constexpr std::uint8_t sti_cli[] = {0xfb, 0xfa};
      const bool cli = dice.one_in(3);
      vector.program.add(cli ? "cli" : "sti", {sti_cli[cli ? 1 : 0]},
                         cli ? ActionKind::cli : ActionKind::sti);
    }
    const ActionCase& action = actions[dice.below(actions.size())];
    if (action.name == "ltr" && vector.program.has("ltr")) continue;  // the task is busy now
    if (action.prepare != nullptr) action.prepare(vector);
    // A HLT that only some events end hangs an emulator that takes them earlier; the systematic part asks for
    // those.
    if (action.must_intercept || action.name == "hlt") {
      for (const Intercept which : action.own)
        vector.intercept(which);
    } else {
      for (const Intercept which : action.own)
        vector.intercept(which, which == Intercept::vmrun || dice.one_in(3));
    }
    action.emit(vector.program);
  }
  if (dice.one_in(6)) {
    const auto& exceptions = exception_cases();
    const ExceptionCase& raised = exceptions[dice.below(exceptions.size())];
    // Whether #NM and the #PF of a store come depends on CR0.TS and CR0.WP, which the program may have
    // changed.
    const bool fragile = raised.vector == 7 || raised.vector == 14;
    const Program& program = vector.program;
    if (fragile && (program.has("mov_to_cr") || program.has("lmsw") || program.has("clts"))) return;
    if (raised.prepare != nullptr) raised.prepare(vector);
    vector.intercept(svm::exception_intercept(raised.vector), dice.one_in(2));
    raised.emit(vector.program);
  }
}

void random_interrupt_control(Dice& dice, Vector& vector) {
  namespace ic = svm::int_ctl;
  svm::VmcbControl& control = vector.vmcb.control;
  control.int_ctl |= dice.one_in(2) ? 0U : dice.nibble();
  if (dice.one_in(2)) {
    set_virtual_interrupt(vector, static_cast<std::uint8_t>(0x20 + dice.below(0xd0)), dice.nibble());
    if (dice.one_in(4)) control.int_ctl |= ic::v_ign_tpr;
    vector.intercept(Intercept::vintr, dice.one_in(2));
  }
  if (dice.one_in(2)) control.int_ctl |= ic::v_intr_masking;
  if (dice.one_in(4)) control.int_ctl |= ic::v_gif_enable;
  if (dice.one_in(2)) control.int_ctl |= ic::v_gif;
  if (dice.one_in(6)) control.int_state |= svm::int_state::interrupt_shadow;
}

void random_physical_events(Dice& dice, Vector& vector) {
  vector.host_if = !dice.one_in(3);
  if (dice.one_in(4)) {
    vector.pending_intr = true;
    vector.ipi_vector = static_cast<std::uint8_t>(0x30 + dice.below(0xc0));
    if (dice.one_in(3)) vector.host_tpr = static_cast<std::uint8_t>(dice.nibble() << 4);
    vector.intercept(Intercept::intr, !dice.one_in(3));
  }
  if (dice.one_in(8)) {
    vector.pending_nmi = true;
    vector.intercept(Intercept::nmi, dice.one_in(2));
  }
}

void random_injection(Dice& dice, Vector& vector) {
  svm::VmcbControl& control = vector.vmcb.control;
  switch (dice.below(4)) {
    case 0:
      control.event_inj = svm::event_inj::event(svm::event_inj::type_intr,
                                                static_cast<std::uint8_t>(0x20 + dice.below(0xe0)));
      break;
    case 1:
      control.event_inj = svm::event_inj::event(svm::event_inj::type_nmi, 2);
      break;
    case 2:
      control.event_inj = svm::event_inj::event(svm::event_inj::type_exception, dice.one_in(2) ? 6 : 0);
      break;
    default:
      control.event_inj =
          svm::event_inj::event(svm::event_inj::type_exception, 13) | svm::event_inj::error_valid;
      control.event_inj_err = static_cast<std::uint32_t>(dice.below(0x100)) << 3;
      break;
  }
}

}  // namespace

Vector random_vector(std::uint64_t seed, std::uint64_t index) {
  Dice dice(seed * 0x9e3779b97f4a7c15 + index);
  Vector vector;
  vector.family = "random";
  const bool user = dice.one_in(5);
  const bool interrupts = dice.one_in(2);
  const bool iopl_3 = user && dice.one_in(2);
  vector.program = Program(user ? 3 : 0, interrupts, iopl_3);
  if (user) vector.set_cpl3();
  set_if(vector, interrupts);
  if (iopl_3) vector.vmcb.save.rflags |= svm::rflags::iopl_mask;
  set_nested_paging(vector, dice.one_in(2));
  vector.msr_fill = dice.one_in(2);
  vector.io_fill = dice.one_in(2);
  // Bits of intercepts that have nothing to do with the program.
  for (unsigned n = 0; n < 6; ++n) {
    const auto word = dice.one_in(2) ? 3U : static_cast<unsigned>(dice.below(3));
    const std::uint32_t bit = 1U << dice.below(32);
    if (word != 3 || bit > 0x10) vector.vmcb.control.intercepts[word] |= bit;
  }
  if (dice.one_in(3)) vector.vmcb.control.pause_filter_count = static_cast<std::uint16_t>(dice.below(4));
  random_interrupt_control(dice, vector);
  random_physical_events(dice, vector);
  if (dice.one_in(8)) random_injection(dice, vector);
  random_program(dice, vector);
  vector.program.end();
  return vector;
}

}  // namespace svmsim::oracle
