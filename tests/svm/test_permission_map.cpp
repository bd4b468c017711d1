#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "svm/permission_map.hpp"

using namespace svmsim::svm;

TEST_CASE("MSRPM bit numbers of the manual") {
  CHECK(MsrPermissionMap::read_bit(0x6e0) == 0x0dc0);
  CHECK(MsrPermissionMap::read_bit(0x830) + 1 == 0x1061);
  CHECK(MsrPermissionMap::read_bit(0) == 0);
  CHECK(MsrPermissionMap::read_bit(0x1fff) == 0x3ffe);
  CHECK(MsrPermissionMap::read_bit(0xc0000000) == 0x4000);
  CHECK(MsrPermissionMap::read_bit(0xc0001fff) == 0x7ffe);
  CHECK(MsrPermissionMap::read_bit(0xc0010000) == 0x8000);
  CHECK(MsrPermissionMap::read_bit(0xc0011fff) == 0xbffe);
  for (const std::uint32_t outside :
       {0x2000U, 0xbfffffffU, 0xc0002000U, 0xc000ffffU, 0xc0012000U, 0x4b564d00U, 0xffffffffU}) {
    CAPTURE(outside);
    CHECK(MsrPermissionMap::read_bit(outside) == -1);
  }
}

TEST_CASE("MSRPM byte and bit of the manual's examples") {
  MsrPermissionMap map;
  map.bytes()[0x1b8] = 0x01;  // TSC_DEADLINE, read
  map.bytes()[0x20c] = 0x02;  // x2APIC ICR, write
  CHECK(map.intercepts(0x6e0, false));
  CHECK_FALSE(map.intercepts(0x6e0, true));
  CHECK_FALSE(map.intercepts(0x830, false));
  CHECK(map.intercepts(0x830, true));
}

TEST_CASE("MSRs outside the ranges are always intercepted, and nothing can change that") {
  MsrPermissionMap map;
  map.fill(false);
  map.set(0x4b564d00, false, false);
  CHECK(map.intercepts(0x4b564d00, false));
  CHECK(map.intercepts(0x2000, true));
  CHECK_FALSE(map.intercepts(0x1fff, true));
}

TEST_CASE("an MSR's bits touch no other MSR") {
  CHECK(rc::check("set one", [](bool read, bool write) {
    const std::uint32_t base = *rc::gen::element(0x0U, 0xc0000000U, 0xc0010000U);
    const std::uint32_t msr = base + *rc::gen::inRange(0U, 0x2000U);
    const bool background = *rc::gen::arbitrary<bool>();
    MsrPermissionMap map;
    map.fill(background);
    map.set(msr, read, write);
    RC_ASSERT(map.intercepts(msr, false) == read);
    RC_ASSERT(map.intercepts(msr, true) == write);
    MsrPermissionMap expected;
    expected.fill(background);
    const auto bit = static_cast<std::uint32_t>(MsrPermissionMap::read_bit(msr));
    std::size_t different = 0;
    for (std::size_t i = 0; i < map.bytes().size(); ++i) {
      if (map.bytes()[i] != expected.bytes()[i]) {
        RC_ASSERT(i == bit / 8);
        ++different;
      }
    }
    RC_ASSERT(different == ((read != background || write != background) ? 1U : 0U));
  }));
}

TEST_CASE("an access is intercepted if any port that it covers is") {
  IoPermissionMap map;
  map.set(0x5000, true);
  CHECK(map.intercepts(0x5000, 1));
  CHECK(map.intercepts(0x4fff, 4));
  CHECK(map.intercepts(0x4ffd, 4));
  CHECK_FALSE(map.intercepts(0x4ffc, 4));
  CHECK_FALSE(map.intercepts(0x5001, 4));
  map.set(0x5000, false);
  CHECK_FALSE(map.intercepts(0x5000, 4));
}

TEST_CASE("the IOPM is contiguous across its pages") {
  IoPermissionMap map;
  CHECK_FALSE(map.intercepts(0x7fff, 4));
  map.set(0x8000, true);
  CHECK(map.intercepts(0x7fff, 4));
  CHECK_FALSE(map.intercepts(0x7fff, 1));
}

TEST_CASE("an access at port FFFFh looks at the bits beyond 64K and does not wrap to port 0") {
  IoPermissionMap map;
  map.set(0, true);
  CHECK_FALSE(map.intercepts(0xffff, 4));
  for (const std::uint32_t beyond : {0x10000U, 0x10001U, 0x10002U}) {
    CAPTURE(beyond);
    map.fill(false);
    map.set(beyond, true);
    CHECK(map.intercepts(0xffff, 4));
    CHECK_FALSE(map.intercepts(0xffff, 1));
  }
  CHECK(map.bytes()[0x2000] == 0x04);
  map.set(0xffff'ffff, true);  // far outside: without effect
  CHECK(map.bytes()[0x2fff] == 0);
}
