// How a Linux guest sends IPIs: every cell of kvm-software.md 4.2, and the windows of KVM_HC_SEND_IPI.

#include <numeric>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include "apic/destination.hpp"
#include "workloads/guest/apic_driver.hpp"

namespace svmsim::workloads::test {

namespace {

using svm::ActionKind;
using svm::GuestAction;
using Kind = ApicDriverKind;

/// Short words for what an observer sees: "read 300", "write 310=2000000", "wrmsr 830=2000000fb",
/// "hypercall 10(2,0,0,fc)", "cli", "popf".
std::string words(const ApicDriver::Actions& actions) {
  std::string text;
  for (const GuestAction& action : actions) {
    if (!text.empty()) text += "; ";
    switch (action.kind) {
      case ActionKind::memory_read:
        text += fmt::format("read {:x}", action.operand[1] - 0xfee00000);
        break;
      case ActionKind::memory_write:
        text += fmt::format("write {:x}={:x}", action.operand[1] - 0xfee00000, action.operand[0]);
        break;
      case ActionKind::wrmsr:
        text += fmt::format("wrmsr {:x}={:x}", action.number, action.operand[0]);
        break;
      case ActionKind::vmmcall:
        text += fmt::format("hypercall {}({:x},{:x},{:x},{:x})", action.number, action.operand[0],
                            action.operand[1], action.operand[2], action.operand[3]);
        break;
      case ActionKind::cli:
        text += "cli";
        break;
      case ActionKind::popf:
        text += "popf";
        break;
      default:
        text += "?";
        break;
    }
  }
  return text;
}

ApicDriver driver_of(Kind kind, unsigned cpus, bool pv, bool no_ipi_broadcast = false) {
  ApicDriverConfig config;
  config.kind = kind;
  config.cpus = cpus;
  config.pv_send_ipi = pv;
  config.no_ipi_broadcast = no_ipi_broadcast;
  return ApicDriver(config);
}

std::vector<unsigned> others(unsigned cpus) {
  std::vector<unsigned> mask(cpus - 1);
  std::iota(mask.begin(), mask.end(), 1U);
  return mask;
}

struct Accesses {
  std::size_t icr = 0;  ///< writes of the ICR, which send
  std::size_t icr2 = 0;
  std::size_t polls = 0;
  std::size_t hypercalls = 0;
};

Accesses count(const ApicDriver::Actions& actions) {
  Accesses result;
  for (const GuestAction& action : actions) {
    const std::uint64_t offset = action.operand[1] - 0xfee00000;
    if (action.kind == ActionKind::wrmsr && action.number == 0x830) ++result.icr;
    if (action.kind == ActionKind::memory_write && offset == 0x300) ++result.icr;
    if (action.kind == ActionKind::memory_write && offset == 0x310) ++result.icr2;
    if (action.kind == ActionKind::memory_read) ++result.polls;
    if (action.kind == ActionKind::vmmcall) ++result.hypercalls;
  }
  return result;
}

}  // namespace

TEST_CASE("one target: a hypercall in flat mode alone") {
  struct Row {
    Kind kind;
    bool pv;
    const char* reschedule;
  };
  const Row rows[] = {
      {Kind::xapic_flat, false, "cli; read 300; write 310=2000000; write 300=8fd; popf"},
      {Kind::xapic_flat, true, "cli; hypercall 10(1,0,1,fd); popf"},
      {Kind::xapic_physical, false, "cli; read 300; write 310=1000000; write 300=fd; popf"},
      {Kind::xapic_physical, true, "cli; read 300; write 310=1000000; write 300=fd; popf"},
      {Kind::x2apic_physical, false, "wrmsr 830=1000000fd"},
      {Kind::x2apic_physical, true, "wrmsr 830=1000000fd"},
      {Kind::x2apic_cluster, false, "wrmsr 830=2000008fd"},
      {Kind::x2apic_cluster, true, "wrmsr 830=2000008fd"},
  };
  for (const Row& row : rows) {
    ApicDriver driver = driver_of(row.kind, 4, row.pv);
    ApicDriver::Actions out;
    driver.send_reschedule(1, out);
    CHECK(words(out) == row.reschedule);
    out.clear();
    driver.send_call_function_single(1, out);
    CHECK(out.size() > 0);
    CHECK(words(out).find("fb") != std::string::npos);
  }
}

TEST_CASE("a subset: messages by driver, or one hypercall with the feature") {
  struct Row {
    Kind kind;
    const char* native;
  };
  const Row rows[] = {
      {Kind::xapic_flat, "cli; read 300; write 310=a000000; write 300=8fc; popf"},
      {Kind::xapic_physical,
       "cli; read 300; write 310=1000000; write 300=fc; read 300; write 310=3000000; write 300=fc; popf"},
      {Kind::x2apic_physical, "cli; wrmsr 830=1000000fc; wrmsr 830=3000000fc; popf"},
      {Kind::x2apic_cluster, "cli; wrmsr 830=a000008fc; popf"},
  };
  for (const Row& row : rows) {
    for (const bool no_ipi_broadcast : {false, true}) {
      ApicDriver::Actions out;
      driver_of(row.kind, 8, false, no_ipi_broadcast).send_call_function(0, {1, 3}, out);
      CHECK(words(out) == row.native);
      out.clear();
      driver_of(row.kind, 8, true, no_ipi_broadcast).send_call_function(0, {1, 3}, out);
      CHECK(words(out) == "cli; hypercall 10(5,0,1,fc); popf");
    }
  }
}

TEST_CASE("everybody else: a shorthand, or with no_ipi_broadcast what a subset takes") {
  for (const Kind kind :
       {Kind::xapic_flat, Kind::xapic_physical, Kind::x2apic_physical, Kind::x2apic_cluster}) {
    for (const bool pv : {false, true}) {
      const bool x2apic = is_x2apic(kind);
      ApicDriver driver = driver_of(kind, 8, pv);
      REQUIRE(driver.shorthands());
      ApicDriver::Actions out;
      driver.send_call_function(0, others(8), out);
      CHECK(words(out) == (x2apic ? "wrmsr 830=c00fc" : "read 300; write 300=c00fc"));
      out.clear();
      std::vector<unsigned> all(8);
      std::iota(all.begin(), all.end(), 0U);
      driver.send_call_function(0, all, out);
      CHECK(words(out) == (x2apic ? "wrmsr 830=800fc" : "read 300; write 300=800fc"));
      out.clear();
      driver.send_allbutself(0, guest_vector::nmi, out);
      CHECK(words(out) == (x2apic ? "wrmsr 830=c0400" : "read 300; write 300=c0400"));

      ApicDriver masks = driver_of(kind, 8, pv, true);
      CHECK_FALSE(masks.shorthands());
      out.clear();
      masks.send_call_function(0, others(8), out);
      ApicDriver::Actions subset;
      masks.send_ipi_mask(others(8), guest_vector::call_function, subset);
      CHECK(words(out) == words(subset));
      CHECK(count(out).hypercalls == (pv ? 1 : 0));
      out.clear();
      masks.send_allbutself(3, guest_vector::nmi, out);
      CHECK(count(out).hypercalls == (pv ? 1 : 0));
      if (pv) CHECK(words(out) == "cli; hypercall 10(f7,0,0,400); popf");
    }
  }
}

TEST_CASE("self-IPIs are never a hypercall") {
  for (const bool pv : {false, true}) {
    ApicDriver::Actions out;
    driver_of(Kind::x2apic_physical, 4, pv).send_ipi_self(0xf6, out);
    driver_of(Kind::x2apic_cluster, 4, pv).send_ipi_self(0xf6, out);
    driver_of(Kind::xapic_flat, 4, pv).send_ipi_self(0xf6, out);
    driver_of(Kind::xapic_physical, 4, pv).send_ipi_self(0xf6, out);
    CHECK(words(out) == "wrmsr 83f=f6; wrmsr 83f=f6; read 300; write 300=400f6; read 300; write 300=400f6");
  }
}

TEST_CASE("one possible CPU: no feature, no shorthand") {
  ApicDriver driver = driver_of(Kind::x2apic_physical, 1, true);
  CHECK_FALSE(driver.config().pv_send_ipi);
  CHECK_FALSE(driver.shorthands());
  ApicDriver::Actions out;
  driver.send_allbutself(0, guest_vector::nmi, out);
  CHECK(out.empty());
}

TEST_CASE("accesses for each fan-out") {
  for (unsigned fan_out = 1; fan_out <= 255; ++fan_out) {
    CAPTURE(fan_out);
    const unsigned cpus = fan_out + 1;
    for (const bool no_ipi_broadcast : {false, true}) {
      for (const Kind kind :
           {Kind::xapic_flat, Kind::xapic_physical, Kind::x2apic_physical, Kind::x2apic_cluster}) {
        if (kind == Kind::xapic_flat && cpus > 8) continue;
        if (kind == Kind::xapic_physical && cpus > 255) continue;  // APIC ID FFh is the broadcast
        CAPTURE(static_cast<int>(kind));
        ApicDriver::Actions native;
        driver_of(kind, cpus, false, no_ipi_broadcast).send_call_function(0, others(cpus), native);
        ApicDriver::Actions pv;
        driver_of(kind, cpus, true, no_ipi_broadcast).send_call_function(0, others(cpus), pv);
        std::size_t messages = 1;
        if (no_ipi_broadcast) {
          if (kind == Kind::xapic_physical || kind == Kind::x2apic_physical) messages = fan_out;
          if (kind == Kind::x2apic_cluster) messages = fan_out / 16 + 1;
        }
        CHECK(count(native).icr == messages);
        CHECK(count(native).hypercalls == 0);
        CHECK(count(native).polls == (is_x2apic(kind) ? 0 : messages));
        CHECK(count(native).icr2 == (is_x2apic(kind) || !no_ipi_broadcast ? 0 : messages));
        CHECK(count(pv).hypercalls == (no_ipi_broadcast ? (fan_out + 127) / 128 : 0));
        CHECK(count(pv).icr == (no_ipi_broadcast ? 0 : 1));
      }
    }
  }
}

TEST_CASE("the window of a hypercall grows in both directions and spans 128 APIC IDs") {
  ApicDriverConfig config;
  config.kind = Kind::x2apic_physical;
  config.pv_send_ipi = true;
  config.cpus = 4;
  config.ids = {0, 200, 73, 72};  // CPU order is not the order of the IDs
  ApicDriver driver(config);
  ApicDriver::Actions out;
  driver.send_ipi_mask({1, 2}, 0x40, out);  // 200, then 73 = 200 - 127: still in the window
  CHECK(words(out) == "cli; hypercall 10(1,8000000000000000,49,40); popf");
  out.clear();
  driver.send_ipi_mask({1, 3}, 0x40, out);  // 72 is one too far
  CHECK(words(out) == "cli; hypercall 10(1,0,c8,40); hypercall 10(1,0,48,40); popf");
  out.clear();
  driver.send_ipi_mask({1, 2, 3}, 0x40, out);
  CHECK(words(out) == "cli; hypercall 10(1,8000000000000000,49,40); hypercall 10(1,0,48,40); popf");
}

TEST_CASE("any mask reaches each of its CPUs once, through any driver") {
  CHECK(rc::check("every target once", [] {
    const auto kind = *rc::gen::element(Kind::xapic_flat, Kind::xapic_physical, Kind::x2apic_physical,
                                        Kind::x2apic_cluster);
    const unsigned most = kind == Kind::xapic_flat ? 8 : kind == Kind::xapic_physical ? 250 : 400;
    const auto cpus = *rc::gen::inRange<unsigned>(2, most + 1);
    const bool pv = *rc::gen::arbitrary<bool>();
    const bool no_ipi_broadcast = *rc::gen::arbitrary<bool>();
    std::vector<unsigned> mask;
    for (unsigned cpu = 1; cpu < cpus; ++cpu) {
      if (*rc::gen::arbitrary<bool>()) mask.push_back(cpu);
    }
    std::vector<apic::ApicAddress> addresses(cpus);
    for (unsigned cpu = 0; cpu < cpus; ++cpu) {
      addresses[cpu].mode = is_x2apic(kind) ? apic::ApicMode::x2apic : apic::ApicMode::xapic;
      addresses[cpu].id = cpu;
      addresses[cpu].xapic_id = static_cast<std::uint8_t>(cpu);
      addresses[cpu].xapic_logical_id = static_cast<std::uint8_t>(cpu < 8 ? 1U << cpu : 0);
    }
    const auto map = apic::DestinationMap::of(addresses);
    ApicDriver::Actions out;
    ApicDriver driver = driver_of(kind, cpus, pv, no_ipi_broadcast);
    if (!mask.empty()) driver.send_call_function(0, mask, out);
    std::vector<unsigned> reached(cpus);
    std::uint32_t icr2 = 0;
    for (const GuestAction& action : out) {
      const auto send = [&](const apic::IcrCommand& command) {
        map.for_each_target(command, 0, [&](std::size_t target) { ++reached[target]; });
      };
      if (action.kind == ActionKind::wrmsr) send(apic::IcrCommand::from_x2apic(action.operand[0]));
      if (action.kind == ActionKind::memory_write && action.operand[1] == 0xfee00310)
        icr2 = static_cast<std::uint32_t>(action.operand[0]);
      if (action.kind == ActionKind::memory_write && action.operand[1] == 0xfee00300)
        send(apic::IcrCommand::from_xapic(static_cast<std::uint32_t>(action.operand[0]), icr2));
      if (action.kind == ActionKind::vmmcall) {
        for (unsigned bit = 0; bit < 128; ++bit) {
          if ((action.operand[bit / 64] >> (bit % 64) & 1U) != 0) ++reached.at(action.operand[2] + bit);
        }
      }
    }
    std::vector<unsigned> expected(cpus);
    for (const unsigned cpu : mask)
      ++expected[cpu];
    RC_ASSERT(reached == expected);
  }));
}

}  // namespace svmsim::workloads::test
