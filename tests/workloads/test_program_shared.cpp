// Counters that the vCPUs of a VM share, waits for them, and deadlines computed from the TSC.

#include <doctest/doctest.h>

#include "svm/user_error.hpp"
#include "workloads/program.hpp"
#include "workloads/program_loader.hpp"

namespace svmsim::workloads::test {

namespace {

using svm::ActionKind;
namespace action_flags = svm::action_flags;

Program parse(const std::string& text) {
  return parse_program("name = 'p'\ndoc = 'd'\n" + text, "p.toml");
}

std::string problem(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const UserError& error) {
    return error.problems().front().path + ": " + error.problems().front().message;
  }
  return "";
}

}  // namespace

TEST_CASE("a spin ends when another vCPU's store has come, and the store names who may wait") {
  const Program program = parse(R"(
vcpus = 2
[repeat]
count = 2
[[vcpu]]
vcpu = 0
body = [ { do = "add", counter = "turns", value = 3, cycles = 5 } ]
[[vcpu]]
vcpu = 1
body = [ { do = "spin_until", counter = "turns", count = 3, cycles = 4, pause = true } ]
)");
  const auto memory = std::make_shared<SharedCounters>();
  const auto writer = make_source(program, {}, 0, memory);
  const auto reader = make_source(program, {}, 1, memory);
  CHECK(writer->current()->kind == ActionKind::compute);
  CHECK(writer->current()->flags == action_flags::shared);
  CHECK(reader->current()->flags == (action_flags::spin | action_flags::pauses));
  CHECK(reader->spin_ready() == WorkloadSource::never_ready);
  CHECK(writer->retire_shared(100) == std::vector<unsigned>{0, 1});
  CHECK(reader->spin_ready() == 100);
  CHECK(reader->retire_shared(130).empty());
  // In a body the count is for each iteration.
  CHECK(reader->spin_ready() == WorkloadSource::never_ready);
  (void)writer->retire_shared(200);
  CHECK(reader->spin_ready() == 200);
  (void)reader->retire_shared(230);
  CHECK(reader->current() == nullptr);
}

TEST_CASE("outside a body a wait counts in all, and a halt_until looks at shared memory") {
  const Program program = parse(R"(
setup = [
  { do = "halt_until", counter = "go", count = 2, cycles = 3, rip = 0x1000 },
  { do = "halt_until", counter = "go", count = 2, cycles = 3, interrupts_on = true },
  { do = "add", counter = "go", cycles = 1 },
]
)");
  const auto memory = std::make_shared<SharedCounters>();
  const auto source = make_source(program, {}, 0, memory);
  memory->counters[0].value = 1;
  for (const ActionKind kind : {ActionKind::cli, ActionKind::compute, ActionKind::sti, ActionKind::hlt,
                                ActionKind::cli, ActionKind::compute}) {
    REQUIRE(source->current()->kind == kind);
    if (kind == ActionKind::hlt) memory->counters[0].value = 2;
    CHECK(source->current()->flags == (kind == ActionKind::compute ? action_flags::shared : 0));
    source->retire(0, 0);
  }
  // With interrupts_on: a look, then HLT alone.
  memory->counters[0].value = 1;
  for (const ActionKind kind : {ActionKind::compute, ActionKind::hlt, ActionKind::compute}) {
    REQUIRE(source->current()->kind == kind);
    if (kind == ActionKind::hlt) memory->counters[0].value = 2;
    source->retire(0, 0);
  }
  CHECK(source->current()->flags == action_flags::shared);
  (void)source->retire_shared(7);
  CHECK(memory->counters[0].value == 3);
  CHECK(source->current() == nullptr);
}

TEST_CASE("arm_deadline writes the TSC that it has read, and the delay") {
  const auto source =
      make_source(parse("setup = [ { do = 'arm_deadline', delay = 3000, rip = 0x100 } ]"), {}, 0);
  CHECK(source->current()->kind == ActionKind::rdtsc);
  source->retire(0, 500);
  CHECK(source->current()->kind == ActionKind::wrmsr);
  CHECK(source->current()->number == 0x6e0);
  CHECK(source->current()->operand[0] == 3500);
}

TEST_CASE("INIT begins a program anew") {
  const auto source = make_source(parse("setup = [ { do = 'cpuid', repeat = 3 }, { do = 'nop' } ]"), {}, 0);
  for (int i = 0; i < 3; ++i)
    source->retire(0, 0);
  CHECK(source->current()->kind == ActionKind::nop);
  source->restart();
  for (int i = 0; i < 3; ++i) {
    CHECK(source->current()->kind == ActionKind::cpuid);
    source->retire(0, 0);
  }
  CHECK(source->current()->kind == ActionKind::nop);
}

TEST_CASE("waits that cannot be are refused") {
  CHECK(problem("setup = [ { do = 'spin_until', cycles = 1 } ]") == "setup[0].vector: is missing");
  CHECK(problem("setup = [ { do = 'add', cycles = 1 } ]") == "setup[0].counter: is missing");
  CHECK(problem("setup = [ { do = 'spin_until', counter = 'a', vector = 3, cycles = 1 } ]") ==
        "setup[0].counter: does not go with vector");
  CHECK(problem("setup = [ { do = 'spin_until', counter = 'a' } ]") == "setup[0].cycles: is missing");
}

}  // namespace svmsim::workloads::test
