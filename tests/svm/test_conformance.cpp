#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "svm/conformance/case_reader.hpp"
#include "svm/conformance/names.hpp"
#include "svm/conformance/runner.hpp"
#include "svm/conformance/suite.hpp"
#include "svm/exit_code.hpp"
#include "svm/user_error.hpp"

using namespace svmsim;
using namespace svmsim::svm::conformance;

namespace {

/// A case with everything that must be there, and `lines` beside it.
std::string one_case(const std::string& lines, const std::string& expect = "{ exit = \"VMMCALL\" }") {
  return "[[case]]\nname = \"a case\"\nsource = \"a manual\"\nrule = \"a rule\"\n" + lines +
         "\nexpect = " + expect + "\n";
}

CaseResult result_of(const std::string& text) {
  const std::vector<Case> cases = read_cases(text, "test.toml");
  REQUIRE(cases.size() == 1);
  return run_case(cases.front());
}

const FieldResult& field(const CaseResult& result, const std::string& name) {
  const auto found = std::find_if(result.fields.begin(), result.fields.end(),
                                  [&](const FieldResult& one) { return one.field == name; });
  REQUIRE(found != result.fields.end());
  return *found;
}

}  // namespace

TEST_CASE("the built-in suite passes, and every case names its source and rule") {
  const std::vector<SuiteCase> cases = builtin_cases();
  const SuiteResult suite = run_cases(cases);
  for (const CaseResult& result : suite.results) {
    CAPTURE(result.name);
    CHECK_FALSE(result.source.empty());
    CHECK_FALSE(result.rule.empty());
    for (const FieldResult& one : result.fields) {
      CAPTURE(one.field);
      CHECK(one.seen == one.expected);
    }
  }
  CHECK(suite.failed == 0);
  CHECK(suite.passed == cases.size());
}

TEST_CASE("two runs of the suite say the same, to the last line of the trace") {
  const SuiteResult first = run_cases(builtin_cases());
  const SuiteResult second = run_cases(builtin_cases());
  REQUIRE(first.results.size() == second.results.size());
  for (std::size_t i = 0; i < first.results.size(); ++i) {
    CHECK(first.results[i].name == second.results[i].name);
    CHECK(first.results[i].trace == second.results[i].trace);
  }
}

TEST_CASE("a wrong expectation fails field by field, with what was seen") {
  const CaseResult result = result_of(one_case(
      "vmcb = { intercepts = [\"hlt\"] }\nprogram = [\"nop\", \"hlt\"]",
      R"({ exit = "IDLE_HLT", rip = 0, nrip = "after", retired = 1, delivered = [0x51], rflags.if = 1, cr0 = 0x80010001 })"));
  CHECK_FALSE(result.passed);
  CHECK(field(result, "exit").expected == "IDLE_HLT (a6h)");
  CHECK(field(result, "exit").seen == "HLT (78h)");
  CHECK(field(result, "rip").expected == "0x100000");
  CHECK(field(result, "rip").seen == "0x100001");
  CHECK(field(result, "nrip").equal());
  CHECK(field(result, "retired").equal());
  CHECK(field(result, "delivered").seen == "[]");
  CHECK(field(result, "rflags.if").seen == "0x0");
  CHECK(field(result, "cr0").equal());
  CHECK(result.rule == "a rule");
}

TEST_CASE("a failed VMRUN is told with the rules that failed") {
  const CaseResult result = result_of(
      one_case("vmcb = { asid = 0 }", R"({ exit = "INVALID", violations = ["asid_zero", "svme_clear"] })"));
  CHECK(field(result, "exit").equal());
  CHECK(field(result, "violations").seen == "asid_zero");
  CHECK_FALSE(result.passed);
}

TEST_CASE("the guest goes on at its rIP, between which the hypervisor changes what it likes") {
  const CaseResult result = result_of(R"(
[[case]]
name = "several"
source = "here"
rule = "none"
program = ["cpuid", "arrive intr=0x51", "sti", "nop", "vmmcall"]
[[case.vmrun]]
vmcb = { intercepts = ["cpuid", "INTR"] }
expect = { exit = "CPUID", rip = 0 }
[[case.vmrun]]
skip = true
expect = { exit = "INTR", rip = 3, pending.intr = [0x51] }
[[case.vmrun]]
vmcb = { intercepts = ["-intr"] }
expect = { exit = "VMMCALL", rip = 4, delivered = [0x51], pending.intr = [] }
)");
  for (const FieldResult& one : result.fields) {
    CAPTURE(one.field);
    CHECK(one.seen == one.expected);
  }
  CHECK(field(result, "vmrun 2: exit").seen == "INTR (60h)");
}

TEST_CASE("a table is one case for each row, with the types of its parameters") {
  const std::vector<Case> cases = read_cases(R"(
[[case]]
name = "in/$port/${size}bytes"
source = "APM vol. 2, 15.10"
rule = "$rule"
vmcb = { intercepts = ["ioio", "$also"] }
iopm = { set = ["$port"] }
program = ["in port=$port size=$size"]
expect = { exit = "IOIO", info1 = { value = "$info", mask = 0xffff0000 } }
defaults = { also = [], rule = "the bit of the port" }
table = [
  { port = 0x80, size = 1, info = 0x800000 },
  { port = 0x3f8, size = 2, info = "0x3f8_0000", also = ["hlt", "#GP"], rule = "another" },
]
)",
                                             "test.toml");
  REQUIRE(cases.size() == 2);
  CHECK(cases[0].name == "in/0x80/1bytes");
  CHECK(cases[1].name == "in/0x3f8/2bytes");
  CHECK(cases[1].rule == "another");
  CHECK(cases[0].runs[0].vmcb.intercepts.size() == 1);
  CHECK(cases[1].runs[0].vmcb.intercepts.size() == 3);
  for (const Case& one : cases)
    CHECK(run_case(one).passed);
}

TEST_CASE("handlers have programs, and a fault's handler steps over the fault") {
  const CaseResult result = result_of(one_case(
      R"(vmcb = { intercepts = ["cpuid", "-vmmcall"] }
handlers = { "6" = ["nop", "iret"] }
program = ["vmmcall", "nop", "cpuid"])",
      R"({ exit = "CPUID", delivered = [6], retired = 1, rip = 4 })"));
  CHECK(result.passed);
  const CaseResult inside = result_of(one_case(
      R"(vmcb = { intercepts = ["cpuid", "-vmmcall"] }
handlers = { "6" = ["cpuid", "iret"] }
program = ["vmmcall", "vmmcall"])",
      R"({ exit = "CPUID", delivered = [6], retired = 0, rip = "handler 6" })"));
  CHECK(inside.passed);
}

TEST_CASE("a guest without more to do is seen where it is") {
  CHECK(
      result_of(one_case("program = [\"hlt\", \"nop\"]", R"({ exit = "none", halted = true, retired = 1 })"))
          .passed);
  CHECK(result_of(one_case("program = [\"nop\"]", R"({ exit = "none", halted = false, rip = "after" })"))
            .passed);
  const CaseResult woken =
      result_of(one_case("vmcb.rflags.if = 1\nprogram = [\"hlt\", \"arrive intr=0x51\", \"vmmcall\"]",
                         R"({ exit = "VMMCALL", delivered = [0x51] })"));
  CHECK(woken.passed);
}

TEST_CASE("names of exits in every spelling") {
  using svmsim::svm::exit_code::exception;
  CHECK(exit_code_named("HLT") == 0x78);
  CHECK(exit_code_named("vmexit_hlt") == 0x78);
  CHECK(exit_code_named("write_cr0") == 0x10);
  CHECK(exit_code_named("CR0_WRITE") == 0x10);
  CHECK(exit_code_named("#PF") == exception(14));
  CHECK(exit_code_named("PF excp") == exception(14));
  CHECK(exit_code_named("EXCP14") == exception(14));
  CHECK(exit_code_named("0xa6") == 0xa6);
  CHECK(exit_code_named("-1") == ~std::uint64_t{0});
  CHECK_FALSE(exit_code_named("HALT"));
  CHECK_FALSE(intercept_named("NPF"));
  CHECK(exit_text(0x4d) == "#GP (4dh)");
  CHECK(exit_text(~std::uint64_t{0}) == "INVALID (-1)");
  CHECK(exit_text(0x500) == "500h");
}

TEST_CASE("globs") {
  CHECK(matches("hlt/intercept", "*"));
  CHECK(matches("hlt/intercept", "hlt/*"));
  CHECK(matches("hlt/intercept", "*cept"));
  CHECK(matches("hlt/intercept", "h?t/*t*t"));
  CHECK(matches("io/in8", "io/in[0-9]"));
  CHECK(matches("io/in8", "io/in[!a-z]"));
  CHECK_FALSE(matches("io/inx", "io/in[0-9]"));
  CHECK_FALSE(matches("hlt/intercept", "hlt"));
  CHECK_FALSE(matches("hlt", "hlt?"));
  CHECK_FALSE(matches("", "?"));
  CHECK(matches("", "**"));
  CHECK(matches("a[b", "a[b"));
}
