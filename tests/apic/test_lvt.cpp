// Local vector table, error interrupt, LINT pins, timer interrupts and the AMD extended space of a LocalApic.

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "apic/local_apic.hpp"

using namespace svmsim::apic;

namespace {

LocalApic enabled(LocalApicOptions options = {}) {
  LocalApic apic(0, options);
  apic.write_msr(0x80f, 0x1ff);
  return apic;
}

LocalApicOptions extended() {
  LocalApicOptions options;
  options.extended = true;
  return options;
}

struct Entry {
  LvtEntry entry;
  std::uint32_t msr;
};

const std::vector<Entry> entries{
    {LvtEntry::thermal, 0x833},   {LvtEntry::performance, 0x834}, {LvtEntry::lint0, 0x835},
    {LvtEntry::lint1, 0x836},     {LvtEntry::error, 0x837},       {LvtEntry::extended0, 0x850},
    {LvtEntry::extended1, 0x851}, {LvtEntry::extended2, 0x852},   {LvtEntry::extended3, 0x853}};

}  // namespace

TEST_CASE("each entry raises its own vector, unless it is masked") {
  std::uint32_t vector = 0x40;
  for (const Entry& row : entries) {
    CAPTURE(row.msr);
    LocalApic apic = enabled(extended());
    CHECK(apic.signal(row.entry) == Reception::masked);
    apic.write_msr(row.msr, ++vector);
    CHECK(apic.signal(row.entry) == Reception::accepted);
    CHECK(apic.signal(row.entry) == Reception::merged);
    CHECK(apic.deliverable() == static_cast<int>(vector));
    CHECK_FALSE(apic.tmr().test(static_cast<std::uint8_t>(vector)));
    apic.write_msr(row.msr, 0x10000 | vector);
    CHECK(apic.signal(row.entry) == Reception::masked);
    apic.write_msr(row.msr, vector);
    apic.write_msr(0x80f, 0xff);
    CHECK((apic.read_msr(row.msr).value & LocalApic::lvt_masked) != 0);
    CHECK(apic.signal(row.entry) == Reception::masked);
  }
}

TEST_CASE("the delivery mode of an entry bypasses the IRR where it says so") {
  const std::vector<std::pair<std::uint32_t, Reception>> modes{
      {0, Reception::accepted}, {1, Reception::ignored}, {2, Reception::smi},     {3, Reception::ignored},
      {4, Reception::nmi},      {5, Reception::init},    {6, Reception::ignored}, {7, Reception::ext_int}};
  for (const auto& delivery : modes) {
    const std::uint32_t mode = delivery.first;
    const Reception expected = delivery.second;
    CAPTURE(mode);
    for (const std::uint32_t msr : {0x833U, 0x834U, 0x835U, 0x836U, 0x850U}) {
      LocalApic apic = enabled(extended());
      apic.write_msr(msr, mode << 8 | 0x41);
      for (const Entry& row : entries)
        if (row.msr == msr) CHECK(apic.signal(row.entry) == expected);
      CHECK(apic.highest_irr() == (mode == 0 ? 0x41 : -1));
    }
  }
}

TEST_CASE("an NMI entry needs no legal vector, a fixed one does") {
  LocalApic apic = enabled();
  apic.write_msr(0x836, 0x400);
  CHECK(apic.signal(LvtEntry::lint1) == Reception::nmi);
  apic.write_msr(0x836, 0x005);
  CHECK(apic.signal(LvtEntry::lint1) == Reception::illegal_vector);
  apic.write_msr(0x828, 0);
  CHECK(apic.read_msr(0x828).value == LocalApic::esr_receive_illegal_vector);
}

TEST_CASE("an edge at a LINT pin interrupts once per rise") {
  LocalApic apic = enabled();
  apic.write_msr(0x835, 0x45);
  CHECK(apic.set_lint(LvtEntry::lint0, true) == Reception::accepted);
  CHECK(apic.set_lint(LvtEntry::lint0, true) == Reception::ignored);
  CHECK(apic.set_lint(LvtEntry::lint0, false) == Reception::ignored);
  CHECK(apic.acknowledge() == 0x45);
  CHECK_FALSE(apic.eoi().level);
  CHECK(apic.set_lint(LvtEntry::lint0, true) == Reception::accepted);
}

TEST_CASE("a level LINT entry holds its remote IRR to the EOI, and interrupts again while asserted") {
  LocalApic apic = enabled();
  for (const auto& [pin, msr] : {std::pair{LvtEntry::lint0, 0x835U}, std::pair{LvtEntry::lint1, 0x836U}}) {
    apic.write_msr(msr, 0x8045);
    CHECK(apic.set_lint(pin, true) == Reception::accepted);
    CHECK(apic.read_msr(msr).value == 0xc045);
    CHECK(apic.set_lint(pin, true) == Reception::ignored);
    CHECK(apic.acknowledge() == 0x45);
    const EndOfInterrupt end = apic.eoi();
    CHECK(end.level);
    CHECK(apic.deliverable() == 0x45);
    CHECK(apic.acknowledge() == 0x45);
    apic.set_lint(pin, false);
    apic.eoi();
    CHECK(apic.deliverable() == -1);
    CHECK(apic.read_msr(msr).value == 0x8045);
    // Masked while asserted: comes with the unmasking.
    apic.write_msr(msr, 0x18045);
    CHECK(apic.set_lint(pin, true) == Reception::masked);
    CHECK(apic.write_msr(msr, 0x8045).changed == changed::pending);
    CHECK(apic.deliverable() == 0x45);
    apic.write_msr(msr, 0x10045);  // an edge entry has no remote IRR
    CHECK(apic.read_msr(msr).value == 0x10045);
    apic.acknowledge();
    apic.eoi();
    apic.set_lint(pin, false);
  }
}

TEST_CASE("ExtINT passes where LINT0 lets it") {
  LocalApic apic = enabled();
  CHECK_FALSE(apic.passes_ext_int());
  apic.write_msr(0x835, 0x700);
  CHECK(apic.passes_ext_int());
  CHECK(apic.set_lint(LvtEntry::lint0, true) == Reception::ext_int);
  apic.write_msr(0x835, 0x10700);
  CHECK_FALSE(apic.passes_ext_int());
  apic.write_msr(0x835, 0x041);
  CHECK_FALSE(apic.passes_ext_int());
  LocalApicOptions options;
  options.lint0_ext_int_after_reset = true;
  CHECK(LocalApic(0, options).read_msr(0x835).value == 0x10000);
  options.bootstrap = true;
  CHECK(LocalApic(0, options).read_msr(0x835).value == 0x700);
}

TEST_CASE("each error has its bit, and raises the error interrupt until the ESR is written") {
  LocalApicOptions xapic;
  xapic.initial_mode = ApicMode::xapic;
  const std::vector<std::pair<std::uint32_t, void (*)(LocalApic&)>> causes{
      {LocalApic::esr_send_accept, [](LocalApic& apic) { apic.note_send_accept_error(); }},
      {LocalApic::esr_send_illegal_vector, [](LocalApic& apic) { apic.write_mmio(0x300, 0x0f); }},
      {LocalApic::esr_receive_illegal_vector, [](LocalApic& apic) { apic.accept(0x0f); }},
      {LocalApic::esr_illegal_register, [](LocalApic& apic) { apic.read_mmio(0x40); }}};
  for (const auto& row : causes) {
    const std::uint32_t bit = row.first;
    const auto cause = row.second;
    CAPTURE(bit);
    LocalApic apic(0, xapic);
    apic.write_mmio(0xf0, 0x1ff);
    cause(apic);
    CHECK(apic.deliverable() == -1);  // masked
    apic.write_mmio(0x280, 0);
    apic.write_mmio(0x370, 0xfe);
    cause(apic);
    CHECK(apic.acknowledge() == 0xfe);
    apic.eoi();
    cause(apic);
    CHECK(apic.deliverable() == -1);
    CHECK(apic.read_mmio(0x280).value == bit);  // from the first round; the write has not shown the second
    apic.write_mmio(0x280, 0xffffffff);
    CHECK(apic.read_mmio(0x280).value == bit);
    cause(apic);
    CHECK(apic.deliverable() == 0xfe);
    apic.write_mmio(0x280, 0);
    apic.write_mmio(0x280, 0);
    CHECK(apic.read_mmio(0x280).value == 0);
  }
  xapic.reports_errors = false;
  LocalApic silent(0, xapic);
  silent.read_mmio(0x40);
  silent.write_mmio(0x280, 0);
  CHECK(silent.read_mmio(0x280).value == 0);
}

TEST_CASE("an error entry with an illegal vector adds its own error and ends there") {
  LocalApic apic = enabled();
  apic.write_msr(0x837, 0x03);
  apic.note_send_accept_error();
  apic.write_msr(0x828, 0);
  CHECK(apic.read_msr(0x828).value == (LocalApic::esr_send_accept | LocalApic::esr_receive_illegal_vector));
}

TEST_CASE("the timer's registers, modes and interrupts through x2APIC MSRs") {
  LocalApicOptions options;
  options.timer_clock = {2, 1};
  LocalApic apic = enabled(options);
  CHECK(apic.write_msr(0x83e, 0xb, 0).changed == changed::timer);
  CHECK(apic.write_msr(0x832, 0x200ec, 0).changed == changed::timer);
  CHECK(apic.write_msr(0x838, 100, 1000).changed == changed::timer);
  CHECK(apic.read_msr(0x838).value == 100);
  CHECK(apic.read_msr(0x839, 1050).value == 75);
  CHECK(apic.next_timer_expiry(1050) == 1200);
  CHECK(apic.expire_timer(1199) == Reception::ignored);
  CHECK(apic.expire_timer(1200) == Reception::accepted);
  CHECK(apic.expire_timer(1400) == Reception::merged);
  CHECK(apic.acknowledge() == 0xec);
  CHECK_FALSE(apic.eoi().level);
  // The mask lets the time pass without an interrupt.
  apic.write_msr(0x832, 0x300ec, 1401);
  CHECK(apic.next_timer_expiry(1401) == 1600);
  CHECK(apic.expire_timer(1600) == Reception::masked);
  CHECK(apic.read_msr(0x839, 1650).value == 75);
  // What expired before the mask was written counts as unmasked.
  apic.write_msr(0x832, 0x200ec, 1700);
  apic.write_msr(0x832, 0x300ec, 1900);
  CHECK(apic.deliverable() == 0xec);
}

TEST_CASE("TSC-deadline mode needs LVTT mode 10, its feature, and an enabled APIC") {
  LocalApic apic = enabled();
  CHECK(apic.write_tsc_deadline(500, 10).changed == 0);
  apic.write_msr(0x832, 0x400ec, 10);
  CHECK(apic.read_tsc_deadline(10).value == 0);
  CHECK(apic.write_tsc_deadline(500, 20).changed == changed::timer);
  CHECK(apic.read_tsc_deadline(20).value == 500);
  CHECK(apic.next_timer_expiry(20) == 500);
  CHECK(apic.write_msr(0x838, 5, 30).effect == WriteEffect::stored);
  CHECK(apic.read_msr(0x838).value == 0);
  CHECK(apic.read_msr(0x839, 30).value == 0);
  CHECK(apic.expire_timer(500) == Reception::accepted);
  CHECK(apic.read_tsc_deadline(500).value == 0);
  CHECK(apic.acknowledge() == 0xec);
  apic.write_tsc_deadline(400, 600);
  CHECK(apic.next_timer_expiry(600) == 600);
  apic.write_apic_base(0xfee00000, 600);
  CHECK(apic.write_tsc_deadline(700, 610).changed == 0);

  LocalApicOptions options;
  options.tsc_deadline = false;
  LocalApic without = enabled(options);
  CHECK(without.read_tsc_deadline(0).general_protection);
  CHECK(without.write_tsc_deadline(5, 0).effect == WriteEffect::general_protection);
  CHECK(without.write_msr(0x832, 0x400ec).effect == WriteEffect::general_protection);
  CHECK(without.write_msr(0x832, 0x200ec).effect == WriteEffect::stored);
}

TEST_CASE("INIT stops the timer and clears what was pending") {
  LocalApic apic = enabled();
  apic.write_msr(0x832, 0x200ec, 0);
  apic.write_msr(0x838, 100, 0);
  apic.accept(0x41, true);
  apic.init();
  CHECK(apic.next_timer_expiry(1000) == ApicTimer::never);
  CHECK(apic.read_msr(0x832).value == 0x10000);
  CHECK(apic.highest_irr() == -1);
  CHECK(apic.read_msr(0x839, 10).value == 0);
  CHECK(apic.accept(0x41) == Acceptance::disabled);
}

TEST_CASE("the interrupt enable registers exclude vectors while their control bit says so") {
  LocalApic apic = enabled(extended());
  apic.write_msr(0x84a, 0xfffffffd);  // vector 41h
  apic.accept(0x41);
  CHECK(apic.deliverable() == 0x41);
  CHECK(apic.write_msr(0x841, 1).changed == changed::pending);
  CHECK(apic.deliverable() == -1);
  CHECK(apic.read_msr(0x822).value == 2);  // still requested
  CHECK(apic.accept(0x41) == Acceptance::merged);
  apic.accept(0x31);
  CHECK(apic.acknowledge() == 0x31);
  CHECK(apic.write_msr(0x84a, 0xffffffff).changed == changed::pending);
  CHECK(apic.acknowledge() == 0x41);
  // In service and excluded: it holds nothing back, and the EOI is for the others.
  apic.write_msr(0x84a, 0xfffffffd);
  CHECK(apic.ppr() == 0x30);
  CHECK(apic.read_msr(0x812).value == 2);
  CHECK(apic.eoi().vector == 0x31);
  CHECK(apic.eoi().vector == -1);
  apic.write_msr(0x841, 0);
  CHECK(apic.eoi().vector == 0x41);
}

TEST_CASE("a specific EOI retires its vector, out of order, if the control bit says so") {
  LocalApic apic = enabled(extended());
  for (const std::uint8_t vector : {std::uint8_t{0x41}, std::uint8_t{0x51}, std::uint8_t{0x61}}) {
    apic.accept(vector, vector == 0x51);
    apic.acknowledge();
  }
  CHECK(apic.write_msr(0x842, 0x41).eoi.vector == -1);
  apic.write_msr(0x841, 2);
  RegisterWrite write = apic.write_msr(0x842, 0x41);
  CHECK(write.effect == WriteEffect::eoi);
  CHECK(write.eoi.vector == 0x41);
  CHECK_FALSE(write.eoi.broadcast);
  CHECK(apic.write_msr(0x842, 0x41).eoi.vector == -1);
  write = apic.write_msr(0x842, 0x51);
  CHECK(write.eoi.broadcast);
  CHECK(apic.ppr() == 0x60);
  CHECK(apic.eoi().vector == 0x61);
  CHECK(apic.highest_isr() == -1);
}

TEST_CASE("directed EOI suppresses the broadcast where the feature is there") {
  LocalApic plain = enabled();
  CHECK(plain.write_msr(0x80f, 0x11ff).effect == WriteEffect::general_protection);
  LocalApicOptions options;
  options.directed_eoi = true;
  LocalApic apic = enabled(options);
  CHECK(apic.read_msr(0x803).value == 0x01050010);
  for (const bool suppress : {false, true}) {
    CHECK(apic.write_msr(0x80f, suppress ? 0x11ff : 0x1ff).effect == WriteEffect::stored);
    apic.accept(0x41, true);
    apic.acknowledge();
    const EndOfInterrupt end = apic.eoi();
    CHECK(end.level);
    CHECK(end.broadcast == !suppress);
  }
}
