#pragma once

#include <cstdint>

namespace svmsim::workloads {

/// The kernels whose KVM code paths, defaults and trace formats are modelled (kvm-software.md section 12).
/// v6_18 stands for mainline of 2025-26.
enum class KernelGeneration : std::uint8_t { v6_1, v6_12, v6_18 };

}  // namespace svmsim::workloads
