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

void inject(Setup& s, std::uint32_t type, std::uint8_t vector) {
  s.vmcb.control.event_inj = event_inj::event(type, vector);
}

const std::vector<Violation> violations{
    {"EFER.SVME is 0", [](Setup& s) { s.vmcb.save.efer &= ~efer::svme; }},
    {"CR0.CD is 0 and CR0.NW is 1", [](Setup& s) { s.vmcb.save.cr0 |= cr0::nw; }},
    {"CR0[63:32] is not 0", [](Setup& s) { s.vmcb.save.cr0 |= std::uint64_t{1} << 32; }},
    {"CR0[63:32] is not 0", [](Setup& s) { s.vmcb.save.cr0 |= std::uint64_t{1} << 63; }},
    {"CR3 has bits above the physical address width set", [](Setup& s) { s.vmcb.save.cr3 |= memory_end; }},
    {"CR3 has bits above the physical address width set",
     [](Setup& s) {
       s.limits.physical_address_bits = 48;
       s.vmcb.save.cr3 |= std::uint64_t{1} << 48;
     }},
    {"CR4 has reserved bits set", [](Setup& s) { s.vmcb.save.cr4 |= 1U << 13; }},
    {"CR4 has reserved bits set", [](Setup& s) { s.vmcb.save.cr4 |= std::uint64_t{1} << 32; }},
    {"DR6[63:32] is not 0", [](Setup& s) { s.vmcb.save.dr6 |= std::uint64_t{1} << 32; }},
    {"DR7[63:32] is not 0", [](Setup& s) { s.vmcb.save.dr7 |= std::uint64_t{1} << 63; }},
    {"EFER has reserved bits set", [](Setup& s) { s.vmcb.save.efer |= 1U << 9; }},
    {"EFER has reserved bits set", [](Setup& s) { s.vmcb.save.efer |= std::uint64_t{1} << 16; }},
    {"EFER.LMA or EFER.LME is 1, but the processor has no long mode",
     [](Setup& s) { s.limits.long_mode = false; }},
    {"EFER.LME and CR0.PG are 1, but CR4.PAE is 0", [](Setup& s) { s.vmcb.save.cr4 &= ~cr4::pae; }},
    {"EFER.LME and CR0.PG are 1, but CR0.PE is 0", [](Setup& s) { s.vmcb.save.cr0 &= ~cr0::pe; }},
    {"EFER.LME, CR0.PG, CR4.PAE, CS.L and CS.D are all 1",
     [](Setup& s) { s.vmcb.save.cs.attrib |= segment_attrib::default_size; }},
    {"the VMRUN intercept is clear",
     [](Setup& s) { set_intercept(s.vmcb.control, Intercept::vmrun, false); }},
    {"the guest ASID is 0", [](Setup& s) { s.vmcb.control.asid = 0; }},
    {"the MSR permission map reaches beyond the physical address space",
     [](Setup& s) { s.vmcb.control.msrpm_base_pa = memory_end - 0x1000; }},
    {"the MSR permission map reaches beyond the physical address space",
     [](Setup& s) { s.vmcb.control.msrpm_base_pa = ~std::uint64_t{0}; }},
    {"the MSR permission map reaches beyond the physical address space",
     [](Setup& s) {
       s.knobs.msrpm_at_limit_is_invalid = true;
       s.vmcb.control.msrpm_base_pa = memory_end - 0x2000;
     }},
    {"the I/O permission map reaches beyond the physical address space",
     [](Setup& s) { s.vmcb.control.iopm_base_pa = memory_end - 0x2000; }},
    {"the I/O permission map reaches beyond the physical address space",
     [](Setup& s) { s.vmcb.control.iopm_base_pa = memory_end - 0x1000; }},
    {"V_NMI_ENABLE is 1, but the NMI intercept is clear",
     [](Setup& s) { s.vmcb.control.int_ctl |= int_ctl::v_nmi_enable; }},
    {"S_CET has reserved bits set", [](Setup& s) { s.vmcb.save.s_cet = 4; }},
    {"CR4.CET is 1, but CR0.WP is 0",
     [](Setup& s) {
       s.vmcb.save.cr4 |= cr4::cet;
       s.vmcb.save.cr0 &= ~cr0::wp;
     }},
    {"EVENTINJ has a reserved type", [](Setup& s) { inject(s, 1, 0x30); }},
    {"EVENTINJ has a reserved type", [](Setup& s) { inject(s, 5, 0x30); }},
    {"EVENTINJ has a reserved type", [](Setup& s) { inject(s, 6, 0x30); }},
    {"EVENTINJ has a reserved type", [](Setup& s) { inject(s, 7, 0x30); }},
    {"EVENTINJ injects an exception with a vector that is no exception", [](Setup& s) { inject(s, 3, 2); }},
    {"EVENTINJ injects an exception with a vector that is no exception", [](Setup& s) { inject(s, 3, 32); }},
    {"EVENTINJ injects an exception with a vector that is no exception",
     [](Setup& s) { inject(s, 3, 0xff); }},
    {"EVENTINJ injects an exception that cannot occur in 64-bit mode", [](Setup& s) { inject(s, 3, 5); }},
    {"EVENTINJ injects an exception that cannot occur in 64-bit mode", [](Setup& s) { inject(s, 3, 4); }},
    {"EVENTINJ injects a software interrupt, but the processor has no nRIP (nrips)",
     [](Setup& s) {
       s.features.set(Feature::nrips, false);
       inject(s, 4, 0x80);
     }},
    {"SEV-ES: EVENTINJ injects a software interrupt or vector 3 or 4",
     [](Setup& s) {
       enable_sev(s);
       s.vmcb.control.nested_ctl |= nested_ctl::sev_es_enable;
       inject(s, 4, 0x80);
     }},
    {"SEV-ES: EVENTINJ injects a software interrupt or vector 3 or 4",
     [](Setup& s) {
       enable_sev(s);
       s.vmcb.control.nested_ctl |= nested_ctl::sev_es_enable;
       inject(s, 3, 3);
     }},
    {"nested paging is enabled while the host's CR0.PG is 0", [](Setup& s) { s.limits.host_paging = false; }},
    {"nested paging: N_CR3 has bits above the physical address width set",
     [](Setup& s) { s.vmcb.control.nested_cr3 = memory_end; }},
    {"nested paging: G_PAT has a reserved bit or memory type", [](Setup& s) { s.vmcb.save.g_pat |= 0x08; }},
    {"nested paging: G_PAT has a reserved bit or memory type", [](Setup& s) { s.vmcb.save.g_pat = 2; }},
    {"nested paging: G_PAT has a reserved bit or memory type",
     [](Setup& s) { s.vmcb.save.g_pat = std::uint64_t{3} << 56; }},
    {"x2AVIC is enabled without AVIC", [](Setup& s) { s.vmcb.control.int_ctl |= int_ctl::x2avic_enable; }},
    {"AVIC_PHYSICAL_MAX_INDEX is above 255 in xAVIC mode",
     [](Setup& s) {
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.avic_physical_id = 256;
     }},
    {"AVIC_PHYSICAL_MAX_INDEX is above 511, but the processor has no x2avic_ext",
     [](Setup& s) {
       s.vmcb.control.int_ctl |= int_ctl::avic_enable | int_ctl::x2avic_enable;
       s.vmcb.control.avic_physical_id = 512;
     }},
    {"the AVIC backing page pointer is beyond the physical address space",
     [](Setup& s) {
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.avic_backing_page = memory_end;
     }},
    {"the AVIC physical APIC ID table pointer is beyond the physical address space",
     [](Setup& s) {
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.avic_physical_id = memory_end;
     }},
    {"the AVIC logical APIC ID table pointer is beyond the physical address space",
     [](Setup& s) {
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.avic_logical_id = memory_end;
     }},
    {"AVIC is enabled without nested paging",
     [](Setup& s) {
       s.knobs.avic_without_np_is_invalid = true;
       s.vmcb.control.int_ctl |= int_ctl::avic_enable;
       s.vmcb.control.nested_ctl = 0;
     }},
    {"SEV is enabled without nested paging",
     [](Setup& s) {
       enable_sev(s);
       s.vmcb.control.nested_ctl &= ~nested_ctl::np_enable;
     }},
    {"SEV is enabled while HWCR.SmmLock is 0",
     [](Setup& s) {
       enable_sev(s);
       s.limits.smm_lock = false;
     }},
    {"SEV is enabled with an ASID above the highest encrypted ASID",
     [](Setup& s) {
       enable_sev(s);
       s.vmcb.control.asid = 101;
     }},
};

void check_legal(const char* what, const std::function<void(Setup&)>& change) {
  CAPTURE(what);
  Setup s;
  change(s);
  const auto failed = vmrun_violations(s.vmcb, s.features, s.knobs, s.limits);
  for (const RuleViolation& violation : failed)
    FAIL_CHECK(violation.text);
  CHECK(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits));
  GuestCpu cpu(s.features, s.knobs, s.limits);
  FakeEnvironment environment;
  CHECK(cpu.vmrun(s.vmcb, true, environment).kind != StepKind::vmexit);
}

}  // namespace

TEST_CASE("each violated rule is the only one named, and VMRUN exits with INVALID") {
  std::set<std::string> seen;
  for (const Violation& violation : violations) {
    CAPTURE(violation.rule);
    Setup s;
    violation.break_it(s);
    const auto failed = vmrun_violations(s.vmcb, s.features, s.knobs, s.limits);
    REQUIRE(failed.size() == 1);
    CHECK(failed[0].text == violation.rule);
    CHECK(failed[0].section.substr(0, 3) == "15.");
    CHECK_FALSE(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits));

    GuestCpu cpu(s.features, s.knobs, s.limits);
    FakeEnvironment environment;
    const Step step = cpu.vmrun(s.vmcb, true, environment);
    CHECK(step.kind == StepKind::vmexit);
    CHECK(s.vmcb.control.exit_code == ~std::uint64_t{0});
    CHECK_FALSE(cpu.in_guest_mode());
    CHECK_FALSE(cpu.gif());
    CHECK((s.vmcb.control.event_inj & event_inj::valid) == 0);
    CHECK(s.vmcb.save.rip == guest_rip);
    seen.insert(violation.rule);
  }
  for (const RuleViolation& rule : vmrun_rules()) {
    CAPTURE(rule.text);
    CHECK(seen.count(std::string(rule.text)) == 1);
  }
}

TEST_CASE("a legal VMRUN before it hides no violation") {
  unsigned tried = 0;
  for (const Violation& violation : violations) {
    CAPTURE(violation.rule);
    Setup broken;
    violation.break_it(broken);
    GuestCpu cpu(broken.features, broken.knobs, broken.limits);
    FakeEnvironment environment;
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
    texts.insert(std::string(v.text));
  CHECK(texts ==
        std::set<std::string>{"EFER.SVME is 0", "the VMRUN intercept is clear", "the guest ASID is 0"});
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
    s.vmcb.save.cr4 = cr4::pae | mask;
    CHECK(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits) == ((mask & 0xffff'ffff'fe08'e000) == 0));
    s = Setup{};
    s.vmcb.save.efer |= mask;
    CHECK(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits) == ((mask & 0xffff'ffff'ffff'0200) == 0));
    s = Setup{};
    s.vmcb.save.cr3 = mask;
    CHECK(vmrun_legal(s.vmcb, s.features, s.knobs, s.limits) == ((mask & 0xfff0'0000'0000'0000) == 0));
  }
}
