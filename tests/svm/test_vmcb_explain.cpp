#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>

#include "svm/vmcb_dump/explain.hpp"
#include "svm/vmrun_checks.hpp"
#include "tests/svm/vmcb_dump_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

namespace {

VmcbReport report_of(const Vmcb& vmcb, const ExplainOptions& options = {}) {
  return explain(image_of(vmcb), options);
}

bool violates(const VmcbReport& report, const std::string& text) {
  return std::any_of(report.violations.begin(), report.violations.end(),
                     [&](const Finding& finding) { return finding.text == text; });
}

const Unjudged* unjudged(const VmcbReport& report, const std::string& text) {
  for (const Unjudged& item : report.unjudged) {
    if (item.text == text) return &item;
  }
  return nullptr;
}

const DecodedField* field_of(const VmcbReport& report, const std::string& name) {
  for (const DecodedGroup& group : report.groups) {
    for (const DecodedField& field : group.fields) {
      if (field.name == name) return &field;
    }
  }
  return nullptr;
}

std::string meaning(const Vmcb& vmcb, const std::string& name) {
  const VmcbReport report = report_of(vmcb);
  const DecodedField* field = field_of(report, name);
  REQUIRE(field != nullptr);
  std::string text;
  for (const std::string& part : field->meaning)
    text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string exit_details(std::uint64_t code, std::uint64_t info_1, std::uint64_t info_2 = 0) {
  Vmcb vmcb = kvm_vmcb();
  vmcb.control.exit_code = code;
  vmcb.control.exit_info_1 = info_1;
  vmcb.control.exit_info_2 = info_2;
  std::string text;
  for (const std::string& part : decode_exit(image_of(vmcb)).details)
    text += (text.empty() ? "" : "; ") + part;
  return text;
}

}  // namespace

TEST_CASE("every rule of VMRUN has its inputs, and reads nothing else") {
  // Whatever else of a VMCB changes, the verdict on the rule stays.
  std::set<std::string> ids;
  for (const JudgedRule& rule : judge_vmrun(image_of(kvm_vmcb()), {})) {
    CAPTURE(rule.id);
    CHECK_FALSE(vmrun_rule_inputs(rule.id).empty());
    CHECK(ids.insert(std::string(rule.id)).second);
  }
  CHECK(ids.size() == vmrun_rules().size());
  CHECK(rc::check("inputs", [] {
    Vmcb vmcb = kvm_vmcb();
    const auto shake = [&](Vmcb& page) {
      const auto field = static_cast<Field>(*rc::gen::inRange<std::size_t>(0, field_count));
      const std::uint64_t value =
          *rc::gen::element<std::uint64_t>(0, ~std::uint64_t{0}, 1, std::uint64_t{1} << 31, 0x8000'0304,
                                           0x8000'0b0e, 0x8000'0480, std::uint64_t{7}, 0xc400'0000);
      write_field(page, field, value);
      return field;
    };
    for (int n = 0; n < 6; ++n)
      shake(vmcb);
    const std::vector<JudgedRule> before = judge_vmrun(image_of(vmcb), {});
    Vmcb other = vmcb;
    const Field changed = shake(other);
    VmcbImage image = image_of(other);
    image.state_is_the_guests = image_of(vmcb).state_is_the_guests;
    const std::vector<JudgedRule> after = judge_vmrun(image, {});
    for (std::size_t i = 0; i < before.size(); ++i) {
      const std::vector<Field>& inputs = vmrun_rule_inputs(before[i].id);
      if (std::find(inputs.begin(), inputs.end(), changed) != inputs.end()) continue;
      if (before[i].judgement.verdict != after[i].judgement.verdict)
        RC_FAIL(std::string(before[i].id) + " reads " + std::string(field_info(changed).name));
    }
  }));
}

TEST_CASE("only three features make a VMCB legal that is illegal without them") {
  CHECK(rc::check("features", [] {
    Vmcb vmcb = kvm_vmcb();
    for (int n = 0; n < 3; ++n) {
      const auto field = static_cast<Field>(*rc::gen::inRange<std::size_t>(0, field_count));
      write_field(vmcb, field,
                  *rc::gen::element<std::uint64_t>(0, ~std::uint64_t{0}, 0x8000'0480, 0xc400'0000, 0x3ff));
    }
    FeatureSet everything;
    for (const FeatureInfo& info : all_features())
      everything.set(info.feature);
    std::set<std::string> with;
    for (const RuleViolation& rule : vmrun_violations(vmcb, everything))
      with.insert(std::string(rule.id));
    for (const FeatureInfo& info : all_features()) {
      // Nested paging comes with whatever else is in use, and AVIC with x2AVIC.
      if (info.feature == Feature::nrips || info.feature == Feature::x2avic_ext ||
          info.feature == Feature::x2avic || info.feature == Feature::np || info.feature == Feature::avic)
        continue;
      for (const RuleViolation& rule : vmrun_violations(vmcb, everything.without(info.feature))) {
        if (with.count(std::string(rule.id)) == 0)
          RC_FAIL(std::string(info.name) + " " + std::string(rule.id));
      }
    }
  }));
}

TEST_CASE("violations are those of vmrun_violations") {
  CHECK(rc::check("pages", [] {
    Vmcb vmcb = kvm_vmcb();
    for (int n = 0; n < 5; ++n)
      write_field(vmcb, static_cast<Field>(*rc::gen::inRange<std::size_t>(0, field_count)),
                  *rc::gen::arbitrary<std::uint64_t>());
    vmcb.control.nested_ctl &= 1;  // without SEV, whose limits are not known
    FeatureSet features = all_but_avic().with(Feature::avic).with(Feature::x2avic);
    const ExplainOptions options{features, 52, {}};
    std::set<std::string> expected;
    for (const RuleViolation& violation : vmrun_violations(vmcb, features))
      expected.insert(std::string(violation.text));
    std::set<std::string> found;
    const VmcbReport report = report_of(vmcb, options);
    for (const Finding& finding : report.violations)
      found.insert(finding.text);
    RC_ASSERT(found == expected);
    RC_ASSERT(report.legal() == expected.empty());
  }));
}

TEST_CASE("a page of zeros is decoded and violates rules") {
  const VmcbReport report = report_of(Vmcb{});
  CHECK_FALSE(report.legal());
  CHECK(violates(report, "EFER.SVME is 0"));
  CHECK(violates(report, "the guest ASID is 0"));
  CHECK(violates(report, "the VMRUN intercept is clear"));
  CHECK(report.violations.size() == 3);
  CHECK(report.groups.size() >= 9);
}

TEST_CASE("a legal page is legal, and only the host stays open") {
  const VmcbReport report = report_of(kvm_vmcb());
  CHECK(report.legal());
  CHECK(report.unjudged.size() == 2);
  const Unjudged* host = unjudged(report, "nested paging is enabled while the host's CR0.PG is 0");
  REQUIRE(host != nullptr);
  CHECK(host->needs == std::vector<std::string>{"the host's CR0.PG"});
}

TEST_CASE("what CPUID and the host know is asked for only where it matters") {
  Vmcb vmcb = kvm_vmcb();
  vmcb.control.event_inj = event_inj::event(event_inj::type_soft, 0x80);
  const char* nrips = "EVENTINJ injects a software interrupt, but the processor has no nRIP (nrips)";
  const VmcbReport without = report_of(vmcb);
  REQUIRE(unjudged(without, nrips) != nullptr);
  CHECK(unjudged(without, nrips)->needs ==
        std::vector<std::string>{"CPUID: whether the processor has nrips"});
  CHECK(violates(report_of(vmcb, {FeatureSet{Feature::np}, {}, {}}), nrips));
  CHECK(unjudged(report_of(vmcb, {FeatureSet{Feature::np, Feature::nrips}, {}, {}}), nrips) == nullptr);

  vmcb = kvm_vmcb();
  vmcb.control.msrpm_base_pa = std::uint64_t{1} << 45;
  const char* msrpm = "the MSR permission map reaches beyond the physical address space";
  CHECK(unjudged(report_of(vmcb), msrpm) != nullptr);
  CHECK(violates(report_of(vmcb, {{}, 45, {}}), msrpm));
  CHECK(unjudged(report_of(vmcb, {{}, 46, {}}), msrpm) == nullptr);

  vmcb = kvm_vmcb();
  vmcb.control.nested_ctl |= nested_ctl::sev_enable;
  CHECK(unjudged(report_of(vmcb), "SEV is enabled while HWCR.SmmLock is 0") != nullptr);
  CHECK(unjudged(report_of(vmcb), "SEV is enabled with an ASID above the highest encrypted ASID") != nullptr);
  vmcb.control.nested_ctl = nested_ctl::sev_enable;
  CHECK(violates(report_of(vmcb), "SEV is enabled without nested paging"));
}

TEST_CASE("what a dump lacks keeps rules open, but not where the rest decides") {
  std::vector<std::string> lines = dump_lines(kvm_vmcb());
  lines.erase(std::remove_if(lines.begin(), lines.end(),
                             [](const std::string& line) {
                               return line.rfind("intercepts:", 0) == 0 || line.rfind("cr3:", 0) == 0;
                             }),
              lines.end());
  const VmcbReport report = explain(parse_vmcb_image(joined(lines), "log"));
  CHECK(report.legal());
  CHECK(report.lost == std::vector<std::string>{"intercepts_3", "intercepts_4", "cr3"});
  REQUIRE(unjudged(report, "the VMRUN intercept is clear") != nullptr);
  CHECK(unjudged(report, "the VMRUN intercept is clear")->needs ==
        std::vector<std::string>{"intercept word 4"});
  CHECK(unjudged(report, "CR3 has bits above the physical address width set") != nullptr);
  // V_NMI_ENABLE is 0: the NMI intercept does not matter.
  CHECK(unjudged(report, "V_NMI_ENABLE is 1, but the NMI intercept is clear") == nullptr);
  Vmcb vmcb = kvm_vmcb();
  vmcb.control.int_ctl |= int_ctl::v_nmi_enable;
  std::vector<std::string> vnmi = dump_lines(vmcb);
  vnmi.erase(std::find_if(vnmi.begin(), vnmi.end(),
                          [](const std::string& line) { return line.rfind("intercepts:", 0) == 0; }));
  CHECK(unjudged(explain(parse_vmcb_image(joined(vnmi), "log")),
                 "V_NMI_ENABLE is 1, but the NMI intercept is clear") != nullptr);
}

TEST_CASE("the state save area of an encrypted guest is not judged") {
  Vmcb vmcb = kvm_vmcb();
  vmcb.control.nested_ctl |= nested_ctl::sev_enable | nested_ctl::sev_es_enable;
  vmcb.save.efer = 0;
  const VmcbReport report = report_of(vmcb);
  CHECK(report.legal());
  REQUIRE(unjudged(report, "EFER.SVME is 0") != nullptr);
  CHECK(unjudged(report, "EFER.SVME is 0")->needs ==
        std::vector<std::string>{"the guest's encrypted state (VMSA)"});
  const VmcbReport snp = explain(read_vmcb_image(data_file("kvm-6.16-snp.txt")));
  CHECK(unjudged(snp, "EFER.SVME is 0") == nullptr);  // decrypted
}

TEST_CASE("what lies outside of the VMCB keeps rules open where it matters") {
  Vmcb vmcb = kvm_vmcb();
  const char* pdptes =
      "PAE paging without nested paging: a page-directory-pointer entry has reserved bits set";
  CHECK(unjudged(report_of(vmcb), pdptes) == nullptr);
  vmcb.control.nested_ctl = 0;
  vmcb.save.efer = efer::svme;
  REQUIRE(unjudged(report_of(vmcb), pdptes) != nullptr);
  CHECK(unjudged(report_of(vmcb), pdptes)->needs ==
        std::vector<std::string>{"the guest's page-directory pointers"});

  vmcb = kvm_vmcb();
  vmcb.save.cr4 |= cr4::cet;
  vmcb.save.rflags |= rflags::virtual_8086;
  CHECK(unjudged(report_of(vmcb), "CR4.CET, U_CET.SH_STK_EN and RFLAGS.VM are all 1") != nullptr);

  vmcb = kvm_vmcb();
  vmcb.control.nested_ctl |= nested_ctl::sev_enable | nested_ctl::sev_es_enable;
  const char* damaged = "SEV-ES: the VMSA cannot be loaded, or its checksum is wrong";
  CHECK(unjudged(report_of(vmcb), damaged)->needs == std::vector<std::string>{"the checksum of the VMSA"});
  vmcb.control.allowed_sev_features = std::uint64_t{1} << 63 | 1;
  const char* features = "SEV_FEATURES has bits that ALLOWED_SEV_FEATURES does not allow";
  CHECK(unjudged(report_of(vmcb), features) != nullptr);
  vmcb.control.guest_sev_features = 0x1;
  CHECK(unjudged(report_of(vmcb), features) == nullptr);
  CHECK_FALSE(violates(report_of(vmcb), features));
  vmcb.control.guest_sev_features = 0x21;
  CHECK(violates(report_of(vmcb), features));
  VmcbImage image = image_of(vmcb);
  image.vmsa_sev_features = 0x1;  // what will be loaded counts, not what was
  CHECK_FALSE(violates(explain(image), features));
}

TEST_CASE("exit codes are compared with the rules") {
  Vmcb vmcb = kvm_vmcb();
  vmcb.control.asid = 0;
  const auto has = [](const VmcbReport& report, const char* id) {
    return std::any_of(report.suspicions.begin(), report.suspicions.end(),
                       [&](const Finding& f) { return f.id == id; });
  };
  CHECK(has(explain(parse_vmcb_image(joined(dump_lines(vmcb)), "log")), "violation_without_invalid"));
  CHECK_FALSE(has(report_of(vmcb), "violation_without_invalid"));  // a page may be the next one to run
  vmcb.control.exit_code = exit_code::invalid;
  CHECK_FALSE(has(explain(parse_vmcb_image(joined(dump_lines(vmcb)), "log")), "violation_without_invalid"));
  CHECK_FALSE(has(report_of(vmcb), "invalid_without_violation"));
}

TEST_CASE("fields are decoded by name") {
  Vmcb v = kvm_vmcb();
  CHECK(meaning(v, "cr_write") == "CR4, CR8");
  CHECK(meaning(v, "dr_read") == "DR0-DR7");
  CHECK(meaning(v, "exceptions") == "#DB, #UD, #AC, #MC");
  CHECK(meaning(v, "intercepts_4") ==
        "VMRUN, VMMCALL, VMLOAD, VMSAVE, STGI, CLGI, SKINIT, WBINVD, XSETBV, RDPRU");
  v.control.int_ctl = 0x8d0f'0b03;
  CHECK(meaning(v, "int_ctl") ==
        "V_TPR=3, V_IRQ, V_GIF, V_NMI, V_INTR_PRIO=15, V_INTR_MASKING, V_NMI_ENABLE, AVIC_ENABLE, unnamed "
        "bits 0x8000000");
  v.control.tsc_offset = ~std::uint64_t{0};
  CHECK(meaning(v, "tsc_offset") == "-1 cycles");
  v.control.event_inj = 0x8000'0b0d;
  v.control.event_inj_err = 0x10;
  CHECK(meaning(v, "event_inj") == "exception #GP (13), error code 0x10");
  v.control.exit_int_info = 0x8000'0080;
  CHECK(meaning(v, "exit_int_info") == "interrupt 0x80");
  v.control.avic_physical_id = 0x12'30ff;
  CHECK(meaning(v, "avic_physical_id") == "table at 0x123000, MAX_INDEX 255");
  v.control.ghcb_gpa = 0x1004;
  CHECK(meaning(v, "ghcb_gpa") == "MSR protocol request 0x4");
  v.control.next_rip = v.save.rip + 3;
  CHECK(meaning(v, "next_rip") == "rIP + 3");
  CHECK(meaning(v, "cs") == "code, readable, DPL 0, 64-bit (L)");
  CHECK(meaning(v, "ss") == "data, writable, DPL 0, 32-bit, G");
  CHECK(meaning(v, "tr") == "TSS, busy, DPL 0");
  CHECK(meaning(v, "ldtr") == "null");
  CHECK(meaning(v, "gdtr").empty());
  CHECK(meaning(v, "efer") == "LME, LMA, SVME");
  CHECK(meaning(v, "rflags").empty());
  CHECK(meaning(v, "g_pat") == "PA0 WB, PA1 WT, PA2 UC-, PA3 UC, PA4 WB, PA5 WT, PA6 UC-, PA7 UC");
  v.control.tlb_ctl = 7;
  CHECK(meaning(v, "tlb_ctl") == "flush this ASID's non-global translations");
  v.control.guest_sev_features = 0x8000'0000'0001'0021;
  CHECK(meaning(v, "guest_sev_features") == "SNP_ACTIVE, DEBUG_SWAP, SECURE_AVIC, mask is in force");
  CHECK(describe_mode(image_of(v)) == "64-bit mode, CPL 0");
}

TEST_CASE("EXITINFO is decoded by exit code") {
  CHECK(exit_details(exit_code::ioio, 0x03f8'0011) == "IN port 0x3f8, 1 byte; rIP after the instruction 0x0");
  CHECK(exit_details(exit_code::ioio, 0x0060'0e4c, 0x42) ==
        "REP OUTS port 0x60, 4 bytes; segment DS; 64-bit addresses; rIP after the instruction 0x42");
  CHECK(exit_details(exit_code::npf, 0x1'0000'0006, 0xfee0'0000) ==
        "write of guest physical address 0xfee00000; the page is not present in the nested tables; user "
        "access, as all"
        " guest accesses are; while translating the guest's final physical address");
  CHECK(exit_details(exit_code::npf, 0x2'0000'001f, 0x1000).find("instruction fetch") == 0);
  CHECK(exit_details(exit_code::npf, 0x2'0000'001f).find("while walking the guest's page tables") !=
        std::string::npos);
  CHECK(exit_details(exit_code::msr, 0) == "RDMSR");
  CHECK(exit_details(exit_code::msr, 1) == "WRMSR");
  CHECK(exit_details(exit_code::write_cr0, std::uint64_t{1} << 63 | 3) == "MOV to CR0, general register 3");
  CHECK(exit_details(exit_code::read_cr0, 0).find("SMSW") == 0);
  CHECK(exit_details(exit_code::write_dr7, 5) == "general register 5 (with decode assists)");
  CHECK(exit_details(exit_code::exception(14), 2, 0xdead) ==
        "#PF; write of linear address 0xdead by supervisor code, page not present; error code 0x2");
  CHECK(exit_details(exit_code::exception(6), 7) == "#UD");
  CHECK(exit_details(exit_code::task_switch, 0x48, std::uint64_t{1} << 36 | std::uint64_t{1} << 48) ==
        "to TSS selector 0x48; by IRET; RFLAGS.RF was 1");
  CHECK(exit_details(exit_code::task_switch, 0x48, std::uint64_t{1} << 44 | 9) ==
        "to TSS selector 0x48; by a call, an interrupt or an exception; error code 0x9");
  CHECK(exit_details(exit_code::avic_incomplete_ipi, 0x5'0000'08fd, std::uint64_t{1} << 32 | 5) ==
        "id 1: a target is not running; all IRR bits are set; table index 5; ICR 0x5000008fd: vector 0xfd, "
        "fixed, no"
        " shorthand, logical destination 0x5");
  CHECK(exit_details(exit_code::avic_noaccel, 0x1'0000'00b0, 0x31) ==
        "write of APIC register 0xb0; EOI of level-triggered vector 0x31");
  CHECK(exit_details(exit_code::avic_noaccel, 0x390) == "read of APIC register 0x390");
  CHECK(exit_details(exit_code::swint, 0x80) == "INT 0x80 (with decode assists)");
  CHECK(exit_details(0x94, 0x6f0) == "new CR4 0x6f0");
  CHECK(exit_details(exit_code::efer_write_trap, 0xd01) == "new EFER 0xd01");
  CHECK(exit_details(exit_code::smi, 1) == "external SMI");
  CHECK(exit_details(exit_code::hlt, 0).empty());
  Vmcb vmcb = kvm_vmcb();
  vmcb.control.exit_code = 0x500;
  CHECK(decode_exit(image_of(vmcb)).name == "unknown");
  vmcb.control.exit_code = 0xf000'0000;
  CHECK(decode_exit(image_of(vmcb)).meaning.find("hypervisor") != std::string::npos);
}

TEST_CASE("any page can be explained, and its JSON be read") {
  CHECK(rc::check("pages", [] {
    Vmcb vmcb{};
    for (const FieldInfo& info : dump_fields())
      write_field(vmcb, info.field, *rc::gen::arbitrary<std::uint64_t>());
    const VmcbReport report = report_of(vmcb);
    const auto json = nlohmann::json::parse(to_json(report));
    RC_ASSERT(json["violations"].size() == report.violations.size());
    RC_ASSERT(json["legal"] == report.legal());
  }));
}

TEST_CASE("reports of the dumps in tests/data are as recorded") {
  for (const char* name :
       {"kvm-4.9-dmesg", "kvm-6.16-snp", "kvm-6.18-avic-v_irq", "mail-quoted-folded-cut"}) {
    CAPTURE(name);
    VmcbImage image = read_vmcb_image(data_file(std::string(name) + ".txt"));
    image.source = std::string(name) + ".txt";
    std::ifstream file(data_file(std::string(name) + ".json"));
    std::stringstream recorded;
    recorded << file.rdbuf();
    const auto seen = nlohmann::ordered_json::parse(to_json(explain(image)));
    CHECK(nlohmann::ordered_json::parse(recorded.str(), nullptr, false) == seen);
  }
}
