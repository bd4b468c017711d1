// The parts of the differential test that decide: what is compared, what a waiver explains, what an emulator
// is asked.

#include <set>

#include <doctest/doctest.h>

#include "svm/exit_code.hpp"
#include "svm/user_error.hpp"
#include "svm/vmcb_bits.hpp"
#include "tests/oracle/campaign.hpp"
#include "tests/oracle/generator.hpp"

using namespace svmsim;
using namespace svmsim::oracle;

namespace {

Vector halting_vector() {
  Vector vector;
  vector.intercept(svm::Intercept::hlt);
  vector.program.add("hlt", {0xf4}, svm::ActionKind::hlt).end();
  return vector;
}

const Processor qemu = usual_processor(EmulatorKind::qemu);
const Processor bochs = usual_processor(EmulatorKind::bochs);

}  // namespace

TEST_CASE("a line of the kernel is read wholly or not at all") {
  const std::string line =
      "R 12 78 1 2 80000061 61 218001 a3010f0100 1 218000 202 0 80010033 200000 20 1d00 ffff0ff0 400 0 0 0 "
      "2:1,a3:2 -";
  const auto result = parse_result(line);
  REQUIRE(result);
  CHECK(result->first == 0x12);
  CHECK(result->second.exit_code == 0x78);
  CHECK(result->second.int_ctl == 0xa3010f0100);
  CHECK(result->second.guest_events == std::map<unsigned, unsigned>{{2, 1}, {0xa3, 2}});
  CHECK(result->second.host_events.empty());
  for (std::size_t length = 0; length < line.size() - 1; ++length)
    CHECK_FALSE(parse_result(std::string_view(line).substr(0, length)));
}

TEST_CASE("the features of the two emulators") {
  CHECK(qemu.features.has(svm::Feature::vgif));
  CHECK_FALSE(qemu.features.has(svm::Feature::nrips));
  CHECK(bochs.features.has(svm::Feature::pause_filter));
  CHECK_FALSE(bochs.features.has(svm::Feature::vgif));
  CHECK(qemu.limits.physical_address_bits == 40);
  CHECK(bochs.limits.physical_address_bits == 40);
}

TEST_CASE("fields are compared where the exit defines them, and only there") {
  const Vector vector = halting_vector();
  const Result expected = run_model(vector, bochs).result;
  REQUIRE(expected.exit_code == svm::exit_code::hlt);
  CHECK(differences(vector, bochs, expected, expected).empty());

  const auto differing = [&](auto change) {
    Result seen = expected;
    change(seen);
    return differences(vector, bochs, expected, seen);
  };
  using Fields = std::vector<std::string>;
  CHECK(differing([](Result& r) { r.exit_code = 0x79; }) == Fields{"exit_code"});
  CHECK(differing([](Result& r) { r.rip += 1; }) == Fields{"rip"});
  CHECK(differing([](Result& r) { r.next_rip += 1; }) == Fields{"next_rip"});
  CHECK(differing([](Result& r) { r.int_state ^= 1; }) == Fields{"int_state"});
  CHECK(differing([](Result& r) { r.int_ctl ^= svm::int_ctl::v_irq; }) == Fields{"int_ctl"});
  CHECK(differing([](Result& r) { r.rflags ^= svm::rflags::interrupt; }) == Fields{"rflags"});
  CHECK(differing([](Result& r) { r.exit_int_info = 0x80000061; }) == Fields{"exit_int_info"});
  CHECK(differing([](Result& r) { r.guest_events[3] = 1; }) == Fields{"guest_events"});
  CHECK(differing([](Result& r) { r.host_events[2] = 1; }) == Fields{"host_events"});
  CHECK(differing([](Result& r) { r.cr0 ^= 8; }) == Fields{"cr0"});
  CHECK(differing([](Result& r) { r.info_1 = 1; }).empty());
  CHECK(differing([](Result& r) { r.exit_int_info = 0x61; }).empty());
  CHECK(differing([](Result& r) { r.rflags ^= 0x40; }).empty());
}

TEST_CASE("32-bit and 64-bit -1 are the same exit code") {
  Vector vector = halting_vector();
  vector.vmcb.control.asid = 0;
  const Result expected = run_model(vector, qemu).result;
  REQUIRE(expected.exit_code == svm::exit_code::invalid);
  Result seen = expected;
  seen.exit_code = 0xffffffff;
  seen.rip = 1;
  CHECK(differences(vector, qemu, expected, seen).empty());
}

TEST_CASE("a waiver explains what it names, and nothing else") {
  Waiver waiver;
  waiver.emulator = "qemu";
  waiver.all = {"action:sti|action:cli", "if"};
  waiver.none = {"np"};
  waiver.differs = {"int_state", "rip"};
  const std::set<std::string> tags{"action:cli", "if"};
  CHECK(waiver.applies("qemu", tags, {"rip"}));
  CHECK(waiver.applies("qemu", tags, {"int_state", "rip"}));
  CHECK_FALSE(waiver.applies("bochs", tags, {"rip"}));
  CHECK_FALSE(waiver.applies("qemu", tags, {"rip", "exit_code"}));
  CHECK_FALSE(waiver.applies("qemu", {"action:cli"}, {"rip"}));
  CHECK_FALSE(waiver.applies("qemu", {"action:cl", "if"}, {"rip"}));
  CHECK_FALSE(waiver.applies("qemu", {"action:cli", "if", "np"}, {"rip"}));
}

TEST_CASE("the waiver file is in order") {
  const auto waivers = read_waivers(SVMSIM_ORACLE_WAIVERS);
  CHECK_FALSE(waivers.empty());
  for (const Waiver& waiver : waivers)
    CHECK(waiver.id.rfind(waiver.emulator + "-", 0) == 0);
  CHECK_THROWS_AS(static_cast<void>(read_waivers(std::string(SVMSIM_ORACLE_WAIVERS) + ".absent")), UserError);
}

TEST_CASE("the vectors are the same in every run, and the random ones follow from seed and index") {
  std::uint64_t count = 0;
  std::uint64_t digest = 0;
  const auto fold = [](std::uint64_t sum, const Vector& vector) {
    for (const std::uint8_t byte : pack({&vector}))
      sum = (sum ^ byte) * 0x100000001b3;
    return sum;
  };
  generate_systematic([&](Vector&& vector) {
    ++count;
    digest = fold(digest, vector);
  });
  CHECK(count > 15000);
  std::uint64_t again = 0;
  generate_systematic([&](Vector&& vector) { again = fold(again, vector); });
  CHECK(again == digest);
  CHECK(fold(0, random_vector(7, 3)) == fold(0, random_vector(7, 3)));
  CHECK(fold(0, random_vector(7, 3)) != fold(0, random_vector(7, 4)));
  CHECK(fold(0, random_vector(7, 3)) != fold(0, random_vector(8, 3)));
}

TEST_CASE("an emulator is not asked what it does not survive") {
  Vector sleeping = halting_vector();
  CHECK(not_askable(EmulatorKind::bochs, sleeping).empty());
  sleeping.intercept(svm::Intercept::hlt, false);
  set_virtual_interrupt(sleeping, 0x80, 15);
  CHECK_FALSE(not_askable(EmulatorKind::bochs, sleeping).empty());
  CHECK(not_askable(EmulatorKind::qemu, sleeping).empty());
}

TEST_CASE("no vector runs out of its program in GuestCpu") {
  std::uint64_t lost = 0;
  const auto ask = [&lost](const Vector& vector) {
    lost += run_model(vector, qemu).end == ModelEnd::lost ? 1U : 0U;
    lost += run_model(vector, bochs).end == ModelEnd::lost ? 1U : 0U;
  };
  generate_systematic([&](Vector&& vector) { ask(vector); });
  for (std::uint64_t index = 0; index < 5000; ++index)
    ask(random_vector(11, index));
  CHECK(lost == 0);
}
