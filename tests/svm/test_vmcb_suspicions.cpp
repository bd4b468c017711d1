#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "svm/vmcb_dump/explain.hpp"
#include "svm/vmcb_dump/suspicion.hpp"
#include "tests/svm/vmcb_dump_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

std::set<std::string> suspicions_of(const VmcbImage& image, const ExplainOptions& options = {}) {
  std::set<std::string> ids;
  for (const Finding& finding : explain(image, options).suspicions)
    ids.insert(finding.id);
  return ids;
}

struct Odd {
  const char* id;
  std::function<void(Vmcb&)> make;
};

void int_ctl_bits(Vmcb& v, std::uint32_t bits) {
  v.control.int_ctl |= bits;
}
void intercept(Vmcb& v, Intercept which, bool on) {
  set_intercept(v.control, which, on);
}
void avic(Vmcb& v) {
  int_ctl_bits(v, int_ctl::avic_enable);
  intercept(v, Intercept::read_cr8, false);
  intercept(v, Intercept::write_cr8, false);
  v.control.avic_vapic_bar = 0xfee0'0000;
  v.control.avic_backing_page = 0x5000;
  v.control.avic_logical_id = 0x6000;
  v.control.avic_physical_id = 0x70ff;
}
void inject(Vmcb& v, std::uint32_t type, std::uint8_t vector, std::uint32_t more = 0) {
  v.control.event_inj = event_inj::event(type, vector) | more;
}
void sev_es(Vmcb& v) {
  v.control.nested_ctl |= nested_ctl::sev_enable | nested_ctl::sev_es_enable;
  v.control.vmsa_pa = 0x9000;
  v.control.virt_ext |= virt_ext::lbr_virtualization;
  intercept(v, Intercept::write_cr4, false);
  intercept(v, Intercept::write_cr0, false);
}

/// Each changes the VMCB of kvm_vmcb(), about which nothing is odd.
const std::vector<Odd> odd{
    {"hlt_and_idle_hlt", [](Vmcb& v) { intercept(v, Intercept::idle_hlt, true); }},
    {"intr_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::intr, false); }},
    {"nmi_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::nmi, false); }},
    {"shutdown_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::shutdown, false); }},
    {"mc_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::exception_18, false); }},
    {"ac_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::exception_17, false); }},
    {"db_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::exception_1, false); }},
    {"ioio_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::ioio, false); }},
    {"msr_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::msr, false); }},
    {"vmload_unprotected", [](Vmcb& v) { intercept(v, Intercept::vmload, false); }},
    {"vmload_unprotected", [](Vmcb& v) { intercept(v, Intercept::vmsave, false); }},
    {"gif_unprotected", [](Vmcb& v) { intercept(v, Intercept::stgi, false); }},
    {"gif_unprotected", [](Vmcb& v) { intercept(v, Intercept::clgi, false); }},
    {"skinit_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::skinit, false); }},
    {"invlpga_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::invlpga, false); }},
    {"invd_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::invd, false); }},
    {"xsetbv_not_intercepted", [](Vmcb& v) { intercept(v, Intercept::xsetbv, false); }},
    {"exception_2_or_9_intercepted", [](Vmcb& v) { intercept(v, Intercept::exception_9, true); }},
    {"exception_2_or_9_intercepted", [](Vmcb& v) { intercept(v, Intercept::exception_2, true); }},
    {"cr3_intercepted_with_np", [](Vmcb& v) { intercept(v, Intercept::write_cr3, true); }},
    {"cr3_intercepted_with_np", [](Vmcb& v) { intercept(v, Intercept::read_cr3, true); }},
    {"write_trap_without_sev_es", [](Vmcb& v) { intercept(v, Intercept::efer_write_trap, true); }},
    {"intercepts_5_reserved", [](Vmcb& v) { v.control.intercepts[5] = 0x80; }},
    {"pause_count_zero", [](Vmcb& v) { v.control.pause_filter_count = 0; }},
    {"pause_threshold_zero", [](Vmcb& v) { v.control.pause_filter_thresh = 0; }},
    {"pause_count_unused", [](Vmcb& v) { intercept(v, Intercept::pause, false); }},

    {"avic_with_v_irq",
     [](Vmcb& v) {
       avic(v);
       int_ctl_bits(v, int_ctl::v_irq);
     }},
    {"avic_with_vintr_intercept",
     [](Vmcb& v) {
       avic(v);
       intercept(v, Intercept::vintr, true);
     }},
    {"avic_with_cr8_intercept",
     [](Vmcb& v) {
       avic(v);
       intercept(v, Intercept::write_cr8, true);
     }},
    {"avic_without_np",
     [](Vmcb& v) {
       avic(v);
       v.control.nested_ctl = 0;
     }},
    {"avic_pointer_zero",
     [](Vmcb& v) {
       avic(v);
       v.control.avic_logical_id = 0;
     }},
    {"avic_pointer_low_bits",
     [](Vmcb& v) {
       avic(v);
       v.control.avic_backing_page |= 8;
     }},
    {"avic_pages_overlap",
     [](Vmcb& v) {
       avic(v);
       v.control.avic_logical_id = v.control.avic_backing_page;
     }},
    {"avic_bar_unaligned",
     [](Vmcb& v) {
       avic(v);
       v.control.avic_vapic_bar |= 0x800;
     }},
    {"v_intr_masking_clear", [](Vmcb& v) { v.control.int_ctl = 0; }},
    {"v_irq_below_tpr",
     [](Vmcb& v) {
       int_ctl_bits(v, int_ctl::v_irq | 5 | 5U << int_ctl::v_intr_prio_shift);
       v.control.int_vector = 0x51;
     }},
    {"v_irq_vector_reserved",
     [](Vmcb& v) {
       int_ctl_bits(v, int_ctl::v_irq | 15U << int_ctl::v_intr_prio_shift);
       v.control.int_vector = 0;
     }},
    {"v_gif_without_enable", [](Vmcb& v) { int_ctl_bits(v, int_ctl::v_gif); }},
    {"v_nmi_without_enable", [](Vmcb& v) { int_ctl_bits(v, int_ctl::v_nmi); }},
    {"v_gif_clear_with_pending",
     [](Vmcb& v) { int_ctl_bits(v, int_ctl::v_gif_enable | int_ctl::v_nmi_enable | int_ctl::v_nmi); }},
    {"int_ctl_reserved", [](Vmcb& v) { int_ctl_bits(v, 1U << 10); }},
    {"int_vector_reserved", [](Vmcb& v) { v.control.int_vector = 0x100; }},
    {"int_state_reserved", [](Vmcb& v) { v.control.int_state = 4; }},
    {"event_inj_reserved", [](Vmcb& v) { inject(v, event_inj::type_nmi, 2, 1U << 12); }},
    {"event_inj_error_code", [](Vmcb& v) { inject(v, event_inj::type_exception, 13); }},
    {"event_inj_error_code",
     [](Vmcb& v) { inject(v, event_inj::type_exception, 6, event_inj::error_valid); }},
    {"event_inj_low_vector",
     [](Vmcb& v) {
       v.save.rflags |= rflags::interrupt;
       inject(v, event_inj::type_intr, 8);
     }},
    {"event_inj_interrupts_off", [](Vmcb& v) { inject(v, event_inj::type_intr, 0x30); }},
    {"event_inj_with_exit_int_info",
     [](Vmcb& v) {
       inject(v, event_inj::type_nmi, 2);
       v.control.exit_int_info = event_inj::event(event_inj::type_exception, 6);
     }},

    {"iopm_unaligned", [](Vmcb& v) { v.control.iopm_base_pa |= 0x10; }},
    {"msrpm_unaligned", [](Vmcb& v) { v.control.msrpm_base_pa |= 0x10; }},
    {"permission_map_zero", [](Vmcb& v) { v.control.msrpm_base_pa = 0; }},
    {"permission_map_zero", [](Vmcb& v) { v.control.iopm_base_pa = 0; }},
    {"permission_maps_overlap", [](Vmcb& v) { v.control.msrpm_base_pa = v.control.iopm_base_pa + 0x2000; }},
    {"tlb_control_reserved", [](Vmcb& v) { v.control.tlb_ctl = 2; }},
    {"tlb_control_flush_all", [](Vmcb& v) { v.control.tlb_ctl = 1; }},
    {"nested_cr3_low_bits", [](Vmcb& v) { v.control.nested_cr3 |= 0x40; }},
    {"nested_cr3_zero", [](Vmcb& v) { v.control.nested_cr3 = 0; }},
    {"nested_ctl_reserved", [](Vmcb& v) { v.control.nested_ctl |= 1U << 8; }},
    {"gmet_without_np", [](Vmcb& v) { v.control.nested_ctl = nested_ctl::gmet_enable; }},
    {"virt_ext_reserved", [](Vmcb& v) { v.control.virt_ext = 1U << 4; }},
    {"vls_without_np",
     [](Vmcb& v) {
       v.control.virt_ext = virt_ext::vls;
       v.control.nested_ctl = 0;
     }},
    {"clean_bits_reserved", [](Vmcb& v) { v.control.clean = 1U << 13; }},
    {"clean_bits_after_failure",
     [](Vmcb& v) {
       v.control.clean = 1;
       v.control.exit_code = exit_code::invalid;
       v.control.asid = 0;
     }},
    {"reserved_not_zero", [](Vmcb& v) { v.control.reserved_018[3] = 1; }},

    {"exit_code_unknown", [](Vmcb& v) { v.control.exit_code = 0x300; }},
    {"exit_not_intercepted", [](Vmcb& v) { v.control.exit_code = exit_code::rdtsc; }},
    {"exit_shutdown", [](Vmcb& v) { v.control.exit_code = exit_code::shutdown; }},
    {"exit_int_info_reserved_type", [](Vmcb& v) { v.control.exit_int_info = event_inj::event(5, 0); }},
    {"npf_reserved_bits",
     [](Vmcb& v) {
       v.control.exit_code = exit_code::npf;
       v.control.exit_info_1 = npf_info::reserved;
     }},
    {"npf_without_np",
     [](Vmcb& v) {
       v.control.exit_code = exit_code::npf;
       v.control.nested_ctl = 0;
     }},
    {"avic_exit_without_avic", [](Vmcb& v) { v.control.exit_code = exit_code::avic_noaccel; }},
    {"avic_ipi_backing_page",
     [](Vmcb& v) {
       avic(v);
       v.control.exit_code = exit_code::avic_incomplete_ipi;
       v.control.exit_info_2 = std::uint64_t{3} << 32;
     }},
    {"next_rip_far", [](Vmcb& v) { v.control.next_rip = v.save.rip + 16; }},
    {"invalid_without_violation", [](Vmcb& v) { v.control.exit_code = exit_code::invalid; }},

    {"rflags_bit_1_clear", [](Vmcb& v) { v.save.rflags = 0; }},
    {"rflags_reserved", [](Vmcb& v) { v.save.rflags |= 8; }},
    {"rflags_vm_in_long_mode",
     [](Vmcb& v) {
       v.save.rflags |= rflags::virtual_8086;
       v.save.cpl = 3;
     }},
    {"lma_mismatch", [](Vmcb& v) { v.save.cr0 &= ~cr0::pg; }},
    {"paged_real_mode",
     [](Vmcb& v) {
       v.save.efer = efer::svme;
       v.save.cr0 = cr0::pg;
       v.save.cs.attrib = 0x9b;
     }},
    {"cs_l_without_lma",
     [](Vmcb& v) {
       v.save.efer = efer::svme;
       v.save.cr0 = cr0::pe;
     }},
    {"cs_not_present",
     [](Vmcb& v) { v.save.cs.attrib &= static_cast<std::uint16_t>(~segment_attrib::present); }},
    {"cpl_differs_from_ss", [](Vmcb& v) { v.save.cpl = 3; }},
    {"cpl_in_real_mode",
     [](Vmcb& v) {
       v.save.efer = efer::svme;
       v.save.cr0 = 0;
       v.save.cs.attrib = 0x9b;
       v.save.cpl = 1;
     }},
    {"rip_not_canonical", [](Vmcb& v) { v.save.rip = std::uint64_t{1} << 47; }},
    {"rip_beyond_limit",
     [](Vmcb& v) {
       v.save.cs.attrib = 0x9b;
       v.save.cs.limit = 0xffff;
     }},
    {"tr_not_busy", [](Vmcb& v) { v.save.tr.attrib = 0x89; }},
    {"idt_empty", [](Vmcb& v) { v.save.idtr.limit = 0; }},
    {"dr7_bit_10_clear", [](Vmcb& v) { v.save.dr7 = 0; }},
    {"trap_flag_set", [](Vmcb& v) { v.save.rflags |= rflags::trap; }},
    {"pcid_without_long_mode",
     [](Vmcb& v) {
       v.save.efer = efer::svme;
       v.save.cs.attrib = 0x9b;
       v.save.cr4 |= 1U << 17;
     }},
    {"wp_clear", [](Vmcb& v) { v.save.cr0 &= ~cr0::wp; }},
    {"caches_disabled", [](Vmcb& v) { v.save.cr0 |= cr0::cd; }},

    {"sev_es_without_sev",
     [](Vmcb& v) {
       sev_es(v);
       v.control.nested_ctl &= ~nested_ctl::sev_enable;
     }},
    {"vmsa_pointer",
     [](Vmcb& v) {
       sev_es(v);
       v.control.vmsa_pa = 0x9008;
     }},
    {"vmsa_pointer",
     [](Vmcb& v) {
       sev_es(v);
       v.control.vmsa_pa = 0;
     }},
    {"vmsa_pointer_unused", [](Vmcb& v) { v.control.vmsa_pa = 0x9000; }},
    {"sev_es_clean_bits",
     [](Vmcb& v) {
       sev_es(v);
       v.control.clean = clean::cr;
     }},
    {"vc_intercepted",
     [](Vmcb& v) {
       sev_es(v);
       intercept(v, Intercept::exception_29, true);
     }},
    {"sev_es_cr_intercepts",
     [](Vmcb& v) {
       sev_es(v);
       intercept(v, Intercept::write_cr4, true);
     }},
    {"sev_es_with_avic",
     [](Vmcb& v) {
       sev_es(v);
       avic(v);
     }},
    {"sev_es_without_lbrv",
     [](Vmcb& v) {
       sev_es(v);
       v.control.virt_ext = 0;
     }},
};

}  // namespace

TEST_CASE("nothing is odd about VMCBs as KVM sets them up") {
  CHECK(suspicions_of(image_of(kvm_vmcb())).empty());
  Vmcb with_avic = kvm_vmcb();
  avic(with_avic);
  CHECK(suspicions_of(image_of(with_avic)).empty());
  Vmcb encrypted = kvm_vmcb();
  sev_es(encrypted);
  CHECK(suspicions_of(image_of(encrypted)).empty());
}

TEST_CASE("each suspicion is raised by its setting and explained") {
  for (const Odd& one : odd) {
    CAPTURE(one.id);
    Vmcb vmcb = kvm_vmcb();
    one.make(vmcb);
    const VmcbReport report = explain(image_of(vmcb));
    bool found = false;
    for (const Finding& finding : report.suspicions) {
      if (finding.id != one.id) continue;
      found = true;
      CHECK_FALSE(finding.text.empty());
      CHECK_FALSE(finding.reason.empty());
      CHECK_FALSE(finding.section.empty());
      CHECK(finding.because.empty() == (finding.id == "reserved_not_zero"));
    }
    CHECK(found);
    CHECK(report.suspicions.size() <= 4);  // a setting does not set off everything
  }
}

TEST_CASE("every suspicion has a test, and their names are unique") {
  std::set<std::string> tested;
  for (const Odd& one : odd)
    tested.insert(one.id);
  std::set<std::string> known;
  for (const Suspicion& suspicion : all_suspicions()) {
    CAPTURE(suspicion.id);
    CHECK(known.insert(std::string(suspicion.id)).second);
    const bool elsewhere = suspicion.needs_feature || suspicion.id == "asid_beyond_processor" ||
                           suspicion.id == "event_inj_after_exit" || suspicion.id == "sev_features_differ";
    CHECK((elsewhere || tested.count(std::string(suspicion.id)) == 1));
  }
}

TEST_CASE("what a processor lacks is odd only there") {
  Vmcb vmcb = kvm_vmcb();
  vmcb.control.int_ctl |=
      int_ctl::avic_enable | int_ctl::x2avic_enable | int_ctl::v_gif_enable | int_ctl::v_nmi_enable;
  vmcb.control.nested_ctl |= nested_ctl::gmet_enable | nested_ctl::sss_check_enable |
                             nested_ctl::rogpt_enable | nested_ctl::invlpgb_enable;
  vmcb.control.virt_ext = 0xf;
  vmcb.control.intercepts[5] = 1U << 6 | 1U << 5;
  vmcb.control.tlb_ctl = 3;
  const VmcbImage image = image_of(vmcb);
  FeatureSet everything;
  for (const FeatureInfo& info : all_features())
    everything.set(info.feature);
  const auto with = [&](const FeatureSet& features) { return suspicions_of(image, {features, {}, {}}); };
  std::size_t checked = 0;
  for (const Suspicion& suspicion : all_suspicions()) {
    if (!suspicion.needs_feature) continue;
    CAPTURE(suspicion.id);
    const std::string id(suspicion.id);
    CHECK(with(everything).count(id) == 0);
    CHECK(with(everything.without(*suspicion.needs_feature)).count(id) == 1);
    CHECK(suspicions_of(image).count(id) == 0);
    ++checked;
  }
  CHECK(checked == 18);
  bool told = false;
  for (const Unjudged& item : explain(image).unjudged)
    told = told || (item.id == "feature_missing" && item.text.find("vnmi") != std::string::npos);
  CHECK(told);
}

TEST_CASE("suspicions that need more than a page") {
  Vmcb vmcb = kvm_vmcb();
  vmcb.control.asid = 0x8000;
  CHECK(suspicions_of(image_of(vmcb), {FeatureSet{}, {}, {}}).count("asid_beyond_processor") == 1);
  vmcb.control.asid = 0x7fff;
  CHECK(suspicions_of(image_of(vmcb), {FeatureSet{}, {}, {}}).count("asid_beyond_processor") == 0);

  vmcb.control.event_inj = event_inj::event(event_inj::type_nmi, 2);
  CHECK(suspicions_of(image_of(vmcb)).count("event_inj_after_exit") == 0);
  const VmcbImage dump = parse_vmcb_image(joined(dump_lines(vmcb)), "log");
  CHECK(suspicions_of(dump).count("event_inj_after_exit") == 1);

  vmcb = kvm_vmcb();
  sev_es(vmcb);
  vmcb.control.guest_sev_features = 0x5;
  VmcbImage image = image_of(vmcb);
  image.vmsa_sev_features = 0x5;
  CHECK(suspicions_of(image).count("sev_features_differ") == 0);
  image.vmsa_sev_features = 0x1;
  CHECK(suspicions_of(image).count("sev_features_differ") == 1);
}

TEST_CASE("a verdict in spite of missing fields holds for anything they could be") {
  CHECK(rc::check("missing", [] {
    Vmcb vmcb = kvm_vmcb();
    odd[*rc::gen::inRange<std::size_t>(0, odd.size())].make(vmcb);
    VmcbImage image = image_of(vmcb);
    for (int n = 0; n < 3; ++n) {
      const auto index = *rc::gen::inRange<std::size_t>(0, field_count);
      image.present.reset(index);
      write_field(image.page, static_cast<Field>(index), 0);
    }
    VmcbImage filled = image;
    for (std::size_t index = 0; index < field_count; ++index) {
      if (!image.present[index])
        write_field(filled.page, static_cast<Field>(index),
                    *rc::gen::oneOf(rc::gen::arbitrary<std::uint64_t>(),
                                    rc::gen::just(read_field(vmcb, static_cast<Field>(index)))));
    }
    filled.present.set();
    const std::optional<FeatureSet> none;
    for (const Suspicion& suspicion : all_suspicions()) {
      const auto ask = [&](const Vmcb& page) { return suspicion.applies({page, image, none}); };
      const Judgement judgement = judge(image, suspicion.inputs, ask);
      if (judgement.verdict == Verdict::unknown) {
        RC_ASSERT_FALSE(judgement.needs.empty());
      } else if ((judgement.verdict == Verdict::failed) != ask(filled.page)) {
        RC_FAIL(std::string(suspicion.id));
      }
    }
  }));
}

TEST_CASE("a suspicion reads no field that it does not name") {
  CHECK(rc::check("inputs", [] {
    Vmcb vmcb = kvm_vmcb();
    for (int n = 0; n < 2; ++n)
      odd[*rc::gen::inRange<std::size_t>(0, odd.size())].make(vmcb);
    const VmcbImage image = image_of(vmcb);
    const auto changed = static_cast<Field>(*rc::gen::inRange<std::size_t>(0, field_count));
    Vmcb other = vmcb;
    write_field(other, changed, *rc::gen::arbitrary<std::uint64_t>());
    const std::optional<FeatureSet> none;
    for (const Suspicion& suspicion : all_suspicions()) {
      if (std::find(suspicion.inputs.begin(), suspicion.inputs.end(), changed) != suspicion.inputs.end())
        continue;
      if (suspicion.applies({vmcb, image, none}) != suspicion.applies({other, image, none}))
        RC_FAIL(std::string(suspicion.id) + " reads " + std::string(field_info(changed).name));
    }
  }));
}
