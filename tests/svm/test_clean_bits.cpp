#include <map>
#include <set>
#include <string>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "svm/clean_bits.hpp"
#include "tests/svm/guest_fixture.hpp"

using namespace svmsim::svm;
using namespace svmsim::svm::test;

// APM vol. 2, 15.15, and 15.35.8 for SEV-ES.

namespace {

constexpr std::uint64_t page = 0x7000;
constexpr std::uint32_t all_bits = 0x1fff;

/// A checker that has seen one run of `vmcb` on core 0.
CleanBitsChecker after_one_run(const Vmcb& vmcb) {
  CleanBitsChecker checker(all_but_avic());
  CHECK(checker.vmrun(0, page, vmcb).empty());
  checker.vmexit(0, page, vmcb);
  return checker;
}

}  // namespace

TEST_CASE("every covered field, and only it, is found when it changes under its set clean bit") {
  for (const CleanField& covered : clean_fields()) {
    CAPTURE(covered.path);
    Vmcb vmcb = long_mode_vmcb();
    CleanBitsChecker checker = after_one_run(vmcb);
    const std::uint64_t old_value = covered.field.get(vmcb);
    covered.field.set(vmcb, old_value ^ 1U);

    vmcb.control.clean = all_bits & ~(1U << covered.clean_bit);
    CHECK(checker.vmrun(0, page, vmcb).empty());

    covered.field.set(vmcb, old_value);
    vmcb.control.clean = all_bits | clean::software;
    const auto findings = checker.vmrun(0, page, vmcb);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].rule == CleanBitsRule::changed_under_set_bit);
    CHECK(findings[0].field == covered.path);
    CHECK(findings[0].clean_bit == covered.clean_bit);
    CHECK(findings[0].old_value == (old_value ^ 1U));
    CHECK(findings[0].new_value == old_value);
    CHECK(findings[0].text.find(covered.path) != std::string::npos);
  }
}

TEST_CASE("fields that are never cached may change under any clean bits") {
  const std::set<std::string> never{
      "tlb_ctl",       "int_state", "event_inj", "event_inj_err", "exit_code", "exit_info_1", "exit_info_2",
      "exit_int_info", "next_rip",  "rflags",    "rip",           "rsp",       "rax"};
  for (const std::string& name : never) {
    CAPTURE(name);
    for (const CleanField& covered : clean_fields())
      CHECK(covered.field.field->name != name);
    Vmcb vmcb = long_mode_vmcb();
    CleanBitsChecker checker = after_one_run(vmcb);
    vmcb.control.clean = all_bits;
    const VmcbField* field = find_vmcb_field(name);
    REQUIRE(field != nullptr);
    set_field(vmcb, *field, get_field(vmcb, *field) ^ 1U);
    CHECK(checker.vmrun(0, page, vmcb).empty());
  }
}

TEST_CASE("the table of clean bits is the manual's") {
  const std::map<unsigned, std::set<std::string>> table{
      {0,
       {"intercepts_0", "intercepts_1", "intercepts_2", "intercepts_3", "intercepts_4", "intercepts_5",
        "tsc_offset", "pause_filter_count"}},
      {1, {"iopm_base_pa", "msrpm_base_pa"}},
      {2, {"asid"}},
      {3, {"int_ctl", "int_vector"}},
      {4, {"nested_cr3", "g_pat"}},
      {5, {"cr0", "cr3", "cr4", "efer"}},
      {6, {"dr6", "dr7"}},
      {7, {"gdtr.limit", "gdtr.base", "idtr.limit", "idtr.base"}},
      {9, {"cr2"}},
      {10, {"dbgctl", "br_from", "br_to", "last_excp_from", "last_excp_to"}},
      {11, {"avic_vapic_bar", "avic_backing_page", "avic_logical_id", "avic_physical_id"}},
      {12, {"s_cet", "ssp", "isst_addr"}}};
  std::map<unsigned, std::set<std::string>> seen;
  for (const CleanField& covered : clean_fields()) {
    if (!covered.inferred) seen[covered.clean_bit].insert(covered.field.field->name);
  }
  CHECK(seen[8].size() == 17);  // four segments of four parts, and CPL
  seen.erase(8);
  CHECK(seen == table);
  CHECK(clean_bit_name(5) == "CRx");
  CHECK(clean_bit_name(13).empty());
}

TEST_CASE("the first run, another core and a moved page need clean bits of 0") {
  Vmcb vmcb = long_mode_vmcb();
  const auto rule_of = [&vmcb](CleanBitsChecker& checker, unsigned core, std::uint64_t physical) {
    const auto findings = checker.vmrun(core, physical, vmcb);
    return findings.size() == 1 ? static_cast<int>(findings[0].rule) : -1 - static_cast<int>(findings.size());
  };
  for (unsigned bit = 0; bit < 13; ++bit) {
    CAPTURE(bit);
    vmcb.control.clean = 1U << bit;
    CleanBitsChecker checker(all_but_avic());
    CHECK(rule_of(checker, 0, page) == static_cast<int>(CleanBitsRule::first_run));
    CHECK(rule_of(checker, 0, page) == -1);
    CHECK(rule_of(checker, 1, page) == static_cast<int>(CleanBitsRule::other_core));
    CHECK(rule_of(checker, 1, page) == -1);
    CHECK(rule_of(checker, 0, page) == static_cast<int>(CleanBitsRule::other_core));
    checker.moved(page, page + 0x1000);
    CHECK(rule_of(checker, 0, page + 0x1000) == static_cast<int>(CleanBitsRule::moved));
    CHECK(rule_of(checker, 0, page + 0x1000) == -1);
    CHECK(rule_of(checker, 0, page) == static_cast<int>(CleanBitsRule::first_run));
  }
  for (const std::uint32_t unused : {0U, clean::software, 1U << 13, 1U << 30}) {
    vmcb.control.clean = unused;
    CleanBitsChecker checker(all_but_avic());
    CHECK(checker.vmrun(0, page, vmcb).empty());
  }
}

TEST_CASE("under SEV-ES bits 10:5 say nothing, and without the feature none does") {
  for (const CleanField& covered : clean_fields()) {
    CAPTURE(covered.path);
    if (covered.path == "nested_ctl.np_enable") continue;
    Vmcb vmcb = long_mode_vmcb();
    vmcb.control.nested_ctl |= nested_ctl::sev_enable | nested_ctl::sev_es_enable;
    CleanBitsChecker checker = after_one_run(vmcb);
    covered.field.set(vmcb, covered.field.get(vmcb) ^ 1U);
    vmcb.control.clean = all_bits;
    CHECK(checker.vmrun(0, page, vmcb).empty() == (covered.clean_bit >= 5 && covered.clean_bit <= 10));

    CleanBitsChecker old(all_but_avic().without(Feature::vmcb_clean));
    CHECK(old.vmrun(0, page, vmcb).empty());
  }
}

TEST_CASE("what the processor wrote at #VMEXIT is no change by software") {
  Guest guest;
  CleanBitsChecker checker(all_but_avic());
  CHECK(checker.vmrun(0, page, guest.vmcb).empty());
  guest.enter();
  guest.execute(ActionKind::mov_to_cr8, 0, 5);
  guest.execute(ActionKind::vmmcall);
  CHECK(int_ctl::v_tpr(guest.vmcb.control.int_ctl) == 5);
  checker.vmexit(0, page, guest.vmcb);
  guest.vmcb.control.clean = all_bits;
  CHECK(checker.vmrun(0, page, guest.vmcb).empty());
}

TEST_CASE("a processor that uses its cache runs the old intercepts") {
  Guest guest;
  guest.intercept(Intercept::hlt);
  CleanBitsChecker checker = after_one_run(guest.vmcb);
  guest.intercept(Intercept::hlt, false);
  guest.vmcb.control.clean = clean::intercepts;
  guest.vmcb = checker.as_seen(0, page, guest.vmcb);
  guest.enter();
  CHECK(guest.execute(ActionKind::hlt).kind == StepKind::vmexit);
}

TEST_CASE("as_seen() takes from the cache what the clean bits cover and nothing else") {
  CHECK(rc::check("as_seen", [] {
    Vmcb old = long_mode_vmcb();
    Vmcb now = long_mode_vmcb();
    for (const VmcbField& field : all_vmcb_fields()) {
      set_field(old, field, *rc::gen::arbitrary<std::uint64_t>());
      set_field(now, field, *rc::gen::arbitrary<std::uint64_t>());
    }
    old.control.nested_ctl = now.control.nested_ctl = 0;
    now.control.clean = *rc::gen::arbitrary<std::uint32_t>();
    CleanBitsChecker checker(all_but_avic());
    static_cast<void>(checker.vmrun(0, page, old));
    const Vmcb seen = checker.as_seen(0, page, now);
    std::set<std::string> covered_fields;
    for (const CleanField& covered : clean_fields()) {
      const bool cached = ((now.control.clean >> covered.clean_bit) & 1U) != 0;
      RC_ASSERT(covered.field.get(seen) == covered.field.get(cached ? old : now));
      covered_fields.insert(covered.field.field->name);
    }
    for (const VmcbField& field : all_vmcb_fields()) {
      if (covered_fields.count(field.name) == 0) RC_ASSERT(get_field(seen, field) == get_field(now, field));
    }
    // A second look finds exactly the fields that the two pages disagree on.
    std::size_t differences = 0;
    for (const CleanField& covered : clean_fields()) {
      if (((now.control.clean >> covered.clean_bit) & 1U) != 0 &&
          covered.field.get(old) != covered.field.get(now)) {
        ++differences;
      }
    }
    RC_ASSERT(checker.vmrun(0, page, now).size() == differences);
  }));
}
