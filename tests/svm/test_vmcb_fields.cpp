#include <cstring>
#include <set>
#include <string>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "svm/vmcb_bits.hpp"
#include "svm/vmcb_fields.hpp"

using namespace svmsim::svm;

TEST_CASE("the fields lie beside each other and have one name each") {
  std::set<std::string> names;
  unsigned end = 0;
  for (const VmcbField& field : all_vmcb_fields()) {
    CAPTURE(field.name);
    CHECK(field.offset >= end);
    end = field.offset + field.size;
    CHECK(names.insert(field.name).second);
    std::uint64_t seen = 0;
    for (const VmcbBits& bits : field.bits) {
      CHECK((bits.mask() & seen) == 0);
      CHECK((bits.mask() & ~field.maximum()) == 0);
      seen |= bits.mask();
    }
  }
  CHECK(end <= sizeof(Vmcb));
}

TEST_CASE("a path reaches the member of the same name") {
  Vmcb vmcb{};
  const auto set = [&vmcb](std::string_view path, std::uint64_t value) {
    const auto found = find_vmcb_path(path);
    REQUIRE(found);
    found->set(vmcb, value);
    CHECK(found->get(vmcb) == value);
  };
  set("intercepts_5", 0x40);
  CHECK(vmcb.control.intercepts[5] == 0x40);
  set("int_ctl", 0xffff'ffff);
  set("int_ctl.v_intr_prio", 5);
  set("int_ctl.v_irq", 0);
  CHECK(vmcb.control.int_ctl == 0xfff5'feff);
  CHECK(int_ctl::v_intr_prio(vmcb.control.int_ctl) == 5);
  set("event_inj.type", event_inj::type_soft);
  set("event_inj.vector", 0x80);
  set("event_inj.valid", 1);
  CHECK(vmcb.control.event_inj == event_inj::event(event_inj::type_soft, 0x80));
  set("cs.attrib.l", 1);
  CHECK(vmcb.save.cs.attrib == segment_attrib::long_mode);
  set("gdtr.base", 0x1234'5678'9abc'def0);
  CHECK(vmcb.save.gdtr.base == 0x1234'5678'9abc'def0);
  set("rflags.iopl", 3);
  set("rflags.if", 1);
  CHECK(vmcb.save.rflags == (rflags::iopl_mask | rflags::interrupt));
  set("cr0.cd", 1);
  set("efer.svme", 1);
  set("cr4.cet", 1);
  CHECK(vmcb.save.cr0 == cr0::cd);
  CHECK(vmcb.save.efer == efer::svme);
  CHECK(vmcb.save.cr4 == cr4::cet);
  CHECK_FALSE(find_vmcb_path("int_ctl.v_int"));
  CHECK_FALSE(find_vmcb_path("save.rip"));
  CHECK(find_vmcb_field("cs.base") != nullptr);
  CHECK(find_vmcb_field("int_ctl.v_irq") == nullptr);
}

TEST_CASE("setting a path changes its bits and no others") {
  rc::check("one path", [] {
    Vmcb before{};
    const auto fill = *rc::gen::arbitrary<std::uint8_t>();
    std::memset(static_cast<void*>(&before), fill, sizeof(before));
    const auto path = find_vmcb_path(*rc::gen::elementOf(vmcb_paths()));
    const std::uint64_t value = *rc::gen::arbitrary<std::uint64_t>() & path->maximum();
    Vmcb after = before;
    path->set(after, value);
    RC_ASSERT(path->get(after) == value);
    path->set(after, path->get(before));
    RC_ASSERT(std::memcmp(&after, &before, sizeof(before)) == 0);
  });
}
