#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "tests/workloads/program_driver.hpp"
#include "workloads/program_loader.hpp"

using namespace svmsim;
using namespace svmsim::workloads;

namespace {

using Lines = std::vector<std::string>;

/// Texts of all problems of a program file; the file's lines count from 1.
Lines problems(const std::string& text) {
  Lines result;
  try {
    (void)parse_program(text, "p.toml");
  } catch (const UserError& error) {
    for (const Problem& problem : error.problems())
      result.push_back(problem.text());
  }
  return result;
}

const std::string head = "name = 'p'\ndoc = 'd'\n";

/// Problems of a program whose third line is `line`.
Lines line_problems(const std::string& line) {
  return problems(head + line + "\n");
}

}  // namespace

TEST_CASE("a small program is right") {
  CHECK(line_problems("body = [ { do = 'nop' } ]").empty());
}

TEST_CASE("all problems come at once, in file order, with line, path and nearest name") {
  CHECK(problems(R"(naem = "p"
doc = 7
vcpus = 0
body = [
  { do = "hlt", rip = -1 },
  { do = "hltt" },
  { do = "wrmsr", mrs = 0x830, value = 1 },
  { do = "cli", port = 3 },
  { do = "out", port = 0x10000, value = "$valeu" },
  { do = "nop", repeat = "$flag" },
  "cli",
]
[[parameter]]
name = "value"
default = 1
doc = "d"
[[parameter]]
name = "flag"
default = true
doc = "d"
[repeat]
until_cycles = "$value"
stat = 1
)") == Lines{
           "p.toml:1: name: is missing",
           "p.toml:1: naem: is not a known key (did you mean name?)",
           "p.toml:2: doc: must be a string, not an integer",
           "p.toml:3: vcpus: is 0, but must be from 1 to 4096",
           "p.toml:5: body[0].rip: is -1, but must be from 0 to 18446744073709551615",
           "p.toml:6: body[1].do: \"hltt\" is not an action (did you mean hlt?)",
           "p.toml:7: body[2].msr: is missing",
           "p.toml:7: body[2].mrs: is not a key of wrmsr (did you mean msr?)",
           "p.toml:8: body[3].port: is not a key of cli",
           "p.toml:9: body[4].port: is 65536, but must be from 0 to 65535",
           "p.toml:9: body[4].value: $valeu is not a parameter of this program (did you mean $value?)",
           "p.toml:10: body[5].repeat: needs an integer parameter, and $flag is none",
           "p.toml:11: body[6]: must be a table, not a string",
           "p.toml:23: repeat.stat: is not a known key (did you mean start?)",
       });
}

TEST_CASE("each field of an action is checked") {
  const auto body = [](const std::string& action) { return line_problems("body = [ { " + action + " } ]"); };
  const auto one = [](const std::string& text) { return Lines{"p.toml:3: body[0]" + text}; };
  CHECK(body("rip = 1") == one(".do: is missing"));
  CHECK(body("do = 1") == one(".do: must be a string, not an integer"));
  CHECK(body("do = 'compute'") == one(".cycles: is missing"));
  CHECK(body("do = 'compute', cycles = 4294967296") ==
        one(".cycles: is 4294967296, but must be from 0 to 4294967295"));
  CHECK(body("do = 'nop', length = 16") == one(".length: is 16, but must be from 0 to 15"));
  CHECK(body("do = 'compute', cycles = 1, length = 255").empty());
  CHECK(body("do = 'nop', cpl = 4") == one(".cpl: is 4, but must be from 0 to 3"));
  CHECK(body("do = 'nop', cycles = 1.5") ==
        one(".cycles: must be a number or a parameter (\"$name\"), not a floating-point number"));
  CHECK(body("do = 'nop', cycles = 'x'") ==
        one(".cycles: \"x\" is neither a number nor a parameter (\"$name\")"));
  CHECK(body("do = 'wrmsr', msr = 1") == one(".value: is missing"));
  CHECK(body("do = 'wrmsr', msr = 1, value = '0xffffffffffffffff'").empty());
  CHECK(body("do = 'wrmsr', msr = 1, value = '0x1ffffffffffffffff'") ==
        one(".value: \"0x1ffffffffffffffff\" is neither a number nor a parameter (\"$name\")"));
  CHECK(body("do = 'wrmsr', msr = '0x100000000', value = 0") ==
        one(".msr: is 0x100000000, but must be from 0 to 4294967295"));
  CHECK(body("do = 'rdmsr'") == one(".msr: is missing"));
  CHECK(body("do = 'in'") == one(".port: is missing"));
  CHECK(body("do = 'in', port = 1, size = 3") == one(".size: must be a power of two"));
  CHECK(body("do = 'in', port = 1, size = 8") == one(".size: is 8, but must be from 1 to 4"));
  CHECK(body("do = 'memory_read'") == one(".address: is missing"));
  CHECK(body("do = 'vmmcall', arguments = [1, 2, 3, 4, 5]") ==
        one(".arguments: are four at the most: RBX, RCX, RDX, RSI"));
  CHECK(body("do = 'vmmcall', arguments = ['y']") ==
        one(".arguments: \"y\" is neither a number nor a parameter (\"$name\")"));
  CHECK(body("do = 'nop', when = true") ==
        one(".when: must be a boolean parameter (\"$name\"), not a boolean"));
  CHECK(body("do = 'nop', when = 'x'") ==
        one(".when: \"x\" is neither a number nor a parameter (\"$name\")"));
  CHECK(body("do = 'iret'") == one(": iret can only be the last action of a handler"));
  CHECK(body("do = 'halt_until', vector = 0x41") == one(".vector: 0x41 has no handler"));
  CHECK(body("do = 'halt_until'") == one(".vector: is missing"));
  CHECK(body("do = 'rdtsc', start = 'a'") == one(".start: stopwatch \"a\" is never stopped"));
  CHECK(body("do = 'rdtsc', stop = 'a'") == one(".stop: stopwatch \"a\" is never started"));
  CHECK(body("do = 'rdtsc', start = 'a', stop = 'a'") == one(": can start or stop a stopwatch, not both"));
  CHECK(body("do = 'rdtsc', start = 'a', repeat = 2 }, { do = 'rdtsc', stop = 'a'") ==
        one(".repeat: does not go with a stopwatch"));
}

TEST_CASE("parameters are checked, and so is every place that uses one") {
  const auto with = [](const std::string& parameter, const std::string& body = "do = 'nop'") {
    return problems(head + "body = [ { " + body + " } ]\n[[parameter]]\ndoc = 'd'\n" + parameter + "\n");
  };
  const auto one = [](int line, const std::string& text) {
    return Lines{"p.toml:" + std::to_string(line) + ": " + text};
  };
  CHECK(with("name = 'n'\ndefault = 5").empty());
  CHECK(with("default = 5") == one(4, "parameter[0].name: is missing"));
  CHECK(with("name = 'n'") == one(4, "parameter[0].default: is missing"));
  CHECK(with("name = 'kind'\ndefault = 1") == one(6, "parameter[0].name: is a key that every workload has"));
  CHECK(with("name = 'A-b'\ndefault = 1") == one(6, "parameter[0].name: must consist of a-z, 0-9 and _"));
  CHECK(with("name = 'n'\ndefault = [1]") ==
        one(7, "parameter[0].default: must be a boolean, a number or a string, not an array"));
  CHECK(with("name = 'n'\ndefault = 9\nmax = 8") ==
        one(7, "parameter[0].default: is 9, but must be from 0 to 8"));
  CHECK(with("name = 'n'\ndefault = 9\nmax = -8") == one(8, "parameter[0].max: leaves nothing from 0 to -8"));
  CHECK(with("name = 'n'\ndefault = 9\nmin = 10\nmax = 8") ==
        one(8, "parameter[0].min: leaves nothing from 10 to 8"));
  CHECK(with("name = 'n'\ndefault = true\nmin = 0") ==
        one(8, "parameter[0].min: is only for parameters with an integer default"));
  CHECK(with("name = 'n'\ndefault = 1\nmin = 'a'") ==
        one(8, "parameter[0].min: must be an integer, not a string"));
  CHECK(with("name = 'n'\ndefault = 1\n[[parameter]]\nname = 'n'\ndefault = 1\ndoc = 'd'") ==
        one(9, "parameter[1].name: \"n\" is declared twice"));
  // A parameter's whole range must fit where it is used.
  CHECK(with("name = 'n'\ndefault = 1\nmax = 70000", "do = 'in', port = '$n'") ==
        one(3, "body[0].port: must be from 0 to 65535, but $n may be from 0 to 70000"));
  CHECK(with("name = 'n'\ndefault = 1\nmin = -1", "do = 'nop', repeat = '$n'") ==
        one(3,
            "body[0].repeat: must be from 0 to 18446744073709551615, but $n may be from -1 to "
            "9223372036854775807"));
  CHECK(with("name = 'n'\ndefault = 1", "do = 'nop', when = '$n'") ==
        one(3, "body[0].when: needs a boolean parameter, and $n is none"));
  CHECK(with("name = 'n'\ndefault = true", "do = 'nop', when = '$n', unless = '$n'") ==
        one(3, "body[0].unless: does not go with when"));
  CHECK(with("name = 'n'\ndefault = 'x'", "do = 'wrmsr', msr = 1, value = '$n'") ==
        one(3, "body[0].value: needs an integer parameter, and $n is none"));
}

TEST_CASE("handlers, checks, vCPUs, the initial state and the repetition are checked") {
  const std::string body = "body = [ { do = 'nop' } ]\n";  // line 3
  const auto one = [](int line, const std::string& text) {
    return Lines{"p.toml:" + std::to_string(line) + ": " + text};
  };
  const auto with = [&body](const std::string& text) { return problems(head + body + text + "\n"); };
  CHECK(with("[[handler]]\nvector = 1\nactions = [ { do = 'nop' } ]") ==
        one(4, "handler[0].actions: must end with iret"));
  CHECK(with("[[handler]]\nvector = 1") == Lines{"p.toml:4: handler[0].actions: is missing",
                                                 "p.toml:4: handler[0].actions: must end with iret"});
  CHECK(with("[[handler]]\nvector = 256\nactions = [ { do = 'iret' } ]") ==
        one(5, "handler[0].vector: is 256, but must be from 0 to 255"));
  CHECK(with("[[handler]]\nvector = 1\nactions = [ { do = 'iret' } ]\n[[handler]]\nvector = 1\nactions = [ { "
             "do = 'iret' } ]") == one(7, "handler[1].vector: 0x1 has a handler already"));
  CHECK(with("[[handler]]\nvector = 1\nactions = [ { do = 'iret' }, { do = 'iret' } ]") ==
        one(6, "handler[0].actions[0]: iret can only be the last action of a handler"));
  CHECK(with("[[handler]]\nvector = 1\nactions = [ { do = 'halt_until', vector = 1 }, { do = 'iret' } ]") ==
        one(6, "handler[0].actions[0]: halt_until cannot stand in a handler"));
  CHECK(with("[[check]]\nvector = 1") == one(5, "check[0].vector: 0x1 has no handler"));
  CHECK(with("[[check]]\nvektor = 1") ==
        Lines{"p.toml:4: check[0].vector: is missing",
              "p.toml:5: check[0].vektor: is not a known key (did you mean vector?)"});
  CHECK(with("[[vcpu]]\nvcpu = 1") == one(5, "vcpu[0].vcpu: is 1, but the program asks for 1 vCPUs"));
  CHECK(with("[[vcpu]]\nvcpu = 'other'") ==
        one(5, "vcpu[0].vcpu: must be a vCPU index or \"others\" (did you mean others?)"));
  CHECK(with("[[vcpu]]\nvcpu = 0\n[[vcpu]]\nvcpu = 0") == one(7, "vcpu[1].vcpu: 0 has a section already"));
  CHECK(with("[[vcpu]]\nvcpu = 'others'\n[[vcpu]]\nvcpu = 'others'") ==
        one(7, "vcpu[1].vcpu: \"others\" has a section already"));
  CHECK(with("[[vcpu]]") == one(4, "vcpu[0].vcpu: is missing"));
  CHECK(with("[initial]\ninterrupts_enabled = 1") ==
        one(5, "initial.interrupts_enabled: must be true or false, not an integer"));
  CHECK(with("[initial]\nabsent_pages = [1]") ==
        one(5, "initial.absent_pages: must hold addresses of 4 KiB pages"));
  CHECK(with("[initial]\napic_svr = 0x400") ==
        one(5, "initial.apic_svr: is 1024, but must be from 0 to 1023"));
  CHECK(with("[repeat]") == one(4, "repeat.count: is missing, and so is until_cycles"));
  CHECK(with("[repeat]\ncount = 1\nstart = 2") ==
        one(6, "repeat.start: is not a key of a plain repetition; until_cycles makes it a harness"));
  CHECK(with("[repeat]\nuntil_cycles = 1\nstart = 0") ==
        one(6, "repeat.start: is 0, but must be from 1 to 4294967295"));
  CHECK(with("repeat = 5") == one(4, "repeat: must be a table, not an integer"));
  CHECK(with("report_statistics = [1]") ==
        one(4, "report_statistics: must be a list of strings, not an integer"));
  CHECK(with("handler = 1") == one(4, "handler: must be an array, not an integer"));
  CHECK(with("check = [1]") == one(4, "check[0]: must be a table, not an integer"));
  CHECK(problems(head) == one(1, "body: is missing: no vCPU has anything to do"));
}

TEST_CASE("text that is no TOML is a problem with its line") {
  const Lines lines = problems("name = 'p'\ndoc = \n");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].rfind("p.toml:2: ", 0) == 0);
  CHECK(problems(std::string(5000, '[')).size() == 1);
  CHECK(problems(std::string("name\0 = 1", 9)).size() == 1);
  CHECK(problems("name = '\xff\xfe'").size() == 1);
}

TEST_CASE("no text makes the loader do anything but accept or explain") {
  const bool held = rc::check("mutated programs", [] {
    std::string text;
    {
      std::ifstream file(std::string(SVMSIM_SOURCE_DIR) + "/workloads/programs/ping_pong.toml");
      std::ostringstream all;
      all << file.rdbuf();
      text = all.str();
    }
    RC_ASSERT(!text.empty());
    const int edits = *rc::gen::inRange(1, 6);
    for (int i = 0; i < edits; ++i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
      const auto length = *rc::gen::inRange<std::size_t>(0, 12);
      const auto with = *rc::gen::element<std::string>("", "\"", "[", "]", "=", "$", "-", "9999999999", "{",
                                                       "}", "\n", "x");
      text.replace(at, std::min(length, text.size() - at), with);
      RC_PRE(!text.empty());
    }
    try {
      const Program program = parse_program(text, "p.toml");
      std::vector<ParameterValue> values;
      for (const ProgramParameter& parameter : program.info.parameters)
        values.push_back(parameter.default_value);
      (void)make_source(program, values, 0)->current();
    } catch (const UserError& error) {
      RC_ASSERT(!error.problems().empty());
      for (const Problem& problem : error.problems())
        RC_ASSERT(problem.source == "p.toml");
    }
  });
  CHECK(held);
}

TEST_CASE("a spec is checked against its program") {
  const auto texts = [](const WorkloadSpec& spec) {
    Lines result;
    for (const Problem& problem : check_spec(spec, "vm.vm0.workload"))
      result.push_back(problem.text());
    return result;
  };
  CHECK(texts({"idle_hlt_test", {{"iterations", std::int64_t{10}}}}).empty());
  CHECK(
      texts({"idle_hlt_tset", {}}) ==
      Lines{
          "vm.vm0.workload.kind: \"idle_hlt_tset\" is not a built-in program (did you mean idle_hlt_test?)"});
  CHECK(texts({"idle_hlt_test",
               {{"goal", true}, {"iterations", std::int64_t{-1}}, {"setup_msr_write", std::int64_t{1}}}}) ==
        Lines{"vm.vm0.workload.goal: must be an integer, not a boolean",
              "vm.vm0.workload.iterations: is -1, but must be from 0 to 9223372036854775807",
              "vm.vm0.workload.setup_msr_write: idle_hlt_test has no such parameter (did you mean "
              "setup_msr_writes?)"});
  CHECK(texts({"in_kernel_io", {{"write", std::string{"yes"}}}}) ==
        Lines{"vm.vm0.workload.write: must be a boolean, not a string"});
  CHECK(texts({"./nowhere.toml", {}}) ==
        Lines{"vm.vm0.workload.kind: there is no program file \"./nowhere.toml\""});
  CHECK(texts({"/", {}}) == Lines{"vm.vm0.workload.kind: there is no program file \"/\""});
  CHECK_THROWS_AS((void)make_program({"cpuid", {{"leaf", 1.5}}}, 0, 1), UserError);
  CHECK_THROWS_AS((void)make_program({"cpuid", {}}, 1, 1), InternalError);
  CHECK_THROWS_AS((void)resolved_parameters({"cpuid", {{"leaf", 1.5}}}), UserError);
}

TEST_CASE("resolved parameters are the defaults with the overrides on top") {
  const auto values = resolved_parameters({"idle_hlt_test", {{"goal", std::int64_t{5}}}});
  CHECK(values == std::map<std::string, ParameterValue>{{"goal", std::int64_t{5}},
                                                        {"iterations", std::int64_t{0}},
                                                        {"setup_msr_writes", std::int64_t{53}}});
  CHECK(std::get<std::int64_t>(resolved_parameters({"idle_hlt_test", {}}).at("goal")) == 1073741824);
}

namespace {

/// A file in the test's working directory, removed at the end.
struct TemporaryFile {
  TemporaryFile(std::string file_name, const std::string& text) : name(std::move(file_name)) {
    std::ofstream(name) << text;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::remove(name.c_str()); }
  std::string name;
};

/// The first TOML block of docs/programs.md: the example that users copy.
std::string documented_example() {
  std::ifstream file(std::string(SVMSIM_SOURCE_DIR) + "/docs/programs.md");
  std::string line;
  std::string text;
  while (std::getline(file, line) && line != "```toml") {
  }
  while (std::getline(file, line) && line != "```")
    text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("a user's own file runs by its path, and the documented example is one") {
  const std::string text = documented_example();
  REQUIRE(text != "");
  const TemporaryFile file("documented_example.toml", text);
  WorkloadSpec spec{"./" + file.name, {{"rounds", std::int64_t{3}}}};
  CHECK(check_spec(spec, "").empty());
  auto driver = test::drive(spec);
  driver.extra_cycles = 100;
  driver.run(10'000);
  CHECK(driver.ended());
  CHECK(driver.source().failure() == "");
  CHECK(driver.metrics()["iterations"] == 3);
  CHECK(driver.metrics()["send_cycles"] > 100);
}

TEST_CASE("an integer is good enough for a floating-point parameter") {
  const TemporaryFile file(
      "float_program.toml",
      head + "body = [ { do = 'nop' } ]\n[[parameter]]\nname = 'f'\ndefault = 0.5\ndoc = 'd'\n");
  const auto resolved = resolved_parameters({"./" + file.name, {{"f", std::int64_t{3}}}});
  CHECK(std::get<double>(resolved.at("f")) == 3.0);
  CHECK(check_spec({"./" + file.name, {{"f", true}}}, "")[0].text() == "f: must be a number, not a boolean");
}

TEST_CASE("problems of a user's file carry that file's name and line") {
  const TemporaryFile file("broken_program.toml", head + "body = [ { do = 'hltt' } ]\n");
  const auto problems_of = check_spec({"./" + file.name, {}}, "vm.vm0.workload");
  REQUIRE(problems_of.size() == 1);
  CHECK(problems_of[0].text() ==
        "./broken_program.toml:3: body[0].do: \"hltt\" is not an action (did you mean hlt?)");
  CHECK_THROWS_AS((void)program_info("./" + file.name), UserError);
}

TEST_CASE("per-vCPU sections: an index, then the others, then the common one") {
  const std::string common = head + "vcpus = 2\nbody = [ { do = 'nop' } ]\n";
  const auto kind = [](const Program& program, unsigned vcpu) {
    auto source = make_source(program, {}, vcpu);
    return source->current() == nullptr ? -1 : static_cast<int>(source->current()->kind);
  };
  const Program own = parse_program(common + "[[vcpu]]\nvcpu = 1\nbody = [ { do = 'hlt' } ]", "p.toml");
  CHECK(kind(own, 0) == static_cast<int>(svm::ActionKind::nop));
  CHECK(kind(own, 1) == static_cast<int>(svm::ActionKind::hlt));
  CHECK(kind(own, 2) == static_cast<int>(svm::ActionKind::nop));
  const Program others = parse_program(
      common + "[[vcpu]]\nvcpu = 0\nbody = [ { do = 'cli' } ]\n[[vcpu]]\nvcpu = 'others'", "p.toml");
  CHECK(kind(others, 0) == static_cast<int>(svm::ActionKind::cli));
  CHECK(kind(others, 1) == -1);
}
