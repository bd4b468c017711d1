#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include "tests/workloads/program_driver.hpp"
#include "workloads/program_loader.hpp"

using namespace svmsim::workloads;
using svmsim::svm::ActionKind;
using svmsim::workloads::test::drive;
using svmsim::workloads::test::ProgramDriver;

namespace {

std::unique_ptr<WorkloadSource> source_of(const std::string& text) {
  return make_source(parse_program("name = 'p'\ndoc = 'd'\n" + text, "p.toml"), {}, 0);
}

const std::string handler_41 =
    "[[handler]]\nvector = 0x41\nactions = [ { do = 'nop', rip = 0x5000 }, { do = 'nop' }, { do = 'iret' } "
    "]\n";

std::uint64_t rip(WorkloadSource& source) {
  return source.current()->rip;
}

}  // namespace

TEST_CASE("current() is the same action until it retires, and null after the last") {
  auto source = source_of("body = [ { do = 'nop', rip = 0x1000 }, { do = 'cpuid' } ]");
  CHECK(rip(*source) == 0x1000);
  CHECK(rip(*source) == 0x1000);
  source->retire(1, 0);
  CHECK(source->current()->kind == ActionKind::cpuid);
  CHECK(rip(*source) == 0x1001);
  source->retire(2, 0);
  CHECK(source->current() == nullptr);
}

TEST_CASE("an interrupt suspends the current action, and the handler's iret brings it back") {
  auto source = source_of("body = [ { do = 'nop', rip = 0x1000 }, { do = 'hlt' } ]\n" + handler_41);
  source->retire(1, 0);
  source->interrupt(0x41, 2);
  CHECK(rip(*source) == 0x5000);
  source->retire(3, 0);
  source->interrupt(0x41, 4);  // nested
  CHECK(rip(*source) == 0x5000);
  for (int i = 0; i < 3; ++i)
    source->retire(5, 0);
  CHECK(rip(*source) == 0x5001);
  source->retire(6, 0);
  source->retire(7, 0);
  CHECK(source->current()->kind == ActionKind::hlt);
}

TEST_CASE("an interrupt after the end runs its handler and ends again") {
  auto source = source_of("body = [ { do = 'nop' } ]\n" + handler_41);
  source->retire(1, 0);
  CHECK(source->current() == nullptr);
  source->interrupt(0x41, 2);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(source->current() != nullptr);
    source->retire(3, 0);
  }
  CHECK(source->current() == nullptr);
  CHECK(source->failure() == "");
}

TEST_CASE("an interrupt in the middle of a repeated action does not lose count") {
  auto source = source_of(
      "setup = [ { do = 'nop', rip = 0x1000, repeat = 3 } ]\nbody = [ { do = 'cli' } ]\n" + handler_41);
  source->retire(1, 0);
  source->interrupt(0x41, 2);
  for (int i = 0; i < 3; ++i)
    source->retire(3, 0);
  CHECK(rip(*source) == 0x1000);
  source->retire(4, 0);
  CHECK(source->current()->kind == ActionKind::nop);
  source->retire(5, 0);
  CHECK(source->current()->kind == ActionKind::cli);
}

TEST_CASE("a repeated action of a handler has its own count") {
  auto source = source_of(
      "setup = [ { do = 'nop', rip = 0x1000, repeat = 3 } ]\nbody = [ { do = 'cli' } ]\n"
      "[[handler]]\nvector = 0x41\nactions = [ { do = 'pause', repeat = 2 }, { do = 'iret' } ]");
  source->retire(1, 0);
  source->interrupt(0x41, 2);
  source->retire(3, 0);
  CHECK(source->current()->kind == ActionKind::pause);
  source->retire(4, 0);
  CHECK(source->current()->kind == ActionKind::iret);
}

TEST_CASE("a vector without a handler ends the workload with its name") {
  auto source = source_of("body = [ { do = 'nop' } ]\n" + handler_41);
  source->interrupt(0x42, 2);
  CHECK(source->current() == nullptr);
  CHECK(source->failure() ==
        "vector 0x42 was delivered in iteration 1, but the program has no handler for it");
}

TEST_CASE("the check ends the workload in the iteration that breaks it") {
  auto driver = drive({"svm_idle_hlt_test", {}});
  driver.run(4 + 3 * 9);  // into the fourth round or so
  REQUIRE_FALSE(driver.ended());
  const double done = driver.metrics()["iterations"];
  driver.lose_ipis = true;
  driver.run();
  // STI;HLT without an interrupt halts for good: no failure, the machine has to notice.
  CHECK_FALSE(driver.ended());
  CHECK(driver.metrics()["iterations"] <= done + 1);

  auto nop = drive({"self_ipi_sti_nop", {}});
  nop.run(2000);
  REQUIRE_FALSE(nop.ended());
  nop.lose_ipis = true;
  nop.run();
  CHECK(nop.ended());
  const auto iterations = static_cast<std::uint64_t>(nop.metrics()["iterations"]);
  CHECK(iterations > 100);
  CHECK(nop.source().failure() ==
        fmt::format("the handler of vector 0xb0 ran 0 times in iteration {}, not 1", iterations + 1));
}

TEST_CASE("the check also sees a handler that ran too often") {
  auto source =
      source_of("body = [ { do = 'nop' } ]\n" + handler_41 + "[[check]]\nvector = 0x41\n[repeat]\ncount = 5");
  const auto take = [&source] {
    source->interrupt(0x41, 1);
    for (int i = 0; i < 3; ++i)
      source->retire(2, 0);
  };
  take();
  source->retire(3, 0);
  CHECK(source->failure() == "");
  take();
  take();
  source->retire(4, 0);
  CHECK(source->failure() == "the handler of vector 0x41 ran 2 times in iteration 2, not 1");
  CHECK(source->current() == nullptr);
}

TEST_CASE("stopwatches average over the batch and start again with each") {
  // Batches of 64 and 128; the second one is slower.
  auto source = source_of(
      "body = [ { do = 'rdtsc', start = 'w' }, { do = 'nop' }, { do = 'rdtsc', stop = 'w' } ]\n"
      "[repeat]\nuntil_cycles = 12800");
  std::uint64_t tsc = 0;
  for (const std::uint64_t length : {10U, 100U}) {
    const int count = length == 10 ? 64 : 128;
    source->retire(tsc, tsc);
    for (int i = 0; i < count; ++i) {
      source->retire(tsc, tsc);
      source->retire(tsc, 0);
      tsc += length;
      source->retire(tsc, tsc);
    }
    CHECK(source->metrics().back().first == "w_cycles");
    CHECK(source->metrics().back().second == static_cast<double>(length));
    source->retire(tsc, tsc);
  }
  CHECK(source->current() == nullptr);
  CHECK(source->metrics().back().second == 100);
  CHECK(source->metrics()[1].second == 2);
}

TEST_CASE("ipi and eoi stopwatches enclose the two register writes") {
  auto driver = drive({"idle_hlt_test", {{"iterations", std::int64_t{50}}}});
  driver.extra_cycles = 1000;
  driver.run();
  // From the end of one RDTSC to the end of the next: the register write and the second RDTSC.
  CHECK(driver.metrics()["ipi_cycles"] == 2000);
  CHECK(driver.metrics()["eoi_cycles"] == 2000);
  // Seven actions of the body and four of the handler, ten cycles of guest code three times; the batch's last
  // RDTSC adds 1000 / 50.
  CHECK(driver.metrics()["cycles_per_iteration"] == 11 * 1000 + 30 + 20);
}

TEST_CASE("halt_until counts the handler's runs, not the halts") {
  auto source = source_of(
      "body = [ { do = 'halt_until', vector = 0x41, count = 2, rip = 0x1000, cycles = 3 } ]\n[repeat]\ncount "
      "= 2\n" +
      handler_41);
  const auto retire = [&source](ActionKind kind) {
    REQUIRE(source->current() != nullptr);
    CHECK(source->current()->kind == kind);
    source->retire(1, 0);
  };
  const auto take = [&source] {
    source->interrupt(0x41, 1);
    for (int i = 0; i < 3; ++i)
      source->retire(2, 0);
  };
  retire(ActionKind::cli);
  for (int run = 0; run < 2; ++run) {
    CHECK(source->current()->cycles == 3);
    retire(ActionKind::compute);
    retire(ActionKind::sti);
    retire(ActionKind::hlt);
    take();
    retire(ActionKind::cli);
  }
  retire(ActionKind::compute);
  // Second iteration: four runs in all. Two of them come before it looks, so it does not halt.
  retire(ActionKind::cli);
  take();
  take();
  retire(ActionKind::compute);
  CHECK(source->current() == nullptr);
  CHECK(source->metrics()[0].second == 2);
}

TEST_CASE("conditions and a repeat of 0 leave actions out, and addresses follow what is left") {
  const Program program = parse_program(
      "name = 'p'\ndoc = 'd'\n"
      "body = [ { do = 'nop', rip = 0x10, repeat = '$n' }, { do = 'cli', when = '$b' }, { do = 'sti', unless "
      "= '$b' },"
      " { do = 'cpuid' } ]\n"
      "[[parameter]]\nname = 'n'\ndefault = 1\ndoc = 'd'\n[[parameter]]\nname = 'b'\ndefault = true\ndoc = "
      "'d'\n",
      "p.toml");
  const auto kinds = [&program](std::int64_t n, bool b) {
    std::string text;
    auto source = make_source(program, {ParameterValue{n}, ParameterValue{b}}, 0);
    while (const auto* action = source->current()) {
      text += fmt::format("{}@{:x} ", static_cast<int>(action->kind), action->rip);
      source->retire(0, 0);
    }
    return text;
  };
  CHECK(kinds(1, true) == "1@10 2@11 6@12 ");
  CHECK(kinds(2, false) == "1@10 1@10 3@11 6@12 ");
  CHECK(kinds(0, true) == "2@100000 6@100001 ");
}

TEST_CASE("operands land in the fields that GuestAction documents") {
  auto source = source_of(
      "body = [ { do = 'cpuid', leaf = 7, subleaf = 1, cpl = 3 }, { do = 'vmmcall', number = 10, arguments = "
      "[1, 2, 3, 4] },"
      " { do = 'memory_write', address = 0x8008, size = 4, value = 9 }, { do = 'mov_to_cr8', value = 8 },"
      " { do = 'wrmsr', msr = 0xc0000102, value = '0xffff800000000000' }, { do = 'out', port = 0x1000, size "
      "= 2, value = 1 },"
      " { do = 'nop', length = 9 }, { do = 'pause' } ]");
  const auto next = [&source] {
    source->retire(0, 0);
    return *source->current();
  };
  const auto cpuid = *source->current();
  CHECK(cpuid.number == 7);
  CHECK(cpuid.operand[0] == 1);
  CHECK(cpuid.cpl == 3);
  const auto vmmcall = next();
  CHECK(vmmcall.number == 10);
  CHECK(vmmcall.operand == std::array<std::uint64_t, 4>{1, 2, 3, 4});
  const auto memory = next();
  CHECK(memory.operand[1] == 0x8008);
  CHECK(memory.operand[0] == 9);
  CHECK(memory.size == 4);
  CHECK(next().operand[0] == 8);
  const auto wrmsr = next();
  CHECK(wrmsr.number == 0xc0000102);
  CHECK(wrmsr.operand[0] == 0xffff800000000000);
  const auto out = next();
  CHECK(out.size == 2);
  CHECK(out.length == 2);  // 66 EF: the port is in DX
  const auto nop = next();
  CHECK(next().rip == nop.rip + 9);
}
