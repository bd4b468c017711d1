#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "apic/local_apic.hpp"

using namespace svmsim::apic;

namespace {

struct AccessRow {
  std::uint32_t msr;
  bool reads;
  bool writes;
  std::uint64_t reset;     // value after reset, where it reads
  std::uint64_t writable;  // bits that a write may set
};

// Fact sheet 7.2, the x2APIC column, without ICR (64 bits wide, its own test).
const std::vector<AccessRow> rows{
    {0x802, true, false, 0x12345, 0},
    {0x803, true, false, 0x00050010, 0},
    {0x808, true, true, 0, 0xff},
    {0x80a, true, false, 0, 0},
    {0x80b, false, true, 0, 0},
    {0x80d, true, false, 0x1234U << 16 | 1U << 5, 0},
    {0x80f, true, true, 0xff, 0x3ff},
    {0x828, true, true, 0, 0},
    {0x832, true, true, 0x10000, 0x710ff},
    {0x833, true, true, 0x10000, 0x117ff},
    {0x834, true, true, 0x10000, 0x117ff},
    {0x835, true, true, 0x10000, 0x1f7ff},
    {0x836, true, true, 0x10000, 0x1f7ff},
    {0x837, true, true, 0x10000, 0x110ff},
    {0x838, true, true, 0, 0xffffffff},
    {0x839, true, false, 0, 0},
    {0x83e, true, true, 0, 0xb},
    {0x83f, false, true, 0, 0xff},
};

// The extended space, where it is there.
const std::vector<AccessRow> extended_rows{
    {0x840, true, false, 0x00040007, 0},
    {0x841, true, true, 0, 0x3},
    {0x842, false, true, 0, 0xff},
    {0x848, true, true, 0xffffffff, 0xffffffff},
    {0x84f, true, true, 0xffffffff, 0xffffffff},
    {0x850, true, true, 0x10000, 0x117ff},
    {0x853, true, true, 0x10000, 0x117ff},
};

bool write_faults(std::uint32_t msr, std::uint64_t value, LocalApicOptions options = {}) {
  LocalApic apic(0x12345, options);
  return apic.write_msr(msr, value).effect == WriteEffect::general_protection;
}

void check_row(const AccessRow& row, LocalApicOptions options) {
  CAPTURE(row.msr);
  const RegisterRead read = LocalApic(0x12345, options).read_msr(row.msr);
  CHECK(read.general_protection == !row.reads);
  CHECK(read.value == (row.reads ? row.reset : 0));
  CHECK(write_faults(row.msr, 0, options) == !row.writes);
  for (unsigned bit = 0; bit < 64; ++bit) {
    CAPTURE(bit);
    const std::uint64_t value = std::uint64_t{1} << bit;
    CHECK(write_faults(row.msr, value, options) == ((row.writable & value) == 0));
  }
}

}  // namespace

TEST_CASE("every x2APIC register has the access, reset value and writable bits of the register map") {
  for (const AccessRow& row : rows)
    check_row(row, {});
}

TEST_CASE("the extended space follows its option, and shows in bit 31 of the version register") {
  LocalApicOptions options;
  options.extended = true;
  for (const AccessRow& row : extended_rows) {
    check_row(row, options);
    CHECK(LocalApic(0x12345).read_msr(row.msr).general_protection);
    CHECK(write_faults(row.msr, 0));
  }
  CHECK(LocalApic(1, options).read_msr(0x803).value == 0x80050010);
}

TEST_CASE("ISR, TMR and IRR are eight read-only registers each") {
  for (std::uint32_t msr = 0x810; msr <= 0x827; ++msr) {
    CAPTURE(msr);
    CHECK_FALSE(LocalApic(0).read_msr(msr).general_protection);
    CHECK(write_faults(msr, 0));
  }
  LocalApic apic(0);
  apic.write_msr(0x80f, 0x1ff);
  apic.accept(0x41, true);
  apic.accept(0xff, false);
  CHECK(apic.read_msr(0x822).value == 0x2);
  CHECK(apic.read_msr(0x827).value == 0x80000000);
  CHECK(apic.read_msr(0x81a).value == 0x2);
  CHECK(apic.read_msr(0x81f).value == 0);
  apic.acknowledge();
  CHECK(apic.read_msr(0x827).value == 0);
  CHECK(apic.read_msr(0x817).value == 0x80000000);
}

TEST_CASE("MSRs of the range without a register, and MSRs outside it, raise #GP") {
  std::vector<std::uint32_t> absent{0x800, 0x801, 0x804, 0x807, 0x809, 0x80c, 0x80e, 0x829, 0x82e, 0x82f,
                                    0x831, 0x83a, 0x83d, 0x840, 0x848, 0x850, 0x8ff, 0x7ff, 0x900, 0x1b};
  for (const std::uint32_t msr : absent) {
    CAPTURE(msr);
    CHECK(LocalApic(0).read_msr(msr).general_protection);
    CHECK(write_faults(msr, 0));
  }
  std::size_t readable = 0;
  for (std::uint32_t msr = 0; msr < 0x1000; ++msr)
    if (!LocalApic(0).read_msr(msr).general_protection) ++readable;
  // The table, ISR/TMR/IRR and ICR, less the two write-only ones.
  CHECK(readable == rows.size() - 2 + 24 + 1);
}

TEST_CASE("ICR is 64 bits wide and must leave bits 12, 13, 17:16 and 31:20 clear") {
  constexpr std::uint64_t reserved = 0xfff33000;
  for (unsigned bit = 0; bit < 64; ++bit) {
    CAPTURE(bit);
    const std::uint64_t value = std::uint64_t{1} << bit;
    CHECK(write_faults(0x830, value) == ((reserved & value) != 0));
  }
  LocalApic apic(3);
  CHECK(apic.read_msr(0x830).value == 0);
  const RegisterWrite write = apic.write_msr(0x830, 0xb0000440b0);
  CHECK(write.effect == WriteEffect::ipi);
  CHECK(write.command.x2apic() == 0xb0000440b0);
  CHECK(apic.read_msr(0x830).value == 0xb0000440b0);
  apic.write_msr(0x830, 0x1000);
  CHECK(apic.icr() == 0xb0000440b0);
}

TEST_CASE("an illegal vector and a reserved message type are not sent") {
  LocalApic apic(0);
  CHECK(apic.write_msr(0x830, 0x4000f).effect == WriteEffect::ipi_refused);
  CHECK(apic.write_msr(0x830, 0x40010).effect == WriteEffect::ipi);
  apic.write_msr(0x828, 0);
  CHECK(apic.read_msr(0x828).value == LocalApic::esr_send_illegal_vector);
  for (const std::uint64_t type : {1U, 3U, 7U}) {
    CHECK(apic.write_msr(0x830, type << 8 | 0x41).effect == WriteEffect::ipi_refused);
  }
  for (const std::uint64_t type : {2U, 4U, 5U, 6U}) {
    CHECK(apic.write_msr(0x830, type << 8).effect == WriteEffect::ipi);
  }
  CHECK(apic.write_msr(0x830, 0x8500).effect == WriteEffect::ipi_refused);
  CHECK(apic.write_msr(0x830, 0xc500).effect == WriteEffect::ipi);
}

TEST_CASE("SELF_IPI is a fixed edge command to the sender and leaves the ICR alone") {
  LocalApic apic(7);
  const RegisterWrite write = apic.write_msr(0x83f, 0xb0);
  REQUIRE(write.effect == WriteEffect::ipi);
  CHECK(write.command.vector == 0xb0);
  CHECK(write.command.delivery == DeliveryMode::fixed);
  CHECK(write.command.shorthand == Shorthand::self);
  CHECK_FALSE(write.command.level_triggered);
  CHECK(apic.icr() == 0);
  CHECK(apic.write_msr(0x83f, 0x0f).effect == WriteEffect::ipi_refused);
}

TEST_CASE("errors accumulate and show at the next ESR write") {
  LocalApic apic(0);
  apic.accept(5);
  apic.note_send_accept_error();
  CHECK(apic.read_msr(0x828).value == 0);
  apic.write_msr(0x828, 0);
  CHECK(apic.read_msr(0x828).value == (LocalApic::esr_receive_illegal_vector | LocalApic::esr_send_accept));
  apic.write_msr(0x828, 0);
  CHECK(apic.read_msr(0x828).value == 0);
}

TEST_CASE("a software-disabled APIC masks its LVTs for good, and an enabled one does not") {
  LocalApic apic(0);
  apic.write_msr(0x832, 0x40);
  CHECK(apic.read_msr(0x832).value == 0x10040);
  apic.write_msr(0x80f, 0x1ff);
  CHECK(apic.read_msr(0x832).value == 0x10040);
  apic.write_msr(0x832, 0x40040);
  CHECK(apic.read_msr(0x832).value == 0x40040);
  apic.write_msr(0x80f, 0xff);
  CHECK(apic.read_msr(0x832).value == 0x50040);
}

TEST_CASE("LVT status bits do not change by a write") {
  LocalApic apic(0);
  apic.write_msr(0x80f, 0x1ff);
  apic.write_msr(0x835, 0x15041);
  CHECK(apic.read_msr(0x835).value == 0x10041);
}

TEST_CASE("reset restores the values after INIT and keeps the ID") {
  LocalApic apic(9);
  apic.write_msr(0x80f, 0x1ff);
  apic.write_msr(0x808, 0x30);
  apic.write_msr(0x838, 77);
  apic.write_msr(0x830, 0x44041);
  apic.accept(0x41, true);
  apic.accept(0x52, true);
  apic.acknowledge();
  apic.reset();
  LocalApic fresh(9);
  for (std::uint32_t msr = 0x800; msr <= 0x8ff; ++msr) {
    CAPTURE(msr);
    CHECK(apic.read_msr(msr).value == fresh.read_msr(msr).value);
  }
  CHECK(apic.highest_irr() == -1);
  CHECK(apic.highest_isr() == -1);
  CHECK(apic.ppr() == 0);
}

TEST_CASE("register names are the kernel's, both ways") {
  CHECK(register_name(0x300) == "APIC_ICR");
  CHECK(register_name(0x80) == "APIC_TASKPRI");
  CHECK(register_name(0xa0) == "APIC_PROCPRI");
  CHECK(register_name(0xf0) == "APIC_SPIV");
  CHECK(register_name(0x3e0) == "APIC_TDCR");
  CHECK(register_name(0x3f0) == "APIC_SELF_IPI");
  CHECK(register_text(0x110) == "0x110");
  CHECK(register_text(0xb0) == "APIC_EOI");
  CHECK(register_by_name("APIC_LVTT") == 0x320);
  CHECK(register_by_name("APIC_NONE") == -1);
  for (std::uint32_t offset = 0; offset < 0x1000; offset += 0x10) {
    const std::string_view name = register_name(offset);
    if (!name.empty()) CHECK(register_by_name(name) == static_cast<std::int32_t>(offset));
  }
  CHECK(x2apic_msr(APIC_ICR) == 0x830);
  CHECK(x2apic_offset(0x83e) == 0x3e0);
}
