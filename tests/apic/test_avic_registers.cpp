#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/apic/avic_vm.hpp"

using namespace svmsim::apic;
using svmsim::apic::test::AvicVm;

namespace {

// One row of table 15-22 (fact sheet 8.3). a: allowed, t: trap, f: fault, *: accelerated, by its own test.
struct Row {
  std::uint32_t first;
  std::uint32_t last;
  char read;
  char write;
};

const std::vector<Row> table{
    {0x020, 0x020, 'a', 't'}, {0x030, 0x030, 'a', 'f'}, {0x080, 0x080, 'a', '*'}, {0x090, 0x090, 'f', 'f'},
    {0x0a0, 0x0a0, 'a', 'f'}, {0x0b0, 0x0b0, 'a', '*'}, {0x0c0, 0x0c0, 'a', 't'}, {0x0d0, 0x0d0, 'a', 't'},
    {0x0e0, 0x0e0, 'a', 't'}, {0x0f0, 0x0f0, 'a', 't'}, {0x100, 0x1f0, 'a', 'f'}, {0x200, 0x270, 'a', 'f'},
    {0x280, 0x280, 'a', 't'}, {0x300, 0x300, 'a', '*'}, {0x310, 0x310, 'a', 'a'}, {0x320, 0x370, 'a', 't'},
    {0x380, 0x380, 'a', 't'}, {0x390, 0x390, 'f', 'f'}, {0x3e0, 0x3e0, 'a', 't'}, {0x400, 0x400, 'f', 'f'},
    {0x410, 0x410, 'f', 'f'}, {0x420, 0x420, 'f', 'f'}, {0x480, 0x4f0, 'f', 'f'}, {0x500, 0x570, 'f', 'f'},
};

// What the table says of a 16-byte slot; locations that it does not name are allowed below 400h and reserved
// above.
Row row_of(std::uint32_t offset) {
  for (const Row& row : table) {
    if (offset >= row.first && offset <= row.last) return row;
  }
  return offset < 0x400 ? Row{offset, offset, 'a', 'a'} : Row{offset, offset, 'f', 'f'};
}

void check_noaccel(const AvicResult& result, char kind, std::uint32_t offset, bool write) {
  CAPTURE(offset);
  CAPTURE(write);
  if (kind == 'a') {
    CHECK(result.outcome == AvicOutcome::done);
    CHECK(result.rip_after());
    return;
  }
  CHECK(result.outcome == (kind == 't' ? AvicOutcome::noaccel_trap : AvicOutcome::noaccel_fault));
  CHECK(result.exits());
  CHECK(result.exit_code() == 0x402);
  CHECK(result.rip_after() == (kind == 't'));
  CHECK_FALSE(result.nrip_is_next);
  CHECK(result.exit_info_1 == ((offset & 0xff0U) | (write ? std::uint64_t{1} << 32 : 0)));
}

}  // namespace

TEST_CASE("xAVIC: every location of the APIC page is read and written as table 15-22 says") {
  for (std::uint32_t offset = 0; offset < 0x1000; offset += 4) {
    AvicVm vm(false);
    DoorbellList doorbells;
    // Bytes 4 to 15 of a slot belong to no register: undefined below 400h, reserved above.
    const bool gap = offset % 16 != 0;
    const Row row = gap && offset < 0x400 ? Row{offset, offset, 'a', 'a'} : row_of(offset & 0xff0U);
    vm.page(0).write(offset, 0x1234'5678);
    const AvicResult read = vm.cores[0].read_page(offset);
    check_noaccel(read, row.read, offset, false);
    CHECK(read.value == (row.read == 'a' ? 0x1234'5678U : 0U));
    if (row.write == '*') continue;
    vm.page(0).write(offset, 0);
    check_noaccel(vm.cores[0].write_page(offset, 0x8765'4321, doorbells), row.write, offset, true);
    // A trap is performed first, a fault is not performed.
    CHECK(vm.page(0).read(offset) == (row.write == 'f' ? 0U : 0x8765'4321U));
  }
}

TEST_CASE("the extended LVTs follow EDX[27], and their number the manual's revision") {
  for (const std::uint32_t count : {4U, 8U}) {
    AvicProcessor processor;
    processor.ext_lvt_accelerated = true;
    processor.ext_lvt_registers = count;
    AvicVm xavic(false, 1, {}, processor);
    AvicVm x2avic(true, 1, {}, processor);
    DoorbellList doorbells;
    for (std::uint32_t offset = 0x500; offset <= 0x570; offset += 0x10) {
      const bool there = offset < 0x500 + 0x10 * count;
      check_noaccel(xavic.cores[0].read_page(offset), there ? 'a' : 'f', offset, false);
      check_noaccel(xavic.cores[0].write_page(offset, 0x141, doorbells), there ? 't' : 'f', offset, true);
      const std::uint32_t msr = 0x800 + offset / 16;
      const AvicResult write = x2avic.cores[0].write_msr(msr, 0x141, doorbells);
      if (there) {
        check_noaccel(x2avic.cores[0].read_msr(msr), 'a', offset, false);
        check_noaccel(write, 't', offset, true);
        CHECK(x2avic.page(0).read(offset) == 0x141);
      } else {
        CHECK(x2avic.cores[0].read_msr(msr).outcome == AvicOutcome::general_protection);
        CHECK(write.outcome == AvicOutcome::general_protection);
      }
    }
  }
}

namespace {

// x2APIC MSRs: what a read and a write of an allowed value do; g: #GP(0), -: see the table's row of its
// offset.
struct MsrRow {
  std::uint32_t msr;
  bool reads;
  bool writes;
  std::uint32_t writable;
};

std::optional<MsrRow> msr_row(std::uint32_t msr) {
  static const std::vector<MsrRow> rows{
      {0x802, true, false, 0},       {0x803, true, false, 0},       {0x808, true, true, 0xff},
      {0x809, true, false, 0},       {0x80a, true, false, 0},       {0x80b, false, true, 0},
      {0x80d, true, false, 0},       {0x80f, true, true, 0x3ff},    {0x828, true, true, 0},
      {0x832, true, true, 0x3'10ff}, {0x833, true, true, 0x1'17ff}, {0x834, true, true, 0x1'17ff},
      {0x835, true, true, 0x1'f7ff}, {0x836, true, true, 0x1'f7ff}, {0x837, true, true, 0x1'10ff},
      {0x838, true, true, ~0U},      {0x839, true, false, 0},       {0x83e, true, true, 0xb},
      {0x83f, false, true, 0xff},    {0x840, true, false, 0},       {0x841, true, true, 3},
      {0x842, false, true, 0xff},
  };
  if (msr >= 0x810 && msr <= 0x827) return MsrRow{msr, true, false, 0};
  if (msr >= 0x848 && msr <= 0x84f) return MsrRow{msr, true, true, ~0U};
  if (msr >= 0x850 && msr <= 0x857) return MsrRow{msr, true, true, 0x1'17ff};
  for (const MsrRow& row : rows) {
    if (row.msr == msr) return row;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("x2AVIC: access checks of x2APIC mode come first, then the same table") {
  for (std::uint32_t msr = 0x800; msr <= 0x8ff; ++msr) {
    if (msr == 0x830) continue;
    CAPTURE(msr);
    const std::uint32_t offset = (msr - 0x800) * 16;
    const Row row = row_of(offset);
    const std::optional<MsrRow> rule = msr_row(msr);
    AvicVm vm(true);
    DoorbellList doorbells;
    vm.page(0).write(offset, 0x1234'5678);
    const AvicResult read = vm.cores[0].read_msr(msr);
    if (rule && rule->reads) {
      check_noaccel(read, row.read, offset, false);
      if (row.read == 'a') CHECK(read.value == 0x1234'5678);
    } else {
      CHECK(read.outcome == AvicOutcome::general_protection);
      CHECK_FALSE(read.exits());
      CHECK_FALSE(read.rip_after());
    }
    for (unsigned bit = 0; bit <= 64; ++bit) {
      CAPTURE(bit);
      const std::uint64_t value = bit == 64 ? 0 : std::uint64_t{1} << bit;
      const bool legal = rule && rule->writes && (value & ~std::uint64_t{rule->writable}) == 0;
      if (legal && (row.write == '*' || msr == 0x83f)) continue;
      vm.page(0).write(offset, 0);
      const AvicResult write = vm.cores[0].write_msr(msr, value, doorbells);
      if (!legal) {
        CHECK(write.outcome == AvicOutcome::general_protection);
        CHECK(vm.page(0).read(offset) == 0);
      } else {
        check_noaccel(write, row.write, offset, true);
        CHECK(vm.page(0).read(offset) == (row.write == 'f' ? 0 : value));
      }
    }
  }
}

TEST_CASE("12.14: with the table first, a write of a read-only x2APIC register exits 402h") {
  AvicKnobs knobs;
  knobs.x2apic_checks_before_table = false;
  for (const std::uint32_t msr : {0x802U, 0x803U, 0x80aU, 0x80dU, 0x810U, 0x820U, 0x839U}) {
    AvicVm vm(true, 1, knobs);
    DoorbellList doorbells;
    const std::uint32_t offset = (msr - 0x800) * 16;
    check_noaccel(vm.cores[0].write_msr(msr, 1, doorbells), row_of(offset).write, offset, true);
    CHECK(vm.cores[0].write_msr(msr, std::uint64_t{1} << 32, doorbells).outcome ==
          AvicOutcome::general_protection);
  }
  AvicVm vm(true, 1, knobs);
  DoorbellList doorbells;
  CHECK(vm.cores[0].write_msr(0x80e, 1, doorbells).outcome == AvicOutcome::general_protection);
  CHECK(vm.cores[0].read_msr(0x80b).outcome == AvicOutcome::general_protection);
}

TEST_CASE("without the extended APIC space its MSRs raise #GP, and xAVIC pages still fault") {
  AvicProcessor processor;
  processor.extended_apic_space = false;
  AvicVm x2avic(true, 1, {}, processor);
  AvicVm xavic(false, 1, {}, processor);
  for (std::uint32_t msr = 0x840; msr <= 0x8ff; ++msr) {
    CAPTURE(msr);
    CHECK(x2avic.cores[0].read_msr(msr).outcome == AvicOutcome::general_protection);
    CHECK(xavic.cores[0].read_page((msr - 0x800) * 16).outcome == AvicOutcome::noaccel_fault);
  }
}

TEST_CASE("TSC-deadline mode in the LVT timer raises #GP under x2AVIC, the other modes trap") {
  AvicVm vm(true);
  DoorbellList doorbells;
  CHECK(vm.cores[0].write_msr(0x832, 0x4'00ec, doorbells).outcome == AvicOutcome::general_protection);
  CHECK(vm.page(0).read(APIC_LVTT) == 0x1'0000);
  CHECK(vm.cores[0].write_msr(0x832, 0x2'00ec, doorbells).outcome == AvicOutcome::noaccel_trap);
  CHECK(vm.page(0).read(APIC_LVTT) == 0x2'00ec);
}

TEST_CASE("the ICR of x2AVIC is one MSR over two words of the page") {
  AvicVm vm(true);
  DoorbellList doorbells;
  for (unsigned bit = 0; bit < 32; ++bit) {
    CAPTURE(bit);
    const std::uint64_t value = std::uint64_t{1} << bit | 0x300000000;
    const AvicResult result = vm.cores[0].write_msr(0x830, value, doorbells);
    const bool reserved = (0xfff3'3000U >> bit & 1U) != 0;
    CHECK((result.outcome == AvicOutcome::general_protection) == reserved);
  }
  vm.cores[0].write_msr(0x830, 0x0000'0002'0000'00fd, doorbells);
  CHECK(vm.page(0).read(0x300) == 0xfd);
  CHECK(vm.page(0).read(0x310) == 2);
  CHECK(vm.cores[0].read_msr(0x830).value == 0x0000'0002'0000'00fd);
  // A faulting write changes neither half.
  vm.cores[0].write_msr(0x830, 0x0000'0003'0000'10fe, doorbells);
  CHECK(vm.page(0).icr() == 0x0000'0002'0000'00fd);
  CHECK(vm.cores[0].read_msr(0x831).outcome == AvicOutcome::general_protection);
}

TEST_CASE("TPR writes are accelerated: page, V_TPR, PPR, and delivery is evaluated again") {
  for (const bool x2avic : {false, true}) {
    CAPTURE(x2avic);
    AvicVm vm(x2avic);
    DoorbellList doorbells;
    const auto write_tpr = [&](std::uint32_t value) {
      return x2avic ? vm.cores[0].write_msr(0x808, value, doorbells)
                    : vm.cores[0].write_page(0x80, value, doorbells);
    };
    AvicResult result = write_tpr(0x57);
    CHECK(result.outcome == AvicOutcome::done);
    CHECK(result.v_tpr == 5);
    CHECK(vm.page(0).read(0x80) == 0x57);
    CHECK(vm.page(0).read(0xa0) == 0x57);
    vm.page(0).request(0x51);
    vm.cores[0].doorbell(false);
    CHECK(vm.cores[0].pending() == -1);
    CHECK(vm.cores[0].highest_irr() == 0x51);
    CHECK(vm.cores[0].ppr() == 0x57);
    result = write_tpr(0x4f);
    CHECK(result.v_tpr == 4);
    CHECK(vm.cores[0].pending() == 0x51);
    write_tpr(0x50);
    CHECK(vm.cores[0].pending() == -1);
    vm.cores[0].write_cr8(4);
    CHECK(vm.page(0).read(0x80) == 0x40);
    CHECK(vm.cores[0].pending() == 0x51);
    vm.cores[0].write_cr8(15);
    CHECK(vm.page(0).read(0x80) == 0xf0);
    CHECK(vm.cores[0].pending() == -1);
  }
}

TEST_CASE("EOI: accelerated for an edge vector, a trap with the vector for a level one") {
  for (const bool x2avic : {false, true}) {
    for (const bool clears : {true, false}) {
      CAPTURE(x2avic);
      CAPTURE(clears);
      AvicKnobs knobs;
      knobs.level_eoi_clears_isr = clears;
      AvicVm vm(x2avic, 2, knobs);
      DoorbellList doorbells;
      const auto eoi = [&] {
        return x2avic ? vm.cores[0].write_msr(0x80b, 0, doorbells)
                      : vm.cores[0].write_page(0xb0, 0xdeadbeef, doorbells);
      };
      // Nothing in service: no effect, no exit.
      CHECK(eoi().outcome == AvicOutcome::done);
      vm.page(0).request(0x41);
      vm.cores[0].doorbell(false);
      CHECK(vm.cores[0].acknowledge() == 0x41);
      vm.page(0).request(0x62);
      vm.page(0).set_tmr(0x62, true);
      vm.cores[0].doorbell(false);
      CHECK(vm.cores[0].acknowledge() == 0x62);
      vm.page(0).request(0x55);
      vm.cores[0].doorbell(false);
      CHECK(vm.cores[0].pending() == -1);

      const AvicResult level = eoi();
      CHECK(level.outcome == AvicOutcome::noaccel_trap);
      CHECK(level.exit_info_1 == 0x1'0000'00b0);
      CHECK(level.exit_info_2 == 0x62);
      CHECK(level.rip_after());
      CHECK(vm.page(0).test_isr(0x62) == !clears);
      CHECK(vm.page(0).ppr() == (clears ? 0x40 : 0x60));
      CHECK(vm.cores[0].pending() == (clears ? 0x55 : -1));
      if (!clears) vm.page(0).retire(0x62);

      const AvicResult edge = eoi();
      CHECK(edge.outcome == AvicOutcome::done);
      CHECK(vm.page(0).highest_isr() == -1);
      CHECK(vm.page(0).ppr() == 0);
      CHECK(vm.cores[0].pending() == 0x55);
    }
  }
}

TEST_CASE("x2AVIC: a nonzero EOI raises #GP and retires nothing") {
  AvicVm vm(true);
  DoorbellList doorbells;
  vm.page(0).request(0x41);
  vm.cores[0].doorbell(false);
  vm.cores[0].acknowledge();
  CHECK(vm.cores[0].write_msr(0x80b, 1, doorbells).outcome == AvicOutcome::general_protection);
  CHECK(vm.page(0).test_isr(0x41));
}

TEST_CASE("12.8: the exits report the next rIP as nRIP where the knob says so") {
  AvicKnobs knobs;
  knobs.nrip_is_next = true;
  AvicVm vm(false, 1, knobs);
  DoorbellList doorbells;
  CHECK(vm.cores[0].read_page(0x390).nrip_is_next);
  CHECK(vm.cores[0].write_page(0x320, 0, doorbells).nrip_is_next);
  CHECK(vm.send(0, 5, 0, doorbells).nrip_is_next);
}
