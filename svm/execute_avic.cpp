#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// A guest with AVIC: accesses to its APIC, and interrupts of the backing page (APM vol. 2, 15.29; fact sheet
// 8.3 to 8.5).

namespace svmsim::svm {

namespace {

constexpr std::uint32_t page_offset_mask = 0xfff;

}  // namespace

Step GuestCpu::execute_avic_msr(const GuestAction& action, bool write, GuestEnvironment& environment) {
  const AvicAccess access = write ? environment.avic_write_msr(action.number, action.operand[0])
                                  : environment.avic_read_msr(action.number);
  return complete_avic_access(access, action, environment);
}

Step GuestCpu::execute_avic_page(const GuestAction& action, bool write, GuestEnvironment& environment) {
  const std::uint32_t offset = static_cast<std::uint32_t>(action.operand[1]) & page_offset_mask;
  const AvicAccess access =
      write ? environment.avic_write_page(offset, static_cast<std::uint32_t>(action.operand[0]))
            : environment.avic_read_page(offset);
  return complete_avic_access(access, action, environment);
}

// A trap exits behind the instruction, a fault before it (15.29.9). Every access may have changed what is
// recognized: a TPR write, an EOI, an IPI to the guest itself.
Step GuestCpu::complete_avic_access(const AvicAccess& access, const GuestAction& action,
                                    GuestEnvironment& environment) {
  if (access.v_tpr >= 0) int_ctl_ = int_ctl::with_v_tpr(int_ctl_, static_cast<std::uint8_t>(access.v_tpr));
  note_avic_pending();
  if (access.outcome == AvicOutcome::general_protection) return general_protection(environment);
  const Step retired = access.rip_after() ? retire(action, access.value) : Step{};
  if (!access.exits()) return retired;
  return vmexit(access.exit_code(), access.exit_info_1, access.exit_info_2,
                access.nrip_is_next ? action.next_rip() : 0);
}

// V_IRQ and the VINTR intercept are out of use; the backing page has decided by PPR (8.5).
Step GuestCpu::avic_interrupt(GuestEnvironment& environment) {
  const int vector = environment.avic_acknowledge();
  note_avic_pending();
  if (vector < 0) return {};
  return deliver(event_inj::event(event_inj::type_intr, static_cast<std::uint8_t>(vector)), 0, rip_,
                 environment);
}

}  // namespace svmsim::svm
