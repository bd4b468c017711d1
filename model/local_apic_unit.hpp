#pragma once

#include <cstdint>
#include <systemc>

#include "apic/local_apic.hpp"

namespace svmsim::model {

/// What other vCPUs can do to the emulated local APIC of a vCPU.
class LocalApicInterface : public virtual sc_core::sc_interface {
 public:
  /// A fixed interrupt arrives. The caller has synchronised.
  virtual apic::Acceptance accept(std::uint8_t vector, bool level) = 0;
};

/// The emulated local APIC of one vCPU: the plain LocalApic behind an export.
class LocalApicUnit : public sc_core::sc_module, public LocalApicInterface {
 public:
  LocalApicUnit(const sc_core::sc_module_name& name, std::uint32_t apic_id,
                const apic::LocalApicOptions& options)
      : sc_core::sc_module(name), apic_(apic_id, options) {
    entry.bind(*this);
  }

  sc_core::sc_export<LocalApicInterface> entry{"entry"};

  apic::Acceptance accept(std::uint8_t vector, bool level) override { return apic_.accept(vector, level); }

  /// The owner's own view: no other CPU can be in between, the owner has synchronised.
  [[nodiscard]] apic::LocalApic& state() noexcept { return apic_; }
  [[nodiscard]] const apic::LocalApic& state() const noexcept { return apic_; }

 private:
  apic::LocalApic apic_;
};

}  // namespace svmsim::model
