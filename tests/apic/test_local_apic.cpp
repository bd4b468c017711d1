#include <array>
#include <iomanip>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "apic/local_apic.hpp"

using namespace svmsim::apic;

namespace {

LocalApic enabled(std::uint32_t id = 0) {
  LocalApic apic(id);
  apic.write_msr(0x80f, 0x1ff);
  return apic;
}

}  // namespace

TEST_CASE("an accepted vector waits in the IRR, moves to the ISR, and an EOI retires it") {
  LocalApic apic = enabled();
  CHECK(apic.deliverable() == -1);
  CHECK(apic.accept(0xb0) == Acceptance::accepted);
  CHECK(apic.deliverable() == 0xb0);
  CHECK(apic.acknowledge() == 0xb0);
  CHECK(apic.highest_irr() == -1);
  CHECK(apic.highest_isr() == 0xb0);
  CHECK(apic.ppr() == 0xb0);
  const EndOfInterrupt end = apic.eoi();
  CHECK(end.vector == 0xb0);
  CHECK_FALSE(end.level);
  CHECK(apic.ppr() == 0);
}

TEST_CASE("a vector that is already requested merges") {
  LocalApic apic = enabled();
  CHECK(apic.accept(0x41) == Acceptance::accepted);
  CHECK(apic.accept(0x41) == Acceptance::merged);
  apic.acknowledge();
  CHECK(apic.highest_irr() == -1);
  // Requested again while in service: no merge.
  CHECK(apic.accept(0x41) == Acceptance::accepted);
}

TEST_CASE("vectors 0 to 15 and a software-disabled APIC accept nothing") {
  LocalApic apic = enabled();
  for (unsigned vector = 0; vector < 16; ++vector) {
    CHECK(apic.accept(static_cast<std::uint8_t>(vector)) == Acceptance::illegal_vector);
  }
  CHECK(apic.accept(16) == Acceptance::accepted);
  CHECK(LocalApic(0).accept(0x41) == Acceptance::disabled);
  // What is pending stays pending.
  apic.write_msr(0x80f, 0xff);
  CHECK(apic.accept(0x41) == Acceptance::disabled);
  CHECK(apic.highest_irr() == 16);
}

TEST_CASE("PPR is the TPR where its class reaches the in-service class, else the in-service class") {
  LocalApic apic = enabled();
  apic.set_tpr(0x25);
  CHECK(apic.ppr() == 0x25);
  apic.accept(0x5c);
  apic.acknowledge();
  CHECK(apic.ppr() == 0x50);
  apic.set_tpr(0x53);
  CHECK(apic.ppr() == 0x53);
  apic.set_tpr(0x4f);
  CHECK(apic.ppr() == 0x50);
  apic.set_tpr(0x61);
  CHECK(apic.ppr() == 0x61);
  apic.eoi();
  CHECK(apic.ppr() == 0x61);
}

TEST_CASE("only a higher class is deliverable; the sub-class does not count") {
  LocalApic apic = enabled();
  apic.accept(0x4f);
  apic.set_tpr(0x40);
  CHECK(apic.deliverable() == -1);
  apic.set_tpr(0x3f);
  CHECK(apic.deliverable() == 0x4f);
  apic.acknowledge();
  apic.set_tpr(0);
  apic.accept(0x4e);
  CHECK(apic.deliverable() == -1);
  apic.accept(0x50);
  CHECK(apic.deliverable() == 0x50);
  CHECK(apic.acknowledge() == 0x50);
  CHECK(apic.eoi().vector == 0x50);
  CHECK(apic.deliverable() == -1);
  CHECK(apic.eoi().vector == 0x4f);
  CHECK(apic.deliverable() == 0x4e);
}

TEST_CASE("an acknowledge with nothing deliverable gives the spurious vector and no ISR bit") {
  LocalApic apic = enabled();
  apic.write_msr(0x80f, 0x1e7);
  CHECK(apic.acknowledge() == 0xe7);
  CHECK(apic.highest_isr() == -1);
  apic.accept(0x41);
  apic.set_tpr(0xff);
  CHECK(apic.acknowledge() == 0xe7);
  CHECK(apic.highest_irr() == 0x41);
  CHECK(apic.highest_isr() == -1);
}

TEST_CASE("an EOI reports a level interrupt, and one without anything in service reports none") {
  LocalApic apic = enabled();
  CHECK(apic.eoi().vector == -1);
  apic.accept(0x31, true);
  apic.acknowledge();
  CHECK(apic.eoi().level);
  // The next edge interrupt of that vector clears the bit.
  apic.accept(0x31, false);
  apic.acknowledge();
  CHECK_FALSE(apic.eoi().level);
}

TEST_CASE("CR8 is the TPR's upper half, and writing it clears the lower one") {
  LocalApic apic = enabled();
  apic.set_tpr(0x7c);
  CHECK(apic.cr8() == 7);
  apic.set_cr8(7);
  CHECK(apic.tpr() == 0x70);
  CHECK(apic.write_msr(0x808, 0x9f).effect == WriteEffect::priority);
  CHECK(apic.cr8() == 9);
  CHECK(apic.read_msr(0x80a).value == 0x9f);
}

TEST_CASE("the EOI register retires and says what") {
  LocalApic apic = enabled();
  apic.accept(0xb0, true);
  apic.acknowledge();
  CHECK(apic.write_msr(0x80b, 1).effect == WriteEffect::general_protection);
  CHECK(apic.highest_isr() == 0xb0);
  const RegisterWrite write = apic.write_msr(0x80b, 0);
  CHECK(write.effect == WriteEffect::eoi);
  CHECK(write.eoi.vector == 0xb0);
  CHECK(write.eoi.level);
}

namespace {

/// The rules of 7.5 word by word, with bool arrays and no caching.
struct NaiveApic {
  std::array<bool, 256> irr{};
  std::array<bool, 256> isr{};
  std::array<bool, 256> tmr{};
  unsigned tpr = 0;

  static int top(const std::array<bool, 256>& bits) {
    for (int i = 255; i >= 0; --i) {
      if (bits[static_cast<std::size_t>(i)]) return i;
    }
    return -1;
  }
  [[nodiscard]] unsigned ppr() const {
    const int highest = top(isr);
    const unsigned in_service = highest < 0 ? 0U : static_cast<unsigned>(highest);
    return tpr / 16 >= in_service / 16 ? tpr : in_service / 16 * 16;
  }
  [[nodiscard]] int deliverable() const {
    const int highest = top(irr);
    return highest >= 0 && static_cast<unsigned>(highest) / 16 > ppr() / 16 ? highest : -1;
  }
};

struct Operation {
  int kind;
  std::uint8_t value;
  bool level;
};

[[maybe_unused]] void showValue(const Operation& operation, std::ostream& out) {
  out << "{kind " << operation.kind << ", value " << unsigned{operation.value} << ", level "
      << operation.level << "}";
}

}  // namespace

TEST_CASE("random sequences agree with a naive reference") {
  const auto operation =
      rc::gen::build<Operation>(rc::gen::set(&Operation::kind, rc::gen::inRange(0, 6)),
                                rc::gen::set(&Operation::value, rc::gen::arbitrary<std::uint8_t>()),
                                rc::gen::set(&Operation::level, rc::gen::arbitrary<bool>()));
  const bool held = rc::check("IRR, ISR, TMR, PPR and what is deliverable", [&operation] {
    LocalApic apic = enabled();
    NaiveApic naive;
    for (const Operation& step : *rc::gen::container<std::vector<Operation>>(operation)) {
      switch (step.kind) {
        case 0:
        case 1:
        case 2:
          apic.accept(step.value, step.level);
          if (step.value >= 16) {
            naive.irr[step.value] = true;
            naive.tmr[step.value] = step.level;
          }
          break;
        case 3: {
          const int expected = naive.deliverable();
          RC_ASSERT(apic.acknowledge() == (expected < 0 ? 0xff : expected));
          if (expected >= 0) {
            naive.irr[static_cast<std::size_t>(expected)] = false;
            naive.isr[static_cast<std::size_t>(expected)] = true;
          }
          break;
        }
        case 4: {
          const int expected = NaiveApic::top(naive.isr);
          const EndOfInterrupt end = apic.eoi();
          RC_ASSERT(end.vector == expected);
          if (expected >= 0) {
            RC_ASSERT(end.level == naive.tmr[static_cast<std::size_t>(expected)]);
            naive.isr[static_cast<std::size_t>(expected)] = false;
          }
          break;
        }
        default:
          apic.set_tpr(step.value);
          naive.tpr = step.value;
          break;
      }
      RC_ASSERT(apic.highest_irr() == NaiveApic::top(naive.irr));
      RC_ASSERT(apic.highest_isr() == NaiveApic::top(naive.isr));
      RC_ASSERT(apic.ppr() == naive.ppr());
      RC_ASSERT(apic.deliverable() == naive.deliverable());
      for (unsigned vector = 0; vector < 256; ++vector) {
        const auto v = static_cast<std::uint8_t>(vector);
        RC_ASSERT(apic.irr().test(v) == naive.irr[vector]);
        RC_ASSERT(apic.isr().test(v) == naive.isr[vector]);
        RC_ASSERT(apic.tmr().test(v) == naive.tmr[vector]);
      }
    }
  });
  CHECK(held);
}
