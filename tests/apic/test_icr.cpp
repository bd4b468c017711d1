#include <array>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "apic/icr.hpp"

using namespace svmsim::apic;

TEST_CASE("the ICR of the idle-HLT thread decodes into its printed parts") {
  const IcrCommand command = IcrCommand::from_x2apic(0xb0000440b0);
  CHECK(command.vector == 0xb0);
  CHECK(command.delivery == DeliveryMode::fixed);
  CHECK(command.destination_mode == DestinationMode::physical);
  CHECK(command.assert);
  CHECK_FALSE(command.level_triggered);
  CHECK(command.shorthand == Shorthand::self);
  CHECK(command.destination == 0xb0);
  CHECK(ipi_text(command) == "dst b0 vec 176 (Fixed|physical|assert|edge|self)");
}

TEST_CASE("commands of the lab recordings print as the kernel prints them") {
  CHECK(ipi_text(IcrCommand::from_x2apic(0x44041)) == "dst 0 vec 65 (Fixed|physical|assert|edge|self)");
  CHECK(ipi_text(IcrCommand::from_x2apic(0x41)) == "dst 0 vec 65 (Fixed|physical|de-assert|edge|dst)");
  CHECK(ipi_text(IcrCommand::from_x2apic(0x100000041)) == "dst 1 vec 65 (Fixed|physical|de-assert|edge|dst)");
  CHECK(ipi_text(IcrCommand::from_x2apic(0xc4042)) ==
        "dst 0 vec 66 (Fixed|physical|assert|edge|all-but-self)");
  CHECK(ipi_text(IcrCommand::from_x2apic(0x1000088c30)) == "dst 10 vec 48 (NMI|logical|de-assert|level|all)");
}

TEST_CASE("every field of a command survives the register") {
  const bool held =
      rc::check("decode then encode is the identity outside the reserved bits", [](std::uint64_t icr) {
        const std::uint64_t defined = icr & ~x2apic_icr_reserved;
        RC_ASSERT(IcrCommand::from_x2apic(defined).x2apic() == defined);
        RC_ASSERT(IcrCommand::from_x2apic(icr) == IcrCommand::from_x2apic(defined));
      });
  CHECK(held);
}

TEST_CASE("delivery modes and shorthands have the kernel's names") {
  const std::array<std::string_view, 8> modes{"Fixed", "LowPrio", "SMI",  "Res3",
                                              "NMI",   "INIT",    "SIPI", "ExtINT"};
  for (std::size_t i = 0; i < modes.size(); ++i) {
    CHECK(delivery_mode_text(static_cast<DeliveryMode>(i)) == modes[i]);
    CHECK(delivery_mode_from_text(modes[i]) == static_cast<DeliveryMode>(i));
  }
  const std::array<std::string_view, 4> shorthands{"dst", "self", "all", "all-but-self"};
  for (std::size_t i = 0; i < shorthands.size(); ++i) {
    CHECK(shorthand_text(static_cast<Shorthand>(i)) == shorthands[i]);
    CHECK(shorthand_from_text(shorthands[i]) == static_cast<Shorthand>(i));
  }
  CHECK_FALSE(delivery_mode_from_text("fixed"));
  CHECK_FALSE(shorthand_from_text("none"));
}

TEST_CASE("only INIT with level 0 and trigger level is the legacy de-assert") {
  CHECK(IcrCommand::from_x2apic(0x8500).init_deassert());
  CHECK_FALSE(IcrCommand::from_x2apic(0xc500).init_deassert());
  CHECK_FALSE(IcrCommand::from_x2apic(0x0500).init_deassert());
  CHECK_FALSE(IcrCommand::from_x2apic(0x8041).init_deassert());
}
