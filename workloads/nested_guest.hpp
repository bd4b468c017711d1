#pragma once

#include <cstdint>
#include <vector>

#include "svm/permission_map.hpp"
#include "svm/vmcb.hpp"

namespace svmsim::workloads {

/// What a hypervisor that runs a guest hypervisor (L1) reads of its memory, and tells it. A WorkloadSource
/// that is an L1 has one: its current() is an action of L1, or between vmrun() and vmexit() one of its guest
/// (L2). Addresses are guest physical ones of L1.
class NestedGuest {
 public:
  NestedGuest() = default;
  NestedGuest(const NestedGuest&) = delete;
  NestedGuest& operator=(const NestedGuest&) = delete;
  virtual ~NestedGuest() = default;

  /// The VMCB in L1's memory; nullptr where L1 has none.
  [[nodiscard]] virtual svm::Vmcb* vmcb_page(std::uint64_t address) = 0;
  [[nodiscard]] virtual const svm::MsrPermissionMap& msr_permission_map(std::uint64_t address) const = 0;
  [[nodiscard]] virtual const svm::IoPermissionMap& io_permission_map(std::uint64_t address) const = 0;
  /// Whether L1's nested page tables map a page of L2.
  [[nodiscard]] virtual bool maps(std::uint64_t l2_physical) const = 0;
  /// Pages of L2 that nobody has touched yet: L0's shadow of L1's tables lacks them, too.
  [[nodiscard]] virtual std::vector<std::uint64_t> untouched_pages() const = 0;

  /// L0 has carried out a VMRUN: L2 goes on.
  virtual void vmrun() = 0;
  /// L0 has written a #VMEXIT into the VMCB: L1 goes on behind its VMRUN.
  virtual void vmexit() = 0;
};

}  // namespace svmsim::workloads
