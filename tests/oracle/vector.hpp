#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "svm/intercept.hpp"
#include "svm/permission_map.hpp"
#include "svm/vmcb.hpp"
#include "tests/oracle/layout.hpp"
#include "tests/oracle/program.hpp"

namespace svmsim::oracle {

/// The state from which every vector starts: a flat 64-bit guest at CPL 0 with IF = 0, that intercepts VMRUN,
/// VMMCALL and shutdown and lives in the kernel's arena. SVM's own conditions are met, nothing else is on.
[[nodiscard]] svm::Vmcb base_vmcb();

/// One question to an emulator and to GuestCpu: the same guest program under the same VMCB, the same maps,
/// and the same events pending in the host.
struct Vector {
  std::uint32_t id = 0;
  std::string family;  ///< which part of the generator made it
  Program program;
  svm::Vmcb vmcb = base_vmcb();
  bool msr_fill = false;                ///< every bit of the MSR permission map
  bool io_fill = false;                 ///< every bit of the I/O permission map
  std::vector<std::uint32_t> msr_bits;  ///< bits of the map that are the opposite of the fill
  std::vector<std::uint32_t> io_bits;
  bool host_if = true;
  bool pending_intr = false;
  bool pending_nmi = false;
  std::uint8_t ipi_vector = 0xe1;
  std::uint8_t host_tpr = 0;

  Vector& intercept(svm::Intercept which, bool on = true) {
    svm::set_intercept(vmcb.control, which, on);
    return *this;
  }
  [[nodiscard]] bool intercepts(svm::Intercept which) const { return svm::intercepted(vmcb.control, which); }
  void set_cpl3();
};

/// The file that the kernel reads: a header, and a record for each vector.
[[nodiscard]] std::vector<std::uint8_t> pack(const std::vector<const Vector*>& vectors);

/// Both maps of a vector as they lie in memory.
[[nodiscard]] svm::MsrPermissionMap msr_map_of(const Vector& vector);
[[nodiscard]] svm::IoPermissionMap io_map_of(const Vector& vector);

/// What waivers and reports say of a vector: "action:hlt", "intercept:pause", "cpl3", "np", "if", "shadow",
/// "host_if", "pending:intr", "v_irq", "inject:exception", ...
[[nodiscard]] std::set<std::string> tags_of(const Vector& vector);

/// Everything of a vector that differs from the base state, for a report of a disagreement.
[[nodiscard]] std::string describe(const Vector& vector);

}  // namespace svmsim::oracle
