#include <functional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "svm/vmrun_checks.hpp"
#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

/// A processor with everything, so that every rule can fail on it.
struct Setup {
  Vmcb vmcb = long_mode_vmcb();
  FeatureSet features = all_but_avic().with(Feature::avic).with(Feature::x2avic);
  Knobs knobs;
  ProcessorLimits limits;
  FakeEnvironment environment;

  [[nodiscard]] std::vector<RuleViolation> failed() {
    return vmrun_violations(vmcb, features, knobs, limits, &environment);
  }
};

struct Violation {
  const char* rule;
  std::function<void(Setup&)> break_it;
};

constexpr std::uint64_t memory_end = std::uint64_t{1} << 52;

void enable_sev(Setup& s) {
  s.limits.sev = true;
  s.limits.max_encrypted_asid = 100;
  s.vmcb.control.nested_ctl |= nested_ctl::sev_enable;
}

void enable_sev_es(Setup& s, std::uint64_t features = 0) {
  enable_sev(s);
  s.limits.secure_avic = true;
  s.limits.allowed_sev_features = true;
  s.vmcb.control.nested_ctl |= nested_ctl::sev_es_enable;
  s.environment.guest_vmsa.sev_features = features;
}

/// PAE paging without nested paging; the PDPTEs are the test's.
void legacy_pae(Setup& s, std::uint64_t pdpte) {
  s.vmcb.control.nested_ctl = 0;
  s.vmcb.save.efer = efer::svme;
  s.environment.pdptes = {0x2001, 0, pdpte, 0x3e19};
}

void inject(Setup& s, std::uint32_t type, std::uint8_t vector) {
  s.vmcb.control.event_inj = event_inj::event(type, vector);
}

const std::vector<Violation> violations{
    {"svme_clear", [](Setup& s) { s.vmcb.save.efer &= ~efer::svme; }},
    {"cache_bits", [](Setup& s) { s.vmcb.save.cr0 |= cr0::nw; }},
    {"cr0_upper", [](Setup& s) { s.vmcb.save.cr0 |= std::uint64_t{1} << 32; }},
    {"cr0_upper", [](Setup& s) { s.vmcb.save.cr0 |= std::uint64_t{1} << 63; }},
    {"cr3_reserved", [](Setup& s) { s.vmcb.save.cr3 |= memory_end; }},
    {"cr3_reserved",
     [](Setup& s) {
       s.limits.physical_address_bits = 48;
       s.vmcb.save.cr3 |= std::uint64_t{1} << 48;
     }},
    {"cr4_reserved", [](Setup& s) { s.vmcb.save.cr4 |= 1U << 13; }},
    {"cr4_reserved", [](Setup& s) { s.vmcb.save.cr4 |= std::uint64_t{1} << 32; }},
    {"dr6_upper", [](Setup& s) { s.vmcb.save.dr6 |= std::uint64_t{1} << 32; }},
    {"dr7_upper", [](Setup& s) { s.vmcb.save.dr7 |= std::uint64_t{1} << 63; }},
    {"efer_reserved", [](Setup& s) { s.vmcb.save.efer |= 1U << 9; }},
    {"efer_reserved", [](Setup& s) { s.vmcb.save.efer |= std::uint64_t{1} << 16; }},
    {"no_long_mode", [](Setup& s) { s.limits.long_mode = false; }},
    {"long_mode_without_pae", [](Setup& s) { s.vmcb.save.cr4 &= ~cr4::pae; }},
    {"long_mode_without_pe", [](Setup& s) { s.vmcb.save.cr0 &= ~cr0::pe; }},
    {"code_segment_l_and_d", [](Setup& s) { s.vmcb.save.cs.attrib |= segment_attrib::default_size; }},
    {"vmrun_not_intercepted", [](Setup& s) { set_intercept(s.vmcb.control, Intercept::vmrun, false); }},
    {"asid_zero", [](Setup& s) { s.vmcb.control.asid = 0; }},
    {"msrpm_beyond_memory", [](Setup& s) { s.vmcb.control.msrpm_base_pa = memory_end - 0x1000; }},
    {"msrpm_beyond_memory", [](Setup& s) { s.vmcb.control.msrpm_base_pa = ~std::uint64_t{0}; }},
    {"msrpm_beyond_memory",
     [](Setup& s) {
       s.knobs.msrpm_at_limit_is_invalid = true;
       s.vmcb.control.msrpm_base_pa = memory_end - 0x2000;
     }},
    {"iopm_beyond_memory", [](Setup& s) { s.vmcb.control.iopm_base_pa = memory_end - 0x2000; }},
    {"iopm_beyond_memory", [](Setup& s) { s.vmcb.control.iopm_base_pa = memory_end - 0x1000; }},
    {"v_nmi_without_nmi_intercept", [](Setup& s) { s.vmcb.control.int_ctl |= int_ctl::v_nmi_enable; }},
    {"s_cet_reserved", [](Setup& s) { s.vmcb.save.s_cet = 4; }},
    {"cet_without_wp",
     [](Setup& s) {
       s.vmcb.save.cr4 |= cr4::cet;
       s.vmcb.save.cr0 &= ~cr0::wp;
     }},
    {"injects_reserved_type", [](Setup& s) { inject(s, 1, 0x30); }},
    {"injects_reserved_type", [](Setup& s) { inject(s, 5, 0x30); }},
    {"injects_reserved_type", [](Setup& s) { inject(s, 6, 0x30); }},
    {"injects_reserved_type", [](Setup& s) { inject(s, 7, 0x30); }},
    {"injects_no_exception", [](Setup& s) { inject(s, 3, 2); }},
    {"injects_no_exception", [](Setup& s) { inject(s, 3, 32); }},
    {"injects_no_exception", [](Setup& s) { inject(s, 3, 0xff); }},
    {"injects_impossible_exception", [](Setup& s) { inject(s, 3, 5); }},
    {"injects_impossible_exception", [](Setup& s) { inject(s, 3, 4); }},
    {"injects_soft_without_nrips",
     [](Setup& s) {
       s.features.set(Feature::nrips, false);
       inject(s, 4, 0x80);
     }},
    {"sev_es_injection",
     [](Setup& s) {
       enable_sev_es(s);
       inject(s, 4, 0x80);
     }},
    {"sev_es_injection",
     [](Setup& s) {
       enable_sev_es(s);
       inject(s, 3, 3);
     }},
    {"np_without_host_paging", [](Setup& s) { s.limits.host_paging = false; }},
    {"nested_cr3_reserved", [](Setup& s) { s.vmcb.control.nested_cr3 = memory_end; }},
    {"g_pat_illegal", [](Setup& s) { s.vmcb.save.g_pat |= 0x08; }},
    {"g_pat_illegal", [](Setup& s) { s.vmcb.save.g_pat = 2; }},
    {"g_pat_illegal", [](Setup& s) { s.vmcb.save.g_pat = std::uint64_t{3} << 56; }},
    {"x2avic_without_avic", [](Setup& s) { s.vmcb.control.int_ctl |= int_ctl::x2avic_enable; }},
    {"avic_max_index",
     [](Setup& s) {
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.avic_physical_id = 256;
     }},
    {"x2avic_max_index",
     [](Setup& s) {
       s.vmcb.control.int_ctl |= int_ctl::avic_enable | int_ctl::x2avic_enable;
       s.vmcb.control.avic_physical_id = 512;
     }},
    {"avic_backing_page_beyond_memory",
     [](Setup& s) {
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.avic_backing_page = memory_end;
     }},
    {"avic_physical_table_beyond_memory",
     [](Setup& s) {
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.avic_physical_id = memory_end;
     }},
    {"avic_logical_table_beyond_memory",
     [](Setup& s) {
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.avic_logical_id = memory_end;
     }},
    {"avic_without_np",
     [](Setup& s) {
       s.knobs.avic_without_np_is_invalid = true;
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.nested_ctl = 0;
     }},
    {"sev_without_np",
     [](Setup& s) {
       enable_sev(s);
       s.vmcb.control.nested_ctl &= ~nested_ctl::np_enable;
     }},
    {"sev_without_smm_lock",
     [](Setup& s) {
       enable_sev(s);
       s.limits.smm_lock = false;
     }},
    {"sev_asid",
     [](Setup& s) {
       enable_sev(s);
       s.vmcb.control.asid = 101;
     }},
    {"sev_es_injection",
     [](Setup& s) {
       enable_sev_es(s);
       inject(s, 3, 4);
       s.vmcb.save.cs.attrib = 0x0c9b;
     }},
    {"pdpte_reserved", [](Setup& s) { legacy_pae(s, 0x2003); }},
    {"pdpte_reserved", [](Setup& s) { legacy_pae(s, 0x2005); }},
    {"pdpte_reserved", [](Setup& s) { legacy_pae(s, 0x2021); }},
    {"pdpte_reserved", [](Setup& s) { legacy_pae(s, 0x2101); }},
    {"pdpte_reserved", [](Setup& s) { legacy_pae(s, memory_end | 1); }},
    {"pdpte_reserved", [](Setup& s) { legacy_pae(s, std::uint64_t{1} << 63 | 1); }},
    {"pdpte_reserved",
     [](Setup& s) {
       s.limits.physical_address_bits = 48;
       legacy_pae(s, std::uint64_t{1} << 48 | 1);
     }},
    {"cet_in_virtual_8086_mode",
     [](Setup& s) {
       s.vmcb.save.efer = efer::svme;
       s.vmcb.save.cr4 |= cr4::cet;
       s.vmcb.save.rflags |= rflags::virtual_8086;
       s.environment.msrs[0x6a0] = 1;
     }},
    {"sev_es_vmsa_beyond_memory",
     [](Setup& s) {
       enable_sev_es(s);
       s.vmcb.control.vmsa_pa = memory_end;
     }},
    {"sev_es_vmsa_damaged",
     [](Setup& s) {
       enable_sev_es(s);
       s.environment.guest_vmsa.load = VmsaLoad::damaged;
     }},
    {"sev_features_not_allowed",
     [](Setup& s) {
       enable_sev_es(s, sev_features::snp_active | sev_features::restricted_injection);
       s.vmcb.control.allowed_sev_features = sev_features::mask_enable | sev_features::snp_active;
     }},
    {"secure_avic_with_avic",
     [](Setup& s) {
       enable_sev_es(s, sev_features::secure_avic);
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
     }},
    {"secure_avic_with_injection",
     [](Setup& s) { enable_sev_es(s, sev_features::secure_avic | sev_features::restricted_injection); }},
    {"secure_avic_with_injection",
     [](Setup& s) { enable_sev_es(s, sev_features::secure_avic | sev_features::alternate_injection); }},
    {"snp_avic_with_injection",
     [](Setup& s) {
       enable_sev_es(s, sev_features::snp_active | sev_features::restricted_injection);
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
     }},
    {"snp_avic_with_injection",
     [](Setup& s) {
       enable_sev_es(s, sev_features::snp_active | sev_features::alternate_injection);
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
     }},
    {"snp_avic_backing_page_owner",
     [](Setup& s) {
       enable_sev_es(s, sev_features::snp_active);
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.avic_backing_page = 0x9000;
       s.environment.foreign_pages = {9};
     }},
};

void check_legal(const char* what, const std::function<void(Setup&)>& change) {
  CAPTURE(what);
  Setup s;
  change(s);
  for (const RuleViolation& violation : s.failed())
    FAIL_CHECK(violation.text);
  CHECK(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits));
  GuestCpu cpu(s.features, s.knobs, s.limits);
  CHECK(cpu.vmrun(s.vmcb, true, s.environment).kind != StepKind::vmexit);
}

}  // namespace

TEST_CASE("each violated rule is the only one named, and VMRUN exits with INVALID") {
  std::set<std::string> seen;
  for (const Violation& violation : violations) {
    CAPTURE(violation.rule);
    Setup s;
    violation.break_it(s);
    const auto failed = s.failed();
    REQUIRE(failed.size() == 1);
    CHECK(failed[0].id == violation.rule);
    CHECK(failed[0].section.substr(0, 3) == "15.");
    // vmrun_legal() knows the VMCB alone.
    CHECK(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits) ==
          vmrun_violations(s.vmcb, s.features, s.knobs, s.limits).empty());

    GuestCpu cpu(s.features, s.knobs, s.limits);
    const Step step = cpu.vmrun(s.vmcb, true, s.environment);
    CHECK(step.kind == StepKind::vmexit);
    CHECK(s.vmcb.control.exit_code == ~std::uint64_t{0});
    CHECK_FALSE(cpu.in_guest_mode());
    CHECK_FALSE(cpu.gif());
    CHECK((s.vmcb.control.event_inj & event_inj::valid) == 0);
    CHECK(s.vmcb.save.rip == guest_rip);
    seen.insert(violation.rule);
  }
  for (const RuleViolation& rule : vmrun_rules()) {
    CAPTURE(rule.id);
    CHECK(seen.count(std::string(rule.id)) == 1);
  }
}

TEST_CASE("a legal VMRUN before it hides no violation") {
  unsigned tried = 0;
  for (const Violation& violation : violations) {
    CAPTURE(violation.rule);
    Setup broken;
    violation.break_it(broken);
    GuestCpu cpu(broken.features, broken.knobs, broken.limits);
    FakeEnvironment& environment = broken.environment;
    Vmcb good = long_mode_vmcb();
    set_intercept(good.control, Intercept::vmmcall, true);
    if (cpu.vmrun(good, true, environment).kind != StepKind::entered)
      continue;  // the processor itself is the violation
    GuestAction leave;
    leave.kind = ActionKind::vmmcall;
    leave.length = 3;
    leave.rip = cpu.rip();
    REQUIRE(cpu.execute(leave, environment).kind == StepKind::vmexit);
    ++tried;
    CHECK(cpu.vmrun(broken.vmcb, true, environment).kind == StepKind::vmexit);
    CHECK(broken.vmcb.control.exit_code == ~std::uint64_t{0});
  }
  CHECK(tried > violations.size() * 3 / 4);
}

TEST_CASE("all violations of a VMCB are named, not only the first") {
  Setup s;
  s.vmcb = Vmcb{};
  std::set<std::string> texts;
  for (const RuleViolation& v : vmrun_violations(s.vmcb, s.features))
    texts.insert(std::string(v.id));
  CHECK(texts == std::set<std::string>{"svme_clear", "vmrun_not_intercepted", "asid_zero"});
}

TEST_CASE("what the manual calls legal, unusual as it is, runs") {
  check_legal("nothing changed", [](Setup&) {});
  check_legal("paged real mode", [](Setup& s) {
    s.vmcb.save.efer = efer::svme;
    s.vmcb.save.cr0 = cr0::pg;
  });
  check_legal("real mode", [](Setup& s) {
    s.vmcb.save.efer = efer::svme;
    s.vmcb.save.cr0 = 0;
  });
  check_legal("caches off", [](Setup& s) { s.vmcb.save.cr0 |= cr0::cd; });
  check_legal("caches off and not write-through", [](Setup& s) { s.vmcb.save.cr0 |= cr0::cd | cr0::nw; });
  check_legal("non-canonical rIP", [](Setup& s) { s.vmcb.save.rip = 0x8000'0000'0000'0000; });
  check_legal("non-canonical segment bases", [](Setup& s) {
    for (VmcbSegment* segment : {&s.vmcb.save.es, &s.vmcb.save.cs, &s.vmcb.save.ss, &s.vmcb.save.ds,
                                 &s.vmcb.save.gdtr, &s.vmcb.save.idtr}) {
      segment->base = 0x8000'0000'0000'0000;
    }
  });
  check_legal("CR3 low bits", [](Setup& s) { s.vmcb.save.cr3 |= 0xfff; });
  check_legal("CR3 up to the width", [](Setup& s) { s.vmcb.save.cr3 = memory_end - 1; });
  check_legal("compatibility mode with a 32-bit segment", [](Setup& s) { s.vmcb.save.cs.attrib = 0x0c9b; });
  check_legal("MSRPM in the last two pages",
              [](Setup& s) { s.vmcb.control.msrpm_base_pa = memory_end - 0x2000; });
  check_legal("MSRPM low bits ignored",
              [](Setup& s) { s.vmcb.control.msrpm_base_pa = memory_end - 0x2000 + 0xfff; });
  check_legal("IOPM in the last three pages",
              [](Setup& s) { s.vmcb.control.iopm_base_pa = memory_end - 0x3000; });
  check_legal("IOPM low bits ignored",
              [](Setup& s) { s.vmcb.control.iopm_base_pa = memory_end - 0x2000 - 2; });
  check_legal("V_NMI with the NMI intercept", [](Setup& s) {
    s.vmcb.control.int_ctl |= int_ctl::v_nmi_enable;
    set_intercept(s.vmcb.control, Intercept::nmi, true);
  });
  check_legal("V_NMI_ENABLE without the feature is a reserved bit", [](Setup& s) {
    s.features.set(Feature::vnmi, false);
    s.vmcb.control.int_ctl |= int_ctl::v_nmi_enable;
  });
  check_legal("x2AVIC bit without the feature", [](Setup& s) {
    s.features.set(Feature::x2avic, false);
    s.vmcb.control.int_ctl |= int_ctl::x2avic_enable;
  });
  check_legal("xAVIC with 256 entries", [](Setup& s) {
    s.vmcb.control.int_ctl |= int_ctl::avic_enable;
    s.vmcb.control.avic_physical_id = 255;
  });
  check_legal("x2AVIC with 512 entries", [](Setup& s) {
    s.vmcb.control.int_ctl |= int_ctl::avic_enable | int_ctl::x2avic_enable;
    s.vmcb.control.avic_physical_id = 511;
    s.vmcb.control.avic_logical_id = ~std::uint64_t{0};  // not used in x2AVIC mode
  });
  check_legal("x2AVIC with 4096 entries and x2avic_ext", [](Setup& s) {
    s.features.set(Feature::x2avic_ext);
    s.vmcb.control.int_ctl |= int_ctl::avic_enable | int_ctl::x2avic_enable;
    s.vmcb.control.avic_physical_id = 4095;
  });
  check_legal("AVIC without nested paging, by default", [](Setup& s) {
    s.vmcb.control.int_ctl |= int_ctl::avic_enable;
    s.vmcb.control.nested_ctl = 0;
  });
  check_legal("nested paging fields without nested paging", [](Setup& s) {
    s.vmcb.control.nested_ctl = 0;
    s.vmcb.control.nested_cr3 = ~std::uint64_t{0};
    s.vmcb.save.g_pat = ~std::uint64_t{0};
  });
  check_legal("NP_ENABLE without the feature is a reserved bit", [](Setup& s) {
    s.features.set(Feature::np, false);
    s.vmcb.control.nested_cr3 = ~std::uint64_t{0};
  });
  check_legal("every memory type of PAT", [](Setup& s) { s.vmcb.save.g_pat = 0x0706'0504'0100'0607; });
  check_legal("CET", [](Setup& s) {
    s.vmcb.save.cr4 |= cr4::cet;
    s.vmcb.save.s_cet = 3;
  });
  check_legal("a non-valid EVENTINJ says nothing", [](Setup& s) { s.vmcb.control.event_inj = 0x7fff'ffff; });
  check_legal("#BR in compatibility mode", [](Setup& s) {
    s.vmcb.save.cs.attrib = 0x0c9b;
    inject(s, 3, 5);
  });
  check_legal("INT3 in 64-bit mode", [](Setup& s) { inject(s, 3, 3); });
  check_legal("the vector of an injected NMI is ignored", [](Setup& s) { inject(s, 2, 0xff); });
  check_legal("SEV", [](Setup& s) { enable_sev(s); });
  check_legal("legal PDPTEs: P, PWT, PCD, the bits for software, and anything in those not present",
              [](Setup& s) { legacy_pae(s, 0x0000'ffff'ffff'fe19); });
  check_legal("a PDPTE that is not present", [](Setup& s) { legacy_pae(s, ~std::uint64_t{1}); });
  check_legal("PDPTEs with nested paging are not VMRUN's affair", [](Setup& s) {
    legacy_pae(s, 0x2003);
    s.vmcb.control.nested_ctl = nested_ctl::np_enable;
  });
  check_legal("PDPTEs without PAE or paging", [](Setup& s) {
    legacy_pae(s, 0x2003);
    s.vmcb.save.cr4 = 0;
  });
  check_legal("PDPTEs in long mode", [](Setup& s) {
    legacy_pae(s, 0x2003);
    s.vmcb.save.efer = long_mode_vmcb().save.efer;
  });
  check_legal("virtual-8086 mode without a user shadow stack", [](Setup& s) {
    s.vmcb.save.efer = efer::svme;
    s.vmcb.save.cr4 |= cr4::cet;
    s.vmcb.save.rflags |= rflags::virtual_8086;
    s.environment.msrs[0x6a0] = 2;
  });
  check_legal("virtual-8086 mode without CET", [](Setup& s) {
    s.vmcb.save.efer = efer::svme;
    s.vmcb.save.rflags |= rflags::virtual_8086;
    s.environment.msrs[0x6a0] = 1;
  });
  check_legal("SEV-ES with every feature and no mask", [](Setup& s) {
    enable_sev_es(s, ~sev_features::secure_avic);
    s.vmcb.control.allowed_sev_features = sev_features::snp_active;
  });
  check_legal("SEV features that are allowed", [](Setup& s) {
    enable_sev_es(s, sev_features::snp_active);
    s.vmcb.control.allowed_sev_features = sev_features::mask_enable | sev_features::snp_active;
  });
  check_legal("a processor without AllowedSevFeatures ignores the mask", [](Setup& s) {
    enable_sev_es(s, sev_features::snp_active);
    s.limits.allowed_sev_features = false;
    s.vmcb.control.allowed_sev_features = sev_features::mask_enable;
  });
  check_legal("Secure AVIC", [](Setup& s) { enable_sev_es(s, sev_features::secure_avic); });
  check_legal("a processor without Secure AVIC ignores the feature", [](Setup& s) {
    enable_sev_es(s, sev_features::secure_avic);
    s.limits.secure_avic = false;
    s.vmcb.control.int_ctl |= int_ctl::avic_enable;
  });
  check_legal("SNP with AVIC", [](Setup& s) {
    enable_sev_es(s, sev_features::snp_active);
    s.vmcb.control.int_ctl |= int_ctl::avic_enable;
  });
  check_legal("SEV bits of a processor without SEV", [](Setup& s) {
    s.vmcb.control.nested_ctl = nested_ctl::sev_enable | nested_ctl::sev_es_enable;
    inject(s, 4, 0x80);
  });
}

TEST_CASE("exactly the exceptions of the manual can be injected") {
  const std::set<unsigned> exceptions{0, 1, 3, 6, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 19, 21, 28, 29, 30};
  for (unsigned vector = 0; vector < 256; ++vector) {
    CAPTURE(vector);
    Setup s;
    inject(s, event_inj::type_exception, static_cast<std::uint8_t>(vector));
    CHECK(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits) == (exceptions.count(vector) != 0));
  }
}

TEST_CASE("kvm-unit-tests' reserved masks: every bit of them makes VMRUN fail, and no other") {
  for (unsigned bit = 0; bit < 64; ++bit) {
    CAPTURE(bit);
    const std::uint64_t mask = std::uint64_t{1} << bit;
    Setup s;
    const auto reset = [&s] { s.vmcb = long_mode_vmcb(); };
    s.vmcb.save.cr4 = cr4::pae | mask;
    CHECK(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits) == ((mask & 0xffff'ffff'fe08'e000) == 0));
    reset();
    s.vmcb.save.efer |= mask;
    CHECK(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits) == ((mask & 0xffff'ffff'ffff'0200) == 0));
    reset();
    s.vmcb.save.cr3 = mask;
    CHECK(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits) == ((mask & 0xfff0'0000'0000'0000) == 0));
  }
}

TEST_CASE("a VMSA that cannot run has its own exit codes") {
  for (const auto& [load, code] : {std::pair{VmsaLoad::busy, ~std::uint64_t{1}},
                                   std::pair{VmsaLoad::sibling_not_idle, ~std::uint64_t{2}},
                                   std::pair{VmsaLoad::illegal_pmc, ~std::uint64_t{3}}}) {
    Setup s;
    enable_sev_es(s);
    s.environment.guest_vmsa.load = load;
    CHECK(s.failed().empty());  // no rule about state has failed
    GuestCpu cpu(s.features, s.knobs, s.limits);
    CHECK(cpu.vmrun(s.vmcb, true, s.environment).kind == StepKind::vmexit);
    CHECK(s.vmcb.control.exit_code == code);
    CHECK_FALSE(cpu.in_guest_mode());
    s.environment.guest_vmsa.load = VmsaLoad::loaded;
    CHECK(cpu.vmrun(s.vmcb, true, s.environment).kind == StepKind::entered);
  }
}

TEST_CASE("what the SVM instructions check before anything else") {
  const ProcessorLimits limits;
  struct Case {
    bool svme, protected_mode;
    std::uint8_t cpl;
    std::uint64_t rax;
    int exception;
  };
  for (const Case& c :
       {Case{true, true, 0, 0x1000, -1}, Case{false, true, 0, 0x1000, 6}, Case{true, false, 0, 0x1000, 6},
        Case{false, false, 3, 1, 6}, Case{true, true, 1, 0x1000, 13}, Case{true, true, 0, 0x1001, 13},
        Case{true, true, 0, 0x1800, 13}, Case{true, true, 0, memory_end, 13},
        Case{true, true, 0, memory_end - 0x1000, -1}, Case{true, true, 3, 1, 13}}) {
    const auto exception = svm_instruction_exception({c.svme, c.protected_mode, c.cpl, c.rax}, limits);
    CHECK((exception ? int{*exception} : -1) == c.exception);
  }
  CHECK_FALSE(svm_instruction_exception({true, true, 0, std::nullopt}, limits));  // STGI, CLGI
}

TEST_CASE("rule ids are unique words") {
  std::set<std::string> ids;
  for (const RuleViolation& rule : vmrun_rules()) {
    CHECK(ids.insert(std::string(rule.id)).second);
    CHECK(rule.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos);
  }
}
