#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// IN, OUT, INS, OUTS (APM vol. 2, 15.10).

namespace svmsim::svm {

namespace {

/// EXITINFO1 (figure 15-2). Segment, string and REP belong to INS and OUTS.
std::uint64_t ioio_exit_info(const VmcbSave& save, const GuestAction& action, bool write) noexcept {
  std::uint64_t info = std::uint64_t{action.number & 0xffffU} << ioio_info::port_shift;
  info |= std::uint64_t{action.size & 7U} << ioio_info::size_shift;
  if (!write) info |= ioio_info::in;
  if (action.address_size != 0) {
    info |= action.address_size >= 8   ? ioio_info::address_64
            : action.address_size >= 4 ? ioio_info::address_32
                                       : ioio_info::address_16;
  } else if ((save.efer & efer::lma) != 0 && (save.cs.attrib & segment_attrib::long_mode) != 0) {
    info |= ioio_info::address_64;
  } else if ((save.cs.attrib & segment_attrib::default_size) != 0) {
    info |= ioio_info::address_32;
  } else {
    info |= ioio_info::address_16;
  }
  return info;
}

}  // namespace

// 15.10.2: the #GP of IOPL comes before the IOPM, all other exceptions behind it. The TSS bitmap that may
// allow more than IOPL is not modelled: it denies. In virtual-8086 mode it alone decides, so it denies there
// whatever IOPL is.
Step GuestCpu::execute_io(const GuestAction& action, bool write, GuestEnvironment& environment) {
  if (cpl_ > iopl() || (rflags_ & rflags::virtual_8086) != 0) return general_protection(environment);
  const VmcbControl& control = vmcb_->control;
  const auto port = static_cast<std::uint16_t>(action.number);
  if (intercepts(Intercept::ioio) &&
      environment.io_permission_map(control.iopm_base_pa & ~std::uint64_t{0xfff})
          .intercepts(port, action.size)) {
    return instruction_exit(exit_code::ioio, action, ioio_exit_info(vmcb_->save, action, write),
                            action.next_rip());
  }
  if (!write) return retire(action, environment.read_port(port, action.size));
  environment.write_port(port, action.size, action.operand[0]);
  return retire(action);
}

Step GuestCpu::execute_string_io(const GuestAction& action, GuestEnvironment& environment) {
  const bool write = action.kind == ActionKind::outs;
  if (cpl_ > iopl() || (rflags_ & rflags::virtual_8086) != 0) return general_protection(environment);
  const auto port = static_cast<std::uint16_t>(action.number);
  if (intercepts(Intercept::ioio) &&
      environment.io_permission_map(vmcb_->control.iopm_base_pa & ~std::uint64_t{0xfff})
          .intercepts(port, action.size)) {
    // INS always writes through ES.
    const std::uint64_t segment = write ? action.segment & 7U : 0;
    std::uint64_t info = ioio_exit_info(vmcb_->save, action, write) | ioio_info::string;
    info |= segment << ioio_info::segment_shift;
    if ((action.flags & action_flags::rep) != 0) info |= ioio_info::rep;
    return instruction_exit(exit_code::ioio, action, info, action.next_rip());
  }
  // Memory first: an INS that faults must not have read the port.
  const PageAccess access = write ? PageAccess::read : PageAccess::write;
  if (const Step fault = touch(action.operand[1], access, environment); fault.kind != StepKind::none) {
    return fault;
  }
  if (!write) return retire(action, environment.read_port(port, action.size));
  environment.write_port(port, action.size, action.operand[0]);
  return retire(action);
}

}  // namespace svmsim::svm
