#include "svm/intercept.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmcb_dump/suspicion.hpp"

namespace svmsim::svm {

namespace {

using F = Field;
using C = SuspicionContext;

bool bit(const C& c, std::uint32_t mask) noexcept {
  return (c.vmcb.control.int_ctl & mask) != 0;
}
bool caught(const C& c, Intercept intercept) noexcept {
  return intercepted(c.vmcb.control, intercept);
}
bool injects(const C& c) noexcept {
  return (c.vmcb.control.event_inj & event_inj::valid) != 0;
}
/// Exceptions that push an error code in protected mode (APM vol. 2, 8.2).
bool pushes_error_code(std::uint8_t vector) noexcept {
  return vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 ||
         vector == 30;
}

}  // namespace

std::vector<Suspicion> interrupt_suspicions() {
  return {
      {"avic_with_v_irq",
       "15.29",
       "V_IRQ is set while AVIC is enabled",
       "AVIC makes VMRUN ignore V_IRQ: neither the interrupt nor KVM's interrupt window will ever come",
       {F::int_ctl},
       [](const C& c) { return bit(c, int_ctl::avic_enable) && bit(c, int_ctl::v_irq); },
       {}},
      {"avic_with_vintr_intercept",
       "15.29",
       "the VINTR intercept is set while AVIC is enabled",
       "it never fires, since V_IRQ is ignored; an interrupt window cannot be had without inhibiting AVIC",
       {F::int_ctl, F::intercepts_3},
       [](const C& c) { return bit(c, int_ctl::avic_enable) && caught(c, Intercept::vintr); },
       {}},
      {"avic_with_cr8_intercept",
       "15.29",
       "CR8 accesses are intercepted while AVIC is enabled",
       "the intercept wins, so that every CR8 access exits although AVIC could do it",
       {F::int_ctl, F::cr_read, F::cr_write},
       [](const C& c) {
         return bit(c, int_ctl::avic_enable) &&
                (caught(c, Intercept::read_cr8) || caught(c, Intercept::write_cr8));
       },
       {}},
      {"avic_without_np",
       "15.29.4",
       "AVIC is enabled without nested paging",
       "the manual forbids it without saying what VMRUN does",
       {F::int_ctl, F::nested_ctl},
       [](const C& c) {
         return bit(c, int_ctl::avic_enable) && (c.vmcb.control.nested_ctl & nested_ctl::np_enable) == 0;
       },
       {}},
      {"avic_pointer_zero",
       "15.29.4",
       "AVIC is enabled with a table or page pointer of 0",
       "the processor will read and write physical page 0 as the guest's APIC",
       {F::int_ctl, F::avic_backing_page, F::avic_physical_id, F::avic_logical_id},
       [](const C& c) {
         const VmcbControl& control = c.vmcb.control;
         return bit(c, int_ctl::avic_enable) &&
                (control.avic_backing_page >> 12 == 0 || control.avic_physical_id >> 12 == 0 ||
                 (!bit(c, int_ctl::x2avic_enable) && control.avic_logical_id >> 12 == 0));
       },
       {}},
      {"avic_pointer_low_bits",
       "15.29.4",
       "an AVIC page pointer has bits 11:0 set",
       "these bits must be 0 in the backing page and the logical table pointer",
       {F::int_ctl, F::avic_backing_page, F::avic_logical_id},
       [](const C& c) {
         return bit(c, int_ctl::avic_enable) &&
                ((c.vmcb.control.avic_backing_page | c.vmcb.control.avic_logical_id) & 0xfff) != 0;
       },
       {}},
      {"avic_pages_overlap",
       "15.29.4",
       "two AVIC pointers name the same page",
       "the backing page and the two tables have different contents",
       {F::int_ctl, F::avic_backing_page, F::avic_physical_id, F::avic_logical_id},
       [](const C& c) {
         const std::uint64_t backing = c.vmcb.control.avic_backing_page >> 12;
         const std::uint64_t physical = c.vmcb.control.avic_physical_id >> 12;
         const std::uint64_t logical = c.vmcb.control.avic_logical_id >> 12;
         return bit(c, int_ctl::avic_enable) && physical != 0 &&
                (backing == physical || physical == logical || (backing == logical && logical != 0));
       },
       {}},
      {"avic_bar_unaligned",
       "15.29.4",
       "AVIC's APIC_BAR is not aligned to a page",
       "guest accesses to the APIC page then miss it",
       {F::int_ctl, F::avic_vapic_bar},
       [](const C& c) {
         return bit(c, int_ctl::avic_enable) && (c.vmcb.control.avic_vapic_bar & 0xfff) != 0;
       },
       {}},
      {"v_intr_masking_clear",
       "15.21.1",
       "V_INTR_MASKING is 0",
       "the guest's RFLAGS.IF and TPR then mask the host's interrupts; KVM always sets it",
       {F::int_ctl},
       [](const C& c) { return !bit(c, int_ctl::v_intr_masking); },
       {}},
      {"v_irq_below_tpr",
       "15.21.4",
       "V_IRQ is set, but V_INTR_PRIO is not above V_TPR",
       "the interrupt stays pending and gives no VINTR exit either until the guest lowers its TPR",
       {F::int_ctl},
       [](const C& c) {
         return bit(c, int_ctl::v_irq) && !bit(c, int_ctl::avic_enable) &&
                !int_ctl::above_tpr(c.vmcb.control.int_ctl);
       },
       {}},
      {"v_irq_vector_reserved",
       "15.21.4",
       "V_IRQ is set with a vector below 16 and without the VINTR intercept",
       "the guest takes it as an exception vector; KVM uses vector 0 only for its interrupt window, with "
       "VINTR intercepted",
       {F::int_ctl, F::int_vector, F::intercepts_3},
       [](const C& c) {
         return bit(c, int_ctl::v_irq) && !bit(c, int_ctl::avic_enable) &&
                (c.vmcb.control.int_vector & 0xff) < 16 && !caught(c, Intercept::vintr);
       },
       {}},
      {"v_gif_without_enable",
       "15.33.2",
       "V_GIF is set while V_GIF_ENABLE is 0",
       "the bit has no effect, virtual interrupts are not masked by it",
       {F::int_ctl},
       [](const C& c) { return bit(c, int_ctl::v_gif) && !bit(c, int_ctl::v_gif_enable); },
       {}},
      {"v_nmi_without_enable",
       "15.21.10",
       "V_NMI or V_NMI_MASK is set while V_NMI_ENABLE is 0",
       "the bits have no effect: the NMI is never delivered",
       {F::int_ctl},
       [](const C& c) {
         return bit(c, int_ctl::v_nmi | int_ctl::v_nmi_mask) && !bit(c, int_ctl::v_nmi_enable);
       },
       {}},
      {"v_gif_clear_with_pending",
       "15.33.2",
       "VGIF is 0 and masks a pending virtual interrupt or NMI",
       "nothing is delivered until the guest executes STGI",
       {F::int_ctl},
       [](const C& c) {
         return bit(c, int_ctl::v_gif_enable) && !bit(c, int_ctl::v_gif) &&
                (bit(c, int_ctl::v_irq) || (bit(c, int_ctl::v_nmi_enable) && bit(c, int_ctl::v_nmi)));
       },
       {}},
      {"int_ctl_reserved",
       "15.21",
       "reserved bits of the interrupt control word are set",
       "bits 7:4, 10, 15:13, 23:21 and 29:27 should be 0",
       {F::int_ctl},
       [](const C& c) { return (c.vmcb.control.int_ctl & 0x38e0'e4f0) != 0; },
       {}},
      {"int_vector_reserved",
       "15.21.4",
       "bits 31:8 of the V_INTR_VECTOR word are set",
       "they should be 0",
       {F::int_vector},
       [](const C& c) { return (c.vmcb.control.int_vector >> 8) != 0; },
       {}},
      {"int_state_reserved",
       "15.21.5",
       "reserved bits of the interrupt state word are set",
       "only bit 0, the interrupt shadow, and bit 1, the guest's interrupt mask, have a meaning",
       {F::int_state},
       [](const C& c) { return (c.vmcb.control.int_state & ~3U) != 0; },
       {}},
      {"event_inj_reserved",
       "15.20",
       "EVENTINJ has reserved bits 30:12 set",
       "they should be 0",
       {F::event_inj},
       [](const C& c) { return injects(c) && (c.vmcb.control.event_inj & 0x7fff'f000) != 0; },
       {}},
      {"event_inj_error_code",
       "15.20",
       "EVENTINJ's error-code bit does not fit the exception",
       "the handler finds its stack frame shifted by an error code too many or too few",
       {F::event_inj, F::cr0},
       [](const C& c) {
         const std::uint32_t event = c.vmcb.control.event_inj;
         const bool pushes = pushes_error_code(event_inj::vector(event)) && (c.vmcb.save.cr0 & cr0::pe) != 0;
         const bool says = (event & event_inj::error_valid) != 0;
         return injects(c) && event_inj::type(event) == event_inj::type_exception && pushes != says;
       },
       {}},
      {"event_inj_low_vector",
       "15.20",
       "EVENTINJ injects an external interrupt with a vector below 16",
       "no APIC sends such vectors; only a PIC in real mode does",
       {F::event_inj, F::cr0},
       [](const C& c) {
         const std::uint32_t event = c.vmcb.control.event_inj;
         return injects(c) && event_inj::type(event) == event_inj::type_intr &&
                event_inj::vector(event) < 16 && (c.vmcb.save.cr0 & cr0::pe) != 0;
       },
       {}},
      {"event_inj_interrupts_off",
       "15.20",
       "EVENTINJ injects an external interrupt while the guest cannot take one",
       "injection looks neither at RFLAGS.IF nor at the interrupt shadow",
       {F::event_inj, F::rflags, F::int_state},
       [](const C& c) {
         const bool blocked = (c.vmcb.save.rflags & rflags::interrupt) == 0 ||
                              (c.vmcb.control.int_state & int_state::interrupt_shadow) != 0;
         return injects(c) && event_inj::type(c.vmcb.control.event_inj) == event_inj::type_intr && blocked;
       },
       {}},
      {"event_inj_with_exit_int_info",
       "15.20",
       "EVENTINJ and EXITINTINFO are both valid",
       "an exit has interrupted the delivery of one event, and another one is injected: one of the two is "
       "lost unless"
       " software has combined them",
       {F::event_inj, F::exit_int_info},
       [](const C& c) { return injects(c) && (c.vmcb.control.exit_int_info & event_inj::valid) != 0; },
       {}},
      {"event_inj_after_exit",
       "15.20",
       "EVENTINJ is valid in a dump taken right after an exit",
       "VMRUN clears the bit when it injects; KVM prints the VMCB before it prepares the next entry",
       {F::event_inj, F::exit_code},
       [](const C& c) {
         return c.image.kind == ImageKind::kernel_dump && injects(c) && c.vmcb.control.exit_code <= 0x403;
       },
       {}},
  };
}

}  // namespace svmsim::svm
