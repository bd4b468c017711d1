#pragma once

#include "svm/address.hpp"
#include "svm/vmcb.hpp"

namespace svmsim::svm {

/// What VMLOAD and VMSAVE move (APM vol. 2, 15.5.2); they keep bases canonical.
inline void move_vmload_state(const VmcbSave& from, VmcbSave& to) noexcept {
  const auto canonical = [](VmcbSegment segment) {
    segment.base = sign_extended(segment.base);
    return segment;
  };
  to.fs = canonical(from.fs);
  to.gs = canonical(from.gs);
  to.tr = canonical(from.tr);
  to.ldtr = canonical(from.ldtr);
  to.kernel_gs_base = sign_extended(from.kernel_gs_base);
  to.star = from.star;
  to.lstar = from.lstar;
  to.cstar = from.cstar;
  to.sfmask = from.sfmask;
  to.sysenter_cs = from.sysenter_cs;
  to.sysenter_esp = from.sysenter_esp;
  to.sysenter_eip = from.sysenter_eip;
}

}  // namespace svmsim::svm
