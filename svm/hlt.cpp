#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/idle_hlt.hpp"

namespace svmsim::svm {

bool virtual_interrupt_pending(const IdleHltInputs& inputs, const Knobs& knobs) noexcept {
  using namespace int_ctl;
  const std::uint32_t word = inputs.int_ctl;
  const bool avic = (word & avic_enable) != 0;
  const bool irr = avic && knobs.idle_hlt_counts_avic_irr && inputs.avic_highest_irr >= 0;
  const bool irq = !avic && (word & v_irq) != 0;
  const bool nmi = (word & v_nmi_enable) != 0 && (word & v_nmi) != 0;
  if (knobs.idle_hlt_pending == IdleHltPending::raw) return irq || irr || nmi;

  const bool irr_above_ppr = irr && (inputs.avic_highest_irr >> 4) > (inputs.avic_ppr >> 4);
  const bool interrupt = (irq && above_tpr(word)) || irr_above_ppr;
  const bool unmasked_nmi = nmi && (word & v_nmi_mask) == 0;
  if (knobs.idle_hlt_pending == IdleHltPending::priority) return interrupt || unmasked_nmi;

  const bool global = (word & v_gif_enable) == 0 || (word & v_gif) != 0;
  return global && ((interrupt && (inputs.rflags & rflags::interrupt) != 0) || unmasked_nmi);
}

// Order of table 15-7: #GP for CPL > 0, the HLT intercept, the idle-HLT intercept.
Step GuestCpu::execute_hlt(const GuestAction& action, GuestEnvironment& environment) {
  if (action.cpl != 0) return general_protection(environment);
  if (intercepts(Intercept::hlt)) return intercepted_exit(Intercept::hlt, action);
  if (intercepts(Intercept::idle_hlt) && features_.has(Feature::idle_hlt)) {
    IdleHltInputs inputs{int_ctl_, rflags_, -1, 0};
    if ((int_ctl_ & int_ctl::avic_enable) != 0) {
      inputs.avic_highest_irr = environment.avic_highest_irr();
      inputs.avic_ppr = environment.avic_ppr();
    }
    if (!virtual_interrupt_pending(inputs, knobs_)) return intercepted_exit(Intercept::idle_hlt, action);
  }
  rip_ = action.next_rip();
  shadow_ = false;
  halted_ = true;
  mwait_ = false;
  return {StepKind::halted, 0, 0};
}

}  // namespace svmsim::svm
