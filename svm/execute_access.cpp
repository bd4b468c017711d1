#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

namespace svmsim::svm {

namespace {

constexpr std::uint32_t msr_tsc = 0x10;
constexpr std::uint32_t msr_x2apic_tpr = 0x808;

/// EXITINFO1 of IN and OUT (APM vol. 2, figure 15-2). The segment field belongs to INS and OUTS.
std::uint64_t ioio_exit_info(const VmcbSave& save, std::uint16_t port, unsigned size, bool write) noexcept {
  std::uint64_t info = std::uint64_t{port} << ioio_info::port_shift;
  info |= std::uint64_t{size & 7U} << ioio_info::size_shift;
  if (!write) info |= ioio_info::in;
  if ((save.efer & efer::lma) != 0 && (save.cs.attrib & segment_attrib::long_mode) != 0) {
    info |= ioio_info::address_64;
  } else if ((save.cs.attrib & segment_attrib::default_size) != 0) {
    info |= ioio_info::address_32;
  } else {
    info |= ioio_info::address_16;
  }
  return info;
}

}  // namespace

// 15.11: the #GP of CPL > 0 comes before the MSRPM, the #GP of the single MSR after it.
Step GuestCpu::execute_msr(const GuestAction& action, bool write, GuestEnvironment& environment) {
  if (cpl_ != 0) return general_protection(environment);
  const VmcbControl& control = vmcb_->control;
  if (intercepts(Intercept::msr) &&
      environment.msr_permission_map(control.msrpm_base_pa & ~std::uint64_t{0xfff})
          .intercepts(action.number, write)) {
    return vmexit(exit_code::msr, write ? 1 : 0, 0, action.next_rip());
  }
  if (write) {
    if (environment.write_msr(action.number, action.operand[0]).general_protection) {
      return general_protection(environment);
    }
    return retire(action);
  }
  if (action.number == msr_tsc) return retire(action, environment.host_tsc() + control.tsc_offset);
  const MsrAccess access = environment.read_msr(action.number);
  if (access.general_protection) return general_protection(environment);
  return retire(action, access.value);
}

// 15.10.2: the #GP of IOPL comes before the IOPM. The TSS bitmap that may allow more is not modelled: it
// denies.
Step GuestCpu::execute_io(const GuestAction& action, bool write, GuestEnvironment& environment) {
  const std::uint64_t iopl = (rflags_ & rflags::iopl_mask) >> rflags::iopl_shift;
  if (cpl_ > iopl) return general_protection(environment);
  const VmcbControl& control = vmcb_->control;
  const auto port = static_cast<std::uint16_t>(action.number);
  if (intercepts(Intercept::ioio) &&
      environment.io_permission_map(control.iopm_base_pa & ~std::uint64_t{0xfff})
          .intercepts(port, action.size)) {
    return vmexit(exit_code::ioio, ioio_exit_info(vmcb_->save, port, action.size, write), action.next_rip(),
                  action.next_rip());
  }
  if (!write) return retire(action, environment.read_port(port, action.size));
  environment.write_port(port, action.size, action.operand[0]);
  return retire(action);
}

// CR8 is V_TPR. Without V_INTR_MASKING it is the physical APIC's TPR as well (15.21.2), reached as the x2APIC
// register.
Step GuestCpu::execute_cr8(const GuestAction& action, bool write, GuestEnvironment& environment) {
  if (cpl_ != 0 || (write && action.operand[0] > 0xf)) return general_protection(environment);
  const Intercept intercept = write ? Intercept::write_cr8 : Intercept::read_cr8;
  if (intercepts(intercept)) {
    const std::uint64_t info = features_.has(Feature::decode_assists) ? cr_info::mov : 0;
    return vmexit(exit_code_of(intercept), info, 0, action.next_rip());
  }
  const bool masking = (int_ctl_ & int_ctl::v_intr_masking) != 0;
  if (!write) return retire(action, masking ? v_tpr() : environment.read_msr(msr_x2apic_tpr).value >> 4);
  const auto priority = static_cast<std::uint8_t>(action.operand[0]);
  int_ctl_ = int_ctl::with_v_tpr(int_ctl_, priority);
  if (!masking) static_cast<void>(environment.write_msr(msr_x2apic_tpr, std::uint64_t{priority} << 4));
  return retire(action);
}

}  // namespace svmsim::svm
