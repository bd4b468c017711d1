#include <array>

#include "svm/exit_code.hpp"
#include "svm/vmcb_bits.hpp"
#include "tests/oracle/campaign.hpp"
#include "tests/oracle/generator.hpp"

namespace svmsim::oracle {

namespace {

using svm::ActionKind;
using svm::Intercept;

/// A state in front of a HLT: the bits of `number` are IF, STI before HLT, V_IRQ, V_TPR above the priority,
/// V_IGN_TPR, VGIF enabled, VGIF, shadow at VMRUN, a physical interrupt.
Vector state(unsigned number, bool halt) {
  const auto bit = [number](unsigned n) { return (number >> n & 1) != 0; };
  Vector vector;
  vector.family = "idle_hlt";
  vector.program = Program(0, bit(0));
  set_if(vector, bit(0));
  svm::VmcbControl& control = vector.vmcb.control;
  if (bit(2)) set_virtual_interrupt(vector, 0x91, 9);
  if (bit(3)) control.int_ctl |= 12;
  if (bit(4)) control.int_ctl |= svm::int_ctl::v_ign_tpr;
  if (bit(5)) control.int_ctl |= svm::int_ctl::v_gif_enable;
  if (bit(6)) control.int_ctl |= svm::int_ctl::v_gif;
  if (bit(7)) control.int_state |= svm::int_state::interrupt_shadow;
  if (bit(8)) {
    vector.pending_intr = true;
    vector.intercept(Intercept::intr);
  }
  control.int_ctl |= svm::int_ctl::v_intr_masking;
  vector.intercept(Intercept::vintr);
  if (bit(1)) vector.program.add("sti", {0xfb}, ActionKind::sti);
  if (halt) {
    vector.program.add("hlt", {0xf4}, ActionKind::hlt);
  } else {
    vector.program.add("nop", {0x90}, ActionKind::nop);
  }
  vector.program.end();
  return vector;
}

constexpr unsigned states = 512;
constexpr std::uint32_t first_id = 0x70000000;

bool same_outcome(const ModelAnswer& a, const ModelAnswer& b) {
  return a.end == b.end && (a.end != ModelEnd::vmexit ||
                            (a.result.exit_code == b.result.exit_code && a.result.rip == b.result.rip));
}

}  // namespace

std::uint64_t compose_idle_hlt(Campaign& campaign) {
  // First run: HLT intercepted. Does the guest come to its HLT at all? Second run: a NOP in the place of HLT.
  // Is a virtual interrupt taken at the boundary behind it, which is where a HLT left to the guest would be
  // woken?
  std::vector<Vector> vectors;
  for (unsigned number = 0; number < states; ++number) {
    Vector halt = state(number, true);
    halt.intercept(Intercept::hlt);
    halt.id = first_id + 2 * number;
    Vector nop = state(number, false);
    nop.id = first_id + 2 * number + 1;
    vectors.push_back(std::move(halt));
    vectors.push_back(std::move(nop));
  }
  std::vector<const Vector*> pointers;
  for (const Vector& vector : vectors)
    pointers.push_back(&vector);
  const auto answers = campaign.ask(pointers);

  Processor processor = campaign.processor();
  processor.features.set(svm::Feature::idle_hlt);
  std::uint64_t open = 0;
  for (unsigned number = 0; number < states; ++number) {
    Vector idle = state(number, true);
    idle.id = first_id + 2 * number;
    idle.intercept(Intercept::idle_hlt);
    std::array<ModelAnswer, 3> readings;
    for (unsigned i = 0; i < 3; ++i) {
      svm::Knobs knobs = knobs_of(campaign.emulator());
      knobs.idle_hlt_pending = static_cast<svm::IdleHltPending>(i);
      readings[i] = run_model(idle, processor, knobs);
    }
    if (!same_outcome(readings[0], readings[1]) || !same_outcome(readings[1], readings[2]) ||
        readings[0].end != ModelEnd::vmexit) {
      ++open;
      continue;
    }
    const auto halted = answers.find(first_id + 2 * number);
    const auto awake = answers.find(first_id + 2 * number + 1);
    if (halted == answers.end() || awake == answers.end()) {
      campaign.judge(idle, readings[0].result, nullptr);
      continue;
    }
    Result composed = halted->second;
    if (composed.exit_code == svm::exit_code::hlt) {
      if (awake->second.exit_code == svm::exit_code::vintr) {
        composed = awake->second;
      } else {
        composed.exit_code = svm::exit_code::idle_hlt;
      }
    }
    campaign.judge(idle, readings[0].result, &composed);
  }
  return open;
}

}  // namespace svmsim::oracle
