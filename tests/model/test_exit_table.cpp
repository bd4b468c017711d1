// The table of kvm-software.md 1.9, cell by cell: what an action of a guest costs in exits, without AVIC and
// with it, for guests in x2APIC and in xAPIC mode. A cost is the difference between two runs, with the action
// and without, so that nothing else of the programs counts.

#include <doctest/doctest.h>

#include "tests/model/avic_fixture.hpp"

namespace svmsim::model::test {

namespace {

constexpr std::uint64_t soon = 50'000;
constexpr std::uint64_t late = 2'000'000;
using Overrides = std::vector<std::string>;

struct Column {
  const char* name;
  GuestApic apic;
  bool avic;
};
constexpr Column columns[] = {{"no AVIC, x2APIC", GuestApic::x2apic, false},
                              {"no AVIC, xAPIC", GuestApic::xapic, false},
                              {"x2AVIC", GuestApic::x2apic, true},
                              {"xAVIC", GuestApic::xapic, true}};

/// The cells of a row, in the order of the columns.
using Cells = std::array<std::string, 4>;

/// What a row's guest does, vCPU by vCPU, and how its handlers end.
struct Guest {
  std::vector<std::string> vcpus;
  std::string end_of_interrupt = "EOI";
};

std::string touch(GuestApic apic) {
  return apic == GuestApic::x2apic ? "" : "{ do = \"memory_read\", address = 0xfee00020, size = 4 },\n";
}

std::map<std::string, std::int64_t> exits_of(const Column& column, const Guest& guest, unsigned vcpu,
                                             Overrides overrides) {
  std::vector<std::string> vcpus = guest.vcpus;
  // The first touch of the APIC page maps it for the VM under xAVIC: no part of any cell.
  vcpus[0] = touch(column.apic) + vcpus[0];
  const GuestProgram program(column.apic, vcpus, {0x41, 0x51}, true, guest.end_of_interrupt);
  Overrides all{std::string("vm.apic=\"") + (column.apic == GuestApic::x2apic ? "x2apic" : "xapic") + "\"",
                std::string("kvm.avic=") + (column.avic ? "true" : "false"), "run.duration=20ms"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  const AvicRun run = run_avic(program, static_cast<unsigned>(vcpus.size()), all);
  CHECK(run.result.apicv_inhibits.empty() == column.avic);
  std::map<std::string, std::int64_t> counts;
  for (const auto& row : run.result.vcpus[vcpu].exits)
    counts[exit_row_name(row.code)] = static_cast<std::int64_t>(row.counter.count);
  return counts;
}

/// "msr 1, npf 2": what `with` costs more than `without`; "-" before what it costs less.
std::string cost(const Column& column, const Guest& with, const Guest& without, unsigned vcpu,
                 const Overrides& overrides) {
  auto difference = exits_of(column, with, vcpu, overrides);
  for (const auto& [name, count] : exits_of(column, without, vcpu, overrides))
    difference[name] -= count;
  std::string text;
  for (const auto& [name, count] : difference)
    if (count != 0) text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
  return text;
}

template <typename Make>
void check_row(const Cells& cells, unsigned vcpu, Make&& make, const Overrides& more = {}) {
  for (const char* kernel : {"6.1", "6.12", "6.18"}) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (cells[i] == "n/a") continue;
      CAPTURE(std::string(kernel));
      CAPTURE(columns[i].name);
      Overrides overrides{std::string("host.kernel=") + kernel, "kvm.halt_poll_ns=0"};
      overrides.insert(overrides.end(), more.begin(), more.end());
      CHECK(cost(columns[i], make(columns[i].apic, true), make(columns[i].apic, false), vcpu, overrides) ==
            cells[i]);
    }
  }
}

Cells everywhere(const std::string& cell) {
  return {cell, cell, cell, cell};
}

/// A row of one vCPU: `action` between two stretches of work.
template <typename Action>
void check_alone(const Cells& cells, Action&& action, const Overrides& more = {}) {
  check_row(
      cells, 0,
      [&](GuestApic apic, bool with) {
        return Guest{{compute(soon) + (with ? action(apic) : "") + compute(soon)}};
      },
      more);
}

}  // namespace

TEST_CASE("1.9: HLT with nothing pending, and with an interrupt pending") {
  // vCPU 1 wakes vCPU 0.
  const auto idle = [](GuestApic apic, bool with) {
    return Guest{{with ? halt_until(0x41) : compute(soon), compute(late) + (with ? send(apic, 0, 0x41) : "")},
                 ""};
  };
  check_row(everywhere("hlt 1"), 0, idle, {"kvm.idle_hlt=false"});
  check_row(everywhere("idle-halt 1"), 0, idle, {"kvm.idle_hlt=true"});
  const auto pending = [](GuestApic apic, bool with) {
    return Guest{
        {plain("cli") + send(apic, 0, 0x44041) + plain("sti") + plain(with ? "hlt" : "nop") + compute(soon)},
        ""};
  };
  check_row(everywhere("hlt 1"), 0, pending, {"kvm.idle_hlt=false"});
  // Without AVIC the armed window makes it pending, which exits in its stead, as without the HLT.
  check_row(everywhere(""), 0, pending, {"kvm.idle_hlt=true"});
}

TEST_CASE("1.9: a fixed IPI to a target in guest mode, blocked, and halt-polling") {
  const auto in_guest = [](GuestApic apic, bool with) {
    return Guest{{compute(soon) + (with ? send(apic, 1, 0x41) : "") + compute(late), compute(late)}, ""};
  };
  check_row({"msr 1", "npf 2", "", ""}, 0, in_guest);
  check_row({"interrupt 1", "interrupt 1", "", ""}, 1, in_guest);

  const auto blocked = [](GuestApic apic, bool with) {
    return Guest{{compute(late) + (with ? send(apic, 1, 0x41) : "") + compute(late), halt_until(0x41)}, ""};
  };
  check_row({"msr 1", "npf 2", "avic_incomplete_ipi 1", "avic_incomplete_ipi 1"}, 0, blocked);

  // The first halt blocks and makes a window; the second IPI comes while it polls.
  const auto polling = [](GuestApic apic, bool with) {
    return Guest{{compute(20'000) + send(apic, 1, 0x41) + compute(150'000) +
                      (with ? send(apic, 1, 0x51) : "") + compute(late),
                  halt_until(0x41) + halt_until(0x51)}};
  };
  check_row({"msr 1", "npf 2", "", ""}, 0, polling,
            {"kvm.halt_poll_ns=200000", "kvm.halt_poll_ns_grow_start=100000"});
}

TEST_CASE("1.9: INIT, SIPI, NMI and level IPIs") {
  for (const unsigned low : {0x4500U, 0x4610U, 0x4400U, 0xc041U}) {
    CAPTURE(low);
    check_row(
        {"msr 1", "npf 2", "avic_incomplete_ipi 1", "avic_incomplete_ipi 1"}, 0,
        [&](GuestApic apic, bool with) {
          return Guest{{compute(soon) + (with ? send(apic, 1, low) : "") + compute(soon), compute(late)}, ""};
        });
  }
}

TEST_CASE("1.9: EOI of an edge and of a level interrupt, and PV EOI") {
  const auto eoi_of = [](unsigned low) {
    return [low](GuestApic apic, bool with) {
      return Guest{{compute(soon) + send(apic, 1, low) + compute(late), compute(late)}, with ? "EOI" : ""};
    };
  };
  check_row({"msr 1", "npf 1", "", ""}, 1, eoi_of(0x41));
  check_row({"msr 1", "npf 1", "avic_unaccelerated_access 1", "avic_unaccelerated_access 1"}, 1,
            eoi_of(0xc041));
  // Where it is armed the guest leaves the EOI out. Under AVIC it never is, and the EOI does not exit.
  const auto pv = [](GuestApic apic, bool with) {
    const std::string enable = "{ do = \"wrmsr\", msr = 0x4b564d04, value = 0x8029 },\n";
    const std::string test = "{ do = \"pv_eoi_test\", address = 0x8028, size = 4 },\n";
    return Guest{{compute(soon) + send(apic, 1, 0x41) + compute(late), enable + compute(late)},
                 with ? test + apic_write(apic, 0xb0, "0") : ""};
  };
  check_row(everywhere(""), 1, pv);
}

TEST_CASE("1.9: SELF_IPI, TPR and CR8") {
  check_alone({"msr 1", "n/a", "msr 1", "n/a"},
              [](GuestApic) { return plain("cli") + "{ do = \"wrmsr\", msr = 0x83f, value = 0x41 },\n"; });
  check_alone(everywhere(""), [](GuestApic) { return "{ do = \"mov_to_cr8\", value = 5 },\n"; });
  check_alone({"msr 1", "npf 1", "", ""}, [](GuestApic apic) { return apic_write(apic, 0x80, "0x50"); });
  // CR8 at or above the highest IRR bit: the next write is intercepted.
  check_row({"write_cr8 1", "write_cr8 1", "", ""}, 0, [](GuestApic apic, bool with) {
    return Guest{{"{ do = \"mov_to_cr8\", value = 5 },\n" + send(apic, 0, 0x44041) + compute(soon) +
                  (with ? "{ do = \"mov_to_cr8\", value = 6 },\n" : "") + compute(soon)},
                 ""};
  });
}

TEST_CASE("1.9: writes of the timer's registers") {
  check_alone(everywhere("msr 1"), [](GuestApic) { return "{ do = \"wrmsr\", msr = 0x6e0, value = 0 },\n"; });
  check_alone({"msr 1", "npf 1", "avic_unaccelerated_access 1", "avic_unaccelerated_access 1"},
              [](GuestApic apic) { return apic_write(apic, 0x380, "0"); });
}

TEST_CASE("1.9: PV_SEND_IPI") {
  const auto call = [](GuestApic, bool with) {
    return Guest{
        {compute(soon) + (with ? "{ do = \"vmmcall\", number = 10, arguments = [2, 0, 0, 0x41] },\n" : "") +
             compute(late),
         compute(late)},
        ""};
  };
  check_row(everywhere("hypercall 1"), 0, call);
  check_row({"interrupt 1", "interrupt 1", "", ""}, 1, call);
  const auto blocked = [](GuestApic, bool with) {
    return Guest{
        {compute(late) + (with ? "{ do = \"vmmcall\", number = 10, arguments = [2, 0, 0, 0x41] },\n" : "") +
             compute(late),
         halt_until(0x41)},
        ""};
  };
  check_row(everywhere("hypercall 1"), 0, blocked);
}

TEST_CASE("1.9: an interrupt to a target with IF = 0") {
  check_row({"interrupt 1, vintr 1", "interrupt 1, vintr 1", "", ""}, 1, [](GuestApic apic, bool with) {
    return Guest{{compute(soon) + (with ? send(apic, 1, 0x41) : "") + compute(late),
                  plain("cli") + compute(late) + plain("sti") + compute(soon)},
                 ""};
  });
}

TEST_CASE("1.9: PAUSE loops and host interrupts") {
  check_alone(everywhere("pause 1"), [](GuestApic) { return "{ do = \"pause\", repeat = 3002 },\n"; });
  // 10 ms of work under a tick of 1 ms, 2.7 GHz.
  check_row(everywhere("interrupt 10"), 0,
            [](GuestApic, bool with) { return Guest{{compute(with ? 27'000'000 : 100)}}; }, {"host.hz=1000"});
}

}  // namespace svmsim::model::test
