#include "svm/address.hpp"
#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// SIDT, SGDT, SLDT, STR, LIDT, LGDT, LLDT, LTR behind their intercepts (APM vol. 2, 15.9, table 15-7).
// Descriptors are in guest memory, which is not modelled: of LDTR and TR only the selector changes.

namespace svmsim::svm {

Step GuestCpu::perform_descriptor_table(const GuestAction& action, GuestEnvironment& environment) {
  VmcbSave& save = vmcb_->save;
  const ActionKind kind = action.kind;
  const bool stores = kind == ActionKind::sidt || kind == ActionKind::sgdt || kind == ActionKind::sldt ||
                      kind == ActionKind::str;
  const bool of_table = kind == ActionKind::sidt || kind == ActionKind::sgdt || kind == ActionKind::lidt ||
                        kind == ActionKind::lgdt;
  if (of_table || action.operand[1] != 0) {
    const PageAccess access = stores ? PageAccess::write : PageAccess::read;
    const Step fault = touch(action.operand[1], access, environment);
    if (fault.kind != StepKind::none) return fault;
  }
  const auto selector = static_cast<std::uint16_t>(action.operand[0]);
  constexpr std::uint16_t in_ldt = 1U << 2;
  constexpr std::uint16_t rpl = 3;
  switch (kind) {
    case ActionKind::sidt:
      return retire(action, save.idtr.base);
    case ActionKind::sgdt:
      return retire(action, save.gdtr.base);
    case ActionKind::sldt:
      return retire(action, save.ldtr.selector);
    case ActionKind::str:
      return retire(action, save.tr.selector);
    case ActionKind::lidt:
    case ActionKind::lgdt: {
      if (mode_64() && !canonical(action.operand[0])) return general_protection(environment);
      VmcbSegment& table = kind == ActionKind::lidt ? save.idtr : save.gdtr;
      table.base = register_operand(action);
      table.limit = static_cast<std::uint16_t>(action.operand[2]);
      forget_pages();
      return retire(action);
    }
    default: {
      // Both must come from the GDT, and TR cannot be null; the error code is the selector.
      const bool null = (selector & ~rpl) == 0;
      const bool to_tr = kind == ActionKind::ltr;
      if ((selector & in_ldt) != 0 || (to_tr && null)) {
        return raise(exception_vector::general_protection, true, selector & ~std::uint32_t{rpl}, 0,
                     environment);
      }
      (to_tr ? save.tr : save.ldtr).selector = selector;
      return retire(action);
    }
  }
}

}  // namespace svmsim::svm
