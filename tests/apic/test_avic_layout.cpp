#include <cstdint>
#include <cstring>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "apic/avic/avic_core.hpp"
#include "apic/avic/doorbell.hpp"
#include "apic/avic/posted_interrupt.hpp"
#include "apic/avic/stale_is_running.hpp"
#include "svm/user_error.hpp"
#include "tests/apic/avic_vm.hpp"

using namespace svmsim::apic;
using svmsim::apic::test::AvicVm;

namespace {

template <typename Page>
std::uint32_t word_at(const Page& page, std::size_t byte) {
  std::uint32_t value = 0;
  std::memcpy(&value, reinterpret_cast<const unsigned char*>(&page) + byte, sizeof value);
  return value;
}

template <typename Page>
std::uint64_t quad_at(const Page& page, std::size_t byte) {
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const unsigned char*>(&page) + byte, sizeof value);
  return value;
}

}  // namespace

TEST_CASE("the backing page has the layout of the APIC page") {
  BackingPage page;
  page.request(0x41);
  page.request(0xff);
  page.set_tmr(0x52, true);
  page.set_tpr(0x35);
  page.write(APIC_ICR, 0x000c'00fd);
  page.write(APIC_ICR2, 0x0700'0000);
  CHECK(word_at(page, 0x220) == 0x2);
  CHECK(word_at(page, 0x270) == 0x8000'0000);
  CHECK(word_at(page, 0x1a0) == 0x4'0000);
  CHECK(word_at(page, 0x080) == 0x35);
  CHECK(word_at(page, 0x0a0) == 0x35);
  CHECK(word_at(page, 0x300) == 0x000c'00fd);
  CHECK(word_at(page, 0x310) == 0x0700'0000);
  CHECK(page.acknowledge() == 0xff);
  CHECK(word_at(page, 0x170) == 0x8000'0000);
  CHECK(word_at(page, 0x270) == 0);
  CHECK(word_at(page, 0x0a0) == 0xf0);
  // Nothing else was touched.
  std::size_t used = 0;
  for (std::size_t byte = 0; byte < sizeof page; byte += 4)
    used += word_at(page, byte) != 0 ? 1U : 0U;
  CHECK(used == 7);
}

TEST_CASE("a backing page starts with the values after reset of its mode") {
  BackingPage page;
  page.write(0xff0, 7);
  page.reset(0x12, 0x8005'0010, false);
  CHECK(word_at(page, 0x20) == 0x1200'0000);
  CHECK(word_at(page, 0x30) == 0x8005'0010);
  CHECK(word_at(page, 0xd0) == 0);
  CHECK(word_at(page, 0xe0) == 0xffff'ffff);
  CHECK(word_at(page, 0xf0) == 0xff);
  for (const std::size_t lvt : {0x320U, 0x330U, 0x340U, 0x350U, 0x360U, 0x370U})
    CHECK(word_at(page, lvt) == 0x1'0000);
  CHECK(word_at(page, 0xff0) == 0);
  CHECK(page.flat());
  page.write(APIC_DFR, 0x0fff'ffff);
  CHECK_FALSE(page.flat());
  page.reset(0x123, 0, true);
  CHECK(word_at(page, 0x20) == 0x123);
  CHECK(word_at(page, 0xd0) == 0x0012'0008);
  CHECK(word_at(page, 0xe0) == 0);
}

TEST_CASE("physical APIC ID table entries: V 63, IsRunning 62, page 51:12, host APIC ID 11:0") {
  PhysicalIdEntry entry = PhysicalIdEntry::make(0x1234'5678'9000);
  CHECK(entry.raw == 0x8000'1234'5678'9000);
  CHECK(entry.valid());
  CHECK_FALSE(entry.is_running());
  entry = entry.running_on(0xabc);
  CHECK(entry.raw == 0xc000'1234'5678'9abc);
  CHECK(entry.is_running());
  CHECK(entry.host_apic_id() == 0xabc);
  CHECK(entry.backing_page() == 0x1234'5678'9000);
  entry = entry.running_on(0x1);
  CHECK(entry.raw == 0xc000'1234'5678'9001);
  entry = entry.not_running();
  CHECK(entry.raw == 0x8000'1234'5678'9001);
  // The four fields and the reserved bits cover the entry without overlap.
  CHECK((PhysicalIdEntry::host_apic_id_mask | PhysicalIdEntry::backing_page_mask |
         PhysicalIdEntry::reserved_mask | PhysicalIdEntry::is_running_bit | PhysicalIdEntry::valid_bit) ==
        ~std::uint64_t{0});
  CHECK((PhysicalIdEntry::reserved_mask & PhysicalIdEntry::ga_log_intr_bit) != 0);
  CHECK((PhysicalIdEntry::reserved_mask & PhysicalIdEntry::backing_page_mask) == 0);
}

TEST_CASE("the tables lie in memory as the manual has them") {
  PhysicalIdTablePage physical;
  physical.entries[3] = {0x1122'3344'5566'7788};
  CHECK(quad_at(physical, 24) == 0x1122'3344'5566'7788);
  LogicalIdTable logical;
  logical.entries[LogicalIdTable::cluster_index(14, 3)] = LogicalIdEntry::make(0x1fe);
  CHECK(word_at(logical, 16 * 14 + 4 * 3) == 0x8000'00fe);
  CHECK(LogicalIdTable::cluster_index(14, 3) == LogicalIdTable::cluster_entries - 1);
}

TEST_CASE("MAX_INDEX: limits and pages of the table") {
  CHECK(avic_max_index_limit(false, false) == 255);
  CHECK(avic_max_index_limit(false, true) == 255);
  CHECK(avic_max_index_limit(true, false) == 511);
  CHECK(avic_max_index_limit(true, true) == 4095);
  CHECK(physical_table_pages(254, false) == 1);
  CHECK(physical_table_pages(511, true) == 1);
  CHECK(physical_table_pages(512, true) == 2);
  CHECK(physical_table_pages(4095, true) == 8);
}

TEST_CASE("memory finds exactly its pages") {
  AvicMemory::Size size;
  size.backing_pages = 3;
  size.physical_table_pages = 2;
  AvicMemory memory(size, 0x8000);
  CHECK(memory.backing_pages.find(0x7fff) == nullptr);
  CHECK(memory.backing_pages.find(0) == nullptr);
  CHECK(memory.backing_pages.find(0x8000) == &memory.backing_pages[0]);
  CHECK(memory.backing_pages.find(0xafff) == &memory.backing_pages[2]);
  CHECK(memory.backing_pages.find(0xb000) == nullptr);
  CHECK(memory.physical_tables.find(0xb000) == &memory.physical_tables[0]);
  CHECK(memory.physical_tables.from(0xc000) == 1);
  CHECK(memory.physical_tables.from(0xd000) == 0);
  CHECK(memory.logical_tables.address(0) == 0xd000);
}

TEST_CASE("VMRUN with a pointer to nowhere is an error of ours, with AVIC off it is nothing") {
  AvicVm vm(false);
  AvicCore core(vm.registers);
  svmsim::svm::VmcbControl control = vm.control;
  control.avic_backing_page = 0x1000;
  CHECK_THROWS_AS(core.vmrun(control, vm.memory), svmsim::InternalError);
  control = vm.control;
  control.avic_physical_id = 0x1000;
  CHECK_THROWS_AS(core.vmrun(control, vm.memory), svmsim::InternalError);
  control = vm.control;
  control.avic_logical_id = 0x1000;
  CHECK_THROWS_AS(core.vmrun(control, vm.memory), svmsim::InternalError);
  // x2AVIC computes logical IDs.
  control.int_ctl |= svmsim::svm::int_ctl::x2avic_enable;
  CHECK(core.vmrun(control, vm.memory).enabled);
  CHECK(core.active());
  control.int_ctl = 0;
  control.avic_backing_page = 0;
  CHECK_FALSE(core.vmrun(control, vm.memory).enabled);
  core.entered();
  CHECK_FALSE(core.active());
  CHECK(core.pending() == -1);
  CHECK(core.doorbell(false) == DoorbellEffect::dropped);
}

TEST_CASE("the doorbell MSR takes a host APIC ID, and #GP above it") {
  AvicKnobs knobs;
  CHECK(doorbell_target(0xfff, knobs) == 0xfffU);
  CHECK_FALSE(doorbell_target(0x1000, knobs).has_value());
  CHECK_FALSE(doorbell_target(std::uint64_t{1} << 63, knobs).has_value());
  knobs.doorbell_id_bits = 8;
  CHECK(doorbell_target(0xff, knobs) == 0xffU);
  CHECK_FALSE(doorbell_target(0x100, knobs).has_value());
  CHECK(msr_avic_doorbell == 0xc001'011b);
}

TEST_CASE("erratum 1235: a sender sees the running entry for a while after IsRunning was cleared") {
  const PhysicalIdEntry running = PhysicalIdEntry::make(0x5000).running_on(7);
  const PhysicalIdEntry blocked = running.not_running();
  StaleIsRunning stale(2, 100);
  CHECK(stale.observe(0, blocked, 1000).raw == blocked.raw);
  stale.note_cleared(0, running, 1000);
  CHECK(stale.observe(0, blocked, 1000).raw == running.raw);
  CHECK(stale.observe(0, blocked, 1099).raw == running.raw);
  CHECK(stale.observe(0, blocked, 1100).raw == blocked.raw);
  CHECK(stale.observe(1, blocked, 1000).raw == blocked.raw);
  // What runs again is seen as it is.
  CHECK(stale.observe(0, running.running_on(9), 1001).host_apic_id() == 9);
}

TEST_CASE("IRTE fields stand at their bits") {
  Irte irte = Irte::posted(0x45, 0x1'2345'6000, 0xdead'beef);
  CHECK(irte.low == 0xdead'beef'0000'0081);
  CHECK(irte.high == 0x0000'0001'2345'6045);
  CHECK(irte.guest_mode());
  CHECK(irte.remap_enable());
  CHECK_FALSE(irte.no_fault());
  CHECK_FALSE(irte.is_run());
  CHECK(irte.ga_tag() == 0xdead'beef);
  CHECK(irte.vector() == 0x45);
  CHECK(irte.backing_page() == 0x1'2345'6000);
  irte.clear_running(true);
  CHECK(irte.low == 0xdead'beef'0000'0085);
  CHECK(irte.ga_log_intr());
  irte.set_running(0xab12'3456);
  CHECK(irte.low == 0xdead'beef'1234'56c1);
  CHECK(irte.high == 0xab00'0001'2345'6045);
  CHECK(irte.destination() == 0xab12'3456);
  CHECK_FALSE(irte.ga_log_intr());
  irte.clear_running(false);
  CHECK(irte.low == 0xdead'beef'1234'5681);
  irte.set_destination(1);
  CHECK(irte.high == 0x0000'0001'2345'6045);
  CHECK(irte.destination() == 1);
  irte.low |= Irte::no_fault_bit;
  CHECK(irte.no_fault());
  CHECK(Irte{4U << 2, 0}.type() == 4);
}

TEST_CASE("the bits of the IRR, ISR and PPR of a page agree with a naive reference") {
  const bool held = rc::check("page against sets", [] {
    BackingPage page;
    std::array<bool, 256> irr{};
    std::array<bool, 256> isr{};
    unsigned tpr = 0;
    const auto top = [](const std::array<bool, 256>& bits) {
      for (int i = 255; i >= 0; --i) {
        if (bits[static_cast<std::size_t>(i)]) return i;
      }
      return -1;
    };
    const auto steps = *rc::gen::container<std::vector<std::pair<std::uint8_t, std::uint8_t>>>(
        rc::gen::pair(rc::gen::inRange<std::uint8_t>(0, 5), rc::gen::arbitrary<std::uint8_t>()));
    for (const auto& [kind, value] : steps) {
      const int in_service = top(isr);
      const unsigned isr_class = in_service < 0 ? 0 : static_cast<unsigned>(in_service) / 16;
      const unsigned ppr = tpr / 16 >= isr_class ? tpr : isr_class * 16;
      RC_ASSERT(page.ppr() == ppr);
      RC_ASSERT(page.highest_irr() == top(irr));
      RC_ASSERT(page.highest_isr() == in_service);
      switch (kind) {
        case 0:
        case 1:
          RC_ASSERT(page.request(value) == irr[value]);
          irr[value] = true;
          break;
        case 2: {
          const int next = top(irr);
          const bool takes = next >= 0 && static_cast<unsigned>(next) / 16 > ppr / 16;
          RC_ASSERT(page.acknowledge() == (takes ? next : -1));
          if (takes) {
            irr[static_cast<std::size_t>(next)] = false;
            isr[static_cast<std::size_t>(next)] = true;
          }
          break;
        }
        case 3:
          if (in_service >= 0) {
            page.retire(static_cast<std::uint8_t>(in_service));
            isr[static_cast<std::size_t>(in_service)] = false;
          }
          break;
        default:
          page.set_tpr(value);
          tpr = value;
          break;
      }
    }
  });
  CHECK(held);
}
