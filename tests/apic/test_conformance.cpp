#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "apic/conformance/subjects.hpp"
#include "svm/conformance/case_file.hpp"
#include "svm/conformance/suite.hpp"

using namespace svmsim;
using namespace svmsim::svm::conformance;

namespace {

std::vector<SuiteCase> cases_of(const std::string& text) {
  TomlProblems problems("f.toml");
  const CaseNode root = parse_case_file(text, "f.toml", problems);
  REQUIRE(problems.empty());
  return suite_of(root, "f.toml", apic::conformance::all_subjects());
}

std::string problems_of(const std::string& text) {
  try {
    static_cast<void>(cases_of(text));
  } catch (const CaseError& error) {
    return error.what();
  }
  return "";
}

/// A case with everything that must be there, and `lines` beside it.
std::string one_case(const std::string& kind, const std::string& lines) {
  return "[[" + kind + "]]\nname = \"a case\"\nsource = \"a manual\"\nrule = \"a rule\"\n" + lines + "\n";
}

CaseResult result_of(const std::string& text) {
  const std::vector<SuiteCase> cases = cases_of(text);
  REQUIRE(cases.size() == 1);
  return cases.front().run();
}

std::string differences(const CaseResult& result) {
  std::string text;
  for (const FieldResult& one : result.fields) {
    if (!one.equal()) text += one.field + ": expected " + one.expected + ", seen " + one.seen + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("the built-in apic cases pass, and every case names its source and rule") {
  const std::vector<SuiteCase> cases = apic::conformance::builtin_apic_cases();
  const SuiteResult suite = run_cases(cases);
  for (const CaseResult& result : suite.results) {
    CAPTURE(result.name);
    CAPTURE(result.line);
    CHECK_FALSE(result.source.empty());
    CHECK_FALSE(result.rule.empty());
    CHECK(differences(result) == "");
  }
  CHECK(suite.failed == 0);
  CHECK(suite.passed == cases.size());
}

TEST_CASE("the suite of svmsim check holds both rooms' cases, each with a name of its own") {
  const std::vector<SuiteCase> all = apic::conformance::builtin_cases();
  CHECK(all.size() == builtin_cases().size() + apic::conformance::builtin_apic_cases().size());
  std::set<std::string> names;
  for (const SuiteCase& one : all)
    names.insert(one.name);
  CHECK(names.size() == all.size());
}

TEST_CASE("a wrong expectation of a lapic case fails field by field, units and events named") {
  const CaseResult result = result_of(one_case("lapic", R"(apics = 2
do = [{ do = "write", SVR = 0x1ff, apic = 1, expect = { apics = { "1" = { software_enabled = false } } } }, "ipi vector=0x41 to=1"]
expect = { targets = [0], apics = { "1" = { irr = [0x42], registers = { TPR = 1 } } } })"));
  CHECK_FALSE(result.passed);
  CHECK(differences(result) ==
        "event 1: apics.1.software_enabled: expected false, seen true\n"
        "targets: expected [0], seen [1]\n"
        "apics.1.registers.TPR: expected 1, seen 0\n"
        "apics.1.irr: expected [0x42], seen [0x41]\n");
  REQUIRE(result.trace.size() == 2);
  CHECK(result.trace[1] ==
        "ipi vector=0x41 to=1: ipi, dst 1 vec 65 (Fixed|physical|assert|edge|dst), APIC 1: accepted");
}

TEST_CASE("a wrong expectation of an avic case fails field by field") {
  const CaseResult result = result_of(one_case("avic", R"(mode = "xavic"
vcpus = 3
vcpu = { "1" = { running = false } }
do = ["ipi vector=0x41 shorthand=all_excluding_self"]
expect = { exit = "none" })"));
  CHECK(differences(result) ==
        "requested: expected [], seen [1, 2]\n"
        "doorbells: expected [], seen [0x102]\n"
        "exit: expected none, seen AVIC_INCOMPLETE_IPI (401h)\n");
}

TEST_CASE("an event in the middle must neither fault nor exit") {
  const CaseResult fault = result_of(one_case("lapic", R"(do = ["wrmsr msr=0x802 value=1", "eoi"]
expect = { effect = "eoi" })"));
  CHECK(differences(fault) == "event 1: fault: expected false, seen true\n");
  const CaseResult exit = result_of(one_case("avic", R"(mode = "xavic"
do = ["read APR", "eoi"]
expect = {})"));
  CHECK(differences(exit) == "event 1: exit: expected none, seen AVIC_NOACCEL (402h)\n");
}

TEST_CASE("what cannot happen is told, not done") {
  CHECK(differences(result_of(one_case("avic", R"(mode = "x2avic"
do = ["vmexit", "write TPR=0x20"]
expect = {})"))) == "impossible: expected none, seen vCPU 0 is not in guest mode with AVIC\n");
  CHECK(differences(result_of(one_case("avic", R"(mode = "x2avic"
vcpu = { "0" = { in_guest = false } }
do = ["acknowledge", "rdmsr msr=0x802"]
expect = {})"))) ==
        "event 1: impossible: expected none, seen vCPU 0 is not in guest mode with AVIC\n"
        "impossible: expected none, seen vCPU 0 is not in guest mode with AVIC\n");
  CHECK(differences(result_of(one_case("lapic", "do = [\"take_nmi\"]\nexpect = {}"))) ==
        "impossible: expected none, seen no NMI is deliverable\n");
}

TEST_CASE("mistakes are told with their lines and what was meant, all at once") {
  CHECK(problems_of(one_case("lapic", R"(mode = "x3apic"
apics = 3
do = ["wrte TPR=1", "write TRP=1", "write TPR=1 apix=1", "accept", "ipi vector=0x100 delivery=nmy", "eoi apic=3"]
expect = { irr = [256], modes = "xapic", effect = "storred", apics = { "3" = {} } }
extendet = true)")) ==
        R"(f.toml:5: lapic[0].mode: must be one of disabled, xapic, x2apic (did you mean xapic?)
f.toml:7: lapic[0].do[0].do: "wrte" is not an event (did you mean write?)
f.toml:7: lapic[0].do[1].TRP: "TRP" is not an APIC register (did you mean TPR?)
f.toml:7: lapic[0].do[2].apix: is not a known key (did you mean apic?)
f.toml:7: lapic[0].do[3].vector: is missing
f.toml:7: lapic[0].do[4].vector: is 0x100, but must be at most 0xff
f.toml:7: lapic[0].do[4].delivery: must be one of fixed, lowest_priority, smi, remote_read, nmi, init, startup, ext_int (did you mean nmi?)
f.toml:7: lapic[0].do[5].apic: is 3, but there are only 3
f.toml:8: lapic[0].expect.effect: must be one of #GP, stored, priority, eoi, ipi, ipi_refused, none, not_msi, accepted, merged, illegal_vector, disabled, masked, ignored, remote_read, smi, nmi, init, startup, ext_int, delivered, unaccepted, lowered (did you mean stored?)
f.toml:8: lapic[0].expect.irr[0]: is 0x100, but must be at most 0xff
f.toml:8: lapic[0].expect.apics.3: there is none: there are 3
f.toml:8: lapic[0].expect.modes: is not a known key (did you mean mode?)
f.toml:9: lapic[0].extendet: is not a known key (did you mean extended?))");
  CHECK(problems_of("[[avic]]\nname = \"x\"\nsource = \"s\"\nrule = \"r\"\nmode = \"xavic\"\n"
                    "do = [\"eoi\"]\nexpect = {}\n[[lapic]]\nname = \"x\"\nsource = \"s\"\nrule = \"r\"\n"
                    "do = []\n") ==
        R"(f.toml:2: avic[0].name: "x" is also the name of the case in line 8
f.toml:8: lapic[0].expect: is missing
f.toml:12: lapic[0].do: must not be empty)");
  CHECK(problems_of("") ==
        "f.toml:1: case: is missing: a file of cases has [[case]], [[lapic]], [[avic]] tables");
}

TEST_CASE("mistakes in avic cases") {
  CHECK(problems_of(one_case("avic", R"(mode = "xavik"
knobs = { nrip_is_nexd = true, idle_hlt_pending = "rav", host_mode_doorbell = "stall" }
vcpus = 0
vcpu = { "5" = {} }
logical = { "x" = 1 }
intercepts = ["HALT"]
do = ["post devise=1", "read", "ipi vector=1 mode=logic"]
expect = { exit = "AVIC_NOACEL", rip = "before" })")) ==
        R"(f.toml:5: avic[0].mode: must be one of xavic, x2avic (did you mean xavic?)
f.toml:6: avic[0].knobs.host_mode_doorbell: must be one of dropped, stalls, pending (did you mean stalls?)
f.toml:6: avic[0].knobs.idle_hlt_pending: must be raw, priority or deliverable (did you mean raw?)
f.toml:6: avic[0].knobs.nrip_is_nexd: is not a knob (did you mean nrip_is_next?)
f.toml:7: avic[0].vcpus: must be at least 1
f.toml:8: avic[0].vcpu.5: there is none: there are 1
f.toml:9: avic[0].logical.x: must be a number of at most 0x3ff
f.toml:10: avic[0].intercepts[0]: "HALT" is not an intercept (did you mean HLT?)
f.toml:11: avic[0].do[0].devise: is not a known key (did you mean device?)
f.toml:11: avic[0].do[1].do: needs a register, as in "write TPR=0x20"
f.toml:11: avic[0].do[2].mode: must be one of physical, logical (did you mean logical?)
f.toml:12: avic[0].expect.exit: "AVIC_NOACEL" is not an exit (did you mean AVIC_NOACCEL?)
f.toml:12: avic[0].expect.rip: must be one of at, after)");
}
