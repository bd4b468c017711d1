#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "svm/conformance/case.hpp"
#include "svm/conformance/guest_driver.hpp"
#include "svm/table_environment.hpp"

namespace svmsim::apic::conformance {

class AvicMachine;

/// The surroundings of a GuestCpu whose APIC is a vCPU of an AvicMachine: what the core asks of AVIC goes to
/// that vCPU's AvicCore, and what the core's IPIs ring goes to the others.
class AvicGuestEnvironment final : public svm::TableEnvironment {
 public:
  AvicGuestEnvironment(AvicMachine& machine, std::size_t index) : machine_(machine), index_(index) {}

  void avic_vmrun(const svm::VmcbControl& control) override;
  void avic_entered() override;
  void avic_vmexit() override;
  int avic_pending() override;
  int avic_acknowledge() override;
  void avic_write_cr8(std::uint8_t cr8) override;
  svm::AvicAccess avic_read_msr(std::uint32_t msr) override;
  svm::AvicAccess avic_write_msr(std::uint32_t msr, std::uint64_t value) override;
  svm::AvicAccess avic_read_page(std::uint32_t offset) override;
  svm::AvicAccess avic_write_page(std::uint32_t offset, std::uint32_t value) override;
  int avic_highest_irr() override;
  std::uint8_t avic_ppr() override;

 private:
  AvicMachine& machine_;
  std::size_t index_;
};

/// A whole guest on one vCPU of an AvicMachine: GuestCpu and AvicCore together.
struct AvicGuest {
  AvicGuest(AvicMachine& machine, std::size_t index, const svm::conformance::Case& processor)
      : environment(machine, index), driver(processor, environment) {}

  AvicGuestEnvironment environment;
  svm::conformance::GuestDriver driver;
};

}  // namespace svmsim::apic::conformance
