#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmcb_dump/suspicion.hpp"

namespace svmsim::svm {

namespace {

using F = Field;
using C = SuspicionContext;

bool caught(const C& c, Intercept intercept) noexcept {
  return intercepted(c.vmcb.control, intercept);
}
bool sev_es(const C& c) noexcept {
  return (c.vmcb.control.nested_ctl & nested_ctl::sev_es_enable) != 0;
}

}  // namespace

std::vector<Suspicion> intercept_suspicions() {
  return {
      {"hlt_and_idle_hlt",
       "15.9",
       "the HLT and the idle-HLT intercept are both set",
       "HLT wins: every HLT exits with 78h, and the idle-HLT intercept has no effect",
       {F::intercepts_3, F::intercepts_5},
       [](const C& c) { return caught(c, Intercept::hlt) && caught(c, Intercept::idle_hlt); },
       {}},
      {"intr_not_intercepted",
       "15.13.1",
       "physical interrupts are not intercepted",
       "the guest takes the host's interrupts itself",
       {F::intercepts_3},
       [](const C& c) { return !caught(c, Intercept::intr); },
       {}},
      {"nmi_not_intercepted",
       "15.13.2",
       "physical NMIs are not intercepted",
       "the guest takes the host's NMIs itself, watchdog and profiling included",
       {F::intercepts_3},
       [](const C& c) { return !caught(c, Intercept::nmi); },
       {}},
      {"shutdown_not_intercepted",
       "15.14.3",
       "shutdown is not intercepted",
       "a triple fault of the guest shuts the host's processor down",
       {F::intercepts_3},
       [](const C& c) { return !caught(c, Intercept::shutdown); },
       {}},
      {"mc_not_intercepted",
       "15.12.18",
       "machine checks (#MC) are not intercepted",
       "the guest handles the hardware errors of the host",
       {F::exceptions},
       [](const C& c) { return !caught(c, Intercept::exception_18); },
       {}},
      {"ac_not_intercepted",
       "15.12.17",
       "#AC is not intercepted",
       "a guest can keep a core busy with #AC upon #AC and no exit (CVE-2015-5307)",
       {F::exceptions},
       [](const C& c) { return !caught(c, Intercept::exception_17); },
       {}},
      {"db_not_intercepted",
       "15.12.2",
       "#DB is not intercepted",
       "a guest can keep a core busy with #DB upon #DB and no exit (CVE-2015-8104); KVM leaves it to SEV-ES "
       "guests"
       " with DebugSwap alone",
       {F::exceptions, F::nested_ctl},
       [](const C& c) { return !caught(c, Intercept::exception_1) && !sev_es(c); },
       {}},
      {"ioio_not_intercepted",
       "15.10",
       "the I/O permission map is not in use",
       "the guest reaches every I/O port of the host",
       {F::intercepts_3},
       [](const C& c) { return !caught(c, Intercept::ioio); },
       {}},
      {"msr_not_intercepted",
       "15.11",
       "the MSR permission map is not in use",
       "the guest reads and writes every MSR of the host",
       {F::intercepts_3},
       [](const C& c) { return !caught(c, Intercept::msr); },
       {}},
      {"vmload_unprotected",
       "15.33.1",
       "VMLOAD or VMSAVE is neither intercepted nor virtualized",
       "the guest reads or writes physical memory of the host with it (CVE-2021-3656)",
       {F::intercepts_4, F::virt_ext},
       [](const C& c) {
         return (!caught(c, Intercept::vmload) || !caught(c, Intercept::vmsave)) &&
                (c.vmcb.control.virt_ext & virt_ext::vls) == 0;
       },
       {}},
      {"gif_unprotected",
       "15.33.2",
       "STGI or CLGI is neither intercepted nor virtualized",
       "the guest sets and clears the host's global interrupt flag",
       {F::intercepts_4, F::int_ctl},
       [](const C& c) {
         return (!caught(c, Intercept::stgi) || !caught(c, Intercept::clgi)) &&
                (c.vmcb.control.int_ctl & int_ctl::v_gif_enable) == 0;
       },
       {}},
      {"skinit_not_intercepted",
       "15.27",
       "SKINIT is not intercepted",
       "the guest can restart the host's processor into its own loader",
       {F::intercepts_4},
       [](const C& c) { return !caught(c, Intercept::skinit); },
       {}},
      {"invlpga_not_intercepted",
       "15.16",
       "INVLPGA is not intercepted",
       "the guest flushes translations of other ASIDs",
       {F::intercepts_3},
       [](const C& c) { return !caught(c, Intercept::invlpga); },
       {}},
      {"invd_not_intercepted",
       "15.9",
       "INVD is not intercepted",
       "the guest can throw away modified cache lines of the host",
       {F::intercepts_3},
       [](const C& c) { return !caught(c, Intercept::invd); },
       {}},
      {"xsetbv_not_intercepted",
       "15.9",
       "XSETBV is not intercepted",
       "the guest sets XCR0, which VMRUN does not switch for guests without SEV-ES",
       {F::intercepts_4, F::nested_ctl},
       [](const C& c) { return !caught(c, Intercept::xsetbv) && !sev_es(c); },
       {}},
      {"exception_2_or_9_intercepted",
       "15.12",
       "the intercept of exception 2 or 9 is set",
       "it is not implemented and has no defined effect; NMIs have an intercept of their own",
       {F::exceptions},
       [](const C& c) { return caught(c, Intercept::exception_2) || caught(c, Intercept::exception_9); },
       {}},
      {"cr3_intercepted_with_np",
       "15.25",
       "CR3 accesses are intercepted although nested paging is enabled",
       "costs an exit for each address space switch of the guest; needed without nested paging only",
       {F::cr_read, F::cr_write, F::nested_ctl},
       [](const C& c) {
         return (c.vmcb.control.nested_ctl & nested_ctl::np_enable) != 0 &&
                (caught(c, Intercept::read_cr3) || caught(c, Intercept::write_cr3));
       },
       {}},
      {"write_trap_without_sev_es",
       "15.35",
       "a CR or EFER write trap is set for a guest without SEV-ES",
       "the traps are there for guests whose state the host cannot read",
       {F::intercepts_4, F::nested_ctl},
       [](const C& c) { return (c.vmcb.control.intercepts[4] & 0xffff'8000) != 0 && !sev_es(c); },
       {}},
      {"intercepts_5_reserved",
       "15.9",
       "reserved bits of intercept word 5 are set",
       "bits 31:7 should be 0",
       {F::intercepts_5},
       [](const C& c) { return (c.vmcb.control.intercepts[5] & ~0x7fU) != 0; },
       {}},
      {"pause_count_zero",
       "15.14.4",
       "PAUSE is intercepted with a filter count of 0",
       "every PAUSE of the guest exits",
       {F::intercepts_3, F::pause_filter_count},
       [](const C& c) { return caught(c, Intercept::pause) && c.vmcb.control.pause_filter_count == 0; },
       {}},
      {"pause_threshold_zero",
       "15.14.4",
       "PAUSE is intercepted with a filter count and a threshold of 0",
       "PAUSEs are counted over any time, so that short waits add up to an exit as long spinning does",
       {F::intercepts_3, F::pause_filter_count, F::pause_filter_thresh},
       [](const C& c) {
         return caught(c, Intercept::pause) && c.vmcb.control.pause_filter_count != 0 &&
                c.vmcb.control.pause_filter_thresh == 0;
       },
       {}},
      {"pause_count_unused",
       "15.14.4",
       "a PAUSE filter count is set, but PAUSE is not intercepted",
       "the filter has no effect",
       {F::intercepts_3, F::pause_filter_count},
       [](const C& c) { return !caught(c, Intercept::pause) && c.vmcb.control.pause_filter_count != 0; },
       {}},
  };
}

}  // namespace svmsim::svm
