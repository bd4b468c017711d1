#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "apic/avic/posted_interrupt.hpp"
#include "tests/apic/avic_vm.hpp"

using namespace svmsim::apic;
using svmsim::apic::test::AvicVm;

namespace {

constexpr std::uint16_t device = 0x00a8;

}  // namespace

TEST_CASE("8.9: what a device's interrupt does, by its IRTE") {
  struct Row {
    const char* name;
    bool remap_enable, guest_mode, is_run, ga_log_intr;
    std::uint8_t vector;
    bool page_there;
    PostOutcome outcome;
    bool irr;
    std::uint32_t logged;
  };
  const std::vector<Row> rows{
      {"running: doorbell", true, true, true, false, 0x41, true, PostOutcome::doorbell, true, 0},
      {"IsRun beats GALogIntr", true, true, true, true, 0x41, true, PostOutcome::doorbell, true, 0},
      {"blocking: log", true, true, false, true, 0x41, true, PostOutcome::logged, true, 1},
      {"preempted: only recorded", true, true, false, false, 0x41, true, PostOutcome::recorded, true, 0},
      {"not valid", false, true, true, true, 0x41, true, PostOutcome::aborted, false, 0},
      {"remapped", true, false, true, true, 0x41, true, PostOutcome::remapped, false, 0},
      {"illegal page", true, true, true, true, 0x41, false, PostOutcome::illegal_page, false, 0},
      {"illegal vector", true, true, true, true, 0x0f, true, PostOutcome::illegal_vector, false, 0},
  };
  for (const Row& row : rows) {
    const std::string name = row.name;
    CAPTURE(name);
    AvicVm vm(true, 2);
    GaLog log;
    Irte irte = Irte::posted(row.vector, row.page_there ? vm.memory.backing_pages.address(1) : 0x1000, 0x77);
    irte.set_destination(0x101);
    irte.low &= ~(Irte::remap_enable_bit | Irte::guest_mode_bit);
    irte.low |= (row.remap_enable ? Irte::remap_enable_bit : 0) |
                (row.guest_mode ? Irte::guest_mode_bit : 0) | (row.is_run ? Irte::is_run_bit : 0) |
                (row.ga_log_intr ? Irte::ga_log_intr_bit : 0);
    const PostResult result = post_interrupt(irte, device, vm.memory, log);
    CHECK(result.outcome == row.outcome);
    CHECK_FALSE(result.merged);
    CHECK(vm.page(1).test_irr(row.vector) == row.irr);
    CHECK(vm.page(0).highest_irr() == -1);
    CHECK(log.size() == row.logged);
    if (row.irr) CHECK(post_interrupt(irte, device, vm.memory, log).merged);
  }
}

TEST_CASE("a posted interrupt leaves TMR alone and is taken like any other") {
  AvicVm vm(true, 1);
  GaLog log;
  Irte irte = Irte::posted(0x41, vm.memory.backing_pages.address(0), 1);
  irte.set_running(0x100);
  CHECK(post_interrupt(irte, device, vm.memory, log).outcome == PostOutcome::doorbell);
  CHECK(vm.cores[0].pending() == -1);
  vm.cores[0].doorbell(false);
  CHECK(vm.cores[0].acknowledge() == 0x41);
}

TEST_CASE("a GA log entry: tag, device, type") {
  const GaLogEntry entry = GaLogEntry::guest_not_running(0xdead'beef, 0x1234);
  CHECK(entry.raw == 0x1000'1234'dead'beef);
  CHECK(entry.ga_tag() == 0xdead'beef);
  CHECK(entry.device_id() == 0x1234);
  CHECK(entry.type() == 1);
}

TEST_CASE("the GA log is a ring of 512 entries with one slot free, first in, first out") {
  GaLog log;
  CHECK_FALSE(log.take().has_value());
  std::uint32_t written = 0;
  std::uint32_t read = 0;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 300; ++i)
      CHECK(log.append(GaLogEntry::guest_not_running(written++, device)));
    CHECK(log.size() == 300);
    CHECK(log.tail_register() == 8 * (written % 512));
    CHECK(log.head_register() == 8 * (read % 512));
    for (int i = 0; i < 300; ++i)
      CHECK(log.take()->ga_tag() == read++);
    CHECK_FALSE(log.take().has_value());
  }
}

TEST_CASE("a full GA log overflows and stays so until software restarts it") {
  AvicVm vm(true, 1);
  GaLog log;
  Irte irte = Irte::posted(0x41, vm.memory.backing_pages.address(0), 9);
  irte.clear_running(true);
  for (std::uint32_t i = 0; i < GaLog::entry_count - 1; ++i)
    CHECK(post_interrupt(irte, device, vm.memory, log).outcome == PostOutcome::logged);
  CHECK_FALSE(log.overflowed());
  CHECK(log.size() == 511);
  irte = Irte::posted(0x52, vm.memory.backing_pages.address(0), 10);
  irte.clear_running(true);
  CHECK(post_interrupt(irte, device, vm.memory, log).outcome == PostOutcome::log_overflow);
  CHECK(log.overflowed());
  // The interrupt itself is not lost, only its log entry.
  CHECK(vm.page(0).test_irr(0x52));
  for (int i = 0; i < 511; ++i)
    CHECK(log.take()->ga_tag() == 9);
  CHECK(post_interrupt(irte, device, vm.memory, log).outcome == PostOutcome::log_overflow);
  log.restart();
  CHECK_FALSE(log.overflowed());
  CHECK(log.head_register() == 0);
  CHECK(post_interrupt(irte, device, vm.memory, log).outcome == PostOutcome::logged);
  CHECK(log.take()->ga_tag() == 10);
}
