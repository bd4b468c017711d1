#pragma once

#include "svm/conformance/case.hpp"
#include "svm/table_environment.hpp"
#include "svm/vmcb.hpp"

namespace svmsim::svm::conformance {

/// Where the default guest starts.
inline constexpr std::uint64_t default_rip = 0x10'0000;

/// The VMCB of a case that says nothing: legal, a flat 64-bit guest with RFLAGS.IF = 0, ASID 1, nested paging
/// on, intercepts VMRUN, VMMCALL and shutdown.
[[nodiscard]] Vmcb default_vmcb();

void apply(const VmcbChange& change, Vmcb& vmcb);
/// Pending interrupts replace those of before; with `arriving` they join them.
void apply(const PendingChange& change, TableEnvironment& environment, bool arriving = false);
void apply(const SurroundingsChange& change, TableEnvironment& environment, bool arriving = false);

}  // namespace svmsim::svm::conformance
