#include "apic/icr.hpp"

#include <array>

#include <fmt/format.h>

namespace svmsim::apic {

namespace {

constexpr std::array<std::string_view, 8> delivery_names{"Fixed", "LowPrio", "SMI",  "Res3",
                                                         "NMI",   "INIT",    "SIPI", "ExtINT"};
constexpr std::array<std::string_view, 4> shorthand_names{"dst", "self", "all", "all-but-self"};

template <typename Value, std::size_t size>
std::optional<Value> by_name(const std::array<std::string_view, size>& names,
                             std::string_view text) noexcept {
  for (std::size_t i = 0; i < size; ++i) {
    if (names[i] == text) return static_cast<Value>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view delivery_mode_text(DeliveryMode mode) noexcept {
  return delivery_names[static_cast<std::size_t>(mode)];
}

std::optional<DeliveryMode> delivery_mode_from_text(std::string_view text) noexcept {
  return by_name<DeliveryMode>(delivery_names, text);
}

std::string_view shorthand_text(Shorthand shorthand) noexcept {
  return shorthand_names[static_cast<std::size_t>(shorthand)];
}

std::optional<Shorthand> shorthand_from_text(std::string_view text) noexcept {
  return by_name<Shorthand>(shorthand_names, text);
}

std::string ipi_text(const IcrCommand& command) {
  return fmt::format("dst {:x} vec {} ({}|{}|{}|{}|{})", command.destination, command.vector,
                     delivery_mode_text(command.delivery),
                     command.destination_mode == DestinationMode::logical ? "logical" : "physical",
                     command.assert ? "assert" : "de-assert", command.level_triggered ? "level" : "edge",
                     shorthand_text(command.shorthand));
}

}  // namespace svmsim::apic
