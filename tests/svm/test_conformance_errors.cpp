#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "svm/conformance/case_reader.hpp"
#include "svm/conformance/suite.hpp"
#include "svm/user_error.hpp"

using namespace svmsim;
using namespace svmsim::svm::conformance;

namespace {

std::string problems_of(const std::string& text) {
  try {
    static_cast<void>(read_cases(text, "f.toml"));
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

const std::string head = "[[case]]\nname = \"n\"\nsource = \"s\"\nrule = \"r\"\n";  // lines 1 to 4

/// The problems of a case with one more line, the fifth, and the expectation that the guest calls.
std::string with(const std::string& line) {
  return problems_of(head + line + "\nexpect = { exit = \"VMMCALL\" }\n");
}
std::string expecting(const std::string& expect) {
  return problems_of(head + "expect = " + expect + "\n");
}

}  // namespace

TEST_CASE("every problem of a file is told at once, with its line and the nearest name") {
  CHECK(problems_of(R"([[case]]
nam = "x"
source = 5
vmcb = { int_ctl.v_irqq = 1, asid = "many", intercepts = ["hlt", "clgj"] }
program = ["hlt", { do = "wrmsrr" }, "rdmsr msrr=1"]
expect = { exit = "HALT", retird = 1, rip = "there" }
)") == R"(f.toml:1: case[0].name: is missing
f.toml:1: case[0].rule: is missing
f.toml:2: case[0].nam: is not a known key (did you mean name?)
f.toml:3: case[0].source: must be a string, not an integer
f.toml:4: case[0].vmcb.asid: must be a number, not "many"
f.toml:4: case[0].vmcb.int_ctl.v_irqq: the VMCB has no "int_ctl.v_irqq" (did you mean int_ctl.v_irq?)
f.toml:4: case[0].vmcb.intercepts[1]: "clgj" is not an intercept (did you mean CLGI?)
f.toml:5: case[0].program[1].do: "wrmsrr" is not an action (did you mean wrmsr?)
f.toml:5: case[0].program[2].msrr: is not a known key (did you mean msr?)
f.toml:6: case[0].expect.exit: "HALT" is not an exit code (did you mean HLT?)
f.toml:6: case[0].expect.rip: must be "at" or "after" (the last action), "handler VECTOR", or an offset from the start of the program
f.toml:6: case[0].expect.retird: the VMCB has no "retird" (did you mean retired?))");
}

TEST_CASE("what is no file of cases") {
  CHECK(problems_of("") == "f.toml:1: case: is missing: a file of cases has [[case]] tables");
  CHECK(problems_of("case = 5") == "f.toml:1: case: must be an array, not an integer");
  CHECK(problems_of("case = [5]") == "f.toml:1: case[0]: must be a table, not an integer");
  CHECK(problems_of("x = 1\n[[case").find("f.toml:2: ") == 0);
  CHECK(problems_of("y = 1\n" + head + "expect = { exit = \"HLT\" }") == "f.toml:1: y: is not a known key");
}

TEST_CASE("settings of the processor by their names") {
  CHECK(with("features = [\"-nrip\"]") ==
        "f.toml:5: case[0].features[0]: \"nrip\" is not an SVM feature (did you mean nrips?)");
  CHECK(with("features = [\"nrips\"]") ==
        "f.toml:5: case[0].features[0]: must be a text such as \"+vnmi\" or \"-nrips\"");
  CHECK(with("knobs = { idle_hlt_pending = \"pri\" }") ==
        "f.toml:5: case[0].knobs.idle_hlt_pending: must be raw, priority or deliverable");
  CHECK(with("knobs = { idle_hlt_pend = 1 }") ==
        "f.toml:5: case[0].knobs.idle_hlt_pend: is not a knob (did you mean idle_hlt_pending?)");
  CHECK(with("limits = { physical_addr_bits = 48 }") ==
        "f.toml:5: case[0].limits.physical_addr_bits: is not a limit of a processor (did you mean "
        "physical_address_bits?)");
  CHECK(with("limits = { physical_address_bits = 53 }") ==
        "f.toml:5: case[0].limits.physical_address_bits: is 0x35, but must be at most 0x34");
}

TEST_CASE("numbers fit their field, also negative ones and those beyond 63 bits") {
  CHECK(with("vmcb.int_ctl.v_tpr = 16") ==
        "f.toml:5: case[0].vmcb.int_ctl.v_tpr: is 0x10, but must be at most 0xf");
  CHECK(with("vmcb.tsc_offset = -5") == "none");
  CHECK(with("vmcb.cr4 = \"0xffff_ffff_fe08_e000\"") == "none");
  CHECK(with("vmcb.pause_filter_count = -40000") ==
        "f.toml:5: case[0].vmcb.pause_filter_count: is -40000, which the field cannot hold");
  CHECK(with("program = [\"in port=0x10000\"]") ==
        "f.toml:5: case[0].program[0].port: is 0x10000, but must be at most 0xffff");
  CHECK(with("program = [\"in port=\"]") == "f.toml:5: case[0].program[0].port: must be a number, not \"\"");
  CHECK(with("msrs = { tsc = 5 }") == "f.toml:5: case[0].msrs.tsc: must be a number of at most 0xffffffff");
}

TEST_CASE("expectations that cannot be") {
  CHECK(expecting("{ halted = true }") ==
        "f.toml:5: case[0].expect.exit: is missing (\"none\" if the guest does not exit)");
  CHECK(expecting("{ exit = \"none\", rflags.if = 1 }") ==
        "f.toml:5: case[0].expect.rflags.if: is in the VMCB, which is written at #VMEXIT only");
  CHECK(expecting("{ exit = \"INVALID\", violations = [\"asid_nil\"] }") ==
        "f.toml:5: case[0].expect.violations[0]: \"asid_nil\" is no rule of VMRUN (did you mean asid_zero?)");
  CHECK(problems_of(head) == "f.toml:1: case[0].expect: is missing");
  CHECK(problems_of(head + "vmrun = []") == "f.toml:5: case[0].vmrun: must not be empty");
}

TEST_CASE("tables: unknown and unused parameters, at the line of the row") {
  const std::string table = head + R"(vmcb.asid = "$asid"
expect = { exit = "$exit" }
table = [
  { asid = 1, exit = "HLT" },
  { asdi = 1, exit = "HLT" },
]
)";
  const std::string problems = problems_of(table);
  CHECK(
      problems.find("f.toml:5: case[0].table[1].vmcb.asid: $asid is no parameter of this table (did you mean "
                    "$asdi?)") != std::string::npos);
  CHECK(problems.find("f.toml:9: case[0].table[1].asdi: is not used: $asdi occurs nowhere in the case") !=
        std::string::npos);
  CHECK(problems.find("f.toml:2: case[0].table[1].name: \"n\" is also the name of the case in line 8") !=
        std::string::npos);
  CHECK(with("defaults = { a = 1 }") ==
        "f.toml:5: case[0].defaults: is for the rows of a table, and there is none");
}

TEST_CASE("files: absent ones, and names that occur twice") {
  const std::string directory = std::filesystem::temp_directory_path() / "svmsim_test_conformance";
  std::filesystem::create_directories(directory);
  const std::string a = directory + "/a.toml";
  const std::string b = directory + "/b.toml";
  for (const std::string& path : {a, b})
    std::ofstream(path) << head << "program = [\"vmmcall\"]\nexpect = { exit = \"VMMCALL\" }\n";
  CHECK(run_cases(load_cases({a})).passed == 1);
  try {
    static_cast<void>(load_cases({a, b, directory + "/c.toml", directory}));
    FAIL("no problem");
  } catch (const UserError& error) {
    REQUIRE(error.problems().size() == 3);
    CHECK(error.problems()[0].text() == b + ":1: name: \"n\" is also the name of the case at " + a + ":1");
    CHECK(error.problems()[1].text() == directory + "/c.toml: cannot be read: no such file");
    CHECK(error.problems()[2].text() == directory + ": cannot be read: no such file");
  }
  try {
    static_cast<void>(filter_cases(load_cases({a}), "m*"));
    FAIL("no problem");
  } catch (const UserError& error) {
    CHECK(error.problems().front().message == "matches the name of no case");
  }
  std::filesystem::remove_all(directory);
}

TEST_CASE("garbage is refused or read, never more") {
  rc::check("garbage", [] {
    const auto text = *rc::gen::container<std::string>(
        rc::gen::oneOf(rc::gen::element('[', ']', '{', '}', '"', '=', ',', '\n', '$', '.', 'c'),
                       rc::gen::arbitrary<char>()));
    static_cast<void>(problems_of(text));
    static_cast<void>(problems_of(head + text));
    static_cast<void>(with("vmcb = {" + text + "}"));
    static_cast<void>(with("program = [\"" + text + "\"]"));
  });
}
