#pragma once

#include <cstdint>

namespace svmsim::svm {

/// Whether an exit of an SEV-ES guest goes straight to the host (AE). The others become #VC in the guest,
/// which asks the host through the GHCB and VMGEXIT (APM vol. 2, 15.35.4, table 15-33).
[[nodiscard]] bool is_automatic_exit(std::uint64_t code, std::uint64_t exit_info_1) noexcept;

}  // namespace svmsim::svm
