#pragma once

#include <cstdint>
#include <functional>

#include "tests/oracle/vector.hpp"

namespace svmsim::oracle {

using VectorSink = std::function<void(Vector&&)>;

/// Every combination that is worth asking, each once, in a fixed order: intercepts by actions by events by
/// privilege, the edges of the permission maps, the consistency checks, event injection, virtual interrupts,
/// the PAUSE filter, exceptions, interrupts that the guest sends itself.
void generate_systematic(const VectorSink& sink);

/// A vector that depends on nothing but `seed` and `index`: a program of a few actions under random
/// intercepts, maps, virtual interrupts and pending events.
[[nodiscard]] Vector random_vector(std::uint64_t seed, std::uint64_t index);

/// A virtual interrupt, pending with a priority.
void set_virtual_interrupt(Vector& vector, std::uint8_t interrupt_vector, std::uint8_t priority);
void set_if(Vector& vector, bool on);
void set_nested_paging(Vector& vector, bool on);

/// A settable surrounding of an action: what is pending, and which event intercepts are on.
struct EventCase {
  std::string_view name;
  void (*apply)(Vector&);
};
[[nodiscard]] const std::vector<EventCase>& event_cases();

}  // namespace svmsim::oracle
