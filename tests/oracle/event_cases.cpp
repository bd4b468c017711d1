#include "svm/vmcb_bits.hpp"
#include "tests/oracle/generator.hpp"

namespace svmsim::oracle {

using svm::Intercept;

void set_virtual_interrupt(Vector& vector, std::uint8_t interrupt_vector, std::uint8_t priority) {
  svm::VmcbControl& control = vector.vmcb.control;
  control.int_ctl = svm::int_ctl::with_v_intr_prio(control.int_ctl | svm::int_ctl::v_irq, priority);
  control.int_vector = interrupt_vector;
}

void set_if(Vector& vector, bool on) {
  std::uint64_t& flags = vector.vmcb.save.rflags;
  flags = on ? flags | svm::rflags::interrupt : flags & ~svm::rflags::interrupt;
}

void set_nested_paging(Vector& vector, bool on) {
  std::uint64_t& word = vector.vmcb.control.nested_ctl;
  word = on ? word | svm::nested_ctl::np_enable : word & ~svm::nested_ctl::np_enable;
}

namespace {

constexpr std::uint8_t virtual_vector = 0xa3;

void add(Vector& vector, std::uint32_t int_ctl_bits) {
  vector.vmcb.control.int_ctl |= int_ctl_bits;
}
void virq(Vector& vector) {
  set_virtual_interrupt(vector, virtual_vector, 0xf);
  add(vector, svm::int_ctl::v_intr_masking);
}
void shadow(Vector& vector) {
  vector.vmcb.control.int_state |= svm::int_state::interrupt_shadow;
}
void inject(Vector& vector, std::uint32_t type, std::uint8_t event_vector, bool has_error = false,
            std::uint32_t error_code = 0) {
  vector.vmcb.control.event_inj =
      svm::event_inj::event(type, event_vector) | (has_error ? svm::event_inj::error_valid : 0);
  vector.vmcb.control.event_inj_err = error_code;
}

std::vector<EventCase> make() {
  namespace ic = svm::int_ctl;
  namespace ev = svm::event_inj;
  return {
      {"v_irq",
       [](Vector& v) {
         virq(v);
         set_if(v, true);
       }},
      {"v_irq_vintr",
       [](Vector& v) {
         virq(v);
         set_if(v, true);
         v.intercept(Intercept::vintr);
       }},
      {"v_irq_if0", [](Vector& v) { virq(v); }},
      {"v_irq_if0_vintr",
       [](Vector& v) {
         virq(v);
         v.intercept(Intercept::vintr);
       }},
      {"v_irq_shadow",
       [](Vector& v) {
         virq(v);
         set_if(v, true);
         shadow(v);
       }},
      {"v_irq_shadow_vintr",
       [](Vector& v) {
         virq(v);
         set_if(v, true);
         shadow(v);
         v.intercept(Intercept::vintr);
       }},
      {"v_irq_below_tpr",
       [](Vector& v) {
         set_virtual_interrupt(v, virtual_vector, 3);
         add(v, ic::v_intr_masking | 7);
         set_if(v, true);
         v.intercept(Intercept::vintr);
       }},
      {"v_irq_ign_tpr",
       [](Vector& v) {
         set_virtual_interrupt(v, virtual_vector, 3);
         add(v, ic::v_intr_masking | ic::v_ign_tpr | 7);
         set_if(v, true);
       }},
      {"v_irq_vgif0",
       [](Vector& v) {
         virq(v);
         add(v, ic::v_gif_enable);
         set_if(v, true);
       }},
      {"v_irq_vgif1",
       [](Vector& v) {
         virq(v);
         add(v, ic::v_gif_enable | ic::v_gif);
         set_if(v, true);
       }},
      {"shadow", [](Vector& v) { shadow(v); }},
      {"intr_intercept",
       [](Vector& v) {
         v.pending_intr = true;
         v.intercept(Intercept::intr);
         set_if(v, true);
       }},
      {"intr_intercept_if0",
       [](Vector& v) {
         v.pending_intr = true;
         v.intercept(Intercept::intr);
       }},
      {"intr_intercept_masking",
       [](Vector& v) {
         v.pending_intr = true;
         v.intercept(Intercept::intr);
         add(v, ic::v_intr_masking);
       }},
      {"intr_intercept_masking_if",
       [](Vector& v) {
         v.pending_intr = true;
         v.intercept(Intercept::intr);
         add(v, ic::v_intr_masking);
         set_if(v, true);
       }},
      {"intr_intercept_masking_host_if0",
       [](Vector& v) {
         v.pending_intr = true;
         v.host_if = false;
         v.intercept(Intercept::intr);
         add(v, ic::v_intr_masking);
         set_if(v, true);
       }},
      {"intr_intercept_shadow",
       [](Vector& v) {
         v.pending_intr = true;
         v.intercept(Intercept::intr);
         set_if(v, true);
         shadow(v);
       }},
      {"intr_tpr",
       [](Vector& v) {
         v.pending_intr = true;
         v.host_tpr = 0xf0;
         v.intercept(Intercept::intr);
         set_if(v, true);
       }},
      {"intr_to_guest",
       [](Vector& v) {
         v.pending_intr = true;
         set_if(v, true);
       }},
      {"intr_to_guest_if0", [](Vector& v) { v.pending_intr = true; }},
      {"intr_to_guest_shadow",
       [](Vector& v) {
         v.pending_intr = true;
         set_if(v, true);
         shadow(v);
       }},
      {"intr_and_v_irq",
       [](Vector& v) {
         virq(v);
         v.pending_intr = true;
         v.intercept(Intercept::intr);
         set_if(v, true);
       }},
      {"intr_to_guest_and_v_irq",
       [](Vector& v) {
         set_virtual_interrupt(v, virtual_vector, 15);
         v.pending_intr = true;
         set_if(v, true);
       }},
      {"nmi_intercept",
       [](Vector& v) {
         v.pending_nmi = true;
         v.intercept(Intercept::nmi);
       }},
      {"nmi_intercept_shadow",
       [](Vector& v) {
         v.pending_nmi = true;
         v.intercept(Intercept::nmi);
         shadow(v);
       }},
      {"nmi_to_guest", [](Vector& v) { v.pending_nmi = true; }},
      {"nmi_and_intr",
       [](Vector& v) {
         v.pending_nmi = v.pending_intr = true;
         set_if(v, true);
         v.intercept(Intercept::nmi).intercept(Intercept::intr);
       }},
      {"nmi_to_guest_and_intr",
       [](Vector& v) {
         v.pending_nmi = v.pending_intr = true;
         set_if(v, true);
         v.intercept(Intercept::intr);
       }},
      {"nmi_to_guest_and_v_irq",
       [](Vector& v) {
         v.pending_nmi = true;
         virq(v);
         set_if(v, true);
       }},
      {"inject_intr", [](Vector& v) { inject(v, ev::type_intr, 0x61); }},
      {"inject_intr_if",
       [](Vector& v) {
         inject(v, ev::type_intr, 0x61);
         set_if(v, true);
       }},
      {"inject_intr_shadow",
       [](Vector& v) {
         inject(v, ev::type_intr, 0x61);
         shadow(v);
         set_if(v, true);
       }},
      {"inject_intr_and_v_irq",
       [](Vector& v) {
         inject(v, ev::type_intr, 0x61);
         virq(v);
         set_if(v, true);
       }},
      {"inject_intr_and_intr",
       [](Vector& v) {
         inject(v, ev::type_intr, 0x61);
         v.pending_intr = true;
         v.intercept(Intercept::intr);
         set_if(v, true);
       }},
      {"inject_intr_masking_and_intr",
       [](Vector& v) {
         inject(v, ev::type_intr, 0x61);
         v.pending_intr = true;
         v.intercept(Intercept::intr);
         add(v, ic::v_intr_masking);
       }},
      {"inject_nmi", [](Vector& v) { inject(v, ev::type_nmi, 2); }},
      {"inject_nmi_and_nmi",
       [](Vector& v) {
         inject(v, ev::type_nmi, 2);
         v.pending_nmi = true;
         v.intercept(Intercept::nmi);
       }},
      {"inject_db", [](Vector& v) { inject(v, ev::type_exception, 1); }},
      {"inject_gp", [](Vector& v) { inject(v, ev::type_exception, 13, true, 0x18); }},
      {"inject_pf_intercepted",
       [](Vector& v) {
         inject(v, ev::type_exception, 14, true, 2);
         v.intercept(svm::exception_intercept(14));
       }},
      {"flush",
       [](Vector& v) {
         add(v, ic::v_intr_masking);
         set_if(v, true);
         v.vmcb.control.tlb_ctl = 1;
       }},
  };
}

}  // namespace

const std::vector<EventCase>& event_cases() {
  static const std::vector<EventCase> cases = make();
  return cases;
}

}  // namespace svmsim::oracle
