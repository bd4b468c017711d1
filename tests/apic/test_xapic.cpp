// The APIC page of xAPIC mode (fact sheet 7.2), and APIC_BASE (7.1).

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "apic/local_apic.hpp"

using namespace svmsim::apic;

namespace {

LocalApicOptions xapic_options(bool extended = false) {
  LocalApicOptions options;
  options.initial_mode = ApicMode::xapic;
  options.extended = extended;
  return options;
}

struct PageRow {
  std::uint32_t offset;
  bool reads;
  std::uint32_t reset;
  std::uint32_t stored;  // what a store of all ones leaves to be read
};

// 7.2, the xAPIC column. The APIC has ID 0x12345 and is software-enabled before the stores.
const std::vector<PageRow> page_rows{
    {0x020, true, 0x45000000, 0xff000000},
    {0x030, true, 0x00050010, 0x00050010},
    {0x080, true, 0, 0xff},
    {0x090, true, 0, 0},
    {0x0a0, true, 0, 0},
    {0x0b0, false, 0, 0},
    {0x0c0, true, 0, 0},
    {0x0d0, true, 0, 0xff000000},
    {0x0e0, true, 0xffffffff, 0xffffffff},
    {0x0f0, true, 0xff, 0x3ff},
    {0x100, true, 0, 0},
    {0x170, true, 0, 0},
    {0x180, true, 0, 0},
    {0x1f0, true, 0, 0},
    {0x200, true, 0, 0},
    {0x270, true, 0, 0},
    {0x280, true, 0, 0},
    {0x300, true, 0, 0x000ccfff},
    {0x310, true, 0, 0xff000000},
    {0x320, true, 0x10000, 0x000700ff},  // status bits stay as they are
    {0x330, true, 0x10000, 0x000107ff},
    {0x340, true, 0x10000, 0x000107ff},
    {0x350, true, 0x10000, 0x0001a7ff},
    {0x360, true, 0x10000, 0x0001a7ff},
    {0x370, true, 0x10000, 0x000100ff},
    {0x380, true, 0, 0xffffffff},
    {0x390, true, 0, 0},
    {0x3e0, true, 0, 0xb},
};

const std::vector<PageRow> extended_page_rows{
    {0x400, true, 0x00040007, 0x00040007},
    {0x410, true, 0, 3},
    {0x420, false, 0, 0},
    {0x480, true, 0xffffffff, 0xffffffff},
    {0x4f0, true, 0xffffffff, 0xffffffff},
    {0x500, true, 0x10000, 0x000107ff},
    {0x530, true, 0x10000, 0x000107ff},
};

std::uint64_t load(LocalApic& apic, std::uint32_t offset) {
  return apic.read_mmio(offset).value;
}

std::uint64_t errors(LocalApic& apic) {
  apic.write_mmio(0x280, 0);
  return load(apic, 0x280);
}

void check_page_row(const PageRow& row, bool extended) {
  CAPTURE(row.offset);
  LocalApic apic(0x12345, xapic_options(extended));
  CHECK(load(apic, row.offset) == row.reset);
  apic.write_mmio(0xf0, 0x1ff);
  if (row.offset != 0xf0) CHECK(load(apic, row.offset) == row.reset);
  CHECK(apic.write_mmio(row.offset, 0xffffffff).effect != WriteEffect::general_protection);
  CHECK(load(apic, row.offset) == row.stored);
  CHECK(errors(apic) == 0);
}

}  // namespace

TEST_CASE("every register of the page has its reset value, and takes the bits it has") {
  for (const PageRow& row : page_rows)
    check_page_row(row, false);
  for (const PageRow& row : extended_page_rows)
    check_page_row(row, true);
}

TEST_CASE("an offset without a register reads 0 and is an illegal register address") {
  std::vector<bool> known(0x100);
  for (const PageRow& row : page_rows)
    known[row.offset >> 4] = true;
  for (std::uint32_t offset = 0x100; offset < 0x280; offset += 0x10)
    known[offset >> 4] = true;
  for (std::uint32_t offset = 0; offset < 0x1000; offset += 0x10) {
    CAPTURE(offset);
    LocalApic apic(1, xapic_options());
    apic.read_mmio(offset);
    CHECK(errors(apic) == (known[offset >> 4] ? 0 : LocalApic::esr_illegal_register));
    if (known[offset >> 4]) continue;
    CHECK(load(apic, offset) == 0);
    errors(apic);
    apic.write_mmio(offset, 1);
    CHECK(errors(apic) == LocalApic::esr_illegal_register);
  }
}

TEST_CASE("loads may take part of a register, stores only all of it") {
  LocalApic apic(0x5a, xapic_options());
  CHECK(apic.read_mmio(0x23, 0, 1).value == 0x5a);
  CHECK(apic.read_mmio(0x22, 0, 2).value == 0x5a00);
  CHECK(apic.read_mmio(0x20, 0, 1).value == 0);
  CHECK(apic.read_mmio(0x24, 0, 4).value == 0);
  CHECK(apic.read_mmio(0x20, 0, 8).value == 0);
  apic.write_mmio(0x80, 0x33, 0, 1);
  apic.write_mmio(0x81, 0x33);
  CHECK(apic.tpr() == 0);
}

TEST_CASE("the two ICR registers make one command, which the low one sends") {
  LocalApic apic(3, xapic_options());
  CHECK(apic.write_mmio(0x310, 0x07000000).effect == WriteEffect::stored);
  const RegisterWrite write = apic.write_mmio(0x300, 0x00004841);
  REQUIRE(write.effect == WriteEffect::ipi);
  CHECK(write.command.destination == 7);
  CHECK(write.command.vector == 0x41);
  CHECK(write.command.destination_mode == DestinationMode::logical);
  CHECK(load(apic, 0x300) == 0x4841);  // delivery status: idle
  CHECK(load(apic, 0x310) == 0x07000000);
  for (unsigned type = 0; type < 8; ++type) {
    const RegisterWrite sent = apic.write_mmio(0x300, type << 8 | 0x41);
    CHECK(sent.effect == WriteEffect::ipi);
    CHECK(static_cast<unsigned>(sent.command.delivery) == type);
  }
  CHECK(apic.write_mmio(0x300, 0x4000f).effect == WriteEffect::ipi_refused);
  CHECK(apic.write_mmio(0x300, 0x0010f).effect == WriteEffect::ipi_refused);
  CHECK(errors(apic) == LocalApic::esr_send_illegal_vector);
  CHECK(apic.write_mmio(0x300, 0x0040f).effect == WriteEffect::ipi);
  CHECK(apic.write_mmio(0x300, 0x08500).effect == WriteEffect::ipi_refused);
}

TEST_CASE("the page's EOI takes any value, TPR and ID and LDR and DFR their bytes") {
  LocalApic apic(1, xapic_options());
  apic.write_mmio(0xf0, 0x1ff);
  apic.accept(0x61);
  apic.acknowledge();
  const RegisterWrite write = apic.write_mmio(0xb0, 0xdeadbeef);
  CHECK(write.effect == WriteEffect::eoi);
  CHECK(write.eoi.vector == 0x61);
  CHECK(apic.write_mmio(0x80, 0x155).effect == WriteEffect::priority);
  CHECK(apic.tpr() == 0x55);
  CHECK(apic.write_mmio(0x20, 0x09123456).changed == changed::addressing);
  CHECK(apic.write_mmio(0xd0, 0x08123456).changed == changed::addressing);
  CHECK(apic.write_mmio(0xe0, 0x0fffffff).changed == changed::addressing);
  CHECK(apic.address() == ApicAddress{ApicMode::xapic, 1, 9, 8, 0});
  CHECK(load(apic, 0xe0) == 0x0fffffff);
  CHECK(apic.logical_id() == 0x08000000);
}

TEST_CASE("the MSRs need x2APIC mode, and the page xAPIC mode") {
  LocalApic page(1, xapic_options());
  LocalApic msrs(1);
  LocalApicOptions off_options;
  off_options.initial_mode = ApicMode::disabled;
  LocalApic off(1, off_options);
  for (std::uint32_t msr = 0x800; msr <= 0x8ff; ++msr) {
    CHECK(page.read_msr(msr).general_protection);
    CHECK(off.read_msr(msr).general_protection);
    CHECK(page.write_msr(msr, 0).effect == WriteEffect::general_protection);
    CHECK(off.write_msr(msr, 0).effect == WriteEffect::general_protection);
  }
  for (LocalApic* apic : {&msrs, &off}) {
    for (std::uint32_t offset = 0; offset < 0x1000; offset += 0x10)
      CHECK(apic->read_mmio(offset).value == 0xffffffff);
    CHECK(apic->read_mmio(0x30, 0, 1).value == 0xff);
    apic->write_mmio(0x80, 0x20);
    CHECK(apic->tpr() == 0);
  }
}

TEST_CASE("the legal moves between the modes, and only they, succeed") {
  constexpr std::uint64_t base = 0xfee00000;
  const std::uint64_t values[] = {base, base | 0x800, base | 0xc00};  // by ApicMode
  const bool legal[3][3] = {{true, true, false}, {true, true, true}, {true, false, true}};
  for (unsigned from = 0; from < 3; ++from) {
    LocalApicOptions options;
    options.initial_mode = static_cast<ApicMode>(from);
    for (unsigned to = 0; to < 3; ++to) {
      CAPTURE(from);
      CAPTURE(to);
      LocalApic apic(7, options);
      CHECK(apic.read_apic_base() == values[from]);
      const RegisterWrite write = apic.write_apic_base(values[to]);
      CHECK((write.effect == WriteEffect::general_protection) == !legal[from][to]);
      CHECK(apic.read_apic_base() == values[legal[from][to] ? to : from]);
      CHECK((write.changed & changed::addressing) == (legal[from][to] && from != to ? 2 : 0));
    }
    LocalApic apic(7, options);
    CHECK(apic.write_apic_base(base | 0x400).effect == WriteEffect::general_protection);
    CHECK(apic.read_apic_base() == values[from]);
  }
}

TEST_CASE("APIC_BASE: reserved bits, relocation, BSP, and processors without x2APIC") {
  LocalApicOptions options = xapic_options();
  options.bootstrap = true;
  options.physical_address_bits = 43;
  LocalApic apic(0, options);
  CHECK(apic.read_apic_base() == 0xfee00900);
  for (unsigned bit = 0; bit < 64; ++bit) {
    CAPTURE(bit);
    const std::uint64_t value = 0xfee00800 | std::uint64_t{1} << bit;
    const bool faults = bit < 8 || bit == 9 || bit >= 43;
    CHECK((LocalApic(0, options).write_apic_base(value).effect == WriteEffect::general_protection) == faults);
  }
  CHECK(apic.write_apic_base(0x123456000 | 0x800).effect == WriteEffect::stored);
  CHECK(apic.base_address() == 0x123456000);
  CHECK(apic.read_apic_base() == 0x123456900);
  options.x2apic = false;
  CHECK(LocalApic(0, options).write_apic_base(0xfee00c00).effect == WriteEffect::general_protection);
}

TEST_CASE("a disabled APIC keeps its registers, its CR8, and forgets its ID") {
  LocalApic apic(0x21, xapic_options());
  apic.write_mmio(0xf0, 0x1ff);
  apic.write_mmio(0x20, 0x44000000);
  apic.write_mmio(0x80, 0x50);
  apic.accept(0x81);
  apic.accept(0x91);
  apic.acknowledge();
  apic.accept(0xb1);
  CHECK(apic.deliverable() == 0xb1);
  apic.write_apic_base(0xfee00000);
  CHECK(apic.accept(0xa1) == Acceptance::disabled);
  CHECK(apic.deliverable() == -1);
  apic.set_cr8(6);
  CHECK(apic.cr8() == 6);
  CHECK(apic.deliverable() == -1);
  for (const DeliveryMode mode : {DeliveryMode::nmi, DeliveryMode::init, DeliveryMode::startup}) {
    IcrCommand command;
    command.delivery = mode;
    CHECK(apic.receive(command) == Reception::disabled);
  }
  CHECK(apic.passes_ext_int());
  apic.write_apic_base(0xfee00800);
  CHECK(load(apic, 0x80) == 0x60);
  CHECK(load(apic, 0x20) == 0x21000000);
  CHECK(load(apic, 0xf0) == 0x1ff);
  CHECK(apic.highest_isr() == 0x91);
  CHECK(apic.acknowledge() == 0xb1);
  CHECK(apic.eoi().vector == 0xb1);
  CHECK(apic.highest_irr() == 0x81);
  apic.eoi();
  CHECK(apic.deliverable() == 0x81);
}

TEST_CASE("x2APIC mode shows the whole built-in ID and derives the LDR; RESET and INIT differ") {
  LocalApicOptions options = xapic_options();
  LocalApic apic(0x123, options);
  apic.write_mmio(0xf0, 0x1ff);
  apic.write_mmio(0x20, 0x77000000);
  apic.write_mmio(0xd0, 0x01000000);
  apic.init();
  CHECK(apic.mode() == ApicMode::xapic);
  CHECK(load(apic, 0x20) == 0x77000000);
  CHECK(load(apic, 0xd0) == 0);
  CHECK(load(apic, 0xf0) == 0xff);
  apic.write_apic_base(0x10000c00);
  CHECK(apic.read_msr(0x802).value == 0x123);
  CHECK(apic.read_msr(0x80d).value == 0x00120008);
  apic.init();
  CHECK(apic.mode() == ApicMode::x2apic);
  CHECK(apic.base_address() == 0x10000000);
  apic.reset();
  CHECK(apic.mode() == ApicMode::xapic);
  CHECK(apic.base_address() == 0xfee00000);
  CHECK(load(apic, 0x20) == 0x23000000);
}

TEST_CASE("the arbitration priority is the TPR where it is above all, else the class that competes") {
  LocalApic apic(1, xapic_options());
  apic.write_mmio(0xf0, 0x1ff);
  const auto apr = [&apic] { return load(apic, 0x90); };
  apic.set_tpr(0x25);
  CHECK(apr() == 0x25);
  apic.accept(0x7c);
  CHECK(apr() == 0x70);
  apic.acknowledge();
  CHECK(apr() == 0x20);  // 2 & 7
  apic.set_tpr(0x86);
  CHECK(apr() == 0x86);
}

TEST_CASE("a random walk over the modes never loses an interrupt that was accepted") {
  const bool held = rc::check("every accepted vector is acknowledged once", [] {
    LocalApicOptions options = xapic_options(true);
    LocalApic apic(5, options);
    std::vector<unsigned> owed(256);
    const auto enable = [&apic](std::uint32_t svr) {
      if (apic.mode() == ApicMode::x2apic) apic.write_msr(0x80f, svr);
      apic.write_mmio(0xf0, svr);
    };
    const auto acknowledge = [&] {
      const int vector = apic.deliverable();
      if (vector < 0) return false;
      RC_ASSERT(apic.acknowledge() == vector);
      RC_ASSERT(owed[static_cast<std::size_t>(vector)] == 1U);
      owed[static_cast<std::size_t>(vector)] = 0;
      return true;
    };
    for (const auto step :
         *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::arbitrary<std::uint32_t>())) {
      const auto vector = static_cast<std::uint8_t>(step >> 8);
      switch (step % 8) {
        case 0:
        case 1: {
          const Acceptance result = apic.accept(vector, (step & 0x10000) != 0);
          if (result == Acceptance::merged) RC_ASSERT(owed[vector] == 1U);
          if (result == Acceptance::accepted) RC_ASSERT(owed[vector]++ == 0U);
          if (result == Acceptance::disabled) {
            RC_ASSERT(!apic.software_enabled() || !apic.hardware_enabled());
          }
          break;
        }
        case 2:
          acknowledge();
          break;
        case 3:
          apic.eoi();
          break;
        case 4:
          apic.write_apic_base(0xfee00000 | (step >> 10 & 3U) << 10);
          break;
        case 5:
          enable(vector < 64 ? 0xff : 0x1ff);
          break;
        case 6:
          apic.write_mmio(0x410, step >> 16 & 3U);
          apic.write_mmio(0x480 + 0x10 * (vector & 7U), step);
          break;
        default:
          apic.set_tpr(vector);
          break;
      }
      for (std::size_t v = 0; v < 256; ++v)
        RC_ASSERT(apic.irr().test(static_cast<std::uint8_t>(v)) == (owed[v] != 0));
    }
    // Whatever happened: enabled again, with nothing in the way, everything owed arrives.
    apic.write_apic_base(0xfee00000);
    apic.write_apic_base(0xfee00800);
    enable(0x1ff);
    apic.write_mmio(0x410, 0);
    apic.set_tpr(0);
    while (apic.eoi().vector >= 0)
      continue;
    while (acknowledge())
      apic.eoi();
    for (const unsigned count : owed)
      RC_ASSERT(count == 0U);
  });
  CHECK(held);
}
