#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "svm/vmcb_dump/vmcb_image.hpp"

namespace svmsim::svm {

/// Every dump in a kernel log, in the order in which they begin. What looks like a line of a dump outside of
/// one starts a dump only if enough such lines follow.
[[nodiscard]] std::vector<VmcbImage> parse_kernel_dumps(std::string_view log, const std::string& source);

}  // namespace svmsim::svm
